"""Frames of the live table: the view that keys change, and its lines. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from aioinformer.cli.columns import (
    GAP,
    LEAST_WIDTH,
    NARROW_GAP,
    cut,
    fitted,
    fitting,
    padded,
    widened,
)
from aioinformer.cli.error_messages import message_of, trouble_of
from aioinformer.cli.output import counted
from aioinformer.errors import ApiError, HistoryReset
from aioinformer.model.times import human_duration
from aioinformer.tables.rows import BY_CHANGE, Arrangement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.informer import InformerStatus
    from aioinformer.tables.rows import ChangeMark

__all__ = [
    "ColumnTable",
    "InformerHealth",
    "RateMeter",
    "View",
    "help_line",
    "help_page",
    "pressed",
    "state_styles",
    "status_lines",
]

# ---------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True)
class View:
    """Part of the table that the user has chosen to see."""

    arrangement: Arrangement
    offset: int = 0
    """Index of the first visible row."""

    scrolled: int = 0
    """Number of columns scrolled out to the left."""

    typing: bool = False
    """True while the filter is typed."""

    helping: bool = False
    """True while the keys are shown instead of the rows."""

    closed: bool = False
    """True after the key that ends the command."""


def pressed(
    view: View,
    key: str,
    *,
    total: int,
    room: int,
    columns: Sequence[str],
    scrollable: int = 0,
) -> View:
    """Return the view after a key; see `keys_in()` for the names of keys.

    Args:
        view: View before.
        key: Pressed key.
        total: Number of rows.
        room: Number of rows that fit.
        columns: Names of the visible columns, left to right.
        scrollable: Number of columns that can be scrolled out.
    """
    if view.helping:
        return replace(view, helping=False, closed=key == "q")

    moved = _moved(view.offset, key, total=total, room=room, letters=not view.typing)
    if moved is not None:
        return replace(view, offset=moved)

    chosen = view.arrangement
    match key:
        case "left" | "right":
            step = 1 if key == "right" else -1
            scrolled = min(max(0, view.scrolled + step), scrollable)
            return replace(view, scrolled=scrolled)
        case "escape" if chosen.filter:
            return _arranged(replace(view, typing=False), filter="")
        case "escape" | "enter":
            return replace(view, typing=False)
        case "backspace" if view.typing:
            return _arranged(view, filter=chosen.filter[:-1])
        case _ if view.typing and len(key) == 1:
            return _arranged(view, filter=chosen.filter + key)
        case "/":
            return replace(view, typing=True)
        case "s" | "S":
            step = 1 if key == "s" else -1
            return _arranged(view, sort=_next(chosen.sort, step, columns))
        case digit if digit in _DIGITS[: len(columns)]:
            return _arranged(view, sort=columns[_DIGITS.index(digit)])
        case "r":
            return _arranged(view, reverse=not chosen.reverse)
        case "?":
            return replace(view, helping=True)
        case "q":
            return replace(view, closed=True)
        case _:
            return view


_DIGITS = tuple("123456789")


def _arranged(view: View, **changes: Any) -> View:
    """Return the view with another order or filter, from its first row."""
    return replace(view, arrangement=replace(view.arrangement, **changes), offset=0)


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
        letter = {"k": "up", "j": "down", " ": "page down", "g": "home", "G": "end"}
        key = letter.get(key, key)

    return min(max(0, moved[key]), last) if key in moved else None


def _next(sort: str, step: int, columns: Sequence[str]) -> str:
    choices = [*columns, BY_CHANGE]
    if sort not in choices:  # that column was scrolled out
        return choices[0 if step > 0 else -1]

    return choices[(choices.index(sort) + step) % len(choices)]


def help_line(
    view: View,
    *,
    matching: int,
    objects: int,
    room: int,
    hidden: int,
    keys: bool,
    width: int,
) -> Text:
    """Return the last line: the visible part, and the keys.

    Args:
        view: Current view.
        matching: Number of objects that the filter shows.
        objects: Number of all objects.
        room: Number of rows that fit.
        hidden: Number of columns that do not fit.
        keys: False without a keyboard.
        width: Width of the terminal, in cells.
    """
    chosen = view.arrangement
    if view.helping:
        return Text(cut("q quit   any other key closes this page", width), "dim")

    found = f"{matching:,} of {counted(objects, 'object')}" if chosen.filter else ""
    if view.typing:
        line = Text(cut(f"/{chosen.filter}", max(0, width - 1)), "bold")
        line.append(" " if width else "", "reverse")
        parts = ["", found, "Enter keeps the filter, Esc clears it"]
        rest = _joined(it for it in parts if it or it is parts[0])
        return line.append(cut(rest, max(0, width - cell_len(line.plain))), "dim")

    parts = []
    if matching > room:
        # Deleted rows are shown for a moment, and not counted.
        last = min(view.offset + room, matching)
        every = f" ({counted(objects, 'object')})" if found else ""
        parts.append(f"{min(view.offset + 1, last):,}-{last:,} of {matching:,}{every}")
    elif found:
        parts.append(found)

    parts += ["q quit", "? keys"] if keys else []
    if chosen.filter:
        parts.append(f"filter: {chosen.filter} (Esc clears)")
    elif keys:
        parts.append("/ filter")

    if keys:
        parts.append(f"sort: {chosen.sort} {'↓' if chosen.reverse else '↑'}")

    if hidden:
        parts.append(f"←→ {hidden} hidden" if keys else f"{hidden} columns hidden")

    return Text(cut(_joined(parts), width), "dim")


_KEYS = (
    ("↑ ↓ k j", "scroll a row"),
    ("PgUp PgDn Space", "scroll a page"),
    ("Home End g G", "show the first or last rows"),
    ("← →", "scroll the columns"),
    ("s S", "sort by the next or previous column, or the last change"),
    ("1 ... 9", "sort by this visible column"),
    ("r", "reverse the order"),
    ("/ and words, Enter", "show only rows with all the words"),
    ("Esc", "show all rows"),
    ("Ctrl-Z, q, Ctrl-C", "suspend, quit"),
    ("", ""),
    ("+ ~ -", "row was added, modified or deleted in the last 2 seconds"),
    ("▲ ▼", "column that sorts the rows, ascending or descending"),
    ("fresh", "the server sent something in the last second"),
    ("quiet for 3s", "the server sent nothing for 3 seconds, and no request fails"),
)


def help_page(width: int) -> list[Text]:
    """Return the lines that explain the keys and the signs."""
    return [Text(cut(f"  {key:<20}{meaning}", width)) for key, meaning in _KEYS]


def _joined(parts: Iterable[str]) -> str:
    return (" " * GAP).join(parts)


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

    The first columns name the object, and stay when the others scroll. On a narrow
    terminal, the namespace is left out before the status.

    Args:
        head: Names of the columns.
    """

    def __init__(self, head: Sequence[str]) -> None:
        self._head = list(head)
        self._names = 2 if self._head[0] == "NAMESPACE" else 1
        self._widths = widened([], self._head)
        self.shown: list[str] = self._head
        """Names of the visible columns."""

        self.scrollable: int = 0
        """Number of columns that can be scrolled out."""

    @property
    def hidden(self) -> int:
        """Number of columns that are scrolled out or do not fit."""
        return len(self._head) - len(self.shown)

    def draw(
        self,
        rows: Sequence[tuple[ChangeMark, list[str]]],
        width: int,
        arrangement: Arrangement,
        scrolled: int = 0,
    ) -> list[Text]:
        """Return the header, and a line for each row, cut to `width` cells.

        Args:
            rows: Change and cells of each row.
            width: Width of the terminal.
            arrangement: Order to mark in the header.
            scrolled: Number of columns to scroll out, if so many can be.
        """
        for _, cells in rows:
            self._widths = widened(self._widths, cells)

        room = max(0, width - _GUTTER)
        columns, gap = self._columns(room, scrolled)
        found = fitted([self._widths[it] for it in columns], room, gap)
        widths = {it: size for it, size in zip(columns, found, strict=True) if size}
        self.shown = [self._head[it] for it in widths]

        lines = [Text(cut(self._header(widths, gap, arrangement), width), "bold cyan")]
        for mark, cells in rows:
            line = Text(f"{_SIGNS[mark]} ", _MARKS[mark])
            styles = state_styles(self._head, cells)
            if mark == "deleted":
                styles = [""] * len(cells)  # a state that is over

            for number, size in widths.items():
                text = padded(cut(cells[number], size), size)
                line.append(text, styles[number] or None)
                line.append(" " * gap)

            line.rstrip()
            # The gutter may be wider than the terminal.
            fits = cell_len(line.plain) <= width
            lines.append(line if fits else Text(cut(line.plain, width)))

        return lines

    def _columns(self, room: int, scrolled: int) -> tuple[list[int], int]:
        """Return the columns to show as far as they fit, and the gap between them."""
        every = list(range(len(self._head)))
        gap = GAP
        if sum(self._widths) + GAP * (len(every) - 1) > room:
            gap = NARROW_GAP

        names, rest = every[: self._names], every[self._names :]
        state = every[self._head.index("STATUS")] if "STATUS" in self._head else 0
        if fitting(self._widths, room, gap) <= state:
            names = names[-1:]

        # Fewest columns to scroll out until the last one is visible.
        self.scrollable = next(
            (
                number
                for number in range(len(rest))
                if self._fit([*names, *rest[number:]], room, gap)
            ),
            max(0, len(rest) - 1),
        )
        return [*names, *rest[min(scrolled, self.scrollable) :]], gap

    def _fit(self, columns: list[int], room: int, gap: int) -> bool:
        return fitting([self._widths[it] for it in columns], room, gap) == len(columns)

    def _header(
        self, widths: dict[int, int], gap: int, arrangement: Arrangement
    ) -> str:
        line = " " * _GUTTER
        for number, size in widths.items():
            name = self._head[number]
            if name == arrangement.sort:
                # In the gap, so that no column becomes wider.
                line = f"{line[:-1]}{'▼' if arrangement.reverse else '▲'}"

            line += padded(cut(name, size), size) + " " * gap

        return line.rstrip()


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


