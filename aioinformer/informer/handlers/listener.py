"""A listener: one handler's inbox, and the task that empties it."""

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
    """One handler's inbox, and the task that empties it.

    Never calls its handler concurrently with itself. Owns no task: `run()` is its whole
    life, and the processor starts it.

    Args:
        name: In log and metrics.
        handlers: Functions of the handler.
        reporter: Reporter of failures.
        options: Filter, coalescing and thread; the rest is its maker's.
        resync: Its timer; None for no resyncs.
        metrics: Counts calls that block the loop.
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
        """Called when somebody should call `tidy()`; must not wait."""
        self._inbox = CoalescingInbox(self._crowded) if options.coalesce else Inbox()
        self._slowness = HandlerMonitor(name, self._inbox, metrics)
        self._reporter = reporter
        self._threads = ThreadCalls(name, self._failed)
        self._functions: dict[type, Callable[[Any], Outcome]] = handlers.calls()
        if options.thread:
            self._functions = {
                kind: self._threads.wrap(call) for kind, call in self._functions.items()
            }

        self._resync = resync
        # What notifications pass on their way from the inbox to the handler.
        self._stages: list[Callable[[Events], Events]] = []
        if resync is not None:
            self._stages.append(resync.passing)

        if options.filter is not None:
            accepts = HandlerFilter(options.filter, name, reporter)
            self._stages.append(accepts.passing)

        self._task: asyncio.Task[None] | None = None
        # An event of its own: progress comes with each notification.
        self._over = asyncio.Event()
        self.removed = False
        """Nothing waits for it any more, and nothing is delivered."""
        self._closed = False
        self._progress = Notifier()
        self._followers = 0

    def __repr__(self) -> str:
        return f"<Listener {self.name} waiting={self.depth}>"

    # ------------------------------------------------------------ what goes in

    def put(self, batch: Batch, now: float) -> None:
        """Queue a batch; it is shared, so nobody may change it."""
        if not len(batch):
            return

        inbox = self._inbox
        inbox.put(batch, now)
        if inbox.queued - inbox.delivered >= HIGH_WATER:
            self._slowness.crowded(now)

    def mark_synced(self) -> None:
        """Record that the queue now contains the complete initial state."""
        if self._inbox.initial is None:
            self._inbox.initial = self._inbox.queued
            self._tell()

    async def tidy(self) -> None:
        """Merge what has come while the handler was busy.

        Cancellation:
            Safe: the rest is merged later.
        """
        if isinstance(self._inbox, CoalescingInbox):
            await self._inbox.merge()
            self._tell()  # a beginning and its end may have come to nothing

    def remove(self) -> None:
        """Deliver nothing more: what waits is dropped. A running call finishes."""
        self.removed = True
        self.close()
        self._inbox.clear()
        if self._resync is not None:
            self._resync.stop()

        self._tell()

    def close(self) -> None:
        """Call the handler no more, whatever becomes of the call that runs."""
        self._closed = True

    # ------------------------------------------------------------ how it is doing

    @property
    def depth(self) -> int:
        """Notifications that wait, the one being handled included."""
        return 0 if self.removed else self._inbox.depth

    def age(self, now: float) -> float:
        """For how many seconds the oldest of them has been waiting; 0 if none is."""
        return now - self._inbox.oldest if self.depth else 0.0

    @property
    def synced(self) -> bool:
        """The handler has dealt with everything that was there when it began."""
        return self._inbox.synced

    @property
    def ended(self) -> bool:
        """Its task is over, or never began and never will."""
        return self._over.is_set()

    async def wait_synced(self) -> None:
        """Wait until the handler has dealt with the initial state.

        Raises:
            InformerStopped: The handler ended, or was removed, before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: self.synced)

    async def wait_idle(self) -> None:
        """Wait until nothing waits for the handler; nothing does once it is removed.

        Raises:
            InformerStopped: The handler ended before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: not self.depth)

    async def wait_ended(self) -> None:
        """Wait until its task is over. Cancellation: safe."""
        await self._over.wait()

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.ended or self.removed:
                raise InformerStopped(f"handler {self.name} has ended")

            self._followers += 1
            try:
                await self._progress.wait()
            finally:
                self._followers -= 1

    def _tell(self) -> None:
        """Wake who waits for progress; most of the time that is nobody."""
        if self._followers:
            self._progress.notify()

    def in_own_task(self) -> bool:
        """True inside a call of its own handler."""
        return self._task is not None and asyncio.current_task() is self._task

    def end(self) -> None:
        """Nothing will be delivered any more; whoever waits is told. Idempotent."""
        self._over.set()
        self._slowness.close()
        self._threads.close()
        if self._resync is not None:
            self._resync.stop()

        self._tell()

    def forget_metrics(self) -> None:
        """Have the metrics sink drop the series of this handler."""
        self._slowness.forget_metrics()

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Deliver what is queued, until removed.

        Cancellation:
            Stops it in the middle of a call; what waits is dropped.
        """
        self._task = task = asyncio.current_task()
        assert task is not None
        try:
            if self._resync is not None and not self.removed:
                self._resync.start(self._put_now)

            budget = LoopBudget.current()
            await HandlerCalls(
                lambda calls: self._deliver(calls, budget), self._slowness, budget
            )
        finally:
            self._task = None
            self.end()

    async def _deliver(self, calls: HandlerCalls, budget: LoopBudget) -> None:
        inbox = self._inbox
        while not self._closed:
            batch: Iterable[Any] | None = await inbox.take()
            await budget.start()
            while batch is not None:
                await self._tell_each(self._passing(batch), calls, budget)
                self._tell()
                batch = inbox.take_now()

            budget.end()

    async def _tell_each(
        self, events: Iterable[Any], calls: HandlerCalls, budget: LoopBudget
    ) -> None:
        """Call the handler with each, as long as the slice lasts; then wait for one.

        The hottest loop of all: once for each event and handler.
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
                    # The usual ones are told at a tenth of what the protocol costs.
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

    def _passing(self, batch: Iterable[Notification | None]) -> Iterable[Any]:
        """Return a batch after resync marks and filter; None for dropped notifications."""
        events: Iterable[Any] = batch
        for stage in self._stages:
            events = stage(iter(events))

        return events

    def _failed(self, event: Notification, cause: BaseException) -> None:
        self._reporter.failed("handler", self.name, event, cause)

    def _put_now(self, batch: Batch) -> None:
        self.put(batch, asyncio.get_running_loop().time())

    def _crowded(self) -> None:
        self.on_crowded(self)


def _ignore(_: Listener) -> None:
    """Nobody tidies up before it belongs to a processor."""
