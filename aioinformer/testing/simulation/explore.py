"""`Simulation`: many runs of a scenario, and the smallest failure that is found."""

from __future__ import annotations

import asyncio
import gc
import re
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.testing.simulation.run import Outcome, Scenario, simulate
from aioinformer.testing.simulation.schedule import (
    KINDS,
    OPTIONAL_STRATEGIES,
    STRATEGIES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.testing.simulation.schedule import Strategy

__all__ = ["Report", "Simulation", "SimulationFailed"]

SEEDS: Final = 200
"""Number of seeds by default."""

SECONDS: Final = 60.0
"""Real seconds after which no further seed begins."""

# Lines of the history in an error, unless a seed is repeated.
_LINES: Final = 60
# Real seconds of the search for the fewest faults.
_SEARCH_SECONDS: Final = 30.0


class SimulationFailed(AssertionError):
    """Violation that a simulation has found.

    Its `__cause__` is the exception of the program or of the check, if there was one.

    Attributes:
        outcome: Outcome of the run with the fewest faults, with its whole history.
    """

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(slots=True)
class Report:
    """Coverage of simulations.

    Attributes:
        runs: Number of runs.
        left: Number of seeds that did not begin, as the time was over.
        virtual_seconds: Virtual seconds of all runs.
        places: Number of visits of each line of the program that sends requests.
        killed_at: Number of kills at each of these lines.
        stale_at: Longest delay of events at each of these lines, in seconds.
        kinds: Number of faults of each kind.
        strategies: Number of runs of each strategy.
    """

    runs: int = 0
    left: int = 0
    virtual_seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    stale_at: dict[str, float] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    strategies: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        self.runs += 1
        self.virtual_seconds += outcome.seconds
        self.places += outcome.places
        self.killed_at += outcome.killed_at
        self.kinds += outcome.kinds
        self.strategies[outcome.strategy] += 1
        for line, seconds in outcome.stale_at.items():
            self.stale_at[line] = max(seconds, self.stale_at.get(line, 0.0))

    def __str__(self) -> str:
        hours = self.virtual_seconds / 3600
        lines = [f"{self.runs} runs, {hours:.1f} virtual hours"]
        struck = ", ".join(
            f"{kind} {count}" for kind, count in sorted(self.kinds.items())
        )
        lines.append(f"faults: {struck or 'none'}")
        for line, visits in sorted(self.places.items()):
            kills = self.killed_at[line]
            stale = self.stale_at.get(line, 0.0)
            text = f"{line}: {visits} requests, killed {kills} times"
            lines.append(f"{text}, events up to {stale:.1f} s late")

        elsewhere = {it: n for it, n in self.killed_at.items() if it not in self.places}
        for line, kills in sorted(elsewhere.items()):
            lines.append(f"{line}: killed {kills} times")

        lines += [f"not tried: {it}" for it in self.not_tried()]
        return "\n".join(lines)

    def not_tried(self) -> list[str]:
        """Return what has not been tried: seeds, faults, and kills at lines."""
        left = [f"{self.left} seeds, as the time was over"] if self.left else []
        missing = [kind for kind in KINDS if not self.kinds[kind]]
        places = [
            f"kill at {it}" for it in sorted(self.places) if not self.killed_at[it]
        ]
        stale = [
            f"stale events at {it}"
            for it in sorted(self.places)
            if not self.stale_at.get(it)
        ]
        return [*left, *missing, *places, *stale]


class Simulation:
    """Simulations of a program, usually by the pytest fixture `simulation`.

    ::

        def test_site_has_one_deployment(simulation):
            simulation.run(
                make_manager,
                setup=lambda cluster: cluster.load("crds/*.yaml"),
                workload=change_sites,
                invariants=[at_most_one_deployment],
                eventually=all_sites_ready,
            )

    Args:
        seed: Only seed to run; None for several.
        seeds: Number of seeds.
        seconds: Real seconds after which no further seed begins.
        command: Command that repeats a seed, to which the seed is added.

    Raises:
        OptionsError: If there are no seeds.

    Attributes:
        report: Coverage so far.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        seeds: int = SEEDS,
        seconds: float = SECONDS,
        command: str = "",
    ) -> None:
        _check_least("seeds", seeds)
        self._seed = seed
        self._seeds = seeds
        self._seconds = seconds
        self._command = command
        self.report: Report = Report()

    def run(
        self,
        program: Callable[..., Any],
        *,
        workload: Callable[..., Any] | None = None,
        invariants: Iterable[Callable[..., object]] = (),
        eventually: Callable[..., object] | None = None,
        setup: Callable[..., None] | None = None,
        replicas: int = 1,
        settle_seconds: float = 300.0,
        strategies: Iterable[str] | None = None,
        seeds: int | None = None,
    ) -> Report:
        """Run a program many times, each time with other faults.

        The program talks to a server in memory, in virtual time. A seed decides on
        everything that may differ: the order of tasks that are ready, the duration of
        requests, and the faults of its strategy. After a failure, the fewest faults
        are searched that still fail.

        Args:
            program: Function that takes a `Client` and returns a `Manager`, another
                object with `run()`, or a coroutine. Called for each start. A program
                that returns, exits or loses its leadership starts again.
            workload: Coroutine function that takes the `Cluster` and changes it. It has
                to end within 7 virtual days.
            invariants: Functions that take the `Cluster`, called after each write and
                with each request. They raise, or return False, if something is wrong.
            eventually: Function that takes the `Cluster`, and is true in the end.
            setup: Function that takes the `Cluster` before the program starts.
            replicas: Number of programs that run at a time.
            settle_seconds: Virtual seconds without faults in which `eventually` has to
                become true.
            strategies: Names of strategies; None for all but `late writes`, in turns.
            seeds: Number of seeds; None for that of the fixture.

        Returns:
            What was tried.

        Raises:
            SimulationFailed: If an invariant does not hold, `eventually` does not
                become true, or the program ends with an error.
            OptionsError: If a strategy is unknown, an argument is not a function, an
                invariant, `eventually` or `setup` is a coroutine function, the program
                or the workload returns something else, a number is not positive, or an
                event loop runs.
            Exception: Error of `setup` or of the workload. Notes of the latter tell its
                seed and history.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        if callable(invariants):
            raise OptionsError(f"invariants takes a list, not {invariants!r}")

        checks = [*invariants]
        _check_functions(program, workload, setup, eventually, checks)
        if eventually is None and not checks:
            raise OptionsError("a simulation needs invariants=, or eventually=")

        _check_least("replicas", replicas)
        _check_least("settle_seconds", settle_seconds, least=0)
        number = self._seeds if seeds is None else seeds
        _check_least("seeds", number)
        if asyncio._get_running_loop() is not None:  # noqa: SLF001
            raise OptionsError(
                "a simulation has its own event loop: call it in a test that is not a "
                "coroutine"
            )

        scenario = Scenario(
            program=program,
            workload=workload,
            invariants=checks,
            eventually=eventually,
            setup=setup,
            replicas=replicas,
            settle_seconds=settle_seconds,
        )
        chosen = _strategies(strategies)
        with warnings.catch_warnings():
            # Of coroutines of killed programs, when they are freed.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                self._run(scenario, chosen, range(number))
            finally:
                gc.collect()

        return self.report

    def _run(
        self, scenario: Scenario, strategies: list[Strategy], numbers: range
    ) -> None:
        __tracebackhide__ = True
        until = time.monotonic() + self._seconds
        seeds = [*numbers] if self._seed is None else [self._seed]
        for done, seed in enumerate(seeds, 1):
            strategy = strategies[seed % len(strategies)]
            outcome = simulate(scenario, seed, strategy=strategy)
            self.report.add(outcome)
            if outcome.violation:
                fewest, left = _fewest(scenario, outcome, strategy)
                faults = f"{len(fewest.faults)} of {len(outcome.faults)}"
                text = f"fewest faults that still fail: {faults}{left}"
                raise SimulationFailed(
                    self._message(fewest, text), fewest
                ) from fewest.error

            if outcome.error is not None:
                outcome.error.add_note(self._message(outcome, "faults:"))
                raise outcome.error

            if time.monotonic() > until:
                self.report.left += len(seeds) - done
                return

    def _message(self, outcome: Outcome, faults: str) -> str:
        """Describe a run, with a heading for its faults."""
        history, what = outcome.history, outcome.violation or "error of the workload"
        shown = history if self._seed is not None else history[-_LINES:]
        count = f"last {len(shown)} of {len(history)} lines; all when repeated"
        lines = [
            f"seed {outcome.seed} ({outcome.strategy}): {what}",
            faults,
            *(f"  {fault}" for fault in outcome.faults),
            f"history, in virtual seconds ({count}):",
            *(f"  {line}" for line in shown),
        ]
        if self._command:
            lines.append(f"repeat it: {self._command} {outcome.seed}")

        return "\n".join(lines)


def _check_functions(
    program: object,
    workload: object,
    setup: object,
    eventually: object,
    invariants: Iterable[object],
) -> None:
    for name, function in (("program", program), ("workload", workload)):
        if not callable(function) and (name == "program" or function is not None):
            raise OptionsError(f"{name} must be a function, not {function!r}")

    # They are called, and not awaited: a coroutine would always count as true.
    for name, function in (("setup", setup), ("eventually", eventually)):
        if function is not None:
            check_plain(function, name)

    for function in invariants:
        check_plain(function, "an invariant")


def _strategies(names: Iterable[str] | None) -> list[Strategy]:
    if names is None:
        return list(STRATEGIES)

    known = {it.name: it for it in (*STRATEGIES, *OPTIONAL_STRATEGIES)}
    wanted = [names] if isinstance(names, str) else [*names]
    unknown = [it for it in wanted if it not in known]
    if unknown or not wanted:
        raise OptionsError(
            f"unknown strategies {unknown}: there are {', '.join(map(repr, known))}"
        )

    return [known[it] for it in wanted]


def _check_least(name: str, number: Any, *, least: int = 1) -> None:
    if not isinstance(number, int | float) or number < least:
        raise OptionsError(f"{name}={number!r} must be a number, at least {least}")


def _fewest(
    scenario: Scenario, found: Outcome, strategy: Strategy
) -> tuple[Outcome, str]:
    """Return a run that fails in the same way, with as few faults as possible.

    Returns:
        The run, and a remark if the search was not complete.
    """
    until = time.monotonic() + _SEARCH_SECONDS
    check = _check_of(found)

    def failing(places: list[str]) -> Outcome | None:
        only = frozenset(places)
        outcome = simulate(scenario, found.seed, strategy=strategy, only=only)
        return outcome if _check_of(outcome) == check else None

    best = found
    places = [fault.place for fault in found.faults]
    # Parts are left out, first large ones.
    size, start, removed = len(places), 0, False
    while size:
        if time.monotonic() > until:
            return best, f" (the search ended after {_SEARCH_SECONDS:g} s)"

        outcome = failing(places[:start] + places[start + size :])
        if outcome is None:
            start += size
        else:
            best, removed = outcome, True
            places = [fault.place for fault in outcome.faults]

        if start >= len(places):
            size = min(size if removed else size // 2, len(places))
            start, removed = 0, False

    return best, ""


def _check_of(outcome: Outcome) -> str:
    """Return what was wrong, without its details."""
    return re.split("[:(]", outcome.violation)[0]
