"""`Waker`: wakes a task that waits for synchronous writes."""

from __future__ import annotations

import asyncio
import math

__all__ = ["TIMER_RESOLUTION", "Waker"]

# A timer may fire early by up to the resolution of the loop's clock. Anything due within
# this time counts as due, or the waiter would spin until the clock moves.
TIMER_RESOLUTION = 0.001


class Waker:
    """Wakes its single waiter, without a reason and without memory.

    The waiter checks the state, and waits if there is nothing to do, without an await in
    between. So no wake-up is lost, and a cancelled waiter consumes none.

    Attributes:
        closed: True if the server stops, so that `wait()` must not be called again.
    """

    def __init__(self) -> None:
        self.closed = False
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
        """Wait for `wake()`, or until a time of the loop's clock, which may be infinity.

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
