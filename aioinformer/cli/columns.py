"""What a table shows of each resource: the columns of kubectl, without asking a server.

They are computed from the cached object, by the rules of a real server, which the API
server of `aioinformer.testing` has, too. Pure: the time of day is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from aioinformer.cli.output import harmless
from aioinformer.tables import layout_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioinformer.model import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["GAP", "Columns", "cut", "fitted", "line_of_cells", "printable", "widened"]


class Columns:
    """The columns of one resource. Custom resources have a name and an age.

    A Secret or ConfigMap shows how many keys it has, and nothing of what they hold.

    Args:
        resource: Whose objects are shown.
        wide: With the columns that kubectl shows for `-o wide` only.
        namespaces: With the namespace in front.
    """

    def __init__(self, resource: Resource, *, wide: bool, namespaces: bool) -> None:
        layout = layout_of(resource)
        self._cells = layout.cells
        self._namespaces = namespaces
        self._shown = [
            number
            for number, column in enumerate(layout.columns)
            if wide or not column.priority
        ]
        names = [layout.columns[number].name.upper() for number in self._shown]
        self.head = ["NAMESPACE", *names] if namespaces else names
        """The names of the columns, left to right."""

    def cells(self, obj: KubeObject, now: datetime) -> list[str]:
        """Return the row of an object: as many texts as there are columns.

        Nothing in them commands a terminal, and none has more than one line.
        """
        values = self._cells(obj.to_dict(), now)
        found = [values[number] for number in self._shown]
        if self._namespaces:
            found.insert(0, obj.namespace)

        return ["" if it is None else printable(str(it)) for it in found]


GAP = 3


"""Cells between two columns, as kubectl has them."""


ELLIPSIS = "…"


# A column that is cut keeps so much, as long as others can give.
LEAST_WIDTH = 6


def printable(text: str) -> str:
    """Return the first line of a text, without what would command the terminal.

    Whoever writes an event's message must not be able to move somebody's cursor.
    """
    first, _, rest = text.partition("\n")
    first = harmless(first.rstrip("\r"))
    return f"{first}{ELLIPSIS}" if rest else first


def cut(text: str, width: int) -> str:
    """Return the text in at most `width` cells; an ellipsis stands for what is cut."""
    if cell_len(text) <= width:
        return text

    if width <= 1:
        return ELLIPSIS[:width]

    pieces = chop_cells(text, width - 1)
    return f"{pieces[0]}{ELLIPSIS}"


def widened(widths: Sequence[int], cells: Sequence[str]) -> list[int]:
    """Return the widths of columns after one more row: none becomes smaller.

    Args:
        widths: So far, in cells; shorter than the row where columns were unknown.
        cells: The row.
    """
    known = [*widths, *[0] * (len(cells) - len(widths))]
    return [max(width, cell_len(it)) for width, it in zip(known, cells, strict=True)]


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths that columns get in a line of `room` cells.

    The widest give first, down to 6 cells; where that is not enough, the last columns
    get nothing. A column of no width is left out.

    Example:
        >>> fitted([7, 40, 5], room=40)
        [7, 22, 5]
        >>> fitted([6, 6, 6], room=15)
        [6, 6, 0]
    """
    most = min(max(widths, default=0), room)
    while most > LEAST_WIDTH and _taken(_limited(widths, most)) > room:
        most -= 1

    fitting = _limited(widths, most)
    for number, width in enumerate(widths):
        if width > most and _taken(fitting) < room:
            fitting[number] += 1  # what remains when all of them gave the same

    while _taken(fitting) > room and len([it for it in fitting if it]) > 1:
        last = max(number for number, width in enumerate(fitting) if width)
        fitting[last] = 0

    return fitting


def line_of_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row as a line: each cell cut and padded to its column, the last not padded."""
    shown = [(it, width) for it, width in zip(cells, widths, strict=True) if width]
    parts = (_padded(cut(it, width), width) for it, width in shown)
    return (" " * GAP).join(parts).rstrip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _limited(widths: Sequence[int], most: int) -> list[int]:
    return [min(width, max(most, LEAST_WIDTH)) for width in widths]


def _taken(widths: Sequence[int]) -> int:
    """The cells that a line of such columns takes."""
    shown = [width for width in widths if width]
    return sum(shown) + GAP * max(0, len(shown) - 1)
