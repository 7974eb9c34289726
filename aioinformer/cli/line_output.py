"""Changes as lines, for pipes and files. The formats are pure: times are arguments."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol, assert_never

from aioinformer import json_codec
from aioinformer.cli.columns import line_of_cells, widened
from aioinformer.cli.error_messages import message_of
from aioinformer.cli.output import one_line, print_error, write
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
    """Format of changes as lines."""

    def of(self, events: Sequence[Notification], now: datetime) -> str | bytes:
        """Return the lines for these changes, each with its end."""
        ...


class TableLines:
    """Rows of a table, each after its event type.

    The first line has the names of the columns. Columns never become narrower.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths: list[int] = []

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the lines for these changes, each with its end."""
        rows = [] if self._widths else [["EVENT", *self._columns.head]]
        for event in events:
            kind, obj = _event_of(event)
            rows.append([kind, *self._columns.cells(obj, now)])

        for row in rows:
            self._widths = widened(self._widths, row)

        lines = (line_of_cells(row, self._widths) for row in rows)
        return "".join(f"{line}\n" for line in lines)


class JSONLines:
    """Watch events as JSON, one per line, as the API sends them. Made for `jq`."""

    def of(self, events: Sequence[Notification], now: datetime) -> bytes:
        """Return the lines for these changes, each with its end."""
        del now
        pairs = (_event_of(event) for event in events)
        return b"".join(
            b'{"type":"%b","object":%b}\n' % (kind.encode(), _in_one_line(obj))
            for kind, obj in pairs
        )


class NameLines:
    """Names of changed objects, as `kubectl -o name` prints them."""

    def __init__(self, resource: Resource) -> None:
        singular = resource.kind.lower() or resource.plural
        self._kind = f"{singular}.{resource.group}" if resource.group else singular

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the lines for these changes, each with its end."""
        del now
        names = (f"{self._kind}/{_event_of(it)[1].name}" for it in events)
        return "".join(f"{one_line(name)}\n" for name in names)


def _in_one_line(obj: KubeObject) -> bytes:
    # Servers send one line, unless a proxy has reformatted it.
    return json_codec.dumps(obj.to_dict()) if b"\n" in obj.raw else obj.raw


def _event_of(event: Notification) -> tuple[str, KubeObject]:
    """Return the event type of the Kubernetes API, and the object."""
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


# Lines written before other tasks get a turn.
LINES_AT_ONCE = 250


class LineStream:
    """Output of a line for each object and for each change.

    Args:
        informer: Informer to add a handler to, before its start.
        lines: Format of the lines.
        title: Short description, such as `"pods in shop"`.
    """

    def __init__(self, informer: SharedInformer, lines: LineFormat, title: str) -> None:
        self._informer = informer
        self._lines = lines
        self._title = title
        self._events: asyncio.Queue[Notification] = asyncio.Queue()
        informer.add_event_handler(on_event=self._events.put_nowait, name="lines")

    async def show(self) -> NoReturn:
        """Write until cancelled. The informer must be synced.

        Raises:
            OSError: If writing to stdout fails.

        Cancellation:
            Stops it. Call `write_waiting()` to write the remaining events.
        """
        if not self._informer.store:
            print_error(f"no {self._title} found, waiting for changes")

        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_outages(), name="outages")
            while True:
                await self._write([await self._events.get()])
                await self.write_waiting()

    async def write_waiting(self) -> None:
        """Write the waiting events.

        Raises:
            OSError: If writing to stdout fails.

        Cancellation:
            Some of the lines may be written.
        """
        while count := min(self._events.qsize(), LINES_AT_ONCE):
            await self._write([self._events.get_nowait() for _ in range(count)])
            await asyncio.sleep(0)

    async def _write(self, events: list[Notification]) -> None:
        await write(self._lines.of(events, datetime.now(UTC)))

    async def _report_outages(self) -> NoReturn:
        out = False
        while True:
            await asyncio.sleep(OUTAGE_CHECK_SECONDS)
            line = outage_line(self._informer.status, was_out=out)
            if line:
                out = not out
                print_error(line)


def outage_line(status: InformerStatus, *, was_out: bool) -> str:
    """Return the line for an outage that began or ended, or an empty string."""
    out = status.failures > 0 and status.last_error is not None
    if out == was_out:
        return ""

    if status.last_error is not None and out:
        return f"connection lost, retrying: {message_of(status.last_error)}"

    return "connection restored"
