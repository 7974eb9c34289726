"""The live table of `aioinformer watch`: it performs what board, columns and frame say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from aioinformer.cli.board import Board
from aioinformer.cli.frame import OVERHEAD, Health, Table, draw
from aioinformer.cli.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.cli.columns import Columns
    from aioinformer.cli.terminal import Line, Terminal
    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification

__all__ = ["LiveTable"]

FRAME_SECONDS = 0.25


class LiveTable:
    """Shows what an informer has, and marks what has changed, until it is cancelled.

    Args:
        informer: Not yet started; it is given a handler.
        columns: Of its objects.
        title: What is watched, in few words.
        terminal: Where.
    """

    def __init__(
        self, informer: SharedInformer, columns: Columns, title: str, terminal: Terminal
    ) -> None:
        self._informer = informer
        self._columns = columns
        self._title = title
        self._terminal = terminal
        self._board = Board(informer.store)
        self._table = Table(columns.head)
        self._meter = Meter()
        informer.add_event_handler(on_event=self._note, name="table")

    async def show(self) -> NoReturn:
        """Paint four times a second; what does not differ is not written.

        Raises:
            OSError: The terminal is gone.

        Cancellation:
            The way to end it; the terminal is left as it was before.
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
        return f"{self._title}: {objects:,} objects, {self._board.events:,} events."

    def _note(self, event: Notification) -> None:
        self._board.note(event, _now())

    def _lines(self, width: int, height: int) -> list[Line]:
        now, board = _now(), self._board
        room = max(0, height - OVERHEAD)
        total = board.total(now)
        if total > room:
            room = max(0, room - 1)  # the last line says how many more there are

        day = datetime.now(UTC)
        shown = board.choose(room, now)
        rows = [(it.mark, self._columns.cells(it.obj, day)) for it in shown]
        there = sum(it.mark != "deleted" for it in shown)
        objects = len(self._informer.store)
        health = Health(
            status=self._informer.status,
            objects=objects,
            rate=self._meter.rate(now, board.events),
        )
        table = self._table.draw(rows, width)
        return draw(self._title, health, table, more=objects - there, width=width)

    @contextlib.contextmanager
    def _suspendable(self) -> Iterator[None]:
        """Let Ctrl-Z give the terminal back; the first frame after `fg` takes it again."""
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
