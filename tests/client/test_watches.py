"""Watches over HTTP: events, and all causes of their end.

Decoding is tested in `tests/watch/test_stream_watch.py`.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from canned import CannedServer, Stream, line, summaries
from conftest import pod

from aioinformer.client import Client, ListWatch
from aioinformer.errors import (
    DecodeError,
    TransportError,
)
from aioinformer.model.resources import PODS
from aioinformer.watch import WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


@pytest.fixture
async def client(server: CannedServer) -> AsyncIterator[Client]:
    async with Client.from_url(server.url) as client:
        yield client


async def test_watch_returns_batches_of_arrived_events(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    first, second = line("ADDED", "a") + line("MODIFIED", "b"), line("DELETED", "c")

    async with ListWatch(client, PODS).watch(WatchOptions()) as watch:
        stream.send(first + second[:30])
        assert summaries(await watch.next_batch()) == ["ADDED a", "MODIFIED b"]

        waiting = asyncio.create_task(watch.next_batch())
        stream.send(second[30:60])  # completes no line, so the wait continues
        await asyncio.sleep(1)
        assert not waiting.done()

        stream.send(second[60:])
        assert summaries(await waiting) == ["DELETED c"]

        stream.end()
        assert await watch.next_batch() == []
        assert await watch.next_batch() == []


async def test_truncated_last_line_raises_transport_error(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    stream.send(line("ADDED", "a") + line("ADDED", "b")[:50])
    stream.end()

    async with client.watch(PODS) as watch:
        assert summaries(await watch.next_batch()) == ["ADDED a"]
        with pytest.raises(TransportError, match="cut off within a line"):
            await watch.next_batch()

        assert await watch.next_batch() == []


async def test_broken_connection_raises_transport_error(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    stream.send(line("ADDED", "a"))

    async with client.watch(PODS) as watch:
        assert summaries(await watch.next_batch()) == ["ADDED a"]
        stream.break_off()
        with pytest.raises(TransportError, match=server.url):
            await watch.next_batch()


async def test_line_that_is_no_event_raises_decode_error(
    server: CannedServer, client: Client
) -> None:
    Stream(server).send(b"<h1>502</h1>\n")

    async with client.watch(PODS) as watch:
        with pytest.raises(DecodeError):
            await watch.next_batch()

        assert await watch.next_batch() == []


async def test_stop_wakes_waiting_reader(server: CannedServer, client: Client) -> None:
    Stream(server)
    loop = asyncio.get_running_loop()
    before = loop.time()

    async with client.watch(PODS) as watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(1)
        watch.stop()
        watch.stop()

        assert await waiting == []
        assert await watch.next_batch() == []
        assert loop.time() - before < 1.1

    await server.gone.wait()


async def test_watch_ends_10_seconds_after_its_timeout(
    server: CannedServer, client: Client
) -> None:
    Stream(server).send(line("ADDED", "a"))
    loop = asyncio.get_running_loop()
    before = loop.time()

    async with client.watch(PODS, timeout_seconds=300) as watch:
        assert summaries([event async for event in watch]) == ["ADDED a"]

    assert loop.time() - before == pytest.approx(310, abs=0.5)


async def test_watch_may_be_silent_for_hours(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)

    async with client.watch(PODS) as watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(7 * 3600)
        stream.send(line("ADDED", "a"))

        assert summaries(await waiting) == ["ADDED a"]


async def test_cancelled_read_loses_no_events(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    event = line("ADDED", "a")
    stream.send(event[:40])

    async with client.watch(PODS) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await watch.next_batch()

        stream.send(event[40:])
        assert summaries(await watch.next_batch()) == ["ADDED a"]


async def test_leaving_watch_closes_connection(
    server: CannedServer, client: Client
) -> None:
    Stream(server)

    async with client.watch(PODS, timeout_seconds=300):
        pass

    await server.gone.wait()


async def test_closing_client_ends_watches(server: CannedServer) -> None:
    Stream(server)
    client = Client.from_url(server.url)
    await client.start()

    async with client.watch(PODS) as watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(1)
        await client.close()

        with pytest.raises(TransportError):
            await waiting


async def test_watches_do_not_exhaust_connections(server: CannedServer) -> None:
    """There are more watches than the 100 connections of aiohttp's default limit."""
    streams = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal streams
        if "watch" not in request.query:
            return web.json_response(pod("a"))

        streams += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    server.answer(answer)

    async with Client.from_url(server.url) as client:

        async def watch() -> None:
            async with client.watch(PODS) as stream:
                await stream.next_batch()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch()) for _ in range(120)]
            await asyncio.sleep(1)
            assert streams == 120

            async with asyncio.timeout(1):
                assert (await client.get(PODS, "a", namespace="x")).name == "a"

            for task in tasks:
                task.cancel()


async def test_stopped_watch_is_freed(server: CannedServer, client: Client) -> None:
    Stream(server)

    async def watch_for_a_second() -> weakref.ref[Any]:
        async with client.watch(PODS) as watch:
            waiting = asyncio.create_task(watch.next_batch())
            await asyncio.sleep(1)
            watch.stop()
            await waiting
            stream: Any = watch
            return weakref.ref(stream._source.raw)

    reference = await watch_for_a_second()
    gc.collect()

    assert reference() is None