def status_lines(title: str, health: InformerHealth, width: int) -> list[Text]:
    """Return the status: title, state of the informer, number and rate of changes.

    In an outage, a second line has the reason. The title is cut before the rest, and
    the freshness comes last, as a narrow terminal may cut it.
    """
    status, error = health.status, health.status.last_error
    objects = counted(health.objects, "object")
    if status.failures and error is not None:
        age = f" for {human_duration(status.age)}" if status.age is not None else ""
        trouble = f"{trouble_of(error)}{age}"
        if isinstance(error, ApiError):
            trouble += f": {error.status} {error.reason}".rstrip()

        lines = [Text(_status(title, [trouble, objects], width), "bold red")]
        if not isinstance(error, HistoryReset):
            lines.append(Text(cut(f"retrying: {message_of(error)}", width), "red"))

        return lines

    state = "synced" if status.synced else status.phase
    style = "bold"
    if health.was_reset:
        state, style = "relisted (server reset)", "bold yellow"

    rate = f"{counted(round(health.rate), 'event')}/s"
    parts = [state, objects, rate, _freshness(status.age)]
    return [Text(_status(title, [it for it in parts if it], width), style)]


def _status(title: str, parts: list[str], width: int) -> str:
    rest = _joined(["", *parts])
    return cut(cut(title, max(LEAST_WIDTH, width - cell_len(rest))) + rest, width)


def _freshness(age: float | None) -> str:
    """Return the time since the last contact with the server, in words."""
    if age is None:
        return ""

    if age <= _FRESH_SECONDS:
        return "fresh"

    return f"quiet for {human_duration(age)}"
