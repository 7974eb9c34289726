"""`Listener`: delivers the notifications in one handler's inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from aioinformer._tasks import Notifier
from aioinformer._user_code import user_errors
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped
from aioinformer.informer.handlers.event_handlers import HandlerFilter, HandlerOptions
from aioinformer.informer.handlers.handler_calls import (
    HIGH_WATER,
    HandlerCalls,
    HandlerMonitor,
    ThreadCalls,
)
from aioinformer.informer.handlers.inbox import CoalescingInbox, Inbox
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.handlers.event_handlers import EventHandlers, Outcome
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.handlers.resync import Resync
    from aioinformer.informer.notifications import Notification
    from aioinformer.metrics import MetricsSink

    Events = Iterator[Notification | None]

__all__ = ["Listener"]


class Listener:
    """Delivery of notifications to one handler, one call at a time.

    It owns no task: the processor calls `run()`, once.

    Args:
        name: Name in log and metrics.
        handlers: Functions of the handler.
        reporter: Reporter of failures.
        options: Options of the handler. Only `filter`, `coalesce` and `thread` are
            used.
        resync: Resync timer; None for no resyncs.
        metrics: Sink of the measurements; see `HandlerMonitor`.
    """

    def __init__(
        self,
        name: str,
        handlers: EventHandlers,
        reporter: ErrorReporter,
        options: HandlerOptions | None = None,
        *,
        resync: Resync | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        options = options or HandlerOptions()
        self.name = name
        self.on_crowded: Callable[[Listener], None] = _ignore
        """Function called when `merge()` should be called; must not wait."""
        self.on_progress: Callable[[], None] | None = None
        """Function called when the queue became shorter; must not wait."""
        self._inbox = CoalescingInbox(self._crowded) if options.coalesce else Inbox()
        self._monitor = HandlerMonitor(name, self._inbox, metrics)
        self._reporter = reporter
        self._threads = ThreadCalls(name, self._failed)
        self._functions: dict[type, Callable[[Any], Outcome]] = handlers.calls()
        if options.thread:
            self._functions = {
                kind: self._threads.wrap(call) for kind, call in self._functions.items()
            }

        self._resync = resync
        # Functions that filter or record notifications on delivery, in this order.
        self._stages: list[Callable[[Events], Events]] = []
        if resync is not None:
            self._stages.append(resync.apply)

        if options.filter is not None:
            matching = HandlerFilter(options.filter, name, reporter)
            self._stages.append(matching.apply)

        self._task: asyncio.Task[None] | None = None
        # Separate from `_progress`, which wakes its waiters after every notification.
        self._over = asyncio.Event()
        self.removed: bool = False
        """True once `remove()` was called: nothing is queued or delivered any more."""
        self._closed = False
        self._progress = Notifier()
        self._waiters = 0

    def __repr__(self) -> str:
        return f"<Listener {self.name} waiting={self.depth}>"

    # ------------------------------------------------------------ input

    def put(self, batch: Batch, now: float, arrived: float | None = None) -> None:
        """Queue a batch; it is shared and must not be changed.

        Args:
            batch: Notifications.
            now: Time on the loop's clock.
            arrived: Start of their latency, on the same clock; None to measure none.
        """
        if not len(batch):
            return

        inbox = self._inbox
        inbox.put(batch, now, arrived)
        if inbox.queued - inbox.delivered >= HIGH_WATER:
            self._monitor.crowded(now)

    def mark_synced(self) -> None:
        """Record that the queue now contains the complete initial state."""
        if self._inbox.initial is None:
            self._inbox.initial = self._inbox.queued
            self._notify()

    def resync_by(self, resync: Callable[[], None] | None) -> None:
        """Call a function when a resync is due; for None, a resync reads the store."""
        if self._resync is not None:
            self._resync.on_due = resync

    async def merge(self) -> None:
        """Merge notifications that were queued while the handler was busy.

        Cancellation:
            Safe: the rest is merged later.
        """
        if isinstance(self._inbox, CoalescingInbox):
            await self._inbox.merge()
            self._notify()  # an addition and its deletion may have cancelled out

    def remove(self) -> None:
        """Drop queued notifications, and deliver no more. A running call finishes."""
        self.removed = True
        self.close()
        self._inbox.clear()
        if self._resync is not None:
            self._resync.stop()

        self._notify()

    def close(self) -> None:
        """Do not call the handler again. A running call continues."""
        self._closed = True

    # ------------------------------------------------------------ state

    @property
    def depth(self) -> int:
        """Number of queued notifications, including the one being processed."""
        return 0 if self.removed else self._inbox.depth

    def age(self, now: float) -> float:
        """Return the seconds since the oldest notification was queued; 0 for none."""
        return now - self._inbox.oldest if self.depth else 0.0

    @property
    def synced(self) -> bool:
        """True once the handler has processed the initial notifications."""
        return self._inbox.synced

    @property
    def ended(self) -> bool:
        """True once its task has ended, or will never run."""
        return self._over.is_set()

    async def wait_synced(self) -> None:
        """Wait until the handler has processed the initial notifications.

        Raises:
            InformerStopped: If the handler ended, or was removed, before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: self.synced)

    async def wait_idle(self) -> None:
        """Wait until nothing is queued for the handler, or it is removed.

        Raises:
            InformerStopped: If the handler ended before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: not self.depth)

    async def wait_ended(self) -> None:
        """Wait until its task has ended. Cancellation: safe."""
        await self._over.wait()

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.ended or self.removed:
                raise InformerStopped(f"handler {self.name} has ended")

            self._waiters += 1
            try:
                await self._progress.wait()
            finally:
                self._waiters -= 1

    def _notify(self) -> None:
        """Wake the tasks that wait for progress, usually none."""
        if self._waiters:
            self._progress.notify()

        if self.on_progress is not None:
            self.on_progress()

    def in_own_task(self) -> bool:
        """Return True inside a call of its own handler."""
        return self._task is not None and asyncio.current_task() is self._task

    def end(self) -> None:
        """Record that nothing is delivered any more, and wake waiters. Idempotent."""
        self._over.set()
        self._monitor.close()
        self._threads.close()
        if self._resync is not None:
            self._resync.stop()

        self._notify()

    def forget_metrics(self) -> None:
        """Make the metrics sink drop the series of this handler."""
        self._monitor.forget_metrics()

    # ------------------------------------------------------------ delivery

    async def run(self) -> None:
        """Deliver queued notifications, until removed.

        Cancellation:
            Stops it, even in the middle of a call; queued notifications are dropped.
        """
        self._task = task = asyncio.current_task()
        assert task is not None
        try:
            if self._resync is not None and not self.removed:
                self._resync.start(self._put_resync)

            budget = LoopBudget.current()
            await HandlerCalls(
                lambda calls: self._deliver(calls, budget), self._monitor, budget
            )
        finally:
            self._task = None
            self.end()

    async def _deliver(self, calls: HandlerCalls, budget: LoopBudget) -> None:
        inbox, metrics = self._inbox, self._monitor.metrics
        while not self._closed:
            batch: Iterable[Any] | None = await inbox.take()
            await budget.start()
            while batch is not None:
                if self._stages:
                    batch = self._through_stages(batch)

                await self._call_each(batch, calls, budget)
                if metrics.enabled and not self._closed:
                    self._monitor.delivered()

                self._notify()
                batch = inbox.take_now()

            budget.end()

    async def _call_each(
        self, events: Iterable[Any], calls: HandlerCalls, budget: LoopBudget
    ) -> None:
        """Call the handler with each event, in slices of the budget.

        The hottest loop: one iteration for each event and handler.
        """
        inbox, function_for = self._inbox, self._functions.get
        cancelling = calls.task.cancelling
        for event in events:
            if self._closed:
                break

            call = function_for(type(event))
            if call is not None:
                calls.event = event
                try:
                    outcome = call(event)
                    # Checking for a coroutine takes a tenth of checking for an
                    # `Awaitable`.
                    if outcome is not None and (
                        type(outcome) is CoroutineType
                        or isinstance(outcome, Awaitable)
                        or check_ran(outcome)  # type: ignore[unreachable]
                    ):
                        await outcome
                except user_errors() as exc:
                    if calls.is_from_outside(exc):
                        raise

                    self._failed(event, exc)

                if calls.waited or cancelling():
                    calls.event = None
                    await calls.finish()
                    await budget.start()

            inbox.delivered += 1
            if perf_counter() > budget.deadline:
                calls.event = None
                await budget.start()

        calls.event = None

    def _through_stages(self, batch: Iterable[Notification | None]) -> Iterable[Any]:
        """Apply the stages; a notification that the filter drops becomes None."""
        events: Iterable[Any] = batch
        for stage in self._stages:
            events = stage(iter(events))

        return events

    def _failed(self, event: Notification, cause: BaseException) -> None:
        self._reporter.failed("handler", self.name, event, cause)

    def _put_resync(self, batch: Batch) -> None:
        self.put(batch, asyncio.get_running_loop().time())

    def _crowded(self) -> None:
        self.on_crowded(self)


def _ignore(_: Listener) -> None:
    """Do nothing: without a processor, notifications are merged on delivery."""
