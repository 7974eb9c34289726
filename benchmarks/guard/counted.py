"""Runs the work of the cases, and counts in the same process.

    python -m guard.counted MATERIAL {within,marked} [CASE ...]

`within` prints the counts as JSON. `marked` counts nothing. For a program that counts from
outside, it marks the beginning and the end of each counted part by a call of `getsid()`
and of `getpgid()`, and prints the sizes and cases of these parts.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from guard import material

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType

    from guard.cases import Case

__all__: list[str] = []

OURS = str(Path(__file__).parent)

# Seconds by which each reading advances the clock: the loop's budget ends after a number
# of readings, independent of the machine's load.
CLOCKS = {"perf_counter": 1e-5, "monotonic": 1e-6}


# A real time limit, because the timeouts of the loop use the artificial clock.
PATIENCE_SECONDS = 600


class Bytecodes:
    """Counter of the executed Python instructions, except those of this package."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename.startswith(OURS):
            return None

        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self.count += 1

        return self._executed


class Tracked:
    """Counter of the objects that the garbage collector has to track.

    The collector does not run meanwhile, so that objects in reference cycles count, too.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count -= len(gc.get_objects())

    def __exit__(self, *_: object) -> None:
        self.count += len(gc.get_objects())


class Marks:
    """Marks for a program that counts from outside."""

    def __enter__(self) -> None:
        os.getsid(0)

    def __exit__(self, *_: object) -> None:
        os.getpgid(0)


def do(
    case: Case,
    size: int,
    given: material.Material,
    counting: AbstractContextManager[object],
) -> None:
    asyncio.run(case.work(given, size, counting))
    gc.collect()


# Tracing comes last, because it leaves objects behind.
COUNTERS: dict[str, type[Tracked | Bytecodes]] = {
    "objects tracked": Tracked,
    "bytecodes": Bytecodes,
}


def within(cases: list[Case], given: material.Material) -> dict[str, dict[str, float]]:
    """Count each case with each counter."""
    counts: dict[str, dict[str, float]] = {case.name: {} for case in cases}
    for what, counter in COUNTERS.items():
        for case in cases:
            small, large = counter(), counter()
            do(case, case.sizes[0], given, small)
            do(case, case.sizes[1], given, large)
            more = large.count - small.count
            counts[case.name][what] = more / case.further_events

    return counts


def marked(cases: list[Case], given: material.Material) -> list[tuple[str, int]]:
    """Mark both sizes of each case, one after the other."""
    for case in cases:
        for size in case.sizes:
            do(case, size, given, Marks())

    return [(case.name, size) for case in cases for size in case.sizes]


def main() -> None:
    path, how, *names = sys.argv[1:]
    signal.alarm(PATIENCE_SECONDS)
    for clock, step in CLOCKS.items():
        setattr(time, clock, itertools.count(0.0, step).__next__)

    # Imported after the clocks were replaced.
    from guard.cases import CASES

    # The collector would run at moments that depend on earlier work.
    gc.disable()
    given = material.read(Path(path))
    cases = [case for case in CASES if case.name in names or not names]
    for case in cases:
        # A first run fills the caches, and the interpreter specialises the hot code.
        do(case, case.sizes[0], given, nullcontext())

    gc.freeze()
    counts = within(cases, given) if how == "within" else marked(cases, given)
    print(msgspec.json.encode(counts).decode())


if __name__ == "__main__":
    main()
