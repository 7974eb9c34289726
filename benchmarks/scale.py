"""Growth of the cost of one object or event with their number.

Three things grow, each alone: the objects of one informer, up to 150,000; the informers of
one process, with 10,000 objects in total; the handlers of one informer, up to 100. The
figures are the cost of one object or event, so that linear growth is a flat line. An
object is stored and delivered to a handler. Its memory is the growth of the process.

    python benchmarks/scale.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.canned_server import Changes
from bench.contestant import OURSELVES
from bench.corpus import FIRST_VERSION, encoded_pods
from bench.figures import OURS, median
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contestant import Report
    from bench.figures import Figure
    from bench.turns import Outcomes

BENCHMARK = "scale"
A_CHUNK = 16
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Sizes to grow to.

    Attributes:
        objects: Objects of one informer.
        usual: Size that the largest one is compared with.
        informers: Numbers of informers.
        shared: Total objects of these informers.
        listeners: Handlers of one informer.
        events: Events for each of these.
    """

    objects: tuple[int, ...]
    usual: int
    informers: tuple[int, ...]
    shared: int
    listeners: tuple[int, ...]
    events: int


FULL = Amounts(
    objects=(1_000, 3_000, 10_000, 30_000, 100_000, 150_000),
    usual=10_000,
    informers=(1, 10, 100),
    shared=10_000,
    listeners=(1, 3, 10, 30, 100),
    events=20_000,
)
QUICK = Amounts(
    objects=(200, 1_000),
    usual=200,
    informers=(10,),
    shared=200,
    listeners=(10,),
    events=200,
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement: a case, and the function that measures it."""

    case: str
    course: Course
    options: tuple[str, ...] = ()


def measure(options: Options) -> Iterator[Figure]:
    amounts = QUICK if options.quick else FULL
    pods = encoded_pods(max(amounts.objects))
    listed = [*_objects(amounts, pods), *_informers(amounts, pods)]
    watched = list(_handlers(amounts, pods))
    outcomes = _in_turns([*listed, *watched], options.rounds)
    yield from _all(listed, outcomes, "μs/object", microseconds_an_object)
    yield from _all(listed, outcomes, "KiB/object", kib_an_object)
    yield from _all(watched, outcomes, "μs/event", microseconds_an_event)
    yield from _linearity(amounts, outcomes)


def _in_turns(points: list[Point], rounds: int) -> Outcomes:
    """Measure all points in turns, so that a busy hour affects all of them."""
    outcomes: Outcomes = {}
    for number in range(rounds):
        for point in points:
            before = outcomes.get(point.case, [])
            if not isinstance(before, str):
                contestant = replace(OURSELVES, options=point.options)
                name = f"{point.case}, round {number + 1}"
                now = in_turns(name, point.course, [contestant], 1)[OURS]
                outcomes[point.case] = now if isinstance(now, str) else [*before, *now]

    return outcomes


# ---------------------------------------------------------------- what grows


def _objects(amounts: Amounts, pods: list[bytes]) -> Iterator[Point]:
    for count in amounts.objects:
        yield Point(case=f"objects: {count:,}", course=Course(pods=_first(count, pods)))


def _informers(amounts: Amounts, pods: list[bytes]) -> Iterator[Point]:
    for count in amounts.informers:
        yield Point(
            case=f"informers: {count:,}",
            course=Course(pods=_first(amounts.shared // count, pods)),
            options=("--informers", str(count)),
        )


def _handlers(amounts: Amounts, pods: list[bytes]) -> Iterator[Point]:
    course = Course(
        pods=_first(min(amounts.objects), pods),
        changes=Changes(count=amounts.events, a_chunk=A_CHUNK),
    )
    for count in amounts.listeners:
        yield Point(
            case=f"handlers: {count:,}",
            course=course,
            options=("--listeners", str(count)),
        )


def _first(count: int, pods: list[bytes]) -> list[bytes]:
    """Return the pods of a smaller corpus, in order."""
    return [pod for pod in pods if _version(pod) < FIRST_VERSION + count]


def _version(pod: bytes) -> int:
    found = VERSION.search(pod)
    assert found is not None
    return int(found[1])


# ---------------------------------------------------------------- figures


def _all(
    points: list[Point],
    outcomes: Outcomes,
    unit: str,
    value: Callable[[Report], float],
) -> Iterator[Figure]:
    for point in points:
        outcome = {OURS: outcomes[point.case]}
        yield from figures(BENCHMARK, point.case, unit, outcome, value)


def _linearity(amounts: Amounts, outcomes: Outcomes) -> Iterator[Figure]:
    """Return the cost of one of very many objects, relative to one of 10,000."""
    most = max(amounts.objects)
    case = f"{most:,} objects compared with {amounts.usual:,}"
    many, usual = (outcomes[f"objects: {it:,}"] for it in (most, amounts.usual))
    if isinstance(many, str) or isinstance(usual, str):
        return  # the figures above have the reason

    # Ratios within a round, so that a busy machine affects both.
    ratios = [
        microseconds_an_object(it) / microseconds_an_object(other)
        for it, other in zip(many, usual, strict=True)
    ]
    yield median(BENCHMARK, case, OURS, "ratio", ratios)


def microseconds_an_object(report: Report) -> float:
    return float(report["synced"]["seconds"] / report["synced"]["objects"] * 1e6)


def kib_an_object(report: Report) -> float:
    grown = report["synced"]["resident"] - report["start"]["resident"]
    return float(grown / report["synced"]["objects"])


def microseconds_an_event(report: Report) -> float:
    return float(report["watched"]["seconds"] / report["watched"]["events"] * 1e6)


if __name__ == "__main__":
    sys.exit(run(measure))
