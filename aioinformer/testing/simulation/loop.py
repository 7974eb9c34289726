"""`SimulatedLoop`: an event loop in virtual time, whose programs can be killed.

Time passes only while everything waits. In each turn, a seed decides in which order the
tasks that are ready run. A program is everything that was started in its context. If it
is killed, nothing of it runs any more, not even a `finally`, as after `kill -9`.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections import Counter
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from random import Random

__all__ = ["ALONE", "PROGRAM", "Program", "SimulatedLoop"]

MOST_TURNS: Final = 50_000
"""Number of turns without time passing after which a program is considered hung."""

# Turns after the end of a thread in which its result reaches who waits for it.
_TURNS_OF_THREADS: Final = 10

# Nested waits while a coroutine is closed.
_MOST_CLOSES: Final = 1000

# Time at the start: of a machine that has been up for a day. Programs write `last = 0.0`
# for what is long ago.
_BEGINS: Final = 2.0**17

# Turns in a row after which a moment has passed, as in reality. Programs that wait until a
# time by a clock may ask for less than it can tell.
_FREE_TURNS: Final = 100
_TURN_SECONDS: Final = 1e-6

# Real seconds between two looks for what a thread has finished.
_THREAD_SECONDS: Final = 0.001
_MOST_POLLS: Final = 30_000


class Program:
    """Program that may be killed.

    Args:
        name: Name in the history.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.on_kill: list[Callable[[], None]] = []
        """Functions called when it is killed, such as those of its connections."""
        self.late: dict[object, float] = {}
        """Watches whose events have not arrived yet, and since when."""
        self.turns_left: int | None = None
        """Number of its turns after which `on_doom` is called; None for never."""
        self.on_doom: Callable[[], None] = lambda: None
        """Function called in the turn in which it has to be killed."""

    def __repr__(self) -> str:
        return f"<Program {self.name} {'alive' if self.alive else 'killed'}>"


_NO_PROGRAM: Final = Context()

PROGRAM: ContextVar[Program | None] = ContextVar("program", default=None)
"""Program that runs, if it is not the cluster."""


ALONE: ContextVar[bool] = ContextVar("alone", default=False)
"""True in a thread that nothing in the loop waits for."""

_Awaited: TypeAlias = "dict[Future[Any], tuple[Program | None, bool]]"


class _Selector(selectors.DefaultSelector):
    """Selector that lets virtual time pass instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.before_turn: Callable[[float | None], bool] = lambda timeout: True

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready; see `SimulatedLoop._before_turn`."""
        if self.before_turn(timeout):
            return super().select(0)

        return super().select(_THREAD_SECONDS)


