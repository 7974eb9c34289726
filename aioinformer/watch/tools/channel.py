"""`Channel`: a bounded queue as Go's channels are, and `ChannelWatch`, a watch over one.

What fakes and the broadcaster stand on. State changes are synchronous; futures only
wake those who wait, who then look again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aioinformer.errors import WrongLoop
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.watch.events import WatchEvent

__all__ = ["Channel", "ChannelWatch"]

T = TypeVar("T")


class Channel(Generic[T]):
    """A queue that holds so many items; whoever sends more than that waits.

    Args:
        room: How many. With 0 each sender waits until its item has been taken.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._items: deque[T] = deque()
        # Who waits for room, and with what. (Of a dict, the first is slow to find.)
        # Invariant: while somebody waits who was not cancelled, there is no room.
        self._senders: OrderedDict[asyncio.Future[bool], T] = OrderedDict()
        self._receivers: set[asyncio.Future[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        """How many items it holds; those whose senders wait do not count."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """True once it takes nothing more."""
        return self._closed

    @property
    def overfull(self) -> bool:
        """True while it holds more than there is room for."""
        return len(self._items) > self.room

    # ---------------------------------------------------------------- sending

    def put(self, item: T) -> None:
        """Add an item whether there is room or not.

        Raises:
            WrongLoop: If somebody waits in another event loop or thread.
        """
        self._check_loop()
        self._items.append(item)
        self._wake()

    def offer(self, item: T) -> bool:
        """Add an item if there is room, and the channel is not closed.

        Raises:
            WrongLoop: If somebody waits in another event loop or thread.
        """
        if self._closed or len(self._items) >= self.room:
            return False

        self.put(item)
        return True

    async def send(self, item: T) -> bool:
        """Add an item, and wait until there is room for it or it was taken.

        Returns:
            False if the channel is closed, or was closed meanwhile.

        Raises:
            WrongLoop: If somebody waits in another event loop or thread.

        Cancellation:
            Takes the item back, unless it was accepted already.
        """
        if self.offer(item):
            return True

        if self._closed:
            return False

        self._check_loop()
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._senders[accepted] = item
        self._wake()
        try:
            return await accepted
        finally:
            self._senders.pop(accepted, None)  # there only if this was cancelled

    def close(self) -> None:
        """Take nothing more; what is in it can still be received. Idempotent.

        Those who wait for room are sent away with their items.
        """
        self._closed = True
        while self._senders:
            accepted, _ = self._senders.popitem(last=False)
            if not accepted.done():
                accepted.set_result(False)

        self._wake()

    # ---------------------------------------------------------------- receiving

    async def filled(self) -> bool:
        """Wait until there is something to take; False if there never will be.

        Raises:
            WrongLoop: If somebody waits in another event loop or thread.

        Cancellation:
            Safe: nothing was taken.
        """
        self._check_loop()
        while not self._has_some():
            if self._closed:
                return False

            receiver = asyncio.get_running_loop().create_future()
            self._receivers.add(receiver)
            try:
                await receiver
            finally:
                self._receivers.discard(receiver)

        return True

    def take(self, most: int | None = None) -> list[T]:
        """Take items in the order in which they were sent, and let senders follow.

        Args:
            most: How many at most; None for all, those of waiting senders among them.
        """
        taken: list[T] = []
        while most is None or len(taken) < most:
            if not self._items and not self._accept():
                break

            taken.append(self._items.popleft())
            while len(self._items) < self.room and self._accept():
                pass

        return taken

    def clear(self) -> None:
        """Drop what is in it."""
        self._items.clear()

    # ---------------------------------------------------------------- inside

    def _has_some(self) -> bool:
        # A cancelled sender has taken its item back, though it has not run yet.
        while self._senders and next(iter(self._senders)).done():
            self._senders.popitem(last=False)

        return bool(self._items or self._senders)

    def _accept(self) -> bool:
        """Let the first that waits in; False if nobody does."""
        while self._senders:
            accepted, item = self._senders.popitem(last=False)
            if not accepted.done():
                self._items.append(item)
                accepted.set_result(True)
                return True

        return False

    def _wake(self) -> None:
        for receiver in self._receivers:
            if not receiver.done():
                receiver.set_result(None)

    def _check_loop(self) -> None:
        """Fail before anything is changed: who waits elsewhere would never be woken."""
        everybody: Iterable[asyncio.Future[Any]] = chain(self._receivers, self._senders)
        waiting = next(iter(everybody), None)
        if waiting is None:
            return

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if waiting.get_loop() is not running:
            raise WrongLoop("the watch is used in another event loop or thread")


class ChannelWatch(Watch):
    """A watch whose events are sent within this process.

    An iteration takes one event at a time, so that no more than there is room for are
    under way; a batch is everything that was sent.
    """

    def __init__(self, channel: Channel[WatchEvent]) -> None:
        super().__init__()
        self._channel = channel

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events: all that were sent. An empty list is the end.

        Raises:
            WrongLoop: If somebody waits in another event loop or thread.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        # Each time the channel says whether it has ended: another may take its place.
        return await self._fetch()

    async def __anext__(self) -> WatchEvent:
        events = await self._receive(1)
        if not events:
            raise StopAsyncIteration

        return events[0]

    async def _fetch(self) -> list[WatchEvent]:
        return await self._receive(None)

    async def _receive(self, most: int | None) -> list[WatchEvent]:
        channel = self._channel
        if not await channel.filled():
            return []

        events = channel.take(most)
        self._made_room()
        return events

    def _made_room(self) -> None:
        """Events were taken; for those whose senders do not wait in the channel."""

    def _close(self) -> None:
        self._channel.close()
        self._channel.clear()

    def __repr__(self) -> str:
        state = (
            "stopped" if self.stopped else "ended" if self._channel.closed else "open"
        )
        return f"<{type(self).__name__} {state} buffered={len(self._channel)}>"
