"""Sharded controllers: several replicas in one loop work on the objects of one server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, config_map
from shards_helpers import now

from aioinformer import Controller, Manager, SharedInformerFactory
from aioinformer.controller import Result, ShardedInformer, set_controller_reference
from aioinformer.controller.shards.replica import Replica
from aioinformer.controller.shards.shards import Shards
from aioinformer.errors import LeadershipLost, OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.model.shards import hash_of
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Delay, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller import Context, ReconcileRequest


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for number in range(60):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        yield server


RANGES = 16


def range_of(obj: KubeObject) -> int:
    return hash_of(obj.uid) * RANGES >> 64


class Fleet:
    """Replicas, and which of them works on each key."""

    def __init__(self, server: APIServer) -> None:
        self.server = server
        self.working: dict[str, str] = {}
        self.done: dict[str, list[str]] = defaultdict(list)
        self.managers: dict[str, Manager] = {}
        self.seconds = 0.1
        self.cancelled: list[str] = []

    async def work(self, replica: str, request: ReconcileRequest, ctx: Context) -> None:
        key = request.key
        assert key not in self.working, f"{replica} and {self.working[key]}: {key}"
        self.working[key] = replica
        try:
            await asyncio.sleep(self.seconds)
            self.done[key].append(replica)
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        finally:
            del self.working[key]

    @asynccontextmanager
    async def replica(self, name: str, **options: Any) -> AsyncIterator[Manager]:
        client = self.server.client()
        manager = Manager(client)
        shards = Shards("maps", client, ranges=RANGES, namespace="ops", identity=name)

        async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
            await self.work(name, request, ctx)

        maps = manager.informer(CONFIG_MAPS)
        owned = [manager.informer(it) for it in options.pop("owned", ())]
        own = options.pop("reconcile", reconcile)
        manager.add(
            Controller(
                "maps",
                own,
                for_=maps,
                owns=owned,
                shards=shards,
                concurrency=50,
                **options,
            )
        )
        self.managers[name] = manager
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            await manager.shutdown()
            await running
            del self.managers[name]

    def keys(self, name: str) -> set[str]:
        return set(self.managers[name].informers[0].store.list_keys())

    def owner(self, obj: KubeObject) -> str:
        """Return the name of the replica that owns an object."""
        number = range_of(obj)
        (owner,) = [
            name
            for name, manager in self.managers.items()
            if number in manager.shards[0].held
        ]
        return owner

    async def balanced(self) -> None:
        """Wait until each object is in the store of one replica, and all share them."""
        names = list(self.managers)
        async with asyncio.timeout(60):
            while True:
                held = [it.shards[0].held for it in self.managers.values()]
                parts = [self.keys(name) for name in names]
                if (
                    all(held)
                    and sum(map(len, held)) == RANGES
                    and sum(map(len, parts)) == len(set[str]().union(*parts)) == 60
                ):
                    return

                await asyncio.sleep(0.1)


async def test_each_object_is_reconciled_by_one_replica(server: APIServer) -> None:
    fleet = Fleet(server)
    async with fleet.replica("a"), fleet.replica("b"), fleet.replica("c"):
        await fleet.balanced()
        await asyncio.sleep(1)
        fleet.done.clear()
        for number in range(60):
            server.patch(CONFIG_MAPS, f"map-{number}", {"data": {"a": "1"}})

        await asyncio.sleep(2)
        assert len(fleet.done) == 60
        for name in "abc":
            assert {key for key, by in fleet.done.items() if by == [name]} == (
                fleet.keys(name)
            )


async def test_moved_objects_are_reconciled_by_the_new_owner(server: APIServer) -> None:
    fleet = Fleet(server)
    async with AsyncExitStack() as first:
        await first.enter_async_context(fleet.replica("a"))
        await fleet.balanced()
        await asyncio.sleep(1)
        assert {it for by in fleet.done.values() for it in by} == {"a"}
        async with fleet.replica("b"):
            await fleet.balanced()
            await asyncio.sleep(1)
            moved = fleet.keys("b")
            assert moved
            assert all("b" in fleet.done[key] for key in moved)
            begin = now()
            await first.aclose()
            await fleet.balanced()
            await asyncio.sleep(1)
            assert now() - begin < 15
            assert all("b" in by for by in fleet.done.values())
            assert len(fleet.done) == 60


async def test_new_object_of_a_name_is_left_to_the_replica_that_owns_it(
    server: APIServer,
) -> None:
    """The replica of the old one must not clean up what belongs to the new one."""
    fleet, seen = Fleet(server), list[tuple[str, bool]]()

    def reconcile_as(name: str) -> Any:
        async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
            seen.append((name, ctx.lister.get(request.key) is not None))

        return reconcile

    async with (
        fleet.replica("a", reconcile=reconcile_as("a")),
        fleet.replica("b", reconcile=reconcile_as("b")),
    ):
        await fleet.balanced()
        moved = 0
        while moved < 5:
            old = KubeObject.of(server.get(CONFIG_MAPS, "map-1"))
            server.delete(CONFIG_MAPS, "map-1")
            new = KubeObject.of(server.create(CONFIG_MAPS, config_map("map-1")))
            seen.clear()
            await asyncio.sleep(1)
            if fleet.owner(old) == fleet.owner(new):
                continue

            moved += 1
            assert seen == [(fleet.owner(new), True)]

        last = KubeObject.of(server.get(CONFIG_MAPS, "map-1"))
        seen.clear()
        server.delete(CONFIG_MAPS, "map-1")
        await asyncio.sleep(1)
        assert seen == [(fleet.owner(last), False)]


async def test_changes_of_children_reach_the_replica_of_their_owner(
    server: APIServer,
) -> None:
    fleet = Fleet(server)
    async with (
        fleet.replica("a", owned=[SECRETS]),
        fleet.replica("b", owned=[SECRETS]),
    ):
        await fleet.balanced()
        await asyncio.sleep(1)
        fleet.done.clear()
        owners = [KubeObject.of(it) for it in server.objects(CONFIG_MAPS)]
        gone = KubeObject.of(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "gone", "namespace": "default", "uid": "0"},
            }
        )
        for owner in (*owners, gone):
            child = {"metadata": {"name": f"of-{owner.name}"}}
            server.create(SECRETS, set_controller_reference(owner, child))

        await asyncio.sleep(2)
        assert fleet.done == {it.key: [fleet.owner(it)] for it in (*owners, gone)}


async def test_work_that_outlives_the_drain_is_cancelled_and_done_by_the_new_owner(
    server: APIServer,
) -> None:
    fleet = Fleet(server)
    async with fleet.replica("a"):
        await fleet.balanced()
        await asyncio.sleep(1)
        fleet.seconds = 1000.0
        for number in range(60):
            server.patch(CONFIG_MAPS, f"map-{number}", {"data": {"a": "1"}})

        await asyncio.sleep(1)
        assert len(fleet.working) == 50  # all workers
        fleet.done.clear()
        async with fleet.replica("b"):
            fleet.seconds = 0.1
            await fleet.balanced()
            await asyncio.sleep(1)
            assert all("b" in fleet.done[key] for key in fleet.keys("b"))
            assert set(fleet.cancelled) <= fleet.keys("b")
            assert fleet.cancelled


@pytest.mark.parametrize("waits", [True, False])
async def test_range_moves_when_writes_without_an_answer_have_arrived(
    server: APIServer, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Without that rule, the next owner begins at once."""
    if not waits:
        real = Replica.wrote

        def wrote(self: Replica, number: int, versions: Any, **_: Any) -> None:
            real(self, number, versions)

        monkeypatch.setattr(Replica, "wrote", wrote)

    last, gaps = dict[str, tuple[str, float]](), list[float]()
    server.faults.add(Delay(seconds=30, verb="create", resource="secrets", times=None))

    def reconcile_as(name: str) -> Any:
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result:
            before = last.get(request.key, (name, 0.0))
            if before[0] != name:
                gaps.append(now() - before[1])

            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await ctx.client.create(SECRETS, config_map("it"))

            last[request.key] = name, now()
            return Result(requeue_after=0.05)

        return reconcile

    fleet = Fleet(server)
    async with fleet.replica("a", reconcile=reconcile_as("a")):
        await fleet.balanced()
        async with fleet.replica("b", reconcile=reconcile_as("b")):
            await fleet.balanced()
            await asyncio.sleep(1)

    assert gaps
    assert (min(gaps) >= 1.0) is waits


