"""`DiskContents`: objects and indexes in LMDB, as `Contents` are in memory."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import islice
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aioinformer._user_code import user_errors
from aioinformer.cache.disk.building import (
    PrivateBuilding,
    StoredBuilding,
    failure_of,
    private_index,
    put_private,
)
from aioinformer.cache.disk.columns import Columns
from aioinformer.cache.disk.indexes import (
    DiskIndex,
    Namespaces,
    PrivateEntries,
    StoredEntries,
    entry_of,
    number_of,
)
from aioinformer.cache.disk.objects import SLICE, Objects
from aioinformer.cache.disk.prints import print_of
from aioinformer.cache.disk.records import key_of, labels_text, name_of
from aioinformer.cache.index import (
    index_by_label,
    pack_values,
    unpack_values,
)
from aioinformer.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.index import Index, IndexFunction, Packed
    from aioinformer.cache.interface import Building, Contents, IndexReads
    from aioinformer.errors import HandlerError
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.selectors import LabelSelector

__all__ = ["DiskContents"]

BATCH: Final = 64
"""Objects of a list that are written in one transaction: it takes about a millisecond,
and other tasks run between two of them."""

_SMALL_NAMESPACE: Final = 2000
"""Objects of a namespace whose records are searched. In a larger one, all label columns
are."""

_choose: Final = SystemRandom().randrange


class _Databases(NamedTuple):
    """Databases of one generation."""

    objects: Any
    entries: Any
    columns: Any


class _Staged(NamedTuple):
    """Object of a list that is not written yet."""

    obj: KubeObject
    values: dict[int, Packed]


class DiskContents:
    """One generation of objects in an environment, with indexes and label columns.

    Fulfils the protocol `Contents` (aioinformer/cache/interface.py). Every read is a
    transaction of its own, or joins that of `Environment.read()`.

    A list is written into the other generation, in transactions of `BATCH` objects,
    which is not read before `replace_with()`. There is room for one such list: the next
    `replacement()` empties it.

    Args:
        env: Environment.
        records: Encoder and decoder of its records.
        functions: Index functions by name. For a reader, those whose print the header
            has are read from LMDB; it keeps the others in memory, as keys only. See
            `missing`.
        report: Function called with errors of index functions; must not raise.
        writer: True for the contents that the pipeline writes to. It must have the
            lock of the writer.
    """

    def __init__(
        self,
        env: Environment,
        records: Records,
        functions: Mapping[str, IndexFunction[KubeObject]],
        report: Callable[[HandlerError], None],
        *,
        writer: bool = False,
    ) -> None:
        self._env = env
        self._records = records
        self._functions = dict(functions)
        self.report = report
        self._generations = tuple(
            _Databases(
                env.database(f"o{number}"),
                env.database(f"x{number}", dupsort=True),
                env.database(f"c{number}"),
            )
            for number in (0, 1)
        )
        self.objects: Objects = Objects(self)
        """Objects by key."""
        self._private: dict[str, Index[str]] = {}
        self._known_prints: dict[str, str] = {}
        # Indexes that are being built.
        self.growing: list[StoredBuilding | PrivateBuilding] = []
        # Generation that a writer writes; None for the current one, of a reader.
        self._generation: int | None = None
        # Contents that a generation belongs to, shared with replacements.
        self._owners: list[DiskContents | None] = [None, None]
        # Number and function of each index that is written; complete ones by name.
        self._written: dict[str, tuple[int, IndexFunction[KubeObject]]] = {}
        self._complete: set[str] = set()
        # The rest is for writes. Staged objects by key; None for current contents.
        self._staged: dict[str, _Staged] | None = None
        self._staged_version = ""
        # The highest name in the staged generation.
        self._last = b""
        self._columns = Columns(self._generations[0].columns)
        self._transaction: lmdb.Transaction[bytes] | None = None
        if writer:
            self._begin_writing()

    def __repr__(self) -> str:
        return f"<DiskContents of {self._env.path}>"

    # ------------------------------------------------------------ reads, any thread

    @property
    def resource_version(self) -> str:
        """Version up to which everything is stored; set in a step."""
        if self._staged is not None:
            return self._staged_version

        return self._env.header.version

    @resource_version.setter
    def resource_version(self, version: str) -> None:
        if self._staged is not None:
            self._staged_version = version
            return

        with self._env.write():
            header = self._env.header
            if header.version != version:
                self._env.set_header(msgspec.structs.replace(header, version=version))

    @property
    def indexes(self) -> Mapping[str, IndexReads[KubeObject]]:
        """Indexes by name.

        One that is neither stored nor kept in memory is complete, too, but each read of
        it reads all objects. See `missing`.
        """
        numbers = self._numbers()
        return {
            name: self._index(name, function, numbers.get(name, 0))
            for name, function in list(self._functions.items())
        }

    @property
    def missing(self) -> dict[str, IndexFunction[KubeObject]]:
        """Index functions whose indexes are to be built: pass them to `build()`."""
        numbers = self._numbers()
        return {
            name: function
            for name, function in list(self._functions.items())
            if name not in numbers
            and name not in self._private
            and not hasattr(function, "of_key")
        }

    def select(
        self, selector: LabelSelector, namespace: str | None, limit: int | None
    ) -> list[KubeObject]:
        """Return the objects of a namespace, or all for None, whose labels match.

        They are one snapshot. All objects of a large collection take a second for each
        100,000, which block the event loop.
        """
        if limit == 0:
            return []

        self.flush()
        with self._env.read() as txn:
            found = (
                self._in_namespace(namespace)
                if selector.empty
                else self._matching(txn, selector, namespace)
            )
            return list(islice(found, limit))

    def reading(self) -> AbstractContextManager[Any]:
        """Make the reads in a block one snapshot, in the thread of the block.

        Do not wait in it: the file grows meanwhile.
        """
        self.flush()
        return self._env.read()

    def _in_namespace(self, namespace: str | None) -> Iterator[KubeObject]:
        """Yield all objects of a namespace, in a transaction."""
        if namespace is None:
            return (obj for _, obj in self.pairs())

        return (obj for _, obj in self.of_names(Namespaces(self).names(namespace)))

    def _matching(
        self,
        txn: lmdb.Transaction[bytes],
        selector: LabelSelector,
        namespace: str | None,
    ) -> Iterator[KubeObject]:
        """Yield the objects that a selector selects, in a transaction."""
        names = self._labelled(selector)
        if names is None and namespace is not None:
            names = Namespaces(self).names(namespace, _SMALL_NAMESPACE)
            if len(names) == _SMALL_NAMESPACE:
                names = None

        if names is None:
            columns = Columns(self._databases().columns)
            found = columns.search(txn, selector, namespace)
            names = list(map(name_of, found))
            for _, obj in self.of_names(names):
                yield obj

            return

        for _, obj in self.of_names(names):
            if selector.matches(obj) and namespace in {None, obj.namespace}:
                yield obj

    def _labelled(self, selector: LabelSelector) -> list[bytes] | None:
        """Return the names of a required label that has an index; None without any."""
        best: tuple[int, StoredEntries, tuple[str, ...]] | None = None
        numbers = self._numbers()
        for it in selector.requirements:
            if it.operator in {"=", "in"}:
                function = index_by_label(it.key)
                for name, number in numbers.items():
                    if self._functions[name] == function:
                        entries = StoredEntries(self, number)
                        count = sum(map(entries.count, it.values))
                        if best is None or count < best[0]:
                            best = count, entries, it.values

        if best is None:
            return None

        return [name for value in best[2] for name in best[1].names(value)]

    def _numbers(self) -> dict[str, int]:
        """Return the numbers of the stored indexes that are complete, by name."""
        if self._generation is not None:
            return {name: self._written[name][0] for name in list(self._complete)}

        stored = self._env.header.indexes
        found = {}
        for name, function in list(self._functions.items()):
            number, its_print = stored.get(name, (0, ""))
            if number and its_print == self._print(name, function):
                found[name] = number

        return found

    def _index(
        self, name: str, function: IndexFunction[KubeObject], number: int
    ) -> DiskIndex:
        if hasattr(function, "of_key"):
            return DiskIndex(self, function, partial(Namespaces, self))

        if number:
            stored = partial(StoredEntries, self, number)
            return DiskIndex(self, function, stored, number)

        private = self._private.get(name)
        if private is not None:
            return DiskIndex(self, function, partial(PrivateEntries, private))

        return DiskIndex(self, function, partial(self._scanned, name, function))

    def _scanned(
        self, name: str, function: IndexFunction[KubeObject]
    ) -> PrivateEntries:
        """Index all objects, for one read."""
        index = private_index(function)
        for key, obj in self.pairs():
            put_private(name, function, index, key, obj)

        return PrivateEntries(index)

    # ------------------------------------------------------------ for views of it

    def _databases(self) -> _Databases:
        """Return the databases of its generation, in a transaction."""
        generation = self._generation
        if generation is None:
            return self._generations[self._env.header.generation]

        if self._owners[generation] is not self:
            raise InternalError(
                f"{self._env.path}: read or write of objects that were replaced"
            )

        return self._generations[generation]

    @contextmanager
    def cursor(self, database: str) -> Iterator[lmdb.Cursor]:
        """Open a cursor of one of its databases; staged objects are written first."""
        self.flush()
        with self._env.read() as txn:
            with txn.cursor(getattr(self._databases(), database)) as cursor:
                yield cursor

    def count(self) -> int:
        """Return the number of objects."""
        self.flush()
        with self._env.read() as txn:
            return int(txn.stat(self._databases().objects)["entries"])

    def get(self, key: str) -> KubeObject | None:
        """Return the object under a key, or None."""
        name = name_of(key)
        if self._staged is not None:
            staged = self._staged.get(key)
            if staged is not None:
                return staged.obj

            if name > self._last:
                return None

        with self._env.read() as txn:
            record = txn.get(name, None, self._databases().objects)
            return None if record is None else self._records.decode(key, record)

    def has(self, key: str) -> bool:
        """Return whether there is an object under a key."""
        name = name_of(key)
        if self._staged is not None:
            if key in self._staged:
                return True

            if name > self._last:
                return False

        with self.cursor("objects") as cursor:
            return bool(cursor.set_key(name))

    def slice(
        self, after: bytes | None, size: int = SLICE
    ) -> list[tuple[bytes, bytes]]:
        """Return the next names and records, in one transaction.

        Args:
            after: Name after which to begin; None for the beginning.
            size: Largest number of records.
        """
        with self.cursor("objects") as cursor:
            found = cursor.first() if after is None else cursor.set_range(after + b"\0")
            return list(islice(cursor.iternext(), size)) if found else []

    def pairs(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield all keys and objects; each `SLICE` of them is a transaction."""
        after: bytes | None = None
        while True:
            with self._env.read():
                found = self.slice(after)
                decoded = [self.decode(*it) for it in found]

            yield from decoded
            if len(found) < SLICE:
                return

            after = found[-1][0]

    def keys(self) -> Iterator[str]:
        """Yield all keys; each `SLICE` of them is a transaction."""
        after: bytes | None = None
        while True:
            with self.cursor("objects") as cursor:
                found = cursor.first() if after is None else cursor.set_range(after)
                names = (
                    list(islice(cursor.iternext(values=False), SLICE)) if found else []
                )
                keys = self.keys_of(names)

            yield from keys
            if len(names) < SLICE:
                return

            after = names[-1] + b"\0"

    def decode(self, name: bytes, record: bytes) -> tuple[str, KubeObject]:
        """Return the key and object of a record, in a transaction."""
        key = key_of(name, record)
        return key, self._records.decode(key, record)

    def of_names(self, names: list[bytes]) -> Iterator[tuple[str, KubeObject]]:
        """Yield the keys and objects of some names, in a transaction."""
        with self.cursor("objects") as cursor:
            for start in range(0, len(names), SLICE):
                for name, record in cursor.getmulti(names[start : start + SLICE]):
                    yield self.decode(name, record)

    def keys_of(self, names: list[bytes]) -> list[str]:
        """Return the keys of some names, in a transaction."""
        if not any(b"\0" in it for it in names):
            return [it.decode("utf-8", "surrogatepass") for it in names]

        with self.cursor("objects") as cursor:
            return [key_of(*it) for it in cursor.getmulti(names)]

    def values_of(self, key: str) -> Mapping[int, Packed]:
        """Return the stored index values of an object, by the number of the index."""
        if self._staged is not None:
            staged = self._staged.get(key)
            if staged is not None:
                return staged.values

        return self.values_by_name(name_of(key))

    def values_by_name(self, name: bytes) -> dict[int, str | bytes]:
        """Return the stored index values of an object, by its name."""
        with self._env.read() as txn:
            record = txn.get(name, None, self._databases().objects)
            if record is None:
                return {}

            return self._records.unpack(self._records.head(record).values)

    # ------------------------------------------------------------ writes, one loop

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the writes in a block one step: readers see all of them, or none."""
        if self._transaction is not None:
            yield
            return

        try:
            with self._env.write() as txn:
                self._transaction = txn
                yield
                self._columns.flush(txn)
                if self._staged is None:
                    self._write_count()
        finally:
            self._transaction = None
            self._columns.forget()

    def put(self, key: str, obj: KubeObject, equal: KubeObject | None = None) -> None:
        """Add or replace one object; `equal` is cheaper to read for index functions.

        An object whose index function fails is stored, and absent from that index.
        """
        failures: list[HandlerError] = []
        values: dict[int, Packed] = {}
        read = obj if equal is None else equal
        for name, (number, function) in self._written.items():
            packed = _call(name, function, read, obj, failures)
            if packed is not None:
                values[number] = packed

        self._store(key, obj, values)
        for failure in failures:
            self.report(failure)

    def keep(self, key: str, obj: KubeObject, source: Contents[KubeObject]) -> None:
        """Take an object from `source`, with its index values there.

        The object may be stored in another form than there: compressed. `source` may be
        these contents themselves.
        """
        if not isinstance(source, DiskContents):
            self.put(key, obj)
            return

        failures: list[HandlerError] = []
        known = source.values_of(key)
        values: dict[int, Packed] = {}
        for name, (number, function) in self._written.items():
            packed = known.get(number)
            if packed is None and name not in source._complete:
                packed = _call(name, function, obj, obj, failures)

            if packed is not None:
                values[number] = packed

        self._store(key, obj, values)
        for failure in failures:
            self.report(failure)

    def remove(self, key: str) -> KubeObject | None:
        """Remove one object; return it, or None if there was none."""
        old = self.get(key)
        if old is None:
            return None

        if self._staged is not None:
            self._staged.pop(key, None)

        with self.step():
            name = name_of(key)
            txn, databases = self._writing()
            record = txn.pop(name, databases.objects)
            if record is not None:
                head = self._records.head(record)
                self._columns.remove(txn, head.chunk, key)
                self._reindex(name, self._records.unpack(head.values), {})

        return old

    def replacement(self) -> DiskContents:
        """Return empty contents with the same indexes, to replace these in one step.

        The ones that were returned before are invalid from then on.
        """
        assert self._generation is not None, "a reader does not write"
        made = DiskContents(self._env, self._records, self._functions, self.report)
        made._owners = self._owners
        made._generation = generation = 1 - self._generation
        made._written = dict(self._written)
        made._complete = set(self._written)
        made._columns = Columns(self._generations[generation].columns)
        made._staged = {}
        self._owners[generation] = made
        made._clear()
        return made

    def replace_with(
        self, replacement: Contents[KubeObject], resource_version: str
    ) -> DiskContents:
        """Return the contents to read from now on; called in a step.

        These contents are still readable until `release()`.
        """
        assert isinstance(replacement, DiskContents)
        assert replacement._generation is not None
        with self.step():
            replacement.flush()
            for name, written in self._written.items():
                replacement._written.setdefault(name, written)
                replacement._functions.setdefault(name, written[1])

            header = msgspec.structs.replace(
                self._env.header,
                generation=replacement._generation,
                listed=True,
                version=resource_version,
                count=replacement.count(),
                indexes=replacement._prints(),
            )
            self._env.set_header(header)

        replacement._staged = None
        self.growing, growing = [], self.growing
        for it in growing:
            it.begin(replacement)

        return replacement

    async def release(self) -> None:
        """Free contents that were replaced or given up."""
        generation = self._generation
        if generation is None or self._owners[generation] is not self:
            return

        if self._staged is not None or generation != self._env.header.generation:
            self._owners[generation] = None
            self._staged = None
            self._clear()

    def _clear(self) -> None:
        """Empty its generation."""
        generation = self._generation
        assert generation is not None
        with self._env.write() as txn:
            for database in self._generations[generation]:
                txn.drop(database, delete=False)

            self._records.forget(generation)

    def _store(self, key: str, obj: KubeObject, values: dict[int, Packed]) -> None:
        staged = self._staged
        if staged is not None:
            staged[key] = _Staged(obj, values)
            if len(staged) >= BATCH:
                self.flush()

        elif self._transaction is None:
            with self.step():
                self._write(name_of(key), key, obj, values)

        else:
            self._write(name_of(key), key, obj, values)

    def flush(self) -> None:
        """Write the objects that are staged."""
        staged = self._staged
        if not staged:
            return

        batch = sorted((name_of(key), key, *it) for key, it in staged.items())
        with self.step():
            if batch[0][0] > self._last:
                self._append(batch)
            else:
                for one in batch:
                    self._write(*one)

        self._last = max(self._last, batch[-1][0])
        staged.clear()

    def _append(
        self, batch: list[tuple[bytes, str, KubeObject, dict[int, Packed]]]
    ) -> None:
        """Write new objects whose names are above all that are stored."""
        txn, databases = self._writing()
        records = []
        entries = []
        for name, key, obj, values in batch:
            labels = labels_text(obj.label_set)
            record = self._records.encode(
                obj,
                self._records.pack(values),
                chunk=self._columns.add(txn, key, labels),
                labels=labels,
                generation=self._generation,
            )
            records.append((name, record))
            for number, packed in values.items():
                for value in unpack_values(packed):
                    entries.append((entry_of(number, value), name))

        entries.sort()
        with txn.cursor(databases.objects) as cursor:
            cursor.putmulti(records, append=True)

        with txn.cursor(databases.entries) as cursor:
            cursor.putmulti(entries)

    def _write(
        self, name: bytes, key: str, obj: KubeObject, values: Mapping[int, Packed]
    ) -> None:
        """Write one object, new or not."""
        txn, databases = self._writing()
        labels = labels_text(obj.label_set)
        packed = self._records.pack(values)
        old = txn.get(name, None, databases.objects)
        if old is None:
            chunk = self._columns.add(txn, key, labels)
            self._reindex(name, {}, values)
        else:
            head = self._records.head(old)
            chunk = head.chunk
            if head.labels != labels:
                self._columns.change(txn, chunk, key, labels)

            if head.values != packed:
                self._reindex(name, self._records.unpack(head.values), values)

        record = self._records.encode(
            obj, packed, chunk=chunk, labels=labels, generation=self._generation
        )
        txn.put(name, record, db=databases.objects)

    def _reindex(
        self, name: bytes, before: Mapping[int, Packed], after: Mapping[int, Packed]
    ) -> None:
        """Replace the index values of an object."""
        txn, databases = self._writing()
        old = _entries(before)
        new = _entries(after)
        for entry in new - old:
            txn.put(entry, name, db=databases.entries)

        for entry in old - new:
            txn.delete(entry, name, databases.entries)

    def _writing(self) -> tuple[lmdb.Transaction[bytes], _Databases]:
        assert self._transaction is not None
        return self._transaction, self._databases()

    def _write_count(self) -> None:
        header = self._env.header
        if header.generation == self._generation:
            count = self.count()
            if count != header.count:
                self._env.set_header(msgspec.structs.replace(header, count=count))

    # ------------------------------------------------------------ building indexes

    def build(
        self,
        functions: Mapping[str, IndexFunction[KubeObject]],
        known: Contents[KubeObject] | None = None,
    ) -> Building:
        """Begin to build indexes of the current objects.

        A writer stores them, a reader keeps them in memory. Later writes are indexed,
        too, and so is a list that replaces the objects.

        Args:
            functions: Index functions by the names of their indexes.
            known: Not used: values of other contents cost as much to read.
        """
        if self._generation is None:
            return PrivateBuilding(self, functions)

        return StoredBuilding(self, functions)

    def follow(
        self, changes: Iterable[tuple[KubeObject | None, KubeObject | None]]
    ) -> None:
        """Update the indexes that are kept in memory, by old and new states; for readers."""
        if not (self._private or self.growing):
            return

        for old, new in changes:
            changed = new or old
            if changed is not None:
                self._follow(changed.key, new)

    def listed(self) -> None:
        """Drop the indexes that are kept in memory: all objects were replaced.

        They are `missing` then. Those that are being built begin again.
        """
        self._private.clear()
        for building in self.growing:
            building.begin(self)

    def _follow(self, key: str, new: KubeObject | None) -> None:
        for name, index in list(self._private.items()):
            if failure := put_private(name, self._functions[name], index, key, new):
                self.report(failure)

        for building in self.growing:
            building.follow(key, new)

    def begin_indexes(self, functions: Mapping[str, IndexFunction[KubeObject]]) -> None:
        """Index each object that is written by these functions, too; for a writer."""
        for name, function in functions.items():
            if name not in self._written and not hasattr(function, "of_key"):
                self._written[name] = _new_number(), function

    def index_some(self, after: bytes | None, names: Iterable[str]) -> bytes | None:
        """Index the next objects by some functions; return the last name, or None."""
        functions = {name: self._written[name] for name in names}
        failures: list[HandlerError] = []
        self.flush()
        with self.step():
            found = self.slice(after, BATCH)
            for name, record in found:
                self._index_one(name, record, functions, failures)

        for failure in failures:
            self.report(failure)

        return found[-1][0] if found else None

    def _index_one(
        self,
        name: bytes,
        record: bytes,
        functions: Mapping[str, tuple[int, IndexFunction[KubeObject]]],
        failures: list[HandlerError],
    ) -> None:
        txn, databases = self._writing()
        _, obj = self.decode(name, record)
        before = self._records.unpack(self._records.head(record).values)
        live = {number for number, _ in self._written.values()}
        values: dict[int, Packed] = {
            number: packed for number, packed in before.items() if number in live
        }
        for index, (number, function) in functions.items():
            if number not in values:
                values[number] = _call(index, function, obj, obj, failures)

        self._reindex(name, before, values)
        packed = self._records.pack(values)
        record = self._records.with_values(record, packed)
        txn.put(name, record, db=databases.objects)

    def publish_stored(self, names: Iterable[str]) -> None:
        """Make stored indexes readable that are complete now."""
        self._complete.update(names)
        for name in names:
            self._functions.setdefault(name, self._written[name][1])

        if self._staged is None:
            with self._env.write():
                self._write_indexes()

    def publish_private(
        self,
        functions: Mapping[str, IndexFunction[KubeObject]],
        indexes: Mapping[str, Index[str]],
    ) -> None:
        """Make indexes in memory readable that are complete now."""
        for name, function in functions.items():
            if self._functions.setdefault(name, function) == function:
                self._private[name] = indexes[name]

    def is_complete(self, name: str) -> bool:
        """Return whether a writer has a complete index."""
        return name in self._complete

    def sweep(self) -> bool:
        """Remove some entries of indexes that are no longer written.

        Returns:
            True if there may be more.
        """
        live = {number for number, _ in self._written.values()}
        left = 4 * BATCH
        self.flush()
        with self.step():
            txn, databases = self._writing()
            with txn.cursor(databases.entries) as cursor:
                more = cursor.first()
                while more and left:
                    number = number_of(cursor.key())
                    if number in live:
                        more = cursor.set_range(entry_of(number + 1, ""))
                    else:
                        left -= 1
                        more = cursor.delete()

                return bool(more)

    def _begin_writing(self) -> None:
        """Decide which indexes are stored, and which ones are to be built."""
        with self._env.write():
            header = self._env.header
            self._generation = header.generation
            self._owners[header.generation] = self
            self._columns = Columns(self._databases().columns)
            empty = not self.count()
            for name, function in self._functions.items():
                if hasattr(function, "of_key"):
                    continue

                number, its_print = header.indexes.get(name, (0, ""))
                same = number and its_print == self._print(name, function)
                self._written[name] = (number if same else _new_number()), function
                if same or empty:
                    self._complete.add(name)

            self._write_indexes()

    def _write_indexes(self) -> None:
        header, prints = self._env.header, self._prints()
        if header.indexes != prints:
            self._env.set_header(msgspec.structs.replace(header, indexes=prints))

    def _prints(self) -> dict[str, tuple[int, str]]:
        """Return number and print of each complete index that is written, by name."""
        return {
            name: (number, self._print(name, function))
            for name, (number, function) in self._written.items()
            if name in self._complete
        }

    def _print(self, name: str, function: IndexFunction[KubeObject]) -> str:
        found = self._known_prints.get(name)
        if found is None:
            found = self._known_prints[name] = print_of(function)

        return found


def _new_number() -> int:
    return _choose(1, 2**31)


def _entries(values: Mapping[int, Packed]) -> set[bytes]:
    return {
        entry_of(number, value)
        for number, packed in values.items()
        for value in unpack_values(packed)
    }


def _call(
    name: str,
    function: IndexFunction[KubeObject],
    read: KubeObject,
    obj: KubeObject,
    failures: list[HandlerError],
) -> Packed:
    """Return the index values of an object; None and an error if its function fails."""
    try:
        packed = pack_values(function(read))
        if type(packed) is str:
            packed.encode()  # of an invalid text: an error of the function
    except user_errors() as exc:  # reported
        failures.append(failure_of(name, obj, exc))
        return None

    return packed
