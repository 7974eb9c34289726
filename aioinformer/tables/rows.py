"""Rows of a live table: order, filter, and marks of changes. Pure: times are arguments."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from aioinformer.errors import DecodeError
from aioinformer.tables.cells import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from aioinformer.model import KubeObject
    from aioinformer.tables.columns import Columns

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

# Columns whose cells change with time. They are sorted by the moment they refer to, and
# not filtered.
_AGES = frozenset({"AGE", "LAST SEEN", "FIRST SEEN"})

# Orders for which the key of an object is enough. It never changes.
_BY_KEY = frozenset({"NAMESPACE", "NAME"})

# Orders that need no cells. The text of an age is less exact than the time of creation.
_WITHOUT_CELLS = _BY_KEY | {"AGE", BY_CHANGE}

_UNITS = {"y": 365 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
# Texts of an object may have more digits than a number can.
_DIGITS = "[0-9]{1,18}"
_DURATION = re.compile(rf"((?:{_DIGITS}[ydhms])+)(?: \(.*\))?")
_PART = re.compile(rf"({_DIGITS})([ydhms])")
_SHARE = re.compile(rf"({_DIGITS})/({_DIGITS})")
_NUMBER = re.compile(rf"({_DIGITS})(?: \(.*\))?")

SortValue = tuple[int, float, str]

_SAME: SortValue = (0, 0.0, "")
_UNKNOWN: SortValue = (1, 0.0, "")

# Exchanges the separator of namespace and name with a character that sorts before all
# others. Namespaces then sort as a whole: `a` before `a-b`. It is its own inverse.
_EXCHANGED = str.maketrans("/\0", "\0/")


# Place of a row: sorted by value, then by namespace and name. The text is its key with
# exchanged characters. The garbage collector does not track plain tuples of such values.
_Place = tuple[SortValue, str]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Order and filter of the rows."""

    sort: str
    """Name of a column, or `BY_CHANGE`."""

    reverse: bool = False
    """Direction in which `TableRows.rows()` should be read."""

    filter: str = ""
    """Words that a row must contain, in any column and case."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Object in the table."""

    obj: KubeObject
    mark: ChangeMark
    mark_ends: float = math.inf
    """Time at which the mark ends; infinite without one."""


class _Change(NamedTuple):
    mark: ChangeMark
    time: float


class _Unplaced(NamedTuple):
    """Row to place."""

    obj: KubeObject | None
    """State of the object. None to read it."""
    changed: float | None
    """Time of the last change; None without one."""


class _Known(NamedTuple):
    """Cells of an unchanged object."""

    cells: list[str]
    computed: float
    """Time for which they were computed, in seconds since 1970."""


