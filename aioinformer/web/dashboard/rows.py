"""`LiveTables`: sorted and filtered rows of an informer's objects, for pages that scroll.

Readers that want the same objects in the same order share a table. A handler of the
informer keeps it up to date. It notes and places a row with each call, in the slices in
which the informer calls handlers, so a table needs no task. A reader computes the cells of
the rows in its window, and only when something has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer._tasks import Notifier
from aioinformer.budget import LoopBudget
from aioinformer.errors import (
    AioInformerError,
    InformerStopped,
    NotSynced,
    OptionsError,
)
from aioinformer.informer.notifications import change_of, object_of
from aioinformer.model.resource import Resource
from aioinformer.tables.columns import Columns
from aioinformer.tables.rows import BY_CHANGE, Arrangement, TableRows
from aioinformer.web.responses import encode_json_event
from aioinformer.web.selection import StreamSelection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.tables.rows import ChangeMark, TableRow

__all__ = [
    "IDLE_SECONDS",
    "MAX_CELL_CHARACTERS",
    "MAX_FILTER_CHARACTERS",
    "MAX_ROWS",
    "MAX_TABLES",
    "LiveTables",
    "RowsFeed",
    "TooManyTables",
]

MAX_TABLES = 16
"""Maximum number of tables. Each takes some 350 bytes for each object of its selection."""

MAX_ROWS = 500
"""Maximum number of rows in a window."""

MAX_FILTER_CHARACTERS = 200
"""Maximum number of characters of a filter."""

MAX_CELL_CHARACTERS = 300
"""Maximum number of characters of a cell. The rest is not sorted and filtered either."""

IDLE_SECONDS = 10.0
"""Time for which a table is kept after its last reader, who may only have scrolled."""

EVENT_SECONDS = 0.25
"""Minimum interval of the events of a reader."""

AGE_SECONDS = 1.0
"""Interval in which the cells of visible rows are computed, as ages change."""

FIRST_SECONDS = 0.1
"""Maximum time for which the first event waits for a new table to be complete."""

ROWS = 100
"""Default number of rows in a window."""

STEP = 4
"""Rows that are placed or removed between two checks of the budget: 150 us."""

# A timer may be early by the resolution of the clock.
_KEPT_SECONDS = 0.9 * AGE_SECONDS


class TooManyTables(AioInformerError):
    """Readers look at `MAX_TABLES` different tables: try again later."""


class _TableKey(NamedTuple):
    """Options that readers of one table have in common."""

    informer: SharedInformer
    selection: StreamSelection
    arrangement: Arrangement
    """Order and filter. The direction is that of each reader, and not set here."""


class _Window(NamedTuple):
    """Rows that a reader sees."""

    offset: int
    room: int
    reverse: bool


class LiveTables:
    """Tables of a dashboard, by informer, selection and arrangement.

    A table is made for its first reader, and kept for `IDLE_SECONDS` after the last one.
    There are at most `MAX_TABLES`: the one that has been without readers for the longest
    time gives way to a new one.

    It belongs to the event loop of the informers.
    """

    def __init__(self) -> None:
        # Those without readers are in the order in which their last readers left.
        self._tables: dict[_TableKey, _LiveTable] = {}

    def __repr__(self) -> str:
        return f"<LiveTables tables={len(self._tables)}>"

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self._tables)

    def feed(
        self, informer: SharedInformer, query: Iterable[tuple[str, str]]
    ) -> RowsFeed:
        """Return the feed of a reader, whose request is checked.

        Args:
            informer: Informer of the objects.
            query: Parameters of the URL: `namespace` and `labelSelector`, both
                repeatable, for the objects; `filter`, `sort` and `reverse` for their
                order; `from` and `count` for the rows of the window. Others are ignored.

        Raises:
            OptionsError: If a parameter is invalid. The message is one sentence.
            SelectorSyntaxError: If a selector cannot be parsed.
            InformerStopped: If the informer has ended.
            TooManyTables: If readers look at `MAX_TABLES` other tables.
        """
        pairs = list(query)
        values = dict(pairs)
        key = _TableKey(
            informer,
            StreamSelection().narrowed(pairs),
            _arrangement_of(values, informer),
        )
        feed = RowsFeed(self, key, _window_of(values))
        _check_live(informer)
        self._check_room(key)
        return feed

    @contextlib.contextmanager
    def opened(self, key: _TableKey) -> Iterator[_LiveTable]:
        """Keep a table for a reader; make it if it does not exist.

        Raises:
            InformerStopped: If the informer has ended.
            TooManyTables: If readers look at `MAX_TABLES` other tables.
        """
        table = self._enter(key)
        try:
            yield table
        finally:
            self._leave(key, table)

    def _enter(self, key: _TableKey) -> _LiveTable:
        table = self._tables.get(key)
        if table is None:
            self._check_room(key)
            table = _LiveTable(key)
            if len(self._tables) >= MAX_TABLES:
                self._drop(next(self._idle()))

            self._tables[key] = table

        if table.idle_timer is not None:
            table.idle_timer.cancel()
            table.idle_timer = None

        table.readers += 1
        return table

    def _leave(self, key: _TableKey, table: _LiveTable) -> None:
        table.readers -= 1
        if not table.readers:
            self._tables[key] = self._tables.pop(key)  # to be dropped last
            loop = asyncio.get_running_loop()
            table.idle_timer = loop.call_later(IDLE_SECONDS, self._drop, key)

    def _drop(self, key: _TableKey) -> None:
        self._tables.pop(key).close()

    def _idle(self) -> Iterator[_TableKey]:
        return (key for key, table in self._tables.items() if not table.readers)

    def _check_room(self, key: _TableKey) -> None:
        if key in self._tables or len(self._tables) < MAX_TABLES:
            return

        if next(self._idle(), None) is None:
            raise TooManyTables(
                f"readers look at {MAX_TABLES} different tables already"
            )


class RowsFeed:
    """Events with the rows in the window of one reader. Made by `LiveTables.feed`."""

    def __init__(self, tables: LiveTables, key: _TableKey, window: _Window) -> None:
        self._tables = tables
        self._key = key
        self._window = window

    async def run(self, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Send the rows at once, and at most four times a second when they have changed.

        Nothing is computed or queued while `send` waits.

        Args:
            send: Coroutine function that sends an event, and waits while the reader is
                slow.

        Raises:
            InformerStopped: If the informer ends, within a second.
            TooManyTables: If readers look at `MAX_TABLES` other tables. Nothing was sent.
            WrongLoop: If the informer belongs to another event loop.
            Exception: Exception of `send`.

        Cancellation:
            Ends it. The table is dropped after `IDLE_SECONDS` without readers.
        """
        loop = asyncio.get_running_loop()
        with self._tables.opened(self._key) as table:
            await table.wait_complete(FIRST_SECONDS)
            view = _View(table, self._window)
            while True:
                _check_live(self._key.informer)
                begun, changes = loop.time(), table.changes
                event = await view.look(begun)
                if event is not None:
                    await send(encode_json_event("rows", event))

                await asyncio.sleep(begun + EVENT_SECONDS - loop.time())
                until = min(begun + AGE_SECONDS, view.mark_ends)
                await table.wait_change(changes, until)


