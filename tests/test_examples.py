"""The examples run as their comments say, and end cleanly."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from conftest import pod
from processes import PROMPT_SECONDS, ROOT, in_real_time, start

from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = in_real_time

EXAMPLES = ROOT / "examples"


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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


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


async def test_handlers_takes_a_server(server: APIServer) -> None:
    arguments = (EXAMPLES / "handlers.py", "--server", server.url)
    async with start(*arguments) as process:
        assert await process.line("synced") == "synced: 3 pods"


async def test_fastapi_app_answers_from_memory(environment: dict[str, str]) -> None:
    port = str(free_port())
    command = (EXAMPLES / "fastapi_app.py", "--port", port)
    async with (
        start(*command, environment=environment) as process,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        while "running on" not in await process.error_line():
            pass

        while (await answer_of(http, "/readyz"))[0] != 200:
            await asyncio.sleep(0.05)

        status, text = await answer_of(http, "/pods/shop")
        assert (status, text.count('"kind":"Pod"')) == (200, 3)
        status, text = await answer_of(http, "/pods/shop/web-0/running")
        assert (status, text) == (200, '{"running":true}')
        process.interrupt()
        end = await process.end()

    assert end.status == 0
    assert "Application shutdown complete" in end.err
    assert "Traceback" not in end.err
    assert end.seconds < PROMPT_SECONDS


async def answer_of(http: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with http.get(path) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("name", ["handlers.py", "aiohttp_app.py"])
async def test_no_kubeconfig_is_one_line(name: str) -> None:
    async with start(EXAMPLES / name) as process:
        end = await process.end()

    assert (end.status, end.out) == (1, "")
    assert end.err.startswith("no Kubernetes configuration found")
    assert end.err.count("\n") == 1


async def test_a_wrong_token_is_one_line(tmp_path: Path) -> None:
    async with APIServer(token="right") as server:
        config = server.kubeconfig(tmp_path / "config")
        config.write_text(config.read_text().replace("right", "wrong"))
        environment = {"KUBECONFIG": str(config)}
        async with start(EXAMPLES / "handlers.py", environment=environment) as process:
            end = await process.end()

    assert (end.status, end.out) == (1, "")
    # After what Python shows of the log where nobody has set it up.
    *logged, line = end.err.splitlines()
    assert all(it.startswith("pods: attempt failed (") for it in logged)
    assert line.startswith("not synced: pods: ")
    assert "401 Unauthorized: Unauthorized" in line


async def test_handlers_is_silent_when_its_reader_has_left(server: APIServer) -> None:
    command = [str(EXAMPLES / "handlers.py"), "--server", server.url]
    script = "import subprocess, sys; from subprocess import PIPE\n"
    script += f"command = [sys.executable, *{command!r}]\n"
    script += "child = subprocess.Popen(command, stdout=PIPE)\n"
    script += "child.stdout.readline(); child.stdout.close(); print(child.wait())"

    async with start("-c", script) as process:
        # It notices when it prints, which may be at the next change only.
        ending = asyncio.create_task(process.end())
        while not ending.done():
            name = f"late-{len(server.objects(PODS))}"
            server.create(PODS, {"metadata": {"name": name}}, namespace="shop")
            await asyncio.wait([ending], timeout=0.2)

        end = await ending

    assert (end.out, end.err) == ("0\n", "")


@pytest.mark.parametrize("mode", ["auto", "strict"])
async def test_the_test_file_passes(mode: str, tmp_path: Path) -> None:
    path = EXAMPLES / "test_with_apiserver.py"
    # As in a project of its own: without the options of this one.
    options = (f"--rootdir={tmp_path}", f"--config-file={os.devnull}", "-q")
    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    cache = ("-p", "no:cacheprovider", "-o", f"asyncio_mode={mode}")
    async with start("-m", "pytest", *options, *loops, *cache, path) as process:
        end = await process.end()

    assert (end.status, end.err) == (0, "")
    assert "3 passed" in end.out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda it: it.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


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
        while [it.verb for it in server.requests] != ["list", "watch"]:
            await asyncio.sleep(0.01)

        names = await names_of(session, "/pods/shop")
        assert names == ["db-0", "web-0", "web-1"]
        names = await names_of(session, "/pods/shop?labelSelector=app%3Dweb")
        assert names == ["web-0", "web-1"]
        assert await names_of(session, "/pods/elsewhere") == []
        async with session.get("/pods/shop?labelSelector=app+in") as answer:
            assert answer.status == 400

        assert [it.verb for it in server.requests] == ["list", "watch"]
        process.interrupt()
        end = await process.end()

    assert (end.status, end.err) == (0, "")


async def healthy(session: aiohttp.ClientSession) -> None:
    """Wait until the app is."""
    while True:
        async with session.get("/healthz") as answer:
            report = await answer.json()
            if answer.status == 200:
                assert report["synced"]
                return

            assert answer.status == 503


async def names_of(session: aiohttp.ClientSession, path: str) -> list[str]:
    async with session.get(path) as answer:
        assert answer.status == 200
        body = await answer.json()

    assert body["kind"] == "List"
    return sorted(item["metadata"]["name"] for item in body["items"])
