"""`Terminal`: a screen of lines on stdout, of which only those that differ are written.

It uses the alternate screen, so that what was on the terminal before is there again
afterwards, and turns wrapping off, so that a line stays one line whatever the terminal
thinks of the width of a character.
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

__all__ = ["ScreenLine", "Style", "Terminal", "can_be_live", "has_colours"]

Style = Literal["", "title", "head", "quiet", "trouble", "added", "modified", "deleted"]
"""What a line is, which decides how it looks."""

# SGR parameters of ECMA-48: 1 bold, 2 faint, 7 inverse, 3x the basic colours.
_COLOURED: dict[Style, str] = {
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

# What a terminal is taken for that does not tell its size.
_USUAL_SIZE = os.terminal_size((80, 24))


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One line, not wider than the terminal, and without control characters."""

    text: str
    style: Style = ""


def can_be_live(environment: Mapping[str, str]) -> bool:
    """Say whether stdout is a terminal on which lines can be written anywhere."""
    return sys.stdout.isatty() and environment.get("TERM", "") not in {"", "dumb"}


def has_colours(environment: Mapping[str, str]) -> bool:
    """Say whether colours are wanted: not if NO_COLOR is set (https://no-color.org)."""
    return not environment.get("NO_COLOR")


class Terminal:
    """The terminal of stdout, as a screen to be painted.

    Args:
        colours: False for bold and faint only.
    """

    def __init__(self, *, colours: bool) -> None:
        self._codes = _COLOURED if colours else _PLAIN
        self._entered = False
        self._size = os.terminal_size((0, 0))
        self._painted: list[ScreenLine] = []

    def size(self) -> os.terminal_size:
        """Return its columns and lines, as they are now."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return _USUAL_SIZE

        return size if size.columns and size.lines else _USUAL_SIZE

    async def paint(self, lines: Sequence[ScreenLine], size: os.terminal_size) -> None:
        """Show these lines, from the top; those that are shown already are not written.

        Args:
            lines: Not more than the terminal has.
            size: What they were made for. If it is another one than before, all is
                written anew.

        Raises:
            OSError: The terminal is gone.

        Cancellation:
            Safe: `leave()` must follow, as always.
        """
        start = [] if self._entered else [_ENTER]
        if size != self._size or not self._entered:
            start.append(_CLEAR)
            self._painted = []

        changes = self._changes(lines, size.columns)
        self._entered, self._size, self._painted = True, size, list(lines)
        if start or changes:
            await write(*start, *changes)

    def leave(self, last_words: str = "") -> None:
        """Show what was there before, and a line; nothing if nothing has been painted.

        The next `paint()` writes all of it again.

        Raises:
            OSError: The terminal is gone.
        """
        if self._entered:
            self._entered = False
            # Short, and not to wait: whoever pressed Ctrl-C wants the terminal back.
            write_now(_LEAVE, f"{one_line(last_words)}\n" if last_words else "")

    def _changes(self, lines: Sequence[ScreenLine], columns: int) -> list[str]:
        """What to write so that the screen shows these lines."""
        nothing = ScreenLine("")
        missing = len(self._painted) - len(lines)
        wanted = [*lines, *[nothing] * missing]
        parts: list[str] = []
        for number, line in enumerate(wanted):
            before = self._painted[number] if number < len(self._painted) else nothing
            if line != before:
                parts.append(Control(f"\x1b[{number + 1}H"))
                parts += self._written(line, columns)

        return parts

    def _written(self, line: ScreenLine, columns: int) -> list[str]:
        # Erasing behind a full line would take its last character.
        erase = [_TO_END_OF_LINE] if cell_len(line.text) < columns else []
        code = self._codes.get(line.style)
        if not code:
            return [line.text, *erase]

        return [Control(f"\x1b[{code}m"), line.text, _NO_STYLE, *erase]
