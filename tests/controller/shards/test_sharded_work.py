"""Sharded controllers: what counts as work on a range, and where work must not begin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Notes, config_map
from fleet_helpers import Fleet
from shards_helpers import now

from aioinformer import (
    Client,
    Controller,
    ReconcileRequest,
    Shards,
    SharedInformerFactory,
)
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller import Context


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        for number in range(40):
            server.create(CONFIG_MAPS, config_map(f"map-{number}"))

        yield server


async def ends(fleet: Fleet) -> None:
    for name in tuple(fleet.members):
        await fleet.stop(name)

    assert fleet.problems == []


async def test_range_stays_until_cancelled_work_of_a_stopped_controller_has_ended(
    server: APIServer,
) -> None:
    """Also if that takes longer than the drain of the controller."""
    ended = dict[str, float]()

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        try:
            await asyncio.sleep(1000 if name == "a" else 0)
        except asyncio.CancelledError:
            await asyncio.sleep(4)
            raise

        ended[request.key] = now()

    fleet = Fleet(server, act, drain_timeout=1, concurrency=50)
    a = await fleet.start("a")
    await fleet.settled()
    await asyncio.sleep(1)
    assert len(fleet.working) == 40
    await fleet.start("b")
    began = now()
    await a.manager.remove(a.controller)
    assert now() - began == pytest.approx(5, abs=0.1)
    assert len(ended) < 40
    await asyncio.sleep(5)
    assert len(ended) == 40
    await ends(fleet)


async def test_range_stays_until_writes_of_its_reconciles_are_shown(
    server: APIServer,
) -> None:
    """The informer of the next owner is about as far."""

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        if writing and name == "a":
            await ctx.client.patch(
                CONFIG_MAPS,
                request.name,
                {"data": {"by": name}},
                namespace=request.namespace,
            )

    writing = False
    fleet = Fleet(server, act, concurrency=50)
    a = await fleet.start("a")
    await fleet.settled()
    await asyncio.sleep(1)
    server.faults.add(Stall(verb="watch", resource="configmaps", times=None))
    a.link.cut("fin")
    await asyncio.sleep(5)
    writing = True
    for number in range(40):
        a.controller.queue.add(ReconcileRequest("default", f"map-{number}"))

    await asyncio.sleep(0.1)
    assert a.controller.status().unshown == 40
    numbers = {a.shards.range_of(it) for it in a.maps.store.list()}
    b = await fleet.start("b")
    began = now()
    async with asyncio.timeout(30):
        while not b.shards.held & numbers:
            await asyncio.sleep(0.1)

    assert now() - began > 8
    server.faults.clear()
    a.link.cut("fin")
    b.link.cut("fin")
    await fleet.settled()
    await ends(fleet)


async def test_daemon_that_ignores_its_cancellation_is_cancelled_again(
    server: APIServer,
) -> None:
    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        pass

    async def daemon(request: ReconcileRequest, ctx: Context) -> None:
        async with fleet.at_work("?", "daemon", ctx):
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                await asyncio.sleep(1e6)

    fleet = Fleet(server, act, daemons=[daemon], drain_timeout=1)
    a = await fleet.start("a")
    await fleet.settled()
    await fleet.start("b")
    await fleet.settled(30)
    a.link.silence()
    await asyncio.sleep(20)
    assert a.shards.status().state == "joining"
    a.link.mend()
    await fleet.settled()
    await ends(fleet)


async def test_second_controller_of_an_informer_takes_nothing_from_the_first(
    server: APIServer,
) -> None:
    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        pass

    fleet, lost, notes = Fleet(server, act), list[str](), Notes()
    a = await fleet.start("a")
    await fleet.settled()
    a.maps.add_event_handler(on_delete=lambda obj: lost.append(obj.name))
    second = Controller("audit", notes, for_=a.maps, shards=a.shards)
    await asyncio.sleep(1)
    a.manager.add(second)
    await asyncio.sleep(1)
    assert len(notes.names) == 40
    await a.manager.remove(second)
    await asyncio.sleep(1)
    assert lost == []
    await fleet.settled()
    await ends(fleet)


async def test_stopped_controller_leaves_no_lease_and_no_object(
    server: APIServer,
) -> None:
    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        pass

    fleet = Fleet(server, act)
    a = await fleet.start("a")
    await fleet.settled()
    for _ in range(2):
        await a.manager.remove(a.controller)
        await asyncio.sleep(3)
        assert a.keys() == set()
        assert a.shards.held == frozenset()
        a.manager.add(a.controller)
        await fleet.settled()

    await ends(fleet)


async def test_object_that_is_deleted_while_its_range_moves_is_reconciled(
    server: APIServer,
) -> None:
    gone = set[str]()

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        if ctx.lister.get(request.key) is None:
            gone.add(request.name)
        else:
            await asyncio.sleep(2)

    fleet = Fleet(server, act, concurrency=50, every=1)
    a = await fleet.start("a")
    await fleet.settled()
    b = await fleet.start("b")
    while len(a.shards.held) > 8:
        await asyncio.sleep(0.1)

    uids = {it.uid for it in a.maps.store.list()}
    numbers = {a.shards.range_of(it) for it in uids}
    assert numbers - a.shards.held - b.shards.held
    for number in range(40):
        server.delete(CONFIG_MAPS, f"map-{number}")

    await asyncio.sleep(10)
    assert len(gone) == 40
    await ends(fleet)


async def test_object_that_left_the_selection_is_reconciled(server: APIServer) -> None:
    seen = list[tuple[str, bool]]()

    async def act(name: str, request: ReconcileRequest, ctx: Context) -> None:
        seen.append((request.name, ctx.lister.get(request.key) is not None))

    for number in range(40):
        server.patch(CONFIG_MAPS, f"map-{number}", {"metadata": {"labels": {"a": ""}}})

    fleet = Fleet(server, act, selection={"label_selector": "a"})
    await fleet.start("a")
    await fleet.start("b")
    await fleet.settled()
    await asyncio.sleep(1)
    seen.clear()
    server.patch(CONFIG_MAPS, "map-1", {"metadata": {"labels": {"a": None}}})
    await asyncio.sleep(1)
    assert seen == [("map-1", False)]
    await ends(fleet)


@pytest.mark.parametrize("case", ["for", "owns", "owns of its shards"])
@pytest.mark.parametrize("sharded_first", [True, False])
def test_controller_that_needs_all_objects_refuses_a_sharded_informer(
    case: str, *, sharded_first: bool
) -> None:
    client = Client.from_url("http://127.0.0.1:1")
    factory = SharedInformerFactory(client)
    maps, secrets = factory.informer(CONFIG_MAPS), factory.informer(SECRETS)
    shards = Shards("maps", client, namespace="ops")

    def sharded() -> Controller:
        return Controller("sharded", Notes(), for_=maps, shards=shards)

    def whole() -> Controller:
        if case == "for":
            return Controller("whole", Notes(), for_=maps)

        group = shards if case == "owns of its shards" else None
        return Controller("whole", Notes(), for_=secrets, owns=[maps], shards=group)

    first, second = (sharded, whole) if sharded_first else (whole, sharded)
    first()
    with pytest.raises(OptionsError, match="whole needs all objects of informer conf"):
        second()


def test_controller_refuses_to_watch_the_informer_that_it_shards() -> None:
    client = Client.from_url("http://127.0.0.1:1")
    maps = SharedInformerFactory(client).informer(CONFIG_MAPS)
    shards = Shards("maps", client, namespace="ops")
    with pytest.raises(OptionsError, match="needs all objects of informer"):
        Controller("maps", Notes(), for_=maps, owns=[maps], shards=shards)
