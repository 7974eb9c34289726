"""Runs of sharded controllers: beside others, again, and ended at any moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, config_map
from fleet_helpers import Fleet
from leader_helpers import MemoryLease, MemoryLock, elector

from aioinformer import (
    Controller,
    Manager,
    ReconcileRequest,
    Shards,
    SharedInformerFactory,
)
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, LEASES, SECRETS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.controller import Context


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for number in range(20):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))
            server.create(SECRETS, config_map(f"secret-{number}"))

        yield server


async def nothing(name: str, request: ReconcileRequest, ctx: Context) -> None:
    pass


def holders(server: APIServer) -> list[str]:
    leases = server.objects(LEASES)
    names = [it["metadata"]["name"] for it in leases if it["spec"]["holderIdentity"]]
    return [it for it in names if it not in ("maps", "secrets")]  # that of the group


async def test_sharded_controller_runs_beside_another_group_and_a_leader(
    server: APIServer,
) -> None:
    lease, leading, sharded = MemoryLease(), [Notes(), Notes()], [Notes(), Notes()]
    managers = list[Manager]()
    for number in range(2):
        client = server.client()
        manager = Manager(client, elector=elector(MemoryLock(lease, f"e-{number}")))
        managers.append(manager)
        for group, resource in (("maps", CONFIG_MAPS), ("secrets", SECRETS)):
            shards = Shards(
                group, client, ranges=8, namespace="ops", identity=f"r-{number}"
            )
            manager.add(
                Controller(
                    group,
                    sharded[number],
                    for_=manager.informer(resource),
                    shards=shards,
                )
            )

        whole = manager.informer(CONFIG_MAPS, name="all maps")
        manager.add(Controller("all", leading[number], for_=whole))

    async with managers[0], managers[1]:
        await asyncio.sleep(30)
        assert sorted(len(it.names) for it in leading) == [0, 20]
        for it in (*sharded, *leading):
            it.names.clear()

        for number in range(20):
            server.patch(CONFIG_MAPS, f"map-{number}", {"data": {"a": "1"}})
            server.patch(SECRETS, f"secret-{number}", {"data": {"a": "MQ=="}})

        await asyncio.sleep(1)
        assert sorted(len(it.names) for it in leading) == [0, 20]
        assert len({*sharded[0].names, *sharded[1].names}) == 40
        assert len(sharded[0].names) + len(sharded[1].names) == 40
        assert sharded[0].names
        assert sharded[1].names

    assert holders(server) == []


async def test_sharded_controller_runs_again(server: APIServer) -> None:
    client, notes = server.client(), Notes()
    factory = SharedInformerFactory(client)
    shards = Shards("maps", client, ranges=8, namespace="ops")
    maps = factory.informer(CONFIG_MAPS)
    controller = Controller("maps", notes, for_=maps, shards=shards)
    async with client, factory:
        for _ in range(2):
            async with shards:
                for _ in range(2):
                    async with controller:
                        await asyncio.sleep(15)
                        assert len(notes.names) == 20

                    notes.names.clear()
                    await asyncio.sleep(3)
                    assert maps.store.list_keys() == []

            assert holders(server) == []


async def test_user_queues_requests_of_own_objects_only(server: APIServer) -> None:
    done = list[tuple[str, str]]()

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        done.append((name, request.name))

    fleet = Fleet(server, act)
    a = await fleet.start("a")
    b = await fleet.start("b")
    await fleet.settled()
    await asyncio.sleep(1)
    done.clear()
    for name in (*(f"map-{it}" for it in range(20)), "absent"):
        for member in (a, b):
            member.controller.queue.add(ReconcileRequest("default", name))

    await asyncio.sleep(1)
    assert len(done) == 20
    for name, key in done:
        assert fleet.members[name].maps.store.get_by_key(f"default/{key}")

    for member in (a, b):
        status = member.controller.status()
        assert (status.queued, status.delayed, status.running) == (0, 0, ())
        await fleet.stop(member.name)


@pytest.mark.parametrize("hurried", [False, True])
async def test_sharded_controller_ends_at_any_moment(
    server: APIServer, *, hurried: bool
) -> None:
    ended = 0

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> Any:
        nonlocal ended
        try:
            await asyncio.sleep(0.3)
        finally:
            await asyncio.sleep(0.1)
            ended += 1

    for number in range(8):
        fleet = Fleet(server, act, daemons=[daemon], every=1)
        member = await fleet.start(f"r-{number}")
        await asyncio.sleep(10.5 + number * 0.83)
        if hurried:
            stop = asyncio.create_task(fleet.stop(member.name))
            await asyncio.sleep(0.01)
            stop.cancel()
            await asyncio.wait({stop})
        else:
            await fleet.stop(member.name)

        assert fleet.working == {}
        assert fleet.problems == []
        assert hurried or holders(server) == []
        for lease in server.objects(LEASES):
            server.delete(LEASES, lease["metadata"]["name"], namespace="ops")

    assert ended > 20


async def daemon(request: ReconcileRequest, ctx: Context) -> None:
    await asyncio.sleep(1e6)


async def test_informer_that_cannot_follow_a_group_is_refused(
    server: APIServer, tmp_path: Path
) -> None:
    client = server.client()
    shards = Shards("maps", client, namespace="ops")
    several = SharedInformerFactory(client, namespace=["a", "b"])
    cached = SharedInformerFactory(client, cache_dir=tmp_path)
    for factory in (several, cached):
        maps = factory.informer(CONFIG_MAPS)
        for _ in range(2):
            with pytest.raises(OptionsError, match="selection"):
                Controller("maps", Notes(), for_=maps, shards=shards)
