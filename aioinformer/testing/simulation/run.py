"""`simulate()`: one run of a program in a simulated cluster, with the faults of a seed."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import math
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aioinformer._user_code import text_of, user_errors
from aioinformer.budget import LoopBudget
from aioinformer.errors import LeadershipLost, NotFound, OptionsError
from aioinformer.testing.server import APIServer
from aioinformer.testing.simulation.loop import PROGRAM, Program, SimulatedLoop
from aioinformer.testing.simulation.network import SimulatedClient
from aioinformer.testing.simulation.process import (
    counted_threads,
    determined,
    restored_signals,
    silent,
    virtual_clocks,
)
from aioinformer.testing.simulation.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from aioinformer.client.verbs import Request
    from aioinformer.model.resource import Resource
    from aioinformer.testing.simulation.schedule import Fault, Strategy
    from aioinformer_apiserver import MemoryResponse

__all__ = ["Cluster", "Outcome", "Scenario", "simulate"]

T = TypeVar("T")

# Top-level modules whose lines are not those of a program.
_LIBRARIES: Final = sys.stdlib_module_names | {
    "aioinformer",
    "aioinformer_apiserver",
    "_pytest",
}
_SHUFFLED: Final = 0.2
# Time of day at which every run starts.
_STARTED: Final = datetime(2026, 1, 31, 9, tzinfo=UTC)
# Seconds in which `eventually` has to stay true.
_TRUE_SECONDS: Final = 30.0
# Seconds within which a workload has to end.
_WORK_SECONDS: Final = 7 * 24 * 3600.0
# Seconds until a program that ended by itself starts again.
_RESTART_SECONDS: Final = 1.0


class Runs(Protocol):
    """Program: a manager, or anything else with `run()`."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Program, and what has to hold while it runs.

    Attributes:
        program: Function that makes the program for a client, for each start.
        workload: Coroutine function that changes the cluster as users do; None for a
            program that works by itself.
        invariants: Functions that are called after each write, and raise or return
            False if something is wrong.
        eventually: Function that is true in the end, after faults have stopped.
        setup: Function called with the cluster at the beginning.
        replicas: Number of programs that run at a time.
        settle_seconds: Seconds without faults in which `eventually` has to become true.
    """

    program: Callable[[SimulatedClient], Any]
    workload: Callable[[Cluster], Any] | None = None
    invariants: Sequence[Callable[[Cluster], object]] = ()
    eventually: Callable[[Cluster], object] | None = None
    setup: Callable[[Cluster], None] | None = None
    replicas: int = 1
    settle_seconds: float = 300.0


@dataclass(slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        seed: Seed of the run.
        strategy: Name of its strategy.
        violation: Description of the failure; empty if there was none.
        error: Exception of the program or the check that failed; without a violation
            that of the workload.
        faults: Faults that have struck.
        history: Lines about each step.
        seconds: Virtual seconds.
        places: Number of visits of each line of the program that sent a request.
        killed_at: Number of kills at each of these lines.
        kinds: Number of faults of each kind.
        stale_at: Longest delay of events at each of these lines, in seconds.
    """

    seed: int
    strategy: str
    violation: str = ""
    error: BaseException | None = None
    faults: list[Fault] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    stale_at: dict[str, float] = field(default_factory=dict)


