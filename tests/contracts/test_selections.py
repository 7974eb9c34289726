"""G13: the store follows a selection that changes while the informer runs."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running
from informers import plain
from selection_checker import SelectionChecker

from aioinformer import SharedInformer, SharedInformerFactory
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.model.shards import ShardSelector, ranges_of
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, End, Gone, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RANGES = ranges_of(8)
HALF = ShardSelector(RANGES[:4])
ALL = ShardSelector(ranges_of(1))
GATE = "ShardedListAndWatch"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for number in range(40):
            server.create(PODS, plain(f"pod-{number}", app="ab"[number % 2]))

        yield server


def informer_of(server: APIServer, **options: Any) -> SharedInformer:
    return SharedInformer(server.list_watch(PODS, **options), name="pods")


def expected(server: APIServer, informer: SharedInformer) -> dict[str, str]:
    """Return the versions of the server's objects that the informer selects."""
    return {
        it.key: it.resource_version
        for it in map(KubeObject.of, server.objects(PODS))
        if informer.selection.selects(it)
    }


def stored(informer: SharedInformer) -> dict[str, str]:
    return {it.key: it.resource_version for it in informer.store.list()}


async def settle(server: APIServer, informer: SharedInformer) -> None:
    await informer.wait_selection(timeout=600)
    await informer.wait_for_version(server.resource_version, timeout=600)
    await asyncio.sleep(1)


@pytest.mark.parametrize("gate", [True, False])
async def test_G13_shards_partition_the_objects(server: APIServer, gate: bool) -> None:
    server.feature_gates = {GATE: gate}
    shares = [informer_of(server, shards=ShardSelector((it,))) for it in RANGES]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it.run()) for it in shares]
        for informer in shares:
            await informer.wait_synced(timeout=30)
            assert informer.status.sharded_by_server is gate

        for number in range(40, 80):
            server.create(PODS, plain(f"pod-{number}"))

        for informer in shares:
            await settle(server, informer)

        names = [it.name for share in shares for it in share.store.list()]
        assert sorted(names) == sorted(f"pod-{number}" for number in range(80))
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize("gate", [True, False])
async def test_G13_store_on_disk_has_only_objects_of_its_shards(
    server: APIServer, tmp_path: Path, gate: bool
) -> None:
    pytest.importorskip("lmdb")
    server.feature_gates = {GATE: gate}
    for _ in range(2):  # the second one resumes from the store
        factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
        informer = factory.informer("v1", "pods", shards=HALF)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await settle(server, informer)
            assert stored(informer) == expected(server, informer)
            server.create(PODS, plain(f"new-{server.resource_version}"))
            await settle(server, informer)
            assert stored(informer) == expected(server, informer)


async def test_G13_staying_objects_give_no_events(server: APIServer) -> None:
    informer = informer_of(server, shards=ShardSelector(RANGES[:4]))
    async with running(informer.run()):
        await informer.wait_synced(timeout=30)
        keys: list[str] = []
        informer.add_event_handler(
            on_add=lambda it: keys.append(it.key),
            on_delete=lambda it: keys.append(it.key),
        )
        await asyncio.sleep(1)
        before = stored(informer)
        keys.clear()

        informer.set_selection(shards=ShardSelector(RANGES[2:6]))
        await settle(server, informer)

        staying = before.keys() & stored(informer).keys()
        assert staying
        assert sorted(keys) == sorted(before.keys() ^ stored(informer).keys())


async def test_G13_server_that_stops_filtering_changes_nothing_for_handlers(
    server: APIServer,
) -> None:
    server.feature_gates = {GATE: True}
    informer = informer_of(server, shards=HALF)
    checker = SelectionChecker()
    informer.add_event_handler(on_event=checker)
    async with running(informer.run()):
        await informer.wait_synced(timeout=30)
        for number in range(30):
            # Each connection lands on a server with the feature, or on one without.
            server.feature_gates = {GATE: number % 2 == 0}
            server.faults.add(End(after_events=1))
            server.patch(PODS, f"pod-{number}", {"metadata": {"labels": {"a": "b"}}})
            await asyncio.sleep(3)

        await settle(server, informer)
        assert stored(informer) == expected(server, informer)
        assert checker.mistakes == []
        assert all(HALF.selects(it) for it in checker.seen)


class Changes:
    """Random changes of the objects, the selection, the server and the connections."""

    def __init__(self, server: APIServer, informer: SharedInformer, seed: int) -> None:
        self.server = server
        self.informer = informer
        self.rng = random.Random(seed)
        self.names = [f"pod-{number}" for number in range(40)]
        self.checker = SelectionChecker()

    async def make(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(self.rng.choice([0, 0, 0.05, 0.5, 3]))
            draw = self.rng.random()
            if draw < 0.7:
                self._change_object()
            elif draw < 0.88:
                self._change_selection()
            else:
                await self._disturb()

    def _change_object(self) -> None:
        server, name = self.server, self.rng.choice(self.names)
        match self.rng.randrange(6):
            case 0:
                server.delete(PODS, name)
                self.names.remove(name)
            case 1:
                server.delete(PODS, name)
                server.create(PODS, plain(name, app="a"))
            case 2:
                new = f"new-{self.rng.getrandbits(48):x}"
                server.create(PODS, plain(new, app="b"))
                self.names.append(new)
            case _:
                labels = {"app": self.rng.choice("ab"), "n": str(self.rng.random())}
                server.patch(PODS, name, {"metadata": {"labels": labels}})

    def _change_selection(self) -> None:
        if self.rng.random() < 0.2:
            self.informer.set_selection(label_selector=self.rng.choice(["", "app=a"]))
        else:
            ranges = self.rng.sample(RANGES, self.rng.randrange(9))
            self.informer.set_selection(shards=ShardSelector(tuple(ranges)))

    async def _disturb(self) -> None:
        server = self.server
        match self.rng.randrange(6):
            case 0:
                server.compact()
                server.faults.add(Gone())
            case 1:
                server.faults.add(Refuse(status=503, times=2))
            case 2:
                await server.restart()
            case 3:
                await self._restore()
            case _:
                server.faults.add(Cut(after_bytes=self.rng.randrange(5000)))

    async def _restore(self) -> None:
        """Restore a backup; wait until the informer has noticed that."""
        server, informer = self.server, self.informer
        backup = server.snapshot()
        for name in self.names[:3]:
            server.patch(PODS, name, {"metadata": {"labels": {"lost": "yes"}}})

        await settle(server, informer)
        self.checker.newest.clear()
        resets = informer.status.history_resets
        await server.restart(snapshot=backup)
        async with asyncio.timeout(600):
            while informer.status.history_resets == resets:
                await asyncio.sleep(1)


@pytest.mark.parametrize("seed", range(6))
async def test_G13_store_converges_through_random_changes(
    server: APIServer, seed: int
) -> None:
    server.feature_gates = {GATE: seed % 2 == 0}
    informer = informer_of(server, shards=HALF)
    changes = Changes(server, informer, seed)
    informer.add_event_handler(on_event=changes.checker)
    async with running(informer.run()):
        await informer.wait_synced(timeout=30)
        await changes.make(80)
        server.faults.clear()
        await settle(server, informer)

        assert stored(informer) == expected(server, informer)
        assert changes.checker.mistakes == []
        assert changes.checker.versions == stored(informer)
