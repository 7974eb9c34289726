"""Rows of the live table: order, filter, and marks of changes. Pure: times are arguments."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.cli.columns import Columns
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = [
    "BY_CHANGE",
    "MARKED_SECONDS",
    "Arrangement",
    "ChangeMark",
    "TableRow",
    "TableRows",
    "sort_value",
]

ChangeMark = Literal["", "added", "modified", "deleted"]
"""Recent change of an object, or empty."""

MARKED_SECONDS = 2.0
"""Seconds for which a change is marked."""

BY_CHANGE = "last change"
"""Order by the last change, the newest first. Other orders are names of columns."""

# Rows that are placed before other tasks get a turn: about 10 ms.
ROWS_AT_ONCE = 500

# Columns whose cells change with time. They are sorted by the moment they refer to, and
# not filtered.
_AGES = frozenset({"AGE", "LAST SEEN", "FIRST SEEN"})

_UNITS = {"y": 365 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
# Texts of an object may have more digits than a number can.
_DIGITS = "[0-9]{1,18}"
_DURATION = re.compile(rf"((?:{_DIGITS}[ydhms])+)(?: \(.*\))?")
_PART = re.compile(rf"({_DIGITS})([ydhms])")
_SHARE = re.compile(rf"({_DIGITS})/({_DIGITS})")
_NUMBER = re.compile(rf"({_DIGITS})(?: \(.*\))?")

SortValue = tuple[int, float, str]


class _Place(NamedTuple):
    """Place of a row: sorted by value, then by namespace and name."""

    value: SortValue
    name: str


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Order and filter of the rows."""

    sort: str
    """Name of a column, or `BY_CHANGE`."""

    reverse: bool = False
    filter: str = ""
    """Words that a row must contain, in any column and case."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Object in the table."""

    obj: KubeObject
    mark: ChangeMark


@dataclass(frozen=True, slots=True)
class _Change:
    mark: ChangeMark
    time: float


