"""All output of the command: the only module that writes to stdout and stderr.

Names, messages and errors come from a server. A control character in one could clear the
screen, set the title, or forge a line. So every text is made harmless here, on its way
out: only `Control` reaches a terminal as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "Control",
    "SafeFormatter",
    "complain",
    "crashed",
    "harmless",
    "one_line",
    "say",
    "write",
    "write_now",
]

# POSIX's PIPE_BUF, at the least: a pipe that is ready takes as much at once.
PIECE_BYTES = 4096


class Control(str):
    """Control sequence of our own, made of constants and numbers.

    Whatever is joined or formatted with other text is a plain `str` again, and harmless
    when it is written.
    """

    __slots__ = ()


def harmless(text: str) -> str:
    """Replace all that commands a terminal by U+FFFD; lines stay lines.

    That is everything `str.isprintable()` denies: control characters of both sets (ESC,
    BEL, CSI), marks of direction, separators, surrogates, and unassigned characters.
    """
    if text.replace("\n", "").isprintable():
        return text

    return "".join(
        it if it.isprintable() or it == "\n" else "\N{REPLACEMENT CHARACTER}"
        for it in text
    )


def one_line(text: str) -> str:
    """Return the text without what commands a terminal, line ends included."""
    return harmless(text.replace("\r\n", " ").replace("\n", " "))


async def write(*parts: str | bytes) -> None:
    """Write all of it to stdout, without blocking the loop on a paused reader.

    A pipe whose reader has paused (`| less`) takes nothing more, and a plain write would
    wait for it in the kernel, where Ctrl-C cannot end it.

    Args:
        *parts: Texts are made harmless, and encoded as stdout is; a character that its
            encoding lacks is `?`. `Control` is written as it is. Bytes are JSON, and
            written as they are, too; only on a terminal what would command it is
            escaped inside of the strings.

    Raises:
        OSError: Stdout cannot be written to; `BrokenPipeError` if nobody reads it any
            more.

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
        OSError: Stdout cannot be written to.
    """
    os.write(sys.stdout.fileno(), _encoded(parts))


def say(text: str) -> None:
    """Print lines on stdout, harmless ones, and flush: a pipe sees them at once."""
    print(harmless(text), flush=True)


def complain(line: str) -> None:
    """Print one harmless line on stderr, with the name of the command in front."""
    print(f"aioinformer: {one_line(line)}", file=sys.stderr, flush=True)


def crashed(
    kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    """Print the traceback of a bug on stderr; made for `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, at))
    print(harmless(text), end="", file=sys.stderr, flush=True)


class SafeFormatter(logging.Formatter):
    """Formats log records for a terminal: one harmless line each, and tracebacks."""

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
                found.append(part.encode())
            case _:
                found.append(harmless(part).encode(sys.stdout.encoding, "replace"))

    return b"".join(found)


def _on_terminal() -> bool:
    return os.isatty(sys.stdout.fileno())


def _visible(document: bytes) -> bytes:
    """Return JSON that means the same, and has no characters that command a terminal.

    Outside of strings there are none but blanks and line ends.
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
    """Wait until it takes something.

    Files always do, and no loop can wait for them; macOS says so of some devices, too.
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