class TableRows:
    """Keys of objects in the order of the table.

    Changed rows are only placed by `place()`, some at a time: the cells of 100,000
    objects take seconds.

    Invariants:

    - objects are not kept, except for deleted ones, and changed ones that are not placed;
    - a deleted object stays for as long as its change is marked;
    - cells are computed only for an order or a filter that needs them;
    - a change that leaves the place of a row as it is does not touch the sorted list.

    Args:
        columns: Columns of the objects.
        find: Function that returns the current object of a key, or None. It may be newer
            than the last noted change.
        arrangement: Order and filter of the rows; None for the order of the first column.
        rearranged: True to keep the cells and the times of changes for `arrange()`, which
            needs some 500 bytes for each row.
    """

    def __init__(
        self,
        columns: Columns,
        find: Callable[[str], KubeObject | None],
        arrangement: Arrangement | None = None,
        *,
        rearranged: bool = False,
    ) -> None:
        self._columns = columns
        self._find = find
        self._rearranged = rearranged
        # Place of each object by its key; None if it is not placed, or filtered out.
        self._place_of: dict[str, _Place | None] = {}
        self._places: list[_Place] = []  # sorted
        self._unplaced: dict[str, _Unplaced] = {}  # placed in any order
        # Marked changes, the oldest first.
        self._recent: OrderedDict[str, _Change] = OrderedDict()
        self._deleted: dict[str, KubeObject] = {}  # final states
        self._deleted_places = 0
        # Only for another arrangement.
        self._changed: dict[str, float] = {}
        self._known: dict[str, _Known] = {}
        self._use(arrangement or Arrangement(columns.head[0]))

        self.events: int = 0
        """Number of changes so far, without the first list."""

    def __len__(self) -> int:
        """Return the number of placed rows."""
        return len(self._places)

    @property
    def matching(self) -> int:
        """Number of objects that exist and that the filter shows."""
        return len(self._places) - self._deleted_places

    @property
    def objects(self) -> int:
        """Number of objects that exist, whether the filter shows them or not."""
        return len(self._place_of) - len(self._deleted)

    def note(self, obj: KubeObject, mark: ChangeMark, now: float) -> None:
        """Record an object, and its change.

        Args:
            obj: State of the object, the final one if it was deleted.
            mark: Change; empty for an object of the first list.
            now: Time of the change.
        """
        key = obj.key
        self._revive(key)
        self._known.pop(key, None)
        if mark:
            self.events += 1
            self._recent[key] = _Change(mark, now)
            self._recent.move_to_end(key)
            if self._rearranged:
                self._changed[key] = now

        if self._place_of.setdefault(key, None) is None or not self._fixed:
            changed = now if mark else self._changed.get(key)
            self._unplaced[key] = _Unplaced(obj, changed)

        if mark == "deleted":
            self._deleted[key] = obj
            self._deleted_places += self._place_of[key] is not None

    def arrange(self, wanted: Arrangement) -> None:
        """Change the order or the filter. All rows have to be placed again."""
        before = self._arrangement
        self._use(wanted)
        if (wanted.sort, wanted.filter) == (before.sort, before.filter):
            return

        self._places.clear()
        self._place_of = dict.fromkeys(self._place_of)
        self._deleted_places = 0
        changed = self._changed.get
        self._unplaced = {key: _Unplaced(None, changed(key)) for key in self._place_of}
        if not self._needs_cells:
            self._known.clear()

    def place(self, now: float, day: datetime, limit: int = 500) -> bool:
        """Place some of the changed rows, and return True if all are placed.

        Args:
            now: Time on the clock of the changes.
            day: Current time, for ages.
            limit: Maximum number of rows to place, and of deleted ones to remove. 500
                take about 10 ms.
        """
        done = self._forget_changes(now, limit)
        for _ in range(min(limit, len(self._unplaced))):
            key, row = self._unplaced.popitem()
            self._move(key, self._place(key, row, day))

        return done and not self._unplaced

    def rows(
        self, offset: int, room: int, now: float, *, reverse: bool = False
    ) -> Iterator[TableRow]:
        """Yield up to `room` placed rows from an offset, top to bottom.

        Changes during the iteration do not move its rows. A row whose deletion is not
        noted yet is left out.
        """
        count = len(self._places)
        stop = min(offset + room, count)
        if reverse:
            places = self._places[count - stop : max(0, count - offset)][::-1]
        else:
            places = self._places[offset:stop]

        for _, name in places:
            key = name.translate(_EXCHANGED)
            obj = self._deleted.get(key) or self._find(key)
            if obj is not None:
                yield self._row(obj, now)

    def _row(self, obj: KubeObject, now: float) -> TableRow:
        change = self._recent.get(obj.key)
        if change is None or now - change.time >= MARKED_SECONDS:
            return TableRow(obj, "")

        return TableRow(obj, change.mark, change.time + MARKED_SECONDS)

    # ------------------------------------------------------------ changes

    def _revive(self, key: str) -> None:
        if key in self._deleted:
            del self._deleted[key], self._recent[key]
            self._deleted_places -= self._place_of[key] is not None

    def _forget_changes(self, now: float, limit: int) -> bool:
        """Forget changes that are no longer marked; return False if some are left."""
        for _ in range(limit):
            if not self._recent:
                return True

            key, change = next(iter(self._recent.items()))
            if now - change.time < MARKED_SECONDS:
                return True

            del self._recent[key]
            if change.mark == "deleted":
                self._forget(key)

        return False

    def _forget(self, key: str) -> None:
        self._move(key, None)
        del self._deleted[key], self._place_of[key]
        self._unplaced.pop(key, None)
        self._changed.pop(key, None)
        self._known.pop(key, None)

    # ------------------------------------------------------------ places

    def _use(self, arrangement: Arrangement) -> None:
        self._arrangement = arrangement
        self._words = arrangement.filter.lower().split()
        self._needs_cells: bool = (
            bool(self._words) or arrangement.sort not in _WITHOUT_CELLS
        )
        # True if the place of an object never changes.
        self._fixed = not self._words and arrangement.sort in _BY_KEY

    def _move(self, key: str, place: _Place | None) -> None:
        before = self._place_of[key]
        if place == before:
            return

        if before is not None:
            del self._places[bisect_left(self._places, before)]

        if place is not None:
            insort(self._places, place)

        self._place_of[key] = place
        if key in self._deleted:
            self._deleted_places += (place is not None) - (before is not None)

    def _place(self, key: str, row: _Unplaced, day: datetime) -> _Place | None:
        """Return the place of a row; None if it is filtered out."""
        known = None
        if self._needs_cells:
            known = self._known_of(key, row, day)
            if known is None or not self._matches(known.cells):
                return None

        return (self._value(key, row, known), key.translate(_EXCHANGED))

    def _value(self, key: str, row: _Unplaced, known: _Known | None) -> SortValue:
        match self._arrangement.sort:
            case "NAMESPACE":
                return _SAME  # the namespace is the first part of the name
            case "NAME":
                return (0, 0.0, key.rpartition("/")[2])
            case "AGE":
                obj = self._object_of(key, row)
                return _UNKNOWN if obj is None else _birth(obj)
            case name if name == BY_CHANGE:
                return _UNKNOWN if row.changed is None else (0, -row.changed, "")
            case name:
                assert known is not None
                cell = known.cells[self._columns.head.index(name)]
                group, number, text = sort_value(cell)
                seen = number - known.computed
                return (group, seen if name in _AGES else number, text)

    def _known_of(self, key: str, row: _Unplaced, day: datetime) -> _Known | None:
        """Return the cells of a row; None if there is no object."""
        known = self._known.get(key)
        if known is not None:
            return known

        obj = self._object_of(key, row)
        if obj is None:
            return None

        known = _Known(self._columns.cells(obj, day), day.timestamp())
        if self._rearranged:
            self._known[key] = known

        return known

    def _object_of(self, key: str, row: _Unplaced) -> KubeObject | None:
        """Return the object of a row; None if it is deleted, which will be noted."""
        return row.obj or self._deleted.get(key) or self._find(key)

    def _matches(self, cells: list[str]) -> bool:
        if not self._words:
            return True

        pairs = zip(self._columns.head, cells, strict=True)
        text = " ".join(cell for name, cell in pairs if name not in _AGES).lower()
        return all(word in text for word in self._words)


def _birth(obj: KubeObject) -> SortValue:
    """Return a value that sorts objects by their age, the youngest first."""
    try:
        born = moment(obj.at("metadata.creationTimestamp"))
    except DecodeError:
        born = None

    return _UNKNOWN if born is None else (0, -born.timestamp(), "")


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
