"""`Screen`: frames of lines on the terminal of stdout, drawn by rich."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from aioinformer.cli.output import (
    Control,
    one_line,
    terminal_size,
    write,
    write_now,
)
from aioinformer.tables.columns import harmless

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["Screen"]

# A terminal may disagree about the width of a character. A line stays one line then.
_NO_WRAPPING = "\x1b[?7l"
_WRAPPING = "\x1b[?7h"


class Screen:
    """Alternate screen of the terminal, so that the contents before are restored.

    rich draws into a buffer, because a write to a paused terminal would block the loop.

    Args:
        colors: False for bold and faint only.
    """

    def __init__(self, *, colors: bool) -> None:
        self._drawn = io.StringIO()
        self._console = Console(
            file=self._drawn,
            force_terminal=True,
            color_system="standard",
            no_color=not colors,
        )
        # Refreshed here: rich would start a thread, and replace stdout.
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._frame: object = None

    def size(self) -> os.terminal_size:
        """Return the current number of columns and lines."""
        return terminal_size()

    async def paint(self, lines: Sequence[Text], size: os.terminal_size) -> None:
        """Show lines from the top, unless they are shown already.

        Args:
            lines: Lines, at most as many as the terminal has, and not wider.
            size: Size of the terminal.

        Raises:
            OSError: If writing fails, for example because the terminal was closed.

        Cancellation:
            Safe. Call `leave()`, as always.
        """
        # Texts are equal although their own styles differ.
        frame = (size, [(it.plain, it.style, it.spans) for it in lines])
        if frame == self._frame:
            return

        if not self._live.is_started:
            self._live.start()
            self._drawn.write(_NO_WRAPPING)

        self._console.size = ConsoleDimensions(*size)
        self._live.update(Group(*map(_safe, lines)), refresh=True)
        self._frame = frame
        await write(self._taken())

    def leave(self, last_line: str = "") -> None:
        """Restore the terminal, and print a line; no effect before `paint()`.

        The next `paint()` takes the terminal again.

        Raises:
            OSError: If writing fails.
        """
        if self._live.is_started:
            self._frame = None
            self._drawn.write(_WRAPPING)
            self._live.stop()
            # Not asynchronous: after Ctrl-C the terminal is needed at once.
            write_now(self._taken(), f"{one_line(last_line)}\n" if last_line else "")

    def _taken(self) -> Control:
        """Return what was drawn: sequences of rich, and texts of `_safe()`."""
        drawn = Control(self._drawn.getvalue())
        self._drawn.seek(0)
        self._drawn.truncate()
        return drawn


def _safe(line: Text) -> Text:
    return line if line.plain.isprintable() else Text(harmless(line.plain))
