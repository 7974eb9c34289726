"""`Manager`: runnables, order and status."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, Slow, config_map, elector_of, managed
from informer_helpers import running, settle
from leader_helpers import MemoryLease, MemoryLock, forever, hang, now

from aioinformer import (
    Client,
    Controller,
    LeaderElector,
    Manager,
    SharedInformerFactory,
)
from aioinformer.errors import NotSynced, OptionsError, WrongLoop
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        yield server


class Notice:
    """Runnable that records its start and end."""

    def __init__(self, record: list[str], name: str) -> None:
        self.record = record
        self.name = name

    async def run(self) -> None:
        self.record.append(f"{self.name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            self.record.append(f"{self.name} ends")


# ---------------------------------------------------------------- what it runs


async def test_manager_runs_controller_with_client_and_factory(
    server: APIServer,
) -> None:
    async def reconcile(request: Any, ctx: Any) -> None:
        body = {"data": {"seen": "yes"}}
        if ctx.lister.get(request.key).at("data.seen") != "yes":
            await ctx.client.patch(
                CONFIG_MAPS, request.name, body, namespace=request.namespace
            )

    client = server.client()
    async with Manager(client) as manager:
        maps = manager.informer("v1", "configmaps")
        manager.add(Controller("maps", reconcile, for_=maps))
        async with running(manager.run()):
            await server.until(lambda: seen(server) == "yes")
            assert manager.informers == manager.lasting == (maps,)

    assert not client.entered
    assert maps.status.phase == "stopped"


def seen(server: APIServer) -> object:
    found = server.get(CONFIG_MAPS, "a", namespace="default")
    return (found.get("data") or {}).get("seen")


async def test_run_starts_manager(server: APIServer) -> None:
    notes = Notes()
    manager = managed(server, notes)
    async with running(manager.run()):
        while not notes.names:
            await asyncio.sleep(0.01)

    assert not manager.running


async def test_runnable_added_while_running_starts_at_once(server: APIServer) -> None:
    notes, record = Notes(), list[str]()
    async with Manager(server.client()) as manager:
        await asyncio.sleep(60)
        manager.add(Notice(record, "early"), leader_only=False)
        maps = manager.informer(CONFIG_MAPS)
        await asyncio.sleep(60)
        assert record == ["early begins"]
        manager.add(Controller("maps", notes, for_=maps))
        manager.add(Notice(record, "late"))
        await asyncio.sleep(1)
        assert record == ["early begins", "late begins"]
        assert notes.names == ["a"]

    assert record[2:] == ["late ends", "early ends"]


async def test_manager_starts_in_order_and_stops_in_reverse(server: APIServer) -> None:
    record: list[str] = []
    lease = MemoryLease()
    elector = elector_of(lease, "me", on_new_leader=lambda it: record.append(f"<{it}>"))
    server.faults.add(Refuse(verb="list", status=500, times=1))  # it takes a second
    manager = Manager(server.client(), elector=elector)
    maps = manager.informer(CONFIG_MAPS)

    async def working() -> None:
        assert maps.has_synced
        assert elector.is_leader
        await Notice(record, "leader").run()

    async def serving() -> None:
        assert not maps.has_synced
        await Notice(record, "server").run()

    manager.add(working)
    manager.add(serving, leader_only=False)
    async with manager:
        await asyncio.sleep(10)

    assert record == [
        *("server begins", "<me>", "leader begins"),
        *("leader ends", "<>", "server ends"),
    ]


async def test_manager_without_leader_work_does_not_lead(server: APIServer) -> None:
    lease = MemoryLease()
    async with Manager(server.client(), elector=elector_of(lease, "me")) as manager:
        manager.add(forever, leader_only=False)
        await asyncio.sleep(60)
        assert lease.writes == []
        assert manager.not_ready() == {}, "it need not reach the Lease"
        manager.add(Notice([], "work"))
        assert "not been read" in manager.not_ready()["manager"]
        await settle()
        assert lease.holders == ["me"]
        assert manager.not_ready() == {}


async def test_controller_of_every_replica_needs_no_leadership(
    server: APIServer,
) -> None:
    notes, lease = Notes(), MemoryLease()
    server.faults.add(Refuse(verb="list", status=500, times=1))
    manager = managed(server, notes, leader_only=False, elector=elector_of(lease, "me"))
    async with manager:
        await asyncio.sleep(10)
        assert notes.names == ["a"]
        assert notes.contexts[0].client._elector is None, "nothing refuses its writes"

    assert lease.writes == []


@pytest.mark.parametrize("leader_only", [True, False])
async def test_controllers_begin_after_all_caches_are_synced(
    server: APIServer, caplog: pytest.LogCaptureFixture, leader_only: bool
) -> None:
    notes, manager = Notes(), Manager(server.client())
    server.faults.add(Refuse(resource="pods", verb="list", status=403, times=None))
    pods = manager.informer(PODS)
    controller = Controller("maps", notes, for_=manager.informer(CONFIG_MAPS))
    manager.add(controller, leader_only=leader_only)
    async with manager:
        await asyncio.sleep(40)
        assert notes.names == []
        assert "controllers are waiting for caches: not synced: pods: " in caplog.text
        server.faults.clear()
        await pods.wait_synced(timeout=100, fail_fast=False)
        await asyncio.sleep(1)
        assert notes.names == ["a"]


@pytest.mark.parametrize("leader_only", [True, False])
async def test_manager_fails_after_the_shortest_cache_sync_timeout(
    server: APIServer, leader_only: bool
) -> None:
    manager = Manager(server.client())
    server.faults.add(Refuse(resource="pods", verb="list", status=403, times=None))
    manager.informer(PODS)
    for name, seconds in {"ever": None, "slow": 300, "quick": 90}.items():
        maps = manager.informer(CONFIG_MAPS)
        controller = Controller(name, Notes(), for_=maps, cache_sync_timeout=seconds)
        manager.add(controller, leader_only=leader_only)

    with pytest.raises(NotSynced, match=r"pods: .*403 Forbidden"):
        await manager.run()

    assert asyncio.get_running_loop().time() == pytest.approx(90, abs=1)


# ---------------------------------------------------------------- whose things are whose


async def test_manager_does_not_leave_entered_client_and_factory(
    server: APIServer,
) -> None:
    async with server.client() as client:
        factory = SharedInformerFactory(client, namespace="default")
        pods = factory.informer(PODS)
        async with factory:
            async with Manager(client, factory=factory) as manager:
                await manager.wait_for_cache_sync(timeout=10)
                assert manager.informer(PODS) is pods

            assert factory.running
            assert pods.lister.list() == []

        assert client.entered


async def test_manager_leaves_factory_it_entered(server: APIServer) -> None:
    client = server.client()
    factory = SharedInformerFactory(client, namespace="default")
    async with Manager(client, factory=factory):
        assert factory.running

    assert not factory.running


# ---------------------------------------------------------------- how it is doing


async def test_not_ready_names_informers_and_manager(server: APIServer) -> None:
    manager = managed(server, Notes())
    assert set(manager.not_ready()) == {"configmaps", "manager"}
    assert (
        repr(manager)
        == "<Manager idle leader_only=<Runnables 1> all_replicas=<Runnables 1>>"
    )

    async with manager:
        await manager.wait_for_cache_sync(timeout=10)
        assert manager.not_ready() == {}
        assert repr(manager).startswith("<Manager running ")

    assert manager.not_ready() == {"configmaps": "stopped", "manager": "not running"}
    assert manager.why_dead() == ""
    assert repr(manager).startswith("<Manager stopped ")


async def test_informer_that_does_not_run_is_not_ready(server: APIServer) -> None:
    notes = Notes()
    async with server.client() as client:
        forgotten = SharedInformerFactory(client).informer(CONFIG_MAPS)
        manager = Manager(client)
        manager.add(Controller("forgetful", notes, for_=forgotten))
        async with manager:
            await asyncio.sleep(10)
            assert manager.not_ready() == {
                "configmaps": "idle, not started yet",
            }

    assert notes.names == []


async def test_candidate_is_ready(server: APIServer) -> None:
    lease, notes = MemoryLease(), Notes()
    async with elector_of(lease, "other").leading():
        manager = managed(server, notes, elector=elector_of(lease, "me"))
        async with manager:
            await asyncio.sleep(60)
            assert manager.not_ready() == {}
            assert notes.names == []
            assert manager.informers[0].has_synced, "its cache is warm"


async def test_work_that_outlives_lease_makes_manager_dead(
    server: APIServer,
) -> None:
    lease, stuck = MemoryLease(), Slow(end=100.0)
    elector = elector_of(lease, "me")
    lock: Any = elector._lock
    manager = managed(server, stuck, elector=elector)
    async with manager:
        await stuck.begun.wait()
        lost = now()
        lock.fault = hang
        await asyncio.sleep(30)
        assert manager.why_dead() == "", "20 s are left to it"
        await asyncio.sleep(10)
        why = "the leader's work still runs after its lease expired"
        assert manager.why_dead() == why
        assert manager.not_ready() == {"manager": why}
        lock.fault, sent = None, len(lock.sent)
        while manager.why_dead():
            assert len(lock.sent) == sent, "it does not wait to lead"
            await asyncio.sleep(1)

        assert now() - lost == pytest.approx(110, abs=3)
        assert manager.not_ready() == {}
        stuck.begun.clear()
        await stuck.begun.wait()  # it leads again
        stuck.end = 0.0


async def hang_with(port: int) -> None:
    await asyncio.Event().wait()


# ---------------------------------------------------------------- misuse


class Plain:
    def run(self) -> None: ...


class Greedy:
    async def run(self, port: int) -> None: ...


class Part:
    async def run(self) -> None: ...


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda: None, id="lambda"),
        pytest.param(print, id="builtin"),
        pytest.param(Plain(), id="plain-run"),
        pytest.param(Greedy(), id="run-with-arguments"),
        pytest.param(hang_with, id="function-with-arguments"),
        pytest.param(Part, id="class"),
    ],
)
async def test_manager_refuses_invalid_runnable(part: Any) -> None:
    manager = Manager(Client.from_url("http://127.0.0.1:1"))
    with pytest.raises(
        OptionsError, match=r"a manager runs|a runnable must be callable as run\(\)"
    ):
        manager.add(part)


async def test_manager_accepts_partial_of_coroutine_function() -> None:
    manager = Manager(Client.from_url("http://127.0.0.1:1"))
    manager.add(partial(hang_with, 8080))
    manager.add(Part())
    manager.add(Part().run)

    assert (
        repr(manager)
        == "<Manager idle leader_only=<Runnables 3> all_replicas=<Runnables 0>>"
    )


async def test_manager_refuses_duplicate_controllers(server: APIServer) -> None:
    manager = Manager(server.client())
    with pytest.raises(
        OptionsError, match="a manager runs controllers, coroutine func"
    ):
        manager.add(3)  # type: ignore[arg-type]

    assert (
        repr(manager)
        == "<Manager idle leader_only=<Runnables 0> all_replicas=<Runnables 0>>"
    )
    maps = manager.informer(CONFIG_MAPS)
    controller = Controller("maps", Notes(), for_=maps)
    manager.add(controller)
    with pytest.raises(OptionsError, match="controller maps was already added"):
        manager.add(controller, leader_only=False)

    with pytest.raises(OptionsError, match="has another controller named maps"):
        manager.add(Controller("maps", Notes(), for_=maps))


async def test_manager_refuses_other_than_client() -> None:
    with pytest.raises(OptionsError, match="a Client"):
        Manager("https://kubernetes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"elector": MemoryLock(MemoryLease(), "a")}, "elector= takes a LeaderElector"),
        ({"elector": LeaderElector}, "elector= takes a LeaderElector, not <class"),
        ({"factory": "shop"}, "factory= takes a SharedInformerFactory, not 'shop'"),
        ({"drain_timeout": -1}, "drain_timeout must not be negative: -1"),
        ({"metrics": PrometheusSink}, r"such as PrometheusSink\(\), not <class"),
        ({"metrics": "prometheus"}, "metrics= takes an object with enabled, count"),
    ],
)
async def test_manager_refuses_invalid_options(
    server: APIServer, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(OptionsError, match=match):
        Manager(server.client(), **options)


async def test_manager_runs_only_once(server: APIServer) -> None:
    manager = Manager(server.client())
    async with manager:
        with pytest.raises(OptionsError, match="is already running"):
            await manager.start()

    with pytest.raises(OptionsError, match="runs only once"):
        await manager.start()

    await manager.run()  # it has ended
    with pytest.raises(OptionsError, match="cannot add to a manager"):
        manager.add(forever)


async def test_manager_shut_down_before_start_cannot_start(
    server: APIServer,
) -> None:
    manager = Manager(server.client())
    await manager.shutdown()
    with pytest.raises(OptionsError, match="runs only once"):
        await manager.run()


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_manager_refuses_other_loop(server: APIServer) -> None:
    async with Manager(server.client()) as manager:
        found: list[BaseException] = []

        async def elsewhere() -> None:
            for call in (manager.start, manager.shutdown):
                try:
                    await call()
                except WrongLoop as exc:
                    found.append(exc)

            try:
                manager.add(forever)
            except WrongLoop as exc:
                found.append(exc)

            assert manager.not_ready() == {}

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(found) == 3


def test_manager_advises_on_names_that_do_not_fit() -> None:
    manager: Any = Manager(Client.from_url("http://127.0.0.1:1"))

    with pytest.raises(TypeError, match=r"Write informer\('apps/v1', 'deployments'\)"):
        manager.informer("apps", "v1", "deployments")

    with pytest.raises(TypeError, match="Write label_selector= instead of selector="):
        manager.informer("v1", "pods", selector="app=web")
