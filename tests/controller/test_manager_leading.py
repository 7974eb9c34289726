"""`Manager`: loses leadership and leads again, adds and removes runnables."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, Slow, config_map
from informer_helpers import settle
from leader_helpers import MemoryLease, MemoryLock, elector, failing, hang, now
from metrics_helpers import PlainSink

from aioinformer import Controller, Manager
from aioinformer.errors import LeadershipLost, OptionsError, ServerError
from aioinformer.model.resources import CONFIG_MAPS, EVENTS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        yield server


class Part:
    """A runnable that records when it begins and ends, with its name."""

    def __init__(self, record: list[str], name: str, *, end: float = 0.0) -> None:
        self.record = record
        self.name = name
        self.end = end

    async def run(self) -> None:
        self.record.append(f"{self.name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.end)
            self.record.append(f"{self.name} ends")


class Rig:
    """A manager whose leadership can be taken away and given back."""

    def __init__(self, server: APIServer, **options: Any) -> None:
        self.lease = MemoryLease()
        self.lock = MemoryLock(self.lease, "me")
        self.sink = PlainSink()
        self.record: list[str] = []
        self.elector = elector(self.lock, metrics=self.sink)
        self.manager = Manager(server.client(), elector=self.elector, **options)
        self.maps = self.manager.informer(CONFIG_MAPS)

    def controller(self, reconcile: Any, name: str = "maps") -> Controller:
        return Controller(name, reconcile, for_=self.maps)

    def part(self, name: str, *, leader_only: bool = True, end: float = 0.0) -> Part:
        part = Part(self.record, name, end=end)
        self.manager.add(part, leader_only=leader_only)
        return part

    async def lose(self) -> None:
        """Return when leadership is lost. Renewals hang until `recover()`."""
        self.lock.fault = hang
        while self.elector.is_leader:
            await asyncio.sleep(0.1)

    async def recover(self) -> None:
        """Return when it leads again."""
        self.lock.fault = None
        while not self.elector.is_leader:
            await asyncio.sleep(0.1)

        await settle()


# ---------------------------------------------------------------- leading again


async def test_leaders_runnables_run_again_and_others_continue(
    server: APIServer,
) -> None:
    rig, notes, calls = Rig(server), Notes(), list[str]()

    async def once() -> None:
        calls.append("once")

    rig.manager.add(rig.controller(notes))
    rig.manager.add(once)
    rig.part("leader")
    rig.part("server", leader_only=False)
    async with rig.manager as manager:
        await settle()
        for _ in range(2):
            await asyncio.sleep(60)
            rig.record.clear()
            notes.names.clear()
            calls.clear()
            await rig.lose()
            await asyncio.sleep(30)
            assert rig.record == ["leader ends"]
            assert manager.running
            assert not manager.not_ready()
            assert not manager.why_dead()
            assert not manager.why_not_elected()
            server.patch(CONFIG_MAPS, "a", {"data": {"b": "c"}}, namespace="default")
            await settle()
            found = rig.maps.lister.get("default/a")
            assert found is not None
            assert found["data"] == {"b": "c"}
            assert notes.names == []

            await rig.recover()
            assert rig.record == ["leader ends", "leader begins"]
            assert notes.names == ["a"]
            assert calls == ["once"]

    assert rig.record[2:] == ["leader ends", "server ends"]
    assert rig.lease.record is not None
    assert rig.lease.record.holder == "", "released"


async def test_manager_waits_to_lead_only_after_the_work_has_ended(
    server: APIServer,
) -> None:
    rig = Rig(server)
    rig.part("leader", end=8.0)
    async with rig.manager:
        await asyncio.sleep(60)
        await rig.lose()
        rig.lock.fault = None
        lost, sent = now(), len(rig.lock.sent)
        await asyncio.sleep(7)
        assert rig.record == ["leader begins"]
        await asyncio.sleep(2)
        assert rig.record == ["leader begins", "leader ends"]
        assert len(rig.lock.sent) == sent
        await rig.recover()
        first, _ = rig.lock.sent[sent]
        assert 2 <= first - lost - 8 <= 4.5, "a pause, so that others are faster"


async def test_another_replica_leads_after_a_loss(server: APIServer) -> None:
    rig, other = Rig(server), Rig(server)
    other.lock = MemoryLock(rig.lease, "other")
    other.elector = elector(other.lock)
    other.manager = Manager(server.client(), elector=other.elector)
    rig.part("leader")
    other.part("other")
    async with rig.manager:
        await settle()
        async with other.manager:
            await asyncio.sleep(60)
            await rig.lose()
            await asyncio.sleep(20)
            rig.lock.fault = None
            await asyncio.sleep(60)
            assert rig.lease.holders == ["me", "other"]
            assert not rig.manager.not_ready()

        await asyncio.sleep(10)
        assert rig.lease.holders == ["me", "other", "", "me"]

    assert rig.record == ["leader begins", "leader ends"] * 2


async def test_loss_and_return_are_logged_and_measured(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(server)
    rig.part("leader")
    status = "leader_election_master_status", ("lease",)
    async with rig.manager:
        await settle()
        assert rig.sink.gauges[status] == 1
        await rig.lose()
        await settle()
        assert rig.sink.gauges[status] == 0
        await rig.recover()
        assert rig.sink.gauges[status] == 1

    lines = [it for it in caplog.records if it.name == "aioinformer.controller.manager"]
    starts = "leading, starting the leader's runnables"
    ends = "the leader's runnables have ended, waiting to lead again: "
    why = "me lost leadership of lease: the lease was not renewed in time"
    assert [it.getMessage() for it in lines] == [starts, ends + why, starts]
    assert [it.levelname for it in lines] == ["INFO", "WARNING", "INFO"]


async def test_exit_on_loss_ends_manager(server: APIServer) -> None:
    rig = Rig(server, exit_on_loss=True)
    rig.part("leader")
    rig.part("server", leader_only=False)
    task = asyncio.create_task(rig.manager.run())
    await asyncio.sleep(10)
    await rig.lose()
    with pytest.raises(LeadershipLost):
        await task

    assert rig.record[2:] == ["leader ends", "server ends"]


@pytest.mark.parametrize("exit_on_loss", [False, True])
async def test_failure_of_clean_up_after_a_loss_is_logged(
    server: APIServer, caplog: pytest.LogCaptureFixture, exit_on_loss: bool
) -> None:
    rig, begun = Rig(server, exit_on_loss=exit_on_loss), list[float]()

    async def work() -> None:
        begun.append(now())
        try:
            await asyncio.Event().wait()
        finally:
            if not rig.elector.is_leader:
                raise ServerError("unreachable", status=503)

    rig.manager.add(work)
    await rig.manager.start()
    await settle()
    await rig.lose()
    if exit_on_loss:
        with pytest.raises(LeadershipLost):  # the reason of all that follows
            await rig.manager.run()
    else:
        await rig.recover()
        assert len(begun) == 2
        await rig.manager.shutdown()

    assert "work failed while it stopped, as leadership was lost" in caplog.text


async def test_work_that_notices_the_loss_itself_does_not_end_the_manager(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    rig, begun = Rig(server), list[float]()

    async def work() -> None:
        begun.append(now())
        while True:
            rig.elector.check()
            await asyncio.sleep(0.01)

    rig.manager.add(work)
    async with rig.manager:
        await settle()
        await rig.lose()
        await rig.recover()
        assert len(begun) == 2

    assert "work failed" not in caplog.text


async def test_failure_of_a_runnable_that_leads_again_ends_manager(
    server: APIServer,
) -> None:
    rig = Rig(server)
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        if times == 2:
            raise ValueError("boom")

        await asyncio.Event().wait()

    rig.manager.add(work)
    task = asyncio.create_task(rig.manager.run())
    await asyncio.sleep(10)
    await rig.lose()
    rig.lock.fault = None
    with pytest.raises(ValueError, match="boom"):
        await task


@pytest.mark.parametrize("seconds", [0.0, 1.0, 12.0])
async def test_manager_shuts_down_while_it_does_not_lead(
    server: APIServer, seconds: float
) -> None:
    rig = Rig(server)
    rig.part("leader", end=5.0)
    async with rig.manager:
        await asyncio.sleep(10)
        await rig.lose()
        await asyncio.sleep(seconds)  # stops, or waits to lead again
        start = now()

    assert rig.record == ["leader begins", "leader ends"]
    assert now() - start <= 5


async def test_short_outage_costs_no_leadership(
    server: APIServer,
) -> None:
    rig = Rig(server)
    rig.part("leader")
    async with rig.manager:
        await asyncio.sleep(10)
        rig.lock.fault = failing(ServerError("overloaded", status=503))
        await asyncio.sleep(6)
        rig.lock.fault = None
        await asyncio.sleep(60)
        assert rig.record == ["leader begins"]


# ---------------------------------------------------------------- add


async def test_runnables_added_while_not_leading_start_with_leadership(
    server: APIServer,
) -> None:
    rig, notes = Rig(server), Notes()
    rig.part("first", end=5.0)
    async with rig.manager as manager:
        await settle()
        await rig.lose()
        await asyncio.sleep(1)
        assert rig.record == ["first begins"], "it is still stopping"
        rig.part("while it stops")
        manager.add(rig.controller(notes))
        await asyncio.sleep(10)
        rig.part("while it waits")
        rig.part("server", leader_only=False)
        await asyncio.sleep(10)
        assert rig.record[1:] == ["first ends", "server begins"]
        await rig.recover()
        begins = ["first begins", "while it stops begins", "while it waits begins"]
        assert rig.record[3:] == begins
        assert notes.names == ["a"]
        assert len(manager._leader_only._tasks) == 4


async def test_controller_added_to_a_running_manager_records_events(
    server: APIServer,
) -> None:
    rig, notes = Rig(server), list[str]()

    async def reconcile(request: Any, ctx: Any) -> None:
        notes.append(f"note {len(notes)}")
        reason = f"Seen{len(notes)}"  # others would be one series
        ctx.event(ctx.lister.get(request.key), "Normal", reason, notes[-1])

    rig.part("other")
    controller = rig.controller(reconcile)
    async with rig.manager as manager:
        await settle()
        for _ in range(2):
            manager.add(controller)
            await asyncio.sleep(5)
            await manager.remove(controller)
            assert manager.recorders == ()

        rig.manager.add(controller)
        await asyncio.sleep(5)
        await rig.lose()
        await rig.recover()
        await asyncio.sleep(5)

    events = {it.get("note", it.get("message")) for it in server.objects(EVENTS)}
    assert len(notes) == 4
    assert events == set(notes)


# ---------------------------------------------------------------- remove


async def test_removed_controller_drains_and_its_name_is_free(
    server: APIServer,
) -> None:
    rig, slow, notes = Rig(server), Slow(5.0), Notes()
    first, others = rig.controller(slow), rig.controller(notes, "others")
    rig.manager.add(first)
    rig.manager.add(others)
    async with rig.manager as manager:
        await slow.begun.wait()
        start = now()
        removal = asyncio.create_task(manager.remove(first))
        await settle()
        with pytest.raises(OptionsError, match="another controller named maps"):
            manager.add(rig.controller(slow))

        await removal
        assert slow.record == ["done"]
        assert now() - start == pytest.approx(5, abs=0.1)
        server.patch(CONFIG_MAPS, "a", {"data": {"b": "c"}}, namespace="default")
        await settle()
        assert slow.names == ["a"]
        assert notes.names == ["a", "a"]
        again = Notes()
        manager.add(rig.controller(again))
        await settle()
        assert again.names == ["a"]
        slow.seconds = 0.0
        await manager.remove(others)
        manager.add(others)
        await settle()
        assert notes.names == ["a", "a", "a"], "it runs again"


@pytest.mark.parametrize("leader_only", [True, False])
async def test_removed_runnable_ends_and_does_not_run_again(
    server: APIServer, leader_only: bool
) -> None:
    rig = Rig(server)
    rig.part("other")
    part = rig.part("part", leader_only=leader_only)
    async with rig.manager as manager:
        await settle()
        await manager.remove(part)
        assert rig.record[2:] == ["part ends"]
        await rig.lose()
        await rig.recover()
        assert rig.record[3:] == ["other ends", "other begins"]
        with pytest.raises(OptionsError, match="is not part of this manager"):
            await manager.remove(part)


async def test_runnables_can_be_removed_before_the_start_and_while_not_leading(
    server: APIServer,
) -> None:
    rig, notes = Rig(server), Notes()
    early, late = rig.part("early"), rig.part("late")
    controller = rig.controller(notes)
    rig.manager.add(controller)
    rig.part("other")
    await rig.manager.remove(early)
    async with rig.manager as manager:
        await settle()
        await rig.lose()
        await settle()
        await manager.remove(late)
        await manager.remove(controller)
        await rig.recover()

    assert [it for it in rig.record if "begins" in it] == [
        "late begins",
        "other begins",
        "other begins",
    ]
    assert notes.names == ["a"]


async def test_runnable_removed_while_it_stops_does_not_run_again(
    server: APIServer,
) -> None:
    rig = Rig(server)
    part = rig.part("part", end=5.0)
    rig.part("other")
    async with rig.manager as manager:
        await settle()
        await rig.lose()
        await asyncio.sleep(1)
        start = now()
        await manager.remove(part)
        assert now() - start == pytest.approx(4, abs=0.5)
        await rig.recover()

    assert rig.record.count("part begins") == 1
    assert rig.record.count("other begins") == 2


async def test_remove_ends_a_function_that_was_added_twice(server: APIServer) -> None:
    rig, running = Rig(server), list[int]()

    async def work() -> None:
        running.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            running.pop()

    rig.manager.add(work, name="one")
    rig.manager.add(work, name="two", leader_only=False)
    async with rig.manager as manager:
        await settle()
        assert len(running) == 2
        await manager.remove(work)
        assert not running


async def test_remove_does_not_end_another_object_that_is_equal(
    server: APIServer,
) -> None:
    @dataclass
    class Equal:
        running: bool = field(default=False, compare=False)

        async def run(self) -> None:
            self.running = True
            try:
                await asyncio.Event().wait()
            finally:
                self.running = False

    one, other = Equal(), Equal()
    assert one == other
    async with Manager(server.client()) as manager:
        manager.add(one)
        manager.add(other)
        await settle()
        await manager.remove(one)
        assert not one.running
        assert other.running


async def test_remove_accepts_a_bound_method(server: APIServer) -> None:
    rig = Rig(server)
    part = Part(rig.record, "part")
    rig.manager.add(part.run)
    async with rig.manager as manager:
        await settle()
        await manager.remove(part.run)
        assert rig.record == ["part begins", "part ends"]


async def test_reconcile_can_remove_its_own_controller(server: APIServer) -> None:
    rig, calls = Rig(server), list[str]()

    async def reconcile(request: Any, ctx: Any) -> None:
        await rig.manager.remove(controller)
        calls.append(request.name)

    controller = rig.controller(reconcile)
    rig.manager.add(controller)
    async with rig.manager as manager:
        await settle()
        assert calls == ["a"]
        manager.add(rig.controller(Notes()))  # the name is free
        assert manager.running


async def test_removal_that_exceeds_drain_timeout_is_cancelled_again(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(server, drain_timeout=3)
    part = rig.part("part", end=100.0)
    rig.part("other")
    async with rig.manager as manager:
        await settle()
        start = now()
        await manager.remove(part)
        assert now() - start == pytest.approx(3, abs=0.1)
        assert rig.record == ["part begins", "other begins"]

    assert "drain cut short after 3 s (still running: Part)" in caplog.text


async def test_failure_of_a_removed_runnable_ends_manager(server: APIServer) -> None:
    rig = Rig(server)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("boom")

    rig.manager.add(work)
    task = asyncio.create_task(rig.manager.run())
    await asyncio.sleep(10)
    await rig.manager.remove(work)
    with pytest.raises(ValueError, match="boom"):
        await task
