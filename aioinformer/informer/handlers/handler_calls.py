"""Calls of a handler: monitoring, cancellation, and calls in a thread.

Most calls return without suspending, and there may be a hundred thousand per second. So
the listener calls handlers in a plain loop, without a task or timer per call.
`HandlerCalls` wraps that loop. It detects calls that suspend, block the event loop, or
do not return.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from aioinformer._tasks import start_thread
from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.informer.handlers.error_reporter import LogLimit
from aioinformer.metrics import NULL_SINK, GuardedSink, ScopedSink
from aioinformer.model.callables import check_ran

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioinformer.budget import LoopBudget
    from aioinformer.informer.handlers.inbox import Inbox
    from aioinformer.informer.notifications import Notification
    from aioinformer.metrics import MetricsSink

__all__ = [
    "BLOCKING_SECONDS",
    "HIGH_WATER",
    "HandlerCalls",
    "HandlerMonitor",
    "ThreadCalls",
    "TimedCoroutine",
]

logger: Final = guarded_logger(__name__)

BLOCKING_SECONDS = 0.05
"""Seconds from which a call that blocks the event loop is counted and logged."""

HIGH_WATER = 10_000
"""Queue depth of one handler from which a warning is logged, if the oldest notification
has been queued for more than `HIGH_WATER_SECONDS`. The next warning follows at twice
the depth."""

HIGH_WATER_SECONDS = 10.0
"""Seconds for which a deep queue is normal, as after a first list."""

CALM_SECONDS = 5.0
"""Age of the oldest notification, in seconds, below which a handler is no longer slow.
The next slow period is logged again."""

LONG_CALL_SECONDS = 60.0
"""Seconds after which a running call is logged as a warning, as it may never end."""

QUIET_SECONDS = 600.0
"""Seconds between warnings about long calls of one handler. If the oldest notification
was queued more than this after a warning, the handler is in a new slow period."""

THREAD_RETRY_SECONDS = 1.0
"""Seconds until another attempt when the operating system cannot start a thread."""

_BLOCKING = "aioinformer_blocking_calls_total"
_LATENCY = "aioinformer_handler_latency_seconds"


class TimedCoroutine:
    """Awaitable that measures how long each step of a coroutine blocks the event loop.

    Await it once, in the task that creates it.

    Attributes:
        task: Task that awaits it.
        longest: Duration of the longest step in seconds.
        own_cancels: Number of cancellations of its task that the coroutine requested
            itself, up to its last suspension. (No other code runs during a step.)
            Cancellations by other code that it has undone (`uncancel`) are subtracted.
    """

    __slots__ = ("_cancels_before", "_coroutine", "longest", "own_cancels", "task")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None  # only a task can await it
        self.task: asyncio.Task[Any] = task
        self._coroutine = _coroutine_of(awaitable)
        self._cancels_before = 0
        self.longest: float = 0.0
        self.own_cancels: int = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside the coroutine, as a cancellation does."""
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def forget_cancels(self) -> None:
        """Reset `own_cancels`; called within a step."""
        self.own_cancels = 0
        self._cancels_before = self.task.cancelling()

    def own_cancels_so_far(self) -> int:
        """Return `own_cancels` including the running step; called within a step."""
        cancels = self.task.cancelling() - self._cancels_before
        return max(self.own_cancels + cancels, 0)

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self._cancels_before = self.task.cancelling()
        before = perf_counter()
        try:
            return step(*arguments)
        finally:
            self.longest = max(self.longest, perf_counter() - before)
            self.own_cancels = self.own_cancels_so_far()


