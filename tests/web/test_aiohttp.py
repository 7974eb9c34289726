"""Health, metrics and events in an aiohttp app."""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from informers import plain, pods_of
from ports import free_port
from prometheus_client import CollectorRegistry
from web_helpers import SentEvents, handlers_of
from web_hosts import by_aiohttp, needs_timeout_of_heads

import aioinformer.web.aiohttp
from aioinformer import Manager
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import (
    IDLE_SECONDS,
    app_of,
    event_stream,
    health_routes,
    listening,
    metrics_routes,
    serve,
)
from aioinformer.web.connections import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        yield server


@pytest.fixture
async def running(server: APIServer) -> AsyncIterator[Any]:
    async with pods_of(server) as both:
        yield both


@pytest.fixture
async def http(running: Any) -> AsyncIterator[aiohttp.ClientSession]:
    factory, pods = running
    app = web.Application()
    app.add_routes(health_routes(factory) + metrics_routes(CollectorRegistry()))
    app.add_subapp("/events", event_stream(pods, resume_seconds=0))
    async with by_aiohttp(app) as url, aiohttp.ClientSession(url) as session:
        yield session


LARGE = "x" * 200_000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("GET", "/readyz", 200),
        ("HEAD", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("POST", "/readyz", 405),
        ("POST", "/events", 405),
        ("GET", "/healthz", 404),
        ("GET", "/events/else", 404),
        ("HEAD", "/events", 200),
        ("GET", "/events?labelSelector=app+in", 400),
    ],
)
async def test_health_and_metrics_routes_respond(
    http: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with http.request(method, path) as answer:
        assert answer.status == status
        if method == "HEAD":
            assert await answer.read() == b""


async def test_responses_have_content_type(http: aiohttp.ClientSession) -> None:
    async with http.get("/readyz") as answer:
        assert (await answer.json())["status"] == "ok"

    async with http.get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")


@pytest.mark.parametrize("path", ["/events", "/events/"])
async def test_aiohttp_stream_sends_events(
    http: aiohttp.ClientSession, server: APIServer, running: Any, path: str
) -> None:
    page = SentEvents()
    async with http.get(path) as answer:
        assert answer.content_type == "text/event-stream"
        while "synced" not in page.names:
            page.feed(await answer.content.readany())

        server.create(PODS, plain("b"))
        while "added b" not in page.names:
            page.feed(await answer.content.readany())

        assert handlers_of(running[1]) == 1

    server.create(PODS, plain("c"))
    async with http.get(path, headers={"Last-Event-ID": page.last_id}) as answer:
        await answer.content.readany()

    await asyncio.sleep(1)
    assert handlers_of(running[1]) == 0, "it has noticed that nobody reads"


async def test_aiohttp_stream_sends_projections(running: Any) -> None:
    app = web.Application()
    stream = event_stream(running[1], render=lambda pod: {"pod": pod.key})
    app.add_subapp("/events", stream)
    page = SentEvents()
    async with (
        by_aiohttp(app) as url,
        aiohttp.ClientSession(url) as session,
        session.get("/events") as answer,
    ):
        while "synced" not in page.names:
            page.feed(await answer.content.readany())

    assert [it.data for it in page.events] == [{}, {"pod": "default/a"}, {}]


async def test_events_of_a_stopped_informer_are_refused(
    http: aiohttp.ClientSession, running: Any
) -> None:
    await running[0].shutdown()

    async with http.get("/events") as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "5"


async def test_stream_does_not_delay_shutdown_of_app(running: Any) -> None:
    app = web.Application()
    app.add_subapp("/events", event_stream(running[1]))
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        async with by_aiohttp(app) as url:
            answer = await session.get(f"{url}/events")
            await answer.content.readany()
            began = loop.time()

        assert loop.time() - began < 2
        await answer.read()  # complete


async def test_stuck_client_does_not_delay_shutdown_of_app(
    server: APIServer, running: Any
) -> None:
    body = plain("large")
    for number in range(100):  # more than socket buffers hold
        body["metadata"] |= {"name": f"large-{number}", "annotations": {"x": LARGE}}
        server.create(PODS, body)

    app = web.Application()
    app.add_subapp("/events", event_stream(running[1]))
    loop = asyncio.get_running_loop()
    async with by_aiohttp(app) as url:
        host, port = url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        client.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(5)
        began = loop.time()

    client.close()
    assert loop.time() - began == pytest.approx(GRACE_SECONDS, abs=0.5), "it was stuck"


# -------------------------------------------------------------------- without a web app


async def test_manager_serves_routes_until_its_end(server: APIServer) -> None:
    port = free_port()
    manager = Manager(server.client())
    manager.informer(PODS)
    routes = partial(serve, health_routes(manager), host="127.0.0.1", port=port)
    manager.add(routes, leader_only=False, name="health")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with manager:
            await manager.wait_for_cache_sync(timeout=10)
            async with session.get("/readyz") as answer:
                assert answer.status == 200

        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/readyz")


async def test_serving_ends_soon_although_a_response_hangs() -> None:
    started = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        started.set()
        return await asyncio.Future()

    port = free_port()
    loop = asyncio.get_running_loop()
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        asyncio.TaskGroup() as group,
    ):
        serving = group.create_task(
            serve([web.get("/", hang)], host="127.0.0.1", port=port)
        )
        await asyncio.sleep(1)
        reader = group.create_task(status_of(session, "/"))
        await started.wait()
        begun = loop.time()
        serving.cancel()
        await asyncio.wait({serving})
        assert loop.time() - begun <= 2
        assert await reader == 0


