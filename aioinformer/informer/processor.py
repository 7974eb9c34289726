"""The processor: hands notifications to listeners, each at its own pace.

One task and one unbounded queue for each listener. An entry of the queue is a batch that
all listeners share; a snapshot (the first list, or what a late handler is told first) is
one entry of objects, from which notifications are made while they are delivered. So a
listener costs a queue entry for each batch, and a slow one delays nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from aioinformer._tasks import Bell
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped
from aioinformer.informer.handlers import first_step
from aioinformer.informer.notifications import Added
from aioinformer.metrics import NULL_SINK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.informer.handlers import Handlers, Outcome, RestOfCall
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.reporting import Reporter
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject

__all__ = ["Batch", "Listener", "Processor", "Snapshot"]

logger = logging.getLogger(__name__)

BLOCKING_SECONDS = 0.05
"""A handler that keeps the loop from turning for this long delays everything."""

HIGH_WATER = 10_000
"""Notifications waiting for one handler: a warning at this many and at each doubling,
if they have been waiting for longer than a first list takes."""

HIGH_WATER_SECONDS = 10.0


class Batch(Protocol):
    """Notifications that several listeners share; nobody may change it."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Notification]: ...


class Snapshot:
    """Objects that are told as `Added`, made one by one."""

    __slots__ = ("_initial", "_objects")

    def __init__(self, objects: list[KubeObject], *, initial: bool = True) -> None:
        self._objects = objects
        self._initial = initial

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Notification]:
        for obj in self._objects:
            yield Added(obj, self._initial)


