"""`PriorityQueue`: higher priorities are taken first, and no item starves."""

from __future__ import annotations

from collections import Counter, deque
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from datetime import timedelta

    from aioinformer.workqueue.limiters import RateLimiter
    from aioinformer.workqueue.queue import QueuedItems

__all__ = ["LOW_PRIORITY", "PrioritizedItems", "PriorityQueue"]

T = TypeVar("T", bound="Hashable")

LOW_PRIORITY = -100
"""Priority of objects of the first list, and of resyncs, as in controller-runtime."""

# Seconds of waiting that are worth one step of priority. With LOW_PRIORITY, new changes
# come before objects of the first list for five minutes.
AGEING_SECONDS = 3.0

# Far more than needed, and small enough for exact sums with times of the loop.
LARGEST_PRIORITY = 1_000_000


# Rank, priority and item. Of equal ranks the lower priority comes first: it is older.
Place: TypeAlias = tuple[float, int, T]

DISTINCT_LABELS = 25
"""Number of priorities with their own depth in metrics, as in controller-runtime."""

OTHER_LABEL = "other"
"""Label of all other priorities."""

# Rows are rebuilt when more than half of all places, and more than this, are empty.
EMPTY_PLACES_KEPT = 64


class PriorityQueue(WorkQueue[T]):
    """Work queue whose items have priorities. Higher ones are taken first.

    Guarantees: Those of `WorkQueue`, except for the order. Items of one
        priority are handed out in the order in which they were added. An item of a
        higher priority comes before them, unless they have waited for long.

        No item starves: it comes before another one of a priority that is higher by `d`
        if it was added more than `d * ageing` seconds earlier. So the number of items
        before it is bounded, however many are added: those queued already, and those
        added in the next `d * ageing` seconds, where `d` is the distance to the highest
        priority in use.

        An item is in the queue once. Adding it again with a higher priority moves it
        after the other items of that priority, unless its current place is better. A
        lower priority changes nothing. If an item is added while in work, or while
        delayed, the highest priority requested meanwhile counts.

    Not guaranteed:
        Priorities among items that are in work: no item is taken from a worker.

    Adding and taking cost O(log p) with p different priorities, however many items
    there are. The metric `workqueue_depth` has the priority as a label. There are at
    most 25 different ones; the rest has the label `"other"`.

    Args:
        name: Name in metrics and in `repr()`.
        ageing: Seconds of waiting that are worth one step of priority. By default,
            items of priority 0 come before those of `LOW_PRIORITY` for 5 minutes. None
            or 0 for strict priorities, with which a steady stream of important items
            makes others starve, as in controller-runtime.
        rate_limiter: Limiter of retries, see `WorkQueue`.
        metrics: Sink of metrics, see `WorkQueue`.

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
            raise OptionsError(f"ageing must not be negative: {ageing!r}")

        self._prioritized = PrioritizedItems[T](seconds)
        super().__init__(name, rate_limiter=rate_limiter, metrics=metrics)

        # Invariant: has exactly the items that are delayed.
        self._delayed_priorities: dict[T, int] = {}

    # ------------------------------------------------------------ items

    def add(self, item: T, priority: int = 0) -> None:
        """Queue an item, unless it is queued.

        If it is queued, only a higher priority has an effect. Once the queue is
        shutting down this does nothing (`shut_down_with_drain()` has one exception).

        Args:
            item: Item to add.
            priority: Priority from -1,000,000 to 1,000,000. Higher ones are taken
                first.

        Raises:
            OptionsError: If the priority is out of range.
            WrongLoop: If called from another thread: use `add_threadsafe()`.
        """
        if not -LARGEST_PRIORITY <= priority <= LARGEST_PRIORITY:
            _check(priority)

        if not self._loop_thread._is_owned():  # noqa: SLF001
            self._check_loop()

        if item in self._states and self._is_to_be_queued(item):
            self._raise(item, priority)
            return

        requested = self._prioritized.requested
        if priority:
            requested[item] = priority

        try:
            super().add(item)
        finally:
            if priority and item in requested and not self._is_to_be_queued(item):
                del requested[item]

    def _raise(self, item: T, priority: int) -> None:
        if priority > self._prioritized.priority_of(item) and not self.shutting_down:
            self._prioritized.raise_to(item, priority)
            if self._metrics is not None:
                self._metrics.changed()

    def add_threadsafe(self, item: T, priority: int = 0) -> None:
        """Queue an item, from any thread.

        As `WorkQueue.add_threadsafe()`, with a priority.

        Raises:
            OptionsError: If the priority is out of range.
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        _check(priority)
        self._add_from_thread(item, priority)

    def add_after(self, item: T, delay: float | timedelta, priority: int = 0) -> None:
        """Add an item when `delay` has passed; at once if that is not above 0.

        If it is delayed already, the earlier time and the higher priority count.
        Otherwise as `WorkQueue.add_after()`.

        Args:
            item: Item to add.
            delay: Seconds, or a `timedelta`.
            priority: Priority. It has no effect on the delay.

        Raises:
            OptionsError: If the delay is not finite, or the priority out of range.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        _check(priority)
        if self._delay(item, delay):
            self.add(item, priority)
        elif not self.shutting_down:
            known = self._delayed_priorities.get(item, priority)
            self._delayed_priorities[item] = max(known, priority)

    def add_rate_limited(self, item: T, priority: int = 0) -> None:
        """Add an item after the delay that the rate limiter returns.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            OptionsError: If the priority is out of range.
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        _check(priority)
        self.add_after(item, self._limited(item), priority)

    async def get_with_priority(self) -> tuple[T, int]:
        """Wait for the next item, take it and return it with its priority.

        A controller can add the item again with the same priority. Otherwise as
        `get()`.

        Raises:
            QueueShutDown: If the queue is shutting down and empty.
            WrongLoop: If called from another loop.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        item = await self.get()
        # No other item was taken since: `get()` returned in this turn of the loop.
        return item, self._prioritized.last_priority

    def cancel_delay(self, item: T) -> bool:
        """Drop the delay of an item, and the priority that it was delayed with.

        Otherwise as `WorkQueue.cancel_delay()`.
        """
        if not super().cancel_delay(item):
            return False

        del self._delayed_priorities[item]
        return True

    # ------------------------------------------------------------ waiting items

    def next_queued(self, limit: int) -> list[tuple[T, float | None]]:
        """Return the items that are taken next, with the seconds that they wait.

        Items that are added meanwhile may come before them. The seconds count from the
        time when an item was queued, or moved for a higher priority. They are None in a
        queue without ageing, which keeps no times. The call takes time for these items,
        not for all that are queued.

        Args:
            limit: Maximum number of items.
        """
        return list(islice(self._prioritized.upcoming(), limit))

    def longest_wait(self) -> float | None:
        """Return the longest wait of a queued item, in seconds as of `next_queued()`.

        None if no item is queued, or the queue has no ageing.
        """
        return self._prioritized.longest_wait()

    # ------------------------------------------------------------ as a WorkQueue

    def _make_queued(self) -> tuple[QueuedItems[T], Callable[[], Mapping[str, int]]]:
        return self._prioritized, self._prioritized.depths

    def _start_clock(self, clock: Callable[[], float]) -> None:
        super()._start_clock(clock)
        self._prioritized.start_clock(clock)

    def _add_due(self, item: T) -> None:
        self.add(item, self._delayed_priorities.pop(item))

    def _leave_delayed(self) -> None:
        super()._leave_delayed()
        self._delayed_priorities.clear()


def _check(priority: int) -> None:
    if not -LARGEST_PRIORITY <= priority <= LARGEST_PRIORITY:
        raise OptionsError(
            f"priority must be from -{LARGEST_PRIORITY:,} to {LARGEST_PRIORITY:,}, "
            f"not {priority!r}"
        )


class PrioritizedItems(Generic[T]):
    """Queued items by priority and age. The lowest rank is taken first.

    A rank is set when an item is added: the time then, less `ageing` seconds for each
    step of priority. Later items get higher ranks, so an item gains on them without
    being moved. Without ageing the rank is the priority alone.

    Within one priority ranks never fall. So there is a row for each priority, and only
    the first places of the rows are compared. Adding and taking cost at most O(log p)
    with p different priorities, however many items there are.

    Args:
        ageing: Seconds for each step of priority, or 0 for none.
    """

    def __init__(self, ageing: float) -> None:
        # A rank is `_clock() - priority * _weight`.
        self._ages = ageing > 0
        self._weight = ageing if self._ages else 1.0
        self._clock: Callable[[], float] = _no_time

        # Invariant: the place of each queued item is in the row of its priority. Other
        # places are empty and skipped. No row is without places. The dict is in the
        # order in which the places were taken.
        self._places: dict[T, Place[T]] = {}
        self._rows: dict[int, deque[Place[T]]] = {}
        # Invariant: a heap of the first place of each row. No two have the same
        # priority, so items are never compared.
        self._firsts: list[Place[T]] = []
        self._empty = 0

        # Priorities of items that differ from their places: of an item that is not
        # queued yet (0 if missing here), or that was raised and kept its place.
        self.requested: dict[T, int] = {}

        # Number of items of a priority minus the places in its row, if not 0.
        self._excess: Counter[int] = Counter()
        # A depth that was shown once must be shown as 0; the usual one from the start.
        self._labels = {0: "0"}
        self._shown: Iterable[str] = self._labels.values()
        self.last_priority: int = 0
        """Priority of the item that was taken out last."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return iter(self._places)

    def start_clock(self, clock: Callable[[], float]) -> None:
        """Use this clock from now on. Queued items count as new."""
        if self._ages:
            self._clock = clock
            self._rebuild(later=clock())

    # ------------------------------------------------------------ priorities

    def priority_of(self, item: T) -> int:
        """Return the priority of an item that is queued or requested."""
        priority = self.requested.get(item)
        if priority is not None:
            return priority

        place = self._places.get(item)
        return 0 if place is None else place[1]

    def raise_to(self, item: T, priority: int) -> None:
        """Give a higher priority to an item that is queued or requested.

        It is moved after the others of that priority, unless its place is a better one.
        """
        place = self._places.get(item)
        if place is None:
            self.requested[item] = priority
            return

        self._excess[self.priority_of(item)] -= 1
        rank = self._clock() - priority * self._weight
        self.requested[item] = priority
        if place[0] <= rank:
            self._excess[priority] += 1
            return

        del self._places[item]  # the new place is the last one
        self.append(item)
        self._empty += 1
        if self._empty > max(EMPTY_PLACES_KEPT, len(self._places)):
            self._rebuild()

    def depths(self) -> Mapping[str, int]:
        """Return the number of queued items by the label of their priority."""
        depths = dict.fromkeys(self._shown, 0)
        rows, excess = self._rows, self._excess
        for priority in {*list(rows), *list(excess)}:
            number = len(rows.get(priority, ())) + excess[priority]
            if number > 0:
                label = self._label(priority)
                depths[label] = depths.get(label, 0) + number

        self._shown = depths.keys()
        return depths

    # ------------------------------------------------------------ waiting items

    def upcoming(self) -> Iterator[tuple[T, float | None]]:
        """Yield the items as `popleft()` returns them, with the seconds that they wait.

        The items must not change meanwhile.
        """
        firsts, places = self._firsts.copy(), self._places
        rests: dict[int, Iterator[Place[T]]] = {}
        while firsts:
            place = firsts[0]
            _, priority, item = place
            if priority not in rests:
                rest = islice(self._rows[priority], 1, None)
                rests[priority] = (it for it in rest if places.get(it[2]) is it)

            following = next(rests[priority], None)
            if following is None:
                heappop(firsts)
            else:
                heapreplace(firsts, following)

            if places.get(item) is place:
                yield item, self._wait_of(place)

    def longest_wait(self) -> float | None:
        """Return the seconds that the oldest item waits; None if that is unknown."""
        oldest = next(iter(self._places.values()), None)
        return None if oldest is None else self._wait_of(oldest)

    def _wait_of(self, place: Place[T]) -> float | None:
        if not self._ages:
            return None  # the rank has no time

        rank, priority, _ = place
        return max(0.0, self._clock() - priority * self._weight - rank)

    # ------------------------------------------------------------ as a deque does it

    def append(self, item: T) -> None:
        """Add an item that is not queued, with its requested priority."""
        priority = self.requested.pop(item, 0) if self.requested else 0
        rank = self._clock() - priority * self._weight
        place = self._places[item] = (rank, priority, item)
        row = self._rows.get(priority)
        if row is None:
            self._rows[priority] = deque((place,))
            heappush(self._firsts, place)
        else:
            row.append(place)

    def popleft(self) -> T:
        """Remove and return the next item. Raise `IndexError` if there is none."""
        firsts, rows, places = self._firsts, self._rows, self._places
        while True:
            place = firsts[0]
            _, priority, item = place
            row = rows[priority]
            row.popleft()
            if row:
                heapreplace(firsts, row[0])
            else:
                heappop(firsts)
                del rows[priority]

            if places.get(item) is place:
                del places[item]
                if item in self.requested:
                    self._excess[priority] += 1
                    priority = self.requested.pop(item)
                    self._excess[priority] -= 1

                self.last_priority = priority
                return item

            self._empty -= 1
            self._excess[priority] += 1

    def clear(self) -> None:
        """Remove all items and requested priorities."""
        self._places.clear()
        self.requested.clear()
        self._rebuild()

    # ------------------------------------------------------------ helpers

    def _rebuild(self, later: float = 0.0) -> None:
        """Drop empty places, and raise all ranks by a number."""
        rows: dict[int, deque[Place[T]]] = {}
        excess = Counter[int]()
        for row in self._rows.values():
            for place in row:
                rank, priority, item = place
                if self._places.get(item) is place:
                    moved = self._places[item] = (rank + later, priority, item)
                    rows.setdefault(priority, deque()).append(moved)

        for item in self.requested.keys() & self._places.keys():
            excess[self._places[item][1]] -= 1
            excess[self.requested[item]] += 1

        self._rows, self._excess, self._empty = rows, excess, 0
        self._firsts = [row[0] for row in rows.values()]
        heapify(self._firsts)

    def _label(self, priority: int) -> str:
        label = self._labels.get(priority)
        if label is None and len(self._labels) < DISTINCT_LABELS:
            label = self._labels[priority] = str(priority)

        return OTHER_LABEL if label is None else label


def _no_time() -> float:
    """Clock of items whose queue has no loop yet."""
    return 0.0
