"""`Manager`: shutdown, failures and signals."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Notes, Slow, config_map, elector_of, managed
from informer_helpers import settle
from leader_helpers import MemoryLease, forever, now
from task_helpers import cancelled, slow_to_end

from aioinformer import Client, Manager
from aioinformer.client import ClientConfig
from aioinformer.errors import (
    InternalError,
    OptionsError,
    QueueShutDown,
    TransportError,
)
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map())
        yield server


# ---------------------------------------------------------------- on shutdown


async def test_shutdown_drains_running_reconciles(server: APIServer) -> None:
    slow = Slow(5.0)
    async with managed(server, slow) as manager:
        await slow.begun.wait()
        start = now()
        await manager.shutdown()
        assert slow.record == ["done"]
        assert now() - start == pytest.approx(5, abs=0.1)


async def test_drain_of_manager_has_timeout(server: APIServer) -> None:
    slow = Slow()
    async with managed(server, slow, drain_timeout=3.0):
        await slow.begun.wait()
        start = now()

    assert slow.record == ["cancelled"]
    assert now() - start == pytest.approx(3, abs=0.1)


async def test_second_cancellation_of_run_skips_drain(server: APIServer) -> None:
    slow, record = Slow(), list[str]()
    manager = managed(server, slow)
    manager.add(partial(slow_to_end, record), leader_only=False, name="slow")
    task = asyncio.create_task(manager.run())
    await slow.begun.wait()
    start = now()
    task.cancel()
    await asyncio.sleep(2)
    assert (slow.record, task.done()) == ([], False)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert slow.record == ["cancelled"]
    assert record == ["ending"], "it was cancelled twice as well"
    assert now() - start == pytest.approx(2, abs=0.1)
    assert not manager.running


async def test_cancelled_shutdown_skips_drain(
    server: APIServer,
) -> None:
    slow, manager = Slow(), None
    manager = managed(server, slow)
    await manager.start()
    await slow.begun.wait()
    task = asyncio.create_task(manager.shutdown())
    await cancelled(task, after=1.0)

    assert task.cancelled()
    assert slow.record == ["cancelled"]
    assert not manager.running
    await manager.shutdown()


async def test_lease_is_released_after_drain(server: APIServer) -> None:
    slow, lease = Slow(5.0), MemoryLease()
    async with managed(server, slow, elector=elector_of(lease, "me")):
        await slow.begun.wait()
        start = now()

    assert slow.record == ["done"]
    written, record = lease.writes[-1]
    assert record.holder == ""
    assert written - start == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize("late", [False, True])
async def test_runnable_can_shut_manager_down(server: APIServer, late: bool) -> None:
    manager = Manager(server.client())
    if late:  # so that it starts in the task that adds it
        manager.add(forever)
        await manager.start()
        await settle()

    async def asks() -> None:
        await asyncio.sleep(5)
        await manager.shutdown()

    manager.add(asks)
    start = now()
    await manager.run()
    assert now() - start == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(
    "name",
    ["manager", "manager leader", "manager all", "manager watch", "controller maps"],
)
async def test_manager_ends_when_other_code_cancels_one_of_its_tasks(
    server: APIServer, name: str
) -> None:
    manager = managed(server, Notes())
    await manager.start()
    await asyncio.sleep(1)
    (task,) = (it for it in asyncio.all_tasks() if it.get_name() == name)
    task.cancel()
    with pytest.raises(InternalError, match=f"task '{name}' cancelled itself or was"):
        await manager.run()

    assert "InternalError" in manager.why_dead()


async def test_reconcile_can_shut_manager_down(server: APIServer) -> None:
    calls: list[str] = []

    async def reconcile(request: object, ctx: object) -> None:
        await manager.shutdown()
        calls.append("and it goes on")

    manager = managed(server, reconcile)
    await manager.run()
    assert calls == ["and it goes on"]


async def test_cancelled_start_stops_manager(server: APIServer) -> None:
    manager = managed(server, Notes())
    task = asyncio.create_task(manager.start())
    await asyncio.sleep(0)
    await cancelled(task, after=0.0)
    assert not manager.running


# ---------------------------------------------------------------- by signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_shuts_manager_down(
    server: APIServer, number: signal.Signals
) -> None:
    slow, before = Slow(5.0), signal.getsignal(number)
    manager = managed(server, slow)
    task = asyncio.create_task(manager.run(handle_signals=True))
    await slow.begun.wait()
    start = now()
    signal.raise_signal(number)
    await task

    assert slow.record == ["done"]
    assert now() - start == pytest.approx(5, abs=0.1)
    assert signal.getsignal(number) is before


async def test_second_signal_skips_drain(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow()
    task = asyncio.create_task(managed(server, slow).run(handle_signals=True))
    await slow.begun.wait()
    start = now()
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
        await settle()

    await task
    assert slow.record == ["cancelled"]
    assert now() - start == pytest.approx(0, abs=0.1)
    assert "drain cut short by a signal while stopping" in caplog.text


class NeverEntered(Client):
    """Client that cannot be entered, as on a full disk."""

    async def start(self) -> None:
        raise OSError("No space left on device")


async def test_shutdown_ends_run_that_is_still_starting() -> None:
    manager = Manager(Client.from_url("http://127.0.0.1:1"))
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(0)
    await manager.shutdown()
    await task


async def test_signal_ends_manager_that_is_still_starting() -> None:
    manager = Manager(NeverEntered(ClientConfig(server="http://localhost:1")))
    manager.add(forever)
    before = signal.getsignal(signal.SIGTERM)
    task = asyncio.create_task(manager.run(handle_signals=True))
    await asyncio.sleep(60)
    signal.raise_signal(signal.SIGTERM)
    start = now()
    await task

    assert now() == start
    assert not manager.running
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_manager_that_cannot_handle_signals_does_not_start() -> None:
    manager = Manager(Client(ClientConfig(server="http://localhost:1")))
    manager.add(forever)

    async def elsewhere() -> None:
        with pytest.raises(OptionsError, match="main thread only"):
            await manager.run(handle_signals=True)

        assert not manager.running

    await asyncio.to_thread(asyncio.run, elsewhere())


async def test_signals_are_not_handled_by_default(server: APIServer) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with managed(server, Notes()) as manager:
        task = asyncio.create_task(manager.run())
        await settle()
        assert signal.getsignal(signal.SIGTERM) is before
        await cancelled(task, after=0.0)


# ---------------------------------------------------------------- by a failure


async def test_first_failure_is_raised_and_others_are_logged(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    manager, first = Manager(server.client()), ValueError("first")

    async def fails() -> None:
        await asyncio.sleep(1)
        raise first

    async def fails_in_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("later")

    manager.add(fails, name="one")
    manager.add(fails_in_the_end, leader_only=False, name="two")
    with pytest.raises(ValueError, match="first") as caught:
        await manager.run()

    assert caught.value is first
    assert caplog.messages == [
        "one failed, stopping the manager",
        "two failed during shutdown: KeyError('later')",
    ]
    assert manager.not_ready() == {"manager": "failed: ValueError('first')"}
    await manager.shutdown()  # raised before


async def test_failure_during_shutdown_is_raised(server: APIServer) -> None:
    async def fails_in_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("later")

    manager = Manager(server.client())
    manager.add(fails_in_the_end)
    await manager.start()
    await asyncio.sleep(1)
    with pytest.raises(KeyError):
        await manager.shutdown()


async def test_other_runnables_drain_after_failure(server: APIServer) -> None:
    slow = Slow(5.0)
    manager = managed(server, slow)

    async def fails() -> None:
        await slow.begun.wait()
        raise ZeroDivisionError

    manager.add(fails)
    with pytest.raises(ZeroDivisionError):
        await manager.run()

    assert slow.record == ["done"]


async def test_error_of_block_precedes_failure_of_manager(server: APIServer) -> None:
    async def fails() -> None:
        raise ValueError("a part")

    async def body() -> None:
        async with Manager(server.client()) as manager:
            manager.add(fails)
            await asyncio.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await body()

    assert caught.value.__notes__ == ["shutdown also failed: ValueError('a part')"]


async def test_shut_down_queue_fails_controller(
    server: APIServer,
) -> None:
    manager = managed(server, Notes())
    (controller,) = manager._controllers
    async with asyncio.TaskGroup() as group:
        group.create_task(raises_queue_shut_down(manager))
        await asyncio.sleep(5)
        controller.queue.shut_down()


async def raises_queue_shut_down(manager: Manager) -> None:
    with pytest.raises(QueueShutDown):
        await manager.run()


async def test_manager_without_configuration_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = Manager(Client.from_kubeconfig("/nowhere/config"))
    manager.add(forever)
    for _ in range(2):  # it can be started again
        with pytest.raises(OptionsError, match="/nowhere/config"):
            await manager.run()


async def test_outage_does_not_end_manager(server: APIServer) -> None:
    notes = Notes()
    async with managed(server, notes) as manager:
        await asyncio.sleep(5)
        await server.stop()
        await asyncio.sleep(100)
        assert manager.not_ready() == {}
        with pytest.raises(TransportError):
            await manager._client.get(CONFIG_MAPS, "a", namespace="default")

        await server.start()
