"""Helpers for tasks and threads: the only module that may create tasks directly.

Other modules open an `asyncio.TaskGroup`. Components that host programs embed
(`Client`, `SharedInformerFactory`, `APIServer`) are entered and left by different tasks
(test fixtures, ASGI lifespans), where a TaskGroup must not be held open. They keep it
inside one `Supervisor` task instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import math
import threading
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.errors import AioInformerError, InternalError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine
    from contextlib import AbstractAsyncContextManager

__all__ = [
    "BackgroundContext",
    "Notifier",
    "SharedRun",
    "Supervisor",
    "fail_when_any_ends",
    "finish",
    "in_next_turn",
    "in_thread",
    "in_thread_until_done",
    "run_concurrently",
    "start_thread",
    "unexpected_cancellation",
    "unwrap_group",
    "wait_for_end",
    "wait_through_cancellation",
]

T = TypeVar("T")


OVERDUE_SECONDS = 10.0
"""Time after its cancellation when a thread that still runs is reported first."""

OVERDUE_AGAIN_SECONDS = 60.0
"""Interval of further reports."""


async def finish(cleanup: Coroutine[Any, Any, T], *, within_seconds: float) -> T:
    """Run `cleanup` to its end, even while the caller is being cancelled.

    For the few awaits that must complete during clean-up, such as closing a session.
    Unlike `asyncio.shield()`, it never leaves its task behind.

    Args:
        cleanup: Coroutine to run. It is started immediately in its own task.
        within_seconds: Time limit on the loop's clock; then it is cancelled.

    Returns:
        Result of `cleanup`.

    Raises:
        TimeoutError: If it did not finish in time and was cancelled.
        Exception: Error of `cleanup`.

    Cancellation:
        Deferred until clean-up has ended, then raised. If the clean-up failed as well,
        its error becomes a note on the `CancelledError`: the cancellation takes
        precedence.
    """
    task = asyncio.create_task(cleanup)
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(within_seconds, expire)
    try:
        interrupted = await wait_through_cancellation(task)
    finally:
        timer.cancel()

    failure: BaseException | None
    if not task.cancelled():
        failure = task.exception()
    elif expired:
        failure = TimeoutError(f"clean-up did not finish within {within_seconds} s")
    else:
        failure = asyncio.CancelledError("clean-up cancelled itself")

    if interrupted is not None:
        if failure is not None:
            interrupted.add_note(f"clean-up also failed: {failure!r}")

        raise interrupted

    if failure is not None:
        raise failure

    return task.result()


async def wait_for_end(task: asyncio.Task[Any]) -> None:
    """Wait until a task is over, however it ends.

    Cancellation:
        Deferred until it is over.
    """
    interrupted = await wait_through_cancellation(task)
    if interrupted is not None:
        raise interrupted


async def in_next_turn(run: Callable[[], Awaitable[T]]) -> T:
    """Call a coroutine function in the next turn of the loop.

    For the tasks of a TaskGroup: an eager task could fail before the group has the other
    ones, which it then refuses.
    """
    await asyncio.sleep(0)
    return await run()


async def fail_when_any_ends(tasks: Collection[asyncio.Task[Any]]) -> NoReturn:
    """Wait in the block of a TaskGroup, and raise when one of its tasks ends by itself.

    For tasks that run until their owner cancels them. A TaskGroup reports a task that
    fails, but ignores one that is cancelled, by itself or by other code.

    Raises:
        InternalError: If a task has ended although the caller was not cancelled.

    Cancellation:
        The normal end. It takes precedence if a task is cancelled at the same time, as
        when the loop shuts down.
    """
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    names = ", ".join(sorted(repr(task.get_name()) for task in done))
    raise unexpected_cancellation(names)


def unexpected_cancellation(name: str) -> InternalError:
    """Return the error of a task that was not cancelled by its owner."""
    return InternalError(
        f"task {name} cancelled itself or was cancelled by other code than its owner"
    )


async def run_concurrently(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines concurrently. The first failure cancels the others.

    For waiting in a user's task: unlike a TaskGroup, which before Python 3.13 can leave
    the task marked as cancelled, it never cancels the caller.

    Raises:
        BaseException: Error of the first coroutine, in the given order, that failed.
        InternalError: If one cancelled itself or was cancelled by other code.

    Cancellation:
        Passed on to all of them, and raised when they have ended.
    """
    tasks = [
        asyncio.create_task(coroutine, name=getattr(coroutine, "__qualname__", None))
        for coroutine in coroutines
    ]
    rest, cancelled = set(tasks), set[asyncio.Task[Any]]()
    try:
        while rest:
            # FIRST_EXCEPTION would wait on after a task that is cancelled.
            done, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            cancelled = {task for task in done if task.cancelled()}
            if cancelled or any(task.exception() is not None for task in done):
                break
    finally:
        for task in tasks:
            task.cancel()

        interrupted = None
        for task in tasks:
            interrupted = await wait_through_cancellation(task) or interrupted

    if interrupted is not None:
        raise interrupted

    for task in tasks:
        if task in cancelled:
            raise unexpected_cancellation(repr(task.get_name()))

        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


