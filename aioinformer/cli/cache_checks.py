"""Checks of `aioinformer cache verify`: everything in a store agrees."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer.cache.disk.columns import Columns
from aioinformer.cache.disk.indexes import entry_of, number_of
from aioinformer.cache.disk.records import key_of, labels_text
from aioinformer.cache.index import unpack_values
from aioinformer.errors import AioInformerError
from aioinformer.informer.cached.journal import EntryKind, Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.header import Header
    from aioinformer.cache.disk.records import Records

__all__ = ["problems"]

_NUMBER = Struct(">Q")
_SLICE = 500


def problems(env: Environment, records: Records) -> Iterator[str]:
    """Yield what is wrong with a store, a line each.

    It reads one snapshot. Until it ends, the file of a running program may grow.

    Args:
        env: Environment of the store.
        records: Decoder of its records.

    Raises:
        CacheError: If the file cannot be read at all.
    """
    databases = [
        [
            env.database(f"o{it}"),
            env.database(f"x{it}", dupsort=True),
            env.database(f"c{it}"),
        ]
        for it in (0, 1)
    ]
    journal = Journal(env, records)
    entries = env.database("journal")
    with env.read() as txn:
        header = env.header
        objects, index, columns = databases[header.generation]
        if header.listed and not header.version:
            yield "header: a list is stored, but no version"

        checked = _Objects(
            txn, header, records, index, Columns(env, columns).stored(txn)
        )
        yield from checked.problems(objects)
        yield from _journal(txn, header, journal, entries, records)


class _Objects:
    """Check of all objects, with the indexes and label columns that have them."""

    def __init__(
        self,
        txn: lmdb.Transaction[bytes],
        header: Header,
        records: Records,
        index: Any,
        labels: dict[bytes, bytes],
    ) -> None:
        self._txn = txn
        self._header = header
        self._records = records
        self._index = index
        self._labels = labels
        self._names = {number: name for name, (number, _) in header.indexes.items()}
        self._entries = 0

    def problems(self, objects: Any) -> Iterator[str]:
        """Yield what is wrong."""
        count = 0
        with (
            self._txn.cursor(objects) as cursor,
            self._txn.cursor(self._index) as index,
        ):
            for name, record in cursor:
                count += 1
                key = key_of(name, record)
                try:
                    yield from self._of_object(key, name, record, index)
                except (AioInformerError, ValueError) as exc:
                    yield f"{key}: {exc}"

        if count != self._header.count:
            yield f"header: {self._header.count} objects, but {count} are stored"

        for line in sorted(self._labels)[:10]:
            yield f"label columns: {line.decode()} is not stored"

        stored = self._stored_entries()
        if stored != self._entries:
            yield f"indexes: {stored} entries, but objects have {self._entries} values"

    def _of_object(
        self, key: str, name: bytes, record: bytes, index: lmdb.Cursor
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

        line = msgspec.json.encode(key)
        labels = self._labels.pop(line, None)
        if labels != labels_text(obj.label_set):
            yield f"{key}: its labels are not those in the label columns"

        values = self._records.unpack(self._records.head(record).values)
        for number, packed in values.items():
            if number not in self._names:
                continue  # an index that is no longer kept

            for value in unpack_values(packed):
                self._entries += 1
                if not index.set_key_dup(entry_of(number, value), name):
                    yield f"{key}: index {self._names[number]} lacks it under {value!r}"

    def _stored_entries(self) -> int:
        """Return the number of entries of the indexes that are kept."""
        with self._txn.cursor(self._index) as cursor:
            return sum(number_of(entry) in self._names for entry, _ in cursor)


def _journal(
    txn: lmdb.Transaction[bytes],
    header: Header,
    journal: Journal,
    entries: Any,
    records: Records,
) -> Iterator[str]:
    after = header.first - 1
    while after < header.last:
        try:
            found = journal.read(after, _SLICE)
        except AioInformerError as exc:
            yield f"journal: {exc}"
            return

        for entry in found or ():
            try:
                for record in filter(None, (entry.old, entry.new)):
                    records.decode(entry.key, record).to_dict()
            except (AioInformerError, ValueError) as exc:
                yield f"journal: entry {entry.number}: {exc}"

            if entry.kind < EntryKind.LISTED and not entry.key:
                yield f"journal: entry {entry.number} has no key"

        after += _SLICE

    # Those below wait for their removal, those above for the end of a list.
    with txn.cursor(entries) as cursor:
        if header.last >= header.first and not cursor.set_key(
            _NUMBER.pack(header.last)
        ):
            yield f"journal: its newest entry, {header.last}, is missing"
