"""Streams: one watch, from its first event to its end."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.reads.feeds import Feed
from aioinformer_apiserver.storage.dispatcher import pump_of
from aioinformer_apiserver.storage.encoding import error_line
from aioinformer_apiserver.storage.waker import EARLY_SECONDS

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.http.outlet import Outlet
    from aioinformer_apiserver.requests.queries import Scope, WatchQuery
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.storage import Collection, Storage
    from aioinformer_apiserver.storage.waker import Bell

__all__ = ["Stream", "open_feed"]

# The last bookmark comes this long before the server ends the watch, as on a real one.
_LAST_BOOKMARK_SECONDS = 2.0


def open_feed(
    collection: Collection, query: WatchQuery, scope: Scope, format_: Format
) -> Feed | None:
    """Find out where a watch begins; None if that is no longer known."""
    if query.initial:
        state = collection.snapshot()
        return Feed(collection, scope, format_, collection.tail, initial=state)

    if not query.version:
        return Feed(collection, scope, format_, collection.tail)

    if not collection.has_changes_since(query.version):
        return None

    cursor = collection.cursor_at(query.version)
    return Feed(collection, scope, format_, cursor, after=query.version)


class Stream:
    """Writes the events of one watch.

    Args:
        storage: Where versions are counted.
        collection: What is watched.
        query: How.
        scope: Which objects.
        format_: How they are shown.
        outlet: Where events go; the head has not been sent yet.
        bell: Rings when there is something to do, and is closed when the server stops.
        seconds: How long the watch may last.
        bookmark_seconds: The time between bookmarks.
        refused: The one thing that it tells, as an ERROR event; None for the changes.
    """

    def __init__(
        self,
        storage: Storage,
        collection: Collection,
        query: WatchQuery,
        scope: Scope,
        format_: Format,
        outlet: Outlet,
        *,
        bell: Bell,
        seconds: float,
        bookmark_seconds: float,
        refused: ApiError | None = None,
    ) -> None:
        self._refused = refused
        self._storage = storage
        self._collection = collection
        self._query = query
        self._scope = scope
        self._format = format_
        self._outlet = outlet
        self._bell = bell
        self._bookmark_seconds = bookmark_seconds

        now = asyncio.get_running_loop().time()
        self._ends = now + seconds
        self._marked = not query.marked
        self._ended = False
        # True while the task does nothing but wait, so that a push may write.
        self._waiting = False
        self._next_bookmark = self._after(now)

    async def run(self) -> None:
        """Write events until the watch ends, in one of the ways that watches end.

        Returns when it ends cleanly: its time is over, the server stops, the resource
        is no longer served, an ERROR event has been written, or a fault ended it.

        Raises:
            ConnectionError: The client has gone.

        Cancellation:
            Breaks the connection.
        """
        if self._refused is not None:
            await self._outlet.write(error_line(self._refused))
            return

        feed = open_feed(self._collection, self._query, self._scope, self._format)
        if feed is None:
            await self._outlet.write(error_line(self._too_old()))
            return

        unsubscribe = pump_of(self._collection).subscribe(lambda: self._push(feed))
        try:
            while not self._is_over():
                await self._step(feed)
        finally:
            unsubscribe()

    def _too_old(self) -> ApiError:
        wanted, floor = self._query.version, self._collection.watch_floor
        if self._collection.cached:
            return statuses.expired(f"too old resource version: {wanted} ({floor})")

        message = "The resourceVersion for the provided watch is too old."
        return statuses.expired(message)

    def _is_over(self) -> bool:
        over = self._ended or self._bell.closed or self._outlet.broken
        return over or asyncio.get_running_loop().time() + EARLY_SECONDS >= self._ends

    async def _step(self, feed: Feed) -> None:
        """Do the first of these that is due: events, end, bookmarks, waiting."""
        now = asyncio.get_running_loop().time()
        lines = feed.take()
        if lines:
            await self._outlet.write(b"".join(lines))
        elif feed.ended:
            self._ended = True
        elif not self._marked:
            self._marked = True
            await self._bookmark(initial_events_end=True)
        elif now + EARLY_SECONDS >= self._next_bookmark:
            self._next_bookmark = self._after(now)
            await self._bookmark()
        else:
            await self._wait(min(self._next_bookmark, self._ends))

    async def _wait(self, until: float) -> None:
        self._waiting = True
        try:
            await self._bell.wait(until)
        finally:
            self._waiting = False

    def _push(self, feed: Feed) -> None:
        """Tell what has changed, without a turn of the task where that is possible."""
        if not self._waiting:
            return  # The task is at work, and looks for changes before it waits again.

        while self._outlet.free:
            lines = feed.take()
            if not lines:
                break

            self._outlet.write_now(lines)

        if feed.ended or not self._outlet.free:
            self._bell.ring()

    async def _bookmark(self, *, initial_events_end: bool = False) -> None:
        """Write a bookmark. All changes have been written, so the newest version holds."""
        version = self._storage.version
        # Whoever watches from the future hears nothing until the future is here.
        if self._query.initial or version >= self._query.version:
            line = self._format.bookmark(version, initial_events_end=initial_events_end)
            await self._outlet.write(line)

    def _after(self, now: float) -> float:
        """Return when the next bookmark is due; infinity if there is none."""
        if not self._query.bookmarks:
            return math.inf

        due = min(now + self._bookmark_seconds, self._ends - _LAST_BOOKMARK_SECONDS)
        return due if due > now + EARLY_SECONDS else math.inf