def unwrap_group(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only leaf of a nested exception group, or the group itself."""
    exc: BaseException = group
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]

    return group if isinstance(exc, BaseExceptionGroup) else exc


async def in_thread(
    call: Callable[[], T], *, stop: Callable[[], None] | None = None
) -> T:
    """Call a function in a new thread.

    Args:
        call: Function, called with a copy of the caller's context variables.
        stop: Function that makes the call return early, called on cancellation.

    Raises:
        OSError: If the operating system cannot start a thread (`EAGAIN`).
        BaseException: Error of the function.

    Cancellation:
        With `stop`, deferred until the call has returned. Otherwise immediate: the
        thread continues, and its result is dropped.
    """
    threads = _ThreadEach("aioinformer")
    ended = asyncio.get_running_loop().run_in_executor(threads, _settled(call))
    if ended.done():
        # On Python 3.14, a short call may have ended. Other tasks run also then.
        await asyncio.sleep(0)

    if stop is not None:
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            stop()
            await wait_through_cancellation(ended)
            raise

    result, failure = await ended
    try:
        if failure is not None:
            raise failure

        return result  # type: ignore[no-any-return]
    finally:
        del failure  # it refers to this frame


async def in_thread_until_done(
    call: Callable[[], T],
    name: str,
    *,
    cancelled: Callable[[], None],
    overdue: Callable[[float], None],
) -> T:
    """Call a function in a new thread, and always wait for its end.

    Args:
        call: Function, called with a copy of the caller's context variables.
        name: Name of the thread.
        cancelled: Function called when the caller is cancelled, so that it can make the
            call return early.
        overdue: Function called with the seconds since the first cancellation when the
            thread has not ended 10 s after it, and then once a minute.

    Returns:
        Result of the function.

    Raises:
        OSError: If the operating system cannot start a thread (`EAGAIN`).
        BaseException: Error of the function.

    Cancellation:
        Deferred until the function has ended, then raised. If the function failed, its
        error becomes a note on the `CancelledError`.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.wrap_future(_ThreadEach(name).submit(_settled(call)))
    interrupted: asyncio.CancelledError | None = None
    since = due = math.inf
    while not ended.done():
        timeout = None if interrupted is None else max(0.0, due - loop.time())
        try:
            await asyncio.wait({ended}, timeout=timeout)
        except asyncio.CancelledError as exc:
            if interrupted is None:
                since, due = loop.time(), loop.time() + OVERDUE_SECONDS
                cancelled()

            interrupted = exc
        else:
            if not ended.done():
                due += OVERDUE_AGAIN_SECONDS
                overdue(loop.time() - since)

    result, failure = ended.result()
    try:
        if interrupted is not None:
            if not isinstance(failure, asyncio.CancelledError | None):
                interrupted.add_note(f"the thread also failed: {failure!r}")

            raise interrupted

        if failure is not None:
            raise failure

        return result  # type: ignore[no-any-return]
    finally:
        del interrupted, failure  # each refers to this frame


def _settled(call: Callable[[], T]) -> Callable[[], tuple[Any, BaseException | None]]:
    """Wrap a call so that it returns its result and its error.

    A `StopIteration` cannot be the exception of a future.
    """
    context = contextvars.copy_context()

    def settled() -> tuple[Any, BaseException | None]:
        try:
            return context.run(call), None
        except user_errors() as exc:
            return None, exc

    return settled


def start_thread(target: Callable[[], object], name: str) -> None:
    """Start a daemon thread.

    Raises:
        OSError: If the operating system cannot start a thread (`EAGAIN`).
    """
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as exc:
        raise OSError(errno.EAGAIN, "can't start new thread") from exc


class _ThreadEach(Executor):
    """Executor that starts a thread for each call.

    The loop's default executor is shared: long calls would delay those of the host
    program, and the reverse. The threads are daemons, so that a call that never returns
    does not prevent the process from exiting.

    Args:
        name: Name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(
        self, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> Future[T]:
        """Start the call.

        Raises:
            OSError: If the operating system cannot start a thread (`EAGAIN`).
        """
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # cancelling the wait ends no thread

        def live() -> None:
            try:
                outcome.set_result(function(*args, **kwargs))
            except BaseException as exc:  # ends the program, raised on the loop's side
                outcome.set_exception(exc)
                raise

        start_thread(live, self._name)
        return outcome


class SharedRun:
    """One run at a time of a coroutine function, for all callers that wait for it.

    The run has a task of its own: a cancelled caller ends neither the run nor the wait
    of others. Its owners are the callers that wait and those that keep it. When the
    last of them ends, the run is cancelled.

    Args:
        function: Coroutine function. Its errors are raised by `wait()`.
        name: Name of the task.
    """

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> None:
        self._function = function
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self._keepers = 0
        self._waiters = 0

    @property
    def kept(self) -> bool:
        """True if runs continue without waiting callers."""
        return self._keepers > 0

    def keep(self) -> None:
        """Let runs continue without waiting callers, until `release()`."""
        self._keepers += 1

    async def release(self) -> None:
        """Undo one `keep()`. The last one cancels the run and waits for its end.

        Cancellation:
            Ends the wait. The run is cancelled nevertheless.
        """
        self._keepers -= 1
        await self._end_unowned()

    def start(self) -> float:
        """Start a run unless one is in progress.

        Only for callers that keep or `wait()`: otherwise the run would have no owner.

        Returns:
            Seconds since the run began.
        """
        now = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._began = now
            self._task = asyncio.create_task(self._function(), name=self._name)

        return now - self._began

    async def wait(self, seconds: float | None = None) -> bool:
        """Start a run unless one is in progress, and wait for its end.

        Args:
            seconds: Maximum time to wait; None for no limit.

        Returns:
            True if the run has ended in time.

        Raises:
            BaseException: Error of the run.

        Cancellation:
            Ends this wait. The run continues if it has other owners. Otherwise it is
            cancelled, and the cancellation is deferred until it has ended. A second
            cancellation is not deferred, as the function may ignore the first.
        """
        self.start()
        task = self._task
        assert task is not None
        self._waiters += 1
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        finally:
            self._waiters -= 1
            await self._end_unowned()

        if done and not task.cancelled():
            task.result()

        return bool(done)

    async def _end_unowned(self) -> None:
        task = self._task
        if task is None or task.done() or self._keepers or self._waiters:
            return

        # New callers start another run instead of joining one that is ending.
        self._task = None
        task.cancel()
        task.add_done_callback(_note_failure)
        await asyncio.wait({task})


class Notifier:
    """Condition without a lock: `notify()` wakes all tasks that wait at that moment."""

    def __init__(self) -> None:
        # A new event for each notification, so that no waiting task misses it.
        self._next = asyncio.Event()

    def notify(self) -> None:
        """Wake all tasks that wait now. Later ones wait for the next call."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `notify()`. Cancellation: safe."""
        await self._next.wait()


class BackgroundContext(Generic[T]):
    """Async context that is entered, held open and left by its own task.

    For contexts that are entered ahead of their use. Entering starts with the creation.
    The creator must `leave()` it.
    """

    def __init__(self, context: AbstractAsyncContextManager[T], name: str) -> None:
        self._value: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enough = asyncio.Event()
        self._dropped = False
        self._task = asyncio.create_task(self._hold(context), name=name)
        # Without a caller of `value()`, the error is not reported either.
        self._task.add_done_callback(_note_failure)

    @property
    def left(self) -> bool:
        """True once it was left, or entering failed."""
        return self._task.done()

    async def value(self) -> T:
        """Wait until it is entered, and return its value.

        Raises:
            BaseException: Error of entering.

        Cancellation:
            Safe: entering continues, call again, or `leave()`.
        """
        either: set[asyncio.Future[Any]] = {self._task, self._value}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._value.done():
            self._task.result()  # raises

        return self._value.result()

    def drop(self) -> None:
        """Request its end, immediately if it is not entered yet. Idempotent."""
        if not self._dropped:
            self._dropped = True
            self._enough.set()
            if not self._value.done():
                self._task.cancel()

    async def leave(self) -> None:
        """Leave the context, or abort entering it, and wait for that. Idempotent.

        Raises:
            BaseException: Error of leaving.

        Cancellation:
            Deferred until it is left.
        """
        self.drop()
        interrupted = await wait_through_cancellation(self._task)
        if interrupted is not None:
            raise interrupted

        if self._value.done():
            self._task.result()

    async def _hold(self, context: AbstractAsyncContextManager[T]) -> None:
        async with context as value:
            self._value.set_result(value)
            await self._enough.wait()


# Supervisors of the running code: tasks inherit them from the tasks that create them.
_SUPERVISORS: ContextVar[tuple[Supervisor, ...]] = ContextVar("supervisors", default=())


class Supervisor:
    """One task that runs a component, for hosts that start and stop it.

    `start()` and `stop()` may be called by different tasks of one loop. The component
    is a coroutine function. It calls the function passed to it when it is ready, and
    then usually waits for its cancellation inside a TaskGroup.
    """

    def __init__(
        self,
        component: Callable[[Callable[[], None]], Coroutine[Any, Any, None]],
        name: str,
    ) -> None:
        self._component = component
        self._name = name
        # Task of the component, until its outcome was reported.
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """True from `start()` until the component has ended."""
        return self._task is not None and not self._task.done()

    @property
    def stopping(self) -> bool:
        """True once the component was asked to end."""
        return self._stopping

    async def start(self) -> None:
        """Start the component and wait until it is ready.

        Raises:
            OptionsError: If it is running already.
            AioInformerError: If it ended before it was ready, as after a concurrent
                `stop()`.
            BaseException: Its error before it was ready; a group with a single leaf is
                unwrapped.

        Cancellation:
            Ends the component again, and waits for that. If it fails, its error becomes
            a note on the `CancelledError`.
        """
        if self.running:
            raise OptionsError(f"the {self._name} is already running")

        ready = asyncio.get_running_loop().create_future()

        def mark_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        inside = contextvars.copy_context()
        inside.run(_SUPERVISORS.set, (*_SUPERVISORS.get(), self))
        task = asyncio.create_task(
            self._component(mark_ready), name=self._name, context=inside
        )
        self._task, self._stopping = task, False
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as exc:
            await self._end(task)
            failure = self._take_failure(task)
            if failure is not None:
                exc.add_note(f"the {self._name} also failed: {failure!r}")

            raise
        finally:
            was_ready = not ready.cancel()

        if task.done():
            self._raise_failure(task)
            if not was_ready:
                raise AioInformerError(f"the {self._name} ended before it was ready")

    async def stop(self) -> None:
        """End the component, wait for that, and raise its error. Idempotent.

        If the component itself calls it, it requests the end and does not wait, as that
        would be a deadlock.

        Raises:
            BaseException: Error of the component, other than its cancellation; a group
                with a single leaf is unwrapped. Raised once: not if `start()` or an
                earlier call has raised it.

        Cancellation:
            Deferred until the component has ended. The next call then raises its error.
        """
        task = self._task
        if task is None:
            return

        if self.contains_caller():
            self.cancel()
            return

        interrupted = await self._end(task)
        if interrupted is not None:
            raise interrupted

        self._raise_failure(task)

    def cancel(self) -> None:
        """Request the end of the component, without waiting for it. Idempotent."""
        if self._task is not None and not self._stopping:
            # Only once: a second cancellation would interrupt its clean-up.
            self._stopping = True
            self._task.cancel()

    def contains_caller(self) -> bool:
        """Return True in the component's task, or in a task created below it."""
        return self in _SUPERVISORS.get()

    async def _end(self, task: asyncio.Task[None]) -> asyncio.CancelledError | None:
        self.cancel()
        return await wait_through_cancellation(task)

    def _raise_failure(self, task: asyncio.Task[None]) -> None:
        failure = self._take_failure(task)
        if failure is not None:
            raise failure

    def _take_failure(self, task: asyncio.Task[None]) -> BaseException | None:
        """Return the error of the component to the first caller."""
        if self._task is not task:
            return None

        self._task = None
        failure = None if task.cancelled() else task.exception()
        return (
            unwrap_group(failure)
            if isinstance(failure, BaseExceptionGroup)
            else failure
        )


def _note_failure(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception, so that asyncio does not report it as never retrieved."""
    if not task.cancelled():
        task.exception()


async def wait_through_cancellation(
    task: asyncio.Future[Any],
) -> asyncio.CancelledError | None:
    """Wait for the end of a task or future, even if the caller is cancelled.

    Returns:
        The caller's cancellation, if there was one. The caller raises it.

    Cancellation:
        Deferred.
    """
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            interrupted = exc

    return interrupted
