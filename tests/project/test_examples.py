"""The examples run as their comments say, and end cleanly."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from conftest import pod
from doc_sessions import files_of
from ports import free_port
from processes import PROMPT_SECONDS, ROOT, in_real_time, start
from web_helpers import SentEvents

from aioinformer.model import Resource
from aioinformer.model.resources import DEPLOYMENTS, LEASES, NAMESPACES, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = in_real_time

EXAMPLES = ROOT / "examples"
SITES = Resource("example.com", "v1", "sites", "Site")


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for name, app in (("web-0", "web"), ("web-1", "web"), ("db-0", "db")):
            body = pod(name, "shop", {"app": app})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        yield server


@pytest.fixture
def environment(server: APIServer, tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(server.kubeconfig(tmp_path / "config"))}


async def test_handlers_prints_pods_and_their_changes(
    server: APIServer, environment: dict[str, str]
) -> None:
    async with start(EXAMPLES / "handlers.py", environment=environment) as process:
        assert await process.line("synced") == "synced: 3 pods"

        failed = {"status": {"phase": "Failed"}}
        server.patch(PODS, "web-0", failed, namespace="shop")
        line = await process.line("updated")
        assert line == "updated shop/web-0 Running -> Failed"

        server.delete(PODS, "db-0", namespace="shop")
        assert await process.line("deleted") == "deleted shop/db-0"

        process.interrupt()
        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert end.out.count("added shop/") == 3
    assert end.seconds < PROMPT_SECONDS


async def test_controller_by_hand_counts_pods_and_retries(
    server: APIServer, environment: dict[str, str]
) -> None:
    script = EXAMPLES / "controller_by_hand.py"
    async with start(script, environment=environment) as process:
        assert await process.line("shop") == "shop: 3"

        # All five namespaces, so that the next refusal is about pods.
        await server.until(lambda: verbs_of(server).count("patch") == 5)
        server.faults.add(Refuse(verb="patch", status=503))
        server.delete(PODS, "db-0", namespace="shop")
        assert await process.line("shop") == "shop: 2"

        found = server.get(NAMESPACES, "shop")["metadata"]["annotations"]
        assert found == {"example.com/running-pods": "2"}
        server.faults.check()
        process.interrupt()
        end = await process.end()

    assert end.status == 0
    assert end.err.startswith("shop: 503 ")
    assert end.err.count("\n") == 1
    assert end.seconds < PROMPT_SECONDS


def operator_script(folder: Path) -> tuple[Path, int]:
    """Copy the operator, with free ports; return its path and the port of its probes."""
    folder.mkdir(exist_ok=True)
    text = (EXAMPLES / "site_operator.py").read_text(encoding="utf-8")
    port = free_port()
    assert "serve(port=8080" in text
    text = text.replace("port=8080", f"port={port}")
    path = folder / "site_operator.py"
    path.write_text(text.replace("cert_dir", "port=0, cert_dir"))
    return path, port


async def test_operator_creates_its_objects_and_cleans_up(
    server: APIServer, environment: dict[str, str], tmp_path: Path
) -> None:
    server.load(EXAMPLES / "site-crd.yaml", EXAMPLES / "site.yaml")
    script, port = operator_script(tmp_path)
    async with (
        start(script, environment=environment) as process,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        await server.until(lambda: status_of_blog(server), timeout=30)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {"observedGeneration": 1, **dict.fromkeys(counts, 2)}
        server.patch(DEPLOYMENTS, "blog", {"status": status}, namespace="default")
        await server.until(lambda: status_of_blog(server).get("ready") == 2, timeout=30)
        site = server.get(SITES, "blog", namespace="default")
        (ready,) = site["status"]["conditions"]
        assert (site["status"]["ready"], ready["status"]) == (2, "True")
        assert (ready["type"], ready["reason"]) == ("Ready", "Deployed")
        assert ready["observedGeneration"] == 1
        assert site["metadata"]["finalizers"] == ["example.com/record"]
        owned = server.get(DEPLOYMENTS, "blog", namespace="default")
        (owner,) = owned["metadata"]["ownerReferences"]
        assert owner["uid"] == site["metadata"]["uid"]
        assert (await answer_of(http, "/livez"))[0] == 200
        assert (await answer_of(http, "/readyz"))[0] == 200
        metrics = (await answer_of(http, "/metrics"))[1]
        for name in (
            "aioinformer_informer_synced",
            "leader_election_master_status",
            "reconcile_total",
            "reflector_lists_total",
            "rest_client_requests_total",
        ):
            assert name in metrics

        server.delete(SITES, "blog", namespace="default")
        await server.until(lambda: server.objects(SITES) == [], timeout=30)
        process.interrupt()
        end = await process.end()

    assert end.status == 0
    assert_no_failure(end.err)
    assert end.seconds < PROMPT_SECONDS


def status_of_blog(server: APIServer) -> dict[str, Any]:
    site = server.get(SITES, "blog", namespace="default")
    status: dict[str, Any] = site.get("status", {})
    return status


async def test_second_operator_takes_over(
    server: APIServer, environment: dict[str, str], tmp_path: Path
) -> None:
    server.load(EXAMPLES / "site-crd.yaml", EXAMPLES / "site.yaml")
    first, _ = operator_script(tmp_path / "first")
    second, _ = operator_script(tmp_path / "second")
    async with start(first, environment=environment) as leader:
        await server.until(lambda: status_of_blog(server), timeout=30)
        async with start(second, environment=environment):
            await server.until(lambda: len(watches_of_sites(server)) == 2, timeout=30)
            leader.interrupt(signal.SIGTERM)
            end = await leader.end()
            assert end.status == 0
            assert_no_failure(end.err)
            assert end.seconds < PROMPT_SECONDS

            server.delete(DEPLOYMENTS, "blog", namespace="default")
            body = {"spec": {"replicas": 3}}
            server.patch(SITES, "blog", body, namespace="default")
            await server.until(lambda: replicas_of_blog(server) == 3, timeout=30)


def replicas_of_blog(server: APIServer) -> int | None:
    found = server.objects(DEPLOYMENTS)
    return found[0]["spec"]["replicas"] if found else None


def assert_no_failure(log: str) -> None:
    """Check a log, which may have warnings of a busy machine."""
    lines = log.splitlines()
    assert [it for it in lines if not it.startswith(("INFO:", "WARNING:"))] == []
    assert "became leader" in log


def watches_of_sites(server: APIServer) -> list[object]:
    asked = ((it.verb, it.resource) for it in server.requests)
    return [it for it in asked if it == ("watch", "sites")]


async def test_replicas_of_the_sharded_controller_share_all_sites(
    server: APIServer, environment: dict[str, str]
) -> None:
    server.load(EXAMPLES / "site-crd.yaml")
    names = [f"site-{number}" for number in range(12)]
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"image": "nginx:1.29"}}
        server.create(SITES, body)

    async def scaled(replicas: int) -> None:
        for name in names:
            server.patch(SITES, name, {"spec": {"replicas": replicas}})

        await server.until(
            lambda: (
                [it["spec"]["replicas"] for it in server.objects(DEPLOYMENTS)]
                == [replicas] * len(names)
            ),
            timeout=30,
        )

    script, environment = (
        EXAMPLES / "sharded_controller.py",
        {**environment, "PORT": "0"},
    )
    async with (
        start(script, environment=environment) as one,
        start(script, environment=environment) as two,
    ):
        await server.until(lambda: ranges_of_owners(server) == [32, 32], timeout=30)
        await scaled(3)
        one.interrupt(signal.SIGTERM)
        ends = [await one.end()]
        assert ranges_of_owners(server) != [32, 32]
        await scaled(4)  # also those of the other replica
        two.interrupt(signal.SIGTERM)
        ends.append(await two.end())

    for end in ends:
        assert (end.status, "ERROR" in end.err) == (0, False), end.err
        assert "INFO:sites:reconciled default/site-" in end.err
        assert end.seconds < PROMPT_SECONDS

    assert ranges_of_owners(server) == []


def ranges_of_owners(server: APIServer) -> list[int]:
    """Return the number of ranges of each owner."""
    owners = Counter(
        it["spec"]["holderIdentity"]
        for it in server.objects(LEASES)
        if "-range-" in it["metadata"]["name"] and it["spec"].get("holderIdentity")
    )
    return list(owners.values())


async def test_client_of_kubernetes_asyncio_feeds_an_informer(
    server: APIServer, environment: dict[str, str]
) -> None:
    script = EXAMPLES / "kubernetes_asyncio_users.py"
    async with start(script, "shop", environment=environment) as process:
        assert await process.line("app=web") == "2 pods of app=web"

        failed = {"status": {"phase": "Failed"}}
        server.patch(PODS, "web-0", failed, namespace="shop")
        assert await process.line("Failed") == "web-0 is Failed"

        assert verbs_of(server) == ["list", "watch"]
        process.interrupt()
        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert end.seconds < PROMPT_SECONDS


def verbs_of(server: APIServer) -> list[str]:
    return [it.verb for it in server.requests]


async def test_handlers_accepts_a_server_url(server: APIServer) -> None:
    arguments = (EXAMPLES / "handlers.py", "--server", server.url)
    async with start(*arguments) as process:
        assert await process.line("synced") == "synced: 3 pods"


async def test_workers_of_the_shared_app_have_one_watch(
    server: APIServer, environment: dict[str, str], tmp_path: Path
) -> None:
    port = str(free_port())
    app = ("--app-dir", EXAMPLES, "shared_cache_app:app", "--workers", "2")
    environment = {**environment, "CACHE_DIR": str(tmp_path / "cache")}
    async with (
        start("-m", "uvicorn", *app, "--port", port, environment=environment) as it,
        it.interrupted(),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        workers: dict[int, dict[str, Any]] = {}
        asked = 0
        while len(workers) < 2 or not all(it["changes"] for it in workers.values()):
            # Each request by a connection of its own, so that all workers answer.
            try:
                async with http.get("/worker", headers={"Connection": "close"}) as got:
                    answer = await got.json()
                    workers[answer["pid"]] = answer
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)

            asked += 1
            server.patch(
                PODS,
                "web-0",
                {"metadata": {"labels": {"asked": str(asked)}}},
                namespace="shop",
            )

        roles = sorted(it["role"] for it in workers.values())
        assert roles == ["reader", "writer"]
        assert (await answer_of(http, "/nodes/node-1/pods"))[0] == 200
        assert (await answer_of(http, "/pods/shop"))[1].count('"kind":"Pod"') == 3
        assert verbs_of(server).count("watch") == verbs_of(server).count("list") == 1


async def test_fastapi_app_answers_from_the_cache(
    server: APIServer, environment: dict[str, str]
) -> None:
    port = str(free_port())
    command = ("-m", "uvicorn", "--app-dir", EXAMPLES, "fastapi_app:app")
    async with (
        start(*command, "--port", port, environment=environment) as process,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        while "running on" not in await process.error_line():
            pass

        while (await answer_of(http, "/readyz"))[0] != 200:
            await asyncio.sleep(0.05)

        status, text = await answer_of(http, "/pods/shop")
        assert (status, text.count('"kind":"Pod"')) == (200, 3)
        status, text = await answer_of(http, "/pods/shop/web-0/running")
        assert (status, text) == (200, "web-0 runs")
        assert (await answer_of(http, "/livez"))[0] == 200
        assert "reflector_lists_total" in (await answer_of(http, "/metrics"))[1]
        assert "EventSource" in (await answer_of(http, "/"))[1]
        async with http.get("/events") as events:
            page = await events_until(events, "synced")
            server.delete(PODS, "db-0", namespace="shop")
            await events_until(events, "deleted db-0", page)
            # While somebody reads: the stream ends, and delays nothing.
            process.interrupt()
            await events.read()

        end = await process.end()

    assert end.status in {0, -signal.SIGINT}, "uvicorn ends by its signal"
    assert "Application shutdown complete" in end.err
    for word in ("Traceback", "Warning", "WARNING", "ERROR"):
        assert word not in end.err
    assert end.seconds < PROMPT_SECONDS


async def events_until(
    answer: aiohttp.ClientResponse, name: str, page: SentEvents | None = None
) -> SentEvents:
    """Read events until the named one comes."""
    page = page or SentEvents()
    while name not in page.names:
        chunk = await answer.content.readany()
        assert chunk, f"{answer.url} ended with {answer.status} before {name!r} came"
        page.feed(chunk)

    return page


async def answer_of(http: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with http.get(path) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "name",
    ["aiohttp_app.py", "controller_by_hand.py", "handlers.py"],
)
async def test_missing_kubeconfig_is_reported_in_one_line(name: str) -> None:
    async with start(EXAMPLES / name) as process:
        end = await process.end()

    assert (end.status, end.out) == (1, "")
    assert end.err.startswith("no Kubernetes configuration found")
    assert end.err.count("\n") == 1


async def test_operator_without_kubeconfig_reports_it_after_opening_its_port(
    tmp_path: Path,
) -> None:
    script, port = operator_script(tmp_path)
    async with start(script) as process:
        end = await process.end()

    opened, missing = end.err.splitlines()
    assert opened.endswith(f"(port={port})")
    assert missing.startswith("no Kubernetes configuration found")
    assert (end.status, end.out) == (1, "")


async def test_missing_kubeconfig_of_kubernetes_asyncio_has_no_traceback() -> None:
    async with start(EXAMPLES / "kubernetes_asyncio_users.py", "shop") as process:
        end = await process.end()

    assert (end.status, end.out) == (1, "")
    # The first line is from the log of kubernetes_asyncio.
    first, second = end.err.splitlines()
    assert first.startswith("Config not found: ")
    assert second.startswith("Invalid kube-config file.")


async def test_wrong_token_is_reported_in_one_line(tmp_path: Path) -> None:
    async with APIServer(token="right") as server:
        config = server.kubeconfig(tmp_path / "config")
        config.write_text(config.read_text().replace("right", "wrong"))
        environment = {"KUBECONFIG": str(config)}
        async with start(EXAMPLES / "handlers.py", environment=environment) as process:
            end = await process.end()

    assert (end.status, end.out) == (1, "")
    # After the log lines that Python shows if logging is not configured.
    *logged, line = end.err.splitlines()
    assert all(
        it.startswith("pods: list or watch failed, will retry (") for it in logged
    )
    assert line.startswith("not synced: pods: ")
    assert "401 Unauthorized" in line


async def test_handlers_ends_silently_on_a_closed_pipe(server: APIServer) -> None:
    command = [str(EXAMPLES / "handlers.py"), "--server", server.url]
    script = "import subprocess, sys; from subprocess import PIPE\n"
    script += f"command = [sys.executable, *{command!r}]\n"
    script += "child = subprocess.Popen(command, stdout=PIPE)\n"
    script += "child.stdout.readline(); child.stdout.close(); print(child.wait())"

    async with start("-c", script) as process:
        # It notices when it prints, perhaps only at the next change.
        ending = asyncio.create_task(process.end())
        while not ending.done():
            name = f"late-{len(server.objects(PODS))}"
            server.create(PODS, {"metadata": {"name": name}}, namespace="shop")
            await asyncio.wait([ending], timeout=0.2)

        end = await ending

    assert (end.out, end.err) == ("0\n", "")


@pytest.mark.parametrize("mode", ["auto", "strict"])
async def test_example_test_file_passes(mode: str, tmp_path: Path) -> None:
    path = EXAMPLES / "test_with_apiserver.py"
    # As in a separate project: without the options of this one.
    options = (f"--rootdir={tmp_path}", f"--config-file={os.devnull}", "-q")
    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    cache = ("-p", "no:cacheprovider", "-o", f"asyncio_mode={mode}")
    async with start("-m", "pytest", *options, *loops, *cache, path) as process:
        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert "3 passed" in end.out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda it: it.name)
def test_examples_are_short(path: Path) -> None:
    # A whole program, and its tests.
    most = {
        "sharded_controller.py": 76,
        "site_operator.py": 89,
        "test_site_operator.py": 100,
        "test_site_simulation.py": 95,
    }
    assert len(path.read_text().splitlines()) <= most.get(path.name, 74)


@pytest.mark.parametrize(
    ("program", "tests", "passed"),
    [
        ("site_operator.py", "test_site_operator.py", 7),
        ("site_operator.py", "test_site_simulation.py", 1),
        ("sharded_controller.py", "test_sharded_simulation.py", 1),
    ],
)
async def test_operators_pass_their_tests_in_a_project_of_their_own(
    program: str, tests: str, passed: int, tmp_path: Path
) -> None:
    for name in (program, tests, "site-crd.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)

    few = ("--simulation-seeds", "3") if "simulation" in tests else ()
    options = (f"--rootdir={tmp_path}", f"--config-file={os.devnull}", "-q", *few)
    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    arguments = (*options, *loops, "-p", "no:cacheprovider", tmp_path)
    async with start("-m", "pytest", *arguments) as process:
        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert f"{passed} passed" in end.out


def test_operator_page_shows_the_files_of_the_example() -> None:
    shown = files_of((ROOT / "docs" / "operator.md").read_text(encoding="utf-8"))
    assert len(shown) == 4
    for name, text in shown.items():
        assert text == (EXAMPLES / name).read_text(encoding="utf-8"), name


async def test_aiohttp_app_answers_from_the_cache(
    server: APIServer, environment: dict[str, str]
) -> None:
    port = free_port()
    arguments = (EXAMPLES / "aiohttp_app.py", "--port", str(port))
    async with (
        start(*arguments, environment=environment) as process,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        await process.line("Running on")
        await healthy(session)
        while verbs_of(server) != ["list", "watch"]:
            await asyncio.sleep(0.01)

        names = await names_of(session, "/pods/shop")
        assert names == ["db-0", "web-0", "web-1"]
        names = await names_of(session, "/pods/shop?labelSelector=app%3Dweb")
        assert names == ["web-0", "web-1"]
        assert await names_of(session, "/pods/elsewhere") == []
        async with session.get("/pods/shop?labelSelector=app+in") as answer:
            assert answer.status == 400

        assert "reflector_lists_total" in (await answer_of(session, "/metrics"))[1]
        assert verbs_of(server) == ["list", "watch"]
        async with session.get("/events?labelSelector=app%3Ddb") as events:
            page = await events_until(events, "synced")
            assert page.names == ["reset", "added db-0", "synced"]
            process.interrupt()
            await events.read()

        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert end.seconds < PROMPT_SECONDS


async def healthy(session: aiohttp.ClientSession) -> None:
    """Wait until the app is healthy."""
    while True:
        async with session.get("/readyz") as answer:
            report = await answer.json()
            if answer.status == 200:
                assert report["informers"][0]["synced"]
                return

            assert answer.status == 503


async def names_of(session: aiohttp.ClientSession, path: str) -> list[str]:
    async with session.get(path) as answer:
        assert answer.status == 200
        body = await answer.json()

    assert body["kind"] == "List"
    return sorted(item["metadata"]["name"] for item in body["items"])
