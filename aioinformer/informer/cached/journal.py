"""`Journal`: the last changes of a store, for the processes that follow it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.informer.notifications import Notification

__all__ = ["Entry", "EntryKind", "Journal"]


class EntryKind(IntEnum):
    """Kind of an entry."""

    ADDED = 1
    UPDATED = 2
    DELETED = 3
    MISSED_DELETION = 4
    """Deleted, with `final_state_unknown`."""
    LISTED = 5
    """A list came into the empty store: each stored object is new. It has no key."""
    FIRST_LISTED = 6
    """The same, by the first list of the informer: `Added(initial=True)`."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One change. `old` and `new` are records."""

    number: int
    kind: EntryKind
    key: str = ""
    old: bytes = b""
    new: bytes = b""


class Journal:
    """Bounded journal in the database `journal`: entries by number, without gaps.

    `Header.first` and `Header.last` are its bounds. Entries are only appended and
    trimmed in write transactions of the writer.

    Args:
        env: Environment.
        records: Encoder of objects.
        entries: Number of entries that are kept.
        size: Bytes of entries that are kept, at most.
    """

    def __init__(
        self,
        env: Environment,
        records: Records,
        *,
        entries: int = 20_000,
        size: int = 64 * 2**20,
    ) -> None:
        raise NotImplementedError

    def append(self, batch: Iterable[Notification]) -> None:
        """Append changes, in a write transaction."""
        raise NotImplementedError

    def append_listed(self, *, first: bool) -> None:
        """Append LISTED or FIRST_LISTED, in a write transaction."""
        raise NotImplementedError

    def read(self, after: int, limit: int = 500) -> list[Entry] | None:
        """Return the entries after a number, oldest first; None if some were trimmed.

        In a read transaction.
        """
        raise NotImplementedError

    def trim(self, positions: dict[str, int]) -> None:
        """Remove entries above the bounds, in a write transaction.

        What a reader at a lower position loses by that is kept for it, merged: one old
        record for each key. See `behind`.

        Args:
            positions: Position of each live reader, by its name.
        """
        raise NotImplementedError

    def behind(self, reader: str) -> dict[str, bytes]:
        """Return what a reader has lost: the record that it knew, by key.

        An empty record stands for a key that it did not know. In a read transaction.
        The keys are compared with the store as of entry `Header.first - 1`.
        """
        raise NotImplementedError

    def forget_behind(self, reader: str) -> None:
        """Remove what was kept for a reader, in a write transaction."""
        raise NotImplementedError
