"""`PriorityQueue`: what matters more comes first, and nothing waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.lines import Ranked
from aioinformer.workqueue.ownership import clock_of
from aioinformer.workqueue.rate_limiting import RateLimitingQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable, Mapping
    from datetime import timedelta

    from aioinformer.workqueue.limiters import RateLimiter
    from aioinformer.workqueue.lines import Line

__all__ = ["LOW_PRIORITY", "PriorityQueue"]

T = TypeVar("T", bound="Hashable")

LOW_PRIORITY = -100
"""For what nobody waits for: objects of the first list, and resyncs. The same number as
in controller-runtime."""

# With LOW_PRIORITY, so that what happens now goes before what was found at the start,
# for five minutes; then it is the turn of the latter.
AGEING_SECONDS = 3.0

# Far more than anybody needs, and little enough to calculate with times exactly.
LARGEST_PRIORITY = 1_000_000


class PriorityQueue(RateLimitingQueue[T]):
    """A `RateLimitingQueue` whose items have priorities; the higher one comes first.

    Guarantees:
        Those of `RateLimitingQueue`, except for the order: items of one priority are
        handed out in the order in which they were added, and one of a higher priority
        before them, unless they have waited for long.

        Nothing starves: an item goes before another one of a priority that is higher by
        `d` if it was added more than `d * ageing` seconds earlier. So what an item waits
        for is bounded, however much is added: it is what is queued already, and what is
        added in the next `d * ageing` seconds, where `d` is the distance from its
        priority to the highest in use.

        A key is in the queue once. Adding it again with a higher priority moves it
        behind the others of that priority (or leaves it where it is, if it has waited so
        long that its place is better); with a lower one it changes nothing. Added again
        while in work, or while its delay runs, the highest priority asked for meanwhile
        counts.

    Not guaranteed:
        Priorities among items that are in work: nothing is taken from a worker.

    Adding and taking cost O(log p) with p different priorities, however many items there
    are. The metric `workqueue_depth` has the priority as a
    label, of which there are 25 different ones at most; the rest comes under `"other"`.

    Args:
        name: Names the queue in metrics and in `repr()`.
        ageing: How many seconds of waiting are worth one step of priority. The default
            lets what is added with priority 0 go before what was added with
            `LOW_PRIORITY` for 5 minutes. None or 0 for strict priorities, where a steady
            stream of important items keeps others waiting for ever, as in
            controller-runtime.
        rate_limiter: As for `RateLimitingQueue`.
        metrics: As for `WorkQueue`.

    Raises:
        OptionsError: If `ageing` is negative or not finite.
    """

    def __init__(
        self,
        name: str = "",
        *,
        ageing: float | timedelta | None = AGEING_SECONDS,
        rate_limiter: RateLimiter[T] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        seconds = 0.0 if ageing is None else seconds_of(ageing)
        if seconds < 0:
            raise OptionsError(f"ageing cannot be negative: {ageing!r}")

        self._ranked = Ranked[T](seconds)
        super().__init__(name, rate_limiter=rate_limiter, metrics=metrics)

        # Invariant: has exactly the items that are delayed.
        self._delayed_priorities: dict[T, int] = {}

    # ------------------------------------------------------------ items

    def add(self, item: T, priority: int = 0) -> None:
        """Ask for `item` to be worked on.

        If it is queued already, only a higher priority changes something. Does nothing
        once the queue is shutting down (`shut_down_with_drain()` names the one
        exception).

        Args:
            item: What to add.
            priority: Higher comes first; from -1,000,000 to 1,000,000.

        Raises:
            OptionsError: If that is no priority.
            WrongLoop: If called from another thread: use `add_threadsafe()`.
        """
        _check(priority)
        if not self._held._is_owned():  # noqa: SLF001 - see OwnedByLoop
            self._check_loop()

        if item in self._states and self._wants(item):
            self._raise(item, priority)
            return

        wanted = self._ranked.wanted
        if priority:
            wanted[item] = priority

        try:
            super().add(item)
        finally:
            if priority and item in wanted and not self._wants(item):
                del wanted[item]

    def _raise(self, item: T, priority: int) -> None:
        if priority > self._ranked.priority_of(item) and not self.shutting_down:
            self._ranked.raise_to(item, priority)
            if self._meter is not None:
                self._meter.changed()

    def add_threadsafe(self, item: T, priority: int = 0) -> None:
        """Ask for `item` to be worked on, from any thread.

        As `WorkQueue.add_threadsafe()`, with a priority.

        Raises:
            OptionsError: If that is no priority.
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        _check(priority)
        self._hand_in(item, priority)

    def add_after(self, item: T, delay: float | timedelta, priority: int = 0) -> None:
        """Add `item` when `delay` has passed; at once if that is not above 0.

        If it is delayed already, the earlier time and the higher priority count.
        Otherwise as `DelayingQueue.add_after()`.

        Args:
            item: What to add.
            delay: Seconds, or a `timedelta`.
            priority: Higher comes first. It has no effect on the delay.

        Raises:
            OptionsError: If the delay is not finite, or that is no priority.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        _check(priority)
        if self._delay(item, delay, lambda it: self.add(it, priority)):
            known = self._delayed_priorities.get(item, priority)
            self._delayed_priorities[item] = max(known, priority)

    def add_rate_limited(self, item: T, priority: int = 0) -> None:
        """Add `item` after the delay that the rate limiter says.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            OptionsError: If that is no priority.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        _check(priority)
        self.add_after(item, self._limited(item), priority)

    async def get_with_priority(self) -> tuple[T, int]:
        """Wait for the next item and take it; also say which priority it had.

        With it, a controller can add the item again as important as it was. Otherwise
        as `get()`.

        Raises:
            QueueShutDown: If the queue is shutting down and nothing is queued.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        item = await self.get()
        # It was taken in this very step: nobody else has taken one since.
        return item, self._ranked.last_priority

    # ------------------------------------------------------------ what it is made of

    def _new_line(self) -> tuple[Line[T], Callable[[], Mapping[str, int]]]:
        return self._ranked, self._ranked.depths

    def _bound(self, loop: asyncio.AbstractEventLoop) -> None:
        super()._bound(loop)
        self._ranked.start_clock(clock_of(loop))

    def _add_due(self, item: T) -> None:
        self.add(item, self._delayed_priorities.pop(item))

    def _leave_delayed(self) -> None:
        super()._leave_delayed()
        self._delayed_priorities.clear()


def _check(priority: int) -> None:
    if not -LARGEST_PRIORITY <= priority <= LARGEST_PRIORITY:
        raise OptionsError(f"a priority cannot be {priority!r}")
