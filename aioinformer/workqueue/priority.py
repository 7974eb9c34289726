"""`PriorityQueue`: what matters more comes first, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter, deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.delaying import RateLimitingQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from datetime import timedelta

    from aioinformer.workqueue.limiters import RateLimiter
    from aioinformer.workqueue.queue import QueuedItems

__all__ = ["LOW_PRIORITY", "PrioritizedItems", "PriorityQueue"]

T = TypeVar("T", bound="Hashable")

LOW_PRIORITY = -100
"""For what nobody waits for: objects of the first list, and resyncs. The same number as
in controller-runtime."""

# With LOW_PRIORITY, so that what happens now goes before what was found at the start,
# for five minutes; then it is the turn of the latter.
AGEING_SECONDS = 3.0

# Far more than anybody needs, and little enough to calculate with times exactly.
LARGEST_PRIORITY = 1_000_000


# Rank, priority and item. Of one rank the lower priority comes first: it is older.
Place: TypeAlias = tuple[float, int, T]

DISTINCT_LABELS = 25
"""Number of priorities with a depth of their own in metrics, as in controller-runtime."""

OTHER_LABEL = "other"
"""Label of all other priorities."""

# Rows are rebuilt when more than half of all places, and more than this, are empty.
EMPTY_PLACES_KEPT = 64


class PriorityQueue(RateLimitingQueue[T]):
    """A `RateLimitingQueue` whose items have priorities; the higher one comes first.

    Guarantees:
        Those of `RateLimitingQueue`, except for the order: items of one priority are
        handed out in the order in which they were added, and one of a higher priority
        before them, unless they have waited for long.

        Nothing starves: an item goes before another one of a priority that is higher by
        `d` if it was added more than `d * ageing` seconds earlier. So what an item
        waits for is bounded, however much is added: it is what is queued already, and
        what is added in the next `d * ageing` seconds, where `d` is the distance from
        its priority to the highest in use.

        A key is in the queue once. Adding it again with a higher priority moves it
        behind the others of that priority (or leaves it where it is, if it has waited
        so long that its place is better); with a lower one it changes nothing. Added
        again while in work, or while its delay runs, the highest priority asked for
        meanwhile counts.

    Not guaranteed:
        Priorities among items that are in work: nothing is taken from a worker.

    Adding and taking cost O(log p) with p different priorities, however many items
    there are. The metric `workqueue_depth` has the priority as a label, of which there
    are 25 different ones at most; the rest comes under `"other"`.

    Args:
        name: Names the queue in metrics and in `repr()`.
        ageing: How many seconds of waiting are worth one step of priority. The default
            lets what is added with priority 0 go before what was added with
            `LOW_PRIORITY` for 5 minutes. None or 0 for strict priorities, where a
            steady stream of important items keeps others waiting for ever, as in
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

        self._prioritized = PrioritizedItems[T](seconds)
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
        if not self._loop_thread._is_owned():  # noqa: SLF001
            self._check_loop()

        if item in self._states and self._is_wanted(item):
            self._raise(item, priority)
            return

        wanted = self._prioritized.wanted
        if priority:
            wanted[item] = priority

        try:
            super().add(item)
        finally:
            if priority and item in wanted and not self._is_wanted(item):
                del wanted[item]

    def _raise(self, item: T, priority: int) -> None:
        if priority > self._prioritized.priority_of(item) and not self.shutting_down:
            self._prioritized.raise_to(item, priority)
            if self._metrics is not None:
                self._metrics.changed()

    def add_threadsafe(self, item: T, priority: int = 0) -> None:
        """Ask for `item` to be worked on, from any thread.

        As `WorkQueue.add_threadsafe()`, with a priority.

        Raises:
            OptionsError: If that is no priority.
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        _check(priority)
        self._add_from_thread(item, priority)

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
        return item, self._prioritized.last_priority

    # ------------------------------------------------------------ what it is made of

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
        raise OptionsError(f"a priority cannot be {priority!r}")


class PrioritizedItems(Generic[T]):
    """Items by priority and age: the one of the lowest rank comes first.

    A rank is fixed when the item is put in: the time then, less `ageing` seconds for
    each step of priority. As time goes on others get higher ranks, so an item gains on
    them without being moved. Without ageing the rank is the priority alone.

    So within one priority ranks never fall, and the line is a row for each priority, of
    which only the first places are compared: putting in and taking out cost O(log p) at
    most with p different priorities, however many items there are.

    Args:
        ageing: Seconds for each step of priority; 0 for none.
    """

    def __init__(self, ageing: float) -> None:
        # A rank is `_clock() - priority * _weight`.
        self._ages = ageing > 0
        self._weight = ageing if self._ages else 1.0
        self._clock: Callable[[], float] = _no_time

        # Invariant: the place of each item in the line is in the row of its priority;
        # what else is there is empty and skipped. No row is without places.
        self._places: dict[T, Place[T]] = {}
        self._rows: dict[int, deque[Place[T]]] = {}
        # Invariant: a heap of the first place of each row. No two have one priority, so
        # items are never compared.
        self._firsts: list[Place[T]] = []
        self._empty = 0

        # The priority of an item that its place does not tell: it is not in the line
        # yet (0 unless it is here), or was raised and stayed where it was.
        self.wanted: dict[T, int] = {}

        # How many more items have a priority than its row has places, where it differs.
        self._excess: Counter[int] = Counter()
        # What was shown once must be seen to be 0; the usual one from the beginning.
        self._labels = {0: "0"}
        self._shown: Iterable[str] = self._labels.values()
        self.last_priority = 0
        """That of the item that was taken out last."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return iter(self._places)

    def start_clock(self, clock: Callable[[], float]) -> None:
        """Tell the time by this clock from now on; what is in the line is new now."""
        if self._ages:
            self._clock = clock
            self._rebuild(later=clock())

    # ------------------------------------------------------------ priorities

    def priority_of(self, item: T) -> int:
        """That of an item in the line, or wanted."""
        priority = self.wanted.get(item)
        if priority is not None:
            return priority

        place = self._places.get(item)
        return 0 if place is None else place[1]

    def raise_to(self, item: T, priority: int) -> None:
        """Give an item in the line, or wanted, a higher priority.

        It goes behind the others of that priority, unless it has waited so long that
        its place is a better one.
        """
        place = self._places.get(item)
        if place is None:
            self.wanted[item] = priority
            return

        self._excess[self.priority_of(item)] -= 1
        rank = self._clock() - priority * self._weight
        if place[0] <= rank:
            self.wanted[item] = priority
            self._excess[priority] += 1
            return

        self.wanted.pop(item, None)
        self._put(item, priority, rank)
        self._empty += 1
        if self._empty > max(EMPTY_PLACES_KEPT, len(self._places)):
            self._rebuild()

    def depths(self) -> Mapping[str, int]:
        """How many items are in the line, by the label of their priority."""
        depths = dict.fromkeys(self._shown, 0)
        rows, excess = self._rows, self._excess
        for priority in {*list(rows), *list(excess)}:
            number = len(rows.get(priority, ())) + excess[priority]
            if number > 0:
                label = self._label(priority)
                depths[label] = depths.get(label, 0) + number

        self._shown = depths.keys()
        return depths

    # ------------------------------------------------------------ as a deque does it

    def append(self, item: T) -> None:
        """Put in an item that is not in it, with the priority that is wanted."""
        priority = self.wanted.pop(item, 0) if self.wanted else 0
        self._put(item, priority, self._clock() - priority * self._weight)

    def popleft(self) -> T:
        """Take out the next item; an `IndexError` if there is none."""
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
                if item in self.wanted:
                    self._excess[priority] += 1
                    priority = self.wanted.pop(item)
                    self._excess[priority] -= 1

                self.last_priority = priority
                return item

            self._empty -= 1
            self._excess[priority] += 1

    def clear(self) -> None:
        """Take out all items, and forget what was wanted."""
        self._places.clear()
        self.wanted.clear()
        self._rebuild()

    # ------------------------------------------------------------ helpers

    def _put(self, item: T, priority: int, rank: float) -> None:
        place = self._places[item] = (rank, priority, item)
        row = self._rows.get(priority)
        if row is None:
            self._rows[priority] = deque((place,))
            heappush(self._firsts, place)
        else:
            row.append(place)

    def _rebuild(self, later: float = 0.0) -> None:
        """Drop the empty places, and give the others ranks that are so much higher."""
        rows: dict[int, deque[Place[T]]] = {}
        excess = Counter[int]()
        for row in self._rows.values():
            for place in row:
                rank, priority, item = place
                if self._places.get(item) is place:
                    moved = self._places[item] = (rank + later, priority, item)
                    rows.setdefault(priority, deque()).append(moved)

        for item in self.wanted.keys() & self._places.keys():
            excess[self._places[item][1]] -= 1
            excess[self.wanted[item]] += 1

        self._rows, self._excess, self._empty = rows, excess, 0
        self._firsts = [row[0] for row in rows.values()]
        heapify(self._firsts)

    def _label(self, priority: int) -> str:
        label = self._labels.get(priority)
        if label is None and len(self._labels) < DISTINCT_LABELS:
            label = self._labels[priority] = str(priority)

        return OTHER_LABEL if label is None else label


def _no_time() -> float:
    """The clock of a line whose queue has no loop yet."""
    return 0.0
