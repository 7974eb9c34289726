"""Lists, changes and a web app on each version of Python, with uvloop and without.

The versions are those of this machine, each in an environment of its own with the pinned
dependencies. They take turns. The server always has the Python of this script.

    python benchmarks/interpreters.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from bench.canned_server import Changes
from bench.contestant import OURSELVES
from bench.corpus import encoded_pods
from bench.figures import OURS, Figure, median, percentile
from bench.interpreters import interpreters
from bench.script import Options, run
from bench.turns import Course, figures, in_turns
from web_latency import App, Sizes, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
    from bench.interpreters import Interpreter

BENCHMARK = "interpreters"
LOOPS = ("asyncio", "uvloop")
ONE_APP = "--one-app"
"""Argument for a process that measures the web app with its own Python."""


def measure(options: Options) -> Iterator[Figure]:
    pythons = interpreters()
    yield from _lists_and_changes(options, pythons)
    yield from _web(options, pythons)


def column(version: str, loop: str) -> str:
    """Return the name of a contestant."""
    return f"{OURS}, Python {version}" + (", uvloop" if loop == "uvloop" else "")


def _lists_and_changes(
    options: Options, pythons: list[Interpreter]
) -> Iterator[Figure]:
    contestants = [
        replace(
            OURSELVES,
            name=column(it.version, loop),
            options=("--loop", loop),
            python=str(it.path),
        )
        for it in pythons
        for loop in LOOPS
    ]
    pods = encoded_pods(500 if options.quick else 10_000)
    for look, arguments in (
        ("body not read", ()),
        ("index on nodeName, handler reads phase", ("--body",)),
    ):
        case = f"list of {len(pods):,} pods, {look}"
        course = Course(pods=pods, options=arguments)
        outcomes = in_turns(case, course, contestants, options.rounds)
        yield from figures(BENCHMARK, case, "pods/s", outcomes, listed)

    pods = pods[:2_000]
    count = 500 if options.quick else 20_000
    for a_chunk in (16, 1):
        case = f"changes, {a_chunk} per chunk, handler reads phase"
        changes = Changes(count=count, a_chunk=a_chunk)
        course = Course(pods=pods, changes=changes, options=("--body",))
        outcomes = in_turns(case, course, contestants, options.rounds)
        yield from figures(BENCHMARK, case, "events/s", outcomes, watched)

    case = "delay of a change at 1,000/s: p99"
    changes = Changes(count=count // 10, a_chunk=1, rate=1000.0)
    course = Course(pods=pods, changes=changes)
    outcomes = in_turns(case, course, contestants, options.rounds)
    yield from figures(BENCHMARK, case, "ms", outcomes, delay)


def listed(report: Report) -> float:
    return float(report["synced"]["objects"] / report["synced"]["seconds"])


def watched(report: Report) -> float:
    return float(report["watched"]["events"] / report["watched"]["seconds"])


def delay(report: Report) -> float:
    return percentile(report["watched"]["latencies"], 0.99)


# ---------------------------------------------------------------- the web app


def _web(options: Options, pythons: list[Interpreter]) -> Iterator[Figure]:
    runs: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    for number in range(options.rounds):
        for python in pythons:
            for loop in LOOPS:
                name = column(python.version, loop)
                print(f"web app: {name}, run {number + 1}", file=sys.stderr)
                arguments = json.dumps({"loop": loop, "quick": options.quick})
                command = [str(python.path), __file__, ONE_APP, arguments]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                decode = msgspec.json.Decoder(Figure).decode_lines
                for it in decode(done.stdout):
                    of_case = runs[it.case, it.unit].setdefault(name, [])
                    of_case += it.runs

    for (case, unit), by_name in runs.items():
        for name, values in by_name.items():
            yield median(BENCHMARK, case, name, unit, values)


def one_app(loop: str, quick: bool) -> None:
    """Measure the web app once, with the Python of this process, and print its figures."""
    app = App(server="aiohttp", informers=1, loop=loop)
    sizes = Sizes(pods=20_000, events=4_000, rest_seconds=0.5)
    if quick:
        sizes = Sizes(pods=1_000, events=200, rest_seconds=0.1)

    for it in measured([app], sizes, 1):
        if it.case.endswith((": p99", ": worst")) and "idle" not in it.case:
            case = f"web app: {it.case.replace(', 1 informer', '')}"
            print(msgspec.json.encode(msgspec.structs.replace(it, case=case)).decode())


if __name__ == "__main__":
    if ONE_APP in sys.argv:
        one_app(**json.loads(sys.argv[-1]))
    else:
        sys.exit(run(measure))