async def test_retries_and_requeues_end_with_their_range(server: APIServer) -> None:
    fleet, called = Fleet(server), list[tuple[str, str]]()

    def reconcile_as(name: str) -> Any:
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result:
            called.append((name, request.key))
            if request.name == "map-1":
                raise ValueError("not yet")

            return Result(requeue_after=2)

        return reconcile

    async with fleet.replica("a", reconcile=reconcile_as("a")) as a:
        await fleet.balanced()
        async with fleet.replica("b", reconcile=reconcile_as("b")):
            await fleet.balanced()
            await asyncio.sleep(3)
            called.clear()
            await asyncio.sleep(10)
            assert {key for by, key in called if by == "a"} <= fleet.keys("a")
            assert {key for by, key in called if by == "b"} <= fleet.keys("b")
            assert {it for _, it in called} >= fleet.keys("a") | fleet.keys("b") - {
                "default/map-1"
            }
            status = a.controllers[0].status()
            assert status.delayed <= len(fleet.keys("a"))


async def test_daemons_and_timers_run_at_the_owner_only(server: APIServer) -> None:
    fleet, running = Fleet(server), dict[str, str]()

    def daemon_of(name: str) -> Any:
        async def daemon(request: ReconcileRequest, ctx: Context) -> None:
            assert request.key not in running
            running[request.key] = name
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(0.5)
                del running[request.key]

        return daemon

    def options_of(name: str) -> dict[str, Any]:
        return {"daemons": [daemon_of(name)], "every": 5}

    async with AsyncExitStack() as first:
        await first.enter_async_context(fleet.replica("a", **options_of("a")))
        await fleet.balanced()
        await asyncio.sleep(1)
        assert set(running.values()) == {"a"}
        assert len(running) == 60
        async with fleet.replica("b", **options_of("b")):
            await fleet.balanced()
            await asyncio.sleep(1)
            assert running == dict.fromkeys(fleet.keys("a"), "a") | dict.fromkeys(
                fleet.keys("b"), "b"
            )
            fleet.done.clear()
            await asyncio.sleep(6)
            for name in "ab":
                assert {it for it, by in fleet.done.items() if {*by} == {name}} == (
                    fleet.keys(name)
                )

            await first.aclose()
            await fleet.balanced()
            await asyncio.sleep(1)
            assert list(running.values()) == ["b"] * 60


