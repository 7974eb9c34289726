"""A follower on a store without a disk, and the writer of that store."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
from informer_helpers import Stage, settle
from pipeline_helpers import View

from aioinformer.cache.disk.header import Header, WriterState
from aioinformer.errors import CacheError
from aioinformer.informer.cached.follower import Follower
from aioinformer.informer.cached.journal import Behind, Entry, EntryKind
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of
from aioinformer.informer.store.waiters import StoreWaiters
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from informer_helpers import Handler

    from aioinformer.informer.handlers.listener import Listener
    from aioinformer.informer.notifications import Notification

KINDS = {Added: EntryKind.ADDED, Updated: EntryKind.UPDATED}


class Env:
    """Environment, which also decodes records."""

    path = "/cache"

    def __init__(self) -> None:
        self.header = Header()
        self.writer_state = WriterState()
        self.failure: Exception | None = None
        self.decoded = 0
        self.reads = 0

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        self.reads += 1
        yield

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def decode(self, key: str, record: bytes) -> KubeObject:
        self.decoded += 1
        obj = KubeObject.of(json.loads(record))
        assert obj.key == key
        return obj


class Journal:
    """Journal, which the writer trims only when a test says so."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.entries: list[Entry] = []
        self.lost: dict[str, Behind] = {}
        self.writing = False
        """True while the writer writes what a reader has lost."""

    def append(self, kind: EntryKind, key: str, old: bytes, new: bytes) -> None:
        header = self._env.header
        number = header.last + 1
        self._env.header = msgspec.structs.replace(header, last=number)
        self.entries.append(Entry(number, kind, key, old, new))

    def read(self, after: int, limit: int = 500) -> list[Entry] | None:
        start = after + 1 - self._env.header.first
        return None if start < 0 else self.entries[start : start + limit]

    def behind(self, reader: str, after: int) -> Behind | None:
        return None if self.writing else self.lost[reader]

    def trim(self, slot: Slot, first: int) -> None:
        """Remove the entries before a number; keep the difference for a reader."""
        header = self._env.header
        position = slot.position
        known: dict[str, bytes] = {}
        listed = None
        if position + 1 < header.first:
            known = dict(self.lost[slot.name].known)
            listed = self.lost[slot.name].listed

        self._env.header = msgspec.structs.replace(header, first=first)
        while self.entries and self.entries[0].number < first:
            entry = self.entries.pop(0)
            if entry.number <= position:
                continue

            if entry.kind >= EntryKind.LISTED:
                listed = entry.kind
                known = {key: record for key, record in known.items() if record}
            elif listed is None:
                known.setdefault(entry.key, entry.old)

        if position + 1 < first:
            self.lost[slot.name] = Behind(first - 1, known, listed)


class Contents:
    """Stored objects, and an index that only this process has."""

    def __init__(self) -> None:
        self.objects: dict[str, KubeObject] = {}
        self.private = False
        self.missing: dict[str, object] = {}
        self.indexed = View()

    def after(self, key: str, limit: int) -> list[KubeObject]:
        keys = sorted(it for it in self.objects if it > key)
        return [self.objects[it] for it in keys[:limit]]

    def listed(self) -> None:
        self.indexed.objects.clear()

    def followed(self) -> None:
        self.missing.clear()

    def follow(
        self, changes: Iterable[tuple[KubeObject | None, KubeObject | None]]
    ) -> None:
        for old, new in changes:
            if old is None:
                assert new is not None
                self.indexed(Added(new))
            elif new is None:
                self.indexed(Deleted(old))
            else:
                self.indexed(Updated(old, new))


class Slot:
    """Place of a follower among the readers."""

    name = "1-1"

    def __init__(self) -> None:
        self.position = 0
        self.wake: Callable[[], None] = lambda: None

    def start(self, on_wake: Callable[[], None]) -> None:
        self.wake = on_wake


