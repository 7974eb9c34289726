"""The inbox of a handler: what it is to be told, and how much of that is done.

What goes in are batches, which all handlers share and nobody may change. A snapshot (the
first list, or what a late handler is told first) is one batch of objects, from which
notifications are made while they are delivered. So a handler costs a queue entry for
each batch, and a slow one delays nobody else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from aioinformer.budget import LoopBudget
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["Batch", "CoalescingInbox", "Inbox", "Nothing", "Snapshot", "merged"]


class Batch(Protocol):
    """Notifications that several handlers share; nobody may change it.

    None stands for one that was counted, but is not to be told any more.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Notification | None]: ...


class Snapshot:
    """Objects that are told as `Added`, made one by one."""

    __slots__ = ("_initial", "_objects")

    def __init__(self, objects: list[KubeObject], *, initial: bool = True) -> None:
        self._objects = objects
        self._initial = initial

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification]:
        for obj in self._objects:
            yield Added(obj, self._initial)


class Inbox:
    """Everything as it came, in its order, without bound.

    The notifications are numbered in the order in which they were put, from 0 on.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[float, Batch] | None] = asyncio.Queue()
        self._oldest = 0.0
        # Invariant: 0 <= delivered <= queued.
        self.queued = 0
        """Notifications that were ever put."""
        self.delivered = 0
        """How many of them are done with; counted by who takes them."""
        self.initial: int | None = None
        """How many are of the initial state; None before that is known."""

    @property
    def depth(self) -> int:
        """Notifications that wait, those in work included."""
        return self.queued - self.delivered

    @property
    def finished(self) -> int:
        """All notifications of a lower number are done with."""
        return self.delivered

    @property
    def synced(self) -> bool:
        """True once the handler has processed the initial notifications."""
        return self.initial is not None and self.finished >= self.initial

    @property
    def oldest(self) -> float:
        """The loop's time at which the oldest of those that wait was put."""
        return self._oldest

    def put(self, batch: Batch, now: float) -> None:
        """Add a batch that is not empty."""
        if self.queued == self.delivered:
            self._oldest = now

        self._queue.put_nowait((now, batch))
        self.queued += len(batch)

    def take_now(self) -> Iterable[Notification | None] | None:
        """Return what `take()` would return without work; else None."""
        if self._queue.empty():
            return None

        entry = self._queue.get_nowait()
        if entry is None:
            return ()

        self._oldest, batch = entry
        return batch

    async def take(self) -> Iterable[Notification | None]:
        """Wait for notifications; they leave the inbox as they are iterated over.

        Nothing comes of an inbox that was cleared; then it is to be asked no more.

        Cancellation:
            Safe: nothing is lost.
        """
        entry = await self._queue.get()
        if entry is None:
            return ()

        self._oldest, batch = entry
        return batch

    def clear(self) -> None:
        """Drop everything, and wake who waits for more."""
        while not self._queue.empty():
            self._queue.get_nowait()  # or whoever holds a registration would keep it

        self._queue.put_nowait(None)


CROWDED = 512
"""So many may wait as they came before somebody merges them while the handler is busy:
with as many more they are a millisecond's work."""


BURST = 256
"""So many are handed out in one go, fewer if there is news; in between, who waits for
progress is told."""


