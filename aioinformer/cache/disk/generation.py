"""`Generation`: one set of databases with objects, index entries and label columns."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from aioinformer.cache.disk.columns import Columns
from aioinformer.cache.disk.indexes import entry_of, number_of
from aioinformer.cache.disk.records import key_of, labels_text, name_of
from aioinformer.cache.index import unpack_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.index import Packed
    from aioinformer.model.objects import KubeObject

    Transaction = lmdb.Transaction[bytes]

__all__ = ["Generation"]


class Generation:
    """One of the two sets of databases of an environment.

    Args:
        env: Environment.
        records: Encoder and decoder of its records.
        number: 0 or 1.
    """

    def __init__(self, env: Environment, records: Records, number: int) -> None:
        self._env = env
        self._records = records
        self.number = number
        self._objects = env.database(f"o{number}")
        self._entries = env.database(f"x{number}", dupsort=True)
        self._labels = env.database(f"c{number}")
        self.columns: Columns = Columns(self._env, self._labels)
        """Label columns; changes are written by their `flush()`."""

    # ------------------------------------------------------------ reads

    @contextmanager
    def names(self) -> Iterator[lmdb.Cursor[bytes]]:
        """Open a cursor of the records by name, in a read transaction."""
        with self._env.read() as txn, txn.cursor(self._objects) as cursor:
            yield cursor

    @contextmanager
    def entries(self) -> Iterator[lmdb.Cursor[bytes]]:
        """Open a cursor of the names by index entry, in a read transaction."""
        with self._env.read() as txn, txn.cursor(self._entries) as cursor:
            yield cursor

    def record(self, name: bytes) -> bytes | None:
        """Return a record, or None."""
        with self._env.read() as txn:
            return txn.get(name, None, self._objects)

    def slice(self, after: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
        """Return the next names and records, in one transaction.

        Args:
            after: Name after which to begin; None for the beginning.
            size: Largest number of records.
        """
        with self.names() as cursor:
            found = cursor.first() if after is None else cursor.set_range(after + b"\0")
            return list(islice(cursor.iternext(), size)) if found else []

    def count(self) -> int:
        """Return the number of objects."""
        with self._env.read() as txn:
            return int(txn.stat(self._objects)["entries"])

    def decode(self, name: bytes, record: bytes) -> tuple[str, KubeObject]:
        """Return the key and object of a record."""
        key = key_of(name, record)
        return key, self._records.decode(key, record)

    def values(self, name: bytes) -> dict[int, str | bytes]:
        """Return the stored index values of an object, by number of the index."""
        record = self.record(name)
        if record is None:
            return {}

        return self._records.unpack(self._records.head(record).values)

    # ------------------------------------------------------------ writes

    def write(
        self,
        txn: Transaction,
        key: str,
        obj: KubeObject,
        values: Mapping[int, Packed],
    ) -> None:
        """Write one object, new or not."""
        name = name_of(key)
        labels = labels_text(obj.label_set)
        packed = self._records.pack(values)
        old = txn.get(name, None, self._objects)
        if old is None:
            chunk = self.columns.add(txn, key, labels)
            self._reindex(txn, name, {}, values)
        else:
            head = self._records.head(old)
            chunk = head.chunk
            if head.labels != labels:
                self.columns.change(txn, chunk, key, labels)

            if head.values != packed:
                self._reindex(txn, name, self._records.unpack(head.values), values)

        record = self._records.encode(
            obj, packed, chunk=chunk, labels=labels, generation=self.number, txn=txn
        )
        txn.put(name, record, db=self._objects)

    def append(
        self,
        txn: Transaction,
        batch: list[tuple[bytes, KubeObject, Mapping[int, Packed]]],
    ) -> None:
        """Write objects, sorted by their names, which are above all stored ones."""
        records = []
        entries: list[tuple[bytes, bytes]] = []
        for name, obj, values in batch:
            labels = labels_text(obj.label_set)
            record = self._records.encode(
                obj,
                self._records.pack(values),
                chunk=self.columns.add(txn, obj.key, labels),
                labels=labels,
                generation=self.number,
                txn=txn,
            )
            records.append((name, record))
            for number, packed in values.items():
                if type(packed) is str:
                    entries.append((entry_of(number, packed), name))
                else:
                    found = _entries({number: packed})
                    entries.extend((entry, name) for entry in found)

        entries.sort()
        with txn.cursor(self._objects) as cursor:
            cursor.putmulti(records, append=True)

        with txn.cursor(self._entries) as cursor:
            cursor.putmulti(entries)

    def remove(self, txn: Transaction, key: str) -> None:
        """Remove an object, if it is stored."""
        name = name_of(key)
        record = txn.pop(name, self._objects)
        if record is not None:
            head = self._records.head(record)
            self.columns.remove(txn, head.chunk, key)
            self._reindex(txn, name, self._records.unpack(head.values), {})

    def replace_values(
        self, txn: Transaction, name: bytes, values: Mapping[int, Packed]
    ) -> None:
        """Replace the index values of an object."""
        record = txn.get(name, None, self._objects)
        if record is not None:
            before = self._records.unpack(self._records.head(record).values)
            self._reindex(txn, name, before, values)
            record = self._records.with_values(record, self._records.pack(values))
            txn.put(name, record, db=self._objects)

    def _reindex(
        self,
        txn: Transaction,
        name: bytes,
        before: Mapping[int, Packed],
        after: Mapping[int, Packed],
    ) -> None:
        old, new = _entries(before), _entries(after)
        for entry in new - old:
            txn.put(entry, name, db=self._entries)

        for entry in old - new:
            txn.delete(entry, name, self._entries)

    def sweep(self, txn: Transaction, live: set[int], limit: int) -> bool:
        """Remove entries of indexes whose numbers are not live, up to a limit.

        Returns:
            True if there may be more.
        """
        with txn.cursor(self._entries) as cursor:
            more = cursor.first()
            while more and limit:
                number = number_of(cursor.key())
                if number in live:
                    more = cursor.set_range(entry_of(number + 1, ""))
                else:
                    limit -= 1
                    cursor.delete()  # and moves to the next one, if any
                    more = bool(cursor.key())

        return bool(more)

    def clear(self) -> None:
        """Remove everything."""
        with self._env.write() as txn:
            for database in (self._objects, self._entries, self._labels):
                txn.drop(database, delete=False)

            self._records.forget(self.number)

        self.columns = Columns(self._env, self._labels)


def _entries(values: Mapping[int, Packed]) -> set[bytes]:
    return {
        entry_of(number, value)
        for number, packed in values.items()
        for value in unpack_values(packed)
    }
