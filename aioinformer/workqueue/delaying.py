"""`DelayingQueue` and `RateLimitingQueue`: work queues for delayed items and retries.

However many items are delayed, there is one timer: that of the earliest.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.limiters import default_controller_rate_limiter
from aioinformer.workqueue.queue import WorkQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable
    from datetime import timedelta

    from aioinformer.workqueue.limiters import RateLimiter

__all__ = ["DelayingQueue", "RateLimitingQueue"]

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

        if self._metrics is not None:
            self._metrics.retries += 1
            self._metrics.changed()

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


class RateLimitingQueue(DelayingQueue[T]):
    """A `DelayingQueue` for retries: what fails often waits longer.

    Guarantees:
        Those of `DelayingQueue`.

    Not guaranteed:
        That `done()` forgets an item: call `forget()` when it succeeded or is given
        up, or its next failure waits as long as if there had been no success.

    Args:
        name: Names the queue in metrics and in `repr()`.
        rate_limiter: What decides on the delays, for this queue only;
            `default_controller_rate_limiter()` unless given.
        metrics: As for `WorkQueue`.

    Example:
        >>> async def work_on_one(queue: RateLimitingQueue[str]) -> None:
        ...     async with queue.item() as key:
        ...         try:
        ...             await reconcile(key)
        ...         except OSError:
        ...             queue.add_rate_limited(key)
        ...         else:
        ...             queue.forget(key)
    """

    def __init__(
        self,
        name: str = "",
        *,
        rate_limiter: RateLimiter[T] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        super().__init__(name, metrics=metrics)
        self._limiter: RateLimiter[T] = (
            default_controller_rate_limiter() if rate_limiter is None else rate_limiter
        )
        for method in ("when", "forget", "num_requeues"):
            if not callable(getattr(self._limiter, method, None)):
                raise OptionsError(
                    f"not a rate limiter: {rate_limiter!r} has no {method}()"
                )

    def add_rate_limited(self, item: T) -> None:
        """Add `item` after the delay that the rate limiter says.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self.add_after(item, self._limited(item))

    def forget(self, item: T) -> None:
        """Make the rate limiter forget the failures of `item`; its next delay is short.

        Says nothing about the work: `done()` is still needed.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """How often `item` was added with a rate limit since it was last forgotten.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        return self._limiter.num_requeues(item)

    def _limited(self, item: T) -> float:
        self._running_loop()  # before the limiter counts something
        return self._limiter.when(item)


def _at(entry: tuple[object, float]) -> float:
    return entry[1]
