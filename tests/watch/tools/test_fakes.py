"""Watches whose events are sent by a test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import pytest
from canned import summaries
from conftest import pod

from aioinformer.errors import (
    OptionsError,
    QueueShutDown,
    ResourceExpired,
    TooManyRequests,
    WrongLoop,
)
from aioinformer.model import KubeObject
from aioinformer.watch import EmptyWatch, EventType, FakeWatch, RaceFreeFakeWatch
from aioinformer.watch.events import WatchEvent

if TYPE_CHECKING:
    from collections.abc import Callable

Fake: TypeAlias = FakeWatch | RaceFreeFakeWatch

both = pytest.mark.parametrize(
    "make", [lambda: FakeWatch(100), RaceFreeFakeWatch], ids=["fake", "race-free"]
)


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def send(watch: Fake, name: str) -> None:
    """Send an event by either fake: one of them waits."""
    waiting = watch.add(pod(name))
    if waiting is not None:
        await waiting


# ---------------------------------------------------------------- empty


async def test_empty_watch_has_ended() -> None:
    watch = EmptyWatch()

    assert await watch.next_batch() == []
    assert [event async for event in watch] == []


async def test_empty_watch_can_be_stopped() -> None:
    watch = EmptyWatch()

    watch.stop()
    watch.stop()

    assert await watch.next_batch() == []
    assert repr(watch) == "<EmptyWatch>"


# ---------------------------------------------------------------- fake


async def test_fake_watch_returns_actions_in_order() -> None:
    watch = FakeWatch()

    async def talk() -> None:
        await watch.add(pod("foo"))
        await watch.action("MODIFIED", pod("qux"))
        await watch.modify(KubeObject.of(pod("bar")))
        await watch.delete(pod("bar"))
        await watch.bookmark("7")
        await watch.error(ResourceExpired("too old", status=410, reason="Expired"))
        watch.stop()

    async with asyncio.TaskGroup() as group:
        group.create_task(talk())
        events = [event async for event in watch]

    assert summaries(events[:4]) == [
        *("ADDED foo", "MODIFIED qux", "MODIFIED bar", "DELETED bar")
    ]
    assert events[4].type is EventType.BOOKMARK
    assert events[4].object.resource_version == "7"
    assert isinstance(events[5].error(), ResourceExpired)
    assert len(events) == 6


async def test_fake_watch_sender_waits_for_reader() -> None:
    watch = FakeWatch()
    sending = asyncio.create_task(watch.add(pod("a")))
    await asyncio.sleep(60)
    assert not sending.done()

    assert summaries([await anext(watch)]) == ["ADDED a"]

    await sending


async def test_fake_watch_iteration_takes_one_event_at_a_time() -> None:
    watch = FakeWatch()
    sending = [asyncio.create_task(watch.add(pod(name))) for name in "abc"]
    await turns()

    assert summaries([await anext(watch)]) == ["ADDED a"]
    await turns()

    assert [it.done() for it in sending] == [True, False, False]
    assert summaries(await watch.next_batch()) == ["ADDED b", "ADDED c"]
    await asyncio.wait(sending)


async def test_fake_watch_sender_waits_for_room_in_buffer() -> None:
    watch = FakeWatch(2)
    await watch.add(pod("a"))
    await watch.add(pod("b"))
    sending = asyncio.create_task(watch.add(pod("c")))
    await turns()
    assert not sending.done()

    await anext(watch)
    await sending

    assert summaries(await watch.next_batch()) == ["ADDED b", "ADDED c"]


async def test_stop_raises_queue_shut_down_to_all_waiting_senders() -> None:
    watch = FakeWatch(1)
    sending = [asyncio.create_task(watch.add(pod(name))) for name in "abc"]
    await turns()

    watch.stop()
    watch.stop()
    await asyncio.wait(sending)

    errors = [it.exception() for it in sending]
    assert errors[0] is None
    assert all(isinstance(it, QueueShutDown) for it in errors[1:])
    assert str(errors[1]) == str(errors[2])
    with pytest.raises(QueueShutDown, match=str(errors[1])):
        await watch.add(pod("d"))


async def test_cancelled_sender_withdraws_event() -> None:
    watch = FakeWatch()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await watch.add(pod("a"))

    async with asyncio.TaskGroup() as group:
        group.create_task(watch.add(pod("b")))

        assert summaries(await watch.next_batch()) == ["ADDED b"]


async def test_fake_watch_rejects_negative_size() -> None:
    with pytest.raises(OptionsError, match="-1"):
        FakeWatch(-1)


# ---------------------------------------------------------------- race-free


async def test_race_free_fake_watch_returns_actions_in_order() -> None:
    watch = RaceFreeFakeWatch()
    watch.add(pod("foo"))
    watch.action(EventType.MODIFIED, pod("qux"))
    watch.modify(pod("bar"))
    watch.delete(pod("bar"))
    watch.bookmark({"kind": "Pod", "metadata": {"resourceVersion": "7"}})
    watch.error({"kind": "Status", "code": 410})
    watch.end()

    events = [event async for event in watch]

    assert summaries(events[:4]) == [
        *("ADDED foo", "MODIFIED qux", "MODIFIED bar", "DELETED bar")
    ]
    assert events[4].object.resource_version == "7"
    assert isinstance(events[5].error(), ResourceExpired)
    assert len(events) == 6


async def test_race_free_fake_watch_ignores_events_after_stop() -> None:
    watch = RaceFreeFakeWatch()
    watch.stop()

    watch.add(pod("a"))
    watch.error(ResourceExpired("too old"))

    assert await watch.next_batch() == []


async def test_race_free_fake_watch_buffers_100_events() -> None:
    watch = RaceFreeFakeWatch()
    for number in range(100):
        watch.add(pod(f"p-{number}"))

    with pytest.raises(asyncio.QueueFull, match=r"default/one-more.*100"):
        watch.add(pod("one-more"))

    assert len(await watch.next_batch()) == 100
    watch.add(pod("one-more"))
    assert summaries(await watch.next_batch()) == ["ADDED one-more"]


async def test_race_free_fake_watch_iteration_frees_room_for_one_event() -> None:
    watch = RaceFreeFakeWatch(2)
    watch.add(pod("a"))
    watch.add(pod("b"))
    await anext(watch)

    watch.add(pod("c"))
    with pytest.raises(asyncio.QueueFull):
        watch.add(pod("d"))


async def test_race_free_fake_watch_rejects_size_of_zero() -> None:
    with pytest.raises(OptionsError, match="at least 1"):
        RaceFreeFakeWatch(0)


async def test_send_from_other_thread_raises_wrong_loop() -> None:
    watch = RaceFreeFakeWatch()
    reading = asyncio.create_task(watch.next_batch())
    await turns()

    with pytest.raises(WrongLoop, match="thread"):
        await asyncio.to_thread(watch.add, pod("a"))

    watch.add(pod("b"))
    assert summaries(await reading) == ["ADDED b"]


# ---------------------------------------------------------------- both


@both
async def test_stop_wakes_waiting_reader(make: Callable[[], Fake]) -> None:
    loop = asyncio.get_running_loop()
    watch = make()
    reading = asyncio.create_task(watch.next_batch())
    await asyncio.sleep(1)

    watch.stop()

    assert await reading == []
    assert loop.time() == pytest.approx(1.0)
    assert watch.stopped


@both
async def test_stop_drops_unread_events(make: Callable[[], Fake]) -> None:
    watch = make()
    await send(watch, "a")
    await send(watch, "b")
    await anext(watch)

    watch.stop()

    assert [event async for event in watch] == []


@both
async def test_end_follows_sent_events(make: Callable[[], Fake]) -> None:
    watch = make()
    await send(watch, "a")
    await send(watch, "b")

    watch.end()
    watch.end()

    assert summaries([event async for event in watch]) == ["ADDED a", "ADDED b"]
    assert await watch.next_batch() == []
    assert not watch.stopped


@both
async def test_end_wakes_waiting_reader(make: Callable[[], Fake]) -> None:
    watch = make()
    reading = asyncio.create_task(watch.next_batch())
    await turns()

    watch.end()

    assert await reading == []


async def test_end_rejects_waiting_senders() -> None:
    watch = FakeWatch(1)
    sending = [asyncio.create_task(watch.add(pod(name))) for name in "ab"]
    await turns()

    watch.end()

    await sending[0]
    with pytest.raises(QueueShutDown):
        await sending[1]
    assert summaries([event async for event in watch]) == ["ADDED a"]


@both
@pytest.mark.parametrize("way", ["stop", "end"])
async def test_reset_reopens_watch(make: Callable[[], Fake], way: str) -> None:
    watch = make()
    await send(watch, "a")
    getattr(watch, way)()

    watch.reset()

    assert not watch.stopped
    await send(watch, "b")
    assert summaries(await watch.next_batch()) == ["ADDED b"]


@both
async def test_reset_reopens_watch_after_its_end(
    make: Callable[[], Fake],
) -> None:
    watch = make()
    watch.end()
    assert await watch.next_batch() == []

    watch.reset()
    await send(watch, "b")

    assert summaries([await anext(watch)]) == ["ADDED b"]


@both
async def test_reader_during_reset_gets_the_end(make: Callable[[], Fake]) -> None:
    watch = make()
    reading = asyncio.create_task(watch.next_batch())
    await turns()

    watch.reset()
    await send(watch, "b")

    assert await reading == []
    assert summaries(await watch.next_batch()) == ["ADDED b"]


@both
async def test_cancelled_reader_loses_no_events(make: Callable[[], Fake]) -> None:
    for number in range(4):
        watch = make()
        reading = asyncio.create_task(watch.next_batch())
        await turns()
        await send(watch, "a")
        await turns(number)
        reading.cancel()
        await asyncio.wait({reading})

        seen = [] if reading.cancelled() else reading.result()
        watch.end()
        seen += [event async for event in watch]

        assert summaries(seen) == ["ADDED a"]


@both
async def test_fake_watch_repr_shows_state(make: Callable[[], Fake]) -> None:
    watch = make()
    name = type(watch).__name__
    await send(watch, "a")
    states = [repr(watch)]
    watch.end()
    states.append(repr(watch))
    watch.stop()
    states.append(repr(watch))

    assert states == [
        f"<{name} open buffered=1>",
        f"<{name} ended buffered=1>",
        f"<{name} stopped buffered=0>",
    ]


async def test_fake_watches_reject_invalid_events() -> None:
    watch = RaceFreeFakeWatch()

    with pytest.raises(OptionsError, match="SURPRISE"):
        watch.action("SURPRISE", pod("a"))

    with pytest.raises(OptionsError, match="missing"):
        watch.action(EventType.ADDED)

    with pytest.raises(OptionsError, match="has an object"):
        watch.action(WatchEvent.of("ADDED", pod("a")), pod("a"))

    watch.end()
    assert await watch.next_batch() == []


async def test_fake_watch_sends_error_as_status() -> None:
    watch = RaceFreeFakeWatch()
    error = TooManyRequests(
        "later", status=429, reason="TooManyRequests", retry_after=1.5
    )
    watch.error(error)

    (event,) = await watch.next_batch()

    assert event.object["kind"] == "Status"
    assert isinstance(event.error(), TooManyRequests)
    assert event.error().retry_after == 2.0
