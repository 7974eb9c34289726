"""An in-memory Lease, and requests to it that are slow, fail or hang."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from aioinformer import LeaderElector
from aioinformer.errors import AlreadyExists, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.controller import LeaseRecord

    Fault = Callable[["MemoryLock", str], Awaitable[None]]


def now() -> float:
    return asyncio.get_running_loop().time()


async def forever() -> None:
    await asyncio.Event().wait()


class MemoryLease:
    """An in-memory Lease with versions that records all writes."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        # Time and written record; None if no lock created it.
        self.writes: list[tuple[float, LeaseRecord]] = []

    def write(self, record: LeaseRecord | None) -> None:
        self.record = record
        self.version += 1
        if record is not None:
            self.writes.append((asyncio.get_running_loop().time(), record))

    @property
    def holders(self) -> list[str]:
        """Return the holders in order."""
        names = [record.holder for _, record in self.writes]
        before = [None, *names]
        return [name for name, last in zip(names, before, strict=False) if name != last]


class MemoryLock:
    """A `LeaderLock` on a `MemoryLease`, with slow requests.

    A request reaches the Lease after `delay`. A write is answered `late` seconds after it
    was done. `fault` may do anything else.
    """

    def __init__(self, lease: MemoryLease, identity: str) -> None:
        self.name = "lease"
        self.identity = identity
        self.delay = 0.0
        self.late = 0.0
        self.fault: Fault | None = None
        # Times at which requests were sent, by verb.
        self.sent: list[tuple[float, str]] = []
        self._lease = lease
        self._version = -1

    async def get(self) -> LeaseRecord | None:
        await self._travel("get")
        self._version = self._lease.version
        return self._lease.record

    async def create(self, record: LeaseRecord) -> None:
        await self._travel("create")
        if self._lease.record is not None:
            raise AlreadyExists("it is there", status=409)

        await self._write(record)

    async def update(self, record: LeaseRecord) -> None:
        await self._travel("update")
        if self._lease.record is None:
            raise NotFound("it is gone", status=404)

        if self._lease.version != self._version:
            raise Conflict("it was changed", status=409)

        await self._write(record)

    def times(self, *verbs: str) -> list[float]:
        return [time for time, verb in self.sent if not verbs or verb in verbs]

    async def _write(self, record: LeaseRecord) -> None:
        self._lease.write(record)
        version = self._lease.version
        if self.late:
            await asyncio.sleep(self.late)

        self._version = version

    async def _travel(self, verb: str) -> None:
        self.sent.append((asyncio.get_running_loop().time(), verb))
        if self.delay:
            await asyncio.sleep(self.delay)

        if self.fault is not None:
            await self.fault(self, verb)


async def hang(_lock: MemoryLock, _verb: str) -> None:
    """Hang: the request is neither executed nor answered."""
    await asyncio.Event().wait()


def failing(error: Exception, *verbs: str) -> Fault:
    """Make a fault that refuses requests with these verbs, or all."""

    async def fail(_lock: MemoryLock, verb: str) -> None:
        if not verbs or verb in verbs:
            raise error

    return fail


def elector(lock: Any, **options: Any) -> LeaderElector:
    """Make an elector with the default durations of 15 s, 10 s and 2 s."""
    return LeaderElector(lock, rng=random.Random(7), **options)


async def lead(one: LeaderElector, work: Callable[[], Awaitable[None]]) -> None:
    """Lead, and work in the calling task."""
    async with one.leading():
        await work()
