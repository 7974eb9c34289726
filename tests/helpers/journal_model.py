"""A journal in LMDB, readers with snapshots held open, and what they must be told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import lmdb
import msgspec
from fake_source import thing

from aioinformer.cache.disk.header import Header
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.cached.journal import EntryKind, Journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = ["Abort", "JournalModel", "ModelReader", "SnapshotEnvironment"]


class Abort(Exception):
    """The writer dies in a transaction."""


class SnapshotEnvironment:
    """Environment in which several readers of one thread hold snapshots."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lmdb = lmdb.open(
            str(path), max_dbs=8, sync=False, map_size=2**28, max_readers=64
        )
        names = ("meta", "journal", "behind", "objects")
        self._databases = {it: self.lmdb.open_db(it.encode()) for it in names}
        self._current: Any = None
        self.held: dict[str, Any] = {}

    def close(self) -> None:
        for txn in self.held.values():
            txn.abort()

        self.lmdb.close()

    def database(self, name: str) -> Any:
        return self._databases[name]

    @contextlib.contextmanager
    def read(self) -> Iterator[Any]:
        if self._current is not None:
            yield self._current
            return

        with self.lmdb.begin() as txn, self.using(txn):
            yield txn

    @contextlib.contextmanager
    def write(self) -> Iterator[Any]:
        if self._current is not None:
            yield self._current
            return

        with self.lmdb.begin(write=True) as txn, self.using(txn):
            yield txn

    @contextlib.contextmanager
    def using(self, txn: Any) -> Iterator[None]:
        self._current = txn
        try:
            yield
        finally:
            self._current = None

    @property
    def header(self) -> Header:
        with self.read() as txn:
            data = txn.get(b"header", db=self.database("meta"))
            return msgspec.msgpack.decode(data, type=Header) if data else Header()

    def set_header(self, header: Header) -> None:
        data = msgspec.msgpack.encode(header)
        self._current.put(b"header", data, db=self.database("meta"))

    def processes_before(self, transaction: int) -> set[int]:
        return {
            int(name.partition("-")[0])
            for name, txn in self.held.items()
            if txn.id() < transaction
        }


class _Records:
    @staticmethod
    def encode(obj: KubeObject) -> bytes:
        return f"{obj.uid}@{obj.resource_version}".encode()


class ModelReader:
    """Reader that checks what it is told against what it was told before.

    Args:
        model: Model of the writer.
        number: Number of its process.
        limit: Number of entries that it reads at once.
    """

    def __init__(self, model: JournalModel, number: int, limit: int) -> None:
        self.name = f"{number}-1"
        self._model = model
        self._limit = limit
        self.position = -1
        self.told: dict[str, bytes] = {}
        # A list came, and its objects were not told yet.
        self._starting = False
        self.merges = 0

    @property
    def reads(self) -> bool:
        return self.name in self._model.env.held

    def begin(self) -> None:
        env = self._model.env
        env.held[self.name] = env.lmdb.begin()

    def act(self) -> bool:
        """Read in the snapshot, and end it; return True if nothing is left in it."""
        env = self._model.env
        txn = env.held[self.name]
        try:
            with env.using(txn):
                return self._act()
        finally:
            del env.held[self.name]
            txn.abort()

    def _act(self) -> bool:
        model = self._model
        header = model.env.header
        if self.position < 0:
            self.position = header.last
            self.told = model.stored()
            return True

        entries = model.journal.read(self.position, self._limit)
        if entries is None:
            behind = model.journal.behind(self.name, self.position)
            if behind is not None:
                self.position = behind.number
                self._merge(behind)

            return False

        for entry in entries:
            assert entry.number == self.position + 1
            self.position = entry.number
            if entry.kind >= EntryKind.LISTED:
                assert not self.told
                self._starting = True
            elif not self._starting:
                assert self.told.get(entry.key, b"") == entry.old
                self._set(entry.key, entry.new)

        if self.position == header.last and self._starting:
            self._starting = False
            self.told = model.stored()

        return self.position == header.last

    def _merge(self, behind: Any) -> None:
        self.merges += 1
        if self._starting:
            return  # what it has not told yet, it reads from the store

        for key, old in behind.known.items():
            assert self.told.get(key, b"") == old

        if behind.listed is not None:
            assert behind.known.keys() == self.told.keys()
            self.told = {}
            self._starting = True
            return

        now = self._model.history[behind.number]
        for key in self.told.keys() | now.keys():
            changed = self.told.get(key) != now.get(key)
            assert changed == (key in behind.known)

        self.told = dict(now)

    def _set(self, key: str, record: bytes) -> None:
        if record:
            self.told[key] = record
        else:
            del self.told[key]


