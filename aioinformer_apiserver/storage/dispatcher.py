"""Pumps: how the changes of a collection reach all who watch it, at little cost.

A write does not serve the watches itself: it starts a round, in the next turn of the
loop. Each round serves every watch, and takes up a bounded share of the time: after one
that took long, the next one waits for a while, and finds several changes to tell at
once. So an idle server tells a change at once, and a busy one keeps up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.storage.storage import Collection

__all__ = ["Dispatcher", "dispatcher_of"]

# After a round the pump rests for this many times as long as it took: rounds are given
# about a third of the time, writes and other requests get the rest.
_REST = 2.0
# But no longer than this, so that even a machine in trouble tells changes soon.
_LONGEST_REST_SECONDS = 0.05


class Dispatcher:
    """Calls all who watch one collection after it has changed.

    Bound to no loop while nobody is subscribed.

    Args:
        collection: Whose changes start a round.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._pushes: dict[Callable[[], None], None] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._round: asyncio.Handle | None = None
        self._rests_until = 0.0

    def __repr__(self) -> str:
        return f"<Pump {self._collection!r} watches={len(self._pushes)}>"

    def subscribe(self, push: Callable[[], None]) -> Callable[[], None]:
        """Call `push` soon after a change, until the function returned is called.

        All calls are made in the loop of the first one who has subscribed.
        """
        if self._unsubscribe is None:
            self._loop = asyncio.get_running_loop()
            self._unsubscribe = self._collection.subscribe(self._start)

        self._pushes[push] = None
        return lambda: self._leave(push)

    def _leave(self, push: Callable[[], None]) -> None:
        self._pushes.pop(push, None)
        if self._pushes or self._unsubscribe is None:
            return

        self._unsubscribe()
        self._unsubscribe = self._loop = None
        self._rests_until = 0.0
        if self._round is not None:
            self._round.cancel()
            self._round = None

    def _start(self) -> None:
        """Let a round begin, as soon as the pump has rested."""
        loop = self._loop
        if self._round is not None or loop is None:
            return

        if loop.time() >= self._rests_until:
            self._round = loop.call_soon(self._run)
        else:
            self._round = loop.call_at(self._rests_until, self._run)

    def _run(self) -> None:
        self._round = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        for push in tuple(self._pushes):
            push()

        now = loop.time()
        rest = min((now - began) * _REST, _LONGEST_REST_SECONDS)
        self._rests_until = now + rest


def dispatcher_of(collection: Collection) -> Dispatcher:
    """Return the one pump of a collection."""
    if collection.dispatcher is None:
        collection.dispatcher = Dispatcher(collection)

    return collection.dispatcher
