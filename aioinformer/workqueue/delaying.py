"""`DelayingQueue`: a work queue to which items can be added later.

However many items wait for their time, there is one timer: that of the earliest.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.queue import WorkQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable
    from datetime import timedelta

__all__ = ["DelayingQueue"]

T = TypeVar("T", bound="Hashable")

# An item whose time has come costs about 2 us: a turn of the loop is held for about
# 2 ms when many come at once, and the rest follow in the next turns.
READY_PER_TURN = 1000

# The heap is rebuilt when more than half of it, and more than this, is out of date.
STALE_ENTRIES_KEPT = 64


class DelayingQueue(WorkQueue[T]):
    """A `WorkQueue` to which items can be added after a delay.

    Guarantees:
        Those of `WorkQueue`. An item waits for its earliest deadline only: asking for
        a later one changes nothing. Items whose time comes at once are added in the
        order of their deadlines, then in the order of asking.

    Not guaranteed:
        That an item waits no more once it is added without a delay: it is added again
        when its time comes, as in client-go.

    Lifetime:
        As `WorkQueue`; besides it owns one timer while items are delayed.
    """

    def __init__(self, name: str = "", *, metrics: MetricsSink = NULL_SINK) -> None:
        super().__init__(name, metrics=metrics)

        # Invariant: each (item, deadline) of _deadlines is in _heap; what else the
        # heap holds is out of date and skipped. Deadlines are times of the loop.
        self._deadlines: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = count()

        # Invariant: a timer is set, for the first entry of _heap or earlier, exactly
        # as long as _heap is not empty.
        self._timer: asyncio.TimerHandle | None = None

    def add_after(self, item: T, delay: float | timedelta) -> None:
        """Add `item` when `delay` has passed; at once if that is not above 0.

        If it is delayed already, the earlier time counts. Does nothing once the queue
        is shut down; while it drains, the delay is cut and this is `add()`, unless the
        drain returns what is delayed.

        Args:
            item: What to add.
            delay: Seconds, or a `timedelta`.

        Raises:
            OptionsError: If the delay is not finite.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self._delay(item, delay, self.add)

    def _delay(
        self, item: T, delay: float | timedelta, add: Callable[[T], None]
    ) -> bool:
        """Delay an item, or `add` it now; true if it is delayed."""
        seconds = seconds_of(delay)
        loop = self._running_loop()

        if self.shutting_down:
            if seconds <= 0 or self._cuts_delays:
                add(item)
            else:
                self._refuse(item)

            return False

        if self._meter is not None:
            self._meter.retries += 1
            self._meter.changed()

        if seconds <= 0:
            add(item)
            return False

        self._delay_until(item, loop.time() + seconds)
        return True

    def _delay_until(self, item: T, deadline: float) -> None:
        known = self._deadlines.get(item)
        if known is not None and known <= deadline:
            return

        self._deadlines[item] = deadline
        heappush(self._heap, (deadline, next(self._sequence), item))

        stale = len(self._heap) - len(self._deadlines)
        if stale > max(STALE_ENTRIES_KEPT, len(self._deadlines)):
            self._rebuild_heap()

        self._set_timer()

    def _rebuild_heap(self) -> None:
        self._heap = [entry for entry in self._heap if self._is_current(entry)]
        heapify(self._heap)

    def _is_current(self, entry: tuple[float, int, T]) -> bool:
        return self._deadlines.get(entry[2]) == entry[0]

    def _set_timer(self) -> None:
        """Have the timer fire no later than at the first deadline."""
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= first:
                return

            self._timer.cancel()

        self._timer = self._running_loop().call_at(first, self._add_ready, first)

    def _add_ready(self, deadline: float) -> None:
        """Add what is due, and set the timer for the rest."""
        # The loop may call a little early, within the resolution of its clock.
        now = max(deadline, self._running_loop().time())
        self._timer = None

        try:
            for _ in range(READY_PER_TURN):
                if self._first_deadline() > now:
                    break

                item = heappop(self._heap)[2]
                del self._deadlines[item]
                self._add_due(item)
        finally:
            # Whatever happened: what is delayed must not be forgotten.
            if self._first_deadline() < math.inf:
                self._set_timer()

    def _first_deadline(self) -> float:
        """The earliest deadline; infinity if there is none."""
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)

        return self._heap[0][0] if self._heap else math.inf

    def _take_delayed(self) -> list[T]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        waiting = [item for item, _deadline in sorted(self._deadlines.items(), key=_at)]
        self._deadlines.clear()
        self._heap.clear()
        return waiting

    def _describe(self) -> list[str]:
        return [*super()._describe(), f"delayed={len(self._deadlines)}"]


def _at(entry: tuple[object, float]) -> float:
    return entry[1]
