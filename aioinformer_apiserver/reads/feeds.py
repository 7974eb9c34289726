"""Feeds: the changes of one collection as the lines of one watch. Synchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer_apiserver.storage.encoding import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer_apiserver.requests.queries import Scope
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.storage import Change, Collection, Stored

__all__ = ["Feed"]


class Feed:
    """One reader of a collection's changes.

    Args:
        collection: Whose changes.
        scope: Which objects. One that starts to match is ADDED, one that stops to
            match is DELETED.
        format_: How they are shown.
        cursor: The last change that the reader knows.
        initial: Objects to begin with, as ADDED events.
        after: Changes up to this version are left out: it may lie in the future.
    """

    def __init__(
        self,
        collection: Collection,
        scope: Scope,
        format_: Format,
        cursor: Change,
        *,
        initial: Iterable[Stored] = (),
        after: int = 0,
    ) -> None:
        self._collection = collection
        self._scope = scope
        # Most watches select nothing, and then nothing need be asked of each change.
        self._takes_all = not (scope.selects or scope.namespace)
        self._format = format_
        self._cursor = cursor
        self._initial: Iterator[Stored] | None = iter(initial)
        self._after = after
        self._hang_ups = collection.hang_ups

    @property
    def ended(self) -> bool:
        """True if everything has been taken, and nothing will follow."""
        collection = self._collection
        over = collection.closed or collection.hang_ups != self._hang_ups
        return over and self._initial is None and self._cursor.next is None

    def take(self, limit_bytes: int = PIECE_BYTES) -> list[bytes]:
        """Take the lines that are ready, up to a little over `limit_bytes`.

        Returns:
            One encoded event each; empty if there is nothing new.
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
