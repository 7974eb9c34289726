"""`Runnables`: coroutines that run concurrently, each in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer._tasks import unexpected_cancellation, unwrap_group, wait_for_end
from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import AioInformerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import NoReturn

__all__ = ["Runnable", "Runnables", "wait_until_cancelled"]

logger: Final = guarded_logger(__name__)


# Runnables of the running code: tasks inherit them from the tasks that create them.
_RUNNABLES: ContextVar[tuple[Runnable, ...]] = ContextVar("runnables", default=())


@dataclass(eq=False, frozen=True, slots=True)
class Runnable:
    """Coroutine function that runs until it is cancelled or returns.

    Attributes:
        name: Name in logs and of the task.
        run: Coroutine function without arguments.
        hurry: Function that skips the drain of a run that is ending. None for a second
            cancellation.
        on_end: Callback for the end of the task. The argument is the reason if neither
            the owner nor the runnable itself ended it. Without a callback, that is a
            failure.
    """

    name: str
    run: Callable[[], Awaitable[object]]
    hurry: Callable[[], None] | None = None
    on_end: Callable[[BaseException | None], None] | None = None

    def contains_caller(self) -> bool:
        """Return True in the task of its run, or in a task created below it."""
        return self in _RUNNABLES.get()


async def wait_until_cancelled() -> NoReturn:
    """Wait for the cancellation of this task."""
    while True:
        await asyncio.Event().wait()


class Runnables:
    """Group of runnables, each in a task of its own. It runs once.

    A runnable that fails does not end the others: the group reports it to its owner.

    Args:
        on_failure: Callback for each runnable that fails, with its error.
        drain_seconds: Seconds that all may take to end. Then their drains are skipped.
            None for no limit.
    """

    def __init__(
        self,
        on_failure: Callable[[Runnable, BaseException], None],
        *,
        drain_seconds: float | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        """First failure, or None."""
        self.ended = False
        """True once runnables are not started any more."""
        self._on_failure = on_failure
        self._drain_seconds = drain_seconds
        self._pending: list[Runnable] = []
        self._tasks: dict[Runnable, asyncio.Task[None]] = {}
        # Runnables that have a task. An eager task runs before `_tasks` has it.
        self._started: set[Runnable] = set()
        # Cancelled or failed. A second cancellation would cut short their drain.
        self._ending: set[Runnable] = set()
        self._failed: set[Runnable] = set()
        self._group: asyncio.TaskGroup | None = None
        self._context = contextvars.Context()
        self._nonempty = asyncio.Event()
        # Set by the first failure, or at the end.
        self._decided = asyncio.Event()
        # Why drains are skipped; empty while they are not.
        self._hurried = ""

    def __repr__(self) -> str:
        return f"<Runnables {len(self._pending) + len(self._tasks)}>"

    @property
    def running(self) -> bool:
        """True while added runnables are started at once."""
        return self._group is not None and not self.ended

    def add(self, runnable: Runnable) -> None:
        """Add a runnable, and start it at once if the group runs."""
        if self._group is None:
            self._pending.append(runnable)
        else:
            self._start(runnable, self._group)

        self._nonempty.set()

    async def wait_nonempty(self) -> None:
        """Wait until the first runnable is added. Cancellation: safe."""
        await self._nonempty.wait()

    async def run(
        self, main: Callable[[], Awaitable[object]] = wait_until_cancelled
    ) -> None:
        """Run all runnables, including those added later, until `main` ends.

        Args:
            main: Coroutine function that is awaited once the first runnables are
                started.

        Raises:
            ExceptionGroup: With the error of `main`.

        Cancellation:
            Stops it. Every runnable is cancelled once, and this ends after the last of
            them. A second cancellation, or the end of `drain_seconds`, skips their
            drains.
        """
        # A runnable added later, perhaps by a request to a web app, inherits the
        # context of this run and not that of the request.
        self._context = contextvars.copy_context()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for runnable in self._pending:
                self._start(runnable, group)

            self._pending.clear()
            try:
                await main()
            finally:
                self._group = None
                self.close()
                await self._end_all()

    def close(self) -> None:
        """Start no more runnables. Idempotent."""
        self.ended = True
        self._decide()

    async def stop(
        self,
        runnable: Runnable,
        *,
        wait: bool = True,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Stop one runnable before the others. Idempotent.

        If it takes longer than `drain_seconds`, its drain is skipped.

        Args:
            runnable: Runnable to stop, or to drop if it was never started.
            wait: False to return before it has ended.
            then: Callback for its end.

        Cancellation:
            Deferred until the runnable has ended.
        """
        task = self._tasks.get(runnable)
        if task is None:
            if runnable in self._pending:
                self._pending.remove(runnable)

            if runnable.on_end is not None:
                runnable.on_end(None)

            then()
            return

        task.add_done_callback(lambda _: then())
        if self._drain_seconds is not None and runnable not in self._ending:
            loop = asyncio.get_running_loop()
            seconds = self._drain_seconds
            timer = loop.call_later(seconds, self._hurry_one, runnable, seconds)
            task.add_done_callback(lambda _: timer.cancel())

        self._cancel(runnable)
        if wait:
            await wait_for_end(task)

    def hurry(self, reason: str) -> None:
        """Skip the drain of runnables that are ending, now or later.

        Args:
            reason: Reason for the log, such as `"by a signal"`.
        """
        self._hurried = self._hurried or reason
        if not (self.ended and self._tasks):
            return

        self._skip_drains(self._tasks, reason)

    async def wait_failed(self) -> BaseException | None:
        """Wait for the first failure. Return None if all ended without one.

        Cancellation:
            Safe.
        """
        await self._decided.wait()
        return self.failure

    def fail(self, runnable: Runnable, failure: BaseException) -> None:
        """Record the failure of a runnable, once, before its task is over."""
        if runnable in self._failed or runnable not in self._started:
            return

        self._failed.add(runnable)
        self._ending.add(runnable)  # by itself
        if self.failure is None:
            self.failure = failure
            self._decide()

        self._on_failure(runnable, failure)

    def unexpected_cancellation(self, runnable: Runnable) -> BaseException | None:
        """Return the error of a cancelled runnable; None if its owner cancelled it."""
        if self.ended or runnable in self._ending or runnable not in self._started:
            return None

        return unexpected_cancellation(repr(runnable.name))

    # ------------------------------------------------------------ helpers

    def _start(self, runnable: Runnable, group: asyncio.TaskGroup) -> None:
        self._started.add(runnable)
        task = group.create_task(
            self._run(runnable), name=runnable.name, context=self._context.copy()
        )
        self._tasks[runnable] = task
        task.add_done_callback(lambda task: self._remove(runnable, task))

    async def _run(self, runnable: Runnable) -> None:
        _RUNNABLES.set((*_RUNNABLES.get(), runnable))
        try:
            await runnable.run()
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

            failure = AioInformerError(f"{runnable.name} cancelled itself")
            failure.__cause__ = exc
            self.fail(runnable, failure)
        except BaseExceptionGroup as errors:
            self.fail(runnable, unwrap_group(errors))
        except user_errors() as exc:
            self.fail(runnable, exc)

    def _remove(self, runnable: Runnable, task: asyncio.Task[None]) -> None:
        """Forget a task that is over."""
        # A task that is cancelled before its first step never called `run()`.
        reason = self.unexpected_cancellation(runnable) if task.cancelled() else None
        if runnable.on_end is not None:
            runnable.on_end(reason)
        elif reason is not None:
            self.fail(runnable, reason)

        del self._tasks[runnable]
        self._started.discard(runnable)
        self._ending.discard(runnable)
        self._failed.discard(runnable)
        self._decide()

    def _cancel(self, runnable: Runnable) -> None:
        if runnable not in self._ending:
            self._ending.add(runnable)
            self._tasks[runnable].cancel()

    def _hurry_one(self, runnable: Runnable, seconds: float) -> None:
        self._skip_drains({runnable: self._tasks[runnable]}, f"after {seconds:g} s")

    @staticmethod
    def _skip_drains(tasks: Mapping[Runnable, asyncio.Task[None]], reason: str) -> None:
        names = ", ".join(runnable.name for runnable in tasks)
        logger.warning("drain cut short %s (still running: %s)", reason, names)
        for runnable, task in tasks.items():
            if runnable.hurry is None:
                task.cancel()
            else:
                runnable.hurry()

    def _decide(self) -> None:
        if self.failure is not None or (self.ended and not self._tasks):
            self._decided.set()

    async def _end_all(self) -> None:
        """End all tasks. The TaskGroup would cancel ending tasks a second time."""
        tasks = list(self._tasks.values())
        for runnable in self._tasks:
            self._cancel(runnable)

        if not tasks:
            return

        if self._drain_seconds is None:
            await asyncio.wait(tasks)
            return

        loop = asyncio.get_running_loop()
        # At the earliest in the next turn: two cancellations in one turn act as one.
        if self._hurried:
            timer = loop.call_later(0.0, self.hurry, self._hurried)
        else:
            seconds = self._drain_seconds
            timer = loop.call_later(seconds, self.hurry, f"after {seconds:g} s")

        try:
            await asyncio.wait(tasks)
        finally:
            timer.cancel()
            self.hurry("by a second cancellation")
