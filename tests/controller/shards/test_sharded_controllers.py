"""Sharded controllers: several replicas in one loop work on the objects of one server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, config_map
from shards_helpers import now

from aioinformer import Controller, Manager
from aioinformer.controller.shards.shards import Shards
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller import Context, ReconcileRequest


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for number in range(60):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        yield server


class Fleet:
    """Replicas, and which of them works on each key."""

    def __init__(self, server: APIServer) -> None:
        self.server = server
        self.working: dict[str, str] = {}
        self.done: dict[str, list[str]] = defaultdict(list)
        self.managers: dict[str, Manager] = {}
        self.seconds = 0.1

    async def work(self, replica: str, request: ReconcileRequest, ctx: Context) -> None:
        key = request.key
        assert key not in self.working, f"{replica} and {self.working[key]}: {key}"
        self.working[key] = replica
        try:
            await asyncio.sleep(self.seconds)
            self.done[key].append(replica)
        finally:
            del self.working[key]

    @asynccontextmanager
    async def replica(self, name: str, **options: Any) -> AsyncIterator[Manager]:
        client = self.server.client()
        manager = Manager(client)
        shards = Shards("maps", client, ranges=16, namespace="ops", identity=name)

        async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
            await self.work(name, request, ctx)

        maps = manager.informer(CONFIG_MAPS)
        manager.add(
            Controller(
                "maps", reconcile, for_=maps, shards=shards, concurrency=50, **options
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
        (informer,) = self.managers[name].informers
        return set(informer.store.list_keys())

    async def balanced(self) -> None:
        """Wait until each object is in the store of one replica, and all share them."""
        names = list(self.managers)
        async with asyncio.timeout(60):
            while True:
                held = [it.shards[0].held for it in self.managers.values()]
                parts = [self.keys(name) for name in names]
                if (
                    all(held)
                    and sum(map(len, held)) == 16
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


async def test_controller_whose_shards_do_not_run_fails_with_advice(
    server: APIServer,
) -> None:
    client = server.client()
    async with client:
        factory = Manager(client).factory
        shards = Shards("maps", client, ranges=16, namespace="ops", identity="a")
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
