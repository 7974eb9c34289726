"""`Processor` and `Listener`: delivery, queued events, and the stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from informer_helpers import (
    Recorder,
    Slow,
    Stage,
    events,
    keep_busy,
    running,
    settle,
)
from metrics_helpers import PlainSink

from aioinformer.errors import InformerStopped
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.handlers.event_handlers import EventHandlers
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.handlers.listener import Listener

if TYPE_CHECKING:
    from informer_helpers import Handler

    from aioinformer.informer.notifications import Notification


@pytest.fixture
def processor() -> Stage:
    return Stage()


# ---------------------------------------------------------------- delivery


async def test_every_handler_gets_every_event_in_order(processor: Stage) -> None:
    one, two = Recorder(), Recorder()
    processor.listen(one)
    processor.publish(events("a"))  # before it runs

    async with running(processor.run()):
        processor.listen(two)
        processor.publish(events("b", "c"))
        processor.publish(events("d"))
        await settle()

    assert one.record == ["a", "b", "c", "d"]
    assert two.record == ["b", "c", "d"]


async def test_empty_batch_delivers_nothing(processor: Stage) -> None:
    listener = processor.listen(Recorder())

    processor.publish([])
    processor.publish(Snapshot([]))

    assert (listener.depth, repr(listener)) == (0, "<Listener pods/greet waiting=0>")
    assert processor.listeners == (listener,)


async def test_snapshot_is_delivered_as_initial() -> None:
    objects = [thing("a"), thing("b")]

    snapshot = Snapshot(objects)

    assert len(snapshot) == 2
    assert list(snapshot) == [Added(objects[0], True), Added(objects[1], True)]


async def test_events_without_a_handler_count_as_delivered(
    processor: Stage,
) -> None:
    record: list[object] = []
    listener = Listener(
        "h", EventHandlers(on_delete=record.append), ErrorReporter("pods")
    )
    processor.add(listener)
    obj = thing("a")

    async with running(processor.run()):
        processor.publish([Added(obj), Updated(obj, obj), Deleted(obj)])
        await listener.wait_idle()

    assert record == [obj]


async def test_waiting_handler_delays_only_itself(
    processor: Stage, looptime: float
) -> None:
    slow, fast = Slow(), Recorder()
    processor.listen(slow)
    quick = processor.listen(fast)

    async with running(processor.run()):
        processor.publish(events("a", "b", "c"))
        await quick.wait_idle()
        at_once = list(slow.record)
        await processor.drained()

    assert at_once == []
    assert fast.record == ["a", "b", "c"]
    assert slow.record == ["a", "b", "c"]
    assert looptime == 3


async def test_handler_is_never_called_concurrently_with_itself(
    processor: Stage,
) -> None:
    handler = Slow()
    processor.listen(handler)

    async with running(processor.run()):
        for name in "abcd":
            processor.publish(events(name))

        await processor.drained()

    assert (handler.record, handler.together) == (["a", "b", "c", "d"], 1)


async def test_many_events_leave_turns_for_other_tasks(processor: Stage) -> None:
    handler = Recorder()
    listener = processor.listen(handler)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while listener.depth:
            await asyncio.sleep(0)
            turns += 1

    async with running(processor.run()):
        processor.publish(events("a") * 30_000)
        await others()

    assert len(handler.record) == 30_000
    assert turns > 5


# ---------------------------------------------------------------- blocking


def blocks(_: Notification) -> None:
    keep_busy(0.06)


async def blocks_later(_: Notification) -> None:
    await asyncio.sleep(0)
    keep_busy(0.06)


async def waits_for_long(_: Notification) -> None:
    await asyncio.sleep(10)


@pytest.mark.parametrize(
    ("handler", "times"),
    [(blocks, 1), (blocks_later, 1), (waits_for_long, 0)],
    ids=["plain", "behind-a-wait", "waiting-is-fine"],
)
async def test_calls_that_block_the_loop_are_counted_and_logged(
    processor: Stage, handler: Handler, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    sink = PlainSink()
    listener = Listener(
        "pods/greet",
        EventHandlers(on_event=handler),
        ErrorReporter("pods"),
        metrics=sink,
    )
    processor.add(listener)

    async with running(processor.run()):
        processor.publish(events("a"))
        await listener.wait_idle()

    assert sink.counts["aioinformer_blocking_calls_total", ("pods/greet",)] == times
    assert len(caplog.records) == times
    for record in caplog.records:
        assert "handler pods/greet blocked the event loop" in record.getMessage()


# ---------------------------------------------------------------- depth and age


async def test_depth_counts_queued_and_running_events(processor: Stage) -> None:
    listener = processor.listen(Slow(10))
    depths = [listener.depth]

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        processor.publish(events("c"))
        depths.append(listener.depth)
        for _ in range(3):
            await asyncio.sleep(10)
            await settle()
            depths.append(listener.depth)

    assert depths == [0, 3, 2, 1, 0]


async def test_age_is_that_of_the_oldest_batch(processor: Stage) -> None:
    loop = asyncio.get_running_loop()
    listener = processor.listen(Slow(10))
    ages = [listener.age(loop.time())]

    async with running(processor.run()):
        processor.publish(events("a"))
        await asyncio.sleep(4)
        processor.publish(events("b"))
        ages.append(listener.age(loop.time()))
        await asyncio.sleep(7)  # a ends at 10, b was queued at 4
        ages.append(listener.age(loop.time()))
        await asyncio.sleep(20)
        ages.append(listener.age(loop.time()))
        processor.publish(events("c"))
        await asyncio.sleep(2)
        ages.append(listener.age(loop.time()))

    assert ages == pytest.approx([0, 4, 7, 0, 2])


async def test_slow_handler_is_logged_at_10000_events_and_at_each_doubling(
    processor: Stage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    processor.listen(Slow(1e6))
    thousand = events("a") * 1000
    warned = []

    async with running(processor.run()):
        for number in range(1, 42):
            processor.publish(thousand)
            await asyncio.sleep(1.1)
            if caplog.records:
                warned.append(number)
                caplog.clear()

    # Checked when more events are queued.
    assert warned == [11, 22]


async def test_long_first_list_does_not_count_as_slow(
    processor: Stage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor.listen(Slow(1e6))

    async with running(processor.run()):
        processor.publish(events("a") * 100_000)
        await asyncio.sleep(9)
        processor.publish(events("b"))
        await settle()

    assert not caplog.records


# ---------------------------------------------------------------- stop


async def test_stop_ends_every_handler(processor: Stage) -> None:
    stuck = Slow(1000)
    listeners = [processor.listen(stuck), processor.listen(Recorder())]
    processor.publish(events("a", "b"))

    async with running(processor.run()):
        await settle()
        late = processor.listen(Recorder())  # has had no turn before the stop

    assert [listener.ended for listener in (*listeners, late)] == [True] * 3
    assert (stuck.record, stuck.running) == ([], 0)


async def test_handler_added_after_the_stop_is_refused(processor: Stage) -> None:
    async with running(processor.run()):
        await settle()

    with pytest.raises(InformerStopped, match="cannot add handler pods/greet"):
        processor.listen(Recorder())

    assert processor.listeners == ()


async def test_handler_added_during_the_stop_is_refused(
    processor: Stage,
) -> None:
    errors: list[Exception] = []

    async def handler(_: Notification) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                processor.listen(Recorder())
            except InformerStopped as exc:
                errors.append(exc)

    processor.listen(handler)
    processor.publish(events("a"))

    async with running(processor.run()):
        await settle()

    assert len(errors) == 1


async def test_processor_that_never_runs_can_be_stopped(processor: Stage) -> None:
    listener = processor.listen(Recorder())
    waiter = asyncio.create_task(listener.wait_ended())
    await settle()

    processor.end()

    await waiter
    with pytest.raises(InformerStopped):
        processor.listen(Recorder())
