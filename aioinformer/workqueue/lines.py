"""Lines: the items that are queued, in the order in which they come.

The line of a plain queue is a deque; `Ranked` is that of a queue with priorities. They
know nothing of workers, delays or shutting down: that is the queue's.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

__all__ = ["DISTINCT_LABELS", "OTHER_LABEL", "Line", "Ranked"]

T = TypeVar("T", bound="Hashable")

DISTINCT_LABELS = 25
"""So many priorities have a depth of their own in metrics, as in controller-runtime."""

OTHER_LABEL = "other"
"""The label of all the others together."""

# The heap is rebuilt when more than half of it, and more than this, is out of date.
STALE_ENTRIES_KEPT = 64


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
    them without being moved. Without ageing the rank is the priority alone. Items of one
    rank come in the order of being put in.

    Args:
        ageing: Seconds for each step of priority; 0 for none.
    """

    def __init__(self, ageing: float) -> None:
        self._ageing = ageing
        self._clock: Callable[[], float] = _no_time

        # Invariant: the entry of each item in the line is in _heap; what else the heap
        # holds is out of date and skipped.
        self._entries: dict[T, tuple[float, int, T, int]] = {}
        self._heap: list[tuple[float, int, T, int]] = []
        self._sequence = count()

        # The priorities with which items are wanted that are not in the line yet.
        self._wanted: dict[T, int] = {}

        # Invariant: how many entries of _entries have each priority; none has 0.
        self._counts: dict[int, int] = {}
        # What was shown once must be seen to be 0; the usual one from the beginning.
        self._labels = {0: "0"}
        self._shown: Iterable[str] = self._labels.values()
        self.last_priority = 0
        """That of the item that was taken out last."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries)

    def start_clock(self, clock: Callable[[], float]) -> None:
        """Tell the time by this clock from now on; what is in the line is new now."""
        self._clock = clock
        now = clock() if self._ageing else 0.0
        for item, (rank, number, _, priority) in self._entries.items():
            self._entries[item] = (rank + now, number, item, priority)

        self._rebuild()

    # ------------------------------------------------------------ priorities

    def priority_of(self, item: T) -> int | None:
        """That of an item in the line, or wanted; None for another one."""
        entry = self._entries.get(item)
        return self._wanted.get(item) if entry is None else entry[3]

    def want(self, item: T, priority: int) -> None:
        """Say with which priority `append()` will put this item in; 0 unless said."""
        self._wanted[item] = priority

    def forget(self, item: T) -> None:
        """Say that an item is not wanted."""
        self._wanted.pop(item, None)

    def raise_to(self, item: T, priority: int) -> None:
        """Give an item in the line, or wanted, a higher priority.

        It goes behind the others of that priority, unless it has waited so long that
        its place is a better one.
        """
        entry = self._entries.get(item)
        if entry is None:
            self._wanted[item] = priority
            return

        self._uncount(entry[3])
        self._push(item, priority, no_later_than=entry[0])

    def depths(self) -> Mapping[str, int]:
        """How many items are in the line, by the label of their priority."""
        depths = dict.fromkeys(self._shown, 0)
        for priority, number in list(self._counts.items()):
            label = self._label(priority)
            depths[label] = depths.get(label, 0) + number

        self._shown = depths.keys()
        return depths

    # ------------------------------------------------------------ as a deque does it

    def append(self, item: T) -> None:
        """Put in an item that is not in it, with the priority that was said."""
        self._push(item, self._wanted.pop(item, 0))

    def popleft(self) -> T:
        """Take out the next item; an `IndexError` if there is none."""
        heap, entries = self._heap, self._entries
        while True:
            entry = heappop(heap)
            item = entry[2]
            if entries.get(item) is entry:
                del entries[item]
                self.last_priority = entry[3]
                self._uncount(entry[3])
                return item

    def clear(self) -> None:
        """Take out all items, and forget what was wanted."""
        self._entries.clear()
        self._heap.clear()
        self._wanted.clear()
        self._counts.clear()

    # ------------------------------------------------------------ helpers

    def _push(
        self, item: T, priority: int, no_later_than: float = float("inf")
    ) -> None:
        rank = float(-priority)
        if self._ageing:
            rank = min(self._clock() + rank * self._ageing, no_later_than)

        entry = (rank, next(self._sequence), item, priority)
        self._entries[item] = entry
        heappush(self._heap, entry)
        self._counts[priority] = self._counts.get(priority, 0) + 1

        stale = len(self._heap) - len(self._entries)
        if stale > max(STALE_ENTRIES_KEPT, len(self._entries)):
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = list(self._entries.values())
        heapify(self._heap)

    def _uncount(self, priority: int) -> None:
        left = self._counts[priority] - 1
        if left:
            self._counts[priority] = left
        else:
            del self._counts[priority]

    def _label(self, priority: int) -> str:
        label = self._labels.get(priority)
        if label is None and len(self._labels) < DISTINCT_LABELS:
            label = self._labels[priority] = str(priority)

        return OTHER_LABEL if label is None else label


def _no_time() -> float:
    """The clock of a line whose queue has no loop yet."""
    return 0.0
