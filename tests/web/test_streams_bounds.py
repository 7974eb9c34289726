"""`EventStream`: limits of selectors, readers and writes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from fastapi import FastAPI
from informers import plain, pods_of, settled
from starlette.routing import Route
from web_helpers import Page
from web_hosts import by_aiohttp, by_uvicorn

from aioinformer import Client, SharedInformerFactory
from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.web import aiohttp as for_aiohttp
from aioinformer.web import asgi
from aioinformer.web.connections import TooManyReaders
from aioinformer.web.selection import StreamSelection
from aioinformer.web.streams import WOKEN_AT_ONCE, EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

LARGE = "x" * 200_000


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, plain("a", app="web"))
        yield server


@pytest.fixture
async def pods(server: APIServer) -> AsyncIterator[Any]:
    async with pods_of(server) as (_, pods):
        yield pods


def aiohttp_host(pods: Any, **options: Any) -> AbstractAsyncContextManager[str]:
    app = web.Application()
    app.add_subapp("/events", for_aiohttp.event_stream(pods, **options))
    return by_aiohttp(app)


def asgi_host(pods: Any, **options: Any) -> AbstractAsyncContextManager[str]:
    app = FastAPI()
    app.routes.append(Route("/events", asgi.event_stream(pods, **options)))
    return by_uvicorn(app)


hosts = pytest.mark.parametrize(
    "host", [aiohttp_host, asgi_host], ids=["aiohttp", "uvicorn"]
)

# ------------------------------------------------------------ selectors


@pytest.mark.parametrize(
    "query",
    [
        [("labelSelector", ",".join(f"!k{number}" for number in range(33)))],
        [("labelSelector", f"!k{number}") for number in range(33)],
    ],
    ids=["one-selector", "several"],
)
@hosts
async def test_stream_refuses_more_than_32_requirements(
    host: Any, query: list[tuple[str, str]], pods: Any
) -> None:
    async with host(pods) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/events", params=query) as answer:
            assert answer.status == 400
            assert "33 requirements, more than 32" in await answer.text()

        async with http.get("/events", params=query[1:]) as answer:
            assert answer.status == 200


async def test_change_is_matched_once_for_equal_selectors(
    server: APIServer, pods: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = EventStream(pods)
    selectors = ["app=web,x", "x,app==web", "app = web, x"] * 10
    async with contextlib.AsyncExitStack() as stack:
        pages = [Page(stream, labelSelector=it) for it in selectors]
        for page in pages:
            await stack.enter_async_context(page.reading())

        checked = 0
        accepts = StreamSelection.__call__

        def counted(selection: StreamSelection, obj: Any) -> bool:
            nonlocal checked
            checked += 1
            return accepts(selection, obj)

        monkeypatch.setattr(StreamSelection, "__call__", counted)
        label = {"metadata": {"labels": {"x": "y"}}}
        server.patch(PODS, "a", label, namespace="default")
        await settled(server, pods)
        await asyncio.sleep(1)

        assert checked == 2, "as it was, and as it is"
        assert all(page.names[-1] == "added a" for page in pages)


async def test_change_wakes_few_readers_in_each_turn(
    server: APIServer, pods: Any
) -> None:
    stream = EventStream(pods, max_readers=None)
    count = 5 * WOKEN_AT_ONCE
    sent = 0

    async def write(chunk: bytes) -> None:
        nonlocal sent
        sent += chunk.count(b"event: updated")

    tasks = [
        asyncio.create_task(stream.send(stream.check(), write)) for _ in range(count)
    ]
    await asyncio.sleep(30)
    label = {"metadata": {"labels": {"x": "y"}}}
    server.patch(PODS, "a", label, namespace="default")
    most = 0
    while sent < count:
        most = max(most, sum(it.wakeup.is_set() for it in stream._connections._current))
        await asyncio.sleep(0)

    for task in tasks:
        task.cancel()

    await asyncio.wait(tasks)
    assert 0 < most <= WOKEN_AT_ONCE


# ------------------------------------------------------------ their number


@hosts
async def test_stream_refuses_readers_beyond_limit(host: Any, pods: Any) -> None:
    async with (
        host(pods, max_readers=2) as url,
        aiohttp.ClientSession(url) as http,
    ):
        async with http.get("/events") as first, http.get("/events") as second:
            assert (first.status, second.status) == (200, 200)
            async with http.get("/events") as third:
                assert third.status == 503
                assert third.headers["Retry-After"] == "5"

        await asyncio.sleep(1)
        async with http.get("/events") as again:
            assert again.status == 200


@hosts
async def test_concurrent_readers_beyond_limit_are_refused(
    pods: Any, host: Any
) -> None:
    async with (
        host(pods, max_readers=2) as url,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as group,
    ):
        asking = [group.create_task(session.get(f"{url}/events")) for _ in range(6)]
        answers = [await it for it in asking]
        assert sorted(it.status for it in answers) == [200] * 2 + [503] * 4
        refused = [it for it in answers if it.status == 503]
        assert {it.headers["Retry-After"] for it in refused} == {"5"}
        for answer in answers:
            answer.close()


async def test_stream_keeps_limit_when_many_readers_connect_at_once(
    pods: Any,
) -> None:
    stream = EventStream(pods, max_readers=1)
    asks = stream.check(), stream.check()
    page = Page(stream)
    async with page.reading():
        assert await stream.send(asks[0], page.write) is True
        assert stream.readers == 1
        with pytest.raises(TooManyReaders):
            stream.check()


@pytest.mark.parametrize("options", [{"max_readers": 0}, {"write_timeout": 0}], ids=str)
def test_stream_refuses_invalid_limits(options: dict[str, Any]) -> None:
    factory = SharedInformerFactory(Client.from_url("http://127.0.0.1:1"))

    with pytest.raises(OptionsError, match=next(iter(options))):
        EventStream(factory.informer("v1", "pods"), **options)


# ------------------------------------------------------------ stuck readers


def connected(url: str) -> socket.socket:
    """Client that requests events and reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    client.setblocking(False)
    return client


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def create_large(server: APIServer, count: int) -> None:
    body = plain("large")
    for number in range(count):
        body["metadata"] |= {"name": f"large-{number}", "annotations": {"x": LARGE}}
        server.create(PODS, body)


