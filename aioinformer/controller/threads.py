"""`Threads`: the threads of one reconcile, and the coroutines that they wait for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aioinformer._tasks import in_thread_until_done, wait_through_cancellation
from aioinformer._user_code import user_errors
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aioinformer.controller.reconcile import ReconcileRequest

__all__ = ["MAX_THREADS", "StartTask", "Threads", "close_coroutine"]

T = TypeVar("T")

MAX_THREADS: Final = 8
"""Maximum number of concurrent threads of one reconcile."""


class StartTask(Protocol):
    """Method `create_task()` of a task group."""

    def __call__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Start a task."""


@dataclass(slots=True, eq=False)
class _Call:
    """One function that runs in a thread."""

    threads: Threads
    cancelled: bool = False


@dataclass(slots=True, eq=False)
class _Wait:
    """Awaitable that a thread has the loop wait for."""

    awaitable: Awaitable[Any]
    outcome: Future[Any]
    call: _Call | None
    """Call that the thread runs, None for a thread of other code."""


# Set in the thread of a call.
_CALL: Final[contextvars.ContextVar[_Call | None]] = contextvars.ContextVar(
    "call", default=None
)


class Threads:
    """Threads of one reconcile, which does not end before they have ended.

    Args:
        request: Request of the reconcile.
        overdue: Callback for a function that runs on after its cancellation, with the
            request, its name and the seconds since then.
        start: Function that starts a task, which may outlive the reconcile's own.
    """

    __slots__ = (
        "_calls",
        "_loop",
        "_over",
        "_overdue",
        "_quiet",
        "_request",
        "_slots",
        "_start",
        "_waits",
    )

    def __init__(
        self,
        request: ReconcileRequest,
        overdue: Callable[[ReconcileRequest, str, float], None],
        start: StartTask,
    ) -> None:
        self._request = request
        self._overdue = overdue
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(MAX_THREADS)
        # Running calls. While there are any, `_quiet` is pending.
        self._calls = 0
        self._quiet: asyncio.Future[None] | None = None
        # Tasks that threads wait for.
        self._waits: dict[asyncio.Task[Any], _Wait] = {}
        self._over = False

    # ------------------------------------------------------------ in the loop

    async def call(self, function: Callable[[], T], name: str) -> T:
        """Call a function in a thread: see `Context.run_in_thread`."""
        if self._over:
            raise OptionsError(
                f"cannot run {name} in a thread: its reconcile has ended"
            )

        if not self._calls:
            self._quiet = asyncio.get_running_loop().create_future()

        self._calls += 1
        call = _Call(self)

        def in_thread() -> T:
            _CALL.set(call)  # in the thread's copy of the context
            return function()

        try:
            async with self._slots:
                return await in_thread_until_done(
                    in_thread,
                    f"{self._request.key} {name}",
                    cancelled=functools.partial(self._cancel, call),
                    overdue=functools.partial(self._overdue, self._request, name),
                )
        finally:
            self._calls -= 1
            if not self._calls and self._quiet is not None:
                self._quiet.set_result(None)

    async def ended(self) -> None:
        """Wait until all calls have ended, and refuse further ones.

        A call outlives its reconcile if it was made in a task that is not awaited.

        Cancellation:
            Deferred until all calls have ended.
        """
        interrupted = None
        while self._calls and self._quiet is not None:
            interrupted = await wait_through_cancellation(self._quiet) or interrupted

        self._over = True
        for task in self._waits:  # of threads that are not calls
            task.cancel()

        for task in tuple(self._waits):
            interrupted = await wait_through_cancellation(task) or interrupted

        if interrupted is not None:
            raise interrupted

    def _cancel(self, call: _Call) -> None:
        """Cancel the waits of a call, and those of threads that may belong to it."""
        call.cancelled = True
        for task, wait in tuple(self._waits.items()):
            if wait.call is None or wait.call is call:
                task.cancel()

    # ------------------------------------------------------------ in a thread

    def in_loop(self, function: Callable[[], T]) -> T:
        """Call a function in the loop: at once there, or from a thread."""
        if _in_loop():
            return function()

        async def call() -> T:
            return function()

        return self.wait(call())

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something in the loop: see `Context.wait`."""
        if not inspect.isawaitable(awaitable):
            raise OptionsError(
                "ctx.wait() takes a coroutine, such as ctx.client.get(...), not "
                f"{type(awaitable).__name__}"
            )

        if _in_loop():
            close_coroutine(awaitable)
            raise OptionsError(
                "ctx.wait() would block the event loop: use `await` in a coroutine"
            )

        outcome: Future[T] = Future()
        context = contextvars.copy_context()
        try:
            self._loop.call_soon_threadsafe(
                self._begin_wait, awaitable, outcome, self._call(), context
            )
        except RuntimeError:  # the loop is closed
            close_coroutine(awaitable)
            raise self._cancellation() from None

        return outcome.result()

    def _call(self) -> _Call | None:
        """Return the call in whose thread this runs. None in any other thread."""
        call = _CALL.get()
        return call if call is not None and call.threads is self else None

    def _begin_wait(
        self,
        awaitable: Awaitable[Any],
        outcome: Future[Any],
        call: _Call | None,
        context: contextvars.Context,
    ) -> None:
        """Start the task that a thread waits for."""
        wait = _Wait(awaitable, outcome, call)
        task = None
        settled = _settled(wait.awaitable)
        if not (self._over or (wait.call is not None and wait.call.cancelled)):
            name = f"{self._request.key} ctx.wait()"
            with suppress(RuntimeError):  # the task group ends after a bug
                task = self._start(settled, name=name, context=context)

        if task is None:
            settled.close()
            close_coroutine(wait.awaitable)
            wait.outcome.set_exception(self._cancellation())
        else:
            self._waits[task] = wait
            task.add_done_callback(self._end_wait)

    def _end_wait(self, task: asyncio.Task[tuple[Any, BaseException | None]]) -> None:
        wait = self._waits.pop(task)
        outcome = wait.outcome
        if task.cancelled():
            close_coroutine(wait.awaitable)  # if it has not begun
            outcome.set_exception(self._cancellation())
            return

        result, failure = None, task.exception()  # SystemExit, which ends the program
        if failure is None:
            result, failure = task.result()

        if failure is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(failure)

    def _cancellation(self) -> asyncio.CancelledError:
        return asyncio.CancelledError(
            f"ctx.wait() was cancelled: the reconcile of {self._request.key} has ended, "
            "timed out, or its controller stops"
        )


async def _settled(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """Return the result and the error, which must not end the task group."""
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except user_errors() as exc:
        return None, exc


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False

    return True


def close_coroutine(awaitable: object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
