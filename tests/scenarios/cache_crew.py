"""Processes that share a cache, are killed at random, and must agree with the server.

The server is in this process, so that the contents of each of its versions are known. A
seed decides about writes, kills and their moments, as far as a scheduler lets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from cache_worker import Report, Snapshot, mark

from aioinformer.cache.disk.environment import Environment
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Crew", "Member", "Writes", "crew_of", "killings", "verify"]

WORKER = Path(__file__).with_name("cache_worker.py")
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
GROUPS = 7
_POLL_SECONDS = 0.05
# Processor time in which a worker lists, and some more.
_LIFE_SECONDS = 0.3
# Deaths by these: the signals of `kill` and of the timer of a worker.
_KILLED = {-signal.SIGKILL, -signal.SIGPROF}


class Writes:
    """Random writes to a server, and all states of each object."""

    def __init__(self, server: APIServer, rng: random.Random, objects: int) -> None:
        self._server = server
        self._rng = rng
        self._living: dict[str, int] = {}
        # States of each object: the version of the change, and uid and version, or None.
        self._history: dict[str, list[tuple[int, tuple[str, int] | None]]] = {}
        self._made = 0
        self._fewest = objects // 2
        self._most = objects * 2
        self._marks = 0
        for _ in range(objects):
            self.create()

    @property
    def now(self) -> Snapshot:
        """Current contents."""
        return Snapshot("", self._marks, len(self._living))

    def problems(self, found: Snapshot) -> list[str]:
        """Return what is wrong with contents, for their version.

        A big batch is applied in several steps, and the last one has its version. So
        contents may be newer than their version, never older.
        """
        version = int(found.version)
        wrong = []
        for key in self._history.keys() | found.states.keys():
            history = self._history.get(key, [])
            later = [state for at, state in history if at > version]
            before = [state for at, state in history if at <= version]
            stored = found.states.get(key)
            if stored not in [*before[-1:], *later] and (before or stored):
                wrong.append(f"{key} is {stored} at {version}, not {history}")

        return wrong

    def create(self) -> None:
        self._made += 1
        name = f"map-{self._rng.randrange(10**6)}-{self._made}"
        self._note(name, self._server.create(CONFIG_MAPS, self._body(name)))

    def write(self) -> None:
        """Create, update, delete or create again one object."""
        name = self._rng.choice(list(self._living))
        match self._rng.random():
            case it if it < 0.1 and len(self._living) < self._most:
                self.create()
            case it if it < 0.2 and len(self._living) > self._fewest:
                self._delete(name)
            case it if it < 0.25:
                self._delete(name)
                self._note(name, self._server.create(CONFIG_MAPS, self._body(name)))
            case _:
                self._note(name, self._server.update(CONFIG_MAPS, self._body(name)))

    async def keep_writing(self, rate: float) -> None:
        """Write until cancelled, in bursts."""
        while True:
            burst = self._rng.choice([1, 1, 2, 5, 40])
            for _ in range(burst):
                self.write()

            await asyncio.sleep(burst / rate)

    def _body(self, name: str) -> dict[str, Any]:
        group = f"group-{self._rng.randrange(GROUPS)}"
        filling = self._rng.randbytes(self._rng.choice([20, 200, 2000])).hex()
        return {"metadata": {"name": name}, "data": {"group": group, "it": filling}}

    def _delete(self, name: str) -> None:
        self._server.delete(CONFIG_MAPS, name)
        self._marks ^= self._living.pop(name)
        self._remember(name, int(self._server.resource_version), None)

    def _note(self, name: str, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        version = metadata["resourceVersion"]
        made = mark(f"default/{name}", metadata["uid"], version)
        self._marks ^= self._living.get(name, 0) ^ made
        self._living[name] = made
        self._remember(name, int(version), (metadata["uid"], int(version)))

    def _remember(self, name: str, version: int, state: tuple[str, int] | None) -> None:
        self._history.setdefault(f"default/{name}", []).append((version, state))


@dataclass
class Member:
    """A worker process, which is started again after its death."""

    process: asyncio.subprocess.Process
    timed: bool = False
    """True if it dies at a time of its own work."""

    @property
    def alive(self) -> bool:
        """True until its end was noticed."""
        return self.process.returncode is None


class Crew:
    """Workers with a cache of their own, and the writes to its server.

    Attributes:
        writes: Writes to the server.
        server: Server.
        cache_dir: Directory of the cache.
        kills: Number of workers that were killed, by what they were.
    """

    def __init__(
        self, server: APIServer, writes: Writes, cache_dir: Path, rng: random.Random
    ) -> None:
        self.server = server
        self.writes = writes
        self.cache_dir = cache_dir
        self.kills: Counter[str] = Counter()
        self._rng = rng
        self._members: list[Member] = []
        self._held: Environment | None = None

    async def add(self, *, file_limit: int = 0) -> Member:
        """Start a worker; `file_limit` is the size at which its disk is full."""
        member = Member(await self._start(file_limit=file_limit))
        self._members.append(member)
        return member

    async def _start(
        self, die_after: float = 0.0, file_limit: int = 0
    ) -> asyncio.subprocess.Process:
        assert self.server.token is not None
        options = {
            "--die-after": die_after,
            "--file-limit": file_limit,
            "--seed": self._rng.randrange(1000),
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(WORKER), self.server.url, self.server.token),
            str(self.cache_dir),
            *(str(it) for option in options.items() for it in option),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**22,
        )

    async def report(self, member: Member) -> Report | None:
        """Return the state of a worker; None if it has been killed.

        Checks what is always true: no violation, and contents that are those of the
        server at their version.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            process = member.process
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(ConnectionError):
                process.stdin.write(b"\n")
                await process.stdin.drain()

            while line := await process.stdout.readline():
                if line.startswith(b"{"):
                    report = msgspec.json.decode(line, type=Report)
                    self._check(report)
                    return report

            status = await process.wait()

        assert status in _KILLED, f"a worker has ended with {status}"
        return None

    def _check(self, report: Report) -> None:
        assert not report.violations, report.violations
        for it in (report.stored, report.opened):
            if it is not None and it.version:
                assert not (wrong := self.writes.problems(it)), (report.role, wrong)

        assert _same(report.indexed, report.stored)

    async def kill(self, member: Member) -> None:
        """Kill a worker that may have ended already."""
        _send_kill(member)
        status = await member.process.wait()
        assert status in _KILLED, f"a worker has ended with {status}"

    async def restart(self, member: Member, *, die_after: float = 0.0) -> None:
        """Start a killed worker again."""
        member.process = await self._start(die_after)
        member.timed = die_after > 0

    async def writer(self) -> Member | None:
        """Return the worker that writes the cache; None if none does now."""
        for member in self._members:
            report = await self.report(member)
            if report is not None and report.role == "writer":
                return member

        return None

    async def agreed(self) -> list[Report]:
        """Wait until the contents of all workers, and what they told, are the server's.

        Nobody may write meanwhile.
        """
        wanted = self.writes.now
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = [await self.report(it) for it in self._members]
            reports = [it for it in found if it is not None]
            same = [
                it.synced and all(_same(wanted, at) for at in (it.stored, it.told))
                for it in reports
            ]
            if len(reports) == len(self._members) and all(same):
                return reports

            assert time.monotonic() < deadline, (wanted, found)
            await asyncio.sleep(_POLL_SECONDS)

    async def end(self) -> None:
        """End all workers in order, the writer among them."""
        for member in self._members:
            if member.alive:
                assert member.process.stdin is not None
                member.process.stdin.close()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await member.process.wait() == 0

    async def hold(self) -> None:
        """Keep the store open in this process, which is neither writer nor reader.

        Otherwise it is set aside after five times that all workers have died early.
        """
        (name,) = os.listdir(self.cache_dir)
        path = self.cache_dir / name
        self._held = await asyncio.to_thread(Environment.open, path, create=False)

    def readers(self) -> int:
        """Return the number of processes that are known as readers of the cache."""
        return len(
            [it for it in self.cache_dir.glob("*/readers/*") if it.suffix != ".socket"]
        )

    def bytes_on_disk(self) -> int:
        """Return the size of the cache; its file is sparse."""
        files = (it for it in self.cache_dir.rglob("*") if it.is_file())
        return sum(it.stat().st_blocks * 512 for it in files)

    async def abandon(self) -> None:
        """Kill what is left, after a failure, and close the store."""
        if self._held is not None:
            await asyncio.to_thread(self._held.close)

        for member in self._members:
            if member.alive:
                _send_kill(member)
                await member.process.wait()

    @property
    def members(self) -> list[Member]:
        """Workers."""
        return self._members


