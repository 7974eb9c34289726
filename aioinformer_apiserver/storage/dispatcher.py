"""Notification of writes: `Dispatcher` calls watches, `Waker` wakes a task.

A write does not call the watches itself. It schedules a round in the next turn of the
loop, and each round calls every watch. Rounds use a bounded share of the time: after a
long one, the next one is delayed and has several changes to send. So an idle server
sends a change at once, and a busy one keeps up.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TIMER_RESOLUTION", "Dispatcher", "Waker"]


# Pause after a round, as a multiple of its duration: rounds get about a third of the
# time, writes and other requests get the rest.
_PAUSE_FACTOR = 2.0
# Upper bound of the pause, so that even an overloaded machine sends changes soon.
_MAX_PAUSE_SECONDS = 0.05


class Dispatcher:
    """Caller of all watches of one collection after it has changed.

    Without subscribers, it is bound to no loop.

    Args:
        subscribe: `Collection.subscribe`, called with the first subscriber.
    """

    def __init__(
        self, subscribe: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        self._subscribe = subscribe
        self._pushes: dict[Callable[[], None], None] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._round: asyncio.Handle | None = None
        self._paused_until = 0.0

    def __repr__(self) -> str:
        return f"<Dispatcher watches={len(self._pushes)}>"

    def subscribe(self, push: Callable[[], None]) -> Callable[[], None]:
        """Call `push` soon after each change, until the returned function is called.

        All calls happen in the loop of the first subscriber.
        """
        if self._unsubscribe is None:
            self._loop = asyncio.get_running_loop()
            self._unsubscribe = self._subscribe(self._start)

        self._pushes[push] = None
        return lambda: self._unsubscribe_watch(push)

    def _unsubscribe_watch(self, push: Callable[[], None]) -> None:
        self._pushes.pop(push, None)
        if self._pushes or self._unsubscribe is None:
            return

        self._unsubscribe()
        self._unsubscribe = self._loop = None
        self._paused_until = 0.0
        if self._round is not None:
            self._round.cancel()
            self._round = None

    def _start(self) -> None:
        """Schedule a round after the pause."""
        loop = self._loop
        if self._round is not None or loop is None:
            return

        if loop.time() >= self._paused_until:
            self._round = loop.call_soon(self._run)
        else:
            self._round = loop.call_at(self._paused_until, self._run)

    def _run(self) -> None:
        self._round = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        for push in tuple(self._pushes):
            push()

        now = loop.time()
        pause = min((now - began) * _PAUSE_FACTOR, _MAX_PAUSE_SECONDS)
        self._paused_until = now + pause


# A timer may fire early by up to the resolution of the loop's clock. Anything due
# within this time counts as due, or the waiter would spin until the clock moves.
TIMER_RESOLUTION = 0.001


class Waker:
    """Wakes its single waiter. A wake-up without a waiter has no effect.

    The waiter checks the state, and waits if there is nothing to do, without an await
    in between. So no wake-up is lost, and a cancelled waiter consumes none.

    Attributes:
        closed: True if the server stops, so that `wait()` must not be called again.
    """

    def __init__(self) -> None:
        self.closed: bool = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the waiter, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Wake the waiter for the last time."""
        self.closed = True
        self.wake()

    async def wait(self, until: float) -> None:
        """Wait for `wake()`, or until a time of the loop's clock.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(until, self.wake) if until < math.inf else None
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()

            self._waiter = None

    async def sleep(self, seconds: float) -> bool:
        """Wait for a time, regardless of `wake()`; only `close()` ends it early.

        Args:
            seconds: Duration on the loop's clock; infinity to wait for `close()`.

        Returns:
            True if the time has passed, False if the waker was closed.

        Cancellation:
            Safe.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self.closed and loop.time() + TIMER_RESOLUTION < until:
            await self.wait(until)

        return not self.closed
