"""Processes for tests: started, read line by line, interrupted, always ended.

Their tests run in real time: mark them `realtime` and `looptime(False)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["PROMPT_SECONDS", "ROOT", "Finished", "Process", "in_real_time", "start"]

ROOT = Path(__file__).parents[2]

in_real_time = [pytest.mark.realtime, pytest.mark.looptime(False)]

# Much more than needed, so that only a hanging process fails.
PATIENCE_SECONDS = 90.0

# An immediate end takes about 0.1 s, and this at most on a busy machine. It is less
# than the timeouts of requests. Shorter waits, such as the grace period of handlers,
# are tested in virtual time.
PROMPT_SECONDS = 20.0


@dataclass(frozen=True)
class Finished:
    """End of a process."""

    status: int
    out: str
    err: str
    seconds: float
    """Time since the last signal, or since the call of `end()`."""


class Process:
    """A running process and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._seen: list[str] = []
        self._since = asyncio.get_running_loop().time()

    async def line(self, word: str) -> str:
        """Wait for a line of stdout that contains `word`."""
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while line := (await self._process.stdout.readline()).decode():
                    self._seen.append(line)
                    if word in line:
                        return line.rstrip("\n")

        raise AssertionError(f"no {word!r} in {self._seen}: {await self._abort()}")

    async def error_line(self) -> str:
        """Wait for the next line of stderr."""
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self._process.stderr.readline()).decode().rstrip("\n")

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal; the clock of `Finished.seconds` starts."""
        self._since = asyncio.get_running_loop().time()
        self._process.send_signal(number)

    @contextlib.asynccontextmanager
    async def interrupted(self) -> AsyncIterator[None]:
        """Interrupt it after a block, and wait for its end.

        A process with children has to end by itself: they would outlive it.
        """
        try:
            yield
        finally:
            self.interrupt()
            await self.end()

    async def end(self) -> Finished:
        """Wait for its end."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                # First, because cancelling `communicate()` would lose the data it has
                # read.
                status = await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"does not end: {await self._abort()}") from None

        seconds = asyncio.get_running_loop().time() - self._since
        out, err = await self._process.communicate()
        said = "".join(self._seen) + out.decode()
        return Finished(status, said, err.decode(), seconds)

    async def _abort(self) -> str:
        """Kill it, and return its output and its stack."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGABRT)

        out, err = await self._process.communicate()
        return f"{out.decode()}{err.decode()}"


@contextlib.asynccontextmanager
async def start(
    *command: str | Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """Start Python with these arguments, and kill it if it still runs at the end.

    It finds no kubeconfig but the one in `environment`, and shows all warnings.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KUBE", "PYTHON"))
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=ROOT,
        env={
            **clean,
            "HOME": str(ROOT / "tests"),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "always",
            **(environment or {}),
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
