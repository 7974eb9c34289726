"""The guarantees of informers that share a cache, while their writer changes.

The processes are factories of one loop here, with a store for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from informers import plain, settled
from ledger import Ledger

from aioinformer import Added, Deleted, SharedInformerFactory, Updated
from aioinformer.cache.disk.environment import Environment
from aioinformer.errors import InformerStopped, NotSynced
from aioinformer.informer.notifications import object_of
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from informers import Event

    from aioinformer import KubeObject, SharedInformer
    from aioinformer.errors import HandlerError


def version_of(obj: KubeObject | None) -> int:
    return 0 if obj is None else int(obj.resource_version)


class Witness:
    """Handler that checks each event against those before it, and the store.

    Args:
        informer: Informer to which it is added.
        seconds: Longest time that a call takes.
        rng: Source of chance.
    """

    def __init__(
        self, informer: SharedInformer, seconds: float, rng: random.Random
    ) -> None:
        self._informer = informer
        self._seconds = seconds
        self._rng = rng
        self._busy = False
        self.held: dict[str, KubeObject] = {}
        """Objects by key, as told."""
        self.first: dict[str, KubeObject] = {}
        """First told state by uid."""
        self.states: dict[str, list[int]] = {}
        """Told versions by uid, in their order."""
        self.ended: set[str] = set()
        """Uids that were told as deleted."""
        self.missed = 0
        """Number of objects of which the last state was not told."""
        informer.add_event_handler(on_event=self)

    async def __call__(self, event: Event) -> None:
        assert not self._busy  # G4
        self._busy = True
        self._check_store(event)
        match event:
            case Added(obj):
                assert obj.key not in self.held  # G5
                assert obj.uid not in self.ended
                self._take(obj)
            case Updated(old, new):
                assert self.held[new.key] == old  # G1
                assert old.uid == new.uid
                self._take(new)
            case Deleted(obj, True) if obj.uid not in self.states:
                pass  # went before the informer was synced, and was in the store
            case Deleted(obj, missed):
                assert self.held.pop(obj.key).uid == obj.uid  # G6
                self.ended.add(obj.uid)
                self.missed += missed
                if not missed:
                    self.states[obj.uid].append(version_of(obj))

        await asyncio.sleep(self._rng.random() * self._seconds)
        self._busy = False

    def _take(self, obj: KubeObject) -> None:
        self.held[obj.key] = obj
        self.first.setdefault(obj.uid, obj)
        self.states.setdefault(obj.uid, []).append(version_of(obj))

    def _check_store(self, event: Event) -> None:
        """G3: the store has the state of the event, or a newer one."""
        obj = object_of(event)
        stored = self._informer.indexer.get_by_key(obj.key)
        if isinstance(event, Deleted):
            assert stored is None or stored.uid != obj.uid
        else:
            # Without an object, it was deleted after the event.
            assert stored is None or version_of(stored) >= version_of(obj)

    def check(self, ledger: Ledger, *, every: bool) -> None:
        """Check the told states: in order, each once, and all of them if `every`."""
        for uid, told in self.states.items():
            made = ledger.states[uid]
            assert told == sorted(set(told))  # G1
            assert set(told) <= set(made)
            if every:
                assert told == [it for it in made if told[0] <= it <= told[-1]]

    def check_end(self, ledger: Ledger) -> None:
        """Check the last states, after the writes have ended."""
        stored = {obj.key: obj for obj in self._informer.indexer.list()}
        assert self.held == stored
        assert self.first.keys() & ledger.ended == self.ended  # G6


class Worker:
    """One process: a factory with a cache, and handlers with different speeds."""

    def __init__(self, server: APIServer, path: Path, rng: random.Random) -> None:
        self._rng = rng
        self._stack = contextlib.AsyncExitStack()
        self.failures: list[HandlerError] = []
        self.factory = SharedInformerFactory(
            server.client(), cache_dir=path, on_error=self.failures.append
        )
        self.informer = self.factory.informer("v1", "pods")
        self.witnesses = [Witness(self.informer, it, rng) for it in (0.0, 0.3)]

    @property
    def role(self) -> str:
        cache = self.informer.status.cache
        assert cache is not None
        return cache.role

    async def start(self) -> None:
        await self._stack.enter_async_context(self.factory)
        await self.informer.wait_synced(timeout=60)

    async def stop(self) -> None:
        await self._stack.aclose()

    def add_late_handler(self) -> None:
        self.witnesses.append(Witness(self.informer, self._rng.random() / 5, self._rng))


class Crew:
    """Workers that come and go."""

    def __init__(self, server: APIServer, path: Path, rng: random.Random) -> None:
        self._server = server
        self._path = path
        self._rng = rng
        self.workers: list[Worker] = []
        self.left: list[Worker] = []

    async def join(self) -> Worker:
        seed = self._rng.getrandbits(32)
        worker = Worker(self._server, self._path, random.Random(seed))
        await worker.start()
        self.workers.append(worker)
        return worker

    async def leave(self, role: str) -> None:
        """Stop a worker of a role, if there is one."""
        for worker in self.workers:
            if worker.role == role:
                self.workers.remove(worker)
                self.left.append(worker)
                await worker.stop()
                return

    async def act(self) -> None:
        match self._rng.choice(["writer", "writer", "reader", "join", "late"]):
            case "late":
                self._rng.choice(self.workers).add_late_handler()
            case "join":
                await self.join()
            case role:
                await self.leave(role)
                if len(self.workers) < 3:
                    await self.join()

    @property
    def missed(self) -> int:
        """Number of deletions of which no handler was told the last state."""
        workers = self.workers + self.left
        return sum(it.missed for worker in workers for it in worker.witnesses)

    @property
    def witnesses(self) -> list[Witness]:
        """Handlers of the workers that still run."""
        return [it for worker in self.workers for it in worker.witnesses]

    def check(self, ledger: Ledger, *, every: bool) -> None:
        """Check what all handlers were told, and that none of them raised."""
        for worker in self.workers + self.left:
            failures = [failure.__cause__ for failure in worker.failures]
            assert failures == []
            for witness in worker.witnesses:
                witness.check(ledger, every=every)

        for witness in self.witnesses:
            witness.check_end(ledger)

    async def settle(self) -> None:
        for worker in self.workers:
            await worker.informer.wait_for_version(
                self._server.resource_version, timeout=300
            )

        await asyncio.sleep(120)


@contextlib.asynccontextmanager
async def crew_of(
    server: APIServer, path: Path, rng: random.Random
) -> AsyncIterator[Crew]:
    """Start three workers; stop those that are left at the end."""
    crew = Crew(server, path, rng)
    try:
        for _ in range(3):
            await crew.join()

        yield crew
    finally:
        for worker in crew.workers:
            await worker.stop()


def lists(server: APIServer) -> list[dict[str, str]]:
    """Return the options of lists of all pods; a list of one checks the history."""
    made = [it for it in server.requests if (it.verb, it.resource) == ("list", "pods")]
    return [dict(it.query) for it in made if it.query.get("limit") != "1"]


# ---------------------------------------------------------------- G1, G3, G4, G5, G6


@pytest.mark.parametrize("seed", range(4))
async def test_G1_every_worker_is_told_every_state_across_takeovers(
    tmp_path: Path, seed: int
) -> None:
    """One list for all of them: no writer begins with another one."""
    rng = random.Random(seed)
    async with APIServer() as server:
        ledger = Ledger(server, rng)
        async with crew_of(server, tmp_path, rng) as crew:
            for _ in range(12):
                seconds = rng.choice([0.0, 0.02, 0.25])
                async with asyncio.TaskGroup() as group:
                    group.create_task(ledger.keep_writing(20, seconds=seconds))
                    await asyncio.sleep(rng.random())
                    await crew.act()

            await crew.settle()
            assert lists(server) == [{"limit": "500", "resourceVersion": "0"}]
            assert sorted(it.role for it in crew.workers).count("writer") == 1
            crew.check(ledger, every=True)
            assert crew.missed == 0


@pytest.mark.parametrize("seed", range(10, 13))
async def test_G6_deletions_reach_every_worker_across_outages_and_takeovers(
    tmp_path: Path, seed: int
) -> None:
    """Writers change while the server is down, and its history is compacted."""
    rng = random.Random(seed)
    async with APIServer() as server:
        ledger = Ledger(server, rng)
        async with crew_of(server, tmp_path, rng) as crew:
            for turn in range(5):
                await ledger.keep_writing(10, seconds=0.05)
                await server.stop()
                await asyncio.sleep(rng.random())
                ledger.plan("delete", "again")
                for _ in range(15):
                    ledger.write()

                if turn == 0 or rng.random() < 0.5:
                    server.compact()

                if rng.random() < 0.7:
                    await crew.leave(rng.choice(["writer", "reader"]))

                await asyncio.sleep(5 * rng.random())
                await server.start()
                while len(crew.workers) < 3:
                    await crew.join()

            await ledger.keep_writing(20, seconds=0.05)
            await crew.settle()
            crew.check(ledger, every=False)
            assert crew.missed > 0


async def test_G5_handlers_added_during_a_takeover_get_each_object_once(
    tmp_path: Path,
) -> None:
    rng = random.Random(5)
    async with APIServer() as server:
        for number in range(300):
            server.create(PODS, plain(f"pod-{number}"))

        async with crew_of(server, tmp_path, rng) as crew:
            one, two, three = crew.workers
            async with asyncio.TaskGroup() as group:
                group.create_task(crew.leave("writer"))
                for number in range(100):
                    server.delete(PODS, f"pod-{number}")
                    server.create(PODS, plain(f"later-{number}"))
                    if number % 20 == 0:
                        two.add_late_handler()
                        three.add_late_handler()

                    await asyncio.sleep(0.02)

            await crew.settle()
            assert one.witnesses[0].held
            for worker in (two, three):
                assert worker.failures == []
                assert len(worker.witnesses) == 7
                for witness in worker.witnesses:
                    assert len(witness.held) == 300
                    assert all(len(it) <= 2 for it in witness.states.values())


# ---------------------------------------------------------------- every kind of handler


class Mirror:
    """Handler that keeps the objects as it is told, with any options of handlers.

    Args:
        informer: Informer to which it is added.
        rng: Source of chance.
        **options: Options of the handler.
    """

    def __init__(
        self, informer: SharedInformer, rng: random.Random, **options: Any
    ) -> None:
        self._informer = informer
        self._rng = rng
        self._selects = options.get("filter", lambda _: True)
        self._told: set[str] = set()
        self.held: dict[str, KubeObject] = {}
        informer.add_event_handler(on_event=self, **options)

    async def __call__(self, event: Event) -> None:
        match event:
            case Added(obj):
                assert obj.key not in self.held
                self._told.add(obj.uid)
                self.held[obj.key] = obj
            case Updated(old, new):
                assert self.held[new.key] == old
                self.held[new.key] = new
            case Deleted(obj, True) if obj.uid not in self._told:
                pass  # went before the informer was synced, and was in the store
            case Deleted(obj):
                assert self.held.pop(obj.key).uid == obj.uid

        await asyncio.sleep(self._rng.random() / 50)

    def check_end(self) -> None:
        objects = self._informer.indexer.list()
        assert self.held == {obj.key: obj for obj in objects if self._selects(obj)}


def is_odd(obj: KubeObject) -> bool:
    """Filter that objects pass, or leave, with nearly each change."""
    return version_of(obj) % 2 == 1


KINDS: list[dict[str, Any]] = [
    {"coalesce": True},
    {"filter": is_odd},
    {"filter": is_odd, "coalesce": True},
    {"resync_period": 8, "coalesce": True},
    {"resync_period": 8, "filter": is_odd},
]


async def test_handlers_with_any_options_end_with_the_store(tmp_path: Path) -> None:
    """Across takeovers, relists and late handlers."""
    rng = random.Random(25)
    mirrors: dict[Worker, list[Mirror]] = {}
    async with APIServer() as server:
        ledger = Ledger(server, rng)
        async with crew_of(server, tmp_path, rng) as crew:
            for _ in range(6):
                for worker in crew.workers:
                    kept = mirrors.setdefault(worker, [])
                    for options in KINDS if not kept else [rng.choice(KINDS)]:
                        kept.append(Mirror(worker.informer, rng, **options))

                if rng.random() < 0.5:
                    server.faults.add(Gone())

                async with asyncio.TaskGroup() as group:
                    group.create_task(ledger.keep_writing(30, seconds=0.05))
                    await asyncio.sleep(rng.random())
                    await crew.act()

            await crew.settle()
            crew.check(ledger, every=False)
            for worker in crew.workers:
                for mirror in mirrors.get(worker, []):
                    mirror.check_end()


# ---------------------------------------------------------------- G8, G9


async def test_G8_workers_of_a_cache_are_as_live_as_its_writer(tmp_path: Path) -> None:
    """Reads raise before the sync and after the end, and all see the age grow."""
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        async with crew_of(server, tmp_path, random.Random(8)) as crew:
            early = Worker(server, tmp_path, random.Random(8))
            with pytest.raises(NotSynced):
                early.informer.lister.list()

            await server.stop()
            await asyncio.sleep(60)
            statuses = [worker.informer.status for worker in crew.workers]
            assert all(50 < (it.age or 0) < 70 for it in statuses)
            assert all(it.last_error is not None for it in statuses)
            gone = crew.workers[0]
            assert gone.role == "writer"
            await crew.leave("writer")
            await asyncio.sleep(2)
            with pytest.raises(InformerStopped):
                gone.informer.lister.list()

            left = [worker.informer for worker in crew.workers]
            assert all((it.status.age or 0) > 50 for it in left)
            assert [len(it.lister.list()) for it in left] == [1, 1]
            server.create(PODS, plain("b"))
            await server.start()
            for informer in left:
                await settled(server, informer)

            assert [len(it.lister.list()) for it in left] == [2, 2]
            assert all((it.status.age or 99) < 50 for it in left)


async def test_G9_workers_share_one_environment_and_leave_none(tmp_path: Path) -> None:
    before = set(Environment._opened.values())
    async with (
        APIServer() as server,
        crew_of(server, tmp_path, random.Random(9)) as crew,
    ):
        (env,) = set(Environment._opened.values()) - before
        users = env.users
        assert [worker.role for worker in crew.workers] == [
            "writer",
            "reader",
            "reader",
        ]
        assert users == 3

    assert set(Environment._opened.values()) == before
    assert os.listdir(env.path / "readers") == []
