"""The processor: hands notifications to listeners, each at its own pace.

One task and one unbounded queue for each listener: a slow one delays nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING

from aioinformer._tasks import unexpected_cancellation
from aioinformer._user_code import guarded_logger
from aioinformer.errors import InformerStopped

if TYPE_CHECKING:
    from typing import NoReturn

    from aioinformer.errors import InternalError
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.handlers.listener import Listener

__all__ = ["Processor"]

logger = guarded_logger(__name__)

LATE_SECONDS = 10.0
"""A handler that has not ended so long after it was asked to is warned of."""


class Processor:
    """Distributes batches to listeners, and runs them.

    Owns one task for each listener, from `run()` on until the listener is removed. Its
    own task merges what waits for coalescing listeners whose handlers are busy.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._group: asyncio.TaskGroup | None = None
        self._context = contextvars.Context()
        self._draining = False
        self._ended = False
        # Why it cannot go on.
        self._failure: InternalError | None = None
        # Listeners for which much has come while their handlers were busy.
        self._crowded: asyncio.Queue[Listener] = asyncio.Queue()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Listeners that receive changes now."""
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

        listener.on_crowded = self._crowded.put_nowait
        self._listeners.append(listener)
        if self._group is not None:
            self._start(self._group, listener)

    def remove(self, listener: Listener) -> None:
        """Remove a listener at once; what waits for it is dropped. Idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            listener.remove()
            if self._group is None and not self._ended:
                self._end(listener)  # it has no task which could say so

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

        Raises:
            InternalError: Other code has cancelled the task of a listener, which was
                neither removed nor is drained.

        Cancellation:
            The way to stop it: every running call is cancelled, what waits is dropped.
        """
        late: asyncio.TimerHandle | None = None
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # A listener that is added later is part of this life, and not of that
                # of the task which adds it, such as a request to a web app.
                self._context = contextvars.copy_context()
                self._start_all(group)
                try:
                    await self._keep_tidy()  # until cancelled
                finally:
                    self._group = None
                    self._ended = True
                    for listener in self._listeners:
                        listener.close()

                    loop = asyncio.get_running_loop()
                    late = loop.call_later(LATE_SECONDS, self._tell_late)
        finally:
            if late is not None:
                late.cancel()

            self.end()

    def end(self) -> None:
        """Deliver nothing any more, because it has ended or never runs. Idempotent."""
        self._ended = True
        for listener in self._listeners:
            listener.end()

    async def drained(self) -> None:
        """Wait until everything that is queued now has been delivered.

        It is the beginning of the end: nothing is queued any more.

        Cancellation:
            Safe.
        """
        self._draining = True
        for listener in self.listeners:
            with contextlib.suppress(InformerStopped):
                await listener.wait_idle()

    def warn_undelivered(self, seconds: float) -> None:
        """Write of whom something is dropped, which after so long still waits for it."""
        for listener in self._listeners:
            if listener.depth:
                logger.warning(
                    "handler %s: dropping %d notifications, not delivered within %d s of "
                    "the informer's stop",
                    listener.name,
                    listener.depth,
                    seconds,
                )

    def _tell_late(self) -> None:
        for listener in self._listeners:
            if not listener.ended:
                logger.warning(
                    "handler %s did not stop within %d s of its cancellation (does it "
                    "swallow CancelledError?)",
                    listener.name,
                    LATE_SECONDS,
                )

    async def _keep_tidy(self) -> NoReturn:
        while self._failure is None:
            # In no variable: while nothing is to do, nobody is to be kept.
            await (await self._crowded.get()).tidy()

        raise self._failure

    def _start_all(self, group: asyncio.TaskGroup) -> None:
        for listener in self._listeners:
            self._start(group, listener)

    def _start(self, group: asyncio.TaskGroup, listener: Listener) -> None:
        task = group.create_task(
            listener.run(),
            name=f"handler {listener.name}",
            context=self._context.copy(),
        )
        task.add_done_callback(lambda task: self._task_ended(listener, task))

    def _task_ended(self, listener: Listener, task: asyncio.Task[None]) -> None:
        # `run()` says so too, but not if it is cancelled before it has begun.
        self._end(listener)
        if not task.cancelled() or self._ended or listener.removed:
            return

        self.remove(listener)
        if self._draining:
            logger.error(
                "handler %s stopped: other code cancelled its task",
                listener.name,
            )
            return

        # It would miss every change from here on, and who relies on it would not know.
        self._failure = unexpected_cancellation(repr(task.get_name()))
        self._crowded.put_nowait(listener)  # wakes the own task, which raises

    def _end(self, listener: Listener) -> None:
        listener.end()
        # Another handler of the same name, such as a reader of events, has its series.
        if listener.removed and all(it.name != listener.name for it in self._listeners):
            listener.forget_metrics()
