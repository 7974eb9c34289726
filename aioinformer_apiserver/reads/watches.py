"""Watchers: the changes of one collection as the lines of one watch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.storage.dispatcher import TIMER_RESOLUTION
from aioinformer_apiserver.storage.encoding import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer_apiserver.requests.queries import Scope, WatchQuery
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.dispatcher import Waker
    from aioinformer_apiserver.storage.storage import (
        Change,
        Collection,
        Storage,
        StoredObject,
    )

__all__ = ["Watcher", "open_watcher", "wait_until_fresh"]


def open_watcher(
    collection: Collection, query: WatchQuery, scope: Scope, format_: Format
) -> Watcher | None:
    """Return the watcher for a request; None if its version has expired."""
    if query.initial:
        state = collection.snapshot()
        return Watcher(collection, scope, format_, collection.tail, initial=state)

    if not query.version:
        return Watcher(collection, scope, format_, collection.tail)

    if not collection.has_changes_since(query.version):
        return None

    cursor = collection.cursor_at(query.version)
    return Watcher(collection, scope, format_, cursor, after=query.version)


class Watcher:
    """Reader of the changes of one collection. Synchronous.

    Args:
        collection: The collection.
        scope: Selection of objects. An object that starts to match is ADDED, one that
            stops to match is DELETED.
        format_: Format of the events.
        cursor: Last change that the reader knows.
        initial: Objects to send first, as ADDED events.
        after: Version, possibly in the future, up to which changes are left out.
    """

    def __init__(
        self,
        collection: Collection,
        scope: Scope,
        format_: Format,
        cursor: Change,
        *,
        initial: Iterable[StoredObject] = (),
        after: int = 0,
    ) -> None:
        self._collection = collection
        self._scope = scope
        # Most watches select everything, so that no change need be checked.
        self._takes_all = not (scope.selects or scope.namespace or scope.shards)
        self._format = format_
        self._cursor = cursor
        self._initial: Iterator[StoredObject] | None = iter(initial)
        self._after = after
        self._generation = collection.watch_generation

    @property
    def ended(self) -> bool:
        """True if everything has been taken and nothing will follow."""
        collection = self._collection
        over = collection.closed or collection.watch_generation != self._generation
        return over and self._initial is None and self._cursor.next is None

    def take(self, limit_bytes: int = PIECE_BYTES) -> list[bytes]:
        """Take the available lines, up to a little over `limit_bytes`.

        Returns:
            Encoded events, one a line; empty if there is nothing new.
        """
        lines: list[bytes] = []
        size = 0
        while size < limit_bytes:
            line = self._next_line()
            if line is None:
                break

            lines.append(line)
            size += len(line)

        return lines

    def _next_line(self) -> bytes | None:
        for stored in self._initial or ():
            if self._scope.matches(stored):
                return self._format.initial(stored)

        self._initial = None
        while (change := self._cursor.next) is not None:
            self._cursor = change
            event = self._event_of(change)
            if event and change.version > self._after:
                return self._format.change(event, change)

        return None

    def _event_of(self, change: Change) -> str:
        if self._takes_all:
            before, after = change.old is not None, change.new is not None
        else:
            before = self._scope.matches(change.old)
            after = self._scope.matches(change.new)

        if before and after:
            return "MODIFIED"

        if after:
            return "ADDED"

        return "DELETED" if before else ""


async def wait_until_fresh(
    storage: Storage,
    collection: Collection,
    version: int,
    waker: Waker,
    *,
    seconds: float,
    retry_after: int | None = None,
) -> None:
    """Wait until the storage has reached a version.

    Only a watch cache waits. Without a cache, etcd reports at once that the version
    does not exist.

    Args:
        storage: Source of the newest version.
        collection: The collection to read.
        version: The requested version.
        waker: Woken by writes while this waits, and when the server stops.
        seconds: Maximum time on the loop's clock.
        retry_after: Delay to suggest to the client if there is no cache.

    Raises:
        ApiError: 504, if the version is not reached in time.

    Cancellation:
        Safe.
    """
    if storage.version >= version:
        return

    if not collection.cached:
        current = storage.version
        raise statuses.too_large_version(version, current, retry_after=retry_after)

    deadline = asyncio.get_running_loop().time() + seconds
    unsubscribe = storage.subscribe(waker.wake)
    try:
        while storage.version < version:
            now = asyncio.get_running_loop().time()
            if now + TIMER_RESOLUTION >= deadline or waker.closed:
                raise statuses.too_large_version(version, storage.version)

            await waker.wait(until=deadline)
    finally:
        unsubscribe()
