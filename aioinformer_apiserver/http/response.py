"""Response writers: send a response to the client, and apply its fault.

Every body passes through `ResponseWriter`. So a fault that counts bytes counts all
bytes of the body and nothing else, and a fault that changes events or items sees all of
them.
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

from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.faults import Compact, Cut, End, Slow, Stall
from aioinformer_apiserver.faults.events import ResponseMutator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.faults import Strike
    from aioinformer_apiserver.serialization.responses import APIResponse
    from aioinformer_apiserver.storage.dispatcher import Waker

__all__ = ["HTTPResponseWriter", "ResponseWriter"]

# Like a real server, compress lists of at least this size for clients that accept gzip.
_GZIP_FROM_BYTES = 128 * 1024
# Number of pieces a second for slow bodies; single bytes if there are fewer.
_SLOW_PIECES = 10


class ResponseWriter(ABC):
    """Writer of the response to one request, over a socket or in memory.

    Call either `send()` once, or `open()` and then `write()`.

    Args:
        waker: Ends a stall early when the server stops. Nobody else waits for it while
            a method of the writer runs.

    Attributes:
        broken: True if nothing more is sent because a fault has ended the response.
        status: Status of the head; 0 until it is sent.
    """

    def __init__(self, waker: Waker) -> None:
        self.broken: bool = False
        self.status: int = 0
        self._waker = waker
        self._taken: Strike | None = None
        self._is_watch = True
        self._fault: Cut | Stall | End | None = None
        self._bytes_left = 0
        self._bytes_per_second = math.inf
        self._mutator: ResponseMutator | None = None

    def apply_fault(self, strike: Strike | None) -> None:
        """Apply a fault to this response; does nothing for other kinds of faults."""
        self._taken = strike
        fault = None if strike is None else strike.fault
        match fault:
            case None:
                pass
            case Slow(bytes_per_second=rate):
                self._bytes_per_second = rate
            case _ if fault.alters_content:
                self._mutator = ResponseMutator(fault)
            case Cut() | Stall() | End():
                self._fault, self._bytes_left = fault, fault.after_bytes or 0
            case _:
                pass

    @property
    def fault_pending(self) -> bool:
        """True while a fault may still strike."""
        slow = self._bytes_per_second < math.inf
        return self._fault is not None or self._mutator is not None or slow

    @property
    def ready(self) -> bool:
        """True if `write_now()` may be called: a write would not block."""
        return False

    def write_now(self, lines: list[bytes]) -> None:
        """Send whole lines of a watch without waiting. Requires `ready`."""
        raise NotImplementedError

    async def send(self, response: APIResponse) -> None:
        """Send a whole response; returns early if the client has disconnected.

        Cancellation:
            Leaves the response unfinished, which breaks the connection.
        """
        self._is_watch = False
        self._record_effect_if_expired(expired=response.status == HTTPStatus.GONE)
        if self._mutator is not None:
            whole = self._mutator.mutate_body(b"".join(response.body))
            if self._mutator.altered:
                self._record_effect()

            response, self._mutator = replace(response, body=[whole]), None

        pieces = iter(response.body)
        first, second = next(pieces, b""), next(pieces, None)
        try:
            if second is None and not self.fault_pending:
                # A single piece has a Content-Length and fits into one packet.
                self.status = response.status
                await self._send_whole(response, first)
                return

            first += second or b""
            await self.open(response, compress=len(first) >= _GZIP_FROM_BYTES)
            await self._write_all(first, pieces)
        except ConnectionError:
            return  # The client has disconnected.

    async def open(self, response: APIResponse, *, compress: bool = False) -> None:
        """Send the head at once: a watch may have no events for minutes.

        Args:
            response: Response without its body.
            compress: True to compress the body if the client accepts it.

        Raises:
            ConnectionError: If the client has disconnected.

        Cancellation:
            Breaks the connection.
        """
        if isinstance(self._fault, Cut | Stall) and not self._fault.head:
            await self._strike()

        if self.broken:
            return

        # Faults count the bytes of the body, so it must not be compressed.
        self.status = response.status
        await self._send_head(response, compress=compress and not self.fault_pending)
        await self._strike_if_due()
        if self._mutator is not None:
            await self._write_mutated(self._mutator.initial_lines())

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, as far as the fault allows.

        Args:
            data: Bytes to send; whole lines in a watch.

        Raises:
            ConnectionError: If the client has disconnected.

        Cancellation:
            Breaks the connection.
        """
        self._record_effect_if_expired(expired=self._is_watch and _is_expiry(data))
        if self._mutator is not None:
            lines = self._mutator.mutate_lines(data.splitlines(keepends=True))
            await self._write_mutated(lines)
        else:
            await self._write_counted(data)

    async def _write_all(self, first: bytes, pieces: Iterator[bytes]) -> None:
        await self.write(first)
        for piece in pieces:
            await self.write(piece)
            # A long list must not block other users of the loop.
            await asyncio.sleep(0)

    async def _write_mutated(self, lines: list[bytes]) -> None:
        if lines:
            await self._write_counted(b"".join(lines))

        if self._mutator is not None:
            self.broken |= self._mutator.ended
            if self._mutator.altered:
                self._record_effect()

    async def _write_counted(self, data: bytes) -> None:
        if self._fault is not None:
            if 0 < self._bytes_left <= len(data):
                head, data = data[: self._bytes_left], data[self._bytes_left :]
                await self._send_body(head)
                self._bytes_left = 0
                await self._strike_if_due()
            else:
                self._bytes_left -= len(data)

        if data and self.broken:
            self._record_effect()
        elif data:
            await self._write_at_rate(data)

    async def _write_at_rate(self, data: bytes) -> None:
        rate = self._bytes_per_second
        if rate == math.inf:
            await self._send_body(data)
            return

        self._record_effect()
        size = max(1, round(rate / _SLOW_PIECES))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            await self._send_body(piece)
            if not await self._waker.sleep(len(piece) / rate):
                await self._break_off(reset=False)
                return

    # ---------------------------------------------------------------- faults

    def _record_effect(self) -> None:
        """Record that the fault has changed something."""
        if self._taken is not None:
            self._taken.record_effect()

    def _record_effect_if_expired(self, *, expired: bool) -> None:
        """Record that a `Compact` has made a version expire."""
        taken = self._taken
        if expired and taken is not None and isinstance(taken.fault, Compact):
            taken.record_effect()

    async def _strike_if_due(self) -> None:
        if self._fault is not None and self._bytes_left == 0:
            await self._strike()

    async def _strike(self) -> None:
        """Carry out the fault, once."""
        fault, self._fault = self._fault, None
        match fault:
            case Cut():
                self._record_effect()
                await self._break_off(reset=fault.reset)
            case Stall():
                self._record_effect()
                # Without a duration, only the end of the server or the client's
                # disconnect (a cancellation) ends it.
                seconds = math.inf if fault.seconds is None else fault.seconds
                if not await self._waker.sleep(seconds):
                    await self._break_off(reset=False)
            case End():
                # A whole response may be complete: `_write_counted()` sees if there is
                # more.
                self.broken = True
                if self._is_watch:
                    self._record_effect()
            case _:
                pass

    async def _break_off(self, *, reset: bool) -> None:
        self.broken = True
        await self._break_connection(reset=reset)

    # ---------------------------------------------------------------- transport

    @abstractmethod
    async def _send_whole(self, response: APIResponse, body: bytes) -> None:
        """Send head and body at once."""

    @abstractmethod
    async def _send_head(self, response: APIResponse, *, compress: bool) -> None:
        """Send the head of a response of unknown length."""

    @abstractmethod
    async def _send_body(self, data: bytes) -> None:
        """Send a piece of the body, which may be empty."""

    @abstractmethod
    async def _break_connection(self, *, reset: bool) -> None:
        """Break the connection after the bytes sent so far."""


