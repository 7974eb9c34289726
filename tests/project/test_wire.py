"""The proxy that simulates a bad network."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from canned import bytes_server
from wire import HOST, Proxy, proxying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANSWER = b"x" * 1000


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1):
        writer.write(ANSWER)


@asynccontextmanager
async def talking() -> AsyncIterator[
    tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]
]:
    async with bytes_server(echo) as address, proxying(f"http://{address}") as proxy:
        reader, writer = await asyncio.open_connection(HOST, port_of(proxy))
        try:
            yield proxy, reader, writer
        finally:
            writer.transport.abort()


def port_of(proxy: Proxy) -> int:
    return int(proxy.url.rpartition(":")[2])


async def test_proxy_passes_bytes_on() -> None:
    async with talking() as (proxy, reader, writer):
        writer.write(b"?")

        assert await reader.readexactly(1000) == ANSWER
        assert proxy.passed == 1000


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_proxy_cuts_connections(how: Literal["fin", "reset"]) -> None:
    async with talking() as (proxy, reader, writer):
        writer.write(b"?")
        await reader.readexactly(1000)
        proxy.cut(how)

        if how == "fin":
            assert await reader.read() == b""
        else:
            with pytest.raises(ConnectionResetError):
                await reader.read()


async def test_proxy_refuses_connections_on_demand() -> None:
    async with talking() as (proxy, reader, _):
        proxy.break_off()
        with pytest.raises(ConnectionResetError):
            await reader.read()

        refused, other = await asyncio.open_connection(HOST, port_of(proxy))
        with pytest.raises(ConnectionResetError):
            await refused.read()

        other.close()
        proxy.refusing = False
        again, writer = await asyncio.open_connection(HOST, port_of(proxy))
        writer.write(b"?")
        assert await again.readexactly(1000) == ANSWER
        writer.transport.abort()


async def test_proxy_limits_the_rate() -> None:
    loop = asyncio.get_running_loop()
    async with talking() as (proxy, reader, writer):
        proxy.bytes_per_second = 100
        began = loop.time()
        for _ in range(3):
            writer.write(b"?")
            await reader.readexactly(1000)

        # It passes on the first bytes, and then takes nothing for a while.
        assert loop.time() - began == pytest.approx(20, abs=0.1)


async def test_proxy_closes_connections_without_a_server() -> None:
    async with bytes_server(echo) as address:
        url = f"http://{address}"

    async with proxying(url) as proxy:
        reader, writer = await asyncio.open_connection(HOST, port_of(proxy))
        with pytest.raises(ConnectionResetError):
            await reader.read()

        writer.close()
