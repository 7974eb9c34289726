"""One of several replicas whose controllers share ConfigMaps, each a process of its own.

The kernel shows two replicas at work on one object: each reconcile holds a lock that ends
with its process. So does the server: each write names the version that the reconcile has
read, and nobody else may have written between its two writes.

It reports on stdout, a JSON line for each line on stdin, and ends in order when stdin is
closed. Started by `shard_crew.py`.

    python shard_worker.py URL CA TOKEN NAMESPACE IDENTITY FOLDER
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from aioinformer import Client, Controller, Manager
from aioinformer.controller import Shards
from aioinformer.errors import Conflict, NotFound
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.model.shards import hash_of

if TYPE_CHECKING:
    from aioinformer import KubeObject, ReconcileRequest, SharedInformer
    from aioinformer.controller import Context

__all__ = ["DONE", "WORK", "Report"]

DONE = "example.com/done"
"""Annotation with the value of `data.it` that was worked on."""

WORK = "example.com/work"
"""Annotation with the last beginning or end of work, and its replica."""

# Work takes a moment, so that two replicas would meet.
_WORK_SECONDS = 0.02


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """State of a replica.

    Attributes:
        held: Ranges that it owns.
        states: Uid and version of each object of these ranges, by key.
        stored: Number of objects in its store.
        sharded: True if the server has filtered the last list.
        reconciles: Number of reconciles so far.
        writes: Number of objects that were worked on.
        violations: Broken guarantees, in words.
    """

    held: list[int]
    states: dict[str, tuple[str, str]]
    stored: int
    sharded: bool | None
    reconciles: int
    writes: int
    violations: list[str]


class Record:
    """Ranges that this replica works on, in a file that all replicas append to."""

    def __init__(self, path: Path, identity: str) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._identity = identity
        self._started: set[int] = set()

    def keep(self, numbers: frozenset[int]) -> None:
        """Nothing: this user stores no objects."""

    def start(self, number: int) -> None:
        """Note the begin of an ownership."""
        if number not in self._started:
            self._started.add(number)
            self._note("start", number)

    def drain(self, number: int) -> None:
        """Note the end of an ownership."""
        if number in self._started:
            self._started.discard(number)
            self._note("end", number)

    def cancel(self, number: int) -> None:
        """Note the end of an ownership."""
        self.drain(number)

    def busy(self, number: int) -> bool:
        """Return False: this user does no work."""
        return False

    def lacking(self) -> dict[int, str]:
        """Return nothing: it needs no objects."""
        return {}

    def _note(self, what: str, number: int) -> None:
        line = f"{time.monotonic()} {self._identity} {what} {number}\n"
        os.write(self._file, line.encode())


class Worker:
    """Controller of one replica."""

    def __init__(
        self, maps: SharedInformer, shards: Shards, locks: Path, identity: str
    ) -> None:
        self.violations: list[str] = []
        self._maps = maps
        self._shards = shards
        self._identity = identity
        self._locks = os.open(locks, os.O_CREAT | os.O_RDWR)
        self._in_work: set[str] = set()
        self._reconciles = 0
        self._writes = 0

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        """Work on an object that has changed, beginning and ending by a write."""
        self._reconciles += 1
        obj = self._maps.lister.get(request.key)
        if obj is None:
            return

        place = hash_of(obj.uid) >> 2  # an offset has 63 bits
        if obj.uid in self._in_work:
            self.violations.append(f"{obj.key} is in work twice")

        self._in_work.add(obj.uid)
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            self.violations.append(f"{obj.key} is in work at another replica")

        try:
            await self._work(obj, ctx)
        finally:
            self._in_work.discard(obj.uid)
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, place)

    async def _work(self, obj: KubeObject, ctx: Context) -> None:
        wanted = obj.at("data.it")
        if obj.annotations.get(DONE) == wanted:
            await asyncio.sleep(0)
            return

        self._writes += 1
        begin = f"{self._identity} {self._writes}"
        body = obj.to_dict()
        notes = body["metadata"].setdefault("annotations", {})
        notes[WORK] = begin
        try:
            begun = await ctx.client.update(CONFIG_MAPS, body)
        except (Conflict, NotFound):
            return  # the object has changed, and that event is on its way

        await asyncio.sleep(_WORK_SECONDS)
        notes |= {WORK: f"{begin} ended", DONE: wanted}
        body["metadata"]["resourceVersion"] = begun.resource_version
        try:
            await ctx.client.update(CONFIG_MAPS, body)
        except NotFound:
            return
        except Conflict:
            await self._check(obj, begin, ctx)

    async def _check(self, obj: KubeObject, begin: str, ctx: Context) -> None:
        """Check that only the value was written between begin and end."""
        try:
            found = await ctx.client.get(CONFIG_MAPS, obj.name, namespace=obj.namespace)
        except NotFound:
            return

        writer = found.annotations.get(WORK)
        if found.uid == obj.uid and writer != begin:
            self.violations.append(f"{obj.key}: {writer!r} wrote during {begin!r}")

    async def answer(self) -> None:
        """Report for each line on stdin, until it ends."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while await lines.readline():
            print(msgspec.json.encode(self._report()).decode(), flush=True)

    def _report(self) -> Report:
        held, stored = self._shards.held, self._maps.store.list()
        return Report(
            held=sorted(held),
            states={
                it.key: (it.uid, it.resource_version)
                for it in stored
                if self._shards.range_of(it) in held
            },
            stored=len(stored),
            sharded=self._maps.status.sharded_by_server,
            reconciles=self._reconciles,
            writes=self._writes,
            violations=self.violations,
        )


async def main() -> None:
    url, ca, token, namespace, identity, folder = sys.argv[1:]
    client = Client.from_url(url, ca_file=ca, token=token)
    manager = Manager(client)
    shards = Shards("maps", client, namespace=namespace, identity=identity)
    maps = manager.informer(CONFIG_MAPS, namespace=namespace)
    worker = Worker(maps, shards, Path(folder, "locks"), identity)
    record = Record(Path(folder, "record"), identity)
    manager.add(
        Controller("maps", worker.reconcile, for_=maps, shards=shards, concurrency=8)
    )
    shards.join(record)
    async with manager:
        await worker.answer()


if __name__ == "__main__":
    asyncio.run(main())
