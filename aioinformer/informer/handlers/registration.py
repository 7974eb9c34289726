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

    Guarantees: the handler is never called concurrently with itself. A handler that fails
    or waits delays neither others nor the store.

    It belongs to the informer's loop. To remove a handler from its own thread
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
        """True once the informer is synced and the handler has processed its objects.

        These are the objects that existed when the handler was added. Those left out by
        its filter, or deleted before delivery (`coalesce=True`), count as processed.
        Never becomes False again.
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
        """Seconds that the oldest of them has been queued; 0 if there is none.

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
            NotSynced: If the time is over. The message has depth and age.
            InformerStopped: If the informer ended, or the handler was removed, before.
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

        Called by the handler itself, it does not wait. A task that the handler waits for
        must not call it: both would wait for each other.

        Raises:
            WrongLoop: If called from another event loop or thread.

        Cancellation:
            Safe: it stays removed.
        """
        self.remove()
        if not self._listener.in_own_task():
            await self._listener.wait_ended()


AHEAD = 64
"""Number of notifications to take ahead of the reader, which saves task switches."""


class Events:
    """Notifications of an informer as an async iterator.

    Made by `SharedInformer.events`. The informer treats it as a handler: a slow reader
    delays no other handler, its queue is unbounded, and it appears in logs and metrics.
    Up to 64 notifications are taken ahead of the reader.

    Guarantees:
        No notification is lost or repeated, even if a wait is cancelled. The iteration
        ends when the block is left. If the informer ends, it raises `InformerStopped`.

    Args:
        register: Function that adds a handler to the informer.
        run_state: State of the informer's run.
        ahead: Number of notifications to take ahead, at least 1.
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
        self._left = False

        # Notifications taken ahead. The call that fills it waits until the reader has read
        # all of them and waits for more.
        self._offered: deque[Notification] = deque()
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._holding = False

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
            return len(self._offered)  # the rest will not come

        # The notification of the waiting call is in `_offered`, too.
        return self._registration.depth - self._holding + len(self._offered)

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
        self._run_state.followers.append(self._news.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        registration = self._registration
        assert registration is not None
        self._left = True
        self._run_state.followers.remove(self._news.set)
        registration.remove()
        self._offered.clear()
        self._news.set()
        self._wanted.set()
        await registration.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        """Wait for the next notification.

        Raises:
            InformerStopped: The informer has ended, because of `__cause__` if that is
                set. Queued notifications come first, unless the drain timed out.
            StopAsyncIteration: The block has been left.
            OptionsError: The iterator was not entered.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._registration is None:
            raise OptionsError(
                "enter the iterator first: `async with informer.events()`"
            )

        while not self._offered:
            if self._left:
                raise StopAsyncIteration

            if self._run_state.over:
                self._run_state.check_not_stopped()

            # In each iteration, as another reader may have taken the notification.
            self._wanted.set()
            self._news.clear()
            await self._news.wait()

        return self._offered.popleft()

    def _offer(self, event: Notification) -> Outcome:
        """Queue a notification; called as a handler of the informer."""
        self._offered.append(event)
        self._news.set()
        return None if len(self._offered) < self._ahead else self._until_wanted()

    async def _until_wanted(self) -> None:
        self._wanted.clear()
        self._holding = True
        try:
            await self._wanted.wait()
        finally:
            self._holding = False
