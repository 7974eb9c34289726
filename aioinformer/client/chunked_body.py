"""`ChunkedBody`: reads the chunks of a response in front of aiohttp.

kube-apiserver sends lists and watches in chunks: two for each object of a list. aiohttp
creates several Python objects for each chunk and copies its data twice, which takes a
quarter of the time for a list.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

__all__ = ["ChunkedBody", "has_plain_chunks"]

# Size of one read. Splitting so much takes less than half a slice of the loop budget.
BUFFER_BYTES: Final = 256 * 1024

# A connection is paused if its buffer has less room. Smaller reads are not worth it.
_ROOM_BYTES: Final = 64 * 1024

_SPARE_BUFFERS: Final = 4

# aiohttp limits heads as well.
_HEAD_BYTES: Final = 64 * 1024

# The end of the head or of a chunk, and the size of the next chunk.
_next_chunk: Final = re.compile(rb"\r\n([0-9a-fA-F]{1,8})\r\n").match
_is_incomplete: Final = re.compile(rb"\r(?:\n(?:[0-9a-fA-F]{1,8}\r?)?)?").fullmatch

_headers: Final = re.compile(
    rb"HTTP/1\.1 200 [^\r\n]*((?:\r\n[!-9;-~]+:[^\r\n]*)*)\r\n\r\n"
).fullmatch
_framing_of: Final = re.compile(
    rb"\r\n(content-encoding|content-length|transfer-encoding|upgrade):[ \t]*([^\r]*)",
    re.IGNORECASE,
).findall


def has_plain_chunks(head: bytes) -> bool:
    """Return whether a response has a body in chunks, without further encoding.

    Args:
        head: Status line, headers and the empty line after them.
    """
    found = _headers(head)
    framing = _framing_of(found[1]) if found else []
    return [(name.lower(), value.strip().lower()) for name, value in framing] == [
        (b"transfer-encoding", b"chunked")
    ]


class ChunkedBody(asyncio.BufferedProtocol):
    """Protocol of a connection for one response, in front of aiohttp's protocol.

    aiohttp gets the head. If it announces plain chunks, their data is collected here.
    aiohttp's protocol takes over at anything else: another body, the last chunk, an
    extension of a chunk, or malformed bytes. Its parser still waits for a chunk then.
    So aiohttp ends the response, raises the errors, and reuses the connection.

    Data is passed on in the memory that it was received in. (New memory for each read
    takes longer than reading.)

    Args:
        connection: Connection on which nothing of the request has been sent.
        spare: Unused buffers, shared by all connections of a loop.
    """

    __slots__ = (
        "_behind",
        "_buffer",
        "_connection",
        "_error",
        "_left",
        "_lent",
        "_over",
        "_paused",
        "_rest",
        "_size",
        "_spare",
        "_start",
        "_waiter",
        "found",
    )

    def __init__(self, connection: asyncio.Transport, spare: list[bytearray]) -> None:
        self._connection = connection
        self._behind: ResponseHandler = connection.get_protocol()  # type: ignore[assignment]
        self._spare = spare
        # Data for the reader, from `_start` to `_size`; None if a connection is silent.
        self._buffer: bytearray | None = None
        self._start = 0
        self._size = 0
        # Buffer whose data the reader has.
        self._lent: bytearray | None = None
        # An incomplete head, or the incomplete line before a chunk.
        self._rest = b""
        # Number of bytes of the current chunk that have not arrived.
        self._left = 0
        self._paused = False
        self._over = False
        self._error: aiohttp.ClientPayloadError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.found: bool = False
        """True if the body has plain chunks. Their data is read here, the end at aiohttp."""
        connection.set_protocol(self)

    # ------------------------------------------------------------ the reader

    async def read(self, limit: int) -> memoryview:
        """Wait for data, and return what has arrived.

        Args:
            limit: Maximum number of bytes to return.

        Returns:
            Data, valid until the next call; empty if aiohttp has the rest of the body,
            or the error.

        Raises:
            aiohttp.ClientPayloadError: If a chunk was malformed.
            RuntimeError: If another task waits for data.

        Cancellation:
            Safe: nothing is lost.
        """
        self._release()
        while not (self._size or self._over):
            if self._waiter is not None:
                raise RuntimeError("another task reads the response")

            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

        if self._buffer is None or not self._size:
            if self._error is not None:
                raise self._error

            return memoryview(b"")

        end = min(self._start + limit, self._size)
        data = memoryview(self._buffer)[self._start : end]
        self._start = end
        if end == self._size:
            self._lent, self._buffer = self._buffer, None
            self._start = self._size = 0
            self._resume()

        return data

    def close(self) -> None:
        """Drop the data, and wake the reader. Idempotent."""
        self._over = True
        self._start = self._size = 0
        self._release()
        self._wake()

    def _release(self) -> None:
        if self._lent is not None and len(self._spare) < _SPARE_BUFFERS:
            self._spare.append(self._lent)

        self._lent = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ the connection

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes. `buffer_updated()` follows immediately."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._spare.pop() if self._spare else bytearray(BUFFER_BYTES)
            self._buffer = buffer

        end = self._size + len(self._rest)
        buffer[self._size : end] = self._rest
        return memoryview(buffer)[end:]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that have arrived."""
        assert self._buffer is not None
        end = self._size + len(self._rest) + nbytes
        self._rest = b""
        if self.found:
            self._take_chunks(self._buffer, self._size, end)
        else:
            self._take_head(self._buffer, end)

    def _take_head(self, buffer: bytearray, size: int) -> None:
        data = bytes(memoryview(buffer)[:size])
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 and size < _HEAD_BYTES:
            self._rest = data
        elif has_plain_chunks(data[:end]):
            self.found = True
            self._behind.data_received(data[:end])
            # Like a chunk, the head ends with the line break in front of a size.
            self._take_chunks(buffer, end - 2, size)
        else:
            self._hand_over(data)

    def _take_chunks(self, buffer: bytearray, start: int, end: int) -> None:
        """Move the data of chunks together, behind the data for the reader."""
        view, size, left = memoryview(buffer), self._size, self._left
        while True:
            stop = min(start + left, end)
            if start > size:
                view[size : size + stop - start] = view[start:stop]

            size += stop - start
            left -= stop - start
            start = stop
            if left or (line := _next_chunk(buffer, start, end)) is None:
                break

            left = int(line[1], 16)
            if not left:
                break

            start = line.end()

        self._size, self._left = size, left
        rest = bytes(view[start:end])
        if not rest or _is_incomplete(rest):
            self._rest = rest
            if len(buffer) - size < _ROOM_BYTES:
                self._pause()
        else:
            # aiohttp must not take what follows for a chunk if the last one has no end.
            ended = rest.startswith(b"\r\n")
            self._hand_over(rest[2:] if ended else b"\r" + rest)

        if size:
            self._wake()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._connection.pause_reading()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._connection.resume_reading()

    def _hand_over(self, rest: bytes) -> None:
        """Let aiohttp's protocol continue with the bytes that are not for the reader."""
        self._over = True
        self._resume()
        self._connection.set_protocol(self._behind)
        self._behind.data_received(rest)
        # It closes the connection then, but a reader may wait at aiohttp for ever.
        error = self._behind.exception()
        if self.found and error is not None:
            self._error = aiohttp.ClientPayloadError(f"malformed chunk: {error}")

        self._wake()

    def eof_received(self) -> None:
        """Pass on that the server sends no more."""
        self._behind.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection is closed."""
        if not self.found:
            self._behind.data_received(self._rest)

        self._behind.connection_lost(exc)
        self._over = True
        self._paused = False
        self._wake()

    def pause_writing(self) -> None:
        """Pass on that sending the request must wait."""
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that sending the request may continue."""
        self._behind.resume_writing()
