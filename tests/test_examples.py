"""The examples run as their comments say, and end cleanly."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from conftest import pod
from processes import ROOT, in_real_time, start

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
    assert end.seconds < 1


async def test_handlers_takes_a_server(server: APIServer) -> None:
    arguments = (EXAMPLES / "handlers.py", "--server", server.url)
    async with start(*arguments) as process:
        assert await process.line("synced") == "synced: 3 pods"


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
        asked_before = len(server.requests)

        names = await names_of(session, "/pods/shop")
        assert names == ["db-0", "web-0", "web-1"]
        names = await names_of(session, "/pods/shop?labelSelector=app%3Dweb")
        assert names == ["web-0", "web-1"]
        assert await names_of(session, "/pods/elsewhere") == []
        async with session.get("/pods/shop?labelSelector=app+in") as answer:
            assert answer.status == 400

        assert len(server.requests) == asked_before
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
