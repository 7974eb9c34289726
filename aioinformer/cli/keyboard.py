"""Keys pressed on the terminal of stdin."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keyboard", "keys_in"]

# A terminal sends a sequence at once. A lone Escape is the key.
ESCAPE_SECONDS = 0.05

# The first are function keys of the Linux console, the second all control sequences.
_KEY = re.compile(r"\x1b\[\[[A-E]|\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[A-Za-z]|.", re.DOTALL)
_INCOMPLETE = re.compile(r"\x1b(?:\[\[|\[[0-?]*[ -/]*|O)?\Z")

# Terminals differ in the sequences of Home and End, and in the code of Backspace.
_NAMES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
    "7~": "home",
    "8~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}


def keys_in(text: str) -> tuple[list[str], str]:
    """Return the keys in terminal input, and the rest: an incomplete sequence.

    Keys are printable characters and `"up"`, `"down"`, `"left"`, `"right"`, `"page up"`,
    `"page down"`, `"home"`, `"end"`, `"enter"`, `"escape"` and `"backspace"`. Others are
    left out.

    Example:
        >>> keys_in("j" + chr(27) + "[5~")
        (['j', 'page up'], '')
    """
    match = _INCOMPLETE.search(text)
    rest = match.group() if match else ""
    found = _KEY.findall(text.removesuffix(rest))
    return [key for it in found if (key := _name(it))], rest


def _name(code: str) -> str:
    if code.isprintable():
        return code

    sequence = code.removeprefix("\x1b[").removeprefix("\x1bO")
    return _NAMES.get(sequence or code, "")


class Keyboard:
    """Keys of the terminal of stdin, one by one and without echo.

    Ctrl-C and Ctrl-Z remain signals. Without a terminal there are no keys.

    Args:
        on_key: Function called with each key; see `keys_in()`.
    """

    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key = on_key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._escape: asyncio.TimerHandle | None = None
        # Terminal settings to restore, while the keyboard is in use.
        self._before: list[Any] | None = None

    @property
    def usable(self) -> bool:
        """True if stdin is a terminal."""
        return sys.stdin is not None and sys.stdin.isatty()

    def enter(self) -> None:
        """Read keys from now on. Idempotent."""
        if self._before is not None or not self.usable:
            return

        descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor, termios.TCSANOW)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def leave(self) -> None:
        """Restore the settings of the terminal. Idempotent."""
        if self._before is None:
            return

        descriptor, before = sys.stdin.fileno(), self._before
        self._before = None
        self._forget_escape()
        asyncio.get_running_loop().remove_reader(descriptor)
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 1024)
        except OSError:
            data = b""

        if not data:
            # The terminal was closed, and would be readable forever.
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return

        self._forget_escape()
        keys, self._rest = keys_in(self._rest + self._decoder.decode(data))
        for key in keys:
            self._on_key(key)

        if self._rest:
            loop = asyncio.get_running_loop()
            self._escape = loop.call_later(ESCAPE_SECONDS, self._press_escape)

    def _press_escape(self) -> None:
        rest, self._rest, self._escape = self._rest, "", None
        if rest == "\x1b":
            self._on_key("escape")

    def _forget_escape(self) -> None:
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
