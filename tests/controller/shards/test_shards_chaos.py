"""`Shards` under random failures: no range is ever in work at two replicas.

More seeds: `SHARDS_SEEDS=100 make test ARGS="-k shards_chaos"`.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack

import pytest
from shards_helpers import Cluster, Work

from aioinformer.model.resources import LEASES
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Cut, Delay, Refuse, Stall

SEEDS = int(os.environ.get("SHARDS_SEEDS", "1"))
STEPS = 12


class Chaos:
    """Replicas that random failures strike, one after the other."""

    def __init__(self, server: APIServer, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.cluster = Cluster(server)
        self.count = 0
        # What each replica has to leave, by its name.
        self.running: dict[str, AsyncExitStack] = {}

    async def join(self) -> None:
        self.count += 1
        name = f"r-{self.count}"
        stack = self.running[name] = AsyncExitStack()
        work = {"takes": self.rng.uniform(0, 12), "stops": self.rng.uniform(0, 0.9)}
        await stack.enter_async_context(self.cluster.replica(name, **work))

    def draw(self) -> Work:
        return self.rng.choice(list(self.cluster.replicas.values()))

    async def step(self) -> None:
        names = ["join", "leave", "kill", "cut", "silence", "stall", "delete", "refuse"]
        await getattr(self, self.rng.choice([*names, "slow", "lost", "restart"]))()

    async def leave(self) -> None:
        if len(self.cluster.replicas) > 2:
            name = self.draw().shards.identity
            await self.running.pop(name).aclose()

    async def kill(self) -> None:
        if len(self.cluster.replicas) > 2:
            work = self.draw()
            self.cluster.kill(work)
            await self.running.pop(work.shards.identity).aclose()

    async def cut(self) -> None:
        work = self.draw()
        work.link.break_off()
        await asyncio.sleep(self.rng.uniform(1, 40))
        work.link.mend()

    async def silence(self) -> None:
        work = self.draw()
        work.link.silence()
        await asyncio.sleep(self.rng.uniform(1, 40))
        work.link.mend()

    async def stall(self) -> None:
        self.draw().link.swallow_watches()

    async def delete(self) -> None:
        leases = self.cluster.leases()
        number = self.rng.choice([1, 5, len(leases)])
        for lease in self.rng.sample(leases, min(number, len(leases))):
            self.server.delete(LEASES, lease["metadata"]["name"], namespace="ops")

    async def refuse(self) -> None:
        for status in (409, 429, 500, 503):
            fault = Refuse(status=status, times=5, skip=self.rng.randrange(10))
            self.server.faults.add(fault)

    async def slow(self) -> None:
        for _ in range(20):
            self.server.faults.add(Delay(seconds=self.rng.uniform(0, 6)))

    async def lost(self) -> None:
        """Lose answers, or the rest of watches."""
        for verb in ("update", "create"):
            self.server.faults.add(Cut(verb=verb, head=False, times=10))

        self.server.faults.add(Stall(verb="watch", after_bytes=2000))

    async def restart(self) -> None:
        await self.server.stop()
        await asyncio.sleep(self.rng.uniform(0, 40))
        await self.server.start()

    async def end(self) -> None:
        await asyncio.gather(*(it.aclose() for it in self.running.values()))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_range_has_two_owners_in_chaos(seed: int) -> None:
    async with APIServer(auto_namespaces=True) as server:
        chaos = Chaos(server, seed)
        watching = asyncio.create_task(chaos.cluster.watch())
        try:
            for _ in range(4):
                await chaos.join()

            await chaos.cluster.settled()
            for _ in range(STEPS):
                await chaos.step()
                await asyncio.sleep(chaos.rng.uniform(0, 30))

            server.faults.clear()
            await chaos.cluster.settled(90)
            await chaos.cluster.balanced()
            works = chaos.cluster.replicas.values()
            assert [it.shards.why_not_ready() for it in works] == [""] * len(works)
            assert not watching.done()
        finally:
            watching.cancel()
            await chaos.end()
