"""Ranges that are owned, and whose objects an informer has: when they become active."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from controller_helpers import config_map
from fleet_helpers import RANGES, Fleet
from metrics_helpers import PlainSink
from shards_helpers import now

from aioinformer import Shards, SharedInformerFactory
from aioinformer.controller import set_controller_reference
from aioinformer.controller.shards.active_ranges import ActiveRanges
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Delay, Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller import Context, ReconcileRequest


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for number in range(40):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        yield server


async def nothing(name: str, request: ReconcileRequest, ctx: Context) -> None:
    """Reconcile nothing."""


async def ends(fleet: Fleet) -> None:
    for name in tuple(fleet.members):
        await fleet.stop(name)

    assert fleet.problems == []


async def test_listed_range_becomes_active_while_further_ones_are_added(
    server: APIServer,
) -> None:
    """Each change of the group would delay it further, such as a rolling upgrade."""
    activated = dict[int, float]()
    async with server.client() as client:
        factory = SharedInformerFactory(client)
        shards = Shards("maps", client, ranges=RANGES, namespace="ops", identity="a")
        ranges = ActiveRanges(
            shards,
            factory.informer(CONFIG_MAPS),
            lambda numbers: activated.update(dict.fromkeys(numbers, now() - began)),
        )
        async with factory:
            await factory.wait_for_cache_sync()
            running = asyncio.create_task(ranges.run())
            server.faults.add(
                Delay(resource="configmaps", verb="list", seconds=10, times=None)
            )
            began = now()
            ranges.keep(frozenset({1}))
            ranges.start(1)
            for number in range(2, 5):
                await asyncio.sleep(8)
                ranges.keep(frozenset(range(1, number + 1)))

            running.cancel()
            await asyncio.wait({running})

    assert activated == {1: pytest.approx(11, abs=1)}


async def test_outage_of_leases_leaves_the_objects_in_memory(server: APIServer) -> None:
    """Nobody works meanwhile, but readers of the informer keep what they had."""
    fleet, seen = Fleet(server, nothing), Counter[str]()
    for name in "ab":
        member = await fleet.start(name)
        member.maps.add_event_handler(
            on_event=lambda event: seen.update([type(event).__name__])
        )

    await fleet.settled()
    await asyncio.sleep(1)
    seen.clear()
    server.requests.clear()
    before = {it.name: it.keys() for it in fleet.members.values()}
    server.faults.add(Refuse(resource="leases", status=503, times=None))
    await asyncio.sleep(15)
    assert not any(it.shards.held for it in fleet.members.values())
    server.faults.clear()
    await fleet.settled()
    assert {it.name: it.keys() for it in fleet.members.values()} == before
    assert not seen
    assert not [it for it in server.requests if it.resource == "configmaps"]
    await ends(fleet)


async def test_owned_ranges_that_cannot_be_listed_make_a_replica_not_ready(
    server: APIServer,
) -> None:
    """The Leases are in order, and nobody works on the objects."""
    fleet, sink = Fleet(server, nothing), PlainSink()
    await fleet.start("a")
    b = await fleet.start("b")
    b.shards.set_metrics(sink)
    await fleet.settled()
    own = b.shards.held
    server.faults.add(
        Refuse(resource="configmaps", verb="list", status=403, times=None)
    )
    await fleet.stop("a")
    await asyncio.sleep(20)
    assert b.shards.held == frozenset(range(RANGES))
    assert b.shards.why_not_ready() == ""
    await asyncio.sleep(40)
    others = ", ".join(map(str, sorted(b.shards.held - own)))
    why = b.manager.not_ready()["shards maps"]
    assert why.startswith(f"ranges are owned but idle: {others}: configmaps has not ")
    assert why.count("403 Forbidden") == 1
    assert set(b.shards.status().inactive) == b.shards.held - own
    gauges = {name: it for (name, _), it in sink.gauges.items()}
    assert gauges["aioinformer_shard_owned_ranges"] == RANGES
    assert gauges["aioinformer_shard_active_ranges"] == len(own)
    server.faults.clear()
    await fleet.settled()
    await asyncio.sleep(0.5)
    gauges = {name: it for (name, _), it in sink.gauges.items()}
    assert gauges["aioinformer_shard_active_ranges"] == RANGES
    assert b.manager.not_ready() == {}
    assert b.shards.status().inactive == {}
    await ends(fleet)


@pytest.mark.parametrize("lag", [0.0, 8.0, 30.0])
async def test_new_owner_waits_until_it_sees_the_writes_of_the_previous_one(
    lag: float, server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its watch of children may be late, as it is another connection."""
    made = Counter[str]()

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        obj = ctx.lister.get(request.key)
        if obj is None or not moving:
            return

        children = fleet.members[name].manager.informers[1].store.list()
        if any(
            it["uid"] == obj.uid for child in children for it in child.owner_references
        ):
            return

        child = set_controller_reference(obj, {"metadata": {"generateName": "c-"}})
        await ctx.client.create(SECRETS, child, namespace="default")
        made[request.key] += 1

    moving, fleet = False, Fleet(server, act, owns=[SECRETS], concurrency=50)
    a = await fleet.start("a")
    await fleet.settled()
    await asyncio.sleep(1)
    if lag:
        server.faults.add(
            Stall(resource="secrets", verb="watch", after_bytes=0, seconds=lag, times=1)
        )

    b = await fleet.start("b")
    while not b.keys():
        await asyncio.sleep(0.05)

    await asyncio.sleep(2.3)  # ranges move 3 s after the replica is seen
    moving = True
    for number in range(40):
        server.patch(CONFIG_MAPS, f"map-{number}", {"data": {"go": "1"}})

    await asyncio.sleep(0.3)
    assert not b.shards.held
    began = now()
    while not b.shards.held or b.shards.status().inactive:
        await asyncio.sleep(0.05)

    assert now() - began < {0.0: 5, 8.0: 9, 30.0: 14}[lag]
    await asyncio.sleep(2)
    assert set(made) == a.keys() | b.keys()
    late = any("does not show" in it for it in caplog.messages)
    assert late == (lag == 30)
    assert late or set(made.values()) == {1}
    await ends(fleet)