class Listener:
    """One handler's queue, and the task that empties it.

    Never calls its handler concurrently with itself. Owns no task: `run()` is its whole
    life, and the processor starts it.
    """

    def __init__(
        self,
        name: str,
        handlers: Handlers,
        reporter: Reporter,
        *,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self.name = name
        self._calls = handlers.calls()
        self._reporter = reporter
        self._metrics = metrics
        self._queue: asyncio.Queue[tuple[float, Batch] | None] = asyncio.Queue()

        # Of all notifications ever queued, how many have been delivered; and how many
        # that must be for the handler to be in sync, None before that is known.
        self._queued = 0
        self._delivered = 0
        self._in_sync_at: int | None = None
        self._high_water = HIGH_WATER
        self._oldest = 0.0
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self.removed = False
        """No further notification is to be delivered."""
        self._progress = Bell()

    def __repr__(self) -> str:
        return f"<Listener {self.name} waiting={self.depth}>"

    # ------------------------------------------------------------ what goes in

    def put(self, batch: Batch, now: float) -> None:
        """Queue a batch; it is shared, so nobody may change it."""
        if self.removed or not len(batch):
            return

        if not self.depth:
            self._oldest = now
            self._high_water = HIGH_WATER

        self._queue.put_nowait((now, batch))
        self._queued += len(batch)
        if self.depth >= self._high_water and self.age(now) > HIGH_WATER_SECONDS:
            self._high_water = self.depth * 2
            logger.warning(
                "handler %s is slow: %d notifications wait for it, the oldest for %.0f s",
                self.name,
                self.depth,
                self.age(now),
            )

    def mark_synced(self) -> None:
        """What is queued now is all of the initial state."""
        if self._in_sync_at is None:
            self._in_sync_at = self._queued
            self._progress.ring()

    def remove(self) -> None:
        """Deliver nothing more: what waits is dropped. A running call finishes."""
        self.removed = True
        while not self._queue.empty():
            self._queue.get_nowait()  # or whoever holds a registration would keep it

        self._queue.put_nowait(None)
        self._progress.ring()

    # ------------------------------------------------------------ how it is doing

    @property
    def depth(self) -> int:
        """Notifications that wait, the one being handled included."""
        return 0 if self.removed else self._queued - self._delivered

    def age(self, now: float) -> float:
        """For how many seconds the oldest of them has been waiting; 0 if none is."""
        return now - self._oldest if self.depth else 0.0

    @property
    def synced(self) -> bool:
        """The handler has dealt with everything that was there when it began."""
        return self._in_sync_at is not None and self._delivered >= self._in_sync_at

    @property
    def ended(self) -> bool:
        """Its task is over, or never began and never will."""
        return self._ended

    async def wait_synced(self) -> None:
        """Wait until the handler has dealt with the initial state.

        Raises:
            InformerStopped: It ended, or was removed, before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: self.synced)

    async def wait_idle(self) -> None:
        """Wait until nothing waits for the handler; nothing does once it is removed.

        Raises:
            InformerStopped: It ended before that.

        Cancellation:
            Safe.
        """
        await self._wait_for(lambda: not self.depth)

    async def wait_ended(self) -> None:
        """Wait until its task is over. Cancellation: safe."""
        while not self._ended:
            await self._progress.wait()

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._ended or self.removed:
                raise InformerStopped(f"handler {self.name} has ended")

            await self._progress.wait()

    def in_own_task(self) -> bool:
        """True inside a call of its own handler."""
        return self._task is not None and asyncio.current_task() is self._task

    def end(self) -> None:
        """Nothing will be delivered any more; whoever waits is told."""
        self._ended = True
        self._progress.ring()

    # ------------------------------------------------------------ its life

    async def run(self) -> None:
        """Deliver what is queued, until removed.

        Cancellation:
            Stops it in the middle of a call; what waits is dropped.
        """
        self._task = task = asyncio.current_task()
        assert task is not None
        try:
            while not self.removed:
                entry = await self._queue.get()
                if entry is not None:
                    self._oldest = entry[0]
                    await self._deliver(entry[1], task)
                    # Kept while it waits, it would keep the objects that it replaced.
                    del entry
                    self._progress.ring()
        finally:
            self._task = None
            self.end()

    async def _deliver(self, batch: Batch, task: asyncio.Task[Any]) -> None:
        budget = LoopBudget.current()
        await budget.start()
        for event in batch:
            if self.removed:
                break

            call = self._calls.get(type(event))
            if call is not None:
                before = perf_counter()
                rest = self._begin(call, event)
                if perf_counter() - before > BLOCKING_SECONDS:
                    self._blocked(perf_counter() - before)

                if rest is not None or task.cancelling():
                    budget.end()
                    await self._finish(event, rest, task)
                    await budget.start()

            self._delivered += 1
            if budget.over():
                await budget.start()

        budget.end()

    def _begin(
        self, call: Callable[[Any], Outcome], event: Notification
    ) -> RestOfCall | None:
        """Call the handler; returns what is left of it, if it waits for something."""
        try:
            outcome = call(event)
            return None if outcome is None else first_step(outcome)
        except asyncio.CancelledError as exc:
            # Ours arrives only where we wait, so the handler cancelled itself.
            self._failed(event, exc)
        except Exception as exc:  # noqa: BLE001 - the user's code, reported
            self._failed(event, exc)

        return None

    async def _finish(
        self, event: Notification, rest: RestOfCall | None, task: asyncio.Task[Any]
    ) -> None:
        """Finish a call that waits for something, or has cancelled its task."""
        if rest is not None:
            await self._wait_for_rest(event, rest, task)

        if task.cancelling():
            # Without a wait nobody but the handler can have done that.
            own = task.cancelling() if rest is None else rest.own_cancels
            await _undo_cancelling(task, own)

    async def _wait_for_rest(
        self, event: Notification, rest: RestOfCall, task: asyncio.Task[Any]
    ) -> None:
        try:
            await rest
        except asyncio.CancelledError as exc:
            if task.cancelling() > rest.own_cancels:
                raise  # we are being stopped; else the handler cancelled itself

            self._failed(event, exc)
        except Exception as exc:  # noqa: BLE001 - the user's code, reported
            self._failed(event, exc)

        if rest.longest > BLOCKING_SECONDS:
            self._blocked(rest.longest)

    def _failed(self, event: Notification, cause: BaseException) -> None:
        self._reporter.failed("handler", self.name, event, cause)

    def _blocked(self, seconds: float) -> None:
        self._metrics.count("aioinformer_blocking_calls_total", 1.0, handler=self.name)
        logger.warning(
            "handler %s kept the event loop from turning for %.0f ms: everything else "
            "in this process waited",
            self.name,
            seconds * 1000.0,
        )


async def _undo_cancelling(task: asyncio.Task[Any], own: int) -> None:
    """Go on after a handler that has cancelled its task, `own` times by itself.

    Raises:
        CancelledError: If somebody else has cancelled it too, and the handler kept
            that for itself.
    """
    for _ in range(own):
        task.uncancel()

    if task.cancelling():
        raise asyncio.CancelledError

    try:
        await asyncio.sleep(0)  # where its cancelling arrives, if it has not yet
    except asyncio.CancelledError:
        if task.cancelling():
            raise


class Processor:
    """Distributes batches to listeners, and runs them.

    Owns one task for each listener, from `run()` on until the listener is removed.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._group: asyncio.TaskGroup | None = None
        self._ended = False

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Those who are told of changes now."""
        return tuple(self._listeners)

    def add(self, listener: Listener) -> None:
        """Add a listener; it is run as long as the processor runs.

        Raises:
            InformerStopped: The processor has ended.
        """
        if self._ended:
            raise InformerStopped(
                f"handler {listener.name} comes too late: it has ended"
            )

        self._listeners.append(listener)
        if self._group is not None:
            self._start(self._group, listener)

    def remove(self, listener: Listener) -> None:
        """Remove a listener at once; what waits for it is dropped. Idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            listener.remove()
            if self._group is None and not self._ended:
                listener.end()  # it has no task which could say so

    def publish(self, batch: Batch) -> None:
        """Queue a batch for all listeners. Nobody may change it."""
        now = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener.put(batch, now)

    def mark_synced(self) -> None:
        """The listeners' queues hold everything of the first complete list."""
        for listener in self._listeners:
            listener.mark_synced()

    async def run(self) -> None:
        """Run the listeners.

        Cancellation:
            The way to stop it: every running call is cancelled, what waits is dropped.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for listener in self._listeners:
                    self._start(group, listener)

                try:
                    await asyncio.Event().wait()  # until cancelled
                finally:
                    self._group = None
                    self._ended = True
        finally:
            self.end()

    def end(self) -> None:
        """It has ended, or will never run: nothing is delivered any more. Idempotent."""
        self._ended = True
        for listener in self._listeners:
            listener.end()

    async def drained(self) -> None:
        """Wait until everything that is queued now has been delivered.

        Cancellation:
            Safe.
        """
        for listener in self.listeners:
            with contextlib.suppress(InformerStopped):
                await listener.wait_idle()

    @staticmethod
    def _start(group: asyncio.TaskGroup, listener: Listener) -> None:
        task = group.create_task(listener.run(), name=f"handler {listener.name}")
        # `run()` says so too, but not if it is cancelled before it has begun.
        task.add_done_callback(lambda _: listener.end())
