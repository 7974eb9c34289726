"""Inboxes: queues of notifications for one handler, with progress counters.

Batches are shared by all handlers and must not be changed. A batch takes one entry in
each handler's queue, so a slow handler does not delay others. A snapshot (the first
list, or the stored objects for a late handler) creates its notifications on delivery.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from aioinformer.budget import LoopBudget
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = [
    "Batch",
    "CoalescingInbox",
    "Inbox",
    "Nothing",
    "Relisted",
    "Snapshot",
    "merged",
]


class Batch(Protocol):
    """Notifications that several handlers share; must not be changed.

    An item that is None counts as a notification, but is not delivered.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Notification | None]: ...


class Snapshot:
    """Batch of `Added` notifications that are created on delivery."""

    __slots__ = ("_objects", "initial")

    def __init__(self, objects: Sequence[KubeObject], *, initial: bool = True) -> None:
        self._objects = objects
        self.initial: bool = initial
        """True for objects that existed when the informer, or the handler, started."""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification]:
        for obj in self._objects:
            yield Added(obj, self.initial)


class Relisted:
    """Batch of the changes that a list has made, compared with the store."""

    __slots__ = ("_changes",)

    def __init__(self, changes: Iterable[Notification]) -> None:
        # A tuple, as the garbage collector reads it only once.
        self._changes = tuple(changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Notification]:
        return iter(self._changes)


class Inbox:
    """Unbounded queue of batches.

    Notifications are numbered from 0, in the order in which they were put.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[float, float | None, Batch] | None] = (
            asyncio.Queue()
        )
        self._oldest = 0.0
        self.arrived: float | None = None
        """Time on the loop's clock at which the first notification of the batch taken
        last arrived; None if its latency is not measured."""
        # Invariant: 0 <= delivered <= queued.
        self.queued: int = 0
        """Number of notifications put so far."""
        self.delivered = 0
        """Number of notifications processed so far; updated by the reader."""
        self.initial: int | None = None
        """Number of initial notifications; None until they are all queued."""

    @property
    def depth(self) -> int:
        """Number of notifications that are not processed."""
        return self.queued - self.delivered

    @property
    def finished(self) -> int:
        """Number below which all notifications are processed."""
        return self.delivered

    @property
    def synced(self) -> bool:
        """True once the handler has processed the initial notifications."""
        return self.initial is not None and self.finished >= self.initial

    @property
    def oldest(self) -> float:
        """Time on the loop's clock at which the oldest unprocessed notification was put."""
        return self._oldest

    def put(self, batch: Batch, now: float, arrived: float | None = None) -> None:
        """Add a batch that is not empty.

        Args:
            batch: Notifications.
            now: Time on the loop's clock.
            arrived: Time at which the first of them arrived, on the same clock; None if
                their latency is not measured.
        """
        if self.queued == self.delivered:
            self._oldest = now

        self._queue.put_nowait((now, arrived, batch))
        self.queued += len(batch)

    def take_now(self) -> Iterable[Notification | None] | None:
        """Return the result of `take()` if it needs no work, else None."""
        if self._queue.empty():
            return None

        entry = self._queue.get_nowait()
        if entry is None:
            return ()

        self._oldest, self.arrived, batch = entry
        return batch

    async def take(self) -> Iterable[Notification | None]:
        """Wait for notifications. Iterating over the result takes them out.

        The result is empty after `clear()`; a further call would wait forever.

        Cancellation:
            Safe: nothing is lost.
        """
        entry = await self._queue.get()
        if entry is None:
            return ()

        self._oldest, self.arrived, batch = entry
        return batch

    def clear(self) -> None:
        """Drop all notifications, and wake the reader."""
        while not self._queue.empty():
            self._queue.get_nowait()  # a kept registration must not keep objects alive

        self._queue.put_nowait(None)


CROWDED = 512
"""Number of unmerged notifications from which they are merged while the handler is
busy. Merging twice as many takes a millisecond."""


