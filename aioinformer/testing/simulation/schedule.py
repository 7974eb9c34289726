"""`Schedule`: which fault strikes where, by a seed. Pure.

A place is what a program does there, such as `update deployments shop/web`, with its
number among equal ones. What strikes at a place depends only on the seed and the place.
So a fault can be left out without changing all others, which makes it possible to look
for the fewest faults that still fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = [
    "KINDS",
    "OPTIONAL_STRATEGIES",
    "STRATEGIES",
    "Fault",
    "Schedule",
    "Strategy",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault at one place.

    Attributes:
        kind: Kind, such as `"lose response"`.
        place: Name of the place: a replica, and a line of the program or a watch.
        seconds: Duration, or time for which the program stays down.
        status: HTTP status of a refusal.
        turns: Turns of the loop in which the program runs, until it is killed.
    """

    kind: str
    place: str
    seconds: float = 0.0
    status: int = 0
    turns: int = 0

    def __str__(self) -> str:
        text = _TEXTS[self.kind].format(
            seconds=self.seconds, status=self.status, turns=self.turns
        )
        return f"{self.place}: {text}"


@dataclass(frozen=True, slots=True)
class Strategy:
    """Mix of faults, by the fraction of places at which each strikes.

    Attributes:
        name: Name in reports.
        starts: Faults that are decided when a program starts.
        writes: Faults of writes, and of reads of one object.
        watches: Faults of watches, each time when events have arrived.
        lists: Faults of lists.
    """

    name: str
    starts: tuple[tuple[str, float], ...] = ()
    writes: tuple[tuple[str, float], ...] = ()
    watches: tuple[tuple[str, float], ...] = ()
    lists: tuple[tuple[str, float], ...] = ()


_TEXTS: Final = {
    "refuse": "refused with {status}",
    "lose request": "request lost, the program gets an error after {seconds:.1f} s",
    "lose response": "done, but the program gets an error after {seconds:.1f} s",
    "late": "error after {seconds:.1f} s, and done a moment later",
    "kill": "program killed after {turns} turns of its tasks, back after {seconds:.1f} s",
    "kill before": "program killed before it is sent, back after {seconds:.1f} s",
    "kill after": "done, program killed before the response, back after {seconds:.1f} s",
    "delay": "takes {seconds:.1f} s",
    "stale": "events arrive {seconds:.1f} s late",
    "cut": "watch cut, and resumed",
    "skip": "watch cut, history lost after {seconds:.1f} s: states are skipped",
    "partition": "program is cut off for {seconds:.1f} s",
}

KINDS: Final = tuple(_TEXTS)
"""Kinds of faults."""

_REFUSALS: Final = (409, 429, 500, 503, 504)

STRATEGIES: Final = (
    Strategy(
        "intermediate states",
        starts=(("kill", 0.4),),
        writes=(("kill after", 0.12), ("kill before", 0.04)),
    ),
    Strategy(
        "stale states",
        watches=(("stale", 0.4),),
        writes=(("kill after", 0.03),),
    ),
    Strategy(
        "unobserved states",
        watches=(("skip", 0.2), ("cut", 0.1), ("stale", 0.1)),
    ),
    Strategy(
        "errors",
        writes=(
            ("refuse", 0.15),
            ("lose response", 0.1),
            ("lose request", 0.05),
        ),
        lists=(("refuse", 0.1),),
        watches=(("cut", 0.1),),
    ),
    Strategy(
        "partitions",
        writes=(("partition", 0.05), ("delay", 0.1)),
        watches=(("stale", 0.05),),
    ),
    Strategy(
        "everything",
        starts=(("kill", 0.2),),
        writes=(
            ("kill after", 0.03),
            ("kill before", 0.02),
            ("refuse", 0.05),
            ("lose response", 0.05),
            ("lose request", 0.03),
            ("partition", 0.01),
            ("delay", 0.05),
        ),
        watches=(("stale", 0.15), ("skip", 0.05), ("cut", 0.05)),
        lists=(("refuse", 0.05),),
    ),
)
"""Strategies, which take turns with the seeds. The first three are the patterns of
Sieve (OSDI 2022)."""

OPTIONAL_STRATEGIES: Final = (Strategy("late writes", writes=(("late", 0.1),)),)
"""Strategies that are used by name only, as few programs can withstand them."""


class Schedule:
    """Faults of one run.

    Args:
        seed: Seed.
        strategy: Strategy; None for that of the seed.
        only: Places at which faults may strike; None for all.

    Attributes:
        struck: Faults that have struck, in order.
    """

    def __init__(
        self,
        seed: int,
        strategy: Strategy | None = None,
        only: frozenset[str] | None = None,
    ) -> None:
        self.seed = seed
        self.strategy: Strategy = strategy or STRATEGIES[seed % len(STRATEGIES)]
        self.struck: list[Fault] = []
        self.quiet = False
        """True once no faults may strike any more."""
        self._only = only
        self._counts: Counter[str] = Counter()

    def place(self, what: str) -> tuple[str, Random]:
        """Return the next place of a kind, and its own source of randomness."""
        self._counts[what] += 1
        place = f"{what} #{self._counts[what]}"
        return place, Random(f"{self.seed}/{place}")

    def at(self, place: str, rng: Random, verb: str) -> Fault | None:
        """Return the fault that strikes at a place, if any.

        Args:
            place: The place.
            rng: Its source of randomness.
            verb: Verb of the request; `events` for events that have arrived, `start` for a
                program that starts.
        """
        fault = self._drawn(place, rng, verb)
        if fault is None or self.quiet:
            return None

        if self._only is not None and place not in self._only:
            return None

        self.struck.append(fault)
        return fault

    def _drawn(self, place: str, rng: Random, verb: str) -> Fault | None:
        strategy = self.strategy
        rates = strategy.writes
        if verb == "events":
            rates = strategy.watches
        elif verb == "start":
            rates = strategy.starts
        elif verb in {"list", "watch"}:
            rates = strategy.lists

        draw = rng.random()
        for kind, rate in rates:
            draw -= rate
            if draw < 0:
                return Fault(
                    kind,
                    place,
                    seconds=_seconds(kind, rng),
                    status=_status(verb, rng) if kind == "refuse" else 0,
                    turns=round(10 ** rng.uniform(1, 3.5)) if kind == "kill" else 0,
                )

        return None


def _status(verb: str, rng: Random) -> int:
    status = rng.choice(_REFUSALS)
    # Only writes of existing objects conflict.
    return 503 if status == 409 and verb not in {"update", "patch"} else status


def _seconds(kind: str, rng: Random) -> float:
    match kind:
        case "stale":
            return rng.choice((0.5, 2.0, 8.0)) * rng.uniform(0.5, 1.5)
        case "partition":
            return rng.uniform(5.0, 40.0)
        case "skip":
            return rng.uniform(0.5, 10.0)
        case "delay":
            return rng.uniform(0.5, 5.0)
        case _:
            return rng.uniform(0.1, 3.0)
