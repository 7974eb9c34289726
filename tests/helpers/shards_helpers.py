"""Replicas of a shard group in one loop, whose users record who works on what."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from wire import proxying

from aioinformer import Client
from aioinformer.controller.shards.lease import GROUP_LABEL
from aioinformer.controller.shards.shards import Shards
from aioinformer.model.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wire import Proxy

    from aioinformer.testing import APIServer

__all__ = ["Cluster", "ShardListener", "Work", "now"]


def now() -> float:
    return asyncio.get_running_loop().time()


class ShardListener:
    """User that only records what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def keep(self, numbers: frozenset[int]) -> None:
        self.calls.append(("keep", len(numbers)))

    def start(self, number: int) -> None:
        self.calls.append(("start", number))

    def drain(self, number: int) -> None:
        self.calls.append(("drain", number))

    def cancel(self, number: int) -> None:
        self.calls.append(("cancel", number))

    def busy(self, number: int) -> bool:
        return False

    def lacking(self) -> dict[int, str]:
        return {}


class Work:
    """User of shards that works on each range from its start to its end.

    `takes` is the time for which work goes on after a drain, `stops` after a cancellation.
    """

    def __init__(
        self,
        cluster: Cluster,
        shards: Shards,
        link: Proxy,
        *,
        takes: float = 0.0,
        stops: float = 0.0,
    ) -> None:
        self.cluster = cluster
        self.shards = shards
        self.link = link
        self.takes = takes
        self.stops = stops
        self.told: frozenset[int] = frozenset()
        self.calls: list[tuple[float, str, int]] = []
        self._ends: dict[int, asyncio.TimerHandle] = {}
        self.dead = False

    def keep(self, numbers: frozenset[int]) -> None:
        self.told = numbers

    def start(self, number: int) -> None:
        self._note("start", number)
        assert not self.dead
        assert number in self.told, "not in memory"
        self.shards.check(number)
        if number in self._ends:  # its drain was revoked
            self._ends.pop(number).cancel()
        elif not self.busy(number):
            self.cluster.began(number, self)

    def drain(self, number: int) -> None:
        self._note("drain", number)
        self._end_in(number, self.takes)

    def cancel(self, number: int) -> None:
        self._note("cancel", number)
        self._end_in(number, self.stops)

    def busy(self, number: int) -> bool:
        return self.cluster.working.get(number) is self

    def lacking(self) -> dict[int, str]:
        return {}

    def is_ending(self, number: int) -> bool:
        """Return True if work on a range was drained or cancelled."""
        return number in self._ends

    def kill(self) -> None:
        """End all work at once, and cut the connections."""
        self.dead = True
        self.link.break_off()
        for number, work in tuple(self.cluster.working.items()):
            if work is self:
                self.cluster.ended(number, self)

        for timer in self._ends.values():
            timer.cancel()

    def _note(self, what: str, number: int) -> None:
        self.calls.append((now(), what, number))

    def _end_in(self, number: int, seconds: float) -> None:
        if number in self._ends:
            self._ends.pop(number).cancel()

        if not self.busy(number):
            return

        if not seconds:
            self.cluster.ended(number, self)
            return

        def end() -> None:
            del self._ends[number]
            self.cluster.ended(number, self)
            self.shards.work_ended()

        self._ends[number] = asyncio.get_running_loop().call_later(seconds, end)


class Cluster:
    """Replicas on one server, and which of them works on each range."""

    def __init__(self, server: APIServer, *, ranges: int = 16, **options: Any) -> None:
        self.server = server
        self.ranges = ranges
        self.options = options
        self.working: dict[int, Work] = {}
        self.unowned_since: dict[int, float] = dict.fromkeys(range(ranges), 0.0)
        self.longest = 0.0
        self.moves = 0
        self.replicas: dict[str, Work] = {}

    def began(self, number: int, work: Work) -> None:
        other = self.working.get(number)
        assert other is None, f"{number} is in work at {other} and {work}"
        self.working[number] = work
        self.moves += 1
        self.longest = max(self.longest, now() - self.unowned_since.pop(number))

    def ended(self, number: int, work: Work) -> None:
        assert self.working.pop(number) is work
        self.unowned_since[number] = now()

    def shards(self, name: str, url: str = "", **more: Any) -> Shards:
        """Make a replica, with a client of its own."""
        options = {"ranges": self.ranges, "namespace": "ops", **self.options, **more}
        client = Client.from_url(url or self.server.url)
        group = options.pop("name", "sites")
        return Shards(group, client, identity=name, **options)

    @asynccontextmanager
    async def replica(self, name: str, **work: Any) -> AsyncIterator[Work]:
        """Run a replica with one user, behind a proxy."""
        async with proxying(self.server.url) as link:
            shards = self.shards(name, link.url)
            user = Work(self, shards, link, **work)
            shards.join(user)
            self.replicas[name] = user
            try:
                async with shards:
                    yield user
            finally:
                shards.leave(user)
                self.replicas.pop(name, None)

    @asynccontextmanager
    async def replicas_named(
        self, *names: str, **work: Any
    ) -> AsyncIterator[list[Work]]:
        """Run several replicas, which end one after the other."""
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(self.replica(it, **work))
                for it in names
            ]

    def kill(self, work: Work) -> None:
        """End all work of a replica at once, and all its requests."""
        work.kill()
        self.replicas.pop(work.shards.identity, None)

    async def settled(self, timeout: float = 60.0) -> float:
        """Wait until every range is owned, and return the seconds that it took."""
        began = now()
        async with asyncio.timeout(timeout):
            while self.unowned_since:
                await asyncio.sleep(0.1)

        return now() - began

    async def balanced(self, timeout: float = 120.0) -> None:
        """Wait until every replica owns its part."""
        async with asyncio.timeout(timeout):
            while not self.is_balanced():
                await asyncio.sleep(0.1)

    async def watch(self) -> None:
        """Fail when a replica works on a range that it does not own any more."""
        while True:
            await asyncio.sleep(0.5)
            for number, work in self.working.items():
                if not work.is_ending(number):
                    work.shards.check(number)

    def is_balanced(self) -> bool:
        counts = [self.count(it) for it in self.replicas.values()]
        return sum(counts) == self.ranges and max(counts) - min(counts) <= 1

    def count(self, work: Work) -> int:
        return sum(it is work for it in self.working.values())

    def leases(self) -> list[dict[str, Any]]:
        return [
            it
            for it in self.server.objects(LEASES)
            if (it["metadata"].get("labels") or {}).get(GROUP_LABEL)
        ]

    def fences(self) -> list[dict[str, Any]]:
        return [it for it in self.leases() if "-range-" in it["metadata"]["name"]]
