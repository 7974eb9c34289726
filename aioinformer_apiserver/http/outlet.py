"""The outlet: how an answer leaves the server, whole or as a fault wants it.

Every body goes through here, so a fault that counts bytes counts all of them, and those
of the body only; and what alters events or items does it here, for all that is sent.
`Outlet` is all that is the same over a socket and in memory.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from aioinformer_apiserver.errors.statuses import quoted
from aioinformer_apiserver.faults import Compact, Cut, End, Slow, Stall
from aioinformer_apiserver.faults.distortion import Distortion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.faults import Strike
    from aioinformer_apiserver.serialization.answers import Answer
    from aioinformer_apiserver.storage.waker import Bell

__all__ = ["HTTPOutlet", "Outlet"]

# From this size on a real server compresses lists for those who accept it.
_GZIP_FROM_BYTES = 128 * 1024
# Slow bytes leave this often each second, or one by one if there are fewer.
_SLOW_PIECES = 10


class Outlet(ABC):
    """Writes one answer to one request.

    Either `send()` is called, once, or `open()` and then `write()`.

    Args:
        bell: Ends a stall early when the server stops; nobody else waits for it while a
            method of the outlet runs.

    Attributes:
        broken: True if nothing more is sent, because a fault has ended the answer.
    """

    def __init__(self, bell: Bell) -> None:
        self.broken = False
        self._bell = bell
        self._taken: Strike | None = None
        self._is_watch = True
        self._fault: Cut | Stall | End | None = None
        self._left = 0
        self._bytes_per_second = math.inf
        self._distortion: Distortion | None = None

    def arm(self, strike: Strike | None) -> None:
        """Let a fault strike this answer; those that do not concern it do nothing."""
        self._taken = strike
        fault = None if strike is None else strike.fault
        match fault:
            case Slow(bytes_per_second=rate):
                self._bytes_per_second = rate
            case End(after_bytes=None):
                self._distortion = Distortion(fault)
            case Cut() | Stall() | End():
                self._fault, self._left = fault, fault.after_bytes or 0
            case _ if fault is not None and Distortion.concerns(fault):
                self._distortion = Distortion(fault)
            case _:
                pass

    def _land(self) -> None:
        """Tell that the fault has changed something."""
        if self._taken is not None:
            self._taken.land()

    def _land_if_expired(self, *, expired: bool) -> None:
        """Tell that a history that was forgotten on purpose is missed."""
        taken = self._taken
        if expired and taken is not None and isinstance(taken.fault, Compact):
            taken.land()

    @property
    def free(self) -> bool:
        """True if `write_now()` may be called: nothing stands in the way of a write."""
        return False

    def write_now(self, lines: list[bytes]) -> None:
        """Send whole lines of a watch at once, where that is possible (see `free`)."""
        raise NotImplementedError

    @property
    def armed(self) -> bool:
        """True while a fault may still strike."""
        slow = self._bytes_per_second < math.inf
        return self._fault is not None or self._distortion is not None or slow

    async def send(self, answer: Answer) -> None:
        """Send a whole answer; does nothing more if the client has left.

        Cancellation:
            Leaves the answer unfinished, which breaks the connection.
        """
        self._is_watch = False
        self._land_if_expired(expired=answer.status == HTTPStatus.GONE)
        if self._distortion is not None:
            whole = self._distortion.whole(b"".join(answer.body))
            if self._distortion.altered:
                self._land()

            answer, self._distortion = replace(answer, body=[whole]), None

        pieces = iter(answer.body)
        first, second = next(pieces, b""), next(pieces, None)
        try:
            if second is None and not self.armed:
                # All in one piece: with a length, and in one packet.
                await self._whole(answer, first)
                return

            first += second or b""
            await self.open(answer, compress=len(first) >= _GZIP_FROM_BYTES)
            await self._write_all(first, pieces)
        except ConnectionError:
            # The client has left: there is nobody to tell.
            return

    async def _write_all(self, first: bytes, pieces: Iterator[bytes]) -> None:
        await self.write(first)
        for piece in pieces:
            await self.write(piece)
            # A list of any length must not hold up who shares the loop.
            await asyncio.sleep(0)

    async def open(self, answer: Answer, *, compress: bool = False) -> None:
        """Send the head, at once: a watch may have nothing to say for minutes.

        Args:
            answer: Its body is not sent.
            compress: Compress the body, for a client that understands it.

        Raises:
            ConnectionError: If the client has gone.

        Cancellation:
            Breaks the connection.
        """
        if isinstance(self._fault, Cut | Stall) and not self._fault.head:
            await self._strike()

        if self.broken:
            return

        # Compressed, the bytes that a fault counts would be none that anybody sees.
        await self._start(answer, compress=compress and not self.armed)
        await self._strike_if_due()
        if self._distortion is not None:
            await self._emit(self._distortion.beginning())

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, or as much of it as the fault lets through.

        Args:
            data: Of a watch: whole lines.

        Raises:
            ConnectionError: If the client has gone.

        Cancellation:
            Breaks the connection.
        """
        self._land_if_expired(expired=self._is_watch and _is_expiry(data))
        if self._distortion is not None:
            lines = self._distortion.lines(data.splitlines(keepends=True))
            await self._emit(lines)
        else:
            await self._write(data)

    async def _emit(self, lines: list[bytes]) -> None:
        """Write distorted lines, perhaps the last ones."""
        if lines:
            await self._write(b"".join(lines))

        if self._distortion is not None:
            self.broken |= self._distortion.over
            if self._distortion.altered:
                self._land()

    async def _write(self, data: bytes) -> None:
        if self._fault is not None:
            if 0 < self._left <= len(data):
                head, data = data[: self._left], data[self._left :]
                await self._put(head)
                self._left = 0
                await self._strike_if_due()
            else:
                self._left -= len(data)

        if data and self.broken:
            self._land()
        elif data:
            await self._write_in_time(data)

    async def _write_in_time(self, data: bytes) -> None:
        rate = self._bytes_per_second
        if rate == math.inf:
            await self._put(data)
            return

        self._land()
        size = max(1, round(rate / _SLOW_PIECES))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            await self._put(piece)
            if not await self._bell.pause(len(piece) / rate):
                await self._break_off(reset=False)
                return

    async def _strike_if_due(self) -> None:
        if self._fault is not None and self._left == 0:
            await self._strike()

    async def _strike(self) -> None:
        """Let the fault happen; afterwards there is none."""
        fault, self._fault = self._fault, None
        match fault:
            case Cut():
                self._land()
                await self._break_off(reset=fault.reset)
            case Stall():
                self._land()
                # Only the server's end or the client's leaving (a cancellation) ends
                # one without a time.
                seconds = math.inf if fault.seconds is None else fault.seconds
                if not await self._bell.pause(seconds):
                    await self._break_off(reset=False)
            case End():
                # A whole answer may be complete: that is known when more is to come.
                self.broken = True
                if self._is_watch:
                    self._land()
            case _:
                pass

    async def _break_off(self, *, reset: bool) -> None:
        self.broken = True
        await self._break(reset=reset)

    # ---------------------------------------------------------------- where it goes

    @abstractmethod
    async def _whole(self, answer: Answer, body: bytes) -> None:
        """Send head and body at once."""

    @abstractmethod
    async def _start(self, answer: Answer, *, compress: bool) -> None:
        """Send the head of an answer whose length is not known."""

    @abstractmethod
    async def _put(self, data: bytes) -> None:
        """Send a piece of the body; it may be empty."""

    @abstractmethod
    async def _break(self, *, reset: bool) -> None:
        """Break the connection after what was put, before the end or even the head."""


