"""A follower of a store on disk, and the writer of that store."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from informer_helpers import Stage

from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import Header
from aioinformer.cache.disk.readers import Readers, ReaderSlot
from aioinformer.cache.disk.records import Records
from aioinformer.informer.cached.follower import Follower
from aioinformer.informer.cached.journal import Journal
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of
from aioinformer.informer.store.waiters import StoreWaiters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from informer_helpers import Handler

    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject


async def settle() -> None:
    """Let every task run until it waits; wake-ups of followers take 5 ms."""
    await asyncio.sleep(0.02)


class Counted:
    """Calls of a function, counted."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self._function(*args)


class Followed:
    """A follower of a store on disk, and the writer of that store.

    Args:
        path: Directory of the store.
        objects: Objects of the first list; none for a store without a list.
        private: True if the process of the follower has an index that is not stored.
        stored: True if it has one that is stored.
    """

    def __init__(
        self,
        path: Path,
        *objects: KubeObject,
        private: bool = False,
        stored: bool = False,
    ) -> None:
        self.env = Environment.open(path)
        assert self.env.acquire(self)
        records = Records(self.env)
        self.journal = Journal(self.env, records)
        self._indexes: dict[str, Any] = (
            {"version": by_version} if private or stored else {}
        )
        self.begin_writing(self._indexes if stored else {})
        self.readers = Readers(path / "readers")
        self.objects: dict[str, KubeObject] = {}
        """Stored objects by key."""
        self._version = 100
        self._trimmed = 0
        if objects:
            with self.env.write():
                self._store_list(objects)

        # As in another process.
        records = Records(self.env)
        self.decode = Counted(records.decode)
        records.decode = self.decode  # type: ignore[method-assign, assignment]
        self.followed = DiskContents(self.env, records, self._indexes, ignored)
        self.processor = Stage()
        self.waiters = StoreWaiters()
        self.changes = 0
        self.slot = ReaderSlot(path / "readers")
        self.follower = Follower(
            self.env,
            records,
            Journal(self.env, records),
            self.followed,
            self.slot,
            self.processor,
            self.waiters,
            self._changed,
            claims=Header(),
            name="pods",
        )

    def close(self) -> None:
        self.slot.close()
        self.readers.close()
        self.env.close()

    def _changed(self) -> None:
        self.changes += 1

    # ------------------------------------------------------------ the writer

    def begin_writing(self, indexes: dict[str, Any]) -> None:
        """Take over from another writer, which may have had other indexes."""
        records = Records(self.env)
        self.contents = DiskContents(self.env, records, indexes, ignored, writer=True)

    def confirm(self, **fields: Any) -> None:
        """Write the state of a writer that knows the store to be right."""
        self.state(confirmed=True, **fields)

    def state(self, **fields: Any) -> None:
        now = asyncio.get_running_loop().time()
        fields = {"pid": 123, "epoch": 1, "heartbeat": now} | fields
        state = msgspec.structs.replace(self.env.writer_state, **fields)
        with self.env.write():
            self.env.set_writer_state(state)

        self.readers.wake()

    def write(self, *changes: Notification, version: int = 0) -> None:
        """Write changes, in one transaction."""
        self._version = version or self._version + 1
        with self.env.write(), self.contents.step():
            for event in changes:
                obj = object_of(event)
                if isinstance(event, Deleted):
                    del self.objects[obj.key]
                    self.contents.remove(obj.key)
                else:
                    self.objects[obj.key] = obj
                    self.contents.put(obj.key, obj)

            self.journal.append(changes)
            self.contents.resource_version = str(self._version)

        self.readers.wake()

    def put(self, *objects: KubeObject) -> None:
        """Store some objects, all of them new or with new states."""
        changes: list[Notification] = []
        new: dict[str, KubeObject] = {}
        for obj in objects:
            old = new.get(obj.key) or self.objects.get(obj.key)
            new[obj.key] = obj
            if old is None:
                changes.append(Added(obj))
            elif old.uid == obj.uid:
                changes.append(Updated(old, obj))
            else:
                changes += [Deleted(old, True), Added(obj)]

        self.write(*changes)

    def delete(self, *keys: str, missed: bool = False) -> None:
        self.write(*(Deleted(self.objects[key], missed) for key in keys))

    def list_into_empty(self, *objects: KubeObject, first: bool = False) -> None:
        """Write a list into the empty store."""
        assert not self.objects
        with self.env.write():
            self._store_list(objects)
            self.journal.append_listed(first=first)

        self.readers.wake()

    def _store_list(self, objects: Iterable[KubeObject]) -> None:
        replacement = self.contents.replacement()
        for obj in objects:
            self.objects[obj.key] = obj
            replacement.put(obj.key, obj)

        self._version += 1
        version = str(self._version)
        self.contents = self.contents.replace_with(replacement, version)

    def raise_first(self, first: int) -> None:
        """Begin to trim the journal, up to an entry: followers before it wait."""
        kept = self.env.header.last + 1 - first
        self._trimming = Journal(self.env, Records(self.env), entries=kept)
        self._trimming.trim(self.readers.positions)

    def trim(self, first: int) -> None:
        """Trim the journal, up to an entry."""
        self.raise_first(first)
        self.finish_trim()

    def finish_trim(self) -> None:
        """Remove the trimmed entries; followers get the difference."""
        while self._trimming.trim(self.readers.positions):
            pass

        self.readers.wake()

    # ------------------------------------------------------------ handlers

    def listen(self, handler: Handler, **options: Any) -> Listener:
        """Add a handler, as an informer does."""
        listener = self.processor.listen(handler, **options)
        self.follower.add(listener)
        return listener

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the follower and the handlers during the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.processor.run()),
                group.create_task(self.follower.run()),
            ]
            await settle()
            yield
            await settle()
            for task in tasks:
                task.cancel()

    @property
    def states(self) -> dict[str, str]:
        """Versions of the stored objects by key."""
        return {key: obj.resource_version for key, obj in self.objects.items()}

    @property
    def indexed(self) -> dict[str, str]:
        """Versions of the objects by key, by the index of this process."""
        index = self.followed.indexes["version"]
        return {key: value for value in index.values() for key in index.keys_of(value)}


def kinds(events: list[Notification]) -> list[str]:
    """Return the kind, name and version of events, in short."""
    texts = []
    for event in events:
        obj = object_of(event)
        more = ""
        match event:
            case Added(initial=True):
                more = " initial"
            case Updated(resync=True):
                more = " resync"
            case Deleted(final_state_unknown=True):
                more = " missed"
            case _:
                pass

        kind = type(event).__name__.lower()
        texts.append(f"{kind} {obj.name}@{obj.resource_version}{more}")

    return texts


def by_version(obj: KubeObject) -> str:
    """Return the value of an object in an index of the process."""
    return obj.resource_version


def ignored(failure: HandlerError) -> None:
    raise AssertionError(failure)
