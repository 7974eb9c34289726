"""The bell: how synchronous writes wake those who wait for them."""

from __future__ import annotations

import asyncio
import math

__all__ = ["Bell"]


class Bell:
    """Wakes its one waiter; says nothing about why, and remembers no ring.

    The waiter looks at the state, and if there is nothing to do waits, without an await
    in between. So no ring is lost, and a cancelled waiter takes nothing with it.
    """

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the waiter, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

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
