"""A server of prepared bytes: without a socket, and always the same.

It replaces the requests of a client. From the chunks of the response's body on, everything
is the real code. aiohttp, which reads only the heads of such responses, is not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bench.wire import chunk, chunks_of

from aioinformer.client.chunked_body import BUFFER_BYTES, ChunkedBody
from aioinformer.errors import TransportError
from guard.material import LISTED_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

__all__ = ["Feed"]


class Feed:
    """Source that answers a list with pods, and a watch with chunks on request.

    Args:
        pods: Pods of the list.
        chunks: Chunks of the watch, which is silent after the last one.
        alone: True to send a chunk for each call of `go()`. False to send one in each turn
            of the loop after the first call.
    """

    def __init__(
        self, pods: list[bytes], chunks: Iterable[bytes] = (), *, alone: bool = False
    ) -> None:
        self.watched = asyncio.Event()
        """Set when a reader waits for the first chunk."""
        head = (
            b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},'
        )
        separated = [part for pod in pods for part in (b",", pod)][1:]
        writes = [head % LISTED_VERSION, b'"items":[', *separated, b"]}\n"]
        listed = b"".join(chunks_of(writes))
        self._pieces = [
            listed[start : start + BUFFER_BYTES]
            for start in range(0, len(listed), BUFFER_BYTES)
        ]
        self._chunks = deque(map(chunk, chunks))
        self._alone = alone
        self._open = asyncio.Event()

    def go(self) -> None:
        """Send the next chunk, or all of them one after the other."""
        self._open.set()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AsyncIterator[_Body]:
        """Answer a list or a watch, depending on the parameters."""
        if (params or {}).get("watch") == "true":
            yield _Body(self._next_chunk)
        else:
            pieces = deque(self._pieces)

            async def next_piece() -> bytes:
                await asyncio.sleep(0)
                return pieces.popleft() if pieces else b""

            yield _Body(next_piece)

    async def _next_chunk(self) -> bytes:
        self.watched.set()
        if not self._chunks:
            await asyncio.Event().wait()

        await self._open.wait()
        if self._alone:
            self._open.clear()

        await asyncio.sleep(0)
        return self._chunks.popleft()


_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Connection(asyncio.Transport):
    """Connection of one response, whose reader waits before the next bytes arrive."""

    def __init__(self) -> None:
        super().__init__()
        self._protocol: asyncio.BaseProtocol = _ResponseHandler()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def pause_reading(self) -> None:
        """Do nothing: nothing arrives until the reader waits."""

    def resume_reading(self) -> None:
        """Do nothing."""


class _ResponseHandler(asyncio.Protocol):
    """Protocol in place of aiohttp's."""

    def exception(self) -> None:
        """Return no error."""


class _Body:
    """`ByteStream` of one response."""

    def __init__(self, take: Callable[[], Awaitable[bytes]]) -> None:
        self._take = take
        self._closed = False
        self._body = ChunkedBody(_Connection(), [])
        self._arrive(_HEAD)

    async def read_some(self, *, patient: bool = False) -> bytes:
        return bytes(await self.read_view())

    async def read_view(self) -> memoryview:
        if self._closed:
            raise TransportError("closed")

        if piece := await self._take():
            asyncio.get_running_loop().call_soon(self._arrive, piece)

        return await self._body.read(BUFFER_BYTES)

    def close(self) -> None:
        self._closed = True

    def _arrive(self, data: bytes) -> None:
        while data:
            room = self._body.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self._body.buffer_updated(size)
            data = data[size:]
