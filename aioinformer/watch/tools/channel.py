"""`Channel`: a bounded queue like Go's channels, and `ChannelWatch`, its watch.

The fakes and the broadcaster use them. State changes are synchronous, and only wake
waiting tasks, which then check the state.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer._condition import LoopCondition
from aioinformer.errors import WrongLoop
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    from aioinformer.watch.events import WatchEvent

__all__ = ["Channel", "ChannelWatch"]

T = TypeVar("T")


class Channel(Generic[T]):
    """Bounded queue. Senders wait while it is full.

    Args:
        room: Number of items it holds. With 0 each sender waits until its item is
            taken.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._items: deque[T] = deque()
        # Senders that wait for room, and their items. (A dict finds its first slowly.)
        # Invariant: while a sender waits that was not cancelled, there is no room.
        self._senders: OrderedDict[asyncio.Future[bool], T] = OrderedDict()
        self._filled = LoopCondition("the watch")
        self._closed = False

    def __len__(self) -> int:
        """Return the number of items, without those of waiting senders."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._closed

    @property
    def overfull(self) -> bool:
        """True while it has more items than it has room for."""
        return len(self._items) > self.room

    # ---------------------------------------------------------------- sending

    def put(self, item: T) -> None:
        """Add an item, even without room.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.
        """
        self._check_loop()
        self._items.append(item)
        self._filled.notify_all()

    def offer(self, item: T) -> bool:
        """Add an item if there is room, and the channel is not closed.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.
        """
        if self._closed or len(self._items) >= self.room:
            return False

        self.put(item)
        return True

    async def send(self, item: T) -> bool:
        """Add an item; wait until there is room for it or it is taken.

        Returns:
            False if the channel is closed, or was closed meanwhile.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.

        Cancellation:
            The item is withdrawn, unless it was accepted already.
        """
        if self.offer(item):
            return True

        if self._closed:
            return False

        self._check_loop()
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._senders[accepted] = item
        self._filled.notify_all()
        try:
            return await accepted
        finally:
            self._senders.pop(accepted, None)  # still there if this was cancelled

    def close(self) -> None:
        """Accept no more items; those in it can still be received. Idempotent.

        The items of waiting senders are withdrawn.
        """
        self._closed = True
        while self._senders:
            accepted, _ = self._senders.popitem(last=False)
            if not accepted.done():
                accepted.set_result(False)

        self._filled.notify_all()

    # ---------------------------------------------------------------- receiving

    async def filled(self) -> bool:
        """Wait for an item; return False if none will come.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.

        Cancellation:
            Safe: nothing was taken.
        """
        self._check_loop()
        if not self._has_some():
            await self._filled.wait_for(lambda: self._has_some() or self._closed)

        return self._has_some()

    def take(self, most: int | None = None) -> list[T]:
        """Take items in the order of sending, and let waiting senders follow.

        Args:
            most: Maximum number of items; None for all, including those of waiting
                senders.
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
        """Drop all items in it."""
        self._items.clear()

    # ---------------------------------------------------------------- inside

    def _has_some(self) -> bool:
        # The item of a cancelled sender is withdrawn at once, before its task runs.
        while self._senders and next(iter(self._senders)).done():
            self._senders.popitem(last=False)

        return bool(self._items or self._senders)

    def _accept(self) -> bool:
        """Accept the item of the first waiting sender; return False if none waits."""
        while self._senders:
            accepted, item = self._senders.popitem(last=False)
            if not accepted.done():
                self._items.append(item)
                accepted.set_result(True)
                return True

        return False

    def _check_loop(self) -> None:
        """Refuse a change whose notification would be lost. Call it first."""
        self._filled.check_loop()
        sender = next(iter(self._senders), None)
        if sender is None:
            return

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if sender.get_loop() is not running:
            raise WrongLoop("the watch is used by another event loop or thread")


class ChannelWatch(Watch):
    """Watch whose events are sent within this process.

    An iteration takes one event at a time, so that the unread events stay in the
    channel and count against its room. A batch takes everything that was sent.
    """

    def __init__(self, channel: Channel[WatchEvent]) -> None:
        super().__init__()
        self._channel = channel

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events and return all that were sent; an empty list is the end.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        # Read the attribute each time: a reset replaces the channel.
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
        """Continue after events were taken, if senders wait elsewhere."""

    def _close(self) -> None:
        self._channel.close()
        self._channel.clear()

    def __repr__(self) -> str:
        state = (
            "stopped" if self.stopped else "ended" if self._channel.closed else "open"
        )
        return f"<{type(self).__name__} {state} buffered={len(self._channel)}>"
