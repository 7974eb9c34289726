"""The web apps of examples/ in use: started, with a killed informer, and stopped.

The page of the live stream is tested in a real browser, if there is one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from factory_helpers import Bug, break_requests
from informers import plain
from processes import ROOT, start
from site_browser import BROWSERS, find_chromium, started
from web_helpers import SentEvents
from web_hosts import by_aiohttp, by_uvicorn

from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from site_browser import Browser

BROWSER = find_chromium()


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(PODS, plain("web-0", app="web"))
        server.create(PODS, plain("db-0", app="db"))
        yield server


@pytest.fixture
def kubeconfig(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))


@pytest.fixture(params=["aiohttp_app", "fastapi_app"])
def module(request: pytest.FixtureRequest, kubeconfig: None) -> Any:
    """Import an example again, because its factory runs only once."""
    name = request.param
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "examples" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def served(module: Any) -> Any:
    if hasattr(module, "make_app"):
        return by_aiohttp(module.make_app())

    return by_uvicorn(module.app)


async def status_of(http: aiohttp.ClientSession, path: str) -> int:
    async with http.get(path, headers={"Connection": "close"}) as answer:
        await answer.read()
        return answer.status


async def ready(http: aiohttp.ClientSession) -> None:
    while await status_of(http, "/readyz") != 200:
        await asyncio.sleep(0.1)


async def test_web_app_starts_answers_and_stops(
    server: APIServer, module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(module) as url, aiohttp.ClientSession(url) as http:
        await ready(http)
        for path in ("/livez", "/readyz", "/metrics", "/pods/default"):
            assert await status_of(http, path) == 200, path

        for path in ("/nothing", "/pods"):
            assert await status_of(http, path) == 404, path

        page = SentEvents()
        async with http.get("/events") as events:
            while "synced" not in page.names:
                page.feed(await events.content.readany())

    assert sorted(page.names) == ["added db-0", "added web-0", "reset", "synced"]
    assert module.pods.status.phase == "stopped"
    assert [it for it in caplog.records if it.levelno >= logging.WARNING] == []


async def test_G8_app_is_not_ready_after_its_informer_died(
    module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    break_requests(module.factory._client, "pods", after=20.0, watches_only=True)

    async def serve() -> None:
        async with served(module) as url, aiohttp.ClientSession(url) as http:
            await ready(http)
            page = SentEvents()
            async with http.get("/events") as events:
                while "synced" not in page.names:
                    page.feed(await events.content.readany())

                await module.factory.failed()
                await events.read()  # the stream ends cleanly

            assert await status_of(http, "/readyz") == 503
            assert await status_of(http, "/livez") == 503
            assert await status_of(http, "/pods/default") == 503
            assert await status_of(http, "/events") == 503

    if module.__name__ == "aiohttp_app":
        with pytest.raises(Bug):
            await serve()
    else:
        await serve()  # uvicorn logs it

    died = [it for it in caplog.records if it.levelno == logging.CRITICAL]
    assert [it.getMessage() for it in died] == ["informer pods failed"]


async def test_reconnecting_browser_misses_nothing(
    server: APIServer, module: Any
) -> None:
    async with served(module) as url, aiohttp.ClientSession(url) as http:
        page = SentEvents()
        async with http.get("/events") as events:
            while "synced" not in page.names:
                page.feed(await events.content.readany())

        page.take()
        server.delete(PODS, "db-0", namespace="default")
        server.create(PODS, plain("web-1"))
        await module.pods.wait_for_version(server.resource_version, timeout=30)
        headers = {"Last-Event-ID": page.last_id}
        async with http.get("/events", headers=headers) as events:
            while "synced" not in page.names:
                page.feed(await events.content.readany())

    assert sorted(page.names) == ["added web-1", "deleted db-0", "synced"]


# ---------------------------------------------------------------- in a browser


async def shows(tab: Browser, text: str, *, at_all: bool = True) -> None:
    found = f"document.body?.innerText.includes({json.dumps(text)})"
    await tab.until(found if at_all else f"!{found}")


@pytest.mark.skipif(BROWSER is None, reason=f"no browser here: none of {BROWSERS}")
@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_page_shows_pod_and_its_deletion_within_a_second(
    server: APIServer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]

    command = ("-m", "uvicorn", "--app-dir", ROOT / "examples", "fastapi_app:app")
    environment = {"KUBECONFIG": str(server.kubeconfig(tmp_path / "config"))}
    loop = asyncio.get_running_loop()
    async with start(*command, "--port", str(port), environment=environment) as process:
        while "running on" not in await process.error_line():
            pass

        assert BROWSER is not None
        async with started(BROWSER) as tab:
            await tab.open(f"http://127.0.0.1:{port}/")
            await shows(tab, "live")
            await shows(tab, "web-0")
            taken: list[float] = []
            for name in ("first", "second", "third"):
                began = loop.time()
                server.create(PODS, plain(name))
                await shows(tab, name)
                created = loop.time() - began
                began = loop.time()
                server.delete(PODS, name, namespace="default")
                await shows(tab, name, at_all=False)
                taken.append(max(created, loop.time() - began))

            rows = await tab.run("document.querySelectorAll('tr').length")

    assert rows == 2
    assert min(taken) < 1.0, "of three tries on a machine that may be busy"
