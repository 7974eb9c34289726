"""Calling a handler: once for each notification, whatever it does to itself.

Most calls wait for nothing, and there may be a hundred thousand of them a second. So the
code that calls is the plainest there is, an `await` in a loop, and what has to be known
of a call that does wait, or does not come back, is watched from outside: by `HandlerCalls`,
through which the listener's task runs that loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from queue import SimpleQueue
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.informer.handlers.error_reporter import LogLimit
from aioinformer.metrics import NULL_SINK, ScopedSink
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
    "Steps",
    "ThreadCalls",
]

logger = guarded_logger(__name__)

BLOCKING_SECONDS = 0.05
"""A handler that keeps the loop from turning for this long delays everything."""

HIGH_WATER = 10_000
"""Notifications waiting for one handler: a warning at this many and at each doubling,
if they have been waiting for longer than a first list takes."""

HIGH_WATER_SECONDS = 10.0

CALM_SECONDS = 5.0
"""If the oldest has been waiting for less, the time of slowness is over, and the next
one is warned of anew."""

LONG_CALL_SECONDS = 60.0
"""A single call that takes longer is warned of while it runs, as it may never end."""

QUIET_SECONDS = 600.0
"""After a warning of a long call there is none for the same handler for this long. And
what waits for it only since then is no part of the same time of slowness."""


class Steps:
    """An awaitable, to be awaited once, by the task that makes it; watches its steps.

    Attributes:
        task: The one that awaits it.
        longest: Seconds of the longest time for which it kept the loop from turning.
        own_cancels: How often it has cancelled the task that it runs in, up to its last
            wait: nobody else can while a step of it runs. What it has taken back of
            others' cancelling is taken off.
    """

    __slots__ = ("_cancels_before", "_coroutine", "longest", "own_cancels", "task")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None  # only a task can await it
        self.task: asyncio.Task[Any] = task
        self._coroutine = _coroutine_of(awaitable)
        self._cancels_before = 0
        self.longest = 0.0
        self.own_cancels = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        """Resume it."""
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise inside of it, as a cancellation does."""
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        """Give it up."""
        self._coroutine.close()

    def forget_cancels(self) -> None:
        """Count anew from here on; asked by itself, within a step."""
        self.own_cancels = 0
        self._cancels_before = self.task.cancelling()

    def own_cancels_so_far(self) -> int:
        """The same as `own_cancels`, asked by itself: the running step's are in it."""
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


class HandlerCalls(Steps):
    """The life of a task that calls a handler, watched from outside.

    Args:
        life: Makes the coroutine, which calls the handler, and sets `event`.
        slowness: Told of calls that block the loop, or do not return.
        budget: Given back when a call begins to wait.

    Attributes:
        event: What the handler is, or was last, called with: set while a call runs, or
            ends all of this, and None in all our own waits.
        waited: That call has waited for something, and its slice was given back:
            `finish()` is due behind it.
    """

    __slots__ = ("_budget", "_slowness", "event", "waited")

    def __init__(
        self,
        life: Callable[[HandlerCalls], Coroutine[Any, Any, None]],
        slowness: HandlerMonitor,
        budget: LoopBudget,
    ) -> None:
        super().__init__(life(self))
        self._slowness = slowness
        self._budget = budget
        self.event: Notification | None = None
        self.waited = False

    def is_from_outside(self, error: BaseException) -> bool:
        """True if what a call raises is a cancellation of its task, and not its own."""
        return (
            isinstance(error, asyncio.CancelledError)
            and self.task.cancelling() > self.own_cancels_so_far()
        )

    async def finish(self) -> None:
        """Go on behind a call that has waited, or has left its task asked to end.

        It may have asked for that itself; or a TaskGroup in it, which up to Python 3.12
        does not always take that back; or somebody else, and the call has kept that for
        itself. Whoever may end the listener has closed it as well.

        Cancellation:
            What arrives here is not the call's.
        """
        self._budget.end()
        self._slowness.call = None
        self.waited = False
        task = self.task
        if task.cancelling():
            while task.uncancel():
                pass

            try:
                # Here its cancelling arrives, if it has not yet.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if task.cancelling():
                    raise

        self.forget_cancels()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        self.longest = 0.0
        try:
            waits_for = super()._step(step, *arguments)
        finally:
            if self.longest > BLOCKING_SECONDS:
                self._slowness.blocked(self.longest)

        if self.event is not None and not self.waited:
            self.waited = True
            self._budget.end()
            self._slowness.call_waits(self.event)

        return waits_for


