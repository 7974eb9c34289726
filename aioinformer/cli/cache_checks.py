"""Checks of `aioinformer cache verify`: everything in a store agrees."""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer.cache.disk.columns import Columns
from aioinformer.cache.disk.indexes import entry_of, number_of
from aioinformer.cache.disk.records import key_of, labels_text, name_of
from aioinformer.cache.index import unpack_values
from aioinformer.errors import AioInformerError
from aioinformer.informer.cached.journal import EntryKind, Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records

    Transaction = lmdb.Transaction[bytes]

__all__ = ["problems"]

_NUMBER = Struct(">Q")

# Objects, entries or chunks that are read in one transaction: some milliseconds.
_SLICE = 200


def problems(env: Environment, records: Records) -> Iterator[str]:
    """Yield what is wrong with a store, a line each.

    It reads a slice of the store in each transaction, and compares it with the other
    parts in the same transaction. So a running program may write meanwhile, and its file
    does not grow.

    Args:
        env: Environment of the store.
        records: Decoder of its records.

    Raises:
        CacheError: If the file cannot be read at all.
    """
    store = _Store(env, records)
    yield from store.header()
    for check in (store.objects, store.index_entries, store.label_columns):
        yield from _sliced(check)

    yield from store.journal()


class _Databases(NamedTuple):
    """Databases of one generation."""

    objects: lmdb._Database
    entries: lmdb._Database
    columns: lmdb._Database


def _sliced(check: Callable[[Any], tuple[list[str], Any]]) -> Iterator[str]:
    """Call a check for one slice after the other, each from where the last one ended."""
    found, place = check(None)
    yield from found
    while place is not None:
        found, place = check(place)
        yield from found


