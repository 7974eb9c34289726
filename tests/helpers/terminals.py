"""Runs of the command in a pseudo terminal, with an emulator for the screen.

The emulator (pyte) shows what a user would see.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
from typing import TYPE_CHECKING, Any

import pyte
from processes import PATIENCE_SECONDS, ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

__all__ = ["InTerminal", "in_terminal"]

# A session of its own whose terminal is stdin: so Ctrl-C and Ctrl-Z reach it as signals.
_START = """if True:
    import fcntl, os, sys, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    command = "from aioinformer.cli.main import main; main()"
    os.execv(sys.executable, [sys.executable, "-c", command, *sys.argv[1:]])
"""


class InTerminal:
    """A command that runs in a terminal."""

    def __init__(
        self, process: asyncio.subprocess.Process, master: int, screen: pyte.Screen
    ) -> None:
        self._process = process
        self._master = master
        self._stream = pyte.ByteStream(screen)
        self._told = asyncio.Event()
        self.screen = screen
        self.raw_settings: list[Any] = []
        """Settings of the terminal at the last press of a key."""

        self.written = b""
        """All that it has written so far."""

    @property
    def settings(self) -> list[Any]:
        """Return the settings of the terminal, such as echo."""
        return termios.tcgetattr(self._master)

    @property
    def lines(self) -> list[str]:
        """Return the lines of the screen, top to bottom."""
        return [line.rstrip() for line in self.screen.display]

    async def shows(self, is_shown: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen matches; return it."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_shown(self.lines):
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            raise AssertionError("\n".join(self.lines)) from None

        return self.lines

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal, as dragging its window does."""
        self.screen.resize(lines, columns)
        _set_size(self._master, columns, lines)

    def press(self, key: bytes) -> None:
        """Press a key."""
        self.raw_settings = self.settings
        os.write(self._master, key)

    async def resume(self) -> None:
        """Resume it after Ctrl-Z, as `fg` does, once it has stopped.

        It restores the terminal first. A signal before the stop would be lost.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._has_stopped():
                await asyncio.sleep(0.01)

        self._process.send_signal(signal.SIGCONT)

    def _has_stopped(self) -> bool:
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    async def end(self) -> int:
        """Wait for its end; return the exit status."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._process.wait()

    def read(self) -> None:
        """Read its output; called by the loop."""
        try:
            data = os.read(self._master, 65536)
        except OSError:  # on Linux: the terminal is closed on the other side
            asyncio.get_running_loop().remove_reader(self._master)
            return

        self.written += data
        self._stream.feed(data)
        self._told.set()


@contextlib.asynccontextmanager
async def in_terminal(
    *arguments: str,
    columns: int = 80,
    lines: int = 24,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[InTerminal]:
    """Run the command with these arguments, and kill it if it still runs at the end."""
    master, slave = os.openpty()
    _set_size(master, columns, lines)
    usual = {it: os.environ[it] for it in ("PATH", "HOME") if it in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _START,
        *arguments,
        cwd=ROOT,
        env={**usual, "TERM": "xterm-256color", **(environment or {})},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    running = InTerminal(process, master, pyte.Screen(columns, lines))
    loop = asyncio.get_running_loop()
    loop.add_reader(master, running.read)
    try:
        yield running
    finally:
        loop.remove_reader(master)
        os.close(master)
        if process.returncode is None:
            process.kill()
            await process.wait()


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    size = struct.pack("HHHH", lines, columns, 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)
