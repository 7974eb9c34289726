"""Changes as lines, for pipes and files. Pure: the time of day is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

import orjson

from aioinformer.cli.fitting import line_of_cells, widened
from aioinformer.cli.output import one_line
from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioinformer.cli.columns import Columns
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["JSONLines", "Lines", "NameLines", "TableLines"]


class Lines(Protocol):
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
