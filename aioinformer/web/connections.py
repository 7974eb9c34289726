"""`Connections`: the readers of a stream, and what a slow one may cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger
from aioinformer.errors import AioInformerError, OptionsError
from aioinformer.model.times import seconds_of
from aioinformer.web.responses import HTTPResponse, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.model.times import Duration

    Write = Callable[[bytes], Awaitable[object]]

__all__ = [
    "CHUNK",
    "GRACE_SECONDS",
    "MAX_READERS",
    "WRITE_SECONDS",
    "Connection",
    "Connections",
    "TooManyReaders",
    "not_begun",
]

logger: Final = guarded_logger(__name__)

CHUNK = 64 * 1024
"""Maximum number of bytes that are written at once."""

MAX_READERS = 1000
"""Default maximum number of readers of a stream."""

WRITE_SECONDS = 30.0
"""Default timeout of a write."""

POLL_SECONDS = 0.2
"""Interval of checks for the end of the stream, the server or a reader. uvicorn does
not notify apps when it stops, and aiohttp does not notify handlers of a disconnect."""

GRACE_SECONDS = 1.0
"""Maximum time that a stuck reader delays the end of the stream."""


def not_begun() -> HTTPResponse:
    """Return the response to a request for which nothing was written."""
    return refusal(503, "the stream is full, or has ended", Retry_After="5")


class TooManyReaders(AioInformerError):
    """The stream has reached `max_readers`: try again later."""


class _Stuck(Exception):
    """A reader that read nothing for `write_timeout`."""


@dataclass(eq=False, slots=True)
class Connection:
    """Connection of one reader.

    Attributes:
        disconnected: Function that returns True if the reader has left.
        limit: Timeout that ends a reader that has left, or is stuck at the end.
        wakeup: Event that is set when there is something to send.
        over: True if nothing more should be written.
    """

    disconnected: Callable[[], bool]
    _write: Write
    _write_timeout: float | None
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    writing: bool = False
    over: bool = False

    async def send(self, data: bytes) -> None:
        """Write bytes, and wait while the reader is slow. At the end, write nothing."""
        for start in range(0, len(data), CHUNK):
            if self.over:  # its timeout would interrupt the write
                break

            self.writing = True
            await self._send(data[start : start + CHUNK])
            self.writing = False

    async def _send(self, piece: bytes) -> None:
        limit = asyncio.timeout(self._write_timeout)
        try:
            async with limit:
                await self._write(piece)
        except TimeoutError as exc:
            if limit.expired():
                raise _Stuck from exc

            raise

    def end(self) -> None:
        """End it at once, or after a write under way within `GRACE_SECONDS`."""
        if not self.over:
            self.over = True
            self._end_in(GRACE_SECONDS if self.writing else 0.0)

    def poll(self) -> None:
        """End it if the reader has left."""
        if self.limit.when() is None and self.disconnected():
            self._end_in(0.0)

    def _end_in(self, seconds: float) -> None:
        if self.limit.when() is None:
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


class Connections:
    """Connections of the readers of one stream.

    A reader that takes nothing for `write_timeout` is disconnected. All of them end
    with the stream, stuck ones within a second.

    Args:
        name: Name of the stream in messages.
        max_readers: Maximum number of concurrent readers, or None.
        write_timeout: Seconds, or a timedelta, that a reader may take for 64 KiB; None
            for no limit.
        has_ended: Function that returns True if the stream should end. It is called
            five times a second while there are readers.

    Raises:
        OptionsError: If a limit is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        max_readers: int | None = MAX_READERS,
        write_timeout: Duration | None = WRITE_SECONDS,
        has_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        if max_readers is not None and max_readers < 1:
            raise OptionsError(f"max_readers must be at least 1, not {max_readers}")

        self._name = name
        self._max_readers = max_readers
        self._write_timeout = (
            None if write_timeout is None else seconds_of(write_timeout)
        )
        if self._write_timeout is not None and self._write_timeout <= 0:
            raise OptionsError(f"write_timeout must be positive, not {write_timeout}")

        self._has_ended = has_ended
        self._closed = False
        self._current: set[Connection] = set()
        self._poll_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._current)

    @property
    def ended(self) -> bool:
        """True if there are no further readers."""
        return self._closed or self._has_ended()

    @property
    def full(self) -> bool:
        """True while there are `max_readers` readers."""
        return self._max_readers is not None and len(self) >= self._max_readers

    def check_room(self) -> None:
        """Reject a further reader if the stream is full.

        Raises:
            TooManyReaders: If there are `max_readers` already.
        """
        if self.full:
            raise TooManyReaders(
                f"{self._name} has reached the limit of {len(self)} readers"
            )

    async def serve(
        self,
        produce: Callable[[Connection], Awaitable[None]],
        write: Write,
        *,
        disconnected: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send to a reader what a coroutine function produces, until one of them ends.

        Args:
            produce: Function that gets the connection, and sends to it.
            write: Coroutine function that sends bytes, and waits while the reader is
                slow. Calls do not overlap. The first call may start the response.
                Without any call, the stream is full or has ended: respond with
                `not_begun()`.
            disconnected: Function that returns True if the reader has left, for servers
                that do not cancel the request. It is called five times a second.

        Returns:
            True if everything was sent, so that the response can be completed. False if
            the reader has left or is stuck: abort the connection, or its unsent data is
            kept.

        Raises:
            Exception: Exception of `produce` or `write`.

        Cancellation:
            Safe: nothing is left running.
        """
        if self.ended or self.full:
            return True

        connection = Connection(disconnected, write, self._write_timeout)
        self._current.add(connection)
        if self._poll_timer is None:
            self._schedule_poll()

        try:
            async with connection.limit:
                await produce(connection)
        except _Stuck:
            logger.info(
                "%s: disconnecting a reader that read nothing for %g s",
                self._name,
                self._write_timeout,
            )
            return False
        except TimeoutError:
            if not connection.limit.expired():
                raise

            return connection.over and not connection.writing
        finally:
            self._leave(connection)

        return True

    def close(self) -> None:
        """End all readers, stuck ones within a second, and refuse others. Idempotent."""
        self._closed = True
        self._end()

    def _leave(self, connection: Connection) -> None:
        self._current.discard(connection)
        if not self._current and self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None

    def _schedule_poll(self) -> None:
        loop = asyncio.get_running_loop()
        self._poll_timer = loop.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._schedule_poll()
        if self.ended:
            self._end()

        for connection in self._current:
            connection.poll()

    def _end(self) -> None:
        for connection in self._current:
            connection.end()
