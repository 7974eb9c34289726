"""The outlet: how an answer leaves the server, whole or as a fault wants it.

Every body goes through here, so a fault that counts bytes counts all of them, and those
of the body only.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from aioinformer.testing.faults import Cut, Stall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer.testing.bell import Bell
    from aioinformer.testing.faults import Fault

__all__ = ["Answer", "Outlet"]

# From this size on a real server compresses lists for those who accept it.
_GZIP_FROM_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered, if no fault intervenes."""

    status: int = 200
    body: Iterable[bytes] = ()
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class Outlet:
    """Writes one answer to one request.

    Args:
        request: The request.
        fault: What strikes it; only those that break or stall answers matter here.
        bell: Ends a stall early when the server stops.
    """

    def __init__(
        self, request: web.BaseRequest, fault: Fault | None, bell: Bell
    ) -> None:
        self._request = request
        self._bell = bell
        self._fault = fault if isinstance(fault, Cut | Stall) else None
        self._left = self._fault.after_bytes if self._fault is not None else 0
        self._response = web.StreamResponse()
        self.broken = False
        """True if the connection has been broken on purpose: nothing more is sent."""

    async def send(self, answer: Answer) -> web.StreamResponse:
        """Send a whole answer.

        Cancellation:
            Leaves the answer unfinished, which breaks the connection.
        """
        pieces = iter(answer.body)
        first, second = next(pieces, b""), next(pieces, None)
        if second is None and self._fault is None:
            # All in one piece: with a length, and in one packet.
            return web.Response(
                status=answer.status,
                body=first,
                content_type=answer.content_type,
                headers=answer.headers,
            )

        first += second or b""
        try:
            await self.open(answer, compress=len(first) >= _GZIP_FROM_BYTES)
            await self._write_all(first, pieces)
        except ConnectionError:
            # The client has left: there is nobody to tell.
            return self._response

        return self._response

    async def _write_all(self, first: bytes, pieces: Iterator[bytes]) -> None:
        await self.write(first)
        for piece in pieces:
            await self.write(piece)
            # A list of any length must not hold up who shares the loop.
            await asyncio.sleep(0)

    async def open(self, answer: Answer, *, compress: bool = False) -> None:
        """Send the head, at once: a watch may have nothing to say for minutes.

        Cancellation:
            Breaks the connection.
        """
        if self._fault is not None and not self._fault.head:
            await self._strike()

        if self.broken:
            return

        self._response = web.StreamResponse(
            status=answer.status, headers=answer.headers
        )
        self._response.content_type = answer.content_type
        self._response.enable_chunked_encoding()
        if compress and self._fault is None and self._takes_gzip():
            self._response.enable_compression(web.ContentCoding.gzip)

        await self._response.prepare(self._request)
        await self._strike_if_due()

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, or as much of it as the fault lets through.

        Raises:
            ConnectionError: The client has gone.

        Cancellation:
            Breaks the connection.
        """
        if self._fault is not None and 0 < self._left <= len(data):
            head, data = data[: self._left], data[self._left :]
            await self._write(head)
            self._left = 0
            await self._strike_if_due()
        elif self._fault is not None:
            self._left -= len(data)

        await self._write(data)

    @property
    def response(self) -> web.StreamResponse:
        """What the HTTP server is to be given when all has been written."""
        return self._response

    async def _write(self, data: bytes) -> None:
        if data and not self.broken:
            await self._response.write(data)

    def _takes_gzip(self) -> bool:
        return "gzip" in self._request.headers.get("Accept-Encoding", "")

    async def _strike_if_due(self) -> None:
        if self._fault is not None and self._left == 0:
            await self._strike()

    async def _strike(self) -> None:
        """Let the fault happen; afterwards there is none."""
        fault, self._fault = self._fault, None
        if isinstance(fault, Cut):
            await self._cut(reset=fault.reset)
        elif isinstance(fault, Stall):
            await self._stall(fault.seconds)

    async def _cut(self, *, reset: bool) -> None:
        self.broken = True
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

    async def _stall(self, seconds: float | None) -> None:
        if seconds is not None:
            await asyncio.sleep(seconds)
            return

        # Only the server's end or the client's leaving (a cancellation) ends it.
        await self._bell.wait(until=math.inf)
        self.broken = True
        if self._request.transport is not None:
            self._request.transport.abort()
