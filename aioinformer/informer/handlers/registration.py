"""`Registration` of an added handler, and `Events`: notifications as an iterator."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Self

from aioinformer.errors import NotSynced, OptionsError
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers.event_handlers import Outcome
    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.times import Duration

__all__ = ["AHEAD", "Events", "Registration"]


class Registration:
    """Handler of an informer, returned by `SharedInformer.add_event_handler`.

    Guarantees: the handler is never called concurrently with itself. A handler that
    fails or waits delays neither others nor the store.

    Use it in the informer's event loop. To remove a handler from its own thread
    (`thread=True`), call `loop.call_soon_threadsafe(registration.remove)`.
    """

    def __init__(
        self,
        listener: Listener,
        remove: Callable[[Listener], None],
        check_loop: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._remove = remove
        self._check_loop = check_loop

    def __repr__(self) -> str:
        state = "synced" if self.has_synced else "not synced"
        return f"<Registration {self.name} {state} depth={self.depth}>"

    @property
    def name(self) -> str:
        """Name in log and metrics."""
        return self._listener.name

    @property
    def has_synced(self) -> bool:
        """True once the handler has processed the initial objects.

        These are the objects of the informer's first complete list, or those stored
        when the handler was added later. Objects that the filter drops, or that were
        deleted before delivery (`coalesce=True`), count as processed. Never becomes
        False again.
        """
        return self._listener.synced

    @property
    def depth(self) -> int:
        """Number of queued notifications, including the one being processed.

        With `coalesce=True`, merged notifications count as one.
        """
        return self._listener.depth

    @property
    def age(self) -> float:
        """Seconds for which the oldest notification has been queued; 0 without one.

        Raises:
            WrongLoop: If read in another event loop or thread.
        """
        self._check_loop()
        if not self.depth:
            return 0.0

        return self._listener.age(asyncio.get_running_loop().time())

    async def wait_synced(self, timeout: Duration | None = None) -> None:
        """Wait until `has_synced`.

        Args:
            timeout: Seconds, or a timedelta; None for no limit.

        Raises:
            NotSynced: If the timeout expires. The message has depth and age.
            InformerStopped: If the informer ends, or the handler is removed, before
                that.
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe.
        """
        self._check_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_of(timeout)):
                await self._listener.wait_synced()

        if not self.has_synced:
            reason = f"depth {self.depth}, age {self.age:.1f} s"
            raise NotSynced(
                f"handler {self.name} is not synced: {reason}",
                results={self.name: reason},
            )

    async def wait_ended(self) -> None:
        """Wait until the handler is not called any more: it was removed, or has ended.

        Cancellation:
            Safe.
        """
        await self._listener.wait_ended()

    def remove(self) -> None:
        """Remove the handler.

        A running call finishes; queued notifications are dropped. May be called by the
        handler itself. Idempotent.

        Raises:
            WrongLoop: If called from another event loop or thread.
        """
        self._check_loop()
        self._remove(self._listener)

    async def aclose(self) -> None:
        """Remove the handler and wait until its running call, if any, has finished.

        If the handler itself calls it, it does not wait. A task that the handler awaits
        must not call it, as that would be a deadlock.

        Raises:
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe: the handler stays removed.
        """
        self.remove()
        if not self._listener.in_own_task():
            await self._listener.wait_ended()


AHEAD = 64
"""Number of notifications to buffer for the reader, to save task switches."""


class Events:
    """Notifications of an informer as an async iterator.

    Made by `SharedInformer.events`. The informer treats it as a handler: a slow reader
    delays no other handler, its queue is unbounded, and it appears in logs and metrics.
    Up to 64 notifications are buffered ahead of the reader.

    Guarantees:
        No notification is lost or repeated, even if a wait is cancelled. The iteration
        ends with the `async with` block. If the informer ends, the iteration raises
        `InformerStopped`.

    Args:
        register: Function that adds a handler to the informer.
        run_state: State of the informer's run.
        ahead: Number of notifications to buffer, at least 1.
    """

    def __init__(
        self,
        register: Callable[[Callable[[Notification], Outcome]], Registration],
        run_state: RunState,
        ahead: int = AHEAD,
    ) -> None:
        self._register = register
        self._run_state = run_state
        self._ahead = ahead
        self._registration: Registration | None = None
        self._closed = False

        # Notifications for the reader. The handler call that fills the buffer waits
        # until the reader has read everything and waits for more.
        self._buffer: deque[Notification] = deque()
        self._available = asyncio.Event()
        self._requested = asyncio.Event()
        self._call_waits = False

    def __repr__(self) -> str:
        if self._registration is None:
            return "<Events not entered>"

        return f"<Events {self._registration.name} depth={self.depth}>"

    @property
    def depth(self) -> int:
        """Number of queued notifications."""
        if self._registration is None:
            return 0

        if self._run_state.over:
            return len(self._buffer)  # nothing else will be delivered

        # The notification of a waiting call is also in `_buffer`.
        return self._registration.depth - self._call_waits + len(self._buffer)

    async def __aenter__(self) -> Self:
        """Begin with the stored objects, as `Added(initial=True)`.

        Raises:
            OptionsError: The iterator was entered before.
            InformerStopped: The informer has ended.
            WrongLoop: The informer belongs to another event loop.

        Cancellation:
            Safe: it does not wait.
        """
        if self._registration is not None:
            raise OptionsError(
                "this events() iterator was entered already: call events() again"
            )

        self._registration = self._register(self._offer)
        self._run_state.followers.append(self._available.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        registration = self._registration
        assert registration is not None
        self._closed = True
        self._run_state.followers.remove(self._available.set)
        registration.remove()
        self._buffer.clear()
        self._available.set()
        self._requested.set()
        await registration.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        """Wait for the next notification.

        Raises:
            InformerStopped: The informer has ended; `__cause__` is its failure, if
                there was one. Queued notifications are returned first, unless the drain
                timed out.
            StopAsyncIteration: The block has been left.
            OptionsError: The iterator was not entered.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._registration is None:
            raise OptionsError(
                "enter the iterator first: `async with informer.events()`"
            )

        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration

            if self._run_state.over:
                self._run_state.check_not_stopped()

            # Requested in each iteration, as another reader may take the notification.
            self._requested.set()
            self._available.clear()
            await self._available.wait()

        return self._buffer.popleft()

    def _offer(self, event: Notification) -> Outcome:
        """Queue a notification; called as a handler of the informer."""
        self._buffer.append(event)
        self._available.set()
        return None if len(self._buffer) < self._ahead else self._until_requested()

    async def _until_requested(self) -> None:
        self._requested.clear()
        self._call_waits = True
        try:
            await self._requested.wait()
        finally:
            self._call_waits = False
