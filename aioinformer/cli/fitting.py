"""Text in the cells of a terminal: what is too long is cut, nothing ever wraps. Pure.

A cell is the room of one narrow character; wide ones, such as Chinese, take two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from aioinformer.cli.output import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GAP", "cut", "fitted", "line_of_cells", "printable", "widened"]

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
