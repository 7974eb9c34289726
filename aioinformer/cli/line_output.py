"""Changes as lines, for pipes and files. Pure: the time of day is given."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol, assert_never

import orjson

from aioinformer.cli.columns import line_of_cells, widened
from aioinformer.cli.error_messages import message_of
from aioinformer.cli.output import complain, one_line, write
from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.cli.columns import Columns
    from aioinformer.informer import InformerStatus, SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = [
    "JSONLines",
    "LineFormat",
    "LineStream",
    "NameLines",
    "TableLines",
    "outage_line",
]


class LineFormat(Protocol):
    """How changes are written."""

    def of(self, events: Sequence[Notification], now: datetime) -> str | bytes:
        """Return the lines for these changes, each with its end."""
        ...


class TableLines:
    """The rows of a table, each after the word for what happened.

    The names of the columns come first. Columns are as wide as what was in them so far.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths: list[int] = []

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the lines for these changes, each with its end."""
        rows = [] if self._widths else [["EVENT", *self._columns.head]]
        for event in events:
            word, obj = _told(event)
            rows.append([word, *self._columns.cells(obj, now)])

        for row in rows:
            self._widths = widened(self._widths, row)

        lines = (line_of_cells(row, self._widths) for row in rows)
        return "".join(f"{line}\n" for line in lines)


class JSONLines:
    """The events of a watch, one in a line, as the API writes them; made for `jq`."""

    def of(self, events: Sequence[Notification], now: datetime) -> bytes:
        """Return the lines for these changes, each with its end."""
        del now
        told = (_told(event) for event in events)
        return b"".join(
            b'{"type":"%b","object":%b}\n' % (word.encode(), _in_one_line(obj))
            for word, obj in told
        )


class NameLines:
    """The names of what has changed, as `kubectl -o name` writes them."""

    def __init__(self, resource: Resource) -> None:
        singular = resource.kind.lower() or resource.plural
        self._kind = f"{singular}.{resource.group}" if resource.group else singular

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the lines for these changes, each with its end."""
        del now
        names = (f"{self._kind}/{_told(it)[1].name}" for it in events)
        return "".join(f"{one_line(name)}\n" for name in names)


def _in_one_line(obj: KubeObject) -> bytes:
    # A server writes it so, unless something in between has made it pretty.
    return orjson.dumps(obj.to_dict()) if b"\n" in obj.raw else obj.raw


def _told(event: Notification) -> tuple[str, KubeObject]:
    """What happened, in the words of the Kubernetes API, and to what."""
    match event:
        case Added(obj=obj):
            return "ADDED", obj
        case Updated(new=obj):
            return "MODIFIED", obj
        case Deleted(obj=obj):
            return "DELETED", obj
        case _:
            assert_never(event)


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

    def __init__(self, informer: SharedInformer, lines: LineFormat, title: str) -> None:
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
        return f"out of contact, trying again: {message_of(status.last_error)}"

    return "in contact again"
