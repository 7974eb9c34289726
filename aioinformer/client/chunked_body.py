"""`ChunkedBody`: reads the chunks of a response in front of aiohttp.

kube-apiserver sends lists and watches in chunks: two for each object of a list. aiohttp
creates several Python objects for each chunk and copies its data twice, which takes a
quarter of the time for a list.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

__all__ = ["ChunkedBody", "has_plain_chunks"]

# Not less: of what a TLS connection has received when it ends, asyncio reads one buffer.
BUFFER_BYTES: Final = 256 * 1024

# Fewer bytes are copied. More are passed on in the buffer, as new memory is slow.
_SMALL_BYTES: Final = 16 * 1024

# A connection is paused while so many bytes wait for the reader: more than one buffer, as
# pausing after each of them takes longer than reading.
_WAITING_BYTES: Final = BUFFER_BYTES

_SPARE_BUFFERS: Final = 4

# aiohttp limits heads as well.
_HEAD_BYTES: Final = 64 * 1024

# The end of the head or of a chunk, and the size of the next chunk.
_next_chunk: Final = re.compile(rb"\r\n([0-9a-fA-F]{1,8})\r\n").match
_is_incomplete: Final = re.compile(rb"\r(?:\n(?:[0-9a-fA-F]{1,8}\r?)?)?").fullmatch
_line_end: Final = re.compile(rb"\r?\n").match
_bare_line_end: Final = re.compile(rb"(?<!\r)\n").search

_STATUS: Final = b"HTTP/1.1 200 "
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
    So aiohttp ends the response, finds the errors, and reuses the connection.

    Args:
        connection: Connection on which nothing of the request has been sent.
        spare: Unused buffers, shared by all connections of a loop. The last one receives
            the bytes of each connection, one after the other. A connection keeps it only
            if many have arrived, so a silent one has none.
    """

    __slots__ = (
        "_behind",
        "_connection",
        "_left",
        "_lent",
        "_over",
        "_paused",
        "_pieces",
        "_rest",
        "_spare",
        "_waiter",
        "_waiting",
        "error",
        "plain",
    )

    def __init__(self, connection: asyncio.Transport, spare: list[bytearray]) -> None:
        self._connection = connection
        self._behind: ResponseHandler = connection.get_protocol()  # type: ignore[assignment]
        self._spare = spare
        # Data for the reader, and its size.
        self._pieces: deque[memoryview] = deque()
        self._waiting = 0
        # Buffer whose data the reader has.
        self._lent: bytearray | None = None
        # An incomplete head, or the incomplete line before a chunk.
        self._rest = b""
        # Number of bytes of the current chunk that have not arrived.
        self._left = 0
        self._paused = False
        self._over = False
        self._waiter: asyncio.Future[None] | None = None
        self.plain: bool = False
        """True if the body has plain chunks. Their data is read here, the end at aiohttp."""
        self.error: str = ""
        """Reason why aiohttp has closed the connection. It may leave a reader waiting."""
        connection.set_protocol(self)

    # ------------------------------------------------------------ the reader

    async def read(self, limit: int) -> memoryview:
        """Wait for data, and return what has arrived.

        Args:
            limit: Maximum number of bytes to return.

        Returns:
            Data, valid until the next call; empty if aiohttp has the rest of the body.

        Raises:
            RuntimeError: If another task waits for data.

        Cancellation:
            Safe: nothing is lost.
        """
        if self._lent is not None and len(self._spare) < _SPARE_BUFFERS:
            self._spare.append(self._lent)

        self._lent = None
        while not (self._pieces or self._over):
            if self._waiter is not None:
                raise RuntimeError("another task reads the response")

            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

        if not self._pieces:
            return memoryview(b"")

        data = self._pieces[0]
        if len(data) > limit:
            data, self._pieces[0] = data[:limit], data[limit:]
        else:
            self._pieces.popleft()
            if isinstance(data.obj, bytearray):
                self._lent = data.obj

        self._waiting -= len(data)
        if self._waiting < _WAITING_BYTES:
            self._resume()

        return data

    def close(self) -> None:
        """Drop what was not read, and wake the reader. Idempotent."""
        self._over = True
        self._pieces.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ the connection

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes. `buffer_updated()` follows immediately."""
        if not self._spare:
            self._spare.append(bytearray(BUFFER_BYTES))

        room = memoryview(self._spare[-1])
        room[: len(self._rest)] = self._rest
        return room[len(self._rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that have arrived."""
        end = len(self._rest) + nbytes
        self._rest = b""
        if self._over:
            return  # closed

        if self.plain:
            self._take_chunks(0, end)
        else:
            self._take_head(bytes(memoryview(self._spare[-1])[:end]))

    def _take_head(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n") + 4
        if end >= 4 and has_plain_chunks(data[:end]):
            self.plain = True
            self._behind.data_received(data[:end])
            # Like a chunk, the head ends with the line break in front of a size.
            self._take_chunks(end - 2, len(data))
        elif (
            end >= 4
            or len(data) > _HEAD_BYTES
            or not _STATUS.startswith(data[: len(_STATUS)])
            or _bare_line_end(data)
        ):
            self._hand_over(data)
        else:
            self._rest = data

    def _take_chunks(self, start: int, end: int) -> None:
        """Move the data of chunks together, to the start of the buffer."""
        buffer = self._spare[-1]
        view, size, left = memoryview(buffer), 0, self._left
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

        self._left = left
        rest = bytes(view[start:end])
        if size:
            self._collect(view[:size])

        if not rest or _is_incomplete(rest):
            self._rest = rest
        else:
            # aiohttp must not take what follows for a chunk if the last one has no end.
            ended = _line_end(rest)
            self._hand_over(rest[ended.end() :] if ended else b"\r" + rest)

    def _collect(self, data: memoryview) -> None:
        """Keep data from the buffer for the reader."""
        self._waiting += len(data)
        if len(data) > _SMALL_BYTES:
            self._spare.pop()
        else:
            before = b""
            if self._pieces and len(self._pieces[-1]) <= _SMALL_BYTES:
                before = bytes(self._pieces.pop())

            data = memoryview(before + data)

        self._pieces.append(data)
        if self._waiting >= _WAITING_BYTES and not self._paused:
            self._paused = True
            self._connection.pause_reading()

        self._wake()

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
        if self.plain and (error := self._behind.exception()) is not None:
            self.error = str(getattr(error, "message", error))

        self._wake()

    def eof_received(self) -> None:
        """Pass on that the server sends no more."""
        self._behind.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection is closed."""
        if not self.plain and self._rest:
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
