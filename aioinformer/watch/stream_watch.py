"""`StreamWatch`: a watch made of the bytes that a server streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aioinformer.budget import LoopBudget
from aioinformer.errors import DecodeError, TransportError
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    from aioinformer.watch.decoding import StreamDecoder
    from aioinformer.watch.events import WatchEvent

__all__ = ["ByteStream", "StreamWatch"]


class ByteStream(Protocol):
    """Bytes that arrive: the body of a response, for its reader."""

    async def read_some(self, *, patient: bool = False) -> bytes:
        """Wait for the next bytes; return none at the end.

        Args:
            patient: True to wait without a limit, for streams that are often silent.

        Raises:
            TransportError: If the connection broke, or no bytes came for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """

    async def read_view(self) -> memoryview:
        """Read like `read_some()`, in memory that is valid until the next call.

        Cancellation:
            Safe: nothing is lost, call again.
        """

    def close(self) -> None:
        """End it at once; a waiting reader gets a `TransportError`. Idempotent."""


class StreamWatch(Watch):
    """Watch over the bytes of a stream, and their decoder.

    Every error ends it: after an unreadable line the rest of the stream cannot be
    trusted. The error is raised once, after the events before it. Then the watch ends.
    (client-go's `StreamWatcher` makes an ERROR event of an unreadable line, as if the
    server had sent it.)

    Args:
        source: Source of the bytes; closed when the watch ends.
        decoder: Decoder of the bytes.
        seconds: Seconds after which the watch ends without an error, and with the
            events that were read; None for the end of the stream.
    """

    def __init__(
        self,
        source: ByteStream,
        decoder: StreamDecoder,
        seconds: float | None = None,
    ) -> None:
        super().__init__()
        self._source = source
        self._decoder = decoder
        # Bytes that were read and not decoded yet: a cancellation must not lose them.
        self._piece: bytes | None = None
        # Nothing more will be read. The piece above can still be decoded.
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._end)

    @property
    def skipped(self) -> int:
        """Number of events left out so far: unreadable, or of another kind or type."""
        return self._decoder.skipped

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events and return all that have arrived; an empty list is the end.

        One function reads and decodes, for speed: every event passes through it.

        Raises:
            TransportError: If the connection broke, or its last line was cut off.
            DecodeError: If a line is not an event.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._ready:
            return self._take_ready()

        budget = LoopBudget.current()
        decoder = self._decoder
        while not self._closed or self._piece:
            if decoder.failure is not None:  # the events before it were returned
                self._end()
                raise decoder.failure

            if self._piece is None:
                try:
                    self._piece = await self._source.read_some(patient=True)
                except TransportError as exc:
                    self._piece = self._end_of_read(exc)

            await budget.start()
            try:
                if self._stopped:
                    return []

                piece, self._piece = self._piece, None
                events = decoder.feed(piece) if piece else self._rest()
            except DecodeError:
                self._end()
                raise
            finally:
                budget.end()

            if events:
                return events

        return []

    def _end(self) -> None:
        """Free all resources; events that were read can still be fetched."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

        self._source.close()

    def _close(self) -> None:
        self._piece = None
        self._end()

    def _end_of_read(self, exc: TransportError) -> bytes:
        """Return no bytes after `_end()`.

        Raises:
            TransportError: If the connection broke by itself.
        """
        if not self._closed:
            self._end()
            raise exc

        # aiohttp raises the same object for all connections that we close. Its
        # traceback would keep all of this alive.
        if exc.__cause__ is not None:
            exc.__cause__.__traceback__ = None

        return b""

    def _rest(self) -> list[WatchEvent]:
        """Decode the remaining bytes at the end of the stream."""
        # Ended by us, perhaps within a line. That is not an error.
        if self._closed:
            return []

        self._end()
        try:
            return self._decoder.finish()
        except DecodeError as exc:
            raise TransportError(f"watch was cut off within a line: {exc}") from exc
