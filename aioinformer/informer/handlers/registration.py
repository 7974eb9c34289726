"""`Registration`: the hold that a user has on a handler it has added."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aioinformer.errors import NotSynced
from aioinformer.model.times import timeout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.model.times import Duration

__all__ = ["Registration"]


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
