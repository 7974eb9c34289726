"""Cost of another handler: changes of pods, with 1, 10 and 100 handlers.

All handlers belong to one informer and get every change, through the whole pipeline. A
run ends when the last handler has got the last change.

    python benchmarks/fanout.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.canned_server import Changes
from bench.contestant import OURSELVES
from bench.corpus import encoded_pods
from bench.figures import OURS, median
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
    from bench.figures import Figure
    from bench.turns import Outcomes

BENCHMARK = "fanout"
UNIT = "μs/event"
A_CHUNK = 16
LISTENERS = (1, 10, 100)
KINDS = {"async": (), "plain": ("--plain",)}


def measure(options: Options) -> Iterator[Figure]:
    course = Course(
        pods=encoded_pods(200 if options.quick else 2_000),
        changes=Changes(count=100 if options.quick else 20_000, a_chunk=A_CHUNK),
    )
    contestants = [
        replace(
            OURSELVES,
            name=_case(kind, listeners),
            options=(*arguments, "--listeners", str(listeners)),
        )
        for kind, arguments in KINDS.items()
        for listeners in (LISTENERS[1:] if options.quick else LISTENERS)
    ]
    outcomes = in_turns(BENCHMARK, course, contestants, options.rounds)
    for case, outcome in outcomes.items():
        yield from figures(BENCHMARK, case, UNIT, {OURS: outcome}, microseconds)

    for kind in KINDS:
        yield from _slope(kind, outcomes)


def _case(kind: str, listeners: int) -> str:
    many = "handlers" if listeners > 1 else "handler"
    return f"{listeners} {kind} {many}"


def _slope(kind: str, outcomes: Outcomes) -> Iterator[Figure]:
    """Return the cost per event of each handler from the tenth to the last."""
    few, many = LISTENERS[-2:]
    less, more = (outcomes[_case(kind, it)] for it in (few, many))
    if isinstance(less, str) or isinstance(more, str):
        return  # the figures above have the reason

    # Differences within a round, so that a busy machine affects both.
    slopes = [
        (microseconds(hundred) - microseconds(ten)) / (many - few)
        for ten, hundred in zip(less, more, strict=True)
    ]
    yield median(BENCHMARK, f"one more {kind} handler", OURS, UNIT, slopes)


def microseconds(report: Report) -> float:
    return float(report["watched"]["seconds"] / report["watched"]["events"] * 1e6)


if __name__ == "__main__":
    sys.exit(run(measure))
