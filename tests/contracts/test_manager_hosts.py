"""A manager inside a fixture or a web app."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from controller_helpers import Slow, config_map, elector_of, managed
from doc_blocks import run_as_tests
from fastapi import FastAPI
from leader_helpers import MemoryLease
from web_hosts import by_aiohttp, by_uvicorn

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import health_routes as aiohttp_routes
from aioinformer.web.asgi import health_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import Manager


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        yield server


FILE = """
import asyncio
import pytest
import pytest_asyncio
from aioinformer import Controller, LeaderElector, Manager
from aioinformer.controller import LeaseLock
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

pytestmark = pytest.mark.asyncio(loop_scope="{scope}")
entered_in = set()

async def mark(request, ctx):
    data = {{"data": {{"seen": "yes"}}}}
    where = dict(namespace=request.namespace)
    await ctx.client.patch(CONFIG_MAPS, request.name, data, **where)

@pytest_asyncio.fixture(loop_scope="{scope}", scope="{scope}")
async def server():
    before = asyncio.all_tasks()
    async with APIServer() as server:
        server.create(CONFIG_MAPS, {{"metadata": {{"name": "a"}}}})
        client = server.client()
        lock = LeaseLock(client, "marker", namespace="default")
        async with Manager(client, elector=LeaderElector(lock)) as manager:
            maps = manager.informer(CONFIG_MAPS)
            manager.add(Controller("marker", mark, for_=maps))
            entered_in.add(asyncio.current_task())
            yield server
        assert not client.entered
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() - before <= {{asyncio.current_task()}}

@pytest.mark.parametrize("number", range(2))
async def test_manager_works_during_the_test(server, number):
    assert asyncio.current_task() not in entered_in
    def seen():
        found = server.get(CONFIG_MAPS, "a", namespace="default")
        return found.get("data") == {{"seen": "yes"}}
    await server.until(seen, timeout=30)
"""


def test_fixture_of_either_scope_can_host_a_manager(tmp_path: Path) -> None:
    scopes = ("function", "session")
    files = {f"test_{scope}.py": FILE.format(scope=scope) for scope in scopes}

    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    outcome = run_as_tests(tmp_path, files, "-p", "no:cacheprovider", *loops)

    assert all(map(outcome.has_passed, files)), outcome.out
    assert outcome.passed == dict.fromkeys(files, 2)


def fastapi(manager: Manager) -> Any:
    app = FastAPI(lifespan=manager.lifespan)
    app.mount("/", health_routes(manager))
    return by_uvicorn(app)


def by_cleanup(manager: Manager) -> Any:
    app = web.Application()
    app.cleanup_ctx.append(manager.cleanup_ctx)
    app.add_routes(aiohttp_routes(manager))
    return by_aiohttp(app)


@pytest.mark.parametrize("host", [fastapi, by_cleanup])
async def test_web_app_can_host_a_manager(server: APIServer, host: Any) -> None:
    before, lease, slow = asyncio.all_tasks(), MemoryLease(), Slow(5.0)
    manager = managed(server, slow, elector=elector_of(lease, "me"))

    async with host(manager) as url:
        await slow.begun.wait()
        async with aiohttp.request("GET", f"{url}/readyz") as answer:
            assert answer.status == 200

    assert slow.record == ["done"], "it was drained"
    assert lease.holders == ["me", ""]
    assert not manager.running
    assert asyncio.all_tasks() == before


async def test_G8_readiness_of_web_app_reports_failed_manager(
    server: APIServer,
) -> None:
    slow = Slow(0.0)
    manager = managed(server, slow)

    async def fails() -> None:
        await slow.begun.wait()
        raise ValueError("boom")

    manager.add(fails)

    async def host() -> None:
        async with manager.lifespan(None):
            await asyncio.sleep(1)
            assert manager.not_ready()["manager"] == "failed: ValueError('boom')"
            assert not manager.running

    with pytest.raises(ValueError, match="boom"):
        await host()


async def test_web_server_as_a_part_answers_during_the_drain(
    server: APIServer,
) -> None:
    slow, answers = Slow(5.0), list[int]()
    manager, app = managed(server, slow), web.Application()
    app.add_routes(aiohttp_routes(manager))
    address = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with by_aiohttp(app) as url:
            address.set_result(url)
            await asyncio.Event().wait()

    async def ask() -> None:
        async with aiohttp.request("GET", f"{await address}/livez") as answer:
            answers.append(answer.status)

    manager.add(serve, leader_only=False)
    running = asyncio.create_task(manager.run())
    await slow.begun.wait()
    await ask()
    running.cancel()
    await asyncio.sleep(2)
    await ask()
    await asyncio.wait({running})

    assert answers == [200, 200]
    assert slow.record == ["done"]
    with pytest.raises(aiohttp.ClientConnectorError):
        await ask()