class HTTPOutlet(Outlet):
    """Writes one answer over HTTP.

    Args:
        request: What is answered.
        bell: See `Outlet`.

    Attributes:
        response: What the HTTP server is to be given when all has been written.
    """

    response: web.StreamResponse

    def __init__(self, request: web.BaseRequest, bell: Bell) -> None:
        super().__init__(bell)
        self._request = request
        self.response = web.StreamResponse()

    async def _whole(self, answer: Answer, body: bytes) -> None:
        self.response = web.Response(
            status=answer.status,
            body=body,
            headers=_headers_of(answer),
        )

    async def _start(self, answer: Answer, *, compress: bool) -> None:
        headers = _headers_of(answer)
        response = web.StreamResponse(status=answer.status, headers=headers)
        if self._request.version >= HttpVersion11:
            response.enable_chunked_encoding()

        if compress and self._takes_gzip():
            response.enable_compression(web.ContentCoding.gzip)

        self.response = response
        await response.prepare(self._request)

    async def _put(self, data: bytes) -> None:
        await self.response.write(data)

    @property
    def free(self) -> bool:
        """True if the head is sent, no fault is armed, and the buffers have room.

        Never for a client of HTTP/1.0, which knows no chunks.
        """
        transport = self._request.transport
        if transport is None or transport.is_closing() or self.broken or self.armed:
            return False

        chunked = self.response.prepared and self.response.chunked
        return chunked and not self._request.protocol.writing_paused

    def write_now(self, lines: list[bytes]) -> None:
        """Send whole lines as one chunk.

        Around aiohttp, whose writes are coroutines: watches that are told the same
        change at the same time are many, and each step counts.
        """
        transport = self._request.transport
        assert transport is not None
        size = sum(map(len, lines))
        transport.write(b"".join((b"%x\r\n" % size, *lines, b"\r\n")))

    async def _break(self, *, reset: bool) -> None:
        transport = self._request.transport
        if transport is None:
            return

        if not reset:
            # Sends what is buffered, then a FIN: the bytes before the cut arrive.
            transport.close()
            return

        transport.set_write_buffer_limits(0)
        await self._request.writer.drain()
        raw = transport.get_extra_info("socket")
        # Lingering for no time at all makes the kernel send RST instead of FIN.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _takes_gzip(self) -> bool:
        return "gzip" in self._request.headers.get("Accept-Encoding", "")


def _is_expiry(data: bytes) -> bool:
    return data.startswith(b'{"type":"ERROR"') and b'"code":410' in data


def _headers_of(answer: Answer) -> CIMultiDict[str]:
    # No answer is to be kept by whoever passes it on.
    usual = {"Cache-Control": "no-cache, private", **answer.headers}
    headers = CIMultiDict({**usual, "Content-Type": answer.content_type})
    for text in answer.warnings:
        headers.add("Warning", f"299 - {quoted(text)}")

    return headers
