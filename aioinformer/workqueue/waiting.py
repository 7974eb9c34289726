"""`Waiters`: the workers that wait for an item, first come, first woken."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sized

__all__ = ["Waiters"]


class Waiters(deque["asyncio.Future[None]"]):
    """Who waits until there is something; it is woken, and then takes it itself.

    Nothing is handed over through a future: what a worker is woken for stays where it is
    until the worker takes it, so that one that is cancelled meanwhile loses nothing.
    """

    async def wait(self, loop: asyncio.AbstractEventLoop, line: Sized) -> None:
        """Wait to be woken.

        Args:
            loop: The running loop.
            line: What there is to take.

        Cancellation:
            Safe: if it was woken in the same turn, the next one is instead.
        """
        waiter = loop.create_future()
        self.append(waiter)
        woken = False
        try:
            await waiter
            woken = True
        finally:
            if not woken:
                self._abandon(waiter, line)

    def wake_one(self) -> None:
        """Wake whoever waits longest."""
        while self:
            waiter = self.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake everybody."""
        while self:
            self.wake_one()

    def _abandon(self, waiter: asyncio.Future[None], line: Sized) -> None:
        if waiter.done() and not waiter.cancelled():
            # Woken for an item and cancelled in the same turn: the item still lies in
            # the line, so the wake-up must reach somebody else.
            if line:
                self.wake_one()

            return

        with suppress(ValueError):
            self.remove(waiter)
