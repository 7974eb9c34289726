"""The bell: how synchronous writes wake those who wait for them."""

from __future__ import annotations

import asyncio
import math

__all__ = ["EARLY_SECONDS", "Bell"]

# A timer may fire early, by up to the resolution of the loop's clock. Whatever is due
# within this time is due now: waiting for it again would spin until the clock moves.
EARLY_SECONDS = 0.001


class Bell:
    """Wakes its one waiter; says nothing about why, and remembers no ring.

    The waiter looks at the state, and if there is nothing to do waits, without an await
    in between. So no ring is lost, and a cancelled waiter takes nothing with it.

    Attributes:
        closed: True if nobody is to wait any more: the server stops.
    """

    def __init__(self) -> None:
        self.closed = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the waiter, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Ring for the last time."""
        self.closed = True
        self.ring()

    async def wait(self, until: float) -> None:
        """Wait for a ring, or until this time of the loop's clock (infinity: no such time).

        Cancellation:
            Safe: nothing is lost, call again.
        """
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(until, self.ring) if until < math.inf else None
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()

            self._waiter = None

    async def pause(self, seconds: float) -> bool:
        """Wait for so long, whatever rings meanwhile; the closing alone ends it early.

        Args:
            seconds: On the loop's clock; infinity waits for the closing.

        Returns:
            True if the time has passed, False if the bell was closed.

        Cancellation:
            Safe.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self.closed and loop.time() + EARLY_SECONDS < until:
            await self.wait(until)

        return not self.closed
