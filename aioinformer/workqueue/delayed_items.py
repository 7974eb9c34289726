"""`DelayedItems`: the items of a work queue that are to be added later.

There is one timer at most, for the earliest item.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable

__all__ = ["DelayedItems"]

T = TypeVar("T", bound="Hashable")

# A due item takes about 2 us. So a turn of the loop lasts about 2 ms when many are due
# together; the rest follow in the next turns.
READY_PER_TURN = 1000

# The heap is rebuilt when more than half of it, and more than this, is out of date.
STALE_ENTRIES_KEPT = 64


class DelayedItems(Generic[T]):
    """Delayed items, each with its earliest deadline."""

    def __init__(self) -> None:
        # Invariant: each (item, deadline) of _deadlines is in _heap. Other entries of
        # the heap are out of date and skipped. Deadlines are times of the loop.
        self._deadlines: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = count()

        # Invariant: while _heap is not empty, a timer is set to its first entry, or
        # earlier.
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(
        self,
        item: T,
        deadline: float,
        loop: asyncio.AbstractEventLoop,
        add_due: Callable[[T], None],
    ) -> None:
        """Delay an item until a deadline, unless it has an earlier one.

        Args:
            item: Item to delay.
            deadline: Time of the loop.
            loop: Event loop of the queue.
            add_due: Callback for each item whose deadline has passed. It is kept only
                while items are delayed, so that an unused queue is freed at once.
        """
        known = self._deadlines.get(item)
        if known is not None and known <= deadline:
            return

        self._deadlines[item] = deadline
        heappush(self._heap, (deadline, next(self._sequence), item))
        self._drop_stale_entries()
        self._set_timer(loop, add_due)

    def discard(self, item: T) -> bool:
        """Forget an item. Return True if it was delayed."""
        if self._deadlines.pop(item, None) is None:
            return False

        self._drop_stale_entries()
        if not self._deadlines:
            self.take_all()  # cancels the timer

        return True

    def deadline(self, item: T) -> float | None:
        """Return the time of the loop at which an item is added, or None."""
        return self._deadlines.get(item)

    def soonest(self, limit: int) -> dict[T, float]:
        """Return the earliest items with their deadlines, at most `limit`.

        It takes time for these items, not for all.
        """
        found: dict[T, float] = {}
        # Entries whose parents in the heap were visited, with their indexes there. The
        # next entry in order is one of them, so the heap can be read without a change.
        reached = [(self._heap[0], 0)] if self._heap else []
        while reached and len(found) < limit:
            entry, index = heappop(reached)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(self._heap):
                    heappush(reached, (self._heap[child], child))

            if self._is_current(entry):
                found[entry[2]] = entry[0]

        return found

    def take_all(self) -> list[T]:
        """Remove and return all items, the earliest first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        items = sorted(self._deadlines, key=self._deadlines.__getitem__)
        self._deadlines.clear()
        self._heap.clear()
        return items

    def _drop_stale_entries(self) -> None:
        stale = len(self._heap) - len(self._deadlines)
        if stale > max(STALE_ENTRIES_KEPT, len(self._deadlines)):
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)

    def _is_current(self, entry: tuple[float, int, T]) -> bool:
        return self._deadlines.get(entry[2]) == entry[0]

    def _set_timer(
        self, loop: asyncio.AbstractEventLoop, add_due: Callable[[T], None]
    ) -> None:
        """Set the timer to the first deadline, or earlier."""
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= first:
                return

            self._timer.cancel()

        self._timer = loop.call_at(first, self._add_ready, first, loop, add_due)

    def _add_ready(
        self,
        deadline: float,
        loop: asyncio.AbstractEventLoop,
        add_due: Callable[[T], None],
    ) -> None:
        """Add the items that are due, and set the timer for the rest."""
        # The loop may call a little early, within the resolution of its clock.
        now = max(deadline, loop.time())
        self._timer = None

        try:
            for _ in range(READY_PER_TURN):
                if self._first_deadline() > now:
                    break

                item = heappop(self._heap)[2]
                del self._deadlines[item]
                add_due(item)
        finally:
            # Also after an error: the other delayed items must not be lost.
            if self._first_deadline() < math.inf:
                self._set_timer(loop, add_due)

    def _first_deadline(self) -> float:
        """Return the earliest deadline, or infinity if there is none."""
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)

        return self._heap[0][0] if self._heap else math.inf