class _Store:
    """Checks of the parts of a store."""

    def __init__(self, env: Environment, records: Records) -> None:
        self._env = env
        self._records = records
        self._databases = [
            _Databases(
                env.database(f"o{it}"),
                env.database(f"x{it}", dupsort=True),
                env.database(f"c{it}"),
            )
            for it in (0, 1)
        ]
        self._journal = Journal(env, records)
        self._journal_entries = env.database("journal")

    @property
    def _current(self) -> _Databases:
        """Databases that readers use, as of the current transaction."""
        return self._databases[self._env.header.generation]

    def header(self) -> list[str]:
        """Check the header."""
        found = []
        with self._env.read() as txn:
            header = self._env.header
            count = txn.stat(self._current.objects)["entries"]
            if header.listed and not header.version:
                found.append("header: a list is stored, but no version")

            if count != header.count:
                found.append(f"header: {header.count} objects, but {count} are stored")

        return found

    # ------------------------------------------------------------ objects

    def objects(self, after: bytes | None) -> tuple[list[str], bytes | None]:
        """Check the next objects, their entries in indexes, and their labels."""
        found: list[str] = []
        with self._env.read() as txn:
            databases = self._current
            chunks = _Chunks(txn, Columns(self._env, databases.columns))
            with (
                txn.cursor(databases.objects) as cursor,
                txn.cursor(databases.entries) as entries,
            ):
                begun = cursor.set_range(after + b"\0") if after else cursor.first()
                rows = list(islice(cursor.iternext(), _SLICE)) if begun else []
                for name, record in rows:
                    key = key_of(name, record)
                    try:
                        found += self._of_object(key, name, record, entries, chunks)
                    except (AioInformerError, ValueError) as exc:
                        found.append(f"{key}: {exc}")

        return found, rows[-1][0] if len(rows) == _SLICE else None

    def _of_object(
        self,
        key: str,
        name: bytes,
        record: bytes,
        entries: lmdb.Cursor[bytes],
        chunks: _Chunks,
    ) -> Iterator[str]:
        obj = self._records.decode(key, record)
        metadata = obj.to_dict().get("metadata") or {}
        for field, value in (
            ("uid", obj.uid),
            ("resourceVersion", obj.resource_version),
        ):
            # A transform may have removed it from the body.
            if metadata.get(field, value) != value:
                yield f"{key}: its body has the {field} {metadata[field]}, not {value}"

        chunk = chunks[self._records.head(record).chunk]
        if chunk.get(key) != labels_text(obj.label_set):
            yield f"{key}: its labels are not those in the label columns"

        names = self._indexes()
        for number, value in self._values(record):
            if number in names and not entries.set_key_dup(
                entry_of(number, value), name
            ):
                yield f"{key}: index {names[number]} lacks it under {value!r}"

    def _indexes(self) -> dict[int, str]:
        """Return the names of the indexes that are kept, by number."""
        indexes = self._env.header.indexes
        return {number: name for name, (number, _) in indexes.items()}

    def _values(self, record: bytes) -> Iterator[tuple[int, str]]:
        """Yield the index values in a record, with the numbers of their indexes."""
        values = self._records.unpack(self._records.head(record).values)
        for number, packed in values.items():
            for value in unpack_values(packed):
                yield number, value

    # ------------------------------------------------------------ indexes and labels

    def index_entries(
        self, after: tuple[bytes, bytes] | None
    ) -> tuple[list[str], tuple[bytes, bytes] | None]:
        """Check that the next entries of indexes have an object with that value."""
        found: list[str] = []
        with self._env.read() as txn:
            databases, indexes = self._current, self._indexes()
            with txn.cursor(databases.entries) as cursor:
                rows = list(islice(_entries(cursor, after), _SLICE))

            for entry, name in rows:
                index = indexes.get(number_of(entry))
                if index is None:
                    continue  # no longer kept, and about to be removed

                record = txn.get(name, None, databases.objects)
                values = () if record is None else self._values(record)
                if entry not in {entry_of(*it) for it in values}:
                    key = name.decode(errors="replace")
                    found.append(f"index {index}: {key} does not have a value of it")

        return found, rows[-1] if len(rows) == _SLICE else None

    def label_columns(self, after: int | None) -> tuple[list[str], int | None]:
        """Check that the keys in the next label column are those of objects."""
        found: list[str] = []
        with self._env.read() as txn:
            databases = self._current
            columns = Columns(self._env, databases.columns)
            number = columns.next(txn, after or 0)
            if number is None:
                return [], None

            try:
                for key in columns.stored(txn, number):
                    record = txn.get(name_of(key), None, databases.objects)
                    if record is None or self._records.head(record).chunk != number:
                        found.append(f"label columns: {key} is not stored")
            except AioInformerError as exc:
                found.append(str(exc))

        return found, number

    # ------------------------------------------------------------ journal

    def journal(self) -> Iterator[str]:
        """Check the entries of the journal."""
        after = 0
        while True:
            try:
                with self._env.read():
                    # The writer may have trimmed more meanwhile.
                    after = max(after, self._env.header.first - 1)
                    found = self._journal.read(after, _SLICE) or []
            except AioInformerError as exc:
                yield f"journal: {exc}"
                return

            if not found:
                break

            for entry in found:
                try:
                    for record in filter(None, (entry.old, entry.new)):
                        self._records.decode(entry.key, record).to_dict()
                except (AioInformerError, ValueError) as exc:
                    yield f"journal: entry {entry.number}: {exc}"

                if entry.kind < EntryKind.LISTED and not entry.key:
                    yield f"journal: entry {entry.number} has no key"

            after = found[-1].number

        # Those below wait for their removal, those above for the end of a list.
        with self._env.read() as txn, txn.cursor(self._journal_entries) as cursor:
            header = self._env.header
            newest = _NUMBER.pack(header.last)
            if header.last >= header.first and not cursor.set_key(newest):
                yield f"journal: its newest entry, {header.last}, is missing"


class _Chunks(dict[int, dict[str, bytes]]):
    """Label columns that were read in one transaction, by number: labels by key."""

    def __init__(self, txn: Transaction, columns: Columns) -> None:
        super().__init__()
        self._txn = txn
        self._columns = columns

    def __missing__(self, number: int) -> dict[str, bytes]:
        found = self[number] = self._columns.stored(self._txn, number)
        return found


def _entries(
    cursor: lmdb.Cursor[bytes], after: tuple[bytes, bytes] | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of indexes after one, with a name each."""
    if after is None:
        begun = cursor.first()
    else:
        entry, name = after
        # The entry may have been removed, or have no later name.
        begun = cursor.set_range_dup(entry, name + b"\0") or cursor.set_range(
            entry + b"\0"
        )

    return cursor.iternext() if begun else iter(())
