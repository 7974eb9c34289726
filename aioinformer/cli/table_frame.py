"""Frames of the live table: the view that keys change, and its lines. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from aioinformer.cli.columns import GAP, cut, fitted, padded, widened
from aioinformer.cli.error_messages import trouble_of
from aioinformer.cli.output import counted
from aioinformer.cli.table_rows import BY_CHANGE, Arrangement
from aioinformer.model.times import human_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.cli.table_rows import ChangeMark
    from aioinformer.informer import InformerStatus

__all__ = [
    "OVERHEAD",
    "ColumnTable",
    "InformerHealth",
    "RateMeter",
    "View",
    "help_line",
    "pressed",
    "state_styles",
    "status_line",
]

OVERHEAD = 3
"""Lines beside the objects: the status, the column names, and the help."""

# ---------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True)
class View:
    """Part of the table that the user has chosen to see."""

    arrangement: Arrangement
    offset: int = 0
    """Index of the first visible row."""

    typing: bool = False
    """True while the filter is typed."""

    closed: bool = False
    """True after the key that ends the command."""


def pressed(
    view: View, key: str, *, total: int, room: int, columns: Sequence[str]
) -> View:
    """Return the view after a key; see `keys_in()` for the names of keys.

    Args:
        view: View before.
        key: Pressed key.
        total: Number of rows.
        room: Number of rows that fit.
        columns: Names of the columns, left to right.
    """
    moved = _moved(view.offset, key, total=total, room=room, letters=not view.typing)
    if moved is not None:
        return replace(view, offset=moved)

    chosen = view.arrangement
    match key:
        case "escape" if chosen.filter:
            return View(replace(chosen, filter=""))
        case "escape":
            return replace(view, typing=False)
        case "enter":
            return replace(view, typing=False)
        case "backspace" if view.typing:
            return replace(
                view, arrangement=replace(chosen, filter=chosen.filter[:-1]), offset=0
            )
        case _ if view.typing and len(key) == 1:
            longer = replace(chosen, filter=chosen.filter + key)
            return replace(view, arrangement=longer, offset=0)
        case "/":
            return replace(view, typing=True)
        case "s" | "S":
            step = 1 if key == "s" else -1
            return View(replace(chosen, sort=_next(chosen.sort, step, columns)))
        case "r":
            return View(replace(chosen, reverse=not chosen.reverse))
        case "q":
            return replace(view, closed=True)
        case _:
            return view


def _moved(
    offset: int, key: str, *, total: int, room: int, letters: bool
) -> int | None:
    """Return the offset after a key that scrolls, or None."""
    last = max(0, total - room)
    moved = {
        "up": offset - 1,
        "down": offset + 1,
        "page up": offset - max(1, room),
        "page down": offset + max(1, room),
        "home": 0,
        "end": last,
    }
    if letters:
        moved |= {"k": moved["up"], "j": moved["down"]}

    return min(max(0, moved[key]), last) if key in moved else None


def _next(sort: str, step: int, columns: Sequence[str]) -> str:
    choices = [*columns, BY_CHANGE]
    return choices[(choices.index(sort) + step) % len(choices)]


def help_line(
    view: View, *, total: int, room: int, hidden: int, keys: bool, width: int
) -> Text:
    """Return the last line: the visible part, and the keys.

    Args:
        view: Current view.
        total: Number of rows.
        room: Number of rows that fit.
        hidden: Number of columns that do not fit.
        keys: False without a keyboard.
        width: Width of the terminal, in cells.
    """
    chosen = view.arrangement
    if view.typing:
        line = Text(cut(f"/{chosen.filter}", max(0, width - 1)), "bold")
        line.append(" " if width else "", "reverse")
        rest = "   Enter keeps the filter, Esc clears it"
        return line.append(cut(rest, max(0, width - cell_len(line.plain))), "dim")

    parts = [f"{view.offset + 1:,}-{min(view.offset + room, total):,} of {total:,}"]
    if total <= room:
        parts = []

    if hidden:
        parts.append(f"{counted(hidden, 'column')} hidden")

    if chosen.filter:
        parts.append(f"filter: {chosen.filter} (Esc clears)")

    order = f"{chosen.sort} {'↓' if chosen.reverse else '↑'}"
    if keys:
        parts += ["q quit", f"s/r sort: {order}", "/ filter"]
        parts += ["↑↓ PgUp PgDn"] if total > room else []

    return Text(cut((" " * GAP).join(parts), width), "dim")


# ---------------------------------------------------------------- states

_DONE = re.compile(r"terminating|completed?\b|succeeded", re.IGNORECASE)
_BAD = re.compile(
    r"\berr|error|backoff|fail|killed|evicted|notready|lost|cannot|invalid|unknown|exceeded"
    r"|unhealthy|mismatch|unexpected",
    re.IGNORECASE,
)
_WAITING = re.compile(
    r"pending|creating|initializing|init:|waiting|disabled|warning|released|suspend"
    r"|gated",
    re.IGNORECASE,
)
_GOOD = re.compile(r"\b(running|ready|active|bound|available|healthy)", re.IGNORECASE)
_STYLES = (
    (_DONE, "bright_black"),
    (_BAD, "red"),
    (_WAITING, "yellow"),
    (_GOOD, "green"),
)


def state_styles(columns: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return the style of each cell of a row: a color for a state, or empty.

    A state that means work is green, one that passes by itself yellow, trouble red, and
    an object that has ended or ends is grey. Replicas that are not ready are yellow.
    """
    pairs = zip(columns, cells, strict=True)
    styles = [
        _state_style(cell) if name == "STATUS" or cell == "Warning" else ""
        for name, cell in pairs
    ]
    if "READY" in columns and "bright_black" not in styles:
        number = columns.index("READY")
        ready, _, wanted = cells[number].partition("/")
        styles[number] = "yellow" if wanted and ready != wanted else ""

    return styles


