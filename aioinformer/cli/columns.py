"""Widths of columns on a terminal. Pure.

They are in cells, the width of a narrow character. Wide ones, such as Chinese, take two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from aioinformer.tables.columns import ELLIPSIS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "GAP",
    "LEAST_WIDTH",
    "NARROW_GAP",
    "cut",
    "fitted",
    "fitting",
    "line_of_cells",
    "padded",
    "widened",
]

GAP = 3
"""Cells between two columns, as in kubectl."""

NARROW_GAP = 2
"""Cells between two columns on a terminal that is too narrow for all of them."""

LEAST_WIDTH = 12
"""Minimum width of a column that is cut. Shorter ones say too little."""


def cut(text: str, width: int) -> str:
    """Cut a text to `width` cells, ending in an ellipsis."""
    if cell_len(text) <= width:
        return text

    if width <= 1:
        return ELLIPSIS[:width]

    pieces = chop_cells(text, width - 1)
    return f"{pieces[0]}{ELLIPSIS}"


def widened(widths: Sequence[int], cells: Sequence[str]) -> list[int]:
    """Return the widths of columns after one more row. They never shrink.

    Args:
        widths: Widths so far, in cells, for the known columns.
        cells: Cells of the row.
    """
    known = [*widths, *[0] * (len(cells) - len(widths))]
    return [max(width, cell_len(it)) for width, it in zip(known, cells, strict=True)]


def fitting(widths: Sequence[int], room: int, gap: int = GAP) -> int:
    """Return how many of the first columns a line of `room` cells can show, at least one.

    Columns may be cut down to 12 cells.
    """
    count = len(widths)
    while count > 1 and _taken(_limited(widths[:count], LEAST_WIDTH), gap) > room:
        count -= 1

    return count


def fitted(widths: Sequence[int], room: int, gap: int = GAP) -> list[int]:
    """Return the widths of columns in a line of `room` cells.

    The widest columns are cut first, down to 12 cells. If that is not enough, the last
    columns get no width and are left out.

    Args:
        widths: Widths of the whole columns.
        room: Width of the line.
        gap: Cells between two columns.

    Example:
        >>> fitted([7, 40, 5], room=40)
        [7, 22, 5]
        >>> fitted([6, 6, 6], room=15)
        [6, 6, 0]
    """
    count = fitting(widths, room, gap)
    shown = widths[:count]
    most = min(max(shown, default=0), room)
    while most > 0 and _taken(_limited(shown, most), gap) > room:
        most -= 1

    cut_off = _limited(shown, most)
    for number, width in enumerate(shown):
        if width > most and _taken(cut_off, gap) < room:
            cut_off[number] += 1  # the remainder of equal cuts

    return cut_off + [0] * (len(widths) - count)


def line_of_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row as a line, with each cell cut and padded to its column."""
    shown = [(it, width) for it, width in zip(cells, widths, strict=True) if width]
    parts = (padded(cut(it, width), width) for it, width in shown)
    return (" " * GAP).join(parts).rstrip()


def padded(text: str, width: int) -> str:
    """Return a text of `width` cells, with blanks at the end."""
    return text + " " * (width - cell_len(text))


def _limited(widths: Sequence[int], most: int) -> list[int]:
    return [min(width, most) for width in widths]


def _taken(widths: Sequence[int], gap: int) -> int:
    """Return the width of a line with these columns."""
    shown = [width for width in widths if width]
    return sum(shown) + gap * max(0, len(shown) - 1)
