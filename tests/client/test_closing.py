"""Closing a client while requests are in progress."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from conftest import pod

from aioinformer.client import Client, ClientConfig
from aioinformer.errors import TransportError
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


async def closed_meanwhile(client: Client, waiting: Callable[[], bool]) -> None:
    """Close the client while a request waits, and check the error of the request."""
    loop = asyncio.get_running_loop()
    request = asyncio.create_task(client.get(PODS, "a", namespace="x"))
    while not waiting():
        await asyncio.sleep(0.001)

    before = loop.time()
    await client.close()
    await asyncio.wait({request}, timeout=1)

    assert loop.time() - before < 0.5
    with pytest.raises(TransportError, match="was closed during the request"):
        await request


@pytest.mark.parametrize("kept_alive", [False, True])
async def test_close_ends_requests_awaiting_response(
    server: CannedServer, kept_alive: bool
) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    client = Client.from_url(server.url)
    await client.start()
    if kept_alive:
        server.json(pod("a", "x"))

    server.answer(never)
    if kept_alive:
        await client.get(PODS, "a", namespace="x")

    expected = len(server.seen) + 1
    await closed_meanwhile(client, lambda: len(server.seen) == expected)


async def test_close_ends_requests_in_name_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []
    enough = threading.Event()

    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        looked_up.append(host)
        enough.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        client = Client.from_url("http://api.example:1")
        await client.start()
        await closed_meanwhile(client, lambda: bool(looked_up))
    finally:
        enough.set()


async def test_close_ends_requests_that_connect() -> None:
    loop: Any = asyncio.get_running_loop()
    opened: list[socket.socket] = []

    async def connect(sock: socket.socket, _: object) -> None:
        opened.append(sock)
        await asyncio.sleep(3600)

    loop.sock_connect = connect
    try:
        client = Client.from_url("http://127.0.0.1:1")
        await client.start()
        await closed_meanwhile(client, lambda: bool(opened))
    finally:
        del loop.sock_connect

    assert [each.fileno() for each in opened] == [-1]


async def test_cancelled_request_stays_cancelled_during_close(
    server: CannedServer,
) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer(never)
    client = Client.from_url(server.url)
    await client.start()
    request = asyncio.create_task(client.get(PODS, "a", namespace="x"))
    while not server.seen:
        await asyncio.sleep(0.001)

    request.cancel()
    await client.close()

    with pytest.raises(asyncio.CancelledError):
        await request


async def test_concurrent_close_waits_for_first_one(server: CannedServer) -> None:
    server.json(pod("a", "x"))
    client = Client.from_url(server.url)
    await client.start()
    await client.get(PODS, "a", namespace="x")
    opened = list(client._endpoint.transport()._sockets)

    first = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    assert not client.entered
    await client.close()

    assert [each.fileno() for each in opened] == [-1]
    await first


async def test_close_aborts_start_in_progress(server: CannedServer) -> None:
    reading = threading.Event()
    go_on = threading.Event()

    def read() -> ClientConfig:
        reading.set()
        go_on.wait()
        return ClientConfig(server=server.url)

    client = Client(read)
    start = asyncio.create_task(client.start())
    while not reading.is_set():
        await asyncio.sleep(0)

    await client.close()
    go_on.set()

    with pytest.raises(TransportError, match="closed while it was being entered"):
        await start

    assert not client.entered
    async with client:
        assert client.entered


async def test_client_can_be_entered_while_aborted_start_ends(
    server: CannedServer,
) -> None:
    client = Client.from_url(server.url)
    older = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    await client.close()

    await client.start()

    with pytest.raises(TransportError):
        await older

    assert client.entered
    await client.close()
