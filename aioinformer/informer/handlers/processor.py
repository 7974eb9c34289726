"""`Processor`: distributes notifications to listeners, and runs them.

Each listener has one task and one unbounded queue, so a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from aioinformer._runnables import Runnable, Runnables
from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped
from aioinformer.informer.handlers.inbox import Relisted, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["Observer", "Processor"]

logger: Final = guarded_logger(__name__)

LATE_SECONDS = 10.0
"""Seconds after the cancellation of the handlers at which those still running are
logged."""


_LISTED: Final = 256
"""Objects of a list in one batch. A batch is freed when its notifications are delivered,
and the garbage collector reads up to 700 new batches in one step."""


class Observer(Protocol):
    """Receiver of all batches of an informer, in the steps that change its store.

    Unlike a listener, it has neither a queue nor a task. It must not wait, raise, or
    change what it is given.
    """

    def put(self, batch: Batch) -> None:
        """Receive changes; a `Snapshot` or `Relisted` if a list has made them."""

    def mark_synced(self) -> None:
        """Receive that everything of the first complete list was put."""

    def state_changed(self) -> None:
        """Receive that the phase, the failures or the last error may have changed."""


class Processor:
    """Distributor of batches to listeners. It also runs the listeners.

    It owns one task for each listener, from `run()` until the listener is removed. Its
    own task merges the notifications of coalescing listeners whose handlers are busy.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self.observers: tuple[Observer, ...] = ()
        """Observers that receive new batches."""
        # Listeners added later get the context variables of the run, not those of the
        # task that adds them, such as a web request.
        self._tasks = Runnables(lambda _, failure: self._fail(failure))
        self._draining = False
        self._ended = False
        # Failure that ends the processor, or None.
        self._failure: BaseException | None = None
        # Listeners that got many notifications while their handlers were busy.
        self._crowded: asyncio.Queue[Listener | None] = asyncio.Queue()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Listeners that receive new batches."""
        return tuple(self._listeners)

    @property
    def wants_changes(self) -> bool:
        """True if there is a listener or an observer."""
        return bool(self._listeners or self.observers)

    @property
    def busy(self) -> bool:
        """True if a notification is queued for a listener, or being processed."""
        return any(listener.depth for listener in self._listeners)

    def depths(self) -> dict[str, int]:
        """Return the number of queued notifications by name of the listener.

        Listeners of one name are added up. May be called from any thread.
        """
        depths: dict[str, int] = {}
        for listener in self.listeners:
            depths[listener.name] = depths.get(listener.name, 0) + listener.depth

        return depths

    def add(self, listener: Listener) -> None:
        """Add a listener; it runs as long as the processor.

        Raises:
            InformerStopped: If the processor has ended.
        """
        if self._ended:
            raise InformerStopped(
                f"cannot add handler {listener.name}: the informer has ended"
            )

        listener.on_crowded = self._crowded.put_nowait
        self._listeners.append(listener)
        if self._tasks.running:
            self._start(listener)

    def remove(self, listener: Listener) -> None:
        """Remove a listener at once; drop its queued notifications. Idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            listener.remove()
            if not (self._tasks.running or self._ended):
                self._end(listener)  # no task of the listener will do so

    def publish(self, batch: Batch, arrived: float | None = None) -> None:
        """Queue a batch for all listeners; it must not be changed."""
        now = asyncio.get_running_loop().time()
        since = now if arrived is None else arrived
        for listener in self._listeners:
            listener.put(batch, now, since)

        for observer in self.observers:
            observer.put(batch)

    async def prepare_list(
        self, objects: Mapping[str, KubeObject], *, initial: bool
    ) -> list[Batch]:
        """Return batches of `Added` notifications of all objects, for `publish_list`."""
        batches: list[Batch] = []
        if not self._listeners:
            return batches

        rest = iter(objects.values())
        if len(objects) <= _LISTED:
            return [Snapshot(tuple(rest), initial=initial)]

        budget = LoopBudget.current()
        await budget.start()
        while some := tuple(islice(rest, _LISTED)):
            batches.append(Snapshot(some, initial=initial))
            if budget.over():
                await budget.start()

        budget.end()
        return batches

    def publish_list(
        self, objects: Mapping[str, KubeObject], batches: list[Batch], *, initial: bool
    ) -> None:
        """Queue `Added` notifications of all objects for all listeners."""
        now = asyncio.get_running_loop().time()
        for listener in self._listeners:
            for batch in batches:
                listener.put(batch, now, now)

        if self.observers:
            whole = Snapshot(list(objects.values()), initial=initial)
            for observer in self.observers:
                observer.put(whole)

    def prepare(self, batch: list[Notification]) -> Relisted:
        """Return the batch to publish, which tells observers that a list has made it."""
        return Relisted(batch)

    def mark_synced(self) -> None:
        """Record that the listeners' queues have all of the first complete list."""
        for listener in self._listeners:
            listener.mark_synced()

        for observer in self.observers:
            observer.mark_synced()

    async def run(self) -> None:
        """Run the listeners.

        Raises:
            InternalError: If other code cancels the task of a listener. Not raised for
                removed listeners, nor during the shutdown.

        Cancellation:
            Stops it: running calls are cancelled, queued notifications are dropped.
        """
        late: list[asyncio.TimerHandle] = []

        async def merge_until_stopped() -> None:
            try:
                await self._merge_crowded()
            finally:
                self._ended = True
                for listener in self._listeners:
                    listener.close()

                loop = asyncio.get_running_loop()
                late.append(loop.call_later(LATE_SECONDS, self._warn_late))

        for listener in self._listeners:
            self._start(listener)

        try:
            await self._tasks.run(merge_until_stopped)
        finally:
            for timer in late:
                timer.cancel()

            self.end()

    def end(self) -> None:
        """End all listeners: the processor has ended, or will never run. Idempotent."""
        self._ended = True
        for listener in self._listeners:
            listener.end()

    async def drained(self) -> None:
        """Begin the shutdown: wait until all queued notifications are processed.

        Cancellation:
            Safe.
        """
        self._draining = True
        for listener in self.listeners:
            with contextlib.suppress(InformerStopped):
                await listener.wait_idle()

    def warn_undelivered(self, seconds: float) -> None:
        """Log the listeners whose notifications are dropped after the drain timeout."""
        for listener in self._listeners:
            if listener.depth:
                logger.warning(
                    "handler %s: dropping %d notifications, not delivered within %d s of "
                    "the informer's stop",
                    listener.name,
                    listener.depth,
                    seconds,
                )

    def _warn_late(self) -> None:
        for listener in self._listeners:
            if not listener.ended:
                logger.warning(
                    "handler %s did not stop within %d s of its cancellation (does it "
                    "swallow CancelledError?)",
                    listener.name,
                    LATE_SECONDS,
                )

    async def _merge_crowded(self) -> NoReturn:
        while self._failure is None:
            listener = await self._crowded.get()
            if listener is not None:
                await listener.merge()

            del listener  # the variable would keep it alive during the wait

        raise self._failure

    def _start(self, listener: Listener) -> None:
        name = f"handler {listener.name}"
        on_end = partial(self._listener_ended, listener)
        self._tasks.add(Runnable(name, listener.run, on_end=on_end))

    def _listener_ended(
        self, listener: Listener, cancelled: BaseException | None
    ) -> None:
        # `Listener.run()` does this, too, unless its task is cancelled before it
        # starts.
        self._end(listener)
        if cancelled is None or self._ended or listener.removed:
            return

        self.remove(listener)
        if self._draining:
            logger.error(
                "handler %s stopped: other code cancelled its task",
                listener.name,
            )
            return

        # End the informer, as otherwise this handler would silently miss all changes.
        self._fail(cancelled)

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
        self._crowded.put_nowait(None)  # wakes `run()`, which raises the failure

    def _end(self, listener: Listener) -> None:
        listener.end()
        # Another handler may have the same name, such as a reader of events.
        if listener.removed and all(it.name != listener.name for it in self._listeners):
            listener.forget_metrics()
