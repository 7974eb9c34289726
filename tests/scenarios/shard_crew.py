"""Replicas that share ConfigMaps of a real server, and are killed while these change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from scenes import PATIENCE_SECONDS, change, config_map, create, remove
from shard_worker import DONE, Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import aiohttp
    from contract_servers import ServerUnderTest

__all__ = ["RANGES", "Gap", "ShardCrew", "shard_crew_of"]

RANGES = 64
WORKER = Path(__file__).with_name("shard_worker.py")
ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.25
# Time until the ranges are shared, and all that has changed is worked on.
_SETTLE_SECONDS = 90.0


@dataclass(frozen=True)
class Gap:
    """Time in which a range had no owner."""

    number: int
    begin: float
    seconds: float


@dataclass
class _Replica:
    identity: str
    process: asyncio.subprocess.Process


class ShardCrew:
    """Replicas, the changes of their objects, and the record of all owners.

    Attributes:
        server: Real server, with a namespace of this crew.
        replicas: Running replicas.
        writing: Lock of those who write; others hold it for a pause.
        kills: Times at which replicas were killed, of the monotonic clock.
    """

    def __init__(self, server: ServerUnderTest, folder: Path, seed: int) -> None:
        self.server = server
        self.replicas: list[_Replica] = []
        self.kills: list[float] = []
        self._folder = folder
        self._rng = random.Random(seed)
        self._started = 0
        self._names: list[str] = []
        self.writing = asyncio.Lock()
        self._path = server.path("configmaps")

    @property
    def http(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientSession]:
        """Session of the administrator, for a server that may restart."""
        return self.server.session()

    async def fill(self, objects: int) -> None:
        """Create objects on which all work is done."""
        bodies = []
        for number in range(objects):
            body = config_map(f"map-{number}")
            body["metadata"]["annotations"] = {DONE: body["data"]["it"]}
            bodies.append(body)

        self._names = [it["metadata"]["name"] for it in bodies]
        async with self.http as http:
            await create(http, self._path, bodies)

    async def add(self) -> None:
        """Start a replica, with an identity of its own."""
        self._started += 1
        identity = f"replica-{self._started}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(WORKER), self.server.url, self.server.ca or ""),
            *(self.server.token, self.server.namespace, identity, str(self._folder)),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        self.replicas.append(_Replica(identity, process))

    async def kill_one(self) -> None:
        """Kill a replica, and start another one, as a Deployment does."""
        victim = self._rng.choice(self.replicas)
        self.replicas.remove(victim)
        os.kill(victim.process.pid, signal.SIGKILL)
        assert await victim.process.wait() == -signal.SIGKILL
        now = time.monotonic()
        self.kills.append(now)
        with self._record.open("a") as file:
            file.write(f"{now} {victim.identity} kill -1\n")

        await self.add()

    async def reports(self) -> list[Report]:
        """Return the states of all replicas, which may not have met on any object."""
        found = [await self._report(it) for it in self.replicas]
        for it in found:
            assert not it.violations, it.violations

        self.gaps()  # checks the record
        return found

    async def _report(self, replica: _Replica) -> Report:
        process = replica.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await process.stdin.drain()
            line = await process.stdout.readline()

        assert line, f"{replica.identity} has ended"
        return msgspec.json.decode(line, type=Report)

    async def settled(self) -> list[Report]:
        """Wait until all ranges are owned, and the parts are what the server has.

        Also, all changes have been worked on. Nothing is changed meanwhile.
        """
        async with self.writing, self.http as http:
            until = time.monotonic() + _SETTLE_SECONDS
            while True:
                reports = await self.reports()
                wrong = await self._difference(reports, http)
                if not wrong:
                    return reports

                assert time.monotonic() < until, wrong
                await asyncio.sleep(_POLL_SECONDS)

    async def _difference(
        self, reports: Sequence[Report], http: aiohttp.ClientSession
    ) -> str:
        held = [number for it in reports for number in it.held]
        if sorted(held) != list(range(RANGES)):
            return f"ranges {sorted(held)} of {len(reports)} replicas"

        states = [pair for it in reports for pair in it.states.items()]
        union = dict(states)
        if len(union) != len(states):
            return f"{len(states) - len(union)} objects are of two replicas"

        async with http.get(self._path) as answer:
            assert answer.status == 200, await answer.text()
            items = (await answer.json())["items"]

        server, undone = {}, []
        for item in items:
            metadata = item["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}"
            server[key] = (metadata["uid"], metadata["resourceVersion"])
            if metadata.get("annotations", {}).get(DONE) != item["data"]["it"]:
                undone.append(key)

        if union != server:
            unlike = {it for it, _ in union.items() ^ server.items()}
            return (
                f"{len(unlike)} objects differ from the server, such as {unlike.pop()}"
            )

        return f"no work was done on {undone}" if undone else ""

    async def keep_writing(self, rate: float) -> None:
        """Change objects, and create some again under their names, until cancelled."""
        number = 0
        while True:
            async with self.writing, self.http as http:
                for _ in range(round(rate)):
                    number += 1
                    await self._write(http, number)
                    await asyncio.sleep(1 / rate)

            await asyncio.sleep(0)  # for those who wait for a pause

    async def _write(self, http: aiohttp.ClientSession, number: int) -> None:
        name = self._rng.choice(self._names)
        if number % 10 == 0:
            # Its uid, and so probably its replica, is another one.
            self._names.remove(name)
            await remove(http, f"{self._path}/{name}")
            await create(http, self._path, [config_map(name)])
            self._names.append(name)
        else:
            await change(http, f"{self._path}/{name}", f"value {number}")

    async def lease_requests(self) -> float:
        """Return the number of requests for Leases that the server has got."""
        async with self.http as http, http.get("/metrics") as answer:
            text = await answer.text()

        found = re.findall(
            r'^apiserver_request_total\{.*resource="leases".*\} (\S+)$',
            text,
            re.MULTILINE,
        )
        return sum(map(float, found))

    @property
    def _record(self) -> Path:
        return self._folder / "record"

    def gaps(self) -> list[Gap]:
        """Return the times without owner; check that no range has had two."""
        owners: dict[int, str] = {}
        ended: dict[int, float] = {}
        found = []
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        for line in lines:
            at, identity, what, number = line.split()
            when, place = float(at), int(number)
            if what == "start":
                assert place not in owners, f"{line}: of {owners[place]}"
                owners[place] = identity
                if place in ended:
                    found.append(Gap(place, ended[place], when - ended[place]))
            elif what == "end":
                assert owners.pop(place) == identity, line
                ended[place] = when
            else:
                for it in [it for it, owner in owners.items() if owner == identity]:
                    del owners[it]
                    ended[it] = when

        return found

    def moves(self) -> dict[str, int]:
        """Return how often each replica has become an owner."""
        found: defaultdict[str, int] = defaultdict(int)
        for line in self._record.read_text().splitlines():
            _, identity, what, _ = line.split()
            found[identity] += what == "start"

        return dict(found)

    async def end(self) -> None:
        """End all replicas in order, one after the other."""
        for replica in self.replicas:
            assert replica.process.stdin is not None
            replica.process.stdin.close()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await replica.process.wait() == 0

    async def abandon(self) -> None:
        """Kill what is left, after a failure."""
        for replica in self.replicas:
            if replica.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(replica.process.pid, signal.SIGKILL)

                await replica.process.wait()


@contextlib.asynccontextmanager
async def shard_crew_of(
    server: ServerUnderTest, folder: Path, *, replicas: int, objects: int
) -> AsyncIterator[ShardCrew]:
    """Run replicas on filled collections for the time of a block, once all share them."""
    crew = ShardCrew(server, folder, seed=objects)
    try:
        await crew.fill(objects)
        for _ in range(replicas):
            await crew.add()

        await crew.settled()
        yield crew
    finally:
        await crew.abandon()
