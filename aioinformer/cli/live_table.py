"""The live table of `aioinformer watch`: rows of an informer's objects, and keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from aioinformer.cli.columns import cut
from aioinformer.cli.keyboard import Keyboard
from aioinformer.cli.output import counted
from aioinformer.cli.table_frame import (
    ColumnTable,
    InformerHealth,
    RateMeter,
    View,
    help_line,
    help_page,
    pressed,
    status_lines,
)
from aioinformer.informer.notifications import change_of, object_of
from aioinformer.tables.rows import Arrangement, TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.cli.screen import Screen
    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.tables.columns import Columns

__all__ = ["LiveTable"]

FRAME_SECONDS = 0.25

# Seconds for which a reset of the server's history is shown.
RESET_SECONDS = 30.0


class LiveTable:
    """Live view of an informer's objects, with recent changes marked.

    Args:
        informer: Informer to add a handler to, before its start.
        columns: Columns of its objects.
        title: Short description of the objects.
        screen: Screen to paint on.
        shown: Filter of the objects; None for all.
    """

    def __init__(
        self,
        informer: SharedInformer,
        columns: Columns,
        title: str,
        screen: Screen,
        shown: Callable[[KubeObject], bool] | None = None,
    ) -> None:
        self._informer = informer
        self._columns = columns
        self._title = title
        self._screen = screen
        find = informer.indexer.get_by_key
        self._rows = TableRows(columns, find, rearranged=True)
        self._table = ColumnTable(columns.head)
        self._meter = RateMeter()
        self._keyboard = Keyboard(self.press)
        self._view = View(Arrangement(columns.head[0]))
        self._room = 0  # rows that fit, of the last frame
        self._pressed = asyncio.Event()
        self._resets = 0
        self._reset_at = -RESET_SECONDS
        self._registration = informer.add_event_handler(
            on_event=self._note, filter=shown, name="table"
        )

    async def show(self) -> None:
        """Paint after each key, and four times a second if something has changed.

        Returns after the key that ends the command. The informer must be synced.

        Raises:
            OSError: If writing fails.
            InformerStopped: If the informer ends before the first frame.

        Cancellation:
            Stops it, and restores the terminal.
        """
        await self._registration.wait_synced()
        try:
            with self._suspendable():
                while not self._view.closed:
                    # First, because a key may be pressed while it paints.
                    self._pressed.clear()
                    await self._paint()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(FRAME_SECONDS):
                            await self._pressed.wait()
        finally:
            self._keyboard.leave()
            self._screen.leave(self._summary())

    def press(self, key: str) -> None:
        """Change the view as by a key of the keyboard."""
        self._view = pressed(
            self._view,
            key,
            total=len(self._rows),
            room=self._room,
            columns=self._table.shown,
            scrollable=self._table.scrollable,
        )
        self._pressed.set()

    def _summary(self) -> str:
        objects = counted(self._rows.objects, "object")
        return f"{self._title}: {objects}, {counted(self._rows.events, 'event')}."

    def _note(self, event: Notification) -> None:
        self._rows.note(object_of(event), change_of(event), _now())

    async def _paint(self) -> None:
        self._keyboard.enter()
        self._rows.arrange(self._view.arrangement)
        while True:
            if self._rows.place(_now(), datetime.now(UTC)):
                break

            await asyncio.sleep(0)

        size = self._screen.size()
        lines = self._lines(size.columns, size.lines)
        await self._screen.paint(lines[: size.lines], size)

    def _lines(self, width: int, height: int) -> list[Text]:
        now, day, rows, view = _now(), datetime.now(UTC), self._rows, self._view
        lines = status_lines(self._title, self._health(now), width)
        # Beside the rows: the status, the column names, and the help.
        self._room = room = max(0, height - len(lines) - 2)
        # The table may have become shorter, or the terminal larger.
        view = replace(view, offset=min(view.offset, max(0, len(rows) - room)))
        shown = [
            (row.mark, self._columns.cells(row.obj, day))
            for row in rows.rows(
                view.offset, room, now, reverse=view.arrangement.reverse
            )
        ]
        table = self._table.draw(shown, width, view.arrangement, view.scrolled)
        lines += help_page(width)[: room + 1] if view.helping else table
        if not len(rows) and not view.helping:
            lines.append(Text(cut(self._why_empty(), width), "dim"))

        lines += [Text()] * (height - 1 - len(lines))
        helped = help_line(
            view,
            matching=rows.matching,
            objects=rows.objects,
            room=room,
            hidden=self._table.hidden,
            keys=self._keyboard.usable,
            width=width,
        )
        return [*lines, helped]

    def _why_empty(self) -> str:
        if self._rows.objects:
            return "  No object matches the filter."

        return f"  No {self._title} found, waiting for changes."

    def _health(self, now: float) -> InformerHealth:
        status = self._informer.status
        if status.history_resets > self._resets:
            self._resets, self._reset_at = status.history_resets, now

        return InformerHealth(
            status=status,
            objects=self._rows.objects,
            rate=self._meter.rate(now, self._rows.events),
            was_reset=now - self._reset_at < RESET_SECONDS,
        )

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
        self._keyboard.leave()
        self._screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)


def _now() -> float:
    return asyncio.get_running_loop().time()
