"""`Terminal`: a screen of lines on stdout. Only changed lines are written.

It uses the alternate screen, so that the previous contents are restored at the end. It
turns wrapping off, so that a line stays one line even if the terminal disagrees about
the width of a character.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

from aioinformer.cli.output import Control, one_line, write, write_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ScreenLine", "Style", "Terminal", "can_be_live", "has_colors"]

Style = Literal["", "title", "head", "quiet", "trouble", "added", "modified", "deleted"]
"""Style of a line."""

# SGR parameters of ECMA-48: 1 bold, 2 faint, 7 inverse, 3x the basic colors.
_COLORED: dict[Style, str] = {
    "title": "1",
    "head": "1;36",
    "quiet": "2",
    "trouble": "1;31",
    "added": "32",
    "modified": "33",
    "deleted": "31",
}
_PLAIN: dict[Style, str] = {
    "title": "1",
    "head": "1",
    "quiet": "2",
    "trouble": "1;7",
    "added": "1",
    "modified": "1",
    "deleted": "2",
}

_ENTER = Control(
    "\x1b[?1049h\x1b[?25l\x1b[?7l"
)  # alternate screen, no cursor, no wrapping
_LEAVE = Control("\x1b[?7h\x1b[?25h\x1b[?1049l")
_CLEAR = Control("\x1b[2J")
_TO_END_OF_LINE = Control("\x1b[K")
_NO_STYLE = Control("\x1b[m")

# Assumed for terminals of unknown size.
_DEFAULT_SIZE = os.terminal_size((80, 24))


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """Line that fits the terminal and has no control characters."""

    text: str
    style: Style = ""


def can_be_live(environment: Mapping[str, str]) -> bool:
    """Return True if stdout is a terminal with cursor movement."""
    return sys.stdout.isatty() and environment.get("TERM", "") not in {"", "dumb"}


def has_colors(environment: Mapping[str, str]) -> bool:
    """Return False if NO_COLOR is set (https://no-color.org)."""
    return not environment.get("NO_COLOR")


class Terminal:
    """Screen on the terminal of stdout.

    Args:
        colors: False for bold and faint only.
    """

    def __init__(self, *, colors: bool) -> None:
        self._codes = _COLORED if colors else _PLAIN
        self._entered = False
        self._size = os.terminal_size((0, 0))
        self._painted: list[ScreenLine] = []

    def size(self) -> os.terminal_size:
        """Return the current number of columns and lines."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return _DEFAULT_SIZE

        return size if size.columns and size.lines else _DEFAULT_SIZE

    async def paint(self, lines: Sequence[ScreenLine], size: os.terminal_size) -> None:
        """Show lines from the top, and write only those that have changed.

        Args:
            lines: Lines, at most as many as the terminal has.
            size: Size of the terminal. If it has changed, all lines are written.

        Raises:
            OSError: If writing fails, for example because the terminal was closed.

        Cancellation:
            Safe. Call `leave()`, as always.
        """
        start = [] if self._entered else [_ENTER]
        if size != self._size or not self._entered:
            start.append(_CLEAR)
            self._painted = []

        changes = self._changes(lines, size.columns)
        self._entered, self._size, self._painted = True, size, list(lines)
        if start or changes:
            await write(*start, *changes)

    def leave(self, last_line: str = "") -> None:
        """Restore the terminal, and print a line; no effect before `paint()`.

        The next `paint()` writes all lines.

        Raises:
            OSError: If writing fails.
        """
        if self._entered:
            self._entered = False
            # Not asynchronous: after Ctrl-C the terminal is needed at once.
            write_now(_LEAVE, f"{one_line(last_line)}\n" if last_line else "")

    def _changes(self, lines: Sequence[ScreenLine], columns: int) -> list[str]:
        """Return the output that changes the screen to these lines."""
        empty = ScreenLine("")
        missing = len(self._painted) - len(lines)
        new_lines = [*lines, *[empty] * missing]
        parts: list[str] = []
        for number, line in enumerate(new_lines):
            before = self._painted[number] if number < len(self._painted) else empty
            if line != before:
                parts.append(Control(f"\x1b[{number + 1}H"))
                parts += self._written(line, columns)

        return parts

    def _written(self, line: ScreenLine, columns: int) -> list[str]:
        # Erasing after a full line would remove its last character.
        erase = [_TO_END_OF_LINE] if cell_len(line.text) < columns else []
        code = self._codes.get(line.style)
        if not code:
            return [line.text, *erase]

        return [Control(f"\x1b[{code}m"), line.text, _NO_STYLE, *erase]
