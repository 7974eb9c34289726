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

# A due item takes about 2 us. So a turn of the loop lasts about 2 ms when many are due
# together; the rest follow in the next turns.
READY_PER_TURN = 1000

# The heap is rebuilt when more than half of it, and more than this, is out of date.
STALE_ENTRIES_KEPT = 64


class DelayingQueue(WorkQueue[T]):
    """A `WorkQueue` to which items can be added after a delay.

    Guarantees: Those of `WorkQueue`. An item waits for its earliest deadline: a later
        one changes nothing. Items that are due together are added in the order of their
        deadlines, then of the calls.

    Not guaranteed: That adding an item without a delay ends its delay. It is added
        again when its time comes, as in client-go.

    Lifetime:
        As `WorkQueue`. It also owns one timer while items are delayed.
    """

    def __init__(self, name: str = "", *, metrics: MetricsSink = NULL_SINK) -> None:
        super().__init__(name, metrics=metrics)

        # Invariant: each (item, deadline) of _deadlines is in _heap. Other entries of
        # the heap are out of date and skipped. Deadlines are times of the loop.
        self._deadlines: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = count()

        # Invariant: while _heap is not empty, a timer is set to its first entry, or
        # earlier.
        self._timer: asyncio.TimerHandle | None = None

    def add_after(self, item: T, delay: float | timedelta) -> None:
        """Add an item when `delay` has passed; at once if that is not above 0.

        If it is delayed already, the earlier time counts. Does nothing once the queue
        is shut down. While it drains, the delay is cut and this is `add()`, unless the
        drain returns delayed items.

        Args:
            item: Item to add.
            delay: Seconds, or a `timedelta`.

        Raises:
            OptionsError: If the delay is not finite.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self._delay(item, delay, self.add)

    def _delay(
        self, item: T, delay: float | timedelta, add: Callable[[T], None]
    ) -> bool:
        """Delay an item, or `add` it now; return whether it is delayed."""
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
        """Set the timer to the first deadline, or earlier."""
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= first:
                return

            self._timer.cancel()

        self._timer = self._running_loop().call_at(first, self._add_ready, first)

    def _add_ready(self, deadline: float) -> None:
        """Add the items that are due, and set the timer for the rest."""
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
            # Also after an error: the other delayed items must not be lost.
            if self._first_deadline() < math.inf:
                self._set_timer()

    def _first_deadline(self) -> float:
        """Return the earliest deadline; infinity if there is none."""
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
    """A `DelayingQueue` for retries: items that fail often wait longer.

    Guarantees:
        Those of `DelayingQueue`.

    Not guaranteed: That `done()` forgets the failures of an item. Call `forget()` when
        it succeeded or is given up: otherwise its next failure waits as long as if
        there had been no success.

    Args:
        name: Name in metrics and in `repr()`.
        rate_limiter: Limiter that decides on the delays, for this queue only; by
            default `default_controller_rate_limiter()`.
        metrics: Sink of metrics, see `WorkQueue`.

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
                    f"rate_limiter={rate_limiter!r} has no method {method}()"
                )

    def add_rate_limited(self, item: T) -> None:
        """Add an item after the delay that the rate limiter returns.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self.add_after(item, self._limited(item))

    def forget(self, item: T) -> None:
        """Forget the failures of an item, so that its next delay is short.

        This does not end the work on it: call `done()`, too.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often an item was added with a rate limit since it was forgotten.

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