async def test_write_after_the_deadline_is_refused(server: APIServer) -> None:
    fleet, errors = Fleet(server), list[BaseException]()
    begun = asyncio.Event()

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            try:
                await ctx.client.delete(CONFIG_MAPS, request.name, namespace="default")
            except LeadershipLost as exc:
                errors.append(exc)

            raise

    async with fleet.replica("a", reconcile=reconcile):
        await begun.wait()
        server.faults.add(Refuse(status=503, times=None))
        await asyncio.sleep(20)
        assert errors
        assert "does not own range" in str(errors[0])
        server.faults.clear()


async def test_sharded_informers_read_each_object_once(server: APIServer) -> None:
    """Also while ranges move: by one replica at most."""
    async with AsyncExitStack() as all_of_them:
        parts = list[ShardedInformer]()

        async def add(stack: AsyncExitStack, name: str) -> None:
            client = server.client()
            factory = SharedInformerFactory(client)
            shards = Shards(
                "maps", client, ranges=RANGES, namespace="ops", identity=name
            )
            part = ShardedInformer(factory.informer(CONFIG_MAPS), shards)
            for it in (client, factory, shards, part):
                await stack.enter_async_context(it)

            await factory.wait_for_cache_sync()
            parts.append(part)

        async def complete() -> None:
            async with asyncio.timeout(30):
                while True:
                    keys = [obj.key for part in parts for obj in part.list()]
                    assert len(keys) == len(set(keys))
                    if len(keys) == 60 and all(it.list() for it in parts):
                        return

                    await asyncio.sleep(0.05)

        for name in "abc":
            await add(all_of_them, name)

        await complete()
        other = AsyncExitStack()
        await add(other, "d")
        await complete()
        counts = [len(it.list()) for it in parts]
        assert max(counts) < 30
        own = parts[-1].list()[0].key
        assert [it for it in parts if it.get(own) is not None] == [parts[-1]]
        parts.pop()
        await other.aclose()
        await complete()


async def test_controller_whose_shards_do_not_run_fails_with_advice(
    server: APIServer,
) -> None:
    client = server.client()
    async with client:
        factory = Manager(client).factory
        shards = Shards("maps", client, ranges=RANGES, namespace="ops", identity="a")
        controller = Controller(
            "maps",
            Notes(),
            for_=factory.informer(CONFIG_MAPS),
            shards=shards,
        )
        async with factory:
            with pytest.raises(
                OptionsError, match="shards maps do not run: enter them"
            ):
                await controller.run()
