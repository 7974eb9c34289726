"""Base of the contestants written in Python, with the protocol of `bench.contestant`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
import traceback
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Contestants are started as scripts, whose import path has only their own folder.
sys.path.append(str(Path(__file__).parents[1]))

from bench.digest import digest_of_lines, line
from bench.resident import forget_peak, memory, resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "CA_FILE",
    "TOKEN",
    "Fields",
    "PeerProgram",
    "Unsupported",
    "digest_of",
    "parser_of",
    "run_program",
]

Fields = tuple[str, str, str, str, str, str]
"""Fields of a pod: namespace, name, uid, version, node, phase."""

# Credentials of a real server.
TOKEN = os.environ.get("BENCH_TOKEN")
CA_FILE = os.environ.get("BENCH_CA")

DIGITS_OF_A_TIME = len("1000000000000000000")
"""Length from which a version is a time in nanoseconds."""

# Created in advance, so that it takes no memory later; without a proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Unsupported(Exception):
    """The library has no usual way to do what was requested."""


class PeerProgram(ABC):
    """Program that copies all pods, and reports its progress.

    A subclass makes the copy, and calls `begin()`, `listed()`, `seen()` and `fail()`.

    Args:
        options: Arguments parsed by `parser_of`.
    """

    watches = 1
    """Number of watches that it opens."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running = 0  # count of a handler that reads phases
        self._loop = asyncio.get_running_loop()
        self._all_listed = asyncio.Event()
        self._all_seen = asyncio.Event()
        self._failure = self._loop.create_future()
        self._objects = 0
        self._missing = 0
        self._latencies: list[float] = []
        # Times of `time.perf_counter()`.
        self._begun = self._listed = self._over = 0.0

    # ------------------------------------------------------------ for subclasses

    @abstractmethod
    async def copy(self) -> None:
        """Copy all pods until cancelled."""

    @abstractmethod
    def contents(self) -> Iterable[Fields]:
        """Return the contents of the copy."""

    def prepare_relist(self) -> None:
        """Prepare for a watch that expires; the following list is measured.

        Raises:
            Unsupported: The library does not list then.
        """
        forget_peak()

    # ------------------------------------------------------------ reports

    def begin(self) -> None:
        """Report that everything is imported and created, before the first request."""
        report("start", resident=resident())
        self._begun = time.perf_counter()

    def listed(self, objects: int) -> None:
        """Report that the handler has seen the whole first list. Only the first call counts.

        May be called from any thread.
        """
        if not self._listed:
            self._listed = time.perf_counter()
            self._objects = objects
            self._loop.call_soon_threadsafe(self._all_listed.set)

    def fail(self, error: Exception) -> None:
        """Report an error that the library ignores. No effect once the list is complete.

        May be called from any thread.
        """
        if not self._listed:
            self._loop.call_soon_threadsafe(self._fail, error)

    def seen(self, version: str) -> None:
        """Report that the handler got a change; always from the same thread."""
        if len(version) >= DIGITS_OF_A_TIME:
            self._latencies.append((time.time_ns() - int(version)) / 1e6)

        self._missing -= 1
        if not self._missing:
            self.over()

    def over(self) -> None:
        """Report that all expected changes were received."""
        self._over = time.perf_counter()
        self._loop.call_soon_threadsafe(self._all_seen.set)

    def expect(self, changes: int) -> None:
        """Prepare for a number of changes."""
        self._missing = changes
        self._latencies = []
        self._all_seen.clear()

    async def ready(self) -> None:
        """Wait until the memory of the listed pods can be measured."""
        await self._all_listed.wait()

    def digest(self) -> str:
        """Return the digest of the copy."""
        return digest_of(self.contents())

    # ------------------------------------------------------------ the run

    async def run(self) -> None:
        """Copy, and measure what the options request.

        Raises:
            ExceptionGroup: Errors of the library.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._copy_on()),
                group.create_task(self._failed()),
            ]
            await self.ready()
            took = self._listed - self._begun
            report("synced", seconds=took, objects=self._objects, resident=resident())
            if self.options.events:
                await self._watch(self.options.events)

            if self.options.relist:
                await self._relist(self.options.relist)

            report("end", digest=self.digest())
            for task in tasks:
                task.cancel()

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _failed(self) -> None:
        await self._failure

    async def _copy_on(self) -> None:
        await self.copy()
        raise Unsupported("the watch has ended, and the library does not resume it")

    async def _watch(self, events: int) -> None:
        self.expect(events)
        begun = time.perf_counter()
        await self._command(f"/bench/go?watches={self.watches}")
        await self._all_seen.wait()
        took = self._over - begun
        latencies, self._latencies = self._latencies, []
        report(
            "watched",
            seconds=took,
            events=events,
            resident=resident(),
            latencies=latencies,
        )

    async def _relist(self, changes: int) -> None:
        self.expect(changes)
        self.prepare_relist()
        begun = time.perf_counter()
        await self._command(f"/bench/relist?changed={self.options.changed}")
        await self._all_seen.wait()
        took = self._over - begun
        peak = memory("VmHWM")  # before garbage is released
        report("relisted", seconds=took, resident=resident(), peak=peak)

    async def _command(self, path: str) -> None:
        await asyncio.to_thread(send_command, self.options.url + path)


def digest_of(held: Iterable[Fields]) -> str:
    """Return the digest of pods."""
    return digest_of_lines(line(*fields) for fields in held)


def send_command(url: str) -> None:
    """Send a command to the canned server."""
    with OPENER.open(url) as response:
        response.read()


# ---------------------------------------------------------------- a process


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser with the options of every contestant.

    Args:
        doc: Docstring of the script.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n", 1)[0])
    parser.add_argument("url")
    parser.add_argument(
        "--events", type=int, default=0, help="number of changes to request"
    )
    parser.add_argument("--body", action="store_true", help="index nodes, read phases")
    parser.add_argument("--relist", type=int, default=0, help="changes of a relist")
    parser.add_argument("--changed", type=float, default=1.0, help="their share")
    parser.add_argument(
        "--loop", choices=["asyncio", "uvloop"], default="asyncio", help="event loop"
    )
    return parser


def run_program(
    program: Callable[[argparse.Namespace], PeerProgram],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a program with the options of the command line.

    Returns:
        Exit status: 1 after a failure, which is reported in a line.
    """
    options = parser.parse_args(arguments)

    async def run() -> None:
        await program(options).run()

    # uvloop is imported by name, because only some environments have it.
    module = importlib.import_module(options.loop)
    try:
        with asyncio.Runner(loop_factory=module.new_event_loop) as runner:
            runner.run(run())
    except Exception as error:  # noqa: BLE001 - any failure is reported
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]

        traceback.print_exception(error)
        known = isinstance(error, Unsupported)
        report(
            "error", message=f"{'' if known else f'{type(error).__name__}: '}{error}"
        )
        return 1

    return 0


def report(at: str, **more: Any) -> None:
    """Write a line, unbuffered."""
    print(json.dumps({"at": at, **more}), flush=True)