async def status_of(session: aiohttp.ClientSession, path: str) -> int:
    """Return the status of a response, or 0 if the connection is closed instead."""
    try:
        async with session.get(path) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


async def test_serving_fails_if_the_port_is_in_use(server: APIServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        manager = Manager(server.client())
        manager.add(
            partial(serve, [], host="127.0.0.1", port=port),
            leader_only=False,
            name="web",
        )
        with pytest.raises(OSError, match=r"cannot listen on .*, port \d+: .*in use"):
            await manager.run()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 404),
        ("LOCALHOST.", 404),
        ("10.0.0.1", 404),
        ("shop.example", 403),
        ("localhost.example", 403),
        ("[::1", 403),
    ],
)
async def test_loopback_address_refuses_other_names_than_localhost(
    name: str, status: int
) -> None:
    async with listening(app_of([]), port=0, host="127.0.0.1") as port:
        assert await status_by_name(port, f"{name}:{port}".encode()) == status


async def status_by_name(port: int, name: bytes) -> int:
    """Return the status of a request with this header `Host`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % name)
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    return int(status)


async def test_first_refused_name_is_logged_in_one_short_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for app in (app_of([]), app_of([])):
        async with listening(app, port=0, host="127.0.0.1") as port:
            for name in ("shop\u2028\x9b1m", "other.example"):
                assert await status_by_name(port, name.encode() + b"x" * 1000) == 403

    first, second = caplog.messages
    assert first == second
    assert first.isprintable()
    assert "'shop\\u2028\\x9b1mxx" in first
    assert len(first) < 300


@needs_timeout_of_heads
@pytest.mark.parametrize("sent", [b"", b"GET /a HTTP/1.1\r\nHost: localhost\r\n"])
async def test_connections_without_a_whole_head_are_closed(sent: bytes) -> None:
    loop = asyncio.get_running_loop()
    async with listening(app_of([]), port=0, host="127.0.0.1") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = loop.time()
        writer.write(sent)
        assert await reader.read() == b""
        assert loop.time() - began == pytest.approx(IDLE_SECONDS, abs=1)
        writer.close()
        await writer.wait_closed()


@pytest.mark.skipif(sys.platform != "linux", reason="a timeout of Linux")
@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_client_that_does_not_read_its_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aioinformer.web.aiohttp, "WRITE_SECONDS", 0.5)
    left = asyncio.Event()

    async def large(request: web.Request) -> web.Response:
        assert request.task is not None
        request.task.add_done_callback(lambda _: left.set())
        return web.Response(body=bytes(20_000_000))

    app = app_of([web.get("/", large)])
    async with listening(app, port=0, host="127.0.0.1") as port:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(20):
                await left.wait()
