"""One of several processes with a shared cache, whose handler checks the guarantees.

It reports on stdout, a JSON line for each line on stdin, and ends in order when stdin is
closed. Started by `cache_crew.py`.

    python cache_worker.py URL TOKEN CACHE_DIR [--die-after CPU_SECONDS] [--file-limit BYTES]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import resource
import signal
import sys
from typing import TYPE_CHECKING

import msgspec

from aioinformer import Client, SharedInformerFactory, index_by
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from aioinformer import KubeObject, SharedInformer
    from aioinformer.informer.notifications import Notification

__all__ = ["GROUP", "Report", "Snapshot", "mark"]

GROUP = "data.group"
"""Path of the indexed value."""


class Snapshot(msgspec.Struct, frozen=True):
    """Contents at one moment.

    Attributes:
        version: Version of the contents.
        marks: XOR of the marks of all objects: contents with the same are equal.
        count: Number of objects.
        states: Uid and version of each object, by key; only of the cache.
    """

    version: str = ""
    marks: int = 0
    count: int = 0
    states: dict[str, tuple[str, int]] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """State of a worker.

    Attributes:
        synced: True once the cache is confirmed.
        role: "writer", "reader" or "memory".
        behind: Entries of the journal that were not told yet.
        stored: Contents of the cache.
        indexed: Contents by the index, with the version of `stored`.
        told: Contents by the handler's events.
        events: Number of events so far.
        violations: Broken guarantees, in words.
        opened: Contents when the cache was first readable, before it was confirmed.
    """

    synced: bool
    role: str
    behind: int
    stored: Snapshot
    indexed: Snapshot
    told: Snapshot
    events: int
    violations: list[str]
    opened: Snapshot | None


def mark(key: str, uid: str, version: str) -> int:
    """Return a number for one state of an object."""
    digest = hashlib.sha256(f"{key} {uid} {version}".encode()).digest()
    return int.from_bytes(digest[:7])


def marks_of(objects: list[KubeObject]) -> int:
    marks = 0
    for it in objects:
        marks ^= mark(it.key, it.uid, it.resource_version)

    return marks


class Witness:
    """Handler that notes what it is told, and each violation of a guarantee."""

    def __init__(self, informer: SharedInformer, seed: int) -> None:
        self.violations: list[str] = []
        self.events = 0
        self._known: dict[str, tuple[str, int]] = {}
        self._informer = informer
        self._rng = random.Random(seed)

    @property
    def told(self) -> Snapshot:
        """Contents by the events."""
        marks = 0
        for key, (uid, version) in self._known.items():
            marks ^= mark(key, uid, str(version))

        return Snapshot("", marks, len(self._known))

    async def event(self, event: Notification) -> None:
        """Check one event."""
        self.events += 1
        match event:
            case Added(obj):
                if obj.key in self._known:
                    self._violated("G5: added twice", obj)

                self._know(obj)
            case Updated(old, new):
                before = self._known.get(new.key)
                if before != _state(old):
                    self._violated(f"G1: old is not what was told, {before}", old)

                if before is not None and before[1] >= int(new.resource_version):
                    self._violated(f"G1: not after {before}", new)

                if old.uid != new.uid:
                    self._violated("G1: update of another object", new)

                self._know(new)
            case Deleted(obj, unknown):
                before = self._known.pop(obj.key, None)
                if before is None and not unknown:
                    self._violated("G6: deletion of an unknown object", obj)

                if before is not None and before[0] != obj.uid:
                    self._violated(f"G6: deletion of another object, {before}", obj)

        if self._rng.random() < 0.01:
            await asyncio.sleep(self._rng.random() * 0.02)

    def _know(self, obj: KubeObject) -> None:
        self._known[obj.key] = _state(obj)
        stored = self._informer.store.get_by_key(obj.key)
        if stored is not None and int(stored.resource_version) < _state(obj)[1]:
            self._violated("G3: the store is older than the event", obj)

    def _violated(self, what: str, obj: KubeObject) -> None:
        self.violations.append(f"{what}: {obj.key} {obj.uid} {obj.resource_version}")


def _state(obj: KubeObject) -> tuple[str, int]:
    return obj.uid, int(obj.resource_version)


class Worker:
    """The informer of this process."""

    def __init__(self, factory: SharedInformerFactory, seed: int) -> None:
        self._informer = factory.informer(
            CONFIG_MAPS, indexers={"group": index_by(GROUP)}
        )
        self._witness = Witness(self._informer, seed)
        self._informer.add_event_handler(on_event=self._witness.event)
        self._opened: Snapshot | None = None

    async def answer(self) -> None:
        """Report for each line on stdin, until it ends."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while await lines.readline():
            print(msgspec.json.encode(self._report()).decode(), flush=True)

    async def note_opened(self) -> None:
        """Note the contents that this process finds, confirmed or not."""
        while not self._informer.indexer.resource_version:
            await asyncio.sleep(0.001)

        self._opened = self._contents()[0]

    def _report(self) -> Report:
        stored, indexed = self._contents()
        status = self._informer.status
        return Report(
            synced=self._informer.has_synced,
            role=status.cache.role if status.cache else "none",
            behind=status.cache.behind if status.cache else 0,
            stored=stored,
            indexed=indexed,
            told=self._witness.told,
            events=self._witness.events,
            violations=self._witness.violations,
            opened=self._opened,
        )

    def _contents(self) -> tuple[Snapshot, Snapshot]:
        indexer = self._informer.indexer
        with indexer.contents.reading():
            objects = indexer.list()
            version = indexer.resource_version
            values = indexer.list_index_func_values("group")
            found = [it for value in values for it in indexer.by_index("group", value)]

        return (
            Snapshot(
                version,
                marks_of(objects),
                len(objects),
                {it.key: _state(it) for it in objects},
            ),
            Snapshot(version, marks_of(found), len(found)),
        )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("cache_dir")
    parser.add_argument("--die-after", type=float, default=0.0)
    parser.add_argument("--file-limit", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_limit,) * 2)

    client = Client.from_url(options.url, token=options.token)
    factory = SharedInformerFactory(client, cache_dir=options.cache_dir)
    worker = Worker(factory, options.seed)
    if options.die_after:
        # The kernel ends the process at this time of work, wherever it is.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, options.die_after)

    async with factory, asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(worker.note_opened())
        await worker.answer()
        opening.cancel()


if __name__ == "__main__":
    asyncio.run(main())