def _state_style(state: str) -> str:
    return next((style for words, style in _STYLES if words.search(state)), "")


# ---------------------------------------------------------------- the table

# Shows changes without colors, too.
_SIGNS: dict[ChangeMark, str] = {"": " ", "added": "+", "modified": "~", "deleted": "-"}

_MARKS: dict[ChangeMark, str] = {
    "": "",
    "added": "bold green",
    "modified": "bold yellow",
    "deleted": "dim red",
}

_GUTTER = 2


class ColumnTable:
    """Rows in columns. Columns never become narrower.

    Args:
        head: Names of the columns.
    """

    def __init__(self, head: Sequence[str]) -> None:
        self._head = list(head)
        self._widths = widened([], self._head)
        self.hidden: int = 0
        """Number of columns that did not fit."""

    def draw(
        self, rows: Sequence[tuple[ChangeMark, list[str]]], width: int
    ) -> list[Text]:
        """Return the header, and a line for each row, cut to `width` cells."""
        for _, cells in rows:
            self._widths = widened(self._widths, cells)

        widths = fitted(self._widths, max(0, width - _GUTTER))
        self.hidden = widths.count(0)
        head = Text("  ", "bold cyan")
        lines = [_filled(head, self._head, [""] * len(widths), widths, width)]
        for mark, cells in rows:
            line = Text(f"{_SIGNS[mark]} ", _MARKS[mark])
            styles = state_styles(self._head, cells)
            if mark == "deleted":
                styles = [""] * len(cells)  # a state that is over

            lines.append(_filled(line, cells, styles, widths, width))

        return lines


def _filled(
    line: Text,
    cells: Sequence[str],
    styles: Sequence[str],
    widths: Sequence[int],
    width: int,
) -> Text:
    """Append the cells of a row to a line."""
    for cell, style, room in zip(cells, styles, widths, strict=True):
        if room:
            line.append(padded(cut(cell, room), room), style or None)
            line.append(" " * GAP)

    line.rstrip()
    # The gutter may be wider than the terminal.
    return line if cell_len(line.plain) <= width else Text(cut(line.plain, width))


# ---------------------------------------------------------------- the status

# Long enough to be readable, and short enough to show changes.
METER_SECONDS = 3.0

# Ages up to this one are shown as "fresh".
_FRESH_SECONDS = 1.0


class RateMeter:
    """Rate of a growing total, over the last three seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def rate(self, now: float, total: int) -> float:
        """Record the total at a time, and return its growth per second."""
        self._marks.append((now, total))
        while len(self._marks) > 2 and now - self._marks[1][0] >= METER_SECONDS:
            self._marks.popleft()

        since, before = self._marks[0]
        return (total - before) / (now - since) if now > since else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerHealth:
    """Status of the informer, and its rate of changes."""

    status: InformerStatus
    objects: int
    rate: float
    """Changes per second."""

    was_reset: bool = False
    """True for a while after the server's history was reset."""


def status_line(title: str, health: InformerHealth, width: int) -> Text:
    """Return the status line: title, state of the informer, number and rate of changes.

    Trouble comes first, as the rest may be cut.
    """
    status = health.status
    rate = counted(round(health.rate), "event")
    counts = f"{counted(health.objects, 'object')}   {rate}/s"
    if status.failures and status.last_error is not None:
        age = "" if status.age is None else human_duration(status.age)
        trouble = trouble_of(status.last_error, age)
        return Text(cut(f"{trouble}   {title}   {counts}", width), "bold red")

    state = "synced" if status.synced else status.phase
    style = "bold"
    if health.was_reset:
        state, style = "relisted: the server was restored or replaced", "bold yellow"

    parts = [title, state, _freshness(status.age), counts]
    return Text(cut((" " * GAP).join(it for it in parts if it), width), style)


def _freshness(age: float | None) -> str:
    """Return the time since the last contact with the server, in words."""
    if age is None:
        return ""

    if age <= _FRESH_SECONDS:
        return "fresh"

    return f"quiet for {human_duration(age)}"
