"""`SimulatedLoop`: an event loop in virtual time, whose programs can be killed.

Time passes only while everything waits. In each turn, a seed decides in which order the
tasks that are ready run. A program is everything that was started in its context. If it
is killed, nothing of it runs any more, not even a `finally`, as after `kill -9`.
"""

from __future__ import annotations

import asyncio
import selectors
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["PROGRAM", "Program", "SimulatedLoop"]

MOST_TURNS: Final = 50_000
"""Number of turns without time passing after which a program is considered hung."""

# Turns after the end of a thread in which its result reaches who waits for it.
_TURNS_OF_THREADS: Final = 10

# Nested waits while a coroutine is closed.
_MOST_CLOSES: Final = 1000

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


PROGRAM: ContextVar[Program | None] = ContextVar("program", default=None)
"""Program that runs, if it is not the cluster."""


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


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time.

    Args:
        rng: Source of the order of tasks.
        shuffled: Fraction of turns whose tasks are put into another order.
    """

    def __init__(self, rng: Random, *, shuffled: float = 0.0) -> None:
        self._now = 0.0
        self._rng = rng
        self._shuffled = shuffled
        self._killed: list[Program] = []
        # Tasks that have not ended, with their programs, oldest first. Freeing the task
        # of a killed program would run its `finally` blocks.
        self._tasks: dict[asyncio.Task[Any], Program | None] = {}
        # Calls in threads, for which real time has to pass.
        self._in_threads = 0
        self._polls = 0
        selector = _Selector()
        super().__init__(selector)
        self._clock_resolution = 1e-9
        selector.before_turn = self._before_turn
        self.set_task_factory(self._new_task)
        self.on_time: Callable[[float], None] = lambda now: None
        """Function called when time has passed."""
        self.problem: str = ""
        """Why the loop has stopped: nothing can happen any more, or time stands still."""
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
        """Return the virtual time, in seconds since the start."""
        return self._now

    def thread_began(self) -> None:
        """Let virtual time stand still until `thread_ended()`."""
        self._in_threads += 1

    def thread_ended(self) -> None:
        """Let virtual time go on, once what the thread has caused has run."""
        self._after_turns(_TURNS_OF_THREADS)

    def _after_turns(self, turns: int) -> None:
        if turns:
            self.call_soon(self._after_turns, turns - 1, context=Context())
        else:
            self._in_threads -= 1

    def kill(self, program: Program) -> None:
        """Kill a program: nothing of it runs after this step."""
        program.alive = False
        self._killed.append(program)
        self._cancel_killed()
        for call in program.on_kill:
            call()

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        program = PROGRAM.get() if context is None else context.get(PROGRAM)
        self._tasks[task] = program
        return task

    def tasks_of(self, program: Program) -> list[asyncio.Task[Any]]:
        """Return the tasks of a program that have not ended, oldest first."""
        items = self._tasks.items()
        return [task for task, it in items if it is program and not task.done()]

    def _drop_ended(self) -> None:
        """Forget tasks that have ended, and report those that failed unnoticed."""
        for task in [it for it in self._tasks if it.done()]:
            program = self._tasks.pop(task)
            # As of asyncio, which logs it when such a task is freed.
            if task._log_traceback:  # noqa: SLF001
                self.on_failure(task, program)

    def _before_turn(self, timeout: float | None) -> bool:
        """Prepare a turn. Return False if a thread has to be waited for."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._in_threads and not ready and self._polls < _MOST_POLLS:
            self._polls += 1
            return False

        if self._polls == _MOST_POLLS:
            self.problem = "a thread does not return, and virtual time stands still"
            self.stop()

        self._polls = 0
        self._turns += 1
        if self._turns > MOST_TURNS:
            self.problem = (
                f"no time passes: a task goes on without waiting (at {self._now:.3f} s)"
            )
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
            self._drop_ended()
            self._now += timeout
            self._turns = 0
            self.on_time(self._now)

        return True

    def _doom(self, ready: Any) -> None:
        """Count the turns of doomed programs."""
        contexts = [it._context for it in ready]  # noqa: SLF001
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
                handle.cancel()

    def abandon(self) -> None:
        """Close the loop without running anything more, and end all coroutines."""
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            handle.cancel()

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
        for place, handle in enumerate(ready)
        if isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # noqa: SLF001
    ]
    if len(places) < 2:
        return

    steps = [ready[place] for place in places]
    rng.shuffle(steps)
    for place, step in zip(places, steps, strict=True):
        ready[place] = step
