"""Runs of contestants in turns: a new process and a new server for each run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.canned_server import Changes, canned_server
from bench.contestant import Failed, contest
from bench.figures import Figure, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.contestant import Contestant, Report

__all__ = ["Course", "Outcomes", "figures", "in_turns", "take_turns"]

SLOW_SHARE = 5
"""Divisor of the sizes for slow contestants."""

Outcomes = dict[str, "list[Report] | str"]
"""Reports of each contestant by name, or the reason for their absence."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Task of all contestants.

    Attributes:
        pods: Pods that the server lists.
        changes: Changes that it sends afterwards.
        options: Options of each contestant.
        content_length: True if the server sends lists with their length, not in chunks.
    """

    pods: list[bytes]
    changes: Changes | None = None
    options: tuple[str, ...] = ()
    content_length: bool = False

    def for_the_slow(self) -> Course:
        """Return a smaller course for slow contestants, whose rates do not depend on it."""
        pods = self.pods[: len(self.pods) // SLOW_SHARE]
        if self.changes is None or self.changes.rate is not None:
            return replace(self, pods=pods)

        changes = replace(self.changes, count=self.changes.count // SLOW_SHARE)
        return replace(self, pods=pods, changes=changes)


def in_turns(
    name: str, course: Course, contestants: Sequence[Contestant], rounds: int
) -> Outcomes:
    """Measure all contestants in turns, each with a canned server.

    Args:
        name: Name of the measurement, for the progress output.
        course: Task of the contestants.
        contestants: Contestants, including ours.
        rounds: Number of runs of each.
    """

    def once(contestant: Contestant) -> Report:
        chosen = course.for_the_slow() if contestant.slow else course
        options = chosen.options
        if chosen.changes is not None:
            options += ("--events", str(chosen.changes.count))

        with canned_server(
            chosen.pods,
            chosen.changes,
            content_length=chosen.content_length,
            protobuf=contestant.protobuf,
        ) as url:
            return contest(contestant, url, *options)

    return take_turns(name, contestants, rounds, once)


def take_turns(
    name: str,
    contestants: Sequence[Contestant],
    rounds: int,
    once: Callable[[Contestant], Report],
) -> Outcomes:
    """Measure all contestants in turns.

    Args:
        name: Name of the measurement, for the progress output.
        contestants: Contestants, including ours.
        rounds: Number of runs of each. A failed contestant is not run again.
        once: Function that makes one run.
    """
    runs: dict[str, list[Report]] = {it.name: [] for it in contestants}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for one in contestants:
            if one.name not in failed:
                print(f"{name}: {one.name}, run {number + 1}", file=sys.stderr)
                try:
                    runs[one.name].append(once(one))
                except Failed as error:
                    failed[one.name] = str(error)

    return {**runs, **failed}


def figures(
    benchmark: str,
    case: str,
    unit: str,
    outcomes: Outcomes,
    value: Callable[[Report], float],
) -> Iterator[Figure]:
    """Yield one figure of each contestant.

    Args:
        benchmark, case, unit: Fields of `Figure`.
        outcomes: Result of `in_turns`.
        value: Function that reads the value from a report.
    """
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            yield Figure(
                benchmark=benchmark,
                case=case,
                contestant=name,
                unit=unit,
                value=None,
                note=outcome,
            )
        else:
            yield median(benchmark, case, name, unit, [value(it) for it in outcome])