class Cluster:
    """Cluster as users and invariants see it: always the newest state.

    An empty namespace is `default`, and that of all objects for `objects()`.

    Attributes:
        random: Source of randomness of the workload, from the seed.
    """

    def __init__(self, server: APIServer, loop: SimulatedLoop, seed: int) -> None:
        self._server = server
        self._loop = loop
        self.random: Random = Random(f"{seed}/workload")
        self.arrivals: deque[float] = deque(maxlen=10_000)
        """Virtual times at which requests were sent."""

    @property
    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._loop.passed

    def load(self, *paths: str | Path) -> None:
        """Create the objects of YAML files; see `APIServer.load`."""
        self._server.load(*paths)

    def register(self, resource: Resource) -> None:
        """Serve a custom resource; see `APIServer.register`."""
        self._server.register(resource)

    def objects(
        self, resource: Resource, *, namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects of a resource, or of one namespace."""
        return self._server.objects(resource, namespace=namespace)

    def get(
        self, resource: Resource, name: str, *, namespace: str = ""
    ) -> dict[str, Any] | None:
        """Return an object, or None; `APIServer.get` raises `NotFound` instead."""
        try:
            return self._server.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object, as its administrator."""
        return self._server.create(resource, body, namespace=namespace)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str = "",
    ) -> dict[str, Any]:
        """Merge into an object and its status."""
        return self._server.patch(resource, name, body, namespace=namespace)

    def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object; it stays while it has finalizers."""
        self._server.delete(resource, name, namespace=namespace)

    def requests_within(self, seconds: float) -> int:
        """Return the number of requests that programs sent in the last virtual seconds."""
        since = self._loop.time() - seconds
        return sum(1 for it in self.arrivals if it >= since)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], T], *, timeout: float) -> T:
        """Wait until a condition holds, in virtual time; see `APIServer.until`.

        Faults delay the program, and may kill it several times: allow minutes.

        Args:
            condition: Plain function that returns a true value to end the wait.
            timeout: Maximum time in virtual seconds.

        Returns:
            Result of the condition.

        Raises:
            TimeoutError: If it does not hold in time. The message has its last result.
        """
        return await self._server.until(condition, timeout=timeout)


class _Unlimited(LoopBudget):
    """Budget without slices, which depend on real time."""

    def over(self) -> bool:
        return False

    async def start(self) -> None:
        self.deadline = float("inf")

    def end(self) -> None:
        pass


@dataclass(slots=True)
class _Place:
    text: str
    rng: Random
    fault: Fault | None


class _Run:
    """One run: cluster, programs and faults. Implements `Network`."""

    def __init__(
        self, scenario: Scenario, schedule: Schedule, loop: SimulatedLoop
    ) -> None:
        self._scenario = scenario
        self._schedule = schedule
        self._loop = loop
        self.server = APIServer(auto_namespaces=True, history=10_000)
        self.cluster = Cluster(self.server, loop, schedule.seed)
        self.outcome = Outcome(schedule.seed, schedule.strategy.name)
        self._context = contextvars.copy_context()
        self._partitions: dict[str, float] = {}
        self._starts = 0
        self._done = loop.create_future()
        self._quiet = asyncio.Event()
        self._on_quiet: dict[Callable[[], None], None] = {}

    # ------------------------------------------------------------ network

    def place(self, what: str, verb: str) -> _Place:
        program = PROGRAM.get()
        name = "" if program is None else program.name
        line = _line_of_program()
        if line and program is not None:
            self.outcome.places[line] += 1
            now = self._loop.time()
            late = max((now - it for it in program.late.values()), default=0.0)
            known = self.outcome.stale_at.get(line, 0.0)
            self.outcome.stale_at[line] = max(known, late)

        if verb not in {"events", "start"}:
            self.cluster.arrivals.append(self._loop.time())
            self._check()

        place, rng = self._schedule.place(f"{name}: {what}")
        fault = self._schedule.at(place, rng, verb)
        if fault is not None:
            self.outcome.kinds[fault.kind] += 1
            self.note(f"FAULT {fault}")
            if fault.kind in {"kill before", "kill after"} and line:
                self.outcome.killed_at[line] += 1

        return _Place(place, rng, fault)

    async def exchange(
        self, request: Request, headers: dict[str, str]
    ) -> MemoryResponse:
        opened: asyncio.Future[MemoryResponse] = self._loop.create_future()
        program = PROGRAM.get()

        async def serve() -> None:
            query = {key: text for key, text in request.params.items() if text}
            async with self.server.exchange(
                request.method,
                request.path,
                query=query,
                headers=headers,
                body=request.body or b"",
            ) as response:
                if program is not None:
                    program.on_kill.append(response.close)

                if not opened.done():
                    opened.set_result(response)

                await response.wait_closed()

        # Of the cluster, so that it survives the program.
        self._loop.create_task(serve(), context=self._context.copy())
        return await opened

    def spawn(self, request: Request, headers: dict[str, str], delay: float) -> None:
        async def send() -> None:
            await asyncio.sleep(delay)
            response = await self.exchange(request, headers)
            head = await response.head()
            self.note(f"late {request.method} {request.path} -> {head.status}")
            response.close()

        self._loop.create_task(send(), context=self._context.copy())

    @property
    def quiet(self) -> bool:
        return self._schedule.quiet

    def on_quiet(self, call: Callable[[], None]) -> None:
        if self.quiet:
            call()
        else:
            self._on_quiet[call] = None

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._quiet.wait()

    def kill(self, seconds: float) -> None:
        program = PROGRAM.get()
        if program is not None and program.alive:
            self.note(f"KILLED {program.name}, back after {seconds:.1f} s")
            self._restart(program, seconds)

    def _restart(self, program: Program, seconds: float) -> None:
        self._loop.kill(program)
        number = program.name.split("-")[0]
        self._context.copy().run(
            self._loop.call_later, seconds, self._start_program, number
        )

    def partition(self, seconds: float) -> None:
        program = PROGRAM.get()
        if program is not None:
            until = self._partitions.get(program.name, 0.0)
            self._partitions[program.name] = max(until, self._loop.time() + seconds)

    def cut_off(self) -> float:
        program = PROGRAM.get()
        if program is None or self._schedule.quiet:
            return 0.0

        until = self._partitions.get(program.name, 0.0)
        return max(0.0, until - self._loop.time())

    def forget_history(self) -> None:
        self.server.compact()

    def note(self, text: str) -> None:
        self._note(PROGRAM.get(), text)

    def _note(self, program: Program | None, text: str) -> None:
        who = "cluster" if program is None else program.name
        self.outcome.history.append(f"{self._loop.passed:9.3f}  {who}  {text}")

    # ------------------------------------------------------------ the run

    async def run(self) -> None:
        """Run until everything is done, or something is wrong.

        Raises:
            OptionsError: If the program or the workload is none.
            Exception: Error of `setup`.
        """
        scenario = self._scenario
        if scenario.setup is not None:
            scenario.setup(self.cluster)

        self.server._storage.subscribe(self._check)  # noqa: SLF001 - of this project
        for number in range(scenario.replicas):
            self._start_program(f"program{number}" if number else "program")

        working = self._loop.create_task(self._work())
        await asyncio.wait({working, self._done}, return_when="FIRST_COMPLETED")
        if self._done.done():
            self._done.result()
        elif error := _error_of(working):
            self.outcome.error = error
            self.note(f"FAILED workload: {_told(error)}")

    def failed(self, task: asyncio.Task[Any], program: Program | None) -> None:
        """Note a task that has failed, and whose error nobody has asked for so far."""
        coroutine, error = task.get_coro(), _error_of(task)
        name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
        if error is not None:
            self._note(program, f"FAILED task {name}: {_told(error)}")

    def stopped(self, problem: str) -> None:
        """Record that the loop has stopped before the end."""
        self._fail(problem)

    def ended(self) -> Outcome:
        """Return the outcome; nothing that follows changes it."""
        outcome = self.outcome
        outcome.seconds = self._loop.passed
        outcome.faults = [*self._schedule.struck]
        self.outcome = Outcome(outcome.seed, outcome.strategy, "ended")
        return outcome

    async def _work(self) -> None:
        scenario, loop = self._scenario, self._loop
        loop.limit = _WORK_SECONDS
        days = f"{_WORK_SECONDS / 86400:g} virtual days"
        loop.problem_at_limit = f"the workload has not ended within {days}"
        if scenario.workload is not None:
            work = scenario.workload(self.cluster)
            if not inspect.isawaitable(work):
                self._refuse(f"the workload must be `async def`, and returned {work!r}")
                return

            await work

        loop.limit = math.inf
        self._end_faults()
        if scenario.eventually is None:
            await asyncio.sleep(_TRUE_SECONDS)
            return

        seconds = scenario.settle_seconds
        until, since = loop.time() + seconds, None
        while since is None or loop.time() < since + _TRUE_SECONDS:
            problem, error = _problem_of(scenario.eventually, self.cluster)
            if problem:
                since = None
                if loop.time() >= until:
                    self._fail(
                        f"not true within {seconds:g} s without faults: {problem}",
                        error,
                    )
                    return
            elif since is None:
                since = loop.time()

            await asyncio.sleep(1)

    def _end_faults(self) -> None:
        """Begin the quiet phase."""
        self._schedule.quiet = True
        self._loop.doomed.clear()
        self.note("QUIET no more faults")
        self._quiet.set()
        for call in self._on_quiet:
            call()

        self._on_quiet.clear()

    def _start_program(self, number: str) -> None:
        self._starts += 1
        program = Program(f"{number}-{self._starts}")
        context = self._context_of(program)
        context.run(self.note, "STARTED")
        context.run(self._may_doom, program)
        task = self._loop.create_task(self._run_program(program), context=context)
        task.add_done_callback(partial(self._program_ended, program), context=context)

    def _may_doom(self, program: Program) -> None:
        """Decide whether a program is killed after some turns."""
        fault = self.place("start", "start").fault
        if fault is None:
            return

        def doom() -> None:
            for task in self._loop.tasks_of(program):
                if line := _line_of_task(task):
                    self.outcome.killed_at[line] += 1

            self._context_of(program).run(self.kill, fault.seconds)

        program.turns_left, program.on_doom = fault.turns, doom
        self._loop.doomed.append(program)

    def _context_of(self, program: Program) -> contextvars.Context:
        context = self._context.copy()
        context.run(PROGRAM.set, program)
        return context

    async def _run_program(self, program: Program) -> str:
        """Run a program. Return how it ended, if not with an error."""
        try:
            made = self._scenario.program(SimulatedClient(self))
            if not (inspect.isawaitable(made) or callable(getattr(made, "run", None))):
                self._refuse(
                    "the program must return a coroutine or something with `run()`, "
                    f"such as a Manager, and returned {made!r}"
                )
                return ""

            ended = await (made if inspect.isawaitable(made) else made.run())
            if callable(getattr(ended, "run", None)):
                self._refuse(f"the program returned {ended!r}, which nobody runs")
        except (LeadershipLost, SystemExit) as exc:
            return f" with {exc!r}"
        except asyncio.CancelledError:
            raise
        except user_errors() as exc:
            if program.alive:
                self._fail(f"program ended with {_told(exc)}", exc)

        return ""

    def _program_ended(self, program: Program, task: asyncio.Task[str]) -> None:
        """Start a program again that has ended by itself."""
        if program.alive:
            reason = ", cancelled" if task.cancelled() else task.result()
            self.note(f"ENDED{reason}, back after {_RESTART_SECONDS:.1f} s")
            self._restart(program, _RESTART_SECONDS)

    def _check(self) -> None:
        """Check the invariants; called after each write."""
        for invariant in self._scenario.invariants:
            problem, error = _problem_of(invariant, self.cluster)
            if problem:
                self._fail(problem, error)

    def _refuse(self, problem: str) -> None:
        """End the run, as the test is wrong."""
        if not self._done.done():
            self._done.set_exception(OptionsError(problem))

    def _fail(self, problem: str, error: BaseException | None = None) -> None:
        if not self.outcome.violation:
            self.outcome.violation, self.outcome.error = problem, error
            self.note(f"VIOLATION {problem}")
            if not self._done.done():
                self._done.set_result(None)


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    strategy: Strategy | None = None,
    only: frozenset[str] | None = None,
) -> Outcome:
    """Run a program in a simulated cluster, and return what happened.

    Args:
        scenario: Program, and what has to hold.
        seed: Seed of everything that may differ.
        strategy: Strategy; None for that of the seed.
        only: Places at which faults may strike; None for all.

    Raises:
        OptionsError: If the program or the workload returns something else.
        Exception: Error of `setup`.
    """
    with restored_signals(), determined(seed, _STARTED) as clock:
        loop = SimulatedLoop(Random(f"{seed}/order"), shuffled=_SHUFFLED)
        loop.on_time = lambda now: clock.move_to(_STARTED + timedelta(seconds=now))
        LoopBudget.use(loop, _Unlimited())
        run = _Run(scenario, Schedule(seed, strategy, only), loop)
        try:
            loop.on_failure = run.failed
            with _logged(run), counted_threads(loop), virtual_clocks(loop):
                loop.run_until_complete(run.run())
        except RuntimeError:
            if not loop.problem:
                raise

            run.stopped(loop.problem)
        finally:
            loop.drop_ended()
            outcome = run.ended()
            with silent():
                loop.abandon()

    return outcome


class _HistoryHandler(logging.Handler):
    """Handler that adds warnings of the programs to the history."""

    def __init__(self, run: _Run) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._run.note(f"LOG {record.levelname} {record.getMessage()}")
            if record.exc_info and record.exc_info[1] is not None:
                self._run.note(f"LOG {_told(record.exc_info[1])}")
        except Exception:  # noqa: BLE001 - such as a wrong format
            self.handleError(record)


@contextlib.contextmanager
def _logged(run: _Run) -> Iterator[None]:
    """Send the log to the history of a run, and nowhere else."""
    handlers = logging.root.handlers
    logging.root.handlers = [_HistoryHandler(run)]
    try:
        yield
    finally:
        logging.root.handlers = handlers


def _problem_of(
    check: Callable[[Cluster], object], cluster: Cluster
) -> tuple[str, BaseException | None]:
    """Return what is wrong, and the exception that says so; empty if nothing is."""
    name = getattr(check, "__name__", repr(check))
    try:
        result = check(cluster)
    except user_errors() as exc:  # an AssertionError, or that of pytest.fail()
        text = text_of(exc).splitlines()
        return f"{name}: {text[0] if text else type(exc).__name__}", exc

    wrong = result is not None and (not result or inspect.isawaitable(result))
    return (f"{name} is {result!r}" if wrong else ""), None


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return why a task that has ended failed."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _told(error: BaseException) -> str:
    """Return an exception with its causes, and the line of the program that raised it."""
    chain, line = _causes(error), ""
    for cause in chain:
        traceback = cause.__traceback__
        while traceback is not None:
            line = _line_of(traceback.tb_frame, traceback.tb_lineno) or line
            traceback = traceback.tb_next

    told = " from ".join(map(_repr, chain))
    return f"{told} at {line}" if line else told


def _causes(error: BaseException) -> list[BaseException]:
    """Return an exception and its causes, of a group the first member."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(it is cause for it in chain):
        chain.append(cause)
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__

    return chain


def _repr(error: BaseException) -> str:
    return " ".join(text_of(error, repr).split("\n"))


def _line_of_task(task: asyncio.Task[Any]) -> str:
    """Return the line of the program at which a task waits."""
    coroutine: Any = task.get_coro()
    line = ""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        line = _line_of(frame, frame.f_lineno) or line
        coroutine = coroutine.cr_await

    return line


def _line_of_program() -> str:
    """Return the line of the program that waits for the request."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_globals.get("__name__") == "asyncio.events":
            return ""  # the loop, and below it the test

        if line := _line_of(frame, frame.f_lineno):
            return line

        frame = frame.f_back

    return ""


def _line_of(frame: FrameType, number: int) -> str:
    """Return a line of the program as `file.py:12 name`; empty for other code."""
    module = frame.f_globals.get("__name__", "")
    if module.partition(".")[0] in _LIBRARIES:
        return ""

    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{number} {code.co_name}"
