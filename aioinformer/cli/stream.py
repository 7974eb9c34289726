"""The lines of `aioinformer watch`: changes on stdout; on stderr what else is to be told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from aioinformer.cli.explain import explain
from aioinformer.cli.output import complain, write

if TYPE_CHECKING:
    from aioinformer.cli.lines import Lines
    from aioinformer.informer import InformerStatus, SharedInformer
    from aioinformer.informer.notifications import Notification

__all__ = ["LineStream", "outage_line"]

OUTAGE_CHECK_SECONDS = 1.0

# After so many lines at once everything else has a turn.
LINES_AT_ONCE = 250


class LineStream:
    """Writes a line for each object there is, then one for each change.

    Args:
        informer: Not yet started; it is given a handler.
        lines: How they look.
        title: What is watched, such as `"pods in shop"`.
    """

    def __init__(self, informer: SharedInformer, lines: Lines, title: str) -> None:
        self._informer = informer
        self._lines = lines
        self._title = title
        self._events: asyncio.Queue[Notification] = asyncio.Queue()
        informer.add_event_handler(on_event=self._events.put_nowait, name="lines")

    async def show(self) -> NoReturn:
        """Write until cancelled; the informer is synced.

        Raises:
            OSError: Stdout cannot be written to.

        Cancellation:
            The way to end it; what waits can be written by `write_waiting()`.
        """
        if not self._informer.store:
            complain(f"there are no {self._title} yet")

        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_outages(), name="outages")
            while True:
                await self._write([await self._events.get()])
                await self.write_waiting()

    async def write_waiting(self) -> None:
        """Write what has come by now.

        Raises:
            OSError: Stdout cannot be written to.

        Cancellation:
            Of the lines at hand some may be written.
        """
        while count := min(self._events.qsize(), LINES_AT_ONCE):
            await self._write([self._events.get_nowait() for _ in range(count)])
            await asyncio.sleep(0)

    async def _write(self, events: list[Notification]) -> None:
        await write(self._lines.of(events, datetime.now(UTC)))

    async def _tell_outages(self) -> NoReturn:
        out = False
        while True:
            await asyncio.sleep(OUTAGE_CHECK_SECONDS)
            line = outage_line(self._informer.status, was_out=out)
            if line:
                out = not out
                complain(line)


def outage_line(status: InformerStatus, *, was_out: bool) -> str:
    """What to tell of an outage that began or ended; empty if neither did."""
    out = status.failures > 0 and status.last_error is not None
    if out == was_out:
        return ""

    if status.last_error is not None and out:
        return f"out of contact, trying again: {explain(status.last_error)}"

    return "in contact again"
