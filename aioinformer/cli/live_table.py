"""The live table of `aioinformer watch`.

`VisibleObjects` chooses the objects, `ColumnTable` and `draw()` make lines of them. All
of these are pure: times are arguments. `LiveTable` paints the lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NoReturn

from aioinformer.cli.columns import GAP, cut, fitted, line_of_cells, widened
from aioinformer.cli.error_messages import message_of
from aioinformer.cli.terminal import ScreenLine
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model.times import human_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioinformer.cache import Store
    from aioinformer.cli.columns import Columns
    from aioinformer.cli.terminal import Terminal
    from aioinformer.informer import InformerStatus, SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = [
    "OVERHEAD",
    "ChangeMark",
    "ColumnTable",
    "InformerHealth",
    "LiveTable",
    "RateMeter",
    "VisibleObject",
    "VisibleObjects",
    "draw",
    "status_line",
]


FRAME_SECONDS = 0.25


class LiveTable:
    """Live view of an informer's objects, with recent changes marked.

    Args:
        informer: Informer to add a handler to, before its start.
        columns: Columns of its objects.
        title: Short description of the objects.
        terminal: Terminal to paint on.
    """

    def __init__(
        self, informer: SharedInformer, columns: Columns, title: str, terminal: Terminal
    ) -> None:
        self._informer = informer
        self._columns = columns
        self._title = title
        self._terminal = terminal
        self._visible = VisibleObjects(informer.store)
        self._table = ColumnTable(columns.head)
        self._meter = RateMeter()
        informer.add_event_handler(on_event=self._note, name="table")

    async def show(self) -> NoReturn:
        """Paint four times a second, and write changed lines only.

        Raises:
            OSError: If writing fails.

        Cancellation:
            Stops it, and restores the terminal.
        """
        try:
            with self._suspendable():
                while True:
                    size = self._terminal.size()
                    lines = self._lines(size.columns, size.lines)
                    await self._terminal.paint(lines[: size.lines], size)
                    await asyncio.sleep(FRAME_SECONDS)
        finally:
            self._terminal.leave(self._summary())

    def _summary(self) -> str:
        objects = len(self._informer.store)
        return f"{self._title}: {objects:,} objects, {self._visible.events:,} events."

    def _note(self, event: Notification) -> None:
        self._visible.note(event, _now())

    def _lines(self, width: int, height: int) -> list[ScreenLine]:
        now, visible = _now(), self._visible
        room = max(0, height - OVERHEAD)
        total = visible.total(now)
        if total > room:
            room = max(0, room - 1)  # the last line counts the hidden objects

        day = datetime.now(UTC)
        shown = visible.choose(room, now)
        rows = [(it.mark, self._columns.cells(it.obj, day)) for it in shown]
        there = sum(it.mark != "deleted" for it in shown)
        objects = len(self._informer.store)
        health = InformerHealth(
            status=self._informer.status,
            objects=objects,
            rate=self._meter.rate(now, visible.events),
        )
        table = self._table.draw(rows, width)
        return draw(self._title, health, table, more=objects - there, width=width)

    @contextlib.contextmanager
    def _suspendable(self) -> Iterator[None]:
        """Restore the terminal on Ctrl-Z. The first frame after `fg` takes it again."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTSTP)

    def _suspend(self) -> None:
        self._terminal.leave()
        os.kill(os.getpid(), signal.SIGSTOP)


def _now() -> float:
    return asyncio.get_running_loop().time()


# Long enough to be readable, and short enough to show changes.
METER_SECONDS = 3.0