def _coroutine_of(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    return awaitable if isinstance(awaitable, CoroutineType) else _wait_for(awaitable)


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class HandlerCalls(TimedCoroutine):
    """Monitor of a coroutine that calls a handler.

    Args:
        delivery: Function that returns the coroutine. The coroutine sets `event` before
            each call.
        monitor: Monitor of the handler, for calls that block the loop or do not return.
        budget: Budget of the loop. The slice ends when a call suspends.

    Attributes:
        event: Notification of the running call, or of the call that ended the task.
            None while the coroutine itself waits between calls.
        waited: True if the running call has suspended, which ended the slice of the
            budget. Call `finish()` after such a call.
    """

    __slots__ = ("_budget", "_monitor", "event", "waited")

    def __init__(
        self,
        delivery: Callable[[HandlerCalls], Coroutine[Any, Any, None]],
        monitor: HandlerMonitor,
        budget: LoopBudget,
    ) -> None:
        super().__init__(delivery(self))
        self._monitor = monitor
        self._budget = budget
        self.event: Notification | None = None
        self.waited: bool = False

    def is_from_outside(self, error: BaseException) -> bool:
        """Return True if the error of a call is a cancellation by other code."""
        return (
            isinstance(error, asyncio.CancelledError)
            and self.task.cancelling() > self.own_cancels_so_far()
        )

    async def finish(self) -> None:
        """Clean up after a call that suspended or left a cancellation request.

        All cancellation requests on the task are dropped. They may come from the call
        itself, or from a `TaskGroup` in it: up to Python 3.12, a group does not always
        undo its own request. Or other code made the request and the call swallowed the
        `CancelledError`. The processor's cancellation is not lost, because the
        processor closes the listener first.

        Cancellation:
            A new cancellation during this method is raised.
        """
        self._budget.end()
        self._monitor.call = None
        self.waited = False
        task = self.task
        if task.cancelling():
            while task.uncancel():
                pass

            try:
                # A pending cancellation is delivered here.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if task.cancelling():
                    raise

        self.forget_cancels()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self.longest: float = 0.0
        try:
            waits_for = super()._step(step, *arguments)
        finally:
            if self.longest > BLOCKING_SECONDS:
                self._monitor.blocked(self.longest)

        if self.event is not None and not self.waited:
            self.waited = True
            self._budget.end()
            self._monitor.call_waits(self.event)

        return waits_for


class HandlerMonitor:
    """Monitor of one handler's queue and slow calls, with a timer while calls wait.

    Args:
        name: Name of the handler.
        inbox: Queued notifications of the handler.
        metrics: Sink of `aioinformer_blocking_calls_total` and
            `aioinformer_handler_latency_seconds`, by handler. The latency is the time
            from the arrival of a batch of events, decoded, until the handler has
            processed it. For lists and stores on disk, it starts when the notifications
            are queued. Resyncs have none.
    """

    def __init__(
        self, name: str, inbox: Inbox, metrics: MetricsSink = NULL_SINK
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._scope = ScopedSink(metrics, f"handler {name}")
        self.metrics: GuardedSink = GuardedSink(
            self._scope, f"handler {name}", handler=name
        )
        self._limit = LogLimit()
        # Number of notifications for the next warning, and the time of the last one.
        self._high_water = HIGH_WATER
        self._warned_at = 0.0
        self.call: Notification | None = None
        """Notification of the running call once that has suspended; else None."""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    # ------------------------------------------------------------ queued notifications

    def crowded(self, now: float) -> None:
        """Warn if the handler is slow; called from a depth of `HIGH_WATER`."""
        depth, oldest = self._inbox.depth, self._inbox.oldest
        age = now - oldest
        if age < CALM_SECONDS or oldest > self._warned_at + QUIET_SECONDS:
            self._high_water = HIGH_WATER  # a new period of slowness

        if age > HIGH_WATER_SECONDS and depth >= self._high_water:
            self._high_water, self._warned_at = depth * 2, now
            logger.warning(
                "handler %s is slow: %d notifications are queued, the oldest for %.0f s",
                self._name,
                depth,
                age,
            )

    # ------------------------------------------------------------ measurements

    def delivered(self) -> None:
        """Record that the batch that was taken last is processed."""
        arrived = self._inbox.arrived
        if arrived is not None:
            seconds = asyncio.get_running_loop().time() - arrived
            self.metrics.observe(_LATENCY, seconds)

    # ------------------------------------------------------------ blocking calls

    def blocked(self, seconds: float) -> None:
        """Record a step that blocked the loop for more than `BLOCKING_SECONDS`."""
        self.metrics.count(_BLOCKING)
        verdict = self._limit.note(asyncio.get_running_loop().time())
        if verdict.each:
            logger.warning(
                "handler %s blocked the event loop for %.0f ms, or the machine was overloaded "
                "(use thread=True for code that blocks)",
                self._name,
                seconds * 1000.0,
            )

        for count in verdict.sums:
            logger.warning(
                "handler %s blocked the event loop %d times within a minute",
                self._name,
                count,
            )

    # ------------------------------------------------------------ long calls

    def call_waits(self, event: Notification) -> None:
        """Record that a call has suspended. Set `call` to None after the call."""
        loop = asyncio.get_running_loop()
        self.call = event
        self._began = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LONG_CALL_SECONDS, self._check)

    def close(self) -> None:
        """Stop the timer, because there are no more calls. Idempotent."""
        self.call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget_metrics(self) -> None:
        """Make the sink drop the series of the handler."""
        for name in (_BLOCKING, _LATENCY):
            # Another handler of the name may have begun the series.
            self._scope.forget(name, handler=self._name)

        self._scope.end()

    def _check(self) -> None:
        self._timer = None
        if self.call is None:
            return

        loop = asyncio.get_running_loop()
        now = loop.time()
        due = max(self._began + LONG_CALL_SECONDS, self._silent_until)
        if now >= due:
            self._warn(self.call, now - self._began)
            due = self._silent_until = now + QUIET_SECONDS

        self._timer = loop.call_at(due, self._check)

    def _warn(self, event: Notification, seconds: float) -> None:
        logger.warning(
            "handler %s has been processing %r for %.0f s and has not returned (%d more "
            "queued)",
            self._name,
            event,
            seconds,
            self._inbox.depth - 1,
        )


QueuedCall: TypeAlias = "tuple[Future[BaseException | None], Callable[[], object]]"


class ThreadCalls:
    """Thread of one handler, started by the first call.

    The thread does not belong to the loop's executor, where a handler that never
    returns would block a thread of the host program. It is a daemon thread, so such a
    handler does not keep the process alive.

    Args:
        name: Name of the handler.
        failed: Function called with the notification and the error of a failed call.
    """

    def __init__(
        self, name: str, failed: Callable[[Notification, BaseException], None]
    ) -> None:
        self._name = name
        self._failed = failed
        # Queue of calls for the thread; None ends the thread.
        self._calls: SimpleQueue[QueuedCall | None] | None = None
        self._waits = LogLimit()

    def wrap(self, call: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
        """Return an awaitable version of a plain function, which runs in the thread."""

        def in_thread(event: Notification) -> Awaitable[None]:
            return self._call(call, event)

        return in_thread

    def close(self) -> None:
        """End the thread after its running call; does not wait. Idempotent."""
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.put(None)

    async def _call(self, call: Callable[[Any], object], event: Notification) -> None:
        """Make a call in the thread, with the context variables of this task.

        Cancellation:
            A running call is abandoned with a warning, as threads cannot be cancelled.
            A queued call is not made.
        """
        while self._calls is None:
            try:
                self._calls = _start_thread(f"handler {self._name}")
            except OSError as exc:
                if self._waits.note(asyncio.get_running_loop().time()).each:
                    logger.warning("handler %s waits for a thread: %s", self._name, exc)

                await asyncio.sleep(THREAD_RETRY_SECONDS)

        context = contextvars.copy_context()
        outcome: Future[BaseException | None] = Future()
        self._calls.put((outcome, lambda: context.run(_call_plain, call, event)))
        try:
            failure = await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if not outcome.cancel() and not outcome.done():
                logger.warning(
                    "handler %s did not return from %r in time, abandoning its thread",
                    self._name,
                    event,
                )

            raise

        if failure is not None:
            # Not raised, as a coroutine cannot raise StopIteration.
            self._failed(event, failure)


def _start_thread(name: str) -> SimpleQueue[QueuedCall | None]:
    calls: SimpleQueue[QueuedCall | None] = SimpleQueue()
    start_thread(partial(_run_calls, calls), name)
    return calls


def _run_calls(calls: SimpleQueue[QueuedCall | None]) -> None:
    """Make queued calls until None is queued; runs in the thread."""
    while (queued := calls.get()) is not None:
        outcome, call = queued
        del queued
        failure = None
        running = outcome.set_running_or_notify_cancel()
        if running:
            try:
                failure = _failure_of(call)
            except BaseException as exc:  # such as SystemExit: raised in the loop, too
                outcome.set_exception(exc)
                raise

        # Release references before the thread waits for the next call.
        del call
        if running:
            outcome.set_result(failure)

        del outcome, failure


def _failure_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except user_errors() as exc:
        return exc

    return None


def _call_plain(call: Callable[[Any], object], event: Notification) -> None:
    """Call a plain handler.

    Raises:
        TypeError: If it returned an awaitable or a generator.
        BaseException: Error of the handler.
    """
    outcome = call(event)
    if not isinstance(outcome, Awaitable):
        check_ran(outcome)
        return

    close = getattr(outcome, "close", None)
    if close is not None:
        close()  # or Python warns that it was never awaited

    raise TypeError("a handler with thread=True must be a plain function, not async")
