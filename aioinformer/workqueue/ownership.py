"""`OwnedByLoop`: which event loop a queue belongs to, and the way in from elsewhere."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from aioinformer.errors import WrongLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OwnedByLoop", "clock_of"]

T = TypeVar("T")

# Taking in an item takes about 1 us: a turn of the loop is held for about 1 ms when other
# threads hand in many.
TAKEN_IN_PER_TURN = 1000


class _Hold(Protocol):
    """A lock that says whose it is; `threading.Condition` asks the same of any lock."""

    def acquire(self, blocking: bool) -> bool: ...

    def release(self) -> None: ...

    def _is_owned(self) -> bool: ...


class OwnedByLoop(ABC, Generic[T]):
    """The base of a queue that belongs to the loop in which it is first used.

    Asking for the running loop costs as much as the rest of `add()`, and asking for the
    thread half of that; asking a lock whether this thread holds it costs next to nothing.
    So the thread of the loop holds `_held` as long as the queue is bound and open, and
    the methods of a queue call `_check_loop()` where they find it not held by them, or
    where they are slow anyway. Nobody ever waits for it.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = cast("_Hold", RLock())
        self._inbox: deque[tuple[Any, ...]] = deque()
        # Invariant: while it is true the loop will look into the inbox once more.
        self._summoned = False

    @property
    @abstractmethod
    def shutting_down(self) -> bool:
        """True once the queue takes no more items."""

    @abstractmethod
    def add(self, item: T) -> None:
        """Ask for `item` to be worked on; called in the loop."""

    def add_threadsafe(self, item: T) -> None:
        """Ask for `item` to be worked on, from any thread.

        It is added in one of the next turns of the queue's loop, a thousand items in
        each; if the queue has not been used in a loop yet, from its first use there on.
        Items of one thread keep their order. A shut-down that follows finds them added.

        Raises:
            WrongLoop: If the loop of this queue was closed, and the queue was not shut
                down before.
        """
        self._hand_in(item)

    def _hand_in(self, item: T, *more: object) -> None:
        """Have the loop call `add()` with these arguments."""
        hash(item)  # an unhashable item is its caller's error, not the loop's

        # In this order: whoever binds the loop looks into the inbox afterwards.
        self._inbox.append((item, *more))
        loop = self._loop
        if loop is None or (self._summoned and not loop.is_closed()):
            return

        try:
            self._summon(loop)
        except RuntimeError as exc:
            if not self.shutting_down:
                raise WrongLoop(f"the event loop of {self!r} has been closed") from exc

    def _summon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._summoned = True  # first: the loop may come before the call returns
        loop.call_soon_threadsafe(self._take_some, loop)

    def _take_some(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take in what other threads handed in; the rest of many in the next turns."""
        # First: what is handed in from now on may be missed here.
        self._summoned = False
        try:
            self._take_inbox(TAKEN_IN_PER_TURN)
        finally:
            if self._inbox:
                self._summon(loop)

    def _take_inbox(self, limit: float = inf) -> None:
        while self._inbox and limit > 0:
            limit -= 1
            self.add(*self._inbox.popleft())

    def _check_loop(self) -> asyncio.AbstractEventLoop | None:
        """Bind to the running loop if there is none yet; return the loop bound to.

        None outside of any loop, for a queue that is filled before its loop runs.

        Raises:
            WrongLoop: If the running loop is not the one bound to.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        if self._loop is running:
            return running

        if self._loop is not None or running is None:
            raise WrongLoop(f"{self!r} belongs to another event loop or thread")

        self._loop = running
        if not self.shutting_down:
            self._held.acquire(blocking=False)

        self._bound(running)
        self._take_some(running)
        return running

    def _bound(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called once, with the loop that the queue belongs to from now on."""

    def _look_closer(self) -> None:
        """Have every call look closer from now on: the queue is shutting down."""
        if self._held._is_owned():  # noqa: SLF001
            self._held.release()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._check_loop()
        if loop is None:
            raise WrongLoop(f"{self!r} needs a running event loop for this")

        return loop


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """What tells the time of `loop`, at two thirds of the cost where that is possible."""
    plain = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if plain else loop.time
