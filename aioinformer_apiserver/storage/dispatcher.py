"""`Dispatcher`: sends the changes of a collection to all of its watches.

A write does not call the watches itself. It schedules a round in the next turn of the
loop, and each round calls every watch. Rounds use a bounded share of the time: after a
long one, the next one is delayed and has several changes to send. So an idle server sends
a change at once, and a busy one keeps up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Dispatcher"]

# Pause after a round, as a multiple of its duration: rounds get about a third of the time,
# writes and other requests get the rest.
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
