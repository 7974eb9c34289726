"""Resident memory for each stored pod, and the peak of a relist.

python benchmarks/memory.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.contestant import (
    KUBE_RS_STREAMING,
    OURSELVES,
    PEERS,
    PROTOBUF,
)
from bench.corpus import encoded_pods
from bench.figures import median
from bench.growth import measured
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
    from bench.figures import Figure

BENCHMARK = "memory"
UNIT = "KiB/pod"
VARIANTS = {
    "without managed fields": ("--transform", "drop-managed-fields"),
    "compressed": ("--compression", "zstd"),
    "compressed, without managed fields": (
        *("--transform", "drop-managed-fields"),
        *("--compression", "zstd"),
    ),
    "metadata only": ("--metadata-only",),
    "compressed, metadata only": ("--metadata-only", "--compression", "zstd"),
    "each phase read once": ("--touch",),
}
OURS = (
    OURSELVES,
    *(
        replace(OURSELVES, name=f"{OURSELVES.name}, {name}", options=options)
        for name, options in VARIANTS.items()
    ),
)
MANY = 100_000
FIT_FOR_MANY = {"client-go typed JSON", "kube-rs", "lightkube"}
"""Contestants that list 100,000 pods within a minute, and within the memory."""


def measure(options: Options) -> Iterator[Figure]:
    for size in (500,) if options.quick else (10_000, MANY):
        pods = encoded_pods(size)
        # The most frugal setting of a library is not always its default.
        peers = [it for it in PEERS if size < MANY or it.name in FIT_FOR_MANY]
        peers += [KUBE_RS_STREAMING] if size == MANY else [KUBE_RS_STREAMING, PROTOBUF]
        case = f"{size:,} pods stored"
        course = Course(pods=pods)
        rounds = options.rounds if size < MANY else options.fewer_rounds
        outcomes = in_turns(case, course, (*OURS, *peers), rounds)
        yield from figures(BENCHMARK, case, UNIT, outcomes, held)

    pods = encoded_pods(500 if options.quick else 10_000)
    for share in (0.1, 1.0):
        case = f"peak of a relist, {share:.0%} changed"
        changed = len(range(0, len(pods), round(1 / share)))
        relist = ("--relist", str(changed), "--changed", str(share))
        course = Course(pods=pods, options=relist)
        fast = (OURSELVES, *(it for it in PEERS if not it.slow))
        outcomes = in_turns(case, course, fast, options.rounds)
        yield from figures(BENCHMARK, case, "of the steady state", outcomes, peak)

    yield from growth(2_000 if options.quick else MANY, options.fewer_rounds)


def growth(count: int, rounds: int) -> Iterator[Figure]:
    """Measure pods that grow to twice their size: of 8 KB, then of 16 KB."""
    case = f"{count:,} pods grow to twice their size"
    for share in (None, 0.5, 0.25):
        limit = None if share is None else int(count * 16_000 * share)
        name = OURSELVES.name
        if limit is not None:
            name += f", budget of {limit / 1e6:,.0f} MB"

        runs = [measured(count, limit) for _ in range(rounds)]
        mb = [it.peak / 1e6 for it in runs]
        yield median(BENCHMARK, f"{case}: peak", name, "MB", mb)
        seconds = [it.seconds for it in runs]
        yield median(BENCHMARK, f"{case}: time", name, "s", seconds)


def held(report: Report) -> float:
    grown = report["synced"]["resident"] - report["start"]["resident"]
    return float(grown / report["synced"]["objects"])


def peak(report: Report) -> float:
    """Return the peak, relative to the memory that the pods added."""
    before = report["start"]["resident"]
    steady = report["synced"]["resident"] - before
    return float((report["relisted"]["peak"] - before) / steady)


if __name__ == "__main__":
    sys.exit(run(measure))
