"""Guarantees of managers: they end together, leave nothing, and lead correctly."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, Slow, config_map, elector_of, managed
from factory_helpers import Bug, break_requests
from informer_helpers import settle
from leader_helpers import MemoryLease, MemoryLock, elector, hang, now

from aioinformer import (
    Controller,
    LeaderElector,
    Manager,
    QueueShutDown,
    SharedInformerFactory,
)
from aioinformer.controller import LeaseLock
from aioinformer.errors import InformerStopped, LeadershipLost
from aioinformer.model.resources import CONFIG_MAPS, LEASES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import Client


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        yield server


class Rig:
    """A manager with a controller, a part for every replica, and one for the leader."""

    def __init__(self, client: Client, **options: Any) -> None:
        self.client = client
        self.lease = MemoryLease()
        self.notes = Notes()
        self.record: list[str] = []
        lock = MemoryLock(self.lease, "me")
        self.lock = lock
        self.manager = Manager(client, elector=elector(lock), **options)
        maps = self.manager.informer(CONFIG_MAPS)
        self.controller = Controller("maps", self.notes, for_=maps)
        self.manager.add(self.controller)
        self.manager.add(partial(self._part, "leader"))
        self.manager.add(partial(self._part, "server"), leader_only=False)

    async def _part(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.record.append(name)

    def check_ended(self) -> None:
        """Assert that all parts have ended, in order, without further calls."""
        assert self.record == ["leader", "server"]
        assert not self.manager.running
        assert not self.client.entered
        assert {it.status.phase for it in self.manager.informers} == {"stopped"}
        assert self.manager.not_ready()["manager"].startswith("failed: ")


# ---------------------------------------------------------------- G8


@pytest.mark.parametrize("owned", [True, False], ids=["its-own", "somebody-elses"])
async def test_G8_manager_ends_with_the_error_of_a_dead_informer(
    server: APIServer, owned: bool
) -> None:
    client, alarm = server.client(), asyncio.Event()
    break_requests(client, "configmaps", when=alarm, watches_only=True)
    factory = SharedInformerFactory(client)
    rig = Rig(client, factory=factory)
    if not owned:
        await factory.start()

    asyncio.get_running_loop().call_later(30, alarm.set)
    with pytest.raises(Bug) as caught:
        async with rig.manager:
            await rig.manager.run()

    assert not hasattr(caught.value, "__notes__"), "reported once"
    assert rig.notes.names == ["a"], "it was busy"
    if not owned:
        with pytest.raises(Bug):
            await factory.shutdown()

    rig.check_ended()


async def test_G8_manager_ends_when_an_informer_dies_unsynced(
    server: APIServer,
) -> None:
    client = server.client()
    break_requests(client, "configmaps")
    rig = Rig(client)
    with pytest.raises(Bug):
        await rig.manager.run()

    assert rig.record == ["server"], "no other part had started"
    assert not rig.manager.running
    assert rig.lease.writes == []


async def test_G8_manager_ends_with_the_error_of_a_dead_controller(
    server: APIServer,
) -> None:
    rig = Rig(server.client())
    asyncio.get_running_loop().call_later(30, rig.controller.queue.shut_down)
    with pytest.raises(QueueShutDown):
        await rig.manager.run()

    rig.check_ended()


async def test_G8_manager_ends_when_leadership_is_lost_if_it_shall(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(server.client(), exit_on_loss=True)
    asyncio.get_running_loop().call_later(30, setattr, rig.lock, "fault", hang)
    with pytest.raises(LeadershipLost) as raised:
        await rig.manager.run()

    rig.check_ended()
    (end,) = [it for it in caplog.records if it.levelname == "CRITICAL"]
    assert not end.exc_info, "one line, as nothing is wrong with the program"
    assert str(raised.value) in end.getMessage()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("leader_only", [True, False])
async def test_G8_manager_ends_with_the_error_of_a_failed_part(
    server: APIServer, leader_only: bool
) -> None:
    rig, error = Rig(server.client()), ValueError("boom")

    async def fails() -> None:
        await asyncio.sleep(30)
        raise error

    rig.manager.add(fails, leader_only=leader_only)
    with pytest.raises(ValueError, match="boom") as caught:
        await rig.manager.run()

    assert caught.value is error
    rig.check_ended()


# ---------------------------------------------------------------- G9

# Each way to end a manager after it has worked for a while. A fixture looks for
# leftovers.
ENDS = ["cancelled", "cancelled-twice", "shut-down", "failed"]


@pytest.mark.parametrize("end", ENDS)
async def test_G9_manager_leaves_nothing_after_run(server: APIServer, end: str) -> None:
    before = asyncio.all_tasks()
    client, slow = server.client(), Slow(3.0)
    lock = LeaseLock(client, "copier", namespace="default")
    manager = managed(server, slow)
    manager = Manager(client, elector=LeaderElector(lock))
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", slow, for_=maps))

    async def fails() -> None:
        await slow.begun.wait()
        raise ValueError

    if end == "failed":
        manager.add(fails)

    task = asyncio.create_task(manager.run())
    await slow.begun.wait()
    if end == "shut-down":
        await manager.shutdown()
    elif end != "failed":
        for _ in range(1 + (end == "cancelled-twice")):
            task.cancel()
            await settle()

    await asyncio.wait({task})
    assert asyncio.all_tasks() == before
    assert not client.entered
    assert slow.record == ["cancelled" if end == "cancelled-twice" else "done"]
    lease = server.get(LEASES, "copier", namespace="default")
    assert not lease["spec"].get("holderIdentity"), "released"


# ---------------------------------------------------------------- G11


async def test_G11_hung_renewal_stops_the_work_at_the_deadline(
    server: APIServer,
) -> None:
    refused: list[float] = []
    lease, slow = MemoryLease(), Slow(end=2.0)

    async def reconcile(request: Any, ctx: Any) -> None:
        try:
            await slow(request, ctx)
        finally:
            # A late write.
            try:
                body = {"data": {"late": "yes"}}
                await ctx.client.patch(
                    CONFIG_MAPS, request.name, body, namespace=request.namespace
                )
            except LeadershipLost:
                refused.append(now())

    lock = MemoryLock(lease, "me")
    manager = managed(server, reconcile, elector=elector(lock), exit_on_loss=True)
    task = asyncio.create_task(manager.run())
    await slow.begun.wait()
    await asyncio.sleep(60)
    lock.fault = hang
    renewed = lease.writes[-1][0]
    while not slow.record:
        await asyncio.sleep(0.01)

    assert now() == pytest.approx(renewed + 10, abs=0.1), "it was not drained"
    with pytest.raises(LeadershipLost):
        await task

    assert refused == [pytest.approx(renewed + 12, abs=0.1)]
    assert lease.writes[-1][0] == renewed, "no write after the loss"
    assert server.get(CONFIG_MAPS, "a", namespace="default").get("data") is None


async def test_G11_leadership_lost_during_the_drain_ends_it(
    server: APIServer,
) -> None:
    lease, slow = MemoryLease(), Slow()
    lock = MemoryLock(lease, "me")
    manager = managed(server, slow, elector=elector(lock), drain_timeout=60)
    (controller,) = manager._controllers
    controller._drain_seconds = 60.0
    await manager.start()
    await slow.begun.wait()
    lock.fault = hang
    renewed = lease.writes[-1][0]
    await manager.shutdown()

    assert slow.record == ["cancelled"]
    assert now() == pytest.approx(renewed + 10, abs=0.1)


async def test_G11_another_replica_begins_after_the_work_has_ended(
    server: APIServer,
) -> None:
    lease, record = MemoryLease(), list[str]()

    def replica(name: str) -> Manager:
        manager = Manager(server.client(), elector=elector_of(lease, name))

        async def work() -> None:
            record.append(f"{name} begins")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(3)
                record.append(f"{name} ends")

        manager.add(work)
        return manager

    async with replica("b"):
        await settle()
        async with replica("a") as standby:
            await asyncio.sleep(60)
            assert record == ["b begins"]
            assert standby.not_ready() == {}
            start = now()
            # The first one is stopped below, while the other one waits.

        assert record == ["b begins"], "a standby leaves the lease alone"
        assert now() - start < 1

    async with replica("a"), replica("c"):
        await asyncio.sleep(60)

    assert record[:3] == ["b begins", "b ends", "a begins"]
    for begins, ends in zip(record[::2], record[1::2], strict=True):
        assert begins.split() == [ends.split()[0], "begins"]


# ---------------------------------------------------------------- informers


async def test_G8_manager_ends_when_the_owner_of_its_informers_stops_them(
    server: APIServer,
) -> None:
    async with server.client() as client:
        factory = SharedInformerFactory(client)
        await factory.start()
        manager = Manager(client, factory=factory)
        manager.add(Controller("maps", Notes(), for_=manager.informer(CONFIG_MAPS)))
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(30)
        await factory.shutdown()
        with pytest.raises(InformerStopped):
            await task


async def test_G8_manager_reports_an_informer_that_dies_during_shutdown(
    server: APIServer,
) -> None:
    class Dying(SharedInformerFactory):
        async def shutdown(self) -> None:
            await super().shutdown()
            raise Bug("late")

    client = server.client()
    manager = Manager(client, factory=Dying(client))
    await manager.start()
    with pytest.raises(Bug, match="late"):
        await manager.shutdown()

    assert not client.entered
