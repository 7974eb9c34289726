"""`Journal`: the last changes of a store, for the processes that follow it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.informer.notifications import Notification

__all__ = ["Behind", "Entry", "EntryKind", "Journal"]


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


class Behind(msgspec.Struct, frozen=True, gc=False):
    """Merged difference that a reader gets in place of entries that were trimmed."""

    number: int
    """Number of the newest trimmed entry: the position of the reader from now on."""

    known: dict[str, bytes]
    """Record that the reader knew, by key; empty for a key that it did not know.

    The objects differ from the stored ones in entry `number`. Later ones are in the
    journal.
    """

    listed: EntryKind | None = None
    """LISTED or FIRST_LISTED if one was trimmed: `known` is gone, all others are new."""


class Journal:
    """Bounded journal in the database `journal`: entries by number, without gaps.

    `Header.first` and `Header.last` are its bounds. Entries are only appended and
    trimmed in write transactions of the writer.

    A reader sets its position within the read transaction in which it read the entries,
    or the difference. The writer relies on that: it sees open read transactions.

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

    def stage(self, batch: Iterable[Notification]) -> None:
        """Write changes that readers see after the next `append`, in a transaction.

        So the changes of a big list are written in several transactions.
        """
        raise NotImplementedError

    def append(self, batch: Iterable[Notification]) -> None:
        """Append staged changes and these, which may be none, in a write transaction."""
        raise NotImplementedError

    def append_listed(self, *, first: bool) -> None:
        """Append LISTED or FIRST_LISTED, in a write transaction."""
        raise NotImplementedError

    def recover(self) -> None:
        """Remove staged changes that were never appended, in a write transaction.

        A writer calls it when it begins, and when it gives up a list.
        """
        raise NotImplementedError

    def read(self, after: int, limit: int = 500) -> list[Entry] | None:
        """Return the entries after a number, oldest first; None if some were trimmed.

        In a read transaction.
        """
        raise NotImplementedError

    def trim(self, positions: Callable[[], Mapping[str, int]]) -> bool:
        """Remove entries above the bounds, in a write transaction; each second.

        What a reader at a lower position loses by that is kept for it, merged. See
        `behind`.

        Args:
            positions: Function that returns the positions of live readers, by name:
                `Readers.positions`.

        Returns:
            True if more is to be done: call it again soon.
        """
        raise NotImplementedError

    def behind(self, reader: str) -> Behind | None:
        """Return what a reader has lost; None if the writer is about to write it.

        In a read transaction, after `read` returned None. The reader then continues at
        `Behind.number`.

        Raises:
            CacheError: If nothing was kept for this reader.
        """
        raise NotImplementedError
