"""Lines: the items that are queued, in the order in which they come.

The line of a plain queue is a deque; `Ranked` is that of a queue with priorities. They
know nothing of workers, delays or shutting down: that is the queue's.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

__all__ = ["DISTINCT_LABELS", "OTHER_LABEL", "Line", "Ranked"]

T = TypeVar("T", bound="Hashable")

# Rank, priority and item. Of one rank the lower priority comes first: it is older.
Place: TypeAlias = tuple[float, int, T]

DISTINCT_LABELS = 25
"""So many priorities have a depth of their own in metrics, as in controller-runtime."""

OTHER_LABEL = "other"
"""The label of all the others together."""

# Rows are cleared when more than half of all places, and more than this, are empty.
EMPTY_PLACES_KEPT = 64


class Line(Protocol[T]):
    """What a queue needs of its line; a deque is one."""

    def append(self, item: T, /) -> None:
        """Put in an item that is not in it."""

    def popleft(self) -> T:
        """Take out the next item; an `IndexError` if there is none."""

    def clear(self) -> None:
        """Take out all items."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[T]: ...


class Ranked(Generic[T]):
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
