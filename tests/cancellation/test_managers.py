"""Managers cancelled at every await: no task remains."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Notes, elector_of
from factory_helpers import FakeClient, served
from informer_helpers import settle
from leader_helpers import MemoryLease
from task_helpers import cancelled_after

from aioinformer import Client, Controller, Manager

if TYPE_CHECKING:
    from aioinformer.controller import Context, ReconcileRequest

TURNS = 80


class Busy(Notes):
    """A reconcile that never returns, and can delay its cancellation."""

    async def act(self, request: ReconcileRequest, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)


def managing(client: Client, lease: MemoryLease) -> Manager:
    manager = Manager(client, elector=elector_of(lease, "me"))
    pods = manager.informer("v1", "pods")
    manager.add(Controller("pods", Busy(), for_=pods))
    manager.add(asyncio.Event().wait, leader_only=False, name="server")
    return manager


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_manager_cancelled_at_any_await_leaves_nothing(times: int) -> None:
    before = asyncio.all_tasks()
    for turns in range(TURNS):
        client, lease = FakeClient(), MemoryLease()
        manager = managing(client, lease)
        task = await cancelled_after(manager.run(), turns, times)
        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert not client.entered
        assert not manager.running


async def test_manager_shut_down_at_any_await_of_its_start_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    given_up = 0
    for turns in range(TURNS):
        client = FakeClient()
        manager = managing(client, MemoryLease())
        task = asyncio.create_task(manager.start())
        for _ in range(turns):
            await asyncio.sleep(0)

        await manager.shutdown()
        await asyncio.wait({task})
        given_up += task.exception() is not None
        assert asyncio.all_tasks() == before
        assert not client.entered
        assert not manager.running

    assert 0 < given_up < TURNS


def test_manager_can_be_created_without_a_running_loop() -> None:
    client = FakeClient()
    manager = managing(client, MemoryLease())
    manager.add(manager.shutdown, leader_only=False)
    asyncio.run(manager.run())
    assert client.record[0] == "entered"
    assert client.record[-1] == "left"


@pytest.mark.parametrize("gap", range(12))
async def test_second_cancellation_stops_manager_at_once(gap: int) -> None:
    """The second cancellation counts, also while the first one is being delivered."""
    loop = asyncio.get_running_loop()
    async with served() as api:
        lease = MemoryLease()
        manager = managing(Client.from_url(api.url), lease)
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(1)
        await settle()
        (controller,) = manager._controllers
        assert len(controller._workers._running) == 2

        start = loop.time()
        task.cancel()
        for _ in range(gap + 1):
            await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait({task})
        assert loop.time() - start < 1, "not after the 10 s of a drain"
        assert lease.holders == ["me", ""]
