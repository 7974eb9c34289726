"""What the demo shows: a frame of figures, drawn as a table or as a line. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

__all__ = ["Frame", "Row", "draw_line", "draw_table", "draw_verdict"]

# What is wrong in the end is named up to here; the rest is counted.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One informer, at one moment."""

    name: str
    phase: str
    objects: int
    events: int
    """Notifications delivered so far."""

    rate: float
    """Of them, in a second."""

    age: float | None
    """Seconds since the server was last heard of; None if it never was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything that is shown, at one moment."""

    seconds: float
    """Since the caches were synced."""

    rows: tuple[Row, ...]
    changes: int
    """Made on the server by the workload."""

    depth: int
    """Keys that wait in the work queue."""

    reconciles: int
    reconcile_rate: float
    writes: int
    retries: int


def draw_line(frame: Frame) -> str:
    """One line of plain text."""
    parts = [f"{frame.seconds:5.1f} s"]
    parts += [
        f"{row.name} {row.objects} ({row.rate:.0f} events/s, {row.phase}, "
        f"age {_age(row.age)})"
        for row in frame.rows
    ]
    parts.append(f"queue {frame.depth}")
    parts.append(f"reconciles {frame.reconciles} ({frame.reconcile_rate:.0f}/s)")
    parts.append(f"retries {frame.retries}")
    return "  ".join(parts)


def draw_table(frame: Frame, *, width: int) -> Table:
    """A table for a terminal; where that is narrow, without the lesser columns.

    Args:
        frame: What to show.
        width: The columns of the terminal.
    """
    table = Table(
        title=f"aioinformer demo, {frame.seconds:.0f} s",
        title_justify="left",
        caption=(
            f"{frame.changes} changes on the server; queue {frame.depth}; "
            f"{frame.reconciles} reconciles ({frame.reconcile_rate:.0f}/s), "
            f"{frame.writes} writes, {frame.retries} retries. Ctrl-C ends it."
        ),
        caption_justify="left",
    )
    rows = [_cells(row) for row in frame.rows]
    shown = _fitting(rows, width)
    for name in shown:
        left = name in _LEFT
        table.add_column(
            name,
            justify="left" if left else "right",
            min_width=min(_WIDTHS[name], width),
            overflow="fold",
        )

    for row in rows:
        style = "green" if row["phase"] == "watching" else "yellow"
        styles = {"phase": style}
        table.add_row(*(Text(row[name], styles.get(name, "")) for name in shown))

    return table


# How wide the columns are at least, so that they do not jump; in the order of display.
_WIDTHS = {
    "informer": 10,
    "phase": 11,
    "objects": 8,
    "events": 8,
    "events/s": 8,
    "age": 8,
}
_LEFT = {"informer", "phase"}

# Which of them go first where there is no room: the last.
_IMPORTANCE = ("informer", "objects", "phase", "age", "events/s", "events")

# A border and a blank on each side; and one more border.
_FRAME_OF_COLUMN = 3


def _cells(row: Row) -> dict[str, str]:
    return {
        "informer": row.name,
        "phase": row.phase,
        "objects": str(row.objects),
        "events": str(row.events),
        "events/s": f"{row.rate:.0f}",
        "age": _age(row.age),
    }


def _fitting(rows: list[dict[str, str]], width: int) -> list[str]:
    """The columns there is room for, in the order of display; one at least."""
    room = width - 1
    fitting: list[str] = []
    for name in _IMPORTANCE:
        longest = max(len(row[name]) for row in rows)
        room -= max(_WIDTHS[name], longest) + _FRAME_OF_COLUMN
        if fitting and room < 0:
            break

        fitting.append(name)

    return [name for name in _WIDTHS if name in fitting]


def draw_verdict(found: list[str], *, pods: int, apps: int) -> str:
    """The last line: whether all is as it should be.

    Args:
        found: What is not: a phrase for each.
        pods: How many are in the cache.
        apps: How many config maps are.
    """
    if not found:
        return (
            f"The caches equal the server's state: {pods} pods, {apps} config maps; "
            "every count is right."
        )

    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"Not as it should be: {'; '.join(found[:NAMED])}{more}."


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"
