"""`WatchServer`: one watch, from its first event to its end."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aioinformer.errors import ApiError
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.reads.watches import Watcher, open_watcher
from aioinformer_apiserver.storage.dispatcher import TIMER_RESOLUTION
from aioinformer_apiserver.storage.encoding import error_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer_apiserver.http.response import ResponseWriter
    from aioinformer_apiserver.requests.queries import Scope, WatchQuery
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.dispatcher import Waker
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["WatchServer"]

# Like a real server, send the last bookmark this long before the end of the watch.
_LAST_BOOKMARK_SECONDS = 2.0


class WatchServer:
    """Writer of the events of one watch.

    Args:
        storage: Source of the newest version.
        collection: The watched collection.
        query: Parameters of the watch.
        scope: Selection of objects.
        format_: Format of the events.
        writer: Destination; the head has not been sent yet.
        waker: Woken when there is something to do, closed when the server stops.
        seconds: Maximum duration of the watch.
        bookmark_seconds: Interval between bookmarks.
        rejection: Error to send as the only event; None to send the changes.
        convert: Coroutine function that converts objects in other versions.
    """

    def __init__(
        self,
        storage: Storage,
        collection: Collection,
        query: WatchQuery,
        scope: Scope,
        format_: Format,
        writer: ResponseWriter,
        *,
        waker: Waker,
        seconds: float,
        bookmark_seconds: float,
        rejection: ApiError | None = None,
        convert: Callable[[Collection], Awaitable[None]],
    ) -> None:
        self._rejection = rejection
        self._convert = convert
        self._storage = storage
        self._collection = collection
        self._query = query
        self._scope = scope
        self._format = format_
        self._writer = writer
        self._waker = waker
        self._bookmark_seconds = bookmark_seconds

        now = asyncio.get_running_loop().time()
        self._ends = now + seconds
        # True once the end of the initial events has been marked, or if it need not be.
        self._initial_end_sent = not query.initial_events_end
        self._ended = False
        # True while the task only waits, so that `_push()` may write.
        self._waiting = False
        self._next_bookmark = self._bookmark_after(now)

    async def run(self) -> None:
        """Write events until the watch ends.

        Returns when the watch ends cleanly: its time is over, the server stops, the
        resource is no longer served, an ERROR event has been written, or a fault has
        ended it.

        Raises:
            ConnectionError: If the client has disconnected.

        Cancellation:
            Breaks the connection.
        """
        if self._rejection is not None:
            await self._writer.write(error_line(self._rejection))
            return

        try:
            await self._run()
        except ApiError as exc:
            await self._writer.write(error_line(exc))

    async def _run(self) -> None:
        await self._convert(self._collection)
        watcher = open_watcher(self._collection, self._query, self._scope, self._format)
        if watcher is None:
            await self._writer.write(error_line(self._expired_error()))
            return

        unsubscribe = self._collection.dispatcher.subscribe(lambda: self._push(watcher))
        try:
            while not self._is_over():
                await self._step(watcher)
        finally:
            unsubscribe()

    def _expired_error(self) -> ApiError:
        requested, floor = self._query.version, self._collection.watch_floor
        if self._collection.cached:
            return statuses.expired(f"too old resource version: {requested} ({floor})")

        message = "The resourceVersion for the provided watch is too old."
        return statuses.expired(message)

    def _is_over(self) -> bool:
        if self._ended or self._waker.closed or self._writer.broken:
            return True

        return asyncio.get_running_loop().time() + TIMER_RESOLUTION >= self._ends

    async def _step(self, watcher: Watcher) -> None:
        """Do the first of these that is due: events, end, bookmarks, waiting."""
        if self._collection.unconverted:
            await self._convert(self._collection)

        now = asyncio.get_running_loop().time()
        lines = watcher.take()
        if lines:
            await self._writer.write(b"".join(lines))
        elif watcher.ended:
            self._ended = True
        elif not self._initial_end_sent:
            self._initial_end_sent = True
            await self._bookmark(initial_events_end=True)
        elif now + TIMER_RESOLUTION >= self._next_bookmark:
            self._next_bookmark = self._bookmark_after(now)
            await self._bookmark()
        else:
            await self._wait(min(self._next_bookmark, self._ends))

    async def _wait(self, until: float) -> None:
        self._waiting = True
        try:
            await self._waker.wait(until)
        finally:
            self._waiting = False

    def _push(self, watcher: Watcher) -> None:
        """Write the latest changes, without waking the task where that is possible."""
        if not self._waiting:
            return  # The task is active, and looks for changes before it waits again.

        if self._collection.unconverted:
            self._waker.wake()
            return

        while self._writer.ready:
            lines = watcher.take()
            if not lines:
                break

            self._writer.write_now(lines)

        if watcher.ended or not self._writer.ready:
            self._waker.wake()

    async def _bookmark(self, *, initial_events_end: bool = False) -> None:
        """Write a bookmark of the newest version; all changes have been written."""
        version = self._storage.version
        # A watch from a future version gets no bookmark before that version.
        if self._query.initial or version >= self._query.version:
            line = self._format.bookmark(version, initial_events_end=initial_events_end)
            await self._writer.write(line)

    def _bookmark_after(self, now: float) -> float:
        """Return the time of the next bookmark; infinity for none."""
        if not self._query.bookmarks:
            return math.inf

        due = min(now + self._bookmark_seconds, self._ends - _LAST_BOOKMARK_SECONDS)
        return due if due > now + TIMER_RESOLUTION else math.inf