class Nothing(Enum):
    """Result of merging an addition and its deletion."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


def merged(
    first: Notification, second: Notification
) -> Notification | Literal[Nothing.NOTHING] | None:
    """Merge two notifications of one object.

    Args:
        first: Queued notification.
        second: Next notification.

    Returns:
        The one to tell instead of both, `NOTHING` if there is nothing to tell, or None
        if both must be told: of a deletion and what follows, and of different uids.
    """
    if isinstance(first, Deleted):
        return None

    state = first.new if isinstance(first, Updated) else first.obj
    if isinstance(second, Added):
        return None  # nobody comes twice: not ours to judge

    if isinstance(second, Deleted):
        if second.obj.uid != state.uid:
            return None

        return NOTHING if isinstance(first, Added) else second

    if second.new.uid != state.uid:
        return None

    if second.resync:
        return first  # it reminds of what is going to be told anyway

    if isinstance(first, Added):
        return Added(second.new, first.initial)

    return Updated(first.old, second.new)


class CoalescingInbox(Inbox):
    """One notification for each object, or a deletion and what came behind it.

    What is put waits as it came at first, for that costs nothing, and is merged in
    slices: by `take()`, or by whom `on_crowded` tells that much has come meanwhile.

    Args:
        on_crowded: Called when there is something to `merge()`; must not wait.
    """

    def __init__(self, on_crowded: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._on_crowded = on_crowded
        self._told_crowded = False
        self._filled = asyncio.Event()
        self._cleared = False
        # As they came: batches with the time of each, and what is left of the first.
        self._raw: deque[tuple[float, Batch]] = deque()
        self._rest: Iterator[Notification | None] = iter(())
        self._since = 0.0
        # The number of the next one that is merged, and where that batch ends.
        # Invariant: delivered <= next <= queued.
        self._next = 0
        self._end = 0
        # Merged: the time and the notification by the number of the first of it; and
        # the number by which the next one of an object may be merged.
        # Invariant: every number in `_latest` is in `_merged`.
        self._merged: OrderedDict[int, tuple[float, Notification]] = OrderedDict()
        self._latest: dict[str, int] = {}
        # The number and the time of the one that was handed out last.
        self._in_work: tuple[int, float] | None = None

    @property
    def finished(self) -> int:
        """All notifications of a lower number are done with."""
        if self._in_work is not None:
            return self._in_work[0]

        return next(iter(self._merged), self._next)

    @property
    def oldest(self) -> float:
        """The loop's time at which the oldest of those that wait was put."""
        if self._in_work is not None:
            return self._in_work[1]

        if self._merged:
            return next(iter(self._merged.values()))[0]

        return self._since if self._next < self._end else self._raw[0][0]

    def put(self, batch: Batch, now: float) -> None:
        """Add a batch that is not empty."""
        self._raw.append((now, batch))
        self.queued += len(batch)
        self._filled.set()
        if self.queued - self._next >= CROWDED and not self._told_crowded:
            self._told_crowded = True
            self._on_crowded()

    def take_now(self) -> Iterable[Notification | None] | None:
        """Return what `take()` would return without work; else None."""
        return self._burst() if self._merged and self._next == self.queued else None

    async def take(self) -> Iterable[Notification | None]:
        """Wait for notifications; they leave the inbox as they are iterated over.

        All that waits now is merged first; what is put later ends the iteration.

        Cancellation:
            Safe: nothing is lost.
        """
        while not self._merged and self._next == self.queued and not self._cleared:
            self._filled.clear()
            await self._filled.wait()

        await self.merge()
        return self._burst()

    async def merge(self) -> None:
        """Merge what waits, in slices of the loop's budget.

        May be called by several at once.

        Cancellation:
            Safe: the rest waits as it came.
        """
        self._told_crowded = False
        end = self.queued
        budget = LoopBudget.current()
        while self._next < end and not self._cleared:
            await budget.start()
            if not self._cleared:
                self._merge_some(end, budget.over)

            budget.end()

    def clear(self) -> None:
        """Drop everything, and wake who waits for more."""
        self._cleared = True
        self._raw.clear()
        self._rest = iter(())
        self._merged.clear()
        self._latest.clear()
        self._filled.set()

    def _burst(self) -> Iterator[Notification]:
        synced = self.synced
        for count in range(BURST):
            # One in any case, or what comes quickly would keep it from being told.
            news = self._next < self.queued or self.synced is not synced
            if not self._merged or (count and news):
                break

            number, (since, event) = self._merged.popitem(last=False)
            key = object_of(event).key
            if self._latest.get(key) == number:
                del self._latest[key]

            self._in_work = number, since
            try:
                yield event
            finally:
                self._in_work = None

    def _merge_some(self, end: int, is_over: Callable[[], bool]) -> None:
        """Merge until the slice is over, or up to the number `end`."""
        while self._next < end:
            if self._next == self._end:
                self._since, batch = self._raw.popleft()
                self._end += len(batch)
                self._rest = iter(batch)

            for event in self._rest:
                self._merge_in(event)
                if is_over():
                    return

    def _merge_in(self, event: Notification | None) -> None:
        """Atomic: counted, and merged or added."""
        number = self._next
        self._next += 1
        if event is None:
            self.delivered += 1
            return

        key = object_of(event).key
        place = self._latest.get(key)
        if place is None:
            self._latest[key] = number
            self._merged[number] = self._since, event
            return

        since, waiting = self._merged[place]
        both = merged(waiting, event)
        if both is None:
            self._latest[key] = number
            self._merged[number] = self._since, event
        elif both is NOTHING:
            del self._merged[place], self._latest[key]
            self.delivered += 2
        else:
            self._merged[place] = since, both
            self.delivered += 1
