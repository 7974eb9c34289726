"""`Journal`: the last changes of a store, for the processes that follow it.

A reader whose next entry was trimmed gets a merged difference instead. It must begin
exactly at the position of the reader, who may be reading at that moment. So entries are
trimmed in two steps. A transaction raises `Header.first`: from then on, readers below it
wait. A later one, when none of them still reads an older snapshot, merges and removes.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from aioinformer._user_code import guarded_logger
from aioinformer.errors import CacheError
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.informer.notifications import Notification

__all__ = ["Behind", "Entry", "EntryKind", "Journal"]

logger: Final = guarded_logger(__name__)


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

    rest: bytes = b""
    """Start of the rest, for the next call of `behind()`; empty at the end."""


_NUMBER: Final = Struct(">Q")

# Kind, length of the key, length of the old record. Then come key, old and new.
_HEAD: Final = Struct(">BHI")
_DELETED: Final = bytes([EntryKind.DELETED])

# Removed rows between two checks of the time.
_BETWEEN_CHECKS = 16

# Deletions that a new writer looks for, at most.
_RECENT = 2000

# Entries that live readers lose at once, divided by their number: merging them takes
# one or two milliseconds, and those readers wait for it.
_LOST_AT_ONCE = 512

# Entries whose sizes are read at once.
_MEASURED_AT_ONCE = 4000


def _never() -> bool:
    return False


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
        self._env = env
        self._records = records
        self._entries = entries
        self._size = size
        self._journal = env.database("journal")
        # Old records of readers that lost entries, under "<reader>\0<position><hash of
        # the key>". Under "<reader>\0<position>": the kind of the last trimmed list.
        self._behind = env.database("behind")
        # Transaction that raised `Header.first`.
        self._raised = 0

    # ------------------------------------------------------------ the writer

    def stage(self, batch: Iterable[Notification]) -> None:
        """Write changes that readers see after the next `append`, in a transaction.

        So the changes of a big list are written in several transactions.
        """
        self._put(map(self._encoded, batch))

    def append(self, batch: Iterable[Notification]) -> None:
        """Append staged changes and these, which may be none, in a write transaction."""
        self._publish(self._put(map(self._encoded, batch)))

    def append_listed(self, *, first: bool) -> None:
        """Append LISTED or FIRST_LISTED, in a write transaction."""
        kind = EntryKind.FIRST_LISTED if first else EntryKind.LISTED
        self._publish(self._put([_HEAD.pack(kind, 0, 0)]))

    def _put(self, entries: Iterable[bytes]) -> int:
        """Write entries; return the number of the newest one."""
        with self._env.write() as txn, txn.cursor(self._journal) as cursor:
            # Not kept in memory, as the transaction before may have failed.
            last = self._env.header.last
            number = _number(cursor.key()) if cursor.last() else last
            for entry in entries:
                number += 1
                cursor.put(_NUMBER.pack(number), entry, append=True)

        return number

    def _publish(self, last: int) -> None:
        header = self._env.header
        if last != header.last:
            self._env.set_header(msgspec.structs.replace(header, last=last))

    def _encoded(self, event: Notification) -> bytes:
        encode = self._records.encode
        old = new = b""
        match event:
            case Added(obj):
                kind, new = EntryKind.ADDED, encode(obj)
            case Updated(before, obj):
                kind, old, new = EntryKind.UPDATED, encode(before), encode(obj)
            case Deleted(obj, missed):
                kind = EntryKind.MISSED_DELETION if missed else EntryKind.DELETED
                old = encode(obj)
            case _:
                assert_never(event)

        key = obj.key.encode()
        return _HEAD.pack(kind, len(key), len(old)) + key + old + new

    def recover(self, over: Callable[[], bool] = _never) -> bool:
        """Remove staged changes that were never appended, in a write transaction.

        A writer that begins calls it until none is left.

        Args:
            over: Function that returns True once time is up.

        Returns:
            True if none is left.
        """
        with self._env.write() as txn, txn.cursor(self._journal) as cursor:
            self._raised = txn.id()
            present = cursor.set_range(_NUMBER.pack(self._env.header.last + 1))
            removed = 0
            while present:
                present = _deleted(cursor)
                removed += 1
                if not removed % _BETWEEN_CHECKS and over():
                    break

        return not present

    def deletions(self, version: str) -> dict[str, int]:
        """Return the versions of recent deletions above a version, by key.

        Changes are stored before the version after all of them is. The watch of a
        writer that begins in between repeats them.
        """
        known = version_number(version)
        found: dict[str, int] = {}
        with self._env.read() as txn, txn.cursor(self._journal) as cursor:
            header = self._env.header
            start = max(header.first, header.last + 1 - _RECENT)
            present = cursor.set_range(_NUMBER.pack(start))
            for key, value in cursor.iternext() if present else ():
                number = _number(key)
                if number > header.last:
                    break

                if value[:1] != _DELETED:
                    continue  # most are others, and need no decoding

                entry = self._decoded(number, value)
                last = self._records.decode(entry.key, entry.old)
                deleted = version_number(last.resource_version)
                if deleted > known >= 0:
                    found[entry.key] = deleted

        return found

    # ------------------------------------------------------------ readers

    def read(self, after: int, limit: int = 500) -> list[Entry] | None:
        """Return the entries after a number, oldest first; None if some were trimmed.

        In a read transaction.
        """
        entries: list[Entry] = []
        with self._env.read() as txn, txn.cursor(self._journal) as cursor:
            header = self._env.header
            if after < header.first - 1:
                return None

            last = min(header.last, after + limit)
            if after >= last:
                return entries

            cursor.set_range(_NUMBER.pack(after + 1))
            for number, (key, value) in enumerate(cursor, after + 1):
                if _number(key) != number:
                    break

                entries.append(self._decoded(number, value))
                if number == last:
                    return entries

        number = after + 1 + len(entries)
        raise self._env.damaged(
            "journal",
            f"entry {number} of {header.first} to {header.last} is missing",
        )

    def _decoded(self, number: int, record: bytes | memoryview) -> Entry:
        value = bytes(record)
        try:
            kind, key_size, old_size = _HEAD.unpack_from(value)
            old_at = _HEAD.size + key_size
            new_at = old_at + old_size
            return Entry(
                number=number,
                kind=EntryKind(kind),
                key=value[_HEAD.size : old_at].decode(),
                old=value[old_at:new_at],
                new=value[new_at:],
            )
        except (ValueError, StructError) as exc:
            raise self._env.damaged("journal", f"entry {number}: {exc}") from exc

    def behind(
        self, reader: str, after: int, start: bytes = b"", limit: int | None = None
    ) -> Behind | None:
        """Return what a reader has lost; None if the writer is about to write it.

        In a read transaction, after `read` returned None. The reader then continues at
        `Behind.number`. It may read the difference in parts, as long as that number is
        the same in all of them, and else begins again.

        Args:
            reader: Name of the reader.
            after: Its position.
            start: Start of the next part; empty for the first.
            limit: Number of keys in a part; None for all.

        Raises:
            CacheError: If nothing was kept for this reader.
        """
        prefix = _prefix(reader, after)
        with self._env.read() as txn:
            first = self._env.header.first
            with txn.cursor(self._journal) as cursor:
                if cursor.first() and _number(cursor.key()) < first:
                    return None

            with txn.cursor(self._behind) as cursor:
                if not cursor.set_key(prefix):
                    raise self._env.damaged(
                        "journal",
                        f"reader {reader} has missed the changes {after + 1} to "
                        f"{first - 1}, and the writer kept nothing for it",
                    )

                (listed,) = cursor.value()
                known: dict[str, bytes] = {}
                rest = b""
                found = cursor.set_range(start) if start else cursor.next()
                while found and (key := bytes(cursor.key())).startswith(prefix):
                    if len(known) == limit:
                        rest = key
                        break

                    value = bytes(cursor.value())
                    end = 2 + int.from_bytes(value[:2], "big")
                    known[value[2:end].decode()] = value[end:]
                    found = cursor.next()

        kind = EntryKind(listed) if listed else None
        return Behind(number=first - 1, known=known, listed=kind, rest=rest)

    # ------------------------------------------------------------ trimming

    def trim(
        self,
        positions: Callable[[], Mapping[str, int]],
        over: Callable[[], bool] = _never,
    ) -> bool:
        """Remove entries above the bounds, in a write transaction; each second.

        What a reader at a lower position loses by that is kept for it, merged. See
        `behind`. It loses few entries at a time, so that it waits for one call.

        Args:
            positions: Function that returns the positions of live readers, by name:
                `Readers.positions`. Below 0 for those that have none yet.
            over: Function that returns True once time is up.

        Returns:
            True if more is to be done: call it again soon.
        """
        with self._env.write() as txn:
            first = self._env.header.first
            with txn.cursor(self._journal) as cursor:
                removes = cursor.first() and _number(cursor.key()) < first

            kept = not self._is_empty(txn)
            # Entries that are still to be removed would count, too.
            bound = first if removes else self._bound(txn)
            if not (removes or kept or bound > first):
                return False

            # In this order: positions do not change after these transactions.
            older = self._env.processes_before(self._raised or txn.id())
            try:
                at = positions()
            except CacheError as exc:
                logger.debug("%s: cannot trim the journal (%s)", self._env.path, exc)
                return False

            swept = not kept or self._sweep(txn, at, over)
            if removes:
                behind = {name: it for name, it in at.items() if it < first - 1}
                if any(_process(name) in older for name in behind):
                    return not swept  # reads now, and may set its position afterwards

                if not self._remove(txn, first, behind, over) or behind:
                    return True  # they read the difference before the next step

                bound = self._bound(txn)

            return self._raise_first(txn, bound, at) or not swept

    def _bound(self, txn: lmdb.Transaction) -> int:
        """Return the number of the first entry within the bounds, as far as measured."""
        header = self._env.header
        bound = max(header.first, header.last + 1 - self._entries)
        stat = txn.stat(self._journal)
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        page = stat["psize"]
        excess = pages * page - self._size
        if excess <= 0:
            return bound

        with txn.cursor(self._journal) as cursor:
            if cursor.last() and _number(cursor.key()) > header.last:
                return bound  # the size is that of a list that nobody can read yet

            cursor.set_range(_NUMBER.pack(header.first))
            most = min(header.last, header.first + _MEASURED_AT_ONCE)
            for key, value in cursor:
                number = _number(key)
                if excess <= 0 or number > most:
                    break

                bound = max(bound, number + 1)
                excess -= _used(len(value), page)

        return bound

    def _raise_first(
        self, txn: lmdb.Transaction, bound: int, positions: Mapping[str, int]
    ) -> bool:
        """Raise `Header.first` to a bound, or by the next step if readers are below it.

        Readers that read on meanwhile lose nothing, unless they are slower than this.

        Returns:
            True if entries are to be removed, or the bound is not reached.
        """
        header = self._env.header
        below = [it for it in positions.values() if 0 <= it < bound - 1]
        first = bound
        if below:
            step = max(1, _LOST_AT_ONCE // len(below))
            first = min(bound, max(min(below) + 1, header.first + step))

        if first <= header.first:
            return False

        self._raised = txn.id()
        self._env.set_header(msgspec.structs.replace(header, first=first))
        return True

    def _remove(
        self,
        txn: lmdb.Transaction,
        first: int,
        behind: Mapping[str, int],
        over: Callable[[], bool],
    ) -> bool:
        """Remove entries below `first`, and merge them for readers that lack them.

        Returns:
            True if none is left.
        """
        merged = [
            _Merged(txn, self._behind, _prefix(name, at), at)
            for name, at in behind.items()
            if at >= 0
        ]
        merges = 0
        with txn.cursor(self._journal) as cursor:
            present = cursor.first()
            while present and (number := _number(cursor.key())) < first:
                if merges >= _BETWEEN_CHECKS:
                    merges = 0
                    if over():
                        return False

                merges += 1 + len(merged)
                if merged:
                    entry = self._decoded(number, cursor.value())
                    for it in merged:
                        if number > it.position:
                            it.add(entry)

                present = _deleted(cursor)

        return True

    def _is_empty(self, txn: lmdb.Transaction) -> bool:
        """Return True if nothing is kept for any reader."""
        return not txn.stat(self._behind)["entries"]

    def _sweep(
        self,
        txn: lmdb.Transaction,
        positions: Mapping[str, int],
        over: Callable[[], bool],
    ) -> bool:
        """Remove what readers do not need any more; return True if nothing is left."""
        removed = 0
        with txn.cursor(self._behind) as cursor:
            present = cursor.first()
            while present:
                key = bytes(cursor.key())
                prefix = key[: key.index(0) + 1 + _NUMBER.size]
                name = prefix[: -_NUMBER.size - 1].decode()
                if positions.get(name) == _number(prefix[-_NUMBER.size :]):
                    # Hashes are shorter.
                    present = cursor.set_range(prefix + b"\xff" * 32)
                    continue

                present = _deleted(cursor)
                removed += 1
                if not removed % _BETWEEN_CHECKS and over():
                    return False

        return True


class _Merged:
    """Writer of the merged difference of one reader.

    The first old record of each key is what the reader knew. A key that the reader did
    not know, and that is gone again, is left out: so the difference is at most as large
    as the objects that the reader knew and those in the store.

    Args:
        txn: Write transaction.
        database: Database `behind`.
        prefix: Start of the keys of this reader and position.
        position: Position of the reader.
    """

    __slots__ = ("_database", "_listed", "_prefix", "_txn", "position")

    def __init__(
        self, txn: lmdb.Transaction, database: Any, prefix: bytes, position: int
    ) -> None:
        self._txn = txn
        self._database = database
        self._prefix = prefix
        self.position = position
        listed = txn.get(prefix, db=database)
        if listed is None:
            listed = b"\0"
            txn.put(prefix, listed, db=database)

        self._listed = listed != b"\0"

    def add(self, entry: Entry) -> None:
        """Merge the next entry."""
        if entry.kind >= EntryKind.LISTED:
            # The store was empty: the reader's objects were deleted, and all are new.
            self._txn.put(self._prefix, bytes([entry.kind]), db=self._database)
            self._listed = True
            return

        if self._listed:
            return

        key = entry.key.encode()
        # Keys of LMDB are limited to 511 bytes.
        place = self._prefix + blake2b(key, digest_size=16).digest()
        before = self._txn.get(place, db=self._database)
        if before is None:
            value = len(key).to_bytes(2, "big") + key + entry.old
            self._txn.put(place, value, db=self._database)
        elif not entry.new and len(before) == 2 + len(key):
            self._txn.delete(place, db=self._database)


def _used(size: int, page: int) -> int:
    """Return the bytes that a value takes: a large one has pages of its own."""
    return size if 2 * size < page else -(-size // page) * page


def _deleted(cursor: lmdb.Cursor) -> bool:
    """Delete an item; return True if the cursor has moved to another one."""
    return cursor.delete() and bool(cursor.key())


def _prefix(reader: str, position: int) -> bytes:
    return reader.encode() + b"\0" + _NUMBER.pack(position)


def _process(reader: str) -> int:
    """Return the process of a reader, by its name."""
    return int(reader.partition("-")[0])


def _number(key: bytes | memoryview) -> int:
    number: int
    (number,) = _NUMBER.unpack(key)
    return number
