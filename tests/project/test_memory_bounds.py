"""Memory that large responses take while they are read, and afterwards.

It is measured as Python's allocations. The server in the same process takes a few
hundred KiB of it, as it writes no faster than the client reads.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from canned import bytes_server

from aioinformer.client import Client, ListWatch
from aioinformer.informer import SharedInformer
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

MIB = 1024 * 1024

LINE_BYTES = 5_000_000
OBJECTS = 40_000

PIECE_BYTES = 256 * 1024

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LIST = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},'


class Memory:
    """Bytes allocated since it was created."""

    def __init__(self) -> None:
        gc.collect()
        self._start, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()

    @property
    def peak(self) -> int:
        return tracemalloc.get_traced_memory()[1] - self._start

    def held(self) -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - self._start


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


class Server:
    """A server with one list, and a watch that sends its line on demand."""

    def __init__(self, items: Callable[[], Iterable[bytes]], change: bytes) -> None:
        self._items = items
        self._change = change
        self.go_on = asyncio.Event()

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while request := await _request(reader):
            writer.write(HEAD)
            if b"watch=true" in request:
                await self.go_on.wait()
                await _send(writer, self._change)
                await reader.read()
                return

            await _send(writer, LIST + b'"items":[')
            for piece in self._items():
                await _send(writer, piece)

            await _send(writer, b"]}\n")
            writer.write(b"0\r\n\r\n")


async def _request(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    view = memoryview(data)
    for start in range(0, len(view), PIECE_BYTES):
        piece = view[start : start + PIECE_BYTES]
        writer.write(b"%x\r\n" % len(piece))
        writer.write(piece)
        writer.write(b"\r\n")
        await writer.drain()


@asynccontextmanager
async def informed(server: Server) -> AsyncIterator[SharedInformer]:
    async with (
        bytes_server(server.talk) as address,
        Client.from_url(f"http://{address}") as client,
    ):
        informer = SharedInformer(ListWatch(client, CONFIG_MAPS))
        running = asyncio.create_task(informer.run())
        try:
            await informer.wait_synced(timeout=30)
            yield informer
        finally:
            server.go_on.set()
            running.cancel()
            await asyncio.wait({running})


def config_map(text: bytes, fields: bytes = b"") -> bytes:
    head = b'{"kind":"ConfigMap","apiVersion":"v1",'
    identity = b'"name":"big","namespace":"x","uid":"u","resourceVersion":"8"'
    return b'%b%b"metadata":{%b,"labels":{"a":"b"}},"data":{"x":"%b"}}' % (
        head,
        fields,
        identity,
        text,
    )


TEXT = b"y" * LINE_BYTES
LINES = {
    "as-servers-write-it": b'{"type":"ADDED","object":%b}\n',
    "in-another-order": b'{"object":%b,"type":"ADDED"}\n',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_watch_line_takes_at_most_2_5_times_its_size_while_read(
    traced: None, line: bytes
) -> None:
    server = Server(list, line % config_map(TEXT))

    async with informed(server) as informer:
        memory = Memory()
        server.go_on.set()
        while informer.store.get_by_key("x/big") is None:
            await asyncio.sleep(0.01)

        assert memory.peak < 2.5 * LINE_BYTES
        assert 0.99 * LINE_BYTES < memory.held() < 1.1 * LINE_BYTES


async def test_watch_line_with_metadata_last_takes_no_more_memory(traced: None) -> None:
    big = config_map(b"", b'"binaryData":{"x":"%b"},' % TEXT)
    server = Server(list, LINES["as-servers-write-it"] % big)

    async with informed(server) as informer:
        memory = Memory()
        server.go_on.set()
        while informer.store.get_by_key("x/big") is None:
            await asyncio.sleep(0.01)

        assert memory.peak < 2.5 * LINE_BYTES
        assert 0.99 * LINE_BYTES < memory.held() < 1.1 * LINE_BYTES


def items() -> Iterator[bytes]:
    """Yield small objects, a thousand per chunk."""
    for start in range(0, OBJECTS, 1000):
        objects = [
            b'{"metadata":{"name":"cm-%d","namespace":"x","uid":"%d",'
            b'"resourceVersion":"7","labels":{"a":"b"}},"data":{"x":"%d"}}'
            % (number, number, number)
            for number in range(start, start + 1000)
        ]
        yield (b"," if start else b"") + b",".join(objects)


async def test_list_takes_at_most_8_mib_more_than_its_store(
    traced: None,
) -> None:
    memory = Memory()

    async with informed(Server(items, b"")) as informer:
        peak = memory.peak

        assert len(informer.store) == OBJECTS
        assert peak < memory.held() + 8 * MIB
