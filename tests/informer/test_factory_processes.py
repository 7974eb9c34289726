"""G8 in real hosts: `web.run_app`, `uvicorn.run`, pytest.

Each test injects a bug of the package while the app serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import aiohttp
import pytest
from doc_blocks import run_as_tests
from ports import free_port
from processes import PROMPT_SECONDS, ROOT, start

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from processes import Finished, Process

SITE = """
import asyncio, sys
from aioinformer import Client, InformerStopped, NotSynced, SharedInformerFactory
from factory_helpers import break_requests

url, port = sys.argv[1], int(sys.argv[2])
client = Client.from_url(url)
factory = SharedInformerFactory(client)
factory.informer("v1", "pods")
factory.informer("v1", "configmaps")
broken = asyncio.Event()
break_requests(client, "pods", when=broken, watches_only=True)

def read(name):
    informers = {it.name: it for it in factory.informers}
    try:
        return 200, sorted(obj.name for obj in informers[name].lister.list())
    except (NotSynced, InformerStopped) as exc:
        return 503, type(exc).__name__

def readiness():
    troubles = factory.not_ready()
    return 503 if troubles else 200, troubles

async def kill():
    broken.set()
    return 200, repr(await factory.failed())
"""

ON_AIOHTTP = """
from aiohttp import web

def answer(found):
    status, content = found
    return web.json_response(content, status=status)

async def on_read(request):
    return answer(read(request.match_info["name"]))

async def on_ready(request):
    return answer(readiness())

async def on_kill(request):
    return answer(await kill())

app = web.Application()
app.router.add_get("/read/{name}", on_read)
app.router.add_get("/ready", on_ready)
app.router.add_get("/kill", on_kill)
app.cleanup_ctx.append(factory.cleanup_ctx)
web.run_app(app, host="127.0.0.1", port=port)
"""

ON_UVICORN = """
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

def answer(found):
    status, content = found
    return JSONResponse(content, status_code=status)

async def on_read(request):
    return answer(read(request.path_params["name"]))

async def on_ready(request):
    return answer(readiness())

async def on_kill(request):
    return answer(await kill())

routes = [
    Route("/read/{name}", on_read), Route("/ready", on_ready), Route("/kill", on_kill)
]
app = Starlette(routes=routes, lifespan=factory.lifespan)
uvicorn.run(app, host="127.0.0.1", port=port)
"""

# For processes that import helpers.
TEST_MODULES = os.pathsep.join(str(ROOT / it) for it in ("tests", "tests/helpers"))


@contextlib.asynccontextmanager
async def site(
    server: APIServer, host: str
) -> AsyncIterator[tuple[Process, aiohttp.ClientSession]]:
    """Run the app in its own process, and wait until it is ready."""
    port = free_port()
    environment = {"PYTHONPATH": TEST_MODULES}
    command = ("-c", SITE + host, server.url, str(port))
    async with (
        start(*command, environment=environment) as process,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        asyncio.timeout(60),
    ):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                if (await get(http, "/ready"))[0] == 200:
                    break

            await asyncio.sleep(0.05)

        yield process, http


async def get(http: aiohttp.ClientSession, path: str) -> tuple[int, object]:
    async with http.get(path) as answer:
        return answer.status, await answer.json()


async def dies_alone(host: str) -> Finished:
    """Kill an informer of an app; return the end of its process."""
    async with APIServer(auto_namespaces=True) as server:
        server.create(CONFIG_MAPS, {"metadata": {"name": "settings"}})
        async with site(server, host) as (process, http):
            assert await get(http, "/read/pods") == (200, [])

            assert await get(http, "/kill") == (200, "Bug('pods')")

            stopped = {"pods": "stopped: Bug('pods')"}
            assert await get(http, "/ready") == (503, stopped)
            assert await get(http, "/read/pods") == (503, "InformerStopped")
            while "informer pods failed" not in await process.error_line():
                pass  # logged at once, without any configuration of logging

            # The other informer continues.
            server.create(CONFIG_MAPS, {"metadata": {"name": "late"}})
            while await get(http, "/read/configmaps") != (200, ["late", "settings"]):
                await asyncio.sleep(0.05)

            process.interrupt()
            end = await process.end()

    assert end.seconds < PROMPT_SECONDS
    return end


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_G8_web_run_app_continues_without_a_dead_informer() -> None:
    end = await dies_alone(ON_AIOHTTP)

    assert end.status == 1, "the program ends with the error"
    assert end.err.rstrip().endswith("factory_helpers.Bug: pods")


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_G8_uvicorn_continues_without_a_dead_informer() -> None:
    end = await dies_alone(ON_UVICORN)

    assert "factory_helpers.Bug: pods" in end.err, "logged by uvicorn"
    assert "Application shutdown failed" in end.err


FIXTURE = """
import asyncio
import pytest
import pytest_asyncio
from aioinformer import InformerStopped, SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS
from factory_helpers import Bug, break_requests

pytestmark = pytest.mark.asyncio
broken = asyncio.Event()

@pytest_asyncio.fixture
async def factory(apiserver):
    apiserver.create(CONFIG_MAPS, {"metadata": {"name": "settings"}})
    client = apiserver.client()
    factory = SharedInformerFactory(client)
    factory.informer("v1", "pods")
    factory.informer("v1", "configmaps")
    break_requests(client, "pods", when=broken, watches_only=True)
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        yield factory

async def test_it(factory, apiserver):
    pods, maps = factory.informers
    assert factory.not_ready() == {} and pods.lister.list() == []
    broken.set()
    error = await factory.failed()
    assert isinstance(error, Bug)
    assert factory.not_ready() == {"pods": "stopped: Bug('pods')"}
    with pytest.raises(InformerStopped):
        pods.lister.list()
    apiserver.create(CONFIG_MAPS, {"metadata": {"name": "late"}})
    await maps.wait_for_version(apiserver.resource_version, timeout=30)
    assert len(maps.lister.list()) == 2
"""


def test_G8_pytest_fixture_continues_without_a_dead_informer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", TEST_MODULES)

    options = ("-o", "asyncio_default_fixture_loop_scope=function")
    outcome = run_as_tests(
        tmp_path, {"test_it.py": FIXTURE}, "-p", "no:cacheprovider", *options
    )

    assert outcome.passed == {"test_it.py": 1}, outcome.out
    # The test has passed; the teardown of the fixture raises the failure.
    assert "ERROR at teardown of test_it" in outcome.out
    assert "factory_helpers.Bug: pods" in outcome.out
    assert "1 passed, 1 error" in outcome.out