class HTTPResponseWriter(ResponseWriter):
    """Writer of one response over HTTP.

    Args:
        request: The request.
        waker: See `ResponseWriter`.

    Attributes:
        response: Response to hand to aiohttp after everything has been written.
    """

    response: web.StreamResponse

    def __init__(self, request: web.BaseRequest, waker: Waker) -> None:
        super().__init__(waker)
        self._request = request
        self.response = web.StreamResponse()

    @property
    def ready(self) -> bool:
        """True if the head is sent, no fault is armed, and the buffers have room.

        Always False for clients of HTTP/1.0, which has no chunked encoding.
        """
        transport = self._request.transport
        if (
            transport is None
            or transport.is_closing()
            or self.broken
            or self.fault_pending
        ):
            return False

        chunked = self.response.prepared and self.response.chunked
        return chunked and not self._request.protocol.writing_paused

    def write_now(self, lines: list[bytes]) -> None:
        """Send whole lines as one chunk.

        Bypasses aiohttp, whose writes are coroutines: many watches may get the same
        change at the same time, and each step counts.
        """
        transport = self._request.transport
        assert transport is not None
        size = sum(map(len, lines))
        transport.write(b"".join((b"%x\r\n" % size, *lines, b"\r\n")))

    async def _send_whole(self, response: APIResponse, body: bytes) -> None:
        self.response = web.Response(
            status=response.status, body=body, headers=_headers_of(response)
        )

    async def _send_head(self, response: APIResponse, *, compress: bool) -> None:
        headers = _headers_of(response)
        stream = web.StreamResponse(status=response.status, headers=headers)
        if self._request.version >= HttpVersion11:
            stream.enable_chunked_encoding()

        if compress and self._accepts_gzip():
            stream.enable_compression(web.ContentCoding.gzip)

        self.response = stream
        await stream.prepare(self._request)

    async def _send_body(self, data: bytes) -> None:
        await self.response.write(data)

    async def _break_connection(self, *, reset: bool) -> None:
        transport = self._request.transport
        if transport is None:
            return

        if not reset:
            # Sends the buffered bytes, then a FIN.
            transport.close()
            return

        transport.set_write_buffer_limits(0)
        await self._request.writer.drain()
        raw = transport.get_extra_info("socket")
        # With a linger time of zero, the kernel sends RST instead of FIN.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _accepts_gzip(self) -> bool:
        return "gzip" in self._request.headers.get("Accept-Encoding", "")


def _is_expiry(data: bytes) -> bool:
    return data.startswith(b'{"type":"ERROR"') and b'"code":410' in data


def _headers_of(response: APIResponse) -> CIMultiDict[str]:
    # No intermediary may cache a response.
    usual = {"Cache-Control": "no-cache, private", **response.headers}
    headers = CIMultiDict({**usual, "Content-Type": response.content_type})
    for text in response.warnings:
        headers.add("Warning", f"299 - {quote(text)}")

    return headers
