"""What the tests of leader election share: a Lease in memory, and requests that misbehave."""

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


async def for_ever() -> None:
    await asyncio.Event().wait()


class MemoryLease:
    """A Lease in memory, with versions; notes who wrote what, and when."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        # Time, and what was written; None for what was not created by a lock.
        self.writes: list[tuple[float, LeaseRecord]] = []

    def write(self, record: LeaseRecord | None) -> None:
        self.record = record
        self.version += 1
        if record is not None:
            self.writes.append((asyncio.get_running_loop().time(), record))

    @property
    def holders(self) -> list[str]:
        """Who held it, one after the other."""
        names = [record.holder for _, record in self.writes]
        before = [None, *names]
        return [name for name, last in zip(names, before, strict=False) if name != last]


class MemoryLock:
    """A `LeaderLock` on it, with slow requests.

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
    """A request that is never answered, nor done."""
    await asyncio.Event().wait()


def failing(error: Exception, *verbs: str) -> Fault:
    """Requests with these verbs, or all, are refused."""

    async def fail(_lock: MemoryLock, verb: str) -> None:
        if not verbs or verb in verbs:
            raise error

    return fail


def elector(lock: Any, **options: Any) -> LeaderElector:
    """With the usual durations: 15 s, 10 s and 2 s."""
    return LeaderElector(lock, rng=random.Random(7), **options)


async def lead(one: LeaderElector, work: Callable[[], Awaitable[None]]) -> None:
    """Lead, and work in the same task."""
    async with one.leading():
        await work()
