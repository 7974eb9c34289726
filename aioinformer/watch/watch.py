"""`Watch`: a stream of changes, whoever it comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from aioinformer.watch.events import WatchEvent

__all__ = ["Watch"]


class Watch(ABC):
    """A stream of changes: an async iterator of events, or of batches of them.

    ::

        async with client.watch(PODS, namespace="shop") as stream:
            async for event in stream:
                ...

    Events and batches may be taken by turns: nothing is lost, nothing comes twice. Only
    one task reads at a time; any code of the same loop may call `stop()`.

    A subclass implements `_fetch()` and `_close()`, and calls `super().__init__()`.
    """

    def __init__(self) -> None:
        # Fetched, and not handed out yet: an iteration takes one at a time.
        self._ready: deque[WatchEvent] = deque()
        self._ended = False
        self._stopped = False

    @property
    def skipped(self) -> int:
        """Events left out so far, because they cannot be read or are not asked for."""
        return 0

    @property
    def stopped(self) -> bool:
        """True once `stop()` was called."""
        return self._stopped

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events: all that have arrived. An empty list is the end.

        Raises:
            TransportError: The connection broke, or its last line was cut off.
            DecodeError: A line is not what a watch sends.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._ready:
            waiting = list(self._ready)
            self._ready.clear()
            return waiting

        if self._ended:
            return []

        events = await self._fetch()
        if self._stopped:
            return []

        if not events:
            self._ended = True

        return events

    def stop(self) -> None:
        """End the watch, at once; whoever waits for events gets the end. Idempotent."""
        if not self._stopped:
            self._stopped = self._ended = True
            self._ready.clear()
            self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._ready:
            self._ready.extend(await self.next_batch())

        if not self._ready:
            raise StopAsyncIteration

        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _fetch(self) -> list[WatchEvent]:
        """Wait for events that nobody has had yet; none are the end.

        Raises what `next_batch()` does. A cancellation must lose nothing.
        """

    @abstractmethod
    def _close(self) -> None:
        """Let go of what it holds, and wake a `_fetch()` that waits; called once."""
