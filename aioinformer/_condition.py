"""Conditions for state that only plain methods of one event loop change."""

from __future__ import annotations

import asyncio
from threading import RLock
from typing import TYPE_CHECKING, Literal, Protocol, cast

from aioinformer.errors import WrongLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopCondition", "LoopLock", "OwnedLock", "owned_lock"]


class LoopLock(asyncio.Lock):
    """Lock of an `asyncio.Condition` that the running code always holds.

    Between two awaits no other task of the loop runs, so there is nothing to acquire.
    Plain methods may notify waiters without `async with`.
    """

    def locked(self) -> bool:
        """Return True: the running code holds the lock."""
        return True

    async def acquire(self) -> Literal[True]:
        """Return at once."""
        return True

    def release(self) -> None:
        """Do nothing: other tasks run once the running code suspends."""


class LoopCondition:
    """An `asyncio.Condition` with a `LoopLock`, for the tasks of one loop at a time.

    A plain condition belongs to the first loop that waits for it. Notifying it from
    another thread has no effect, and raises no error. This condition can change to
    another loop when no task waits. While a task waits, use from another loop raises
    `WrongLoop`.

    Args:
        owner: Name of the object that has the condition, for errors.
    """

    __slots__ = ("_condition", "_loop", "_owner", "_waiters")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._condition = asyncio.Condition(LoopLock())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters = 0

    def check_loop(self) -> None:
        """Refuse a change whose notification would be lost. Call it before the change.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.
        """
        if not self._waiters:
            return

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        loop = self._loop
        if loop is not running and loop is not None and not loop.is_closed():
            raise WrongLoop(f"{self._owner} is used by another event loop or thread")

    def notify_change(self) -> None:
        """Wake all waiting tasks; call it at the beginning of a change.

        They check their predicates once the running code suspends, after the change.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.
        """
        if self._waiters:
            self.check_loop()
            self._condition.notify_all()

    def notify_all(self) -> None:
        """Wake all waiting tasks, so that they check their predicates.

        Waking one is not enough: if it is cancelled in the same turn of the loop,
        Python 3.11 and 3.12 wake no other.
        """
        if self._waiters:
            self._condition.notify_all()

    async def wait_for(self, predicate: Callable[[], object]) -> None:
        """Wait until a predicate is true. No other task runs before this returns.

        Raises:
            WrongLoop: If a task waits in another event loop or thread.

        Cancellation:
            Safe: all other waiters have been notified, too.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.check_loop()
            self._condition = asyncio.Condition(LoopLock())
            self._loop = loop
            self._waiters = 0

        condition = self._condition
        self._waiters += 1
        try:
            while not predicate():
                await condition.wait()
        finally:
            if condition is self._condition:  # no other loop has replaced it
                self._waiters -= 1


class OwnedLock(Protocol):
    """Reentrant lock that knows whether the calling thread holds it.

    Python's locks have a private method for that, which `threading.Condition` calls,
    too. Calling the method of the lock costs next to nothing. A wrapper, or a stored
    bound method, makes a work queue a quarter slower.
    """

    def acquire(self, blocking: bool) -> bool:
        """Take the lock, if it is free or held by this thread."""

    def release(self) -> None:
        """Release the lock."""

    def _is_owned(self) -> bool: ...


def owned_lock() -> OwnedLock:
    """Return a lock whose `_is_owned()` may be called to skip a slower check.

    On a Python whose locks lack that method, it always returns False: then the slower
    check is made.
    """
    lock = RLock()
    return cast("OwnedLock", lock if hasattr(lock, "_is_owned") else _NeverOwned())


class _NeverOwned:
    def acquire(self, blocking: bool) -> bool:
        return True

    def release(self) -> None:
        pass

    def _is_owned(self) -> bool:
        return False