def _send_kill(member: Member) -> None:
    # Popen.send_signal() may reap the process, and its status would be lost.
    with contextlib.suppress(ProcessLookupError):
        os.kill(member.process.pid, signal.SIGKILL)


def _same(wanted: Snapshot, found: Snapshot) -> bool:
    return (wanted.count, wanted.marks) == (found.count, found.marks)


@contextlib.asynccontextmanager
async def crew_of(
    folder: Path, seed: int, *, workers: int = 3, objects: int = 200
) -> AsyncIterator[Crew]:
    """Run a server and workers for the time of a block."""
    rng = random.Random(seed)
    async with APIServer(token="administrator") as server:
        crew = Crew(server, Writes(server, rng, objects), folder, rng)
        try:
            for _ in range(workers):
                await crew.add()

            yield crew
        finally:
            await crew.abandon()


async def killings(crew: Crew, kills: int, *, rate: float = 500.0) -> None:
    """Kill workers while objects change, then compare.

    Two of three are the writer. Some workers die at a time of their own work: in their
    first list, at a takeover, in a transaction. History is sometimes compacted, so that
    the next writer has to list.
    """
    rng = random.Random(kills)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(crew.writes.keep_writing(rate))
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0, 0.3))
            victim = await crew.writer() if rng.random() < 0.67 else None
            crew.kills["writer" if victim else "any"] += 1
            victim = victim or rng.choice(crew.members)
            await asyncio.sleep(rng.uniform(0, 0.05))
            await crew.kill(victim)
            if rng.random() < 0.3:
                crew.server.compact()
                crew.kills["compacted"] += 1

            dying = rng.random() < 0.5
            await crew.restart(
                victim, die_after=rng.uniform(0.001, _LIFE_SECONDS) if dying else 0.0
            )
            for member in crew.members:
                if not dying and not member.alive:  # its timer has killed it
                    crew.kills["timer"] += 1
                    await crew.restart(member)

        writing.cancel()

    for member in crew.members:
        if member.timed or not member.alive:
            await crew.kill(member)
            await crew.restart(member)

    await crew.agreed()


async def verify(cache_dir: Path) -> None:
    """Check that everything in a cache agrees, as `aioinformer cache verify` does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioinformer", "cache", "verify", str(cache_dir)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