class RateMeter:
    """Rate of a growing total, over the last three seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def rate(self, now: float, total: int) -> float:
        """Record the total at a time, and return its growth per second."""
        self._marks.append((now, total))
        while len(self._marks) > 2 and now - self._marks[1][0] >= METER_SECONDS:
            self._marks.popleft()

        since, before = self._marks[0]
        return (total - before) / (now - since) if now > since else 0.0


OVERHEAD = 2
"""Lines above the objects: the status and the column names."""


# Shows changes without colors, too.
_SIGNS: dict[ChangeMark, str] = {"": " ", "added": "+", "modified": "~", "deleted": "-"}


_GUTTER = 2


# Ages up to this one are shown as "fresh".
_FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerHealth:
    """Status of the informer, and its rate of changes."""

    status: InformerStatus
    objects: int
    rate: float
    """Changes per second."""


class ColumnTable:
    """Rows in columns. Columns never become narrower.

    Args:
        head: Names of the columns.
    """

    def __init__(self, head: Sequence[str]) -> None:
        self._head = list(head)
        self._widths = widened([], self._head)

    def draw(
        self, rows: Sequence[tuple[ChangeMark, list[str]]], width: int
    ) -> list[ScreenLine]:
        """Return the header, and a line for each row, cut to `width` cells."""
        for _, cells in rows:
            self._widths = widened(self._widths, cells)

        widths = fitted(self._widths, max(0, width - _GUTTER))
        lines = [
            ScreenLine(cut(f"  {line_of_cells(self._head, widths)}", width), "head")
        ]
        for mark, cells in rows:
            text = f"{_SIGNS[mark]} {line_of_cells(cells, widths)}".rstrip()
            lines.append(ScreenLine(cut(text, width), mark))

        return lines


def draw(
    title: str,
    health: InformerHealth,
    table: list[ScreenLine],
    *,
    more: int,
    width: int,
) -> list[ScreenLine]:
    """Return the whole screen.

    Args:
        title: Short description of the objects.
        health: Status of the informer.
        table: Lines of `ColumnTable.draw()`.
        more: Number of objects that do not fit.
        width: Width of the terminal, in cells.
    """
    lines = [status_line(title, health, width), *table]
    if more:
        text = f"  … {more:,} more, recently changed ones are at the top; use -n or -l."
        lines.append(ScreenLine(cut(text, width), "quiet"))

    return lines


def status_line(title: str, health: InformerHealth, width: int) -> ScreenLine:
    """Return the status line: title, state of the informer, number and rate of changes.

    Trouble comes first, as the rest may be cut.
    """
    status = health.status
    counts = f"{health.objects:,} objects   {health.rate:.0f} events/s"
    if status.failures and status.last_error is not None:
        trouble = f"connection lost{_for(status.age)}, retrying: {message_of(status.last_error)}"
        return ScreenLine(cut(f"{trouble}   {title}   {counts}", width), "trouble")

    parts = [
        title,
        "synced" if status.synced else status.phase,
        _freshness(status.age),
        counts,
    ]
    return ScreenLine(cut((" " * GAP).join(it for it in parts if it), width), "title")


def _for(age: float | None) -> str:
    return "" if age is None else f" for {human_duration(age)}"


def _freshness(age: float | None) -> str:
    """Return the time since the last contact with the server, in words."""
    if age is None:
        return ""

    if age <= _FRESH_SECONDS:
        return "fresh"

    return f"quiet for {human_duration(age)}"


ChangeMark = Literal["", "added", "modified", "deleted"]
"""Recent change of an object, or empty."""


# Duration for which a change is marked.
MARKED_SECONDS = 2.0


# More lines than any terminal has.
KEPT = 500


@dataclass(frozen=True, slots=True)
class VisibleObject:
    """Object in the table."""

    obj: KubeObject
    mark: ChangeMark


@dataclass(frozen=True, slots=True)
class _Change:
    obj: KubeObject
    mark: ChangeMark
    time: float


class VisibleObjects:
    """Choice of the objects to show.

    Invariants:

    - a deleted object stays for as long as its change is marked;
    - at most `KEPT` changed objects are remembered.

    Args:
        store: Store of the informer.
    """

    def __init__(self, store: Store[KubeObject]) -> None:
        self._store = store
        self._changes: dict[str, _Change] = {}  # by key, the newest last
        self._order: list[str] = []  # of all objects, while `_ordered`
        self._ordered = False

        self.events: int = 0
        """Number of changes so far, without the first list."""

    def note(self, event: Notification, now: float) -> None:
        """Record a change."""
        match event:
            case Added(obj=obj, initial=initial):
                self._ordered = False
                if not initial:
                    self._add(_Change(obj, "added", now))
            case Updated(new=obj):
                self._add(_Change(obj, "modified", now))
            case Deleted(obj=obj):
                self._ordered = False
                self._add(_Change(obj, "deleted", now))

    def total(self, now: float) -> int:
        """Return the number of objects to show if all of them fit."""
        return len(self._store) + len(self._deleted(now))

    def choose(self, room: int, now: float) -> list[VisibleObject]:
        """Return the objects for `room` lines, top to bottom.

        If all objects fit, they are ordered by namespace and name. Otherwise recently
        changed ones come first.
        """
        deleted = self._deleted(now)
        if self.total(now) <= room:
            keys = sorted([*self._store.list_keys(), *deleted], key=_namespace_and_name)
        else:
            keys = [key for key in reversed(self._changes) if self._is_shown(key, now)]
            keys = keys[:room]
            keys += self._others(set(keys), room - len(keys))

        found = ((key, self._store.get_by_key(key) or deleted.get(key)) for key in keys)
        return [
            VisibleObject(obj, self._mark(key, now))
            for key, obj in found
            if obj is not None
        ]

    def _add(self, change: _Change) -> None:
        self.events += 1
        key = change.obj.key
        self._changes.pop(key, None)
        self._changes[key] = change
        if len(self._changes) > KEPT:
            del self._changes[next(iter(self._changes))]

    def _mark(self, key: str, now: float) -> ChangeMark:
        change = self._changes.get(key)
        return change.mark if change and now - change.time < MARKED_SECONDS else ""

    def _deleted(self, now: float) -> dict[str, KubeObject]:
        """Return recently deleted objects."""
        return {
            key: it.obj
            for key, it in self._changes.items()
            if key not in self._store and self._mark(key, now) == "deleted"
        }

    def _is_shown(self, key: str, now: float) -> bool:
        return key in self._store or self._mark(key, now) == "deleted"

    def _others(self, taken: set[str], room: int) -> list[str]:
        if room <= 0:
            return []

        if not self._ordered:
            self._order = sorted(self._store.list_keys(), key=_namespace_and_name)
            self._ordered = True

        keys = (key for key in self._order if key not in taken)
        return [key for key, _ in zip(keys, range(room), strict=False)]


def _namespace_and_name(key: str) -> list[str]:
    return key.split("/")