@hosts
async def test_stream_disconnects_stuck_reader(
    host: Any, server: APIServer, pods: Any, caplog: pytest.LogCaptureFixture
) -> None:
    create_large(server, 100)  # more than socket buffers hold
    await settled(server, pods)
    async with host(pods, write_timeout=20) as url:
        before = open_files()
        with contextlib.closing(connected(url)):
            await asyncio.sleep(15)
            assert open_files() == before + 2
            await asyncio.sleep(10)
            # Unsent data of the client is dropped, too.
            assert open_files() == before + 1

    worse = [it.getMessage() for it in caplog.records if it.levelno > logging.INFO]
    assert worse == []


async def test_stream_keeps_slow_reader(server: APIServer, pods: Any) -> None:
    create_large(server, 5)
    await settled(server, pods)
    page = Page(EventStream(pods, write_timeout=20))
    take = page.write

    async def slowly(chunk: bytes) -> None:
        await asyncio.sleep(15)
        await take(chunk)

    page.write = slowly  # type: ignore[method-assign]
    async with page.reading() as task:
        await asyncio.sleep(600)
        assert not task.done()
        assert page.names.count("synced") == 1


async def test_disconnected_reader_resumes(server: APIServer, pods: Any) -> None:
    stream = EventStream(pods, write_timeout=20)
    page = Page(stream)
    async with page.reading() as task:
        page.take()
        page.open.clear()
        server.create(PODS, plain("b"))
        await asyncio.sleep(21)
        assert task.done()
        assert page.in_order is False

    assert stream.readers == 0
    page.open.set()
    async with page.reading():
        assert page.take() == ["added b", "synced"]


async def test_timeout_error_of_write_is_raised(pods: Any) -> None:
    async def write(_: bytes) -> None:
        raise TimeoutError("of the host")

    stream = EventStream(pods)
    with pytest.raises(TimeoutError, match="of the host"):
        await stream.send(stream.check(), write)