class TableRows:
    """Objects in the order of the table.

    Changed rows are only placed by `place()`, some at a time: the cells of 100,000
    objects take seconds.

    Invariants:

    - a deleted object stays for as long as its change is marked;
    - cells are computed only for an order or a filter that needs them.

    Args:
        columns: Columns of the objects.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._objects: dict[str, KubeObject] = {}
        self._changes: dict[str, _Change] = {}
        self._deleted: dict[str, float] = {}  # times, the oldest first
        self._arrangement = Arrangement(columns.head[0])
        self._places: list[_Place] = []  # sorted
        self._place_of: dict[str, _Place] = {}
        self._unplaced: dict[str, None] = {}  # in order
        # Cells of unchanged objects, and the time for which they were computed.
        self._cells: dict[str, tuple[list[str], float]] = {}

        self.events: int = 0
        """Number of changes so far, without the first list."""

    def __len__(self) -> int:
        """Return the number of placed rows."""
        return len(self._places)

    @property
    def matching(self) -> int:
        """Number of objects that exist and that the filter shows."""
        deleted = sum(key in self._place_of for key in self._deleted)
        return len(self._places) - deleted

    @property
    def objects(self) -> int:
        """Number of objects that exist, whether the filter shows them or not."""
        return len(self._objects) - len(self._deleted)

    def note(self, event: Notification, now: float) -> None:
        """Record a change."""
        match event:
            case Added(obj=obj, initial=True):
                self._put(obj, None)
            case Added(obj=obj):
                self._put(obj, _Change("added", now))
            case Updated(new=obj):
                self._put(obj, _Change("modified", now))
            case Deleted(obj=obj):
                self._put(obj, _Change("deleted", now))
                self._deleted[obj.key] = now
            case _:
                assert_never(event)

    def arrange(self, wanted: Arrangement) -> None:
        """Change the order or the filter. All rows have to be placed again."""
        if wanted == self._arrangement:
            return

        turned = wanted.sort == self._arrangement.sort
        self._arrangement, before = wanted, self._arrangement
        if turned and wanted.filter == before.filter:
            return

        self._places.clear()
        self._place_of.clear()
        self._unplaced = dict.fromkeys(self._objects)
        if not self._needs_cells():
            self._cells.clear()

    def place(self, now: float, day: datetime) -> bool:
        """Place some of the changed rows, and return True if all are placed.

        Args:
            now: Time on the clock of the changes.
            day: Current time, for ages.
        """
        self._forget_deleted(now)
        for key in list(islice(self._unplaced, ROWS_AT_ONCE)):
            del self._unplaced[key]
            self._remove_place(key)
            self._insert_place(key, day)

        return not self._unplaced

    def rows(self, offset: int, room: int, now: float) -> list[TableRow]:
        """Return up to `room` placed rows from an offset, top to bottom."""
        count = len(self._places)
        stop = min(offset + room, count)
        if self._arrangement.reverse:
            places = self._places[count - stop : count - offset][::-1]
        else:
            places = self._places[offset:stop]

        keys = (place.name.replace("\0", "/") for place in places)
        return [TableRow(self._objects[key], self._mark(key, now)) for key in keys]

    # ------------------------------------------------------------ changes

    def _put(self, obj: KubeObject, change: _Change | None) -> None:
        key = obj.key
        self._objects[key] = obj
        self._unplaced[key] = None
        self._deleted.pop(key, None)
        self._cells.pop(key, None)
        if change is not None:
            self.events += 1
            self._changes[key] = change

    def _mark(self, key: str, now: float) -> ChangeMark:
        change = self._changes.get(key)
        return change.mark if change and now - change.time < MARKED_SECONDS else ""

    def _forget_deleted(self, now: float) -> None:
        while self._deleted:
            key, time = next(iter(self._deleted.items()))
            if now - time < MARKED_SECONDS:
                return

            del self._deleted[key], self._objects[key], self._changes[key]
            self._cells.pop(key, None)
            self._unplaced.pop(key, None)
            self._remove_place(key)

    # ------------------------------------------------------------ places

    def _remove_place(self, key: str) -> None:
        place = self._place_of.pop(key, None)
        if place is not None:
            del self._places[bisect_left(self._places, place)]

    def _insert_place(self, key: str, day: datetime) -> None:
        if self._needs_cells() and key not in self._cells:
            cells = self._columns.cells(self._objects[key], day)
            self._cells[key] = (cells, day.timestamp())

        if self._matches(key):
            # Sorts namespaces as a whole: `a` before `a-b`.
            place = _Place(self._value(key), key.replace("/", "\0"))
            insort(self._places, place)
            self._place_of[key] = place

    def _needs_cells(self) -> bool:
        wanted = self._arrangement
        return bool(wanted.filter) or wanted.sort not in {
            BY_CHANGE,
            "NAMESPACE",
            "NAME",
        }

    def _matches(self, key: str) -> bool:
        words = self._arrangement.filter.lower().split()
        if not words:
            return True

        pairs = zip(self._columns.head, self._cells[key][0], strict=True)
        text = " ".join(cell for name, cell in pairs if name not in _AGES).lower()
        return all(word in text for word in words)

    def _value(self, key: str) -> SortValue:
        match self._arrangement.sort:
            case "NAMESPACE":
                return (0, 0, "")  # the namespace is the first part of the name
            case "NAME":
                return (0, 0, self._objects[key].name)
            case name if name == BY_CHANGE:
                change = self._changes.get(key)
                return (1, 0, "") if change is None else (0, -change.time, "")
            case name:
                cells, computed = self._cells[key]
                group, number, text = sort_value(cells[self._columns.head.index(name)])
                return (group, number - computed if name in _AGES else number, text)


def sort_value(cell: str) -> SortValue:
    """Return a value that sorts cells: numbers and durations, then texts, then none.

    Example:
        >>> sorted(["3m20s", "5d", "45s (x3 over 1h)"], key=sort_value)
        ['45s (x3 over 1h)', '3m20s', '5d']
        >>> sorted(["10", "9 (5m ago)", "1/2", "0/3"], key=sort_value)
        ['0/3', '1/2', '9 (5m ago)', '10']
    """
    if found := _NUMBER.fullmatch(cell):
        return (0, float(found[1]), "")

    if found := _SHARE.fullmatch(cell):
        return (0, int(found[1]) / max(1, int(found[2])), cell)

    if found := _DURATION.fullmatch(cell):
        parts = _PART.findall(found[1])
        return (0, float(sum(int(size) * _UNITS[unit] for size, unit in parts)), "")

    return (2 if cell in {"", "<none>", "<unset>"} else 1, 0.0, cell.lower())
