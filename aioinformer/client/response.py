"""`PendingResponse` and `Response`: the wait for a response, then the response.

`close()` aborts either: tasks waiting for it get a `TransportError`.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

import aiohttp

from aioinformer._user_code import guarded_logger
from aioinformer.client.chunked_body import ChunkedBody
from aioinformer.client.error_mapping import api_error, map_errors, transport_error
from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket
    from collections.abc import Callable, Mapping

    from aioinformer.client.config import ClientConfig
    from aioinformer.errors import ApiError

__all__ = ["Exchange", "PendingResponse", "Response", "awaiting", "keep_alive"]

logger: Final = guarded_logger(__name__)

# Size of one read by asyncio. Smaller pieces would be copied, and pass through every
# task one by one. Splitting a piece takes less than half a slice of the loop budget.
PIECE_BYTES = 256 * 1024

# A Status is short, except for a list of causes. Pages of proxies are cut anyway.
ERROR_BODY_BYTES = 256 * 1024

# A connection whose peer vanished is detected after 30 s + 3 * 10 s of silence.
KEEPALIVE = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),  # the name on macOS
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)

# Linux drops a connection whose peer has acknowledged nothing of a fenced request for so
# long, or has not read. By then, another process does not work yet: see
# `controller.shards.timing`.
DELIVERY_SECONDS = 2.5


class PendingResponse:
    """Wait for the head of a response.

    The waiting task enters `timeout`, which raises `TimeoutError` when the wait ends.

    A fenced request must not arrive long after its fence was called. If it is given up,
    or the process is killed, the connection is reset: the kernel would go on sending
    what it has buffered, for minutes if the network is down.

    Args:
        fence: Function called right before the request is sent; None for none.
        spare: Buffers for a `ChunkedBody`; None to let aiohttp read the body.

    Attributes:
        body: Reader in front of aiohttp, once there is a connection; None for none.
        timeout: Time limit, unlimited until the request is sent.
        closed: True after `close()`.
        reused: True if the connection had carried another request before.
    """

    __slots__ = (
        "_connection",
        "_fence",
        "_sent",
        "_spare",
        "body",
        "closed",
        "reused",
        "timeout",
    )

    def __init__(
        self,
        fence: Callable[[], None] | None = None,
        spare: list[bytearray] | None = None,
    ) -> None:
        self._fence = fence
        self._spare = spare
        self.body: ChunkedBody | None = None
        self._connection: asyncio.Transport | None = None
        self._sent = math.inf
        self.timeout: asyncio.Timeout = asyncio.timeout(None)
        self.closed: bool = False
        self.reused: bool = False

    @property
    def silence(self) -> float:
        """Seconds since the request was sent; 0 before."""
        return max(asyncio.get_running_loop().time() - self._sent, 0.0)

    def connected(self, connection: asyncio.Transport | None) -> None:
        """Take the connection that the request will be sent by."""
        if self._fence is not None:
            self._connection = connection

        if self._spare is not None and connection is not None:
            self.body = ChunkedBody(connection, self._spare)

    def sending(self, seconds: float) -> None:
        """Start the time limit: the request is sent next.

        Without effect on the limit after `close()`.

        Raises:
            Exception: The error of the fence. The request is not sent then.
        """
        if self._fence is not None:
            self._fence()
            _bound_delivery(self._connection, bound=True)

        self._sent = asyncio.get_running_loop().time()
        if not self.closed:
            self._end_in(seconds)

    def answered(self) -> None:
        """Take note that the head has arrived. Others may use the connection later."""
        _bound_delivery(self._connection, bound=False)

    def given_up(self) -> None:
        """Drop what has not arrived of a fenced request."""
        if self._connection is not None:
            self._connection.abort()

    def close(self) -> None:
        """End the wait immediately. Idempotent."""
        if not self.closed:
            self.closed = True
            self._end_in(0.0)

    def _end_in(self, seconds: float) -> None:
        # An expired timeout cannot be rescheduled.
        if not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time() + seconds)


class Response:
    """Successful response whose head has arrived. Read its body in pieces.

    Attributes:
        raw: Response of aiohttp, for its head. It may lack parts of the body, and its
            own methods raise aiohttp's errors.
    """

    __slots__ = ("_body", "_config", "_in_flight", "raw")

    def __init__(
        self,
        raw: aiohttp.ClientResponse,
        config: ClientConfig,
        in_flight: set[Exchange],
        body: ChunkedBody | None = None,
    ) -> None:
        self.raw: aiohttp.ClientResponse = raw
        self._body = body if body is not None and body.plain else None
        self._config = config
        self._in_flight = in_flight
        in_flight.add(self)

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self.raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, with case-insensitive names."""
        return self.raw.headers

    async def read_some(
        self, limit: int = PIECE_BYTES, *, patient: bool = False
    ) -> bytes:
        """Wait for the next bytes of the body, and return those that have arrived.

        Args:
            limit: Maximum number of bytes to return.
            patient: True to wait without a limit, False for `read_seconds`.

        Returns:
            Bytes; empty at the end of the body.

        Raises:
            TransportError: If the connection broke, the body is incomplete, or nothing
                arrived for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        return bytes(await self._read_some(limit, patient=patient))

    async def read_view(self) -> memoryview:
        """Read like `read_some()`, without a copy.

        Returns:
            Bytes, valid until the next call; empty at the end of the body.

        Raises:
            TransportError: Same as for `read_some()`.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._body is None:
            return memoryview(await self.read_some())

        return memoryview(await self._read_some(PIECE_BYTES, patient=False))

    async def _read_some(self, limit: int, *, patient: bool) -> bytes | memoryview:
        server, seconds = self._config.server, self._config.read_seconds
        if patient:  # every event passes here
            try:
                return await self._next(limit)
            except Exception as exc:
                raise transport_error(exc, server, answered=True) from exc

        try:
            async with asyncio.timeout(seconds):
                with map_errors(server, answered=True):
                    return await self._next(limit)

        except TimeoutError as exc:
            raise TransportError(
                f"{server} sent nothing for {seconds:g} s within a response"
            ) from exc

    async def _next(self, limit: int) -> bytes | memoryview:
        body, rest = self._body, self.raw.content
        if body is not None:
            if data := await body.read(limit):
                return data

            if body.error and not rest.is_eof():
                raise aiohttp.ClientPayloadError(f"malformed chunk: {body.error}")

        return await rest.read(limit)

    async def read(self, *, discard: bool = False) -> bytes:
        """Read the body to its end.

        Args:
            discard: True to drop the bytes instead of returning them.

        Raises:
            TransportError: Same as for `read_some()`.

        Cancellation:
            Safe, but what was read is lost.
        """
        pieces = []
        while piece := await self.read_some():
            if not discard:
                pieces.append(piece)

        return b"".join(pieces)

    async def refusal(self, request: str) -> ApiError:
        """Return the error of a refusal, read from as much of the body as arrives.

        Args:
            request: Method and path, for the error.

        Cancellation:
            Safe, but the bytes read so far are lost.
        """
        body, server = b"", self._config.server
        try:
            while len(body) < ERROR_BODY_BYTES and (more := await self.read_some()):
                body += more
        except TransportError as exc:
            logger.debug("incomplete error body: %s", exc)

        phrase = self.raw.reason or ""
        error = api_error(self.status, phrase, self.headers, body, server, request)
        error.add_note(f"in response to {request}")
        return error

    def close(self) -> None:
        """Release the connection; abort it if the body was not read to its end.

        Tasks that wait for bytes get a `TransportError`. Idempotent.
        """
        self._in_flight.discard(self)
        if self._body is not None:
            self._body.close()

        connection = self.raw.connection
        transport = connection.transport if connection is not None else None
        if transport is not None:
            # Closing would wait for the peer's TLS close_notify.
            transport.abort()

        self.raw.close()


def keep_alive(connection: socket.socket | TransportSocket) -> None:
    """Make the operating system detect a vanished peer, by TCP keep-alive."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bound_delivery(connection: asyncio.Transport | None, *, bound: bool) -> None:
    """Let a connection drop what it cannot deliver at once, or let it be as usual."""
    opened = None if connection is None else connection.get_extra_info("socket")
    if opened is None:
        return

    with suppress(OSError):  # closed already
        # On a close, also by the end of the process, send a reset, not the buffer.
        linger = struct.pack("ii", bound, 0)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            limit = round(DELIVERY_SECONDS * 1000) if bound else 0
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)


awaiting: ContextVar[PendingResponse | None] = ContextVar("awaiting", default=None)
"""Response that a task waits for, while it requests a connection."""

Exchange: TypeAlias = PendingResponse | Response
"""A request in progress, before or after the head of its response."""
