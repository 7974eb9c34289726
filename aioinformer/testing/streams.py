"""Streams: one watch, from its first event to its end."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aioinformer.testing import statuses
from aioinformer.testing.encoding import bookmark_line, error_line
from aioinformer.testing.faults import Gone
from aioinformer.testing.feeds import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.testing.bell import Bell
    from aioinformer.testing.faults import Fault
    from aioinformer.testing.feeds import Scope
    from aioinformer.testing.outlet import Outlet
    from aioinformer.testing.queries import WatchQuery
    from aioinformer.testing.storage import Collection, Storage

__all__ = ["Stream", "open_feed"]

# The last bookmark comes this long before the server ends the watch, as on a real one.
_LAST_BOOKMARK_SECONDS = 2.0

# A timer may fire early, by up to the resolution of the loop's clock. Whatever is due
# within this time is due now: waiting for it again would spin until the clock moves.
_EARLY_SECONDS = 0.001


def open_feed(collection: Collection, query: WatchQuery, scope: Scope) -> Feed | None:
    """Find out where a watch begins; None if that is no longer known."""
    if query.initial:
        state = collection.snapshot()
        return Feed(collection, scope, collection.tail, initial=state)

    if not query.version:
        return Feed(collection, scope, collection.tail)

    if not collection.has_history_since(query.version):
        return None

    cursor = collection.cursor_at(query.version)
    return Feed(collection, scope, cursor, after=query.version)


class Stream:
    """Writes the events of one watch.

    Args:
        storage: Where versions are counted.
        collection: What is watched.
        query: How.
        scope: Which objects.
        outlet: Where events go; the head has not been sent yet.
        bell: Rings at each change, and when the server stops.
        stopping: True if the server stops.
        seconds: How long the watch may last.
        bookmark_seconds: The time between bookmarks.
        fault: What strikes it; only `Gone` matters here.
    """

    def __init__(
        self,
        storage: Storage,
        collection: Collection,
        query: WatchQuery,
        scope: Scope,
        outlet: Outlet,
        *,
        bell: Bell,
        stopping: Callable[[], bool],
        seconds: float,
        bookmark_seconds: float,
        fault: Fault | None,
    ) -> None:
        self._storage = storage
        self._collection = collection
        self._query = query
        self._scope = scope
        self._outlet = outlet
        self._bell = bell
        self._stopping = stopping
        self._bookmark_seconds = bookmark_seconds
        self._until_gone = fault.after_events if isinstance(fault, Gone) else None

        now = asyncio.get_running_loop().time()
        self._ends = now + seconds
        self._marked = not query.marked
        self._ended = False
        # The events API is not served from a watch cache, which makes the bookmarks.
        self._bookmarks = query.bookmarks and (
            query.initial or collection.kind.resource.plural != "events"
        )
        self._next_bookmark = self._after(now)

    async def run(self) -> None:
        """Write events until the watch ends, in one of the ways that watches end.

        Returns when it ends cleanly: its time is over, the server stops, the resource
        is no longer served, an ERROR event has been written, or a fault broke it.

        Raises:
            ConnectionError: The client has gone.

        Cancellation:
            Breaks the connection.
        """
        feed = open_feed(self._collection, self._query, self._scope)
        if feed is None:
            wanted, floor = self._query.version, self._collection.floor
            error = statuses.expired(f"too old resource version: {wanted} ({floor})")
            await self._outlet.write(error_line(error))
            return

        unsubscribe = self._collection.subscribe(self._bell.ring)
        try:
            while not self._is_over():
                await self._step(feed)
        finally:
            unsubscribe()

    def _is_over(self) -> bool:
        over = self._ended or self._stopping() or self._outlet.broken
        return over or asyncio.get_running_loop().time() + _EARLY_SECONDS >= self._ends

    async def _step(self, feed: Feed) -> None:
        """Do the first of these that is due: events, end, bookmarks, waiting."""
        now = asyncio.get_running_loop().time()
        lines = feed.take()
        if lines:
            await self._send(lines)
        elif feed.ended:
            self._ended = True
        elif not self._marked:
            self._marked = True
            await self._bookmark(initial_events_end=True)
        elif now + _EARLY_SECONDS >= self._next_bookmark:
            self._next_bookmark = self._after(now)
            await self._bookmark()
        else:
            await self._bell.wait(until=min(self._next_bookmark, self._ends))

    async def _send(self, lines: list[bytes]) -> None:
        if self._until_gone is None:
            await self._outlet.write(b"".join(lines))
            return

        lines = lines[: self._until_gone]
        self._until_gone -= len(lines)
        if not self._until_gone:
            self._ended = True
            version = self._query.version
            error = statuses.expired(f"too old resource version: {version} (scripted)")
            lines.append(error_line(error))

        await self._outlet.write(b"".join(lines))

    async def _bookmark(self, *, initial_events_end: bool = False) -> None:
        """Write a bookmark. All changes have been written, so the newest version holds."""
        version = self._storage.version
        # Whoever watches from the future hears nothing until the future is here.
        if self._query.initial or version >= self._query.version:
            kind = self._collection.kind
            line = bookmark_line(kind, version, initial_events_end=initial_events_end)
            await self._outlet.write(line)

    def _after(self, now: float) -> float:
        """Return when the next bookmark is due; infinity if there is none."""
        if not self._bookmarks:
            return math.inf

        due = min(now + self._bookmark_seconds, self._ends - _LAST_BOOKMARK_SECONDS)
        return due if due > now + _EARLY_SECONDS else math.inf
