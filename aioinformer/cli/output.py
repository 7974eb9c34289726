"""All output of the command: the only module that writes to stdout and stderr.

Names, messages and errors come from a server. A control character in one could clear
the screen, set the title, or forge a line. So every text is sanitized here. Only
`Control` is written unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

from aioinformer.tables.columns import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = [
    "Control",
    "SafeFormatter",
    "can_be_live",
    "counted",
    "crashed",
    "has_colors",
    "one_line",
    "print_error",
    "print_text",
    "terminal_size",
    "write",
    "write_now",
]

# PIPE_BUF: a pipe that is ready takes at least as much at once.
PIECE_BYTES = 4096

# Assumed for terminals of unknown size.
_DEFAULT_SIZE = os.terminal_size((80, 24))


class Control(str):
    """Control sequences of this command or of rich, around harmless text.

    Joining or formatting it with other text gives a plain `str`, which is sanitized.
    """

    __slots__ = ()


def one_line(text: str) -> str:
    """Sanitize a text, and replace its line ends by blanks."""
    return harmless(text.replace("\r\n", " ").replace("\n", " "))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `"1 object"`, `"2,000 objects"`."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def has_colors(environment: Mapping[str, str]) -> bool:
    """Return False if NO_COLOR is set (https://no-color.org)."""
    return not environment.get("NO_COLOR")


def can_be_live(environment: Mapping[str, str]) -> bool:
    """Return True if stdout is a terminal with cursor movement."""
    return sys.stdout.isatty() and environment.get("TERM", "") not in {"", "dumb"}


def terminal_size() -> os.terminal_size:
    """Return the current number of columns and lines of the terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _DEFAULT_SIZE

    return size if size.columns and size.lines else _DEFAULT_SIZE


async def write(*parts: str | bytes) -> None:
    """Write to stdout, without blocking the loop on a paused reader.

    A pipe whose reader has paused (`| less`) accepts no more data. A plain write would
    block in the kernel, where Ctrl-C cannot end it.

    Args:
        *parts: Texts, `Control` and JSON. Texts are sanitized, and encoded as stdout
            is, with ASCII signs or `?` for characters that its encoding lacks.
            `Control` and bytes, which are JSON, are written unchanged. On a terminal,
            control characters in JSON strings are escaped.

    Raises:
        OSError: If writing fails. `BrokenPipeError` if the reader has ended.

    Cancellation:
        Ends it between two pieces of 4 KiB, or while the reader pauses.
    """
    descriptor = sys.stdout.fileno()
    rest = memoryview(_encoded(parts))
    while rest:
        await _ready(descriptor)
        rest = rest[os.write(descriptor, rest[:PIECE_BYTES]) :]


def write_now(*parts: str) -> None:
    """Write a short text to stdout at once, as `write()` does.

    Raises:
        OSError: If writing fails.
    """
    os.write(sys.stdout.fileno(), _encoded(parts))


def print_text(text: str) -> None:
    """Print sanitized lines on stdout, and flush."""
    print(harmless(text), flush=True)


def print_error(line: str) -> None:
    """Print one sanitized line on stderr, prefixed with the name of the command."""
    print(f"aioinformer: {one_line(line)}", file=sys.stderr, flush=True)


def crashed(
    kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    """Print the traceback of a bug on stderr, as a `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, at))
    print(harmless(text), end="", file=sys.stderr, flush=True)


class SafeFormatter(logging.Formatter):
    """Formatter of sanitized log records: a line each, and tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """Return the line."""
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it."""
        return harmless(super().format(record))


def _encoded(parts: tuple[str | bytes, ...]) -> bytes:
    found = []
    for part in parts:
        match part:
            case bytes():
                found.append(_visible(part) if _on_terminal() else part)
            case Control():
                found.append(_in_encoding(part, sys.stdout.encoding))
            case _:
                found.append(_in_encoding(harmless(part), sys.stdout.encoding))

    return b"".join(found)


# Our own signs, for encodings without them. All are one cell wide.
_ASCII_SIGNS = str.maketrans("▲▼↑↓←→…", "^v^v<>.")


def _in_encoding(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII_SIGNS).encode(encoding, "replace")


def _on_terminal() -> bool:
    return os.isatty(sys.stdout.fileno())


def _visible(document: bytes) -> bytes:
    """Return equivalent JSON without characters that control a terminal.

    Outside of strings there are only blanks and line ends.
    """
    text = document.decode("utf-8", "replace")
    lines = (it if it.isprintable() else _escaped(it) for it in text.split("\n"))
    return "\n".join(lines).encode(sys.stdout.encoding, "replace")


def _escaped(line: str) -> str:
    blank = line.replace("\t", " ").replace("\r", " ")
    return "".join(it if it.isprintable() else _as_json_escapes(it) for it in blank)


def _as_json_escapes(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


async def _ready(descriptor: int) -> None:
    """Wait until a file descriptor is writable.

    Files always are, and no loop can wait for them. Nor for some devices on macOS.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_writer(descriptor, ready.set)
    except OSError:
        return

    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)
