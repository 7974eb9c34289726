"""One exchange: the wait for the head of an answer, then the answer and its body.

Both can be ended from outside, by `close()`: whoever waits gets a `TransportError`.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, TypeAlias

from aioinformer._user_code import guarded_logger
from aioinformer.client.error_mapping import api_error, map_errors
from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket
    from collections.abc import Callable, Mapping

    import aiohttp

    from aioinformer.client.config import ClientConfig
    from aioinformer.errors import ApiError

__all__ = ["Exchange", "PendingResponse", "Response", "keep_alive"]

logger = guarded_logger(__name__)

# What asyncio reads from a socket at once, whole: cut up, each part would be copied and
# go through every task alone. Splitting it takes less than half a slice of the loop.
PIECE_BYTES = 256 * 1024

# A Status is short, except for a list of causes; what a proxy says is cut anyway.
ERROR_BODY_BYTES = 256 * 1024

# A connection whose other side vanished is noticed after 30 s + 3 * 10 s of silence.
KEEPALIVE = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),  # what macOS calls it
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)


class PendingResponse:
    """The wait for the head of an answer.

    The task that waits enters `patience`, and gets a `TimeoutError` there if it ends.

    Args:
        fence: Asked right before the request is sent; None for nobody.

    Attributes:
        patience: Without a limit until the clock starts.
        closed: True if it was ended by `close()`.
        reused: True if the connection had carried another request before.
    """

    __slots__ = ("_fence", "closed", "patience", "reused")

    def __init__(self, fence: Callable[[], None] | None = None) -> None:
        self._fence = fence
        self.patience = asyncio.timeout(None)
        self.closed = False
        self.reused = False

    def sending(self, seconds: float) -> None:
        """The request is sent next: wait so much longer and no more.

        After `close()`, the wait is over already.

        Raises:
            Exception: That of the fence, and nothing is sent.
        """
        if self._fence is not None:
            self._fence()

        if not self.closed:
            self._end_in(seconds)

    def close(self) -> None:
        """End the wait, at once. Idempotent."""
        if not self.closed:
            self.closed = True
            self._end_in(0.0)

    def _end_in(self, seconds: float) -> None:
        # One that is over cannot be given another end.
        if not self.patience.expired():
            self.patience.reschedule(asyncio.get_running_loop().time() + seconds)


class Response:
    """An answer whose head has arrived and is no error; read its body in pieces.

    Attributes:
        raw: The answer as aiohttp gave it. Its own methods raise its own errors.
    """

    __slots__ = ("_config", "_in_flight", "raw")

    def __init__(
        self,
        raw: aiohttp.ClientResponse,
        config: ClientConfig,
        in_flight: set[Exchange],
    ) -> None:
        self.raw = raw
        self._config = config
        self._in_flight = in_flight
        in_flight.add(self)

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self.raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names in any case."""
        return self.raw.headers

    async def read_some(
        self, limit: int = PIECE_BYTES, *, patient: bool = False
    ) -> bytes:
        """Wait for the next bytes of the body, and return those that have arrived.

        Args:
            limit: Return at most so many bytes.
            patient: True to wait for ever, False for `read_seconds`.

        Returns:
            Bytes; none at the end of the body.

        Raises:
            TransportError: If the connection broke, the body is cut off, or nothing
                came for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        server, seconds = self._config.server, self._config.read_seconds
        try:
            async with asyncio.timeout(None if patient else seconds):
                with map_errors(server, answered=True):
                    return await self.raw.content.read(limit)

        except TimeoutError as exc:
            raise TransportError(
                f"{server} sent nothing for {seconds:g} s in the middle of an answer. "
                "Trying again may help."
            ) from exc

    async def read(self, *, discard: bool = False) -> bytes:
        """Read the body to its end.

        Args:
            discard: Drop the bytes instead of returning them.

        Raises:
            TransportError: As `read_some()` does.

        Cancellation:
            Safe, but what was read is lost.
        """
        pieces = []
        while piece := await self.read_some():
            if not discard:
                pieces.append(piece)

        return b"".join(pieces)

    async def refusal(self, asked: str) -> ApiError:
        """Read what an answer that refuses something says, as far as it arrives.

        Args:
            asked: Method and path, for a note on the error.

        Cancellation:
            Safe, but what was read is lost.
        """
        body, server = b"", self._config.server
        try:
            while len(body) < ERROR_BODY_BYTES and (more := await self.read_some()):
                body += more
        except TransportError as exc:
            logger.debug("an error body was cut off: %s", exc)

        phrase = self.raw.reason or ""
        error = api_error(self.status, phrase, self.headers, body, server)
        error.add_note(f"in answer to {asked}")
        return error

    def close(self) -> None:
        """Let the connection go; it is aborted if the body was not read to its end.

        Whoever waits for bytes gets a `TransportError`. Idempotent.
        """
        self._in_flight.discard(self)
        connection = self.raw.connection
        transport = connection.transport if connection is not None else None
        if transport is not None:
            # Closing would wait for the other side to say good-bye by TLS.
            transport.abort()

        self.raw.close()


def keep_alive(connection: socket.socket | TransportSocket) -> None:
    """Let the operating system find out when the other side has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


Exchange: TypeAlias = PendingResponse | Response
"""What is under way with the server."""
