"""The live table of `watch` as lines: a status line, the table, and what has no room. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.cli.explain import explain
from aioinformer.cli.fitting import GAP, cut, fitted, line_of_cells, widened
from aioinformer.cli.terminal import Line
from aioinformer.model.times import human_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.cli.board import Mark
    from aioinformer.informer import InformerStatus

__all__ = ["OVERHEAD", "Health", "Table", "draw", "status_line"]

OVERHEAD = 2
"""Lines that are not of objects: the status, and the names of the columns."""

# So that a change is also seen without colours.
_SIGNS: dict[Mark, str] = {"": " ", "added": "+", "modified": "~", "deleted": "-"}
_GUTTER = 2

# Up to here what is shown is called fresh; the seconds behind it change too often.
_FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the informer is doing, and how much happens."""

    status: InformerStatus
    objects: int
    rate: float
    """Changes in a second."""


class Table:
    """Rows in columns, which do not become narrower while the table is shown.

    Args:
        head: The names of the columns.
    """

    def __init__(self, head: Sequence[str]) -> None:
        self._head = list(head)
        self._widths = widened([], self._head)

    def draw(self, rows: Sequence[tuple[Mark, list[str]]], width: int) -> list[Line]:
        """Return the names of the columns, and a line for each row, `width` cells wide."""
        for _, cells in rows:
            self._widths = widened(self._widths, cells)

        widths = fitted(self._widths, max(0, width - _GUTTER))
        lines = [Line(cut(f"  {line_of_cells(self._head, widths)}", width), "head")]
        for mark, cells in rows:
            text = f"{_SIGNS[mark]} {line_of_cells(cells, widths)}".rstrip()
            lines.append(Line(cut(text, width), mark))

        return lines


def draw(
    title: str, health: Health, table: list[Line], *, more: int, width: int
) -> list[Line]:
    """Return the whole screen.

    Args:
        title: What is watched.
        health: For the status line.
        table: As `Table.draw()` gives it.
        more: How many objects are not in it, for want of room.
        width: Of the terminal, in cells.
    """
    lines = [status_line(title, health, width), *table]
    if more:
        text = f"  … {more:,} more; the last changed ones are at the top. -n and -l show less."
        lines.append(Line(cut(text, width), "quiet"))

    return lines


def status_line(title: str, health: Health, width: int) -> Line:
    """Return the first line: what is watched, whether that can be trusted, what happens.

    What is wrong comes before everything else, as there may be no room for both.
    """
    status = health.status
    counts = f"{health.objects:,} objects   {health.rate:.0f} events/s"
    if status.failures and status.last_error is not None:
        trouble = f"out of contact{_for(status.age)}, trying again: {explain(status.last_error)}"
        return Line(cut(f"{trouble}   {title}   {counts}", width), "trouble")

    parts = [
        title,
        "synced" if status.synced else status.phase,
        _freshness(status.age),
        counts,
    ]
    return Line(cut((" " * GAP).join(it for it in parts if it), width), "title")


def _for(age: float | None) -> str:
    return "" if age is None else f" for {human_duration(age)}"


def _freshness(age: float | None) -> str:
    """How long ago the server was last heard of, in words."""
    if age is None:
        return ""

    if age <= _FRESH_SECONDS:
        return "fresh"

    return f"quiet for {human_duration(age)}"
