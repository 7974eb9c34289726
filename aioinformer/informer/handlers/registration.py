"""`Registration`: the hold that a user has on a handler it has added."""

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
    """One handler of one informer. Made by `SharedInformer.add_event_handler`.

    Guarantees: the handler is never called concurrently with itself; one that fails or
    waits delays no other handler and not the store.

    It belongs to the informer's loop. A handler that runs in a thread (`thread=True`) and
    wants to remove itself asks the loop: `loop.call_soon_threadsafe(it.remove)`.
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
        """The name in log and metrics."""
        return self._listener.name

    @property
    def has_synced(self) -> bool:
        """True once the informer is synced and the handler dealt with the initial state.

        That is, it has returned or raised for every object that was there when it
        began, or was not told of it: because of its filter, or because it was gone again
        before it was told (`coalesce=True`). Never becomes False again.
        """
        return self._listener.synced

    @property
    def depth(self) -> int:
        """Notifications that wait for the handler, the one in work included.

        With `coalesce=True`, what was merged into another one waits no more.
        """
        return self._listener.depth

    @property
    def age(self) -> float:
        """For how many seconds the oldest of them has been waiting; 0 if none is.

        Raises:
            WrongLoop: Read in another event loop or thread.
        """
        self._check_loop()
        if not self.depth:
            return 0.0

        return self._listener.age(asyncio.get_running_loop().time())

    async def wait_synced(self, timeout: Duration | None = None) -> None:
        """Wait until `has_synced`.

        Args:
            timeout: Seconds, or a timedelta; None waits as long as it takes.

        Raises:
            NotSynced: The time is over; the text says depth and age.
            InformerStopped: The informer ended, or the handler was removed, before.
            WrongLoop: Called from another event loop or thread.

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
        """Wait until the handler is called no more: removed, or its informer has ended.

        Cancellation:
            Safe.
        """
        await self._listener.wait_ended()

    def remove(self) -> None:
        """Call the handler no more, from now on.

        A running call finishes; notifications that wait are dropped. May be called from
        the handler itself. Idempotent.

        Raises:
            WrongLoop: Called from another event loop or thread.
        """
        self._check_loop()
        self._remove(self._listener)

    async def aclose(self) -> None:
        """Remove the handler and wait until its running call, if any, has finished.

        Inside the handler itself there is nothing to wait for: there it is `remove()`.
        (Not inside of a task that the handler waits for: that would wait for itself.)

        Raises:
            WrongLoop: Called from another event loop or thread.

        Cancellation:
            Safe: it stays removed.
        """
        self.remove()
        if not self._listener.in_own_task():
            await self._listener.wait_ended()


AHEAD = 64
"""Notifications handed over at once, to save task switches. Further ones stay queued."""


class Events:
    """The changes of an informer's objects, as an async iterator.

    Made by `SharedInformer.events`. The informer treats it as a handler: a slow reader
    delays no other handler, its queue is unbounded, and it appears in logs and metrics.
    Up to 64 notifications are handed over ahead of the reader.

    Guarantees:
        No notification is lost or repeated, even if a wait is cancelled. The iteration
        ends when the block is left. If the informer ends, it raises `InformerStopped`.

    Args:
        register: Function that adds a handler to the informer.
        live: Life of the informer.
        ahead: Number of notifications to take ahead, at least 1.
    """

    def __init__(
        self,
        register: Callable[[Callable[[Notification], Outcome]], Registration],
        live: RunState,
        ahead: int = AHEAD,
    ) -> None:
        self._register = register
        self._live = live
        self._ahead = ahead
        self._registration: Registration | None = None
        self._left = False

        # What was handed over and not taken; a full one holds the call that filled it
        # until all of it has been taken, and more is wanted.
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

        if self._live.over:
            return len(self._offered)  # nobody hands over the rest any more

        # The one whose call is held was handed over already.
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
        self._live.followers.append(self._news.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        registration = self._registration
        assert registration is not None
        self._left = True
        self._live.followers.remove(self._news.set)
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

            if self._live.over:
                self._live.check_not_stopped()

            # Each time: another reader may have taken what was offered.
            self._wanted.set()
            self._news.clear()
            await self._news.wait()

        return self._offered.popleft()

    def _offer(self, event: Notification) -> Outcome:
        """The informer's handler."""
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