class HandlerMonitor:
    """Watches over one handler. Has one timer at most, and none while nothing waits.

    Args:
        name: The handler's.
        inbox: What waits for it.
        metrics: Counts `aioinformer_blocking_calls_total` by handler.
    """

    def __init__(
        self, name: str, inbox: Inbox, metrics: MetricsSink = NULL_SINK
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._metrics = ScopedSink(metrics, f"handler {name}")
        self._limit = LogLimit()
        # The next warning is due at this many; and when the last one was written.
        self._high_water = HIGH_WATER
        self._warned_at = 0.0
        self.call: Notification | None = None
        """What it is called with, while that call waits for something."""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    # ------------------------------------------------------------ what waits

    def crowded(self, now: float) -> None:
        """Something was put into the inbox, and at least `HIGH_WATER` wait there."""
        depth, oldest = self._inbox.depth, self._inbox.oldest
        age = now - oldest
        if age < CALM_SECONDS or oldest > self._warned_at + QUIET_SECONDS:
            self._high_water = HIGH_WATER  # no part of an earlier time of slowness

        if age > HIGH_WATER_SECONDS and depth >= self._high_water:
            self._high_water, self._warned_at = depth * 2, now
            logger.warning(
                "handler %s is slow: %d notifications wait for it, the oldest for %.0f s",
                self._name,
                depth,
                age,
            )

    # ------------------------------------------------------------ the loop

    def blocked(self, seconds: float) -> None:
        """Its code took so long, more than `BLOCKING_SECONDS`, without a turn."""
        self._count_blocking()
        verdict = self._limit.note(asyncio.get_running_loop().time())
        if verdict.each:
            logger.warning(
                "handler %s kept the event loop from turning for %.0f ms: everything "
                "else in this process waited",
                self._name,
                seconds * 1000.0,
            )

        for count in verdict.sums:
            logger.warning(
                "handler %s kept the event loop from turning %d times within a minute",
                self._name,
                count,
            )

    def _count_blocking(self) -> None:
        name = "aioinformer_blocking_calls_total"
        try:
            self._metrics.count(name, 1.0, handler=self._name)
        except user_errors():  # logged and dropped
            logger.exception("handler %s: the metrics sink failed", self._name)

    # ------------------------------------------------------------ calls that wait

    def call_waits(self, event: Notification) -> None:
        """A call has begun to wait for something; `call` is to be None behind it."""
        loop = asyncio.get_running_loop()
        self.call = event
        self._began = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LONG_CALL_SECONDS, self._look)

    def close(self) -> None:
        """Nothing is called any more. Idempotent."""
        self.call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget_metrics(self) -> None:
        """Have the sink drop the handler's series."""
        self._metrics.end()

    def _look(self) -> None:
        self._timer = None
        if self.call is None:
            return

        loop = asyncio.get_running_loop()
        now = loop.time()
        due = max(self._began + LONG_CALL_SECONDS, self._silent_until)
        if now >= due:
            self._warn(self.call, now - self._began)
            due = self._silent_until = now + QUIET_SECONDS

        self._timer = loop.call_at(due, self._look)

    def _warn(self, event: Notification, seconds: float) -> None:
        logger.warning(
            "handler %s has been at %r for %.0f s, and has not returned: %d more wait "
            "for it",
            self._name,
            event,
            seconds,
            self._inbox.depth - 1,
        )


Work: TypeAlias = "tuple[Future[BaseException | None], Callable[[], object]]"


class ThreadCalls:
    """One thread for one handler, begun with its first call.

    Of its own, and not one of the loop's: a handler that never returns would take one of
    those from the program that embeds us. And a daemon, as a call that never returns
    would keep the process from ending.

    Args:
        name: The handler's.
        failed: Told of what a call raises, with what it was called with.
    """

    def __init__(
        self, name: str, failed: Callable[[Notification, BaseException], None]
    ) -> None:
        self._name = name
        self._failed = failed
        # What the thread is to do; None in it ends the thread.
        self._works: SimpleQueue[Work | None] | None = None

    def wrap(self, call: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
        """The same call, made in the thread and awaited in the loop."""

        def in_thread(event: Notification) -> Awaitable[None]:
            return self._call(call, event)

        return in_thread

    def close(self) -> None:
        """End the thread when its call has ended. Waits for nothing; idempotent."""
        works, self._works = self._works, None
        if works is not None:
            works.put(None)

    async def _call(self, call: Callable[[Any], object], event: Notification) -> None:
        """Call it, with the context variables of the loop's side.

        Cancellation:
            Not of the call: nobody can end a thread. It goes on unattended, and is
            warned of.
        """
        if self._works is None:
            self._works = _begin_thread(f"handler {self._name}")

        context = contextvars.copy_context()
        outcome: Future[BaseException | None] = Future()
        self._works.put((outcome, lambda: context.run(_call_plain, call, event)))
        try:
            failure = await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if not outcome.cancel() and not outcome.done():
                logger.warning(
                    "handler %s is left alone in its thread: it has not returned from "
                    "%r in time",
                    self._name,
                    event,
                )

            raise

        if failure is not None:
            # Not raised: a coroutine cannot raise a StopIteration.
            self._failed(event, failure)


def _begin_thread(name: str) -> SimpleQueue[Work | None]:
    works: SimpleQueue[Work | None] = SimpleQueue()
    threading.Thread(target=_do, args=(works,), name=name, daemon=True).start()
    return works


def _do(works: SimpleQueue[Work | None]) -> None:
    """The thread: what is asked for, one after the other, until it is None."""
    while (work := works.get()) is not None:
        outcome, call = work
        del work
        failure = None
        running = outcome.set_running_or_notify_cancel()
        if running:
            try:
                failure = _failure_of(call)
            except BaseException as exc:  # it ends the program, from the loop's side
                outcome.set_exception(exc)
                raise

        # Once the loop's side goes on, and while it waits for more, it keeps nothing.
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
    """Call it.

    Raises:
        TypeError: The handler returned an awaitable or a generator.
        BaseException: What it raised.
    """
    outcome = call(event)
    if not isinstance(outcome, Awaitable):
        check_ran(outcome)
        return

    close = getattr(outcome, "close", None)
    if close is not None:
        close()  # or it would be complained of once more, as never awaited

    raise TypeError("a handler with thread=True must be plain, not async")
