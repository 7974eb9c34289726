"""Bytes of a fenced request do not arrive after the request was given up.

Real sockets: the server stops reading, so that bytes wait in the client's kernel.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from canned import CannedServer, make_certificates

from aioinformer.client import Client, ClientConfig, response
from aioinformer.controller.client import ReconcileClient
from aioinformer.controller.pending_writes import PendingWrites
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.errors import TransportError
from aioinformer.model.resources import CONFIG_MAPS, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# Less than the kernel of the client takes, more than that of the server.
BODY = {"metadata": {"name": "a", "namespace": "x"}, "data": {"it": "x" * 500_000}}

# More than asyncio passes to the kernel.
LARGE = {"metadata": {"name": "a", "namespace": "x"}, "data": {"it": "x" * 20_000_000}}


class Leads:
    """Elector of a process that leads for as long as nobody asks."""

    def check(self) -> None:
        """Return: it leads."""


@asynccontextmanager
async def deaf_server(
    head_seconds: float = 30.0,
) -> AsyncIterator[tuple[Client, socket.socket]]:
    """Enter the client of a listener whose connections are read by the test alone."""
    with socket.socket() as listener:
        # Connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        url = "http://127.0.0.1:{1}".format(*listener.getsockname())
        config = ClientConfig(server=url, head_seconds=head_seconds)
        async with Client(config) as client:
            yield client, listener


async def rest_of(connection: socket.socket) -> tuple[bytes, bool]:
    """Read to the end. Return the bytes, and True if the connection was reset."""
    loop, found = asyncio.get_running_loop(), b""
    while True:
        try:
            piece = await loop.sock_recv(connection, 1 << 20)
        except ConnectionResetError:
            return found, True

        if not piece:
            return found, False

        found += piece


def fenced(client: Client) -> ReconcileClient:
    return ReconcileClient(client, PendingWrites([]), Leads())


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["in-kernel", "in-process"])
async def test_cancelled_fenced_write_does_not_arrive_later(body: object) -> None:
    async with deaf_server() as (client, listener):
        write = asyncio.create_task(fenced(client).create(CONFIG_MAPS, body))
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        await asyncio.sleep(0.05)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write

        with connection:
            arrived, reset = await rest_of(connection)

    assert reset
    assert 0 < len(arrived) < 400_000


async def test_timed_out_fenced_write_does_not_arrive_later() -> None:
    async with deaf_server(head_seconds=0.1) as (client, listener):
        write = asyncio.create_task(fenced(client).create(CONFIG_MAPS, BODY))
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        with pytest.raises(TransportError, match="did not respond for"):
            await write

        with connection:
            arrived, reset = await rest_of(connection)

    assert reset
    assert len(arrived) < 400_000


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
@pytest.mark.looptime(False)
async def test_unread_fenced_write_fails_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response, "DELIVERY_SECONDS", 0.2)
    async with deaf_server() as (client, listener):
        write = asyncio.create_task(fenced(client).create(CONFIG_MAPS, BODY))
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        with connection:
            async with asyncio.timeout(5):
                with pytest.raises(TransportError):
                    await write

            arrived, reset = await rest_of(connection)

    assert reset
    assert len(arrived) < 400_000


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
async def test_cancelled_fenced_write_by_tls_is_reset(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    async with CannedServer(context) as server:

        async def never(_: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        server.answer(never)
        async with Client.from_url(server.url, ca_file=certificates.ca) as client:
            write = asyncio.create_task(fenced(client).create(CONFIG_MAPS, BODY))
            while not server.seen:
                await asyncio.sleep(0.01)

            (opened,) = client._endpoint.transport()._sockets
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[0] == 1
            write.cancel()
            await asyncio.wait({write})
            await asyncio.sleep(0.01)

            assert opened.fileno() == -1  # not after the peer's close_notify


def test_delivery_of_a_paused_process_ends_before_another_owner_begins() -> None:
    timing = ShardTiming()
    last = timing.renew_deadline / (1 - timing.clock_error)
    assert last + response.DELIVERY_SECONDS <= timing.shortest_wait


@pytest.mark.looptime(False)
async def test_fenced_write_that_was_read_may_be_answered_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response, "DELIVERY_SECONDS", 0.1)

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.4)
        return web.json_response(BODY)

    async with CannedServer() as server:
        server.answer(answer)
        async with Client.from_url(server.url) as client:
            assert (await fenced(client).create(CONFIG_MAPS, BODY)).name == "a"


async def test_answered_fenced_write_leaves_connection_as_it_was() -> None:
    async with CannedServer() as server:
        server.json(BODY)
        async with Client.from_url(server.url) as client:
            await client.get(PODS, "a", namespace="x")
            (opened,) = client._endpoint.transport()._sockets
            before = options(opened)
            await fenced(client).create(CONFIG_MAPS, BODY)

            assert list(client._endpoint.transport()._sockets) == [opened]
            assert options(opened) == before


def options(opened: socket.socket) -> tuple[object, ...]:
    linger = opened.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[:4]
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return (linger,)

    return linger, opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