class Followed:
    """A follower, its store, and the writer of that store."""

    def __init__(self, *objects: KubeObject) -> None:
        self.env = Env()
        self.journal = Journal(self.env)
        self.contents = Contents()
        self.slot = Slot()
        self.processor = Stage()
        self.waiters = StoreWaiters()
        self.changes = 0
        self.view: Callable[[Notification], None]
        if objects:
            self.contents.objects = {obj.key: obj for obj in objects}
            self._replace(listed=True, version="100")

        self.follower = self.open()

    def open(self) -> Follower:
        make: Any = Follower  # of parts that only look like those on disk
        follower: Follower = make(
            self.env,
            self.env,
            self.journal,
            self.contents,
            self.slot,
            self.processor,
            self.waiters,
            self._changed,
            name="pods",
        )
        self.follower = follower
        return follower

    def _changed(self) -> None:
        self.changes += 1

    def _replace(self, **fields: Any) -> None:
        self.env.header = msgspec.structs.replace(self.env.header, **fields)

    # ------------------------------------------------------------ the writer

    def confirm(self, **fields: Any) -> None:
        """Write the state of a writer that knows the store to be right."""
        self.state(confirmed=True, **fields)

    def state(self, **fields: Any) -> None:
        now = asyncio.get_running_loop().time()
        state = self.env.writer_state
        fields = {"pid": 123, "heartbeat": now} | fields
        self.env.writer_state = msgspec.structs.replace(state, **fields)
        self.slot.wake()

    def put(self, *objects: KubeObject) -> None:
        """Store objects, each as one change."""
        for obj in objects:
            old = self.contents.objects.get(obj.key)
            self.contents.objects[obj.key] = obj
            if old is None:
                self.journal.append(EntryKind.ADDED, obj.key, b"", obj.raw)
            elif old.uid == obj.uid:
                self.journal.append(EntryKind.UPDATED, obj.key, old.raw, obj.raw)
            else:
                missed = EntryKind.MISSED_DELETION
                self.journal.append(missed, obj.key, old.raw, b"")
                self.journal.append(EntryKind.ADDED, obj.key, b"", obj.raw)

        self.wrote()

    def delete(self, *keys: str, missed: bool = False) -> None:
        for key in keys:
            old = self.contents.objects.pop(key)
            kind = EntryKind.MISSED_DELETION if missed else EntryKind.DELETED
            self.journal.append(kind, key, old.raw, b"")

        self.wrote()

    def list_into_empty(self, *objects: KubeObject, first: bool = False) -> None:
        """Write a list into the empty store."""
        assert not self.contents.objects
        self.contents.objects = {obj.key: obj for obj in objects}
        kind = EntryKind.FIRST_LISTED if first else EntryKind.LISTED
        self.journal.append(kind, "", b"", b"")
        self._replace(listed=True, generation=1 - self.env.header.generation)
        self.wrote()

    def wrote(self, version: str = "") -> None:
        """End a step of the writer: wake the follower."""
        number = int(self.env.header.version or 0) + 1
        self._replace(version=version or str(number))
        self.slot.wake()

    def trim(self, first: int) -> None:
        self.journal.trim(self.slot, first)

    # ------------------------------------------------------------ handlers

    def listen(self, handler: Handler, **options: Any) -> Listener:
        """Add a handler, as an informer does."""
        listener = self.processor.listen(handler, **options)
        self.follower.add(listener)
        return listener

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the follower and the handlers during the block."""
        tasks = [
            asyncio.create_task(self.processor.run()),
            asyncio.create_task(self.follower.run()),
        ]
        try:
            await settle()
            yield
            await settle()
        finally:
            for task in tasks:
                task.cancel()

            await asyncio.wait(tasks)

        for task in tasks:
            if not task.cancelled():
                task.result()

    @property
    def states(self) -> dict[str, str]:
        return {key: obj.resource_version for key, obj in self.contents.objects.items()}


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


async def eventually(condition: Callable[[], bool]) -> None:
    """Let time pass until a condition is true."""
    for _ in range(200):
        if condition():
            return

        await asyncio.sleep(0.01)

    raise CacheError("the condition never became true")
