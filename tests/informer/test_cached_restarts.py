"""Restarts of a program with `cache_dir=`, whose server changes meanwhile."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from store_processes import StoreProcess

from aioinformer import Added, Deleted, SharedInformerFactory, Updated
from aioinformer.cache.disk.environment import Environment
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer_apiserver import SavedState


class Copy:
    """Copy of the objects that is made of a handler's events."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, str]] = {}
        self.broken: list[str] = []
        self.missed: list[str] = []

    def __call__(self, event: Notification) -> None:
        match event:
            case Added(obj=obj):
                self._expect(obj.key, None)
                self.objects[obj.key] = obj.uid, obj.resource_version
            case Updated(old=old, new=new):
                self._expect(old.key, (old.uid, old.resource_version))
                self.objects[new.key] = new.uid, new.resource_version
            case Deleted(obj=obj, final_state_unknown=missed):
                if missed:
                    self.missed.append(obj.name)
                elif obj.key not in self.objects:
                    self.broken.append(f"unknown {obj.key} was deleted")

                self.objects.pop(obj.key, None)

    def _expect(self, key: str, known: tuple[str, str] | None) -> None:
        if self.objects.get(key) != known:
            self.broken.append(f"{key}: knew {self.objects.get(key)}, not {known}")


class World:
    """A server with config maps, and a program that is started again and again."""

    def __init__(self, server: APIServer, path: Path) -> None:
        self.server = server
        self.path = path

    def create(self, *names: str) -> None:
        for name in names:
            self.server.create(CONFIG_MAPS, {"metadata": {"name": name}})

    @property
    def objects(self) -> dict[str, tuple[str, str]]:
        metadata = [it["metadata"] for it in self.server.objects(CONFIG_MAPS)]
        return {
            f"{it['namespace']}/{it['name']}": (it["uid"], it["resourceVersion"])
            for it in metadata
            if it["namespace"] == "default"
        }

    @asynccontextmanager
    async def program(
        self, **options: Any
    ) -> AsyncIterator[tuple[SharedInformer, Copy]]:
        """Run the program during the block."""
        self.server.requests.clear()
        factory = SharedInformerFactory(self.server.client(), cache_dir=self.path)
        informer = factory.informer("v1", "configmaps", namespace="default", **options)
        copy = Copy()
        informer.add_event_handler(on_event=copy)
        async with factory:
            yield informer, copy

    async def settled(self, informer: SharedInformer, copy: Copy) -> None:
        """Wait until store and handler have the server's objects."""
        async with asyncio.timeout(300):
            await informer.wait_synced()
            while True:
                stored = informer.store.list()
                found = {it.key: (it.uid, it.resource_version) for it in stored}
                if found == copy.objects == self.objects:
                    break

                await asyncio.sleep(0.5)

        assert copy.broken == []

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of the program's requests for config maps."""
        requests = self.server.requests
        return [it.verb for it in requests if it.resource == "configmaps"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Run a server whose objects a, b and c a program has stored."""
    async with APIServer() as server:
        made = World(server, tmp_path)
        made.create("a", "b", "c")
        async with made.program() as (informer, copy):
            await made.settled(informer, copy)

        yield made


async def test_another_cluster_replaces_all_objects(world: World) -> None:
    await world.server.restart(new_history=True)

    async with world.program() as (informer, copy):
        await world.settled(informer, copy)

    assert world.verbs == ["list", "watch"]
    assert sorted(copy.missed) == ["a", "b", "c"]


async def test_program_that_ends_while_it_lists_another_cluster_compares_later(
    world: World,
) -> None:
    await world.server.restart(new_history=True)
    world.server.faults.add(Stall(verb="list"))
    async with world.program():
        await asyncio.sleep(5)
        assert world.verbs == ["list"]

    # The uid of the cluster is the stored one now, but the objects are not its own.
    world.server.faults.clear()
    async with world.program() as (informer, copy):
        await world.settled(informer, copy)

    assert world.verbs == ["list", "watch"]


async def test_restored_backup_is_compared_after_silent_seconds(world: World) -> None:
    backup = world.server.snapshot()
    world.create("d", "e")
    async with world.program() as (informer, copy):
        await world.settled(informer, copy)

    await world.server.restart(snapshot=backup)
    async with world.program() as (informer, copy):
        await asyncio.sleep(4)
        assert len(copy.objects) == 5

        await world.settled(informer, copy)

    assert sorted(copy.missed) == ["d", "e"]
    assert world.verbs == ["watch", "list", "list", "watch"]


@pytest.mark.parametrize("changed", ["nothing", "transform"])
async def test_restart_soon_after_a_kill_believes_nothing_unchecked(
    world: World, changed: str
) -> None:
    now = asyncio.get_running_loop().time()
    await asyncio.to_thread(kill_writer, world.path, now - 2)
    world.server.delete(CONFIG_MAPS, "b", namespace="default")
    world.server.faults.add(Refuse(status=503, times=None))
    options = {"transform": unchanged} if changed == "transform" else {}
    async with world.program(**options) as (informer, copy):
        await asyncio.sleep(3)
        assert (informer.has_synced, copy.objects) == (False, {})

        world.server.faults.clear()
        await world.settled(informer, copy)

    assert copy.missed == ["b"]


@pytest.mark.realtime
async def test_state_of_a_dead_writer_is_not_believed_while_the_next_one_begins(
    world: World,
) -> None:
    """The next one has the lock, and has not replaced the state yet."""
    now = asyncio.get_running_loop().time()
    await asyncio.to_thread(kill_writer, world.path, now)
    (path,) = world.path.iterdir()
    with StoreProcess(path) as next_writer:
        await asyncio.to_thread(next_writer, "start()")
        assert await asyncio.to_thread(next_writer, "env.acquire('writer')")
        async with world.program() as (informer, copy):
            await asyncio.sleep(0.5)
            assert (informer.has_synced, copy.objects) == (False, {})

            await asyncio.to_thread(next_writer.kill)
            await world.settled(informer, copy)


def kill_writer(root: Path, heartbeat: float) -> None:
    """Change the state of the last writer to that of one that was killed."""
    (path,) = root.iterdir()
    env = Environment.open(path)
    before = env.writer_state
    with env.write():
        env.set_writer_state(
            replace(before, ended=False, confirmed=True, pid=99999, heartbeat=heartbeat)
        )

    env.close()


def unchanged(obj: Any) -> Any:
    return obj


PAUSES = (0, 0.01, 0.1, 0.6, 3)


@pytest.mark.parametrize("seed", range(6))
async def test_store_equals_the_server_after_random_restarts(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    async with APIServer(history=50) as server:
        world = World(server, tmp_path)
        backups: list[SavedState] = []
        for step in range(12):
            for number in range(rng.randrange(8)):
                world.create(f"{step}-{number}")

            names = [it.partition("/")[2] for it in world.objects]
            for name in rng.sample(names, k=len(names) // 3):
                server.delete(CONFIG_MAPS, name, namespace="default")

            match rng.randrange(8):
                case 0:
                    server.compact()
                case 1:
                    backups.append(server.snapshot())
                case 2 if backups:
                    await server.restart(snapshot=rng.choice(backups))
                    # Noticed before its versions get past the stored one.
                    async with world.program() as (informer, copy):
                        await asyncio.sleep(10)
                        await world.settled(informer, copy)
                case 3:
                    await server.restart(new_history=True)
                    backups.clear()
                case 4:
                    await server.restart()
                case _:
                    pass

            first = world.program()
            async with AsyncExitStack() as others:
                if rng.random() < 0.5:
                    await others.enter_async_context(first)
                    await asyncio.sleep(rng.choice(PAUSES))

                async with world.program() as (informer, copy):
                    await asyncio.sleep(rng.choice(PAUSES))
                    world.create(f"{step}-late")
                    await others.aclose()  # this one may have to take over
                    if rng.random() < 0.3:
                        await world.settled(informer, copy)

                    assert copy.broken == []

        async with world.program() as (informer, copy):
            await world.settled(informer, copy)