def _check_live(informer: SharedInformer) -> None:
    """Check that an informer has not ended.

    Raises:
        InformerStopped: If it has ended, or is stopping.
    """
    if informer.status.phase in {"stopping", "stopped"}:
        raise InformerStopped(f"{informer.name} has ended")


# ------------------------------------------------------------ the table


class _LiveTable:
    """Rows of an informer's objects, which a handler keeps up to date.

    Raises:
        InformerStopped: If the informer has ended.
        WrongLoop: If the informer belongs to another event loop.
    """

    def __init__(self, key: _TableKey) -> None:
        informer, selection, arrangement = key
        self.columns = _columns_of(informer)
        self.rows = TableRows(self.columns, informer.indexer.get_by_key, arrangement)
        self.readers = 0
        self.idle_timer: asyncio.TimerHandle | None = None
        """Timer that drops it, while it has no readers."""
        self.changes = 0
        """Number of changes so far, including those of the first list."""
        self._changed = Notifier()
        self._registration = informer.add_event_handler(
            on_event=self._apply,
            filter=None if selection == StreamSelection() else selection,
            name="dashboard",
            coalesce=True,
            resync_period=0,
        )

    @property
    def complete(self) -> bool:
        """True once all objects that existed at the start are in the table."""
        return self._registration.has_synced

    async def wait_complete(self, seconds: float) -> None:
        """Wait for some seconds until it is complete.

        Raises:
            InformerStopped: If the informer ends before that.

        Cancellation:
            Safe.
        """
        with contextlib.suppress(NotSynced):
            await self._registration.wait_synced(seconds)

    async def wait_change(self, known: int, until: float) -> None:
        """Wait for a change after the first `known` ones, or until a time of the loop.

        Cancellation:
            Safe.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self.changes == known:
                    await self._changed.wait()

    def close(self) -> None:
        """Remove its handler. The informer may have ended."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()

        self._registration.remove()

    def _apply(self, event: Notification) -> None:
        now = asyncio.get_running_loop().time()
        self.rows.note(object_of(event), change_of(event), now)
        self.rows.place(now, datetime.now(UTC), STEP)
        self.changes += 1
        self._changed.notify()