class _Numbered:
    """Task or future whose place in a set is that of the seed, not of its address."""

    number: int

    def __hash__(self) -> int:
        return self.number


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time.

    Args:
        rng: Source of the order of tasks.
        shuffled: Fraction of turns whose tasks are put into another order.
    """

    def __init__(self, rng: Random, *, shuffled: float = 0.0) -> None:
        self._now = _BEGINS
        self._rng = rng
        self._shuffled = shuffled
        self._killed: list[Program] = []
        # Tasks that have not ended, with their programs, oldest first. Freeing the task
        # of a killed program would run its `finally` blocks.
        self._tasks: dict[asyncio.Task[Any], Program | None] = {}
        # Those that have ended since time has passed.
        self._ended: list[asyncio.Task[Any]] = []
        # Number of tasks and futures that were made.
        self._made = 0
        # True once nothing runs any more.
        self._abandoned = False
        # Number of calls in threads of each program, for which real time has to pass.
        self._in_threads: Counter[Program | None] = Counter()
        # What threads may wait for in the loop, for which virtual time has to pass, with
        # their program, and whether something in the loop waits for the thread.
        self._awaited: _Awaited = {}
        self._thread = threading.get_ident()
        self._polls = 0
        selector = _Selector()
        super().__init__(selector)
        self._clock_resolution = 1e-9
        selector.before_turn = self._before_turn
        self.set_task_factory(self._new_task)
        self.on_time: Callable[[float], None] = lambda now: None
        """Function called with `passed` when time has passed."""
        self.problem: str = ""
        """Why the loop has stopped: nothing can happen any more, or time stands still."""
        self.limit: float = math.inf
        """Virtual seconds after which it stops."""
        self.problem_at_limit: str = ""
        """Problem of that."""
        self.doomed: list[Program] = []
        """Programs that have `turns_left`."""
        self.on_failure: Callable[[asyncio.Task[Any], Program | None], None] = (
            lambda task, program: None
        )
        """Function called for a task that has failed, if its error was not asked for by
        the time at which everything waits."""
        # Number of turns at the current time.
        self._turns = 0

    def time(self) -> float:
        """Return the virtual time, which does not begin with 0: see `passed`."""
        return self._now

    @property
    def passed(self) -> float:
        """Virtual seconds since the start."""
        return round(self._now - _BEGINS, 9)

    @property
    def is_current_thread(self) -> bool:
        """True in the thread of the loop."""
        return threading.get_ident() == self._thread

    def thread_began(self, program: Program | None) -> None:
        """Let virtual time stand still until `thread_ended()`."""
        self._in_threads[program] += 1

    def thread_ended(self, program: Program | None) -> None:
        """Let virtual time go on, once what the thread has caused has run."""
        self._after_turns(_TURNS_OF_THREADS, program)

    def _after_turns(self, turns: int, program: Program | None) -> None:
        if turns:
            self.call_soon(self._after_turns, turns - 1, program, context=Context())
            return

        self._in_threads[program] -= 1
        if not self._in_threads[program]:
            del self._in_threads[program]

    def _is_in_threads(self) -> bool:
        """Return True while threads run, and not only wait for the loop."""
        if not self._in_threads:
            return False

        waiting = Counter(
            program
            for future, (program, is_call) in list(self._awaited.items())
            if is_call and future._condition._waiters  # type: ignore[attr-defined]  # noqa: SLF001
        )
        return any(
            count > waiting[program]
            for program, count in self._in_threads.items()
            if program is None or program.alive
        )

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function in a thread, which belongs to the program that calls."""
        if executor is None or isinstance(executor, ThreadPoolExecutor):
            func, args = copy_context().run, (func, *args)

        return super().run_in_executor(executor, func, *args)

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call a function soon, unless the program of the thread was killed.

        What a thread of a killed program waits for is cancelled.
        """
        if self.is_current_thread or context is not None:
            return super().call_soon_threadsafe(callback, *args, context=context)

        call, program = _CallOfThread(callback, args, self._awaited), PROGRAM.get()
        if self._abandoned or not (program is None or program.alive):
            call.fail()
            handle = asyncio.Handle(callback, args, self)
            handle.cancel()
            return handle

        return super().call_soon_threadsafe(call)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future."""
        self._made += 1
        made = _Future(loop=self)
        made.number = self._made
        return made

    def kill(self, program: Program) -> None:
        """Kill a program: nothing of it runs after this step.

        Its threads run until they want something of the loop, and nothing waits for them.
        """
        program.alive = False
        self._killed.append(program)
        self._cancel_killed()
        for future, (owner, _) in list(self._awaited.items()):
            if owner is program:
                _fail(future)

        for call in program.on_kill:
            call()

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        # `asyncio.Task` enters a new task in a set before its number could be set.
        self._made += 1
        task = _Task.__new__(_Task)
        task.number = self._made
        task.__init__(coro, loop=loop, **options)  # type: ignore[misc]
        context = options.get("context")
        program = PROGRAM.get() if context is None else context.get(PROGRAM)
        self._tasks[task] = program
        task.add_done_callback(self._ended.append, context=_NO_PROGRAM)
        return task

    def tasks_of(self, program: Program) -> list[asyncio.Task[Any]]:
        """Return the tasks of a program that have not ended, oldest first."""
        items = self._tasks.items()
        return [task for task, it in items if it is program and not task.done()]

    def drop_ended(self) -> None:
        """Forget tasks that have ended, and report those that failed unnoticed."""
        ended = self._ended[:]
        self._ended.clear()
        for task in ended:
            program = self._tasks.pop(task)
            # As of asyncio, which logs it when such a task is freed.
            if task._log_traceback:  # noqa: SLF001
                self.on_failure(task, program)

    def _before_turn(self, timeout: float | None) -> bool:
        """Prepare a turn. Return False if a thread has to be waited for."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._polls < _MOST_POLLS and not ready and self._is_in_threads():
            self._polls += 1
            return False

        if self._polls == _MOST_POLLS:
            self.problem = "a thread does not return, and virtual time stands still"
            self.stop()

        self._polls = 0
        self._turns += 1
        if self._turns % _FREE_TURNS == 0:
            self._move(_FREE_TURNS * _TURN_SECONDS)

        if self._turns > MOST_TURNS:
            self.problem = f"no time passes: a task goes on without waiting (at {self.passed:.3f} s)"
            self.stop()

        if self._killed:
            self._cancel_killed()

        if ready:
            if self.doomed:
                self._doom(ready)

            if len(ready) > 1 and self._rng.random() < self._shuffled:
                _shuffle(ready, self._rng)

            return True

        if timeout is None:
            self.problem = "nothing can happen any more: every task waits"
            self.stop()
        elif timeout > 0:
            self.drop_ended()
            self._move(timeout)
            self._turns = 0
            if self.passed > self.limit:
                self.problem = self.problem_at_limit
                self.stop()

        return True

    def _move(self, seconds: float) -> None:
        self._now += seconds
        self.on_time(self.passed)

    def _doom(self, ready: Any) -> None:
        """Count the turns of doomed programs."""
        contexts = [it._context for it in tuple(ready)]  # noqa: SLF001
        running = {it.get(PROGRAM) for it in contexts if it is not None}
        for program in [it for it in self.doomed if it in running]:
            assert program.turns_left is not None
            program.turns_left -= 1
            if program.turns_left <= 0:
                self.doomed.remove(program)
                program.on_doom()

    def _cancel_killed(self) -> None:
        waiting: Any = (*self._ready, *self._scheduled)  # type: ignore[attr-defined]
        for handle in waiting:
            context = handle._context  # noqa: SLF001
            program = None if context is None else context.get(PROGRAM)
            if program is not None and not program.alive:
                self._cancel(handle)

    def _cancel(self, handle: Any) -> None:
        if isinstance(handle._callback, _CallOfThread):  # noqa: SLF001
            handle._callback.fail()  # noqa: SLF001

        handle.cancel()

    def abandon(self) -> None:
        """Close the loop without running anything more, and end all coroutines."""
        self._abandoned = True
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            self._cancel(handle)

        for future in list(self._awaited):
            _fail(future)

        # As in a running loop: their `finally` blocks may begin tasks, which are ended,
        # too.
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            while self._tasks:  # the newest first, as they belong to older ones
                task, _ = self._tasks.popitem()
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                    _close(task.get_coro())
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001
            self.close()


class _CallOfThread:
    """Call that a thread makes in the loop.

    Args:
        callback: Function to call.
        args: Its arguments.
        awaited: Futures that threads wait for, to which those of this call are added.
            They are arguments, or within the function, as of
            `asyncio.run_coroutine_threadsafe()`.
    """

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        awaited: _Awaited,
    ) -> None:
        self._callback = callback
        self._args = args
        self._awaited = awaited
        known = [*args]
        for cell in getattr(callback, "__closure__", None) or ():
            with suppress(ValueError):  # it is empty
                known.append(cell.cell_contents)

        self._futures = [it for it in known if isinstance(it, Future) and not it.done()]

    def __call__(self) -> None:
        for future in self._futures:
            self._awaited[future] = PROGRAM.get(), not ALONE.get()
            future.add_done_callback(lambda done: self._awaited.pop(done, None))

        self._callback(*self._args)

    def fail(self) -> None:
        """End what the thread waits for, as its program was killed."""
        for future in self._futures:
            _fail(future)


def _fail(future: Future[Any]) -> None:
    """End what a thread waits for, as its program was killed."""
    with suppress(InvalidStateError):  # it is done, perhaps since a moment
        future.set_exception(asyncio.CancelledError("this program was killed"))


def _close(coroutine: Any) -> None:
    """Close a coroutine, also one that waits within `finally`."""
    for _ in range(_MOST_CLOSES):
        try:
            coroutine.close()
        except RuntimeError:  # it waits again
            continue
        except (Exception, BaseExceptionGroup, GeneratorExit, asyncio.CancelledError):  # noqa: BLE001
            pass  # it finds everything closed

        return


def _shuffle(ready: Any, rng: Random) -> None:
    """Put the steps of tasks into another order; other calls keep their places."""
    places = [
        place
        for place, handle in enumerate(tuple(ready))  # threads add to it
        if isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # noqa: SLF001
    ]
    if len(places) < 2:
        return

    steps = [ready[place] for place in places]
    rng.shuffle(steps)
    for place, step in zip(places, steps, strict=True):
        ready[place] = step
