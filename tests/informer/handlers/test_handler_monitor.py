"""`HandlerMonitor`: log records about slow handlers, and their number."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import (
    Slow,
    Stage,
    events,
    keep_busy,
    name_of,
    running,
    settle,
)
from queue_helpers import Sink

from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.handlers.event_handlers import EventHandlers
from aioinformer.informer.handlers.handler_calls import BLOCKING_SECONDS, HandlerMonitor
from aioinformer.informer.handlers.inbox import Inbox
from aioinformer.informer.handlers.listener import Listener
from aioinformer.informer.handlers.processor import Processor

if TYPE_CHECKING:
    from informer_helpers import Handler

    from aioinformer.informer.notifications import Notification


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


# ---------------------------------------------------------------- single calls


async def never(_: Notification) -> None:
    await asyncio.Event().wait()


async def test_call_that_takes_a_minute_is_logged_while_it_runs(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.listen(never)

    async with running(stage.run()):
        stage.publish(events("a", "b"))
        await asyncio.sleep(59.9)
        early = caplog.messages[:]
        await asyncio.sleep(0.2)

    assert early == []
    (message,) = caplog.messages
    assert message == (
        "handler pods/greet has been processing Added(obj=<KubeObject 'default/a' rv='1'>, "
        "initial=False) for 60 s and has not returned (1 more queued)"
    )


async def test_call_that_never_returns_is_logged_every_ten_minutes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.listen(never)

    async with running(stage.run()):
        stage.publish(events("a"))
        counts = []
        for seconds in (61, 598, 2, 598, 2):
            await asyncio.sleep(seconds)
            counts.append(len(caplog.records))

    assert counts == [1, 1, 2, 2, 3]


async def test_repeated_long_calls_are_not_logged_each_time(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.listen(Slow(100))

    async with running(stage.run()):
        stage.publish(events("a") * 100)
        await asyncio.sleep(2000)

    assert len(caplog.records) == 4


async def test_each_call_is_timed_from_its_start(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(59)
    stage.listen(slow)

    async with running(stage.run()):
        stage.publish(events(*"abcdefgh"))
        await asyncio.sleep(59 * 8 + 1)

    assert len(slow.record) == 8
    assert caplog.records == []


async def test_long_call_after_short_ones_is_logged_in_time(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(45)
    stage.listen(slow)

    async with running(stage.run()):
        stage.publish(events("a", "b"))
        await asyncio.sleep(46)  # b started at 45
        slow.seconds = 1000
        stage.publish(events("c"))
        await asyncio.sleep(44 + 59)  # c started at 90
        early = len(caplog.records)
        await asyncio.sleep(2)

    assert (early, len(caplog.records)) == (0, 1)


def timers() -> list[asyncio.TimerHandle]:
    loop: Any = asyncio.get_running_loop()
    return [
        timer
        for timer in loop._scheduled
        if "HandlerMonitor" in repr(timer) and not timer.cancelled()
    ]


async def test_monitor_has_at_most_one_timer_and_none_when_idle(stage: Stage) -> None:
    listener = stage.listen(Slow(1))

    async with running(stage.run()):
        await settle()
        counts = [len(timers())]
        stage.publish(events("a") * 10)
        await asyncio.sleep(5)
        counts.append(len(timers()))
        await asyncio.sleep(100)
        counts.append(len(timers()))
        stage.publish(events("b") * 10)
        await asyncio.sleep(5)
        counts.append(len(timers()))
        stage.remove(listener)
        await listener.wait_ended()
        counts.append(len(timers()))

    assert counts == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("handler", [never, Slow(1000)], ids=["never", "long"])
async def test_no_timer_remains_after_the_stop(stage: Stage, handler: Handler) -> None:
    stage.listen(handler)

    async with running(stage.run()):
        stage.publish(events("a"))
        await settle()

    assert timers() == []


# ---------------------------------------------------------------- many calls


async def test_first_nine_blocking_calls_of_a_minute_are_logged_one_by_one(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    listener = stage.listen(lambda _: keep_busy(0.051))

    async with running(stage.run()):
        stage.publish(events("a") * 12)
        await listener.wait_idle()
        await asyncio.sleep(61)
        stage.publish(events("b"))
        await listener.wait_idle()

    each = [message for message in caplog.messages if "thread=True" in message]
    sums = [message for message in caplog.messages if message not in each]
    assert len(each) == 10
    assert sums == [
        f"handler pods/greet blocked the event loop {count} times within a minute"
        for count in (10, 12)
    ]


async def test_first_nine_failing_calls_of_a_minute_are_logged_one_by_one(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(_: Notification) -> None:
        raise ValueError("no")

    listener = stage.listen(handler)

    async with running(stage.run()):
        stage.publish(events("a") * 25)
        await listener.wait_idle()
        await asyncio.sleep(61)
        stage.publish(events("b"))
        await listener.wait_idle()

    assert len(stage.failures) == 26
    each = [record for record in caplog.records if record.exc_info]
    sums = [record.getMessage() for record in caplog.records if not record.exc_info]
    assert len(each) == 10
    assert sums == [
        f"pods: handler pods/greet failed {count} times within a minute"
        for count in (10, 20, 25)
    ]


async def test_handler_that_is_slow_again_is_logged_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(20)
    listener = stage.listen(slow)
    warned = []

    async with running(stage.run()):
        for _ in range(2):
            slow.seconds = 20
            stage.publish(events("a"))
            stage.publish(events("b") * 10_000)
            await asyncio.sleep(11)
            stage.publish(events("c"))
            await settle()
            warned.append(len(caplog.records))
            slow.seconds = 0
            await listener.wait_idle()

    assert warned == [1, 2]


def filled(*batches: float) -> Inbox:
    """Make an inbox with 10,000 events of each of these times."""
    inbox = Inbox()
    for time in batches:
        inbox.put(events("a") * 10_000, time)

    return inbox


def finish_batch(inbox: Inbox) -> None:
    inbox.delivered += 10_000
    inbox.take_now()


def test_handler_at_the_limit_of_slowness_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = filled(0.0, 1.0, 2.0)
    slowness = HandlerMonitor("pods/greet", inbox)
    inbox.take_now()

    slowness.crowded(10.5)
    finish_batch(inbox)
    slowness.crowded(10.5)
    slowness.crowded(11.5)

    assert len(caplog.records) == 1


def test_handler_that_hangs_again_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = filled(0.0, 0.0, 0.0)
    slowness = HandlerMonitor("pods/greet", inbox)
    slowness.crowded(100.0)
    for _ in range(3):
        finish_batch(inbox)

    inbox.put(events("b"), 1000.0)
    inbox.put(events("b") * 10_000, 1100.0)
    slowness.crowded(1100.0)

    assert [message.split(": ")[1][:5] for message in caplog.messages] == [
        "30000",
        "10001",
    ]


class FailingSink(Sink):
    """A user's sink that raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError("no")], ids=["error", "cancel"]
)
async def test_failing_sink_is_logged_and_ends_nothing(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    received: list[str] = []

    def handler(event: Notification) -> None:
        received.append(name_of(event))
        keep_busy(2 * BLOCKING_SECONDS)

    listener = Listener(
        "pods/greet",
        EventHandlers(on_event=handler),
        ErrorReporter("pods"),
        metrics=FailingSink(error),
    )
    processor = Processor()
    processor.add(listener)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        await listener.wait_idle()

    assert received == ["a", "b"]
    failures = [it for it in caplog.messages if "sink" in it]
    assert failures == ["handler pods/greet: the metrics sink failed"]