@dataclass(frozen=True, slots=True, eq=False)
class _SentRow:
    """Row in the last event of a reader."""

    obj: KubeObject
    cells: list[str]
    mark: ChangeMark
    computed: float
    """Time for which the cells were computed."""


class _View:
    """Window of one reader, and what it was sent.

    Args:
        table: Table of the rows.
        window: Rows that the reader sees.
    """

    def __init__(self, table: _LiveTable, window: _Window) -> None:
        self.mark_ends = math.inf
        """Time at which the next visible mark ends; infinite without any."""
        self._table = table
        self._window = window
        self._sent: dict[str, _SentRow] = {}  # in the order of the window
        self._sent_event: dict[str, Any] = {}

    async def look(self, now: float) -> dict[str, Any] | None:
        """Return the data of the next event; None if the reader knows it already.

        Args:
            now: Current time of the loop.

        Cancellation:
            Safe.
        """
        budget = LoopBudget.current()
        await budget.start()
        rows, day = self._table.rows, datetime.now(UTC)
        while not rows.place(now, day, STEP):  # removes rows of deleted objects
            if budget.over():
                await budget.start()

        event = self._head()
        seen: dict[str, _SentRow] = {}
        entries: list[str | dict[str, Any]] = []
        self.mark_ends = math.inf
        offset, room, reverse = self._window
        for row in rows.rows(offset, room, now, reverse=reverse):
            key = row.obj.key
            sent = self._sent.get(key)
            seen[key] = this = self._row(row, sent, now, day)
            entries.append(key if _alike(sent, this) else _entry(key, this))
            self.mark_ends = min(self.mark_ends, row.mark_ends)
            if budget.over():
                await budget.start()

        budget.end()
        self._sent = seen
        known, self._sent_event = self._sent_event, {**event, "rows": list(seen)}
        event["rows"] = entries
        return None if event == known else event

    def _head(self) -> dict[str, Any]:
        table = self._table
        names = table.columns.head
        return {
            "columns": names,
            "sortable": [*names, BY_CHANGE],
            "from": self._window.offset,
            "total": table.rows.objects,
            "matching": table.rows.matching,
            "placed": table.complete,
        }

    def _row(
        self, row: TableRow, sent: _SentRow | None, now: float, day: datetime
    ) -> _SentRow:
        obj = row.obj
        if sent is not None and sent.obj is obj and now - sent.computed < _KEPT_SECONDS:
            return _SentRow(obj, sent.cells, row.mark, sent.computed)

        return _SentRow(obj, self._table.columns.cells(obj, day), row.mark, now)


def _alike(sent: _SentRow | None, this: _SentRow) -> bool:
    return sent is not None and sent.cells == this.cells and sent.mark == this.mark


def _entry(key: str, row: _SentRow) -> dict[str, Any]:
    return {"key": key, "cells": row.cells, "mark": row.mark}


# ------------------------------------------------------------ the query


def _columns_of(informer: SharedInformer) -> Columns:
    # Of an unknown resource, only names and ages are known.
    resource = informer.resource or Resource("", "v1", "objects")
    return Columns(
        resource,
        wide=False,
        namespaces=resource.namespaced,
        longest=MAX_CELL_CHARACTERS,
    )


def _arrangement_of(values: Mapping[str, str], informer: SharedInformer) -> Arrangement:
    """Return the order and the filter of a query, equal ones for equal tables."""
    words = values.get("filter", "")
    if len(words) > MAX_FILTER_CHARACTERS:
        raise OptionsError(f"filter= is longer than {MAX_FILTER_CHARACTERS} characters")

    names = _columns_of(informer).head
    sort = values.get("sort") or names[0]
    if sort not in {*names, BY_CHANGE}:
        raise OptionsError(
            f"sort={sort[:100]!r} is none of {', '.join(names)} and {BY_CHANGE}"
        )

    return Arrangement(sort, filter=" ".join(sorted(set(words.lower().split()))))


def _window_of(values: Mapping[str, str]) -> _Window:
    reverse = values.get("reverse", "")
    if reverse not in {"", "0", "1"}:
        raise OptionsError(f"reverse={reverse[:100]!r} is neither 0 nor 1")

    return _Window(
        _number("from", values.get("from") or "0", 10**9),
        _number("count", values.get("count") or str(ROWS), MAX_ROWS),
        reverse == "1",
    )


def _number(name: str, text: str, most: int) -> int:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not digits or int(text) > most:
        raise OptionsError(f"{name}={text[:100]!r} is not a number from 0 to {most}")

    return int(text)
