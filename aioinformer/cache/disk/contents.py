"""`DiskContents`: objects and indexes in LMDB, as `Contents` are in memory."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import islice
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aioinformer.cache.disk.building import StoredBuilding
from aioinformer.cache.disk.generation import Generation
from aioinformer.cache.disk.indexes import (
    DiskIndex,
    Namespaces,
    PrivateEntries,
    StoredEntries,
)
from aioinformer.cache.disk.objects import SLICE, Objects
from aioinformer.cache.disk.prints import print_of
from aioinformer.cache.disk.private import (
    PrivateBuilding,
    PrivateIndexes,
    Walk,
    private_index,
    put,
    values_of,
)
from aioinformer.cache.disk.records import LONGEST_NAME, key_of, name_of
from aioinformer.cache.disk.staged import BATCH, StagedObjects
from aioinformer.cache.index import index_by_label
from aioinformer.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.indexes import Entries
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.index import Index, IndexFunction, Packed
    from aioinformer.cache.interface import Building, Contents
    from aioinformer.errors import CacheError, HandlerError
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.selectors import LabelSelector

__all__ = ["DiskContents"]

_SMALL_NAMESPACE: Final = 2000
"""Objects of a namespace whose records are searched. In a larger one, all label columns
are."""

_new_number: Final = partial(SystemRandom().randrange, 1, 2**31)


class _Shared(NamedTuple):
    """State that contents share with their replacements."""

    generations: tuple[Generation, Generation]
    owners: list[DiskContents | None]
    """Contents that each generation belongs to."""


class DiskContents:
    """One generation of objects in an environment, with indexes and label columns.

    Fulfils the protocol `Contents` (aioinformer/cache/interface.py). Every read is a
    transaction of its own, or joins that of `Environment.read()`. Each read of an object
    returns a new `KubeObject`.

    A list is written into the other generation, in transactions of `BATCH` objects,
    which is not read before `replace_with()`. There is room for one such list: the next
    `replacement()` empties it.

    Args:
        env: Environment.
        records: Encoder and decoder of its records.
        functions: Index functions by name. For a reader, those whose print the header
            has are read from LMDB; it keeps the others in memory, as keys only. For a
            writer, see `missing`.
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
        self._shared = _Shared(
            (Generation(env, records, 0), Generation(env, records, 1)), [None, None]
        )
        self.objects: Objects = Objects(self)
        """Objects by key."""
        self._prints: dict[str, str] = {}
        # Number of the generation that a writer writes; None for a reader, which reads
        # the current one.
        self._number: int | None = None
        # Number and function of each index that is written, by name.
        self._written: dict[str, tuple[int, IndexFunction[KubeObject]]] = {}
        # Names of those that have all objects.
        self._complete: set[str] = set()
        self._private = PrivateIndexes(report)
        # Indexes of one snapshot by name, with the number of its transaction.
        self._scans: dict[str, tuple[int, Index[str]]] = {}
        self.growing: list[StoredBuilding] = []
        """Indexes that a writer builds."""
        # Objects of a list; None for current contents.
        self._staged: StagedObjects | None = None
        # True if a writer has not written any object yet. A first list asks for each
        # of its objects.
        self._is_empty = False
        # Transaction of the current step.
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
            return self._staged.version

        return self._env.header.version

    @resource_version.setter
    def resource_version(self, version: str) -> None:
        if self._staged is not None:
            self._staged.version = version
        else:
            with self._env.write():
                self._set_header(version=version)

    @property
    def indexes(self) -> Mapping[str, DiskIndex]:
        """Indexes by name; those of a writer are stored and complete.

        A reader may have one that is neither stored nor kept in memory yet. Each read of
        it reads all objects.
        """
        numbers = self._numbers()
        return {
            name: DiskIndex(
                self,
                function,
                partial(self._entries, name, function),
                numbers.get(name, 0),
            )
            for name, function in list(self._functions.items())
            if self._number is None or name in numbers or _by_key(function)
        }

    @property
    def functions(self) -> dict[str, IndexFunction[KubeObject]]:
        """Index functions by name, in a new dict; read without the store."""
        return dict(self._functions)

    @property
    def missing(self) -> dict[str, IndexFunction[KubeObject]]:
        """Index functions whose indexes are neither stored nor kept in memory.

        A new writer, and the follower of a reader, pass them to `build()`.
        """
        numbers = self._numbers()
        return {
            name: function
            for name, function in list(self._functions.items())
            if not (
                name in numbers or name in self._private.complete or _by_key(function)
            )
        }

    def select(
        self, selector: LabelSelector, namespace: str | None, limit: int | None
    ) -> list[KubeObject]:
        """Return the objects of a namespace, or all for None, whose labels match.

        They are one snapshot. All objects of a large collection take a second for each
        100,000, which block the event loop.
        """
        with self.reading():
            if selector.empty:
                found = self._in_namespace(namespace)
            else:
                found = self._matching(selector, namespace)

            return list(islice(found, limit))

    def by_index(self, name: str, value: str, namespace: str) -> list[KubeObject]:
        """Return the objects of a namespace that have a value in an index."""
        return self.indexes[name].objects_of(value, namespace)

    def reading(self) -> AbstractContextManager[Any]:
        """Make the reads in a block one snapshot, in the thread of the block.

        Do not wait in it: the file grows meanwhile.
        """
        self.flush()
        return self._env.read()

    def after(self, key: str, limit: int) -> list[KubeObject]:
        """Return the next objects after a key, in the order of keys; "" for the first."""
        with self.reading():
            generation = self.generation
            found = generation.slice(name_of(key) if key else None, limit)
            return [generation.decode(*it)[1] for it in found]

    def _in_namespace(self, namespace: str | None) -> Iterator[KubeObject]:
        if namespace is None:
            return (obj for _, obj in self.pairs())

        return (obj for _, obj in self.of_names(Namespaces(self).names(namespace)))

    def _matching(
        self, selector: LabelSelector, namespace: str | None
    ) -> Iterator[KubeObject]:
        names = self._labelled(selector)
        if names is None and namespace:
            names = Namespaces(self).names(namespace, _SMALL_NAMESPACE)
            if len(names) == _SMALL_NAMESPACE:
                names = None

        if names is None:
            with self._env.read() as txn:
                names = self.generation.columns.search(txn, selector, namespace)

            for _, obj in self.of_names(names):
                yield obj

            return

        for _, obj in self.of_names(names):
            if selector.matches(obj) and namespace in {None, obj.namespace}:
                yield obj

    def _labelled(self, selector: LabelSelector) -> list[bytes] | None:
        """Return the names for a required label with an index; None if none has one."""
        best: tuple[int, StoredEntries, tuple[str, ...]] | None = None
        for it in selector.requirements:
            if it.operator not in {"=", "in"}:
                continue

            function = index_by_label(it.key)
            for name, number in self._numbers().items():
                if self._functions[name] == function:
                    entries = StoredEntries(self, number)
                    count = sum(map(entries.count, it.values))
                    if best is None or count < best[0]:
                        best = count, entries, it.values

        if best is None:
            return None

        _, entries, values = best
        return [name for value in values for name in entries.names(value)]

    def _numbers(self) -> dict[str, int]:
        """Return the numbers of the stored indexes that are complete, by name."""
        if self._number is not None:
            return {
                name: self._written[name][0]
                for name in list(self._functions)
                if name in self._complete
            }

        stored = self._env.header.indexes
        found = {}
        for name, function in list(self._functions.items()):
            number, its_print = stored.get(name, (0, ""))
            if number and its_print == self._print(name, function):
                found[name] = number

        return found

    def _entries(self, name: str, function: IndexFunction[KubeObject]) -> Entries:
        """Return the entries of an index, in the transaction that reads them."""
        if _by_key(function):
            return Namespaces(self)

        number = self._numbers().get(name)
        if number is not None:
            return StoredEntries(self, number)

        private = self._private.complete.get(name)
        if private is not None:
            return PrivateEntries(private)

        return self._scanned(name, function)

    def _scanned(
        self, name: str, function: IndexFunction[KubeObject]
    ) -> PrivateEntries:
        """Index all objects; read again once the store has changed."""
        with self._env.read() as txn:
            snapshot = -1 if self._env.in_write else txn.id()
            known, index = self._scans.get(name, (-1, private_index()))
            if known == snapshot >= 0:
                return PrivateEntries(index)

            index = private_index()
            for key, obj in self.pairs():
                put(name, function, index, key, obj, _reported_before)

        self._scans[name] = snapshot, index
        return PrivateEntries(index)

    def _print(self, name: str, function: IndexFunction[KubeObject]) -> str:
        found = self._prints.get(name)
        if found is None:
            found = self._prints[name] = print_of(function)

        return found

    # ------------------------------------------------------------ for views of it

    @property
    def generation(self) -> Generation:
        """Generation that it reads, in the current transaction."""
        number = self._number
        if number is None:
            return self._shared.generations[self._env.header.generation]

        if self._shared.owners[number] is not self:
            raise InternalError(
                f"{self._env.path}: read or write of objects that were released"
            )

        return self._shared.generations[number]

    def count(self) -> int:
        """Return the number of objects."""
        with self.reading():
            return self.generation.count()

    def get(self, key: str) -> KubeObject | None:
        """Return the object under a key, or None."""
        name = name_of(key)
        if self._staged is not None:
            staged = self._staged.waiting.get(key)
            if staged is not None or self._staged.is_unwritten(name):
                return None if staged is None else staged.obj

        elif self._is_empty:
            return None

        with self._env.read():
            record = self.generation.record(name)
            return None if record is None else self._records.decode(key, record)

    def has(self, key: str) -> bool:
        """Return whether there is an object under a key."""
        name = name_of(key)
        if self._staged is not None:
            waits = key in self._staged.waiting
            if waits or self._staged.is_unwritten(name):
                return waits

        with self._env.read(), self.generation.names() as cursor:
            return bool(cursor.set_key(name))

    def slice(self, after: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
        """Return the next names and records after a name; None for the first."""
        with self.reading():
            return self.generation.slice(after, size)

    def decode(self, name: bytes, record: bytes) -> tuple[str, KubeObject]:
        """Return the key and object of a record."""
        key = key_of(name, record)
        return key, self._records.decode(key, record)

    def pairs(self) -> Iterator[tuple[str, KubeObject]]:
        """Yield all keys and objects; each `SLICE` of them is a transaction."""
        after: bytes | None = None
        while found := self.slice(after, SLICE):
            for name, record in found:
                yield self.decode(name, record)

            after = found[-1][0]

    def keys(self) -> Iterator[str]:
        """Yield all keys; each `SLICE` of them is a transaction."""
        start = b""
        while True:
            with self.reading(), self.generation.names() as cursor:
                found = cursor.set_range(start) if start else cursor.first()
                rest = cursor.iternext(values=False) if found else ()
                names = list(islice(rest, SLICE))
                keys = self.keys_of(names)

            yield from keys
            if len(names) < SLICE:
                return

            start = names[-1] + b"\0"

    def of_names(self, names: Iterable[bytes]) -> Iterator[tuple[str, KubeObject]]:
        """Yield the keys and objects of some names, in a transaction."""
        rest = iter(names)
        with self._env.read(), self.generation.names() as cursor:
            while some := list(islice(rest, SLICE)):
                for name, record in cursor.getmulti(some):
                    yield self.decode(name, record)

    def keys_of(self, names: list[bytes]) -> list[str]:
        """Return the keys of some names, in a transaction."""
        if not any(len(it) > LONGEST_NAME for it in names):
            return [key_of(it, b"") for it in names]

        with self.generation.names() as cursor:
            return [key_of(*it) for it in cursor.getmulti(names)]

    def values_of(self, key: str) -> Mapping[int, Packed]:
        """Return the stored index values of an object, by number of the index."""
        if self._staged is not None:
            staged = self._staged.waiting.get(key)
            if staged is not None:
                return staged.values

        with self._env.read():
            return self.generation.values(name_of(key))

    def damaged(self, what: str, why: object) -> CacheError:
        """Return the error for damaged data, see `Environment.damaged`."""
        return self._env.damaged(what, why)

    # ------------------------------------------------------------ writes, one loop

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the writes in a block one step: readers see all of them, or none."""
        if self._transaction is not None:
            yield
            return

        generation = self.generation
        try:
            with self._env.write() as txn:
                self._transaction = txn
                yield
                generation.columns.flush(txn)
                if self._env.header.generation == self._number:
                    self._set_header(count=generation.count())
        finally:
            self._transaction = None
            generation.columns.forget()

    def _set_header(self, **changes: Any) -> None:
        """Change fields of the header, in a write transaction."""
        header = self._env.header
        changed = msgspec.structs.replace(header, **changes)
        if changed != header:
            self._env.set_header(changed)

    def put(self, key: str, obj: KubeObject, equal: KubeObject | None = None) -> None:
        """Add or replace one object; `equal` is cheaper to read for index functions.

        An object whose index function fails is stored, and absent from that index.
        """
        self._put(key, obj, obj if equal is None else equal, {})

    def keep(self, key: str, obj: KubeObject, source: Contents[KubeObject]) -> None:
        """Take an object from `source`, with its index values there.

        The object may be stored in another form than there: compressed. `source` may be
        these contents themselves.
        """
        known: dict[int, Packed] = {}
        if isinstance(source, DiskContents):
            stored = source.values_of(key)
            known = {number: stored.get(number) for number in source.complete_numbers()}

        self._put(key, obj, obj, known)

    def complete_numbers(self) -> list[int]:
        """Return the numbers of the indexes that have all objects."""
        return [self._written[name][0] for name in self._complete]

    def _put(
        self, key: str, obj: KubeObject, read: KubeObject, known: dict[int, Packed]
    ) -> None:
        failures: list[HandlerError] = []
        values: dict[int, Packed] = {}
        for name, (number, function) in self._written.items():
            if number in known:
                packed = known[number]
            else:
                packed = values_of(name, function, read, obj, failures)

            if packed is not None:
                values[number] = packed

        self._is_empty = False
        staged = self._staged
        if staged is not None:
            staged.put(key, obj, values)
            if staged.full:
                self.flush()

        elif self._transaction is not None:
            self.generation.write(self._transaction, key, obj, values)

        else:
            with self.step() as _, self._env.write() as txn:
                self.generation.write(txn, key, obj, values)

        for failure in failures:
            self.report(failure)

    def remove(self, key: str) -> KubeObject | None:
        """Remove one object; return it, or None if there was none."""
        old = self.get(key)
        if old is None:
            return None

        if self._staged is not None:
            self._staged.waiting.pop(key, None)

        with self.step(), self._env.write() as txn:
            self.generation.remove(txn, key)

        return old

    def flush(self) -> None:
        """Write the objects that are staged."""
        staged = self._staged
        if staged is not None and staged.waiting:
            with self.step(), self._env.write() as txn:
                staged.write(txn, self.generation)

            staged.written()

    def replacement(self) -> DiskContents:
        """Return empty contents with the same indexes, to replace these in one step.

        The ones that were returned before are invalid from then on.
        """
        assert self._number is not None, "only a writer writes"
        made = DiskContents(self._env, self._records, self._functions, self.report)
        made.stage(self._shared, 1 - self._number, self._written)
        return made

    def stage(
        self,
        shared: _Shared,
        number: int,
        written: Mapping[str, tuple[int, IndexFunction[KubeObject]]],
    ) -> None:
        """Become the replacement of other contents."""
        self._shared = shared
        self._number = number
        self._written = dict(written)
        self._complete = set(written)
        self._staged = StagedObjects()
        shared.owners[number] = self
        self.generation.clear()

    def replace_with(
        self, replacement: Contents[KubeObject], resource_version: str
    ) -> DiskContents:
        """Return the contents to read from now on; called in a step.

        These contents are still readable until `release()`.
        """
        assert isinstance(replacement, DiskContents)
        with self.step():
            replacement.become_current(resource_version)

        self.growing, growing = [], self.growing
        for it in growing:
            it.begin(replacement)

        return replacement

    def become_current(self, resource_version: str) -> None:
        """End the staging, in a write transaction."""
        self.flush()
        self._set_header(
            generation=self._number,
            listed=True,
            version=resource_version,
            count=self.generation.count(),
            indexes=self._stored_indexes(),
        )
        self._staged = None

    async def release(self) -> None:
        """Free contents that were replaced or given up. It takes two milliseconds."""
        number = self._number
        if number is None or self._shared.owners[number] is not self:
            return

        if self._staged is not None or number != self._env.header.generation:
            self._staged = None
            self.generation.clear()
            self._shared.owners[number] = None

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
            known: Not used: reading its values costs as much as the function.
        """
        if self._number is None:
            return PrivateBuilding(self, self._private, functions)

        return StoredBuilding(self, functions)

    @property
    def private(self) -> bool:
        """True if some indexes are kept in memory, so that `follow()` must be called."""
        return self._private.active

    def follow(
        self, changes: Iterable[tuple[KubeObject | None, KubeObject | None]]
    ) -> None:
        """Update the indexes that are kept in memory, by old and new states; for readers.

        None stands for no object. Indexes that are being built take the changes, too.
        """
        stored = self._numbers()
        self._private.keep_only(self._functions.keys() - stored.keys())
        self._private.follow(self._functions, changes)

    def walk(self, put: Callable[[str, KubeObject | None], None]) -> Walk:
        """Begin to pass each object to a function, and each change after it; for readers.

        The changes come from `follow()`.
        """
        return Walk(self, self._private.walks, put)

    def listed(self) -> None:
        """Drop the indexes in memory: a list came into the empty store.

        Those that are being built begin again.
        """
        self._private.listed()

    def begin_indexes(self, functions: Mapping[str, IndexFunction[KubeObject]]) -> None:
        """Index each object that is written by these functions, too; for a writer."""
        for name, function in functions.items():
            if name not in self._written and not _by_key(function):
                self._written[name] = _new_number(), function

    def index_some(self, after: bytes | None, names: Iterable[str]) -> bytes | None:
        """Index the next objects by some functions; return the last name, or None."""
        functions = {name: self._written[name] for name in names}
        live = self._live()
        failures: list[HandlerError] = []
        self.flush()
        with self.step(), self._env.write() as txn:
            generation = self.generation
            found = generation.slice(after, BATCH)
            for name, record in found:
                _, obj = generation.decode(name, record)
                stored = generation.values(name)
                values: dict[int, Packed] = {
                    number: it for number, it in stored.items() if number in live
                }
                for index, (number, function) in functions.items():
                    if number not in values:
                        values[number] = values_of(index, function, obj, obj, failures)

                generation.replace_values(txn, name, values)

        for failure in failures:
            self.report(failure)

        return found[-1][0] if found else None

    def sweep(self) -> bool:
        """Remove some entries of indexes that are no longer written.

        Returns:
            True if there may be more.
        """
        with self.step(), self._env.write() as txn:
            return self.generation.sweep(txn, self._live(), 4 * BATCH)

    def _live(self) -> set[int]:
        return {number for number, _ in self._written.values()}

    def is_complete(self, name: str) -> bool:
        """Return whether a writer has a complete index."""
        return name in self._complete or name not in self._written

    def publish_stored(
        self, functions: Mapping[str, IndexFunction[KubeObject]]
    ) -> None:
        """Make stored indexes readable that are complete now."""
        for name, function in functions.items():
            self._functions.setdefault(name, function)
            if name in self._written:
                self._complete.add(name)

        if self._staged is None:
            with self._env.write():
                self._set_header(indexes=self._stored_indexes())

    def publish_private(
        self,
        functions: Mapping[str, IndexFunction[KubeObject]],
        indexes: Mapping[str, Index[str]],
    ) -> None:
        """Make indexes in memory readable that are complete now."""
        for name, function in functions.items():
            if self._functions.setdefault(name, function) == function:
                self._private.complete[name] = indexes[name]
                self._scans.pop(name, None)

    def _begin_writing(self) -> None:
        """Decide which indexes are stored, and which ones are to be built."""
        with self._env.write():
            header = self._env.header
            self._number = header.generation
            self._shared.owners[header.generation] = self
            empty = self._is_empty = not self.generation.count()
            for name, function in self._functions.items():
                if not _by_key(function):
                    number, its_print = header.indexes.get(name, (0, ""))
                    same = bool(number) and its_print == self._print(name, function)
                    self._written[name] = (number if same else _new_number()), function
                    if same or empty:
                        self._complete.add(name)

            self._set_header(indexes=self._stored_indexes())
            unfinished = self._shared.generations[1 - header.generation]
            if unfinished.count():  # a list that the last writer did not end
                unfinished.clear()

    def _stored_indexes(self) -> dict[str, tuple[int, str]]:
        """Return number and print of each complete index that is written, by name."""
        return {
            name: (number, self._print(name, function))
            for name, (number, function) in self._written.items()
            if name in self._complete
        }


def _by_key(function: IndexFunction[KubeObject]) -> bool:
    """Return True for the index by namespace, which is not stored."""
    return hasattr(function, "of_key")


def _reported_before(failure: HandlerError) -> None:
    """Ignore an error of an index function: whoever indexed the object reported it."""