class JournalModel:
    """Writer of a store and its journal, with its readers.

    Attributes:
        history: Objects after each entry, by its number.
    """

    def __init__(self, path: Path, *, entries: int, size: int = 2**20) -> None:
        self.env = SnapshotEnvironment(path)
        self._bounds = {"entries": entries, "size": size}
        self._objects = self.env.database("objects")
        self.readers: list[ModelReader] = []
        self._version = 0
        self._processes = 0
        self.history: dict[int, dict[str, bytes]] = {0: {}}
        self.now: dict[str, KubeObject] = {}
        self.journal = self.restarted()

    def close(self) -> None:
        self.env.close()

    def restarted(self) -> Journal:
        """Begin as a new writer."""
        self.journal = Journal(
            cast("Any", self.env), cast("Any", _Records()), **self._bounds
        )
        with self.env.write():
            self.journal.recover()

        return self.journal

    def stored(self) -> dict[str, bytes]:
        """Return the stored records, in a transaction."""
        with self.env.read() as txn:
            return {key.decode(): it for key, it in txn.cursor(self._objects)}

    def join(self, limit: int) -> ModelReader:
        self._processes += 1
        reader = ModelReader(self, self._processes, limit)
        self.readers.append(reader)
        return reader

    def leave(self, reader: ModelReader) -> None:
        """Let a reader die, perhaps while it reads."""
        self.readers.remove(reader)
        txn = self.env.held.pop(reader.name, None)
        if txn is not None:
            txn.abort()

    def positions(self) -> dict[str, int]:
        return {reader.name: reader.position for reader in self.readers}

    def change(self, keys: Iterable[str], *, dies: bool = False) -> None:
        """Create, update or delete objects, in one transaction."""
        now = dict(self.now)
        batch = [it for key in keys for it in self._changed(now, key)]
        with contextlib.suppress(Abort), self.env.write():
            self._write(batch)
            self.journal.append(batch)
            if dies:
                raise Abort

            self._note(batch, now)

        if dies:
            self.restarted()

    def relist(self, keys: Iterable[str], *, dies: bool = False) -> None:
        """Change objects by a list whose entries are staged first."""
        now = dict(self.now)
        batch = [it for key in keys for it in self._changed(now, key)]
        for event in batch:
            with self.env.write():
                self.journal.stage([event])

        if dies:
            self.restarted()
            return

        with self.env.write():
            self._write(batch)
            self.journal.append([])
            self._note(batch, now)

    def list_anew(self, keys: Iterable[str]) -> None:
        """Delete all objects, then fill the empty store by a list."""
        batch: list[Notification] = [Deleted(obj) for obj in self.now.values()]
        with self.env.write():
            self._write(batch)
            self.journal.append(batch)
            self._note(batch, {})

        now: dict[str, KubeObject] = {}
        batch = [it for key in dict.fromkeys(keys) for it in self._changed(now, key)]
        with self.env.write():
            self._write(batch)
            self.journal.append_listed(first=False)
            number = self.env.header.last
            self.now = now
            self.history[number] = self.stored()

    def trim(self) -> bool:
        with self.env.write():
            return self.journal.trim(self.positions)

    def _changed(self, now: dict[str, KubeObject], key: str) -> Iterator[Notification]:
        self._version += 1
        old = now.get(key)
        if old is None:
            now[key] = new = thing(key, self._version, f"uid-{self._version}")
            yield Added(new)
        elif self._version % 3 == 0:
            del now[key]
            yield Deleted(old, self._version % 2 == 0)
        else:
            now[key] = new = thing(key, self._version, old.uid)
            yield Updated(old, new)

    def _write(self, batch: list[Notification]) -> None:
        with self.env.write() as txn:
            for event in batch:
                match event:
                    case Added(new) | Updated(_, new):
                        record = _Records.encode(new)
                        txn.put(new.key.encode(), record, db=self._objects)
                    case Deleted(old):
                        txn.delete(old.key.encode(), db=self._objects)

    def _note(self, batch: list[Notification], now: dict[str, KubeObject]) -> None:
        """Record the objects after each entry."""
        before = self.env.header.last - len(batch)
        state = dict(self.history[before])
        for number, event in enumerate(batch, before + 1):
            match event:
                case Added(new) | Updated(_, new):
                    state[new.key] = _Records.encode(new)
                case Deleted(old):
                    del state[old.key]

            self.history[number] = dict(state)

        self.now = now
