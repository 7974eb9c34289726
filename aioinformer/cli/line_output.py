"""Changes as lines, for pipes and files. The formats are pure: times are arguments."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, Protocol, assert_never

from aioinformer.cli.columns import fitted, line_of_cells, widened
from aioinformer.cli.error_messages import message_of, trouble_of
from aioinformer.cli.output import one_line, print_error, write
from aioinformer.errors import HistoryReset
from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioinformer.informer import InformerStatus, SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.tables.columns import Columns

__all__ = [
    "JSONLines",
    "LineFormat",
    "LineStream",
    "NameLines",
    "TableLines",
    "event_of",
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

    Args:
        columns: Columns of the objects.
        width: Width of the terminal, in cells, to cut cells and leave out columns that
            do not fit. None for a pipe or file.
    """

    def __init__(self, columns: Columns, width: int | None = None) -> None:
        self._columns = columns
        self._width = width
        self._widths: list[int] = []

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the lines for these changes, each with its end."""
        rows = [] if self._widths else [["EVENT", *self._columns.head]]
        for event in events:
            kind, obj = event_of(event)
            rows.append([kind, *self._columns.cells(obj, now)])

        for row in rows:
            self._widths = widened(self._widths, row)

        widths = self._widths
        if self._width is not None:
            widths = fitted(widths, self._width)

        lines = (line_of_cells(row, widths) for row in rows)
        return "".join(f"{line}\n" for line in lines)


class JSONLines:
    """Watch events as JSON, one per line, as the API sends them. Made for `jq`."""

    def of(self, events: Sequence[Notification], now: datetime) -> bytes:
        """Return the lines for these changes, each with its end."""
        del now
        pairs = (event_of(event) for event in events)
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
        names = (f"{self._kind}/{event_of(it)[1].name}" for it in events)
        return "".join(f"{one_line(name)}\n" for name in names)


def _in_one_line(obj: KubeObject) -> bytes:
    # Servers send one line, unless a proxy has reformatted it. Strings have no line ends.
    return obj.raw.replace(b"\n", b" ")


def event_of(event: Notification) -> tuple[str, KubeObject]:
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
        shown: Filter of the objects; None for all.
    """

    def __init__(
        self,
        informer: SharedInformer,
        lines: LineFormat,
        title: str,
        shown: Callable[[KubeObject], bool] | None = None,
    ) -> None:
        self._informer = informer
        self._lines = lines
        self._title = title
        self._events: asyncio.Queue[Notification] = asyncio.Queue()
        self._registration = informer.add_event_handler(
            on_event=self._events.put_nowait, filter=shown, name="lines"
        )

    async def show(self) -> NoReturn:
        """Write until cancelled. The informer must be synced.

        Raises:
            OSError: If writing to stdout fails.

        Cancellation:
            Stops it. Call `write_waiting()` to write the remaining events.
        """
        # So that the first columns are as wide as many rows need.
        await self._registration.wait_synced()
        if not self._events.qsize():
            print_error(f"no {self._title} found, waiting for changes")

        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_outages(), name="outages")
            while True:
                await self.write_waiting()
                await self._write([await self._events.get()])

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
        out, resets = False, 0
        while True:
            await asyncio.sleep(OUTAGE_CHECK_SECONDS)
            status = self._informer.status
            line = outage_line(status, was_out=out)
            if line:
                out = not out
                print_error(line)

            # After the line about the connection, in whatever order they happened.
            if status.history_resets > resets and not out:
                resets = status.history_resets
                print_error("the server was restored or replaced, listing again")


def outage_line(status: InformerStatus, *, was_out: bool) -> str:
    """Return the line for an outage that began or ended, or an empty string."""
    error = status.last_error if status.failures else None
    if isinstance(error, HistoryReset):
        return ""  # it has a line of its own

    if (error is not None) == was_out:
        return ""

    if error is None:
        return "connection restored"

    return f"{trouble_of(error)}, retrying: {message_of(error)}"
