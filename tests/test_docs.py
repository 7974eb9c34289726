"""What docs/testing.md says is true: its examples run, and its tables are complete."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import shutil
import socket
import subprocess
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from doc_blocks import Block, Outcome, blocks_of, broken_links, run_as_tests, said
from processes import ROOT, in_real_time, start

from aioinformer.cli.commands import aioinformer
from aioinformer.model.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    RESOURCE_QUOTAS,
)
from aioinformer.testing import APIServer, FakeListerWatcher, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.testing.faults import Fault

DOCS = ROOT / "docs"
TEXT = (DOCS / "testing.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(TEXT)
PROGRAMS = {f"test_line_{it.line}.py": it for it in BLOCKS if it.language == "python"}
CONSOLES = blocks_of(TEXT, "console")
COMMAND = "from aioinformer.cli.main import main; main()"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    table = re.search(
        rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE
    )
    assert table is not None, heading
    lines = table[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def code(cell: str) -> str:
    return cell.strip("`")


# -------------------------------------------------------------------- its blocks


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {it.language for it in BLOCKS} == {"toml", "python", "console"}
    assert (len(CONSOLES), len(blocks_of(TEXT, "toml"))) == (2, 1)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All examples in one run, in the project that the page describes."""
    (configuration,) = blocks_of(TEXT, "toml")
    files = {name: block.text for name, block in PROGRAMS.items()}
    folder = tmp_path_factory.mktemp("project")
    return run_as_tests(folder, {**files, "pyproject.toml": configuration.text})


@pytest.mark.realtime
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_passes(outcome: Outcome, name: str) -> None:
    assert outcome.has_passed(name), outcome.out


@pytest.mark.parametrize("block", PROGRAMS.values(), ids=list(PROGRAMS))
def test_an_example_fits_on_a_page(block: Block) -> None:
    lines = block.text.splitlines()

    assert len(lines) <= 50
    assert max(map(len, lines)) <= 88


PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda it: it.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_what_it_names_exists() -> None:
    named = re.findall(r"`(tests/[^`]+)`", TEXT)

    assert len(named) >= 4
    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []
    assert re.search(r"^e2e:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# -------------------------------------------------------------------- its tables


def test_the_options_of_the_server_are_complete() -> None:
    parameters = inspect.signature(APIServer).parameters
    shown = {code(name): code(default) for name, _, default in rows("option")}

    assert sorted(shown) == sorted(parameters)
    for name, default in shown.items():
        is_none = parameters[name].default in {None, ()}
        assert default in {"none", "None"} if is_none else True
        assert is_none or float(parameters[name].default) == float(eval(default))


def test_the_options_of_a_fault_are_complete() -> None:
    # The second table of options, of which the pattern finds the first.
    shown = re.findall(
        r"^\| `(\w+)` \|", TEXT.partition("| option | which")[2], re.MULTILINE
    )

    assert set(shown[: len(fields(faults.Fault))]) == {
        it.name for it in fields(faults.Fault)
    }


FAULTS = {code(name): code(example) for name, _, example in rows("fault")}


def a_fault(name: str) -> Fault:
    made: Fault = eval(FAULTS[name], {name: getattr(faults, name)})
    assert type(made).__name__ == name
    return made


def test_the_faults_are_complete() -> None:
    classes = [getattr(faults, name) for name in faults.__all__]
    kinds = {it.__name__ for it in classes if issubclass(it, faults.Fault)}

    assert set(FAULTS) == kinds - {"Fault", "EventFault"}


def test_most_faults_strike_watches_unless_they_name_a_verb() -> None:
    silent = [name for name, example in FAULTS.items() if "verb" not in example]
    always = {name for name in silent if not a_fault(name).verb}

    assert always <= {"Refuse", "Page", "Compact", "Delay"}
    assert faults.Compact().verb == ""
    assert {a_fault(name).verb for name in silent if name not in always} == {"watch"}


@pytest.fixture
async def http(apiserver: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    for number in range(4):
        apiserver.create(CONFIG_MAPS, {"metadata": {"name": f"map-{number}"}})

    timeout = aiohttp.ClientTimeout(total=200)
    async with aiohttp.ClientSession(apiserver.url, timeout=timeout) as session:
        yield session


async def met(server: APIServer, http: aiohttp.ClientSession) -> list[object]:
    """All that a client meets that lists two pages, and then watches for a while."""
    backup = server.snapshot()
    path, watch = "/api/v1/configmaps", "&sendInitialEvents=true&timeoutSeconds=5"
    watch += "&watch=1&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    first = await answer(http, f"{path}?limit=2")
    token = re.search(rb'"continue":"([^"]+)"', first[0])
    page = f"{path}?limit=2&continue={token[1].decode()}" if token else path
    # A token expires only if there is something newer.
    server.create(PODS, {"metadata": {"name": "newer"}})
    second, third = await answer(http, page), await answer(http, f"{path}?{watch}")
    await server.restart(snapshot=backup)
    return [*first, *second, *third]


async def answer(http: aiohttp.ClientSession, path: str) -> tuple[bytes, str, int]:
    """The body as far as it came, the status or the error, and the seconds."""
    loop = asyncio.get_running_loop()
    body, how, begun = b"", "", loop.time()
    try:
        async with http.get(path) as reply:
            how = f"{reply.status} {reply.content_type} "
            async for some in reply.content.iter_any():
                body += some
    except (aiohttp.ClientError, TimeoutError) as exc:
        how += type(exc).__name__

    return body, how, round(loop.time() - begun)


async def test_without_a_fault_a_client_meets_the_same_again(
    apiserver: APIServer, http: aiohttp.ClientSession
) -> None:
    assert await met(apiserver, http) == await met(apiserver, http)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_met_by_a_client(
    apiserver: APIServer, http: aiohttp.ClientSession, name: str
) -> None:
    usual = await met(apiserver, http)
    apiserver.faults.add(a_fault(name))

    assert await met(apiserver, http) != usual
    assert [it.fault for it in apiserver.faults.struck] == [a_fault(name)]


# -------------------------------------------------------------------- its claims


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/default/pods/web/eviction"),
        ("POST", "/api/v1/namespaces/default/pods/web/binding"),
        ("GET", "/api/v1/namespaces/default/pods/web/log"),
        ("POST", "/api/v1/namespaces/default/pods/web/exec"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("GET", "/api/v1/namespaces/default/services/kubernetes"),
        (
            "GET",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        ),
        ("GET", "/metrics"),
    ],
)
async def test_what_is_left_out_is_not_found(
    apiserver: APIServer, method: str, path: str
) -> None:
    apiserver.create(PODS, {"metadata": {"name": "web"}})
    async with aiohttp.request(method, f"{apiserver.url}{path}", json={}) as reply:
        assert reply.status == 404


async def test_dependents_outlive_their_owner(apiserver: APIServer) -> None:
    owner = apiserver.create(DEPLOYMENTS, {"metadata": {"name": "web"}})
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    reference["uid"] = owner["metadata"]["uid"]
    body = {"metadata": {"name": "web", "ownerReferences": [reference]}}
    apiserver.create(PODS, body)
    async with apiserver.client() as client:
        await client.delete(DEPLOYMENTS, "web", namespace="default")

    assert len(apiserver.objects(PODS)) == 1


async def test_a_quota_limits_nothing(apiserver: APIServer) -> None:
    none = {"hard": {"configmaps": "0"}}
    quota = {"metadata": {"name": "none"}, "spec": none}
    apiserver.create(RESOURCE_QUOTAS, quota | {"status": none | {"used": none["hard"]}})
    async with apiserver.client() as client:
        await client.create(
            CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="default"
        )

    assert len(apiserver.objects(CONFIG_MAPS)) == 1


@pytest.mark.apiserver(token="secret")
async def test_the_roles_that_people_bind_are_there(apiserver: APIServer) -> None:
    found = {it["metadata"]["name"] for it in apiserver.objects(CLUSTER_ROLES)}

    assert {"cluster-admin", "admin", "edit", "view"} <= found


def test_the_methods_of_the_fake_are_those() -> None:
    (told,) = re.findall(
        r"^`FakeListerWatcher` is(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"`(\w+)\(\)`", told))

    public = {name for name in vars(FakeListerWatcher) if not name.startswith("_")}
    assert named == public - {"resource_version", "watches", "list", "watch"}


# -------------------------------------------------------------------- its commands


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def moved(text: str, port: int, folder: Path) -> str:
    """The text for a port and a folder of the test."""
    return text.replace("8001", str(port)).replace("/tmp/", f"{folder}/")


class TestCommand:
    pytestmark = in_real_time

    async def test_it_greets_as_shown(self, tmp_path: Path) -> None:
        ((command, greeting),) = said(CONSOLES[0])
        port = free_port()
        _, *arguments = shlex.split(moved(command, port, tmp_path))
        async with start("-c", COMMAND, *arguments) as process:
            await process.line("kubectl get pods")
            process.interrupt()
            end = await process.end()

        assert end.out.startswith(moved(greeting, port, tmp_path))
        assert (tmp_path / "kubeconfig").exists()

    @pytest.mark.e2e
    async def test_kubectl_answers_as_shown(self, tmp_path: Path) -> None:
        if shutil.which("kubectl") is None:
            pytest.skip("there is no kubectl here")

        port = free_port()
        _, *arguments = shlex.split(moved(said(CONSOLES[0])[0][0], port, tmp_path))
        (export, _), *commands = said(CONSOLES[1])
        assert export == "export KUBECONFIG=/tmp/kubeconfig"
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
        async with start("-c", COMMAND, *arguments) as process:
            await process.line("kubectl get pods")
            for command, shown in commands:
                done = await asyncio.to_thread(kubectl, command, environment)
                assert done.strip() == shown.strip()


def kubectl(command: str, environment: dict[str, str]) -> str:
    done: Any = subprocess.run(
        shlex.split(command),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return str(done.stdout)


@pytest.mark.parametrize("option", ["--for", "--pods", "--churn", "--port"])
def test_the_command_has_the_options_that_are_named(option: str) -> None:
    command = aioinformer.commands["apiserver"]

    assert f"`{option} " in TEXT
    assert option in [name for it in command.params for name in it.opts]