BURST = 256
"""Maximum number of notifications in one result of `take()`. Tasks that wait for
progress are woken after each result."""


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
        Notification that replaces both, `NOTHING` if they cancel out, or None if both
        are needed: after a deletion, before an addition, and for different uids.
    """
    if isinstance(first, Deleted):
        return None

    state = first.new if isinstance(first, Updated) else first.obj
    if isinstance(second, Added):
        return None  # a second addition is delivered unchanged

    if isinstance(second, Deleted):
        if second.obj.uid != state.uid:
            return None

        return NOTHING if isinstance(first, Added) else second

    if second.new.uid != state.uid:
        return None

    if second.resync:
        return first  # the resync repeats a queued state

    if isinstance(first, Added):
        return Added(second.new, first.initial)

    return Updated(first.old, second.new)


class CoalescingInbox(Inbox):
    """Queue with one notification per object, or a deletion and the addition after it.

    `put()` does not merge. Batches are merged later, in slices of the loop's budget: by
    `take()`, or by `merge()` if many are queued while the handler is busy.

    Args:
        on_crowded: Function called when `merge()` should be called; must not wait.
    """

    queued: int  # pyright infers no type from `+=` on an inherited attribute

    def __init__(self, on_crowded: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._on_crowded = on_crowded
        self._crowded = False
        self._filled = asyncio.Event()
        self._cleared = False
        # Unmerged batches with their times. Then the rest of the batch that is being
        # merged, and the times of that batch.
        self._raw: deque[tuple[float, float | None, Batch]] = deque()
        self._rest: Iterator[Notification | None] = iter(())
        self._since = 0.0
        self._arrived: float | None = None
        # Number of the next notification to merge, and the end of its batch.
        # Invariant: delivered <= next <= queued.
        self._next = 0
        self._end = 0
        # Merged notifications with their times, by the number of the first notification
        # merged into each. `_latest` has the number to merge an object's next
        # notification into.
        # Invariant: every number in `_latest` is in `_merged`.
        self._merged: OrderedDict[int, tuple[float, float | None, Notification]] = (
            OrderedDict()
        )
        self._latest: dict[str, int] = {}
        # Number and time of the notification that is being processed.
        self._current: tuple[int, float] | None = None

    @property
    def finished(self) -> int:
        """Number below which all notifications are processed."""
        if self._current is not None:
            return self._current[0]

        return next(iter(self._merged), self._next)

    @property
    def oldest(self) -> float:
        """Time on the loop's clock at which the oldest unprocessed notification was put."""
        if self._current is not None:
            return self._current[1]

        if self._merged:
            return next(iter(self._merged.values()))[0]

        return self._since if self._next < self._end else self._raw[0][0]

    def put(self, batch: Batch, now: float, arrived: float | None = None) -> None:
        """Add a batch that is not empty; see `Inbox.put`."""
        self._raw.append((now, arrived, batch))
        self.queued += len(batch)
        self._filled.set()
        if self.queued - self._next >= CROWDED and not self._crowded:
            self._crowded = True
            self._on_crowded()

    def take_now(self) -> Iterable[Notification | None] | None:
        """Return the result of `take()` if it needs no work, else None."""
        return self._burst() if self._merged and self._next == self.queued else None

    async def take(self) -> Iterable[Notification | None]:
        """Wait for notifications. Iterating over the result takes them out.

        Everything queued so far is merged first. When more is queued, the iteration
        ends, so that new notifications are merged before the next ones are delivered.

        Cancellation:
            Safe: nothing is lost.
        """
        while not self._merged and self._next == self.queued and not self._cleared:
            self._filled.clear()
            await self._filled.wait()

        await self.merge()
        return self._burst()

    async def merge(self) -> None:
        """Merge queued notifications, in slices of the loop's budget.

        May be called concurrently.

        Cancellation:
            Safe: the rest stays unmerged.
        """
        self._crowded = False
        end = self.queued
        budget = LoopBudget.current()
        while self._next < end and not self._cleared:
            await budget.start()
            if not self._cleared:
                self._merge_some(end, budget.over)

            budget.end()

    def clear(self) -> None:
        """Drop all notifications, and wake the reader."""
        self._cleared = True
        self._raw.clear()
        self._rest = iter(())
        self._merged.clear()
        self._latest.clear()
        self._filled.set()

    def _burst(self) -> Iterator[Notification]:
        synced = self.synced
        self.arrived = None
        for count in range(BURST):
            # Deliver at least one: constant changes must not prevent every delivery.
            stop = self._next < self.queued or self.synced is not synced
            if not self._merged or (count and stop):
                break

            number, (since, arrived, event) = self._merged.popitem(last=False)
            if self.arrived is None:
                self.arrived = arrived

            key = object_of(event).key
            if self._latest.get(key) == number:
                del self._latest[key]

            self._current = number, since
            try:
                yield event
            finally:
                self._current = None

    def _merge_some(self, end: int, is_over: Callable[[], bool]) -> None:
        """Merge notifications up to the number `end`, or until the slice is over."""
        while self._next < end:
            if self._next == self._end:
                self._since, self._arrived, batch = self._raw.popleft()
                self._end += len(batch)
                self._rest = iter(batch)

            for event in self._rest:
                self._merge_in(event)
                if is_over():
                    return

    def _merge_in(self, event: Notification | None) -> None:
        """Count a notification, and merge or add it. Atomic."""
        number = self._next
        self._next += 1
        if event is None:
            self.delivered += 1
            return

        key = object_of(event).key
        place = self._latest.get(key)
        if place is None:
            self._latest[key] = number
            self._merged[number] = self._since, self._arrived, event
            return

        since, arrived, earlier = self._merged[place]
        both = merged(earlier, event)
        if both is None:
            self._latest[key] = number
            self._merged[number] = self._since, self._arrived, event
        elif both is NOTHING:
            del self._merged[place], self._latest[key]
            self.delivered += 2
        else:
            if arrived is None:
                arrived = self._arrived

            self._merged[place] = since, arrived, both
            self.delivered += 1
