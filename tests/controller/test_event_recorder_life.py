"""`EventRecorder`: start and shutdown, alone and in a manager."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from event_helpers import Events, now, record, recorder_of, recording

from aioinformer import Client, EventRecorder, Manager
from aioinformer.controller.event_recorder import EVENTS, FINISH_SECONDS
from aioinformer.errors import OptionsError, TransportError, WrongLoop
from aioinformer.model.resources import NAMESPACES
from aioinformer.testing.faults import Refuse

if TYPE_CHECKING:
    from aioinformer.testing import APIServer

# ---------------------------------------------------------------- its life


async def test_shutdown_writes_waiting_events() -> None:
    events = Events()
    async with recorder_of(events) as recorder:
        events.delay = 0.01
        for _ in range(5):
            record(recorder, "A")
            await asyncio.sleep(1)

        for number in range(100):
            record(recorder, f"R{number}")

    assert len(events.bodies) == 101
    assert events.counts["A"] == 5


async def test_recorder_that_does_not_run_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = EventRecorder(Events(), "site-operator")
    record(recorder, "A")
    await asyncio.sleep(9)
    record(recorder, "B")
    assert caplog.text == ""

    for reason in "CDE":
        await asyncio.sleep(1)
        record(recorder, reason)

    (message,) = caplog.messages
    assert message == (
        "event recorder site-operator: 2 events wait, but it is not running (call "
        "manager.add(recorder, leader_only=False), or enter it)"
    )


async def test_shutdown_waits_at_most_5_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = Events()
    async with recorder_of(events) as recorder:
        events.delay = 3
        record(recorder, "A")
        record(recorder, "B")
        start = now()

    assert now() - start == pytest.approx(FINISH_SECONDS)
    assert events.counts == {"A": 1}
    assert recorder.dropped == 1
    assert "B of Pod shop/web-0): the recorder has ended" in caplog.text


async def test_shutdown_during_attempt_writes_event_once() -> None:
    events = Events()
    async with recorder_of(events) as recorder:
        events.delay = 1
        record(recorder, "A")
        await asyncio.sleep(0.5)

    assert events.counts == {"A": 1}
    assert recorder.dropped == 0


async def test_event_after_end_is_dropped_until_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = Events()
    recorder = recorder_of(events)
    async with recorder:
        record(recorder, "A")

    record(recorder, "B")
    assert "dropping event (Warning B): the recorder has ended" in caplog.text
    assert recorder.dropped == 1

    async with recorder:
        record(recorder, "C")

    assert set(events.counts) == {"A", "C"}


async def test_event_repeated_during_shutdown_is_written() -> None:
    events = Events()
    recorder = recorder_of(events)
    await recorder.start()
    events.delay = 1
    record(recorder)
    ending = asyncio.create_task(recorder.shutdown())
    for _ in range(3):
        await asyncio.sleep(0.4)
        record(recorder)

    await ending

    assert events.counts == {"FailedMount": 4}
    assert recorder.dropped == 0


async def test_shutdown_writes_events_in_backoff() -> None:
    """Its series has ended and was forgotten."""
    events = Events()
    async with recorder_of(events) as recorder:
        events.delay = 1
        for number in range(500):
            record(recorder, f"R{number}")

        await asyncio.sleep(450)
        assert recorder.waiting > 40
        events.delay = 0.001

    assert len(events.bodies) == 500
    assert recorder.dropped == 0


async def test_shutdown_during_outage_takes_5_seconds() -> None:
    """There is no busy loop, which would stop virtual time."""
    events = Events()
    async with recorder_of(events) as recorder:
        events.fault = lambda _: TransportError("cut")
        for _ in range(20):
            record(recorder)
            await asyncio.sleep(29)

        start = now()

    assert now() - start <= FINISH_SECONDS
    assert recorder.waiting == 0
    assert recorder.dropped > 0


@pytest.mark.looptime(False)
def test_recorder_can_run_again_in_another_loop() -> None:
    events = Events()
    recorder = recorder_of(events)

    async def tell_of(reason: str) -> None:
        async with recorder:
            await asyncio.sleep(0.01)
            record(recorder, reason)
            await asyncio.sleep(0.01)

    asyncio.run(tell_of("A"))
    asyncio.run(tell_of("B"))

    assert events.counts == {"A": 1, "B": 1}


async def test_recorder_runs_in_task_of_user() -> None:
    events = Events()
    recorder = recorder_of(events)
    task = asyncio.create_task(recorder.run())
    record(recorder, "A")
    await asyncio.sleep(1)
    record(recorder, "B")
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert events.counts == {"A": 1, "B": 1}


async def test_running_recorder_cannot_be_started() -> None:
    async with recording() as (_, recorder):
        with pytest.raises(OptionsError, match="is already running"):
            await recorder.run()

        with pytest.raises(OptionsError, match="is already running"):
            await recorder.start()


async def test_recorder_leaves_no_task_and_no_timer() -> None:
    async with recording() as (_, recorder):
        record(recorder)
        await asyncio.sleep(1)

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_event_in_other_loop_or_thread_is_refused() -> None:
    async with recording() as (_, recorder):
        with pytest.raises(WrongLoop):
            await asyncio.to_thread(record, recorder)

        async def elsewhere() -> None:
            record(recorder)

        with pytest.raises(WrongLoop):
            await asyncio.to_thread(asyncio.run, elsewhere())


@pytest.mark.parametrize(
    ("controller", "options"),
    [
        ("", {}),
        ("a b", {}),
        ("a/b/c", {}),
        ("Example.com/b", {}),
        ("a..b/c", {}),
        ("x" * 64, {}),
        ("mounter", {"instance": ""}),
        ("mounter", {"instance": "x" * 129}),
    ],
)
def test_invalid_controller_and_instance_are_refused(
    controller: str, options: dict[str, Any]
) -> None:
    with pytest.raises(OptionsError):
        EventRecorder(Events(), controller, **options)


def test_repr_shows_waiting_and_dropped_events() -> None:
    assert repr(recorder_of(Events())) == "<EventRecorder mounter waiting=0 dropped=0>"


async def test_client_that_was_not_entered_drops_event_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with EventRecorder(Client.from_url("http://127.0.0.1:1"), "a") as recorder:
        record(recorder)
        await asyncio.sleep(1)
        assert recorder.dropped == 1

    assert "dropping event (" in caplog.text


async def test_event_that_the_server_refuses_for_now_does_not_delay_others(
    apiserver: APIServer,
) -> None:
    refusal = Refuse(
        verb="create", resource="events", namespace="shop", status=503, retry_after=60
    )
    apiserver.faults.add(refusal)
    apiserver.create(NAMESPACES, {"metadata": {"name": "shop"}})
    async with (
        apiserver.client() as client,
        EventRecorder(client, "site-operator") as recorder,
    ):
        for namespace in ("shop", "default"):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x", "namespace": namespace, "uid": namespace},
            }
            recorder.event(pod, "Normal", "Started", "started")

        await asyncio.sleep(10)
        found = {it["metadata"]["namespace"] for it in apiserver.objects(EVENTS)}

    assert found == {"default"}


async def test_manager_writes_events_of_last_reconciles() -> None:
    """A recorder of every replica outlives the leader's runnables."""
    events = Events()
    recorder = recorder_of(events)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            record(recorder, "Ended")

    manager = Manager(Client.from_url("http://127.0.0.1:1"))
    manager.add(recorder, leader_only=False)
    manager.add(work)
    async with manager:
        record(recorder, "Begun")
        await asyncio.sleep(5)

    assert events.counts == {"Begun": 1, "Ended": 1}
