"""Latency of handlers: when it starts, and which batches are measured."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import Page, Stream, added, deleted, modified, thing
from informer_helpers import Recorder, Slow, Stage, events, pods_of, running
from metrics_helpers import PlainSink

from aioinformer.informer import Added, Updated
from aioinformer.informer.handlers.inbox import CoalescingInbox, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCY = "aioinformer_handler_latency_seconds"
A1, A2 = thing("a", 1), thing("a", 2)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_batch_whose_notifications_cancel_out_is_not_measured() -> None:
    sink, stream = PlainSink(), Stream()
    pods = pods_of(Page([], version=5), watches=(stream,), metrics=sink)
    pods.add_event_handler(on_event=Recorder(), name="h", coalesce=True)
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        for version in (6, 9):
            await asyncio.sleep(500)
            stream.send(added(thing("a", version)), deleted(thing("a", version + 1)))
            await asyncio.sleep(5)
            stream.send(added(thing("b", version + 2)))
            await asyncio.sleep(5)

    assert sink.observed[LATENCY] == [pytest.approx(0, abs=0.1)] * 2


@pytest.mark.parametrize("coalesce", [False, True])
async def test_resyncs_are_not_measured(coalesce: bool) -> None:
    sink = PlainSink()
    pods = pods_of(metrics=sink)
    slow = Slow(1.0)
    pods.add_event_handler(
        on_event=slow, name="h", resync_period=100, coalesce=coalesce
    )
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await asyncio.sleep(350)

    assert len(slow.record) == 8
    assert sink.observed[LATENCY] == [pytest.approx(2, abs=0.1)]  # the first list


async def test_change_merged_into_a_resync_is_measured_from_its_arrival() -> None:
    sink, stream = PlainSink(), Stream()
    pods = pods_of(Page([A1], version=5), watches=(stream,), metrics=sink)
    slow = Slow(20.0)
    pods.add_event_handler(on_event=slow, name="h", resync_period=10, coalesce=True)
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await asyncio.sleep(15)  # the resync at 10 s is queued
        stream.send(modified(thing("a", 6)))
        await asyncio.sleep(20)
        slow.seconds = 0.0
        await asyncio.sleep(10)

    listed, changed = sink.observed[LATENCY]
    assert listed == pytest.approx(20, abs=0.1)
    assert changed == pytest.approx(25, abs=0.2)


@pytest.mark.parametrize("new", [Inbox, CoalescingInbox])
async def test_inbox_keeps_times_of_queueing_and_arrival(
    new: Callable[[], Inbox],
) -> None:
    inbox = new()
    inbox.put([Added(A1)], 10.0, 4.0)
    assert inbox.oldest == 10

    assert list(await inbox.take()) == [Added(A1)]
    assert inbox.arrived == 4

    inbox.put([Updated(A1, A1, True)], 20.0)
    assert list(await inbox.take()) == [Updated(A1, A1, True)]
    assert inbox.arrived is None


async def test_burst_is_measured_from_the_first_arrival_in_it() -> None:
    inbox = CoalescingInbox()
    inbox.put([Updated(A1, A1, True)], 10.0)
    inbox.put(events("b"), 20.0, 18.0)
    inbox.put(events("c"), 30.0, 28.0)

    assert len(list(await inbox.take())) == 3
    assert inbox.arrived == 18


@pytest.mark.parametrize("coalesce", [False, True])
async def test_age_of_a_handler_begins_with_the_queueing(coalesce: bool) -> None:
    stage = Stage()
    listener = stage.listen(Slow(100.0), coalesce=coalesce)
    async with running(stage.run()):
        await asyncio.sleep(60)
        stage.publish(events("a"), now() - 50)
        await asyncio.sleep(3)
        assert listener.age(now()) == pytest.approx(3, abs=0.1)
