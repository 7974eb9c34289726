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
    """Bytes that arrive: the body of an answer to those who only read it."""

    async def read_some(self, *, patient: bool = False) -> bytes:
        """Wait for the next bytes; none at the end.

        Args:
            patient: Wait for ever, as silence is normal here.

        Raises:
            TransportError: The connection broke, or nothing came for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """

    def close(self) -> None:
        """End it, at once; whoever waits gets a `TransportError`. Idempotent."""


class StreamWatch(Watch):
    """A watch over the bytes of a stream, cut anywhere, and their decoder.

    Every error ends it, as behind a line that cannot be read the rest of the stream is
    not to be trusted. It is raised once, when the events before it were given; then
    comes the end. (client-go's `StreamWatcher` makes an ERROR event of a line that it
    cannot read, which looks as if the server had sent it.)

    Args:
        source: Where the bytes come from; closed when the watch ends, however it does.
        decoder: Makes events of them.
        seconds: After how long it ends by itself, which is no failure: what was read by
            then is still given. None for when the stream ends.
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
        # What was read and not decoded yet: a cancellation must not lose it.
        self._piece: bytes | None = None
        # Nothing more is to be read; the piece above can still be decoded.
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._end)

    @property
    def skipped(self) -> int:
        """Events left out so far: unreadable, of another kind, or of an unknown type."""
        return self._decoder.skipped

    async def _fetch(self) -> list[WatchEvent]:
        budget = LoopBudget.current()
        while not self._closed or self._piece:
            if self._decoder.failure is not None:
                self._feed(b"")  # raises it: what came before it was given

            if self._piece is None:
                self._piece = await self._read()

            await budget.start()
            try:
                events = self._take()
            finally:
                budget.end()

            if events:
                return events

        return []

    def _end(self) -> None:
        """Let go of everything but the events that were read."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

        self._source.close()

    def _close(self) -> None:
        self._piece = None
        self._end()

    async def _read(self) -> bytes:
        """Wait for bytes; none are the end, which `_end()` brings about as well."""
        try:
            return await self._source.read_some(patient=True)
        except TransportError as exc:
            if not self._closed:
                self._end()
                raise

            # aiohttp raises one and the same object for all connections that we close:
            # what its traceback refers to, which is all of this, would stay alive.
            if exc.__cause__ is not None:
                exc.__cause__.__traceback__ = None

            return b""

    def _take(self) -> list[WatchEvent]:
        """Decode what was read."""
        piece, self._piece = self._piece, None
        if piece:
            return self._feed(piece)

        # Ended by us, within a line perhaps: nobody has cut it off.
        if self._closed:
            return []

        self._end()
        try:
            return self._decoder.finish()
        except DecodeError as exc:
            raise TransportError(f"the watch was cut off within a line: {exc}") from exc

    def _feed(self, piece: bytes) -> list[WatchEvent]:
        try:
            return self._decoder.feed(piece)
        except DecodeError:
            self._end()
            raise
