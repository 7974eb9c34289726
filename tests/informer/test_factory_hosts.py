"""`SharedInformerFactory` in web apps on uvicorn and aiohttp."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from factory_helpers import Bug, FakeClient, break_requests
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from informer_helpers import settle
from web_hosts import by_aiohttp, by_uvicorn, config_of

from aioinformer.errors import InformerStopped, NotSynced
from aioinformer.informer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client import Client


POD = {
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "a", "image": "b"}]},
}


@dataclass
class Site:
    """A typical web app on a factory with two informers."""

    client: Client
    factory: SharedInformerFactory = field(init=False)

    def __post_init__(self) -> None:
        self.factory = SharedInformerFactory(self.client)
        for resource in ("pods", "configmaps"):
            self.factory.informer("v1", resource)

    def read(self, resource: str) -> tuple[int, bytes]:
        informers = {it.name: it for it in self.factory.informers}
        try:
            return 200, informers[resource].lister.json()
        except (NotSynced, InformerStopped) as exc:
            return 503, str(exc).encode()

    def readiness(self) -> tuple[int, dict[str, str]]:
        troubles = self.factory.not_ready()
        return 503 if troubles else 200, troubles

    def asgi(self, lifespan: Any) -> FastAPI:
        app = FastAPI(lifespan=lifespan)

        @app.get("/read/{resource}")
        async def read(resource: str) -> Response:
            status, body = self.read(resource)
            return Response(body, status, media_type="application/json")

        @app.get("/thread/{resource}")
        def read_in_a_thread(resource: str) -> Response:
            status, body = self.read(resource)
            return Response(body, status, media_type="application/json")

        @app.get("/ready")
        async def ready() -> JSONResponse:
            status, troubles = self.readiness()
            return JSONResponse(troubles, status)

        return app

    def aiohttp(self) -> web.Application:
        async def read(request: web.Request) -> web.Response:
            status, body = self.read(request.match_info["resource"])
            return web.Response(status=status, body=body)

        async def ready(request: web.Request) -> web.Response:
            status, troubles = self.readiness()
            return web.json_response(troubles, status=status)

        app = web.Application()
        app.router.add_get("/read/{resource}", read)
        app.router.add_get("/thread/{resource}", read)
        app.router.add_get("/ready", ready)
        app.cleanup_ctx.append(self.factory.cleanup_ctx)
        return app


HOSTS: dict[str, Callable[[Site], AbstractAsyncContextManager[str]]] = {
    "uvicorn": lambda site: by_uvicorn(site.asgi(site.factory.lifespan)),
    "uvicorn-synced": lambda site: by_uvicorn(
        site.asgi(site.factory.lifespan_synced(timeout=60))
    ),
    "aiohttp": lambda site: by_aiohttp(site.aiohttp()),
}


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(PODS, POD)
        server.create(CONFIG_MAPS, {"metadata": {"name": "settings"}})
        yield server


async def get(url: str) -> tuple[int, str]:
    """Send a request over a new connection, and return its status and text."""
    async with aiohttp.request("GET", url, headers={"Connection": "close"}) as answer:
        return answer.status, await answer.text()


def object_requests(server: APIServer) -> int:
    """Return the number of requests, without version checks of silent watches."""
    return sum(it.query.get("limit") != "1" for it in server.requests)


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
async def test_web_app_answers_from_memory(
    server: APIServer, host: Callable[[Site], AbstractAsyncContextManager[str]]
) -> None:
    site = Site(server.client())

    async with host(site) as url:
        await site.factory.wait_for_cache_sync(timeout=30)
        await asyncio.sleep(1)  # its watches are open
        requested = object_requests(server)
        for way in ("read", "thread"):
            status, text = await get(f"{url}/{way}/pods")
            assert status == 200
            assert '"name":"web"' in text

        assert await get(f"{url}/ready") == (200, "{}")
        assert object_requests(server) == requested

    assert {it.status.phase for it in site.factory.informers} == {"stopped"}
    assert not site.client.entered


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
async def test_G8_web_app_reports_which_informer_is_dead(
    server: APIServer,
    host: Callable[[Site], AbstractAsyncContextManager[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(server.client())
    break_requests(site.client, "pods", after=10.0, watches_only=True)

    async def serve() -> None:
        async with host(site) as url:
            await site.factory.wait_for_cache_sync(timeout=30)
            assert (await get(f"{url}/ready"))[0] == 200

            error = await site.factory.failed()
            assert isinstance(error, Bug)
            assert await site.factory.failed() is error, "at once"
            status, text = await get(f"{url}/ready")
            assert (status, "pods" in text, "Bug" in text) == (503, True, True)
            for way in ("read", "thread"):
                assert await get(f"{url}/{way}/pods") == (503, "pods has ended")
                status, text = await get(f"{url}/{way}/configmaps")
                assert (status, "settings" in text) == (200, True)

    if host is HOSTS["aiohttp"]:
        with pytest.raises(Bug):
            await serve()
    else:
        await serve()  # uvicorn logs it
        received = [it for it in caplog.records if it.name.startswith("uvicorn")]
        assert any("Bug" in f"{it.getMessage()}{it.exc_text or ''}" for it in received)

    (died,) = [it for it in caplog.records if it.levelno == logging.CRITICAL]
    assert died.getMessage() == "informer pods failed"


@pytest.mark.parametrize("host", ["uvicorn", "aiohttp"])
async def test_app_that_serves_at_once_reports_that_it_is_not_ready(host: str) -> None:
    site = Site(FakeClient())  # no response ever

    async with HOSTS[host](site) as url:
        status, text = await get(f"{url}/ready")
        assert status == 503
        assert "listing, no error so far" in text
        status, text = await get(f"{url}/read/pods")
        assert status == 503
        assert text.startswith("pods is not synced: listing")

    assert site.client.record == ["entered", "asked", "asked", "left"]  # type: ignore[attr-defined]


async def test_app_that_waits_for_sync_does_not_serve_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(FakeClient())
    config = config_of(site.asgi(site.factory.lifespan_synced(timeout=30)))
    config.load()
    lifespan = config.lifespan_class(config)

    await lifespan.startup()

    assert lifespan.should_exit, "uvicorn exits instead of serving"
    assert "not synced: pods: listing" in caplog.text
    assert not site.client.entered


async def test_readiness_can_be_read_in_any_thread(server: APIServer) -> None:
    site = Site(server.client())
    before = await asyncio.to_thread(site.factory.not_ready)
    async with site.factory:
        await site.factory.wait_for_cache_sync(timeout=30)
        after = await asyncio.to_thread(site.factory.not_ready)

    stopped = await asyncio.to_thread(site.factory.not_ready)
    idle = "idle, not started yet"
    assert before == {"pods": idle, "configmaps": idle}
    assert after == {}
    assert stopped == {"pods": "stopped", "configmaps": "stopped"}


async def test_outage_leaves_an_app_ready(server: APIServer) -> None:
    site = Site(server.client())
    async with site.factory:
        await site.factory.wait_for_cache_sync(timeout=30)
        await server.stop()
        await asyncio.sleep(300)

        assert site.factory.not_ready() == {}
        assert all(it.status.failures for it in site.factory.informers)
        assert all((it.status.age or 0) > 200 for it in site.factory.informers)

    await settle()
