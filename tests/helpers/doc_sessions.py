"""A simulated reader: writes the files of a page, types its commands, and compares."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Self

from doc_blocks import said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from doc_blocks import Block

__all__ = ["Reader", "files_of"]

# Much more than needed, so that only a hanging command fails.
PATIENCE_SECONDS = 40.0

# The commands of a reader run with the tests' own Python.
PROGRAMS = {
    "aioinformer": "-m aioinformer",
    "pytest": "-p no:cacheprovider",
    "python": "",
    "uvicorn": "-m uvicorn",
}

_FILE = re.compile(
    r"`([\w.-]+\.(?:go|py|toml|yaml))`[^`\n]*:\n\n```\w+\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def files_of(text: str) -> dict[str, str]:
    """Return the files that a page has its reader write: text by name."""
    return dict(_FILE.findall(text))


class Reader:
    """Types commands in a folder, and ends running ones on exit.

    Args:
        folder: Working directory.
        lasting: Prefixes of commands that run until the end, in a separate terminal.
        instead: Replacements in commands and output, such as ports.
    """

    def __init__(
        self, folder: Path, lasting: Sequence[str], instead: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._lasting = tuple(lasting)
        self._instead = instead
        self._running: list[asyncio.subprocess.Process] = []
        self._environment = {
            name: it
            for name, it in os.environ.items()
            if not name.startswith(("KUBE", "PYTHON", "PYTEST"))
        }
        self._environment |= {
            "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }

    async def __aenter__(self) -> Self:
        programs = self._folder / "bin"
        programs.mkdir()
        for name, options in PROGRAMS.items():
            module = f"-m {name} {options}" if name == "pytest" else options
            script = f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n'
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)

        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._running):
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await process.wait()

            if process.returncode is None:
                process.kill()
                await process.wait()

    async def follow(self, block: Block) -> None:
        """Type the commands of a `console` block and compare their output.

        Raises:
            AssertionError: The output differs.
        """
        for command, shown in said(block):
            await self._type(self._as_mine(command), self._as_mine(shown))

    async def _type(self, command: str, shown: str) -> None:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value.replace("$PWD", str(self._folder))
            return

        lasts = command.startswith(self._lasting)
        output = self._folder / f"output-{len(self._running)}"
        with output.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                "bash",
                "-c",
                f"exec {command}" if lasts else command,
                cwd=self._folder,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=asyncio.subprocess.STDOUT,
            )

        self._running.append(process)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while lasts and not answers(output.read_text(), shown, so_far=True):
                    assert process.returncode is None, output.read_text()
                    await asyncio.sleep(0.05)

                if not lasts:
                    await process.wait()
        except TimeoutError:
            raise AssertionError(f"{command}: {output.read_text()}") from None

        answer = output.read_text()
        assert answers(answer, shown, so_far=lasts), f"{command}: {answer}"

    def _as_mine(self, text: str) -> str:
        for shown, mine in self._instead.items():
            text = text.replace(shown, mine)

        return text


def answers(answer: str, shown: str, *, so_far: bool = False) -> bool:
    """Return whether output matches; `...` matches anything, and spaces may be wider.

    Args:
        answer: Printed output.
        shown: Output on the page.
        so_far: True if more output may follow.
    """
    parts = [re.escape(" ".join(it.split())) for it in shown.split("...")]
    pattern = r"\s?.*?\s?".join(parts).replace(r"\ ", r"\s+")
    text = " ".join(answer.split())
    match = re.match if so_far else re.fullmatch
    return match(pattern, text, re.DOTALL) is not None
