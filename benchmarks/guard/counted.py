"""Does the work of the cases, and counts what can be counted from within.

    python -m guard.counted MATERIAL {within,marked} [CASE ...]

`within` prints the counts as JSON. `marked` counts nothing: for the program that counts
from outside it marks the beginning and the end of each part that counts, by a call of
`getsid()` and one of `getpgid()`, and prints which sizes of which cases those were.
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

# What each reading of a clock adds to it, in seconds: the loop's budget is used up after
# so many readings, and not when the machine was busy.
CLOCKS = {"perf_counter": 1e-5, "monotonic": 1e-6}


# So long it takes on no machine. The loop's own time-outs would never come: see above.
PATIENCE_SECONDS = 600


class Bytecodes:
    """Counts the instructions of Python that are executed, but those of this package."""

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
    """Counts the objects that are left to the garbage collector to look at.

    It does not run meanwhile, so that those of reference cycles count, too.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count -= len(gc.get_objects())

    def __exit__(self, *_: object) -> None:
        self.count += len(gc.get_objects())


class Marks:
    """Lets whoever counts from outside know."""

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


# Tracing comes last: it leaves things behind in what it has traced.
COUNTERS: dict[str, type[Tracked | Bytecodes]] = {
    "objects tracked": Tracked,
    "bytecodes": Bytecodes,
}


def within(cases: list[Case], given: material.Material) -> dict[str, dict[str, float]]:
    """Count each case by each counter."""
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

    # Only now: it takes hold of the clocks.
    from guard.cases import CASES

    # It would run at moments that hang on what was done before.
    gc.disable()
    given = material.read(Path(path))
    cases = [case for case in CASES if case.name in names or not names]
    for case in cases:
        # What is made once is made, and the interpreter has adapted to what runs often.
        do(case, case.sizes[0], given, nullcontext())

    gc.freeze()
    answer = within(cases, given) if how == "within" else marked(cases, given)
    print(msgspec.json.encode(answer).decode())


if __name__ == "__main__":
    main()
