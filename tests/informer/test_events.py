"""`SharedInformer.events`: notifications as an async iterator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    Page,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import pods_of, running, settle, text_of
from queue_helpers import error_in_thread

from aioinformer.errors import InformerStopped, InternalError, OptionsError, WrongLoop
from aioinformer.informer import Added, Updated
from aioinformer.informer.namespace_sources import NamespaceSource

if TYPE_CHECKING:
    from aioinformer.informer.handlers.registration import Events
    from aioinformer.informer.notifications import Notification


async def take(events: Events, number: int) -> list[str]:
    return [text_of(await anext(events)) for _ in range(number)]


async def test_iterator_yields_all_objects_then_every_change_in_order() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with running(pods.run()), pods.events() as events:
        stream.send(modified(thing("b", 6)), added(thing("c", 7)))
        stream.send(deleted(thing("a", 8)))

        assert await take(events, 5) == [
            *("initial a", "initial b", "updated b", "added c", "deleted a"),
        ]


async def test_each_iterator_starts_with_all_objects() -> None:
    stream = Stream()
    pods = pods_of(Page([thing("a")], version=5), watches=(stream,))

    async with running(pods.run()), pods.events() as early:
        await pods.wait_synced()
        stream.send(modified(thing("a", 6)))
        await pods.wait_for_version("6")
        async with pods.events() as late:
            assert await take(late, 1) == ["initial a"]

        assert await take(early, 2) == ["initial a", "updated a"]


async def test_deletion_missed_by_the_watch_is_yielded() -> None:
    pods = pods_of(
        Page([thing("a")], version=5),
        Page([], version=9),
        watches=(Stream(1.0, [error_event(410)]),),
    )

    async with running(pods.run()), pods.events() as events:
        assert await take(events, 2) == ["initial a", "missed a"]


async def test_iterator_can_be_created_before_the_informer_runs() -> None:
    pods = pods_of()

    async with pods.events() as events, running(pods.run()):
        assert await take(events, 2) == ["initial a", "initial b"]


async def test_iteration_can_be_interrupted_and_resumed() -> None:
    pods = pods_of()
    names: list[str] = []

    async with running(pods.run()), pods.events() as events:
        async for event in events:
            assert isinstance(event, Added)
            names.append(event.obj.name)
            if len(names) == 2:
                break

    assert names == ["a", "b"]


# ---------------------------------------------------------------- slow readers


async def test_slow_reader_loses_nothing_and_delays_nobody(looptime: float) -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    received: list[str] = []

    async with running(pods.run()), pods.events() as events:
        pods.add_event_handler(on_event=lambda event: received.append(text_of(event)))
        stream.send(*(modified(thing("a", 6 + more)) for more in range(100)))
        await asyncio.sleep(10)
        waiting = events.depth
        seen: list[str] = []
        for _ in range(102):
            seen += await take(events, 1)
            await asyncio.sleep(1)

        assert (waiting, events.depth) == (102, 0)
        assert seen == received
        assert looptime == 112


async def test_prefetched_events_are_bounded() -> None:
    """Other events stay in the handler's queue, which is counted and logged."""
    pods = pods_of(Page([thing(f"p{n}") for n in range(200)], version=5))

    async with running(pods.run()), pods.events() as events:
        await pods.wait_synced()
        await settle()
        (listener,) = pods._processor.listeners
        queued = [listener.depth]
        for _ in range(64):
            await anext(events)

        await settle()
        queued.append(listener.depth)
        await anext(events)
        await settle()
        queued.append(listener.depth)

        assert queued == [137, 137, 73]
        assert events.depth == 135


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("turns", range(12))
async def test_reader_cancelled_while_waiting_loses_no_event(turns: int) -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    seen: list[str] = []

    async def consume(events: Events) -> None:
        while True:
            seen.append(text_of(await anext(events)))

    async with running(pods.run()), pods.events() as events:
        for version in range(6, 26):
            stream.send(modified(thing("a", version)))
            consumer = asyncio.create_task(consume(events))
            for _ in range(turns):
                await asyncio.sleep(0)

            consumer.cancel()
            await asyncio.wait({consumer})

        async with asyncio.timeout(1):
            seen += await take(events, 22 - len(seen))

    assert seen == ["initial a", "initial b", *["updated a"] * 20]


async def test_cancelled_block_removes_its_handler() -> None:
    pods = pods_of()

    async def follow() -> None:
        async with pods.events() as events:
            async for _ in events:
                pass

    followers = list(pods._run_state.followers)
    async with running(pods.run()):
        task = asyncio.create_task(follow())
        await settle()
        during = len(pods._processor.listeners)
        task.cancel()
        await asyncio.wait({task})
        await settle()

        assert (during, len(pods._processor.listeners)) == (1, 0)
        assert pods._run_state.followers == followers


# ---------------------------------------------------------------- the end


async def test_concurrent_readers_share_the_events() -> None:
    """Also if notifications are passed one at a time, and one reader is slow."""
    pods = pods_of()
    taken: dict[int, list[str]] = {1: [], 2: []}

    async with running(pods.run()), pods.events(coalesce=True) as events:

        async def read(number: int) -> None:
            async for event in events:
                taken[number].append(text_of(event))
                await asyncio.sleep(1000)

        async with running(read(1)), running(read(2)):
            await asyncio.sleep(1)

    assert taken == {1: ["initial a"], 2: ["initial b"]}


async def test_exit_of_the_block_drops_queued_events() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with running(pods.run()):
        async with pods.events() as events:
            await take(events, 1)

        stream.send(modified(thing("a", 6)))
        await pods.wait_for_version("6")

        assert events.depth == 0
        assert pods._processor.listeners == ()
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_iteration_in_another_task_ends_with_the_block() -> None:
    pods = pods_of()
    seen: list[Notification] = []

    async def follow(events: Events) -> None:
        seen.extend([event async for event in events])

    async with running(pods.run()):
        async with pods.events() as events:
            task = asyncio.create_task(follow(events))
            await settle()

        await task

    assert len(seen) == 2


async def test_end_of_the_informer_is_raised_after_its_last_event() -> None:
    pods = pods_of()
    seen: list[str] = []

    async def follow() -> None:
        async with pods.events() as events:
            async for event in events:
                seen.append(text_of(event))
                await asyncio.sleep(1)

    task = asyncio.create_task(follow())
    await settle()
    async with running(pods.run()):
        await pods.wait_synced()
        await settle()

    with pytest.raises(InformerStopped, match="pods has ended") as raised:
        await task

    assert seen == ["initial a", "initial b"], "readers may finish like handlers"
    assert raised.value.__cause__ is None


async def test_error_that_ended_the_informer_is_the_cause() -> None:
    pods = pods_of()
    bug = InternalError("ours")

    async def dies(*_: object, **__: object) -> None:
        raise bug

    (source,) = pods._sources.all
    assert isinstance(source, NamespaceSource)
    source.pipeline.commit = dies  # type: ignore[method-assign]
    async with pods.events() as events:
        task = asyncio.create_task(pods.run())
        with pytest.raises(InformerStopped) as raised:
            await anext(events)

        await asyncio.wait({task})

    assert raised.value.__cause__ is bug
    assert task.exception() is bug


async def test_informer_stopped_is_raised_on_every_read() -> None:
    pods = pods_of(Page(version=5))

    async with pods.events() as events:
        async with running(pods.run()):
            await settle()

        for _ in range(2):
            with pytest.raises(InformerStopped):
                await anext(events)


async def test_iterator_of_an_informer_that_cannot_run_raises() -> None:
    pods = pods_of()

    async with pods.events() as events:
        waiter = asyncio.create_task(anext(events))
        await settle()
        pods.abandon()

        with pytest.raises(InformerStopped):
            await waiter

    with pytest.raises(InformerStopped):
        await pods.events().__aenter__()


async def test_reader_that_stopped_reading_delays_the_stop_by_5_s(
    looptime: float,
) -> None:
    pods = pods_of(Page([thing(f"p{n}") for n in range(100)], version=5))

    async with pods.events() as events:
        async with running(pods.run()):
            await pods.wait_synced()
            await take(events, 1)

        assert looptime == 5
        # One more replaced the event that was read, if there was time.
        assert events.depth in {63, 64}, "other events are dropped"
        await take(events, events.depth)
        with pytest.raises(InformerStopped):
            await anext(events)


# ---------------------------------------------------------------- misuse


async def test_iterator_can_be_entered_only_once() -> None:
    pods = pods_of()
    events = pods.events(name="feed")
    idle = (repr(events), events.depth)

    with pytest.raises(OptionsError, match="enter the iterator first"):
        await anext(events)

    async with events:
        with pytest.raises(OptionsError, match="entered already"):
            await events.__aenter__()

        assert repr(events) == "<Events pods/feed depth=0>"

    assert idle == ("<Events not entered>", 0)


async def test_iterator_refuses_another_loop() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await settle()
        error = error_in_thread(lambda: asyncio.run(pods.events().__aenter__()))

    assert isinstance(error, WrongLoop)


# ---------------------------------------------------------------- handler options


async def test_filter_selects_the_events() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with (
        running(pods.run()),
        pods.events(filter=lambda obj: obj.labels.get("app") == "web") as events,
    ):
        stream.send(modified(thing("a", 6, labels={"app": "web"})))
        stream.send(added(thing("c", 7)))
        stream.send(modified(thing("a", 8)))

        assert await take(events, 2) == ["added a", "deleted a"]


async def test_coalescing_merges_queued_events() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with running(pods.run()), pods.events(coalesce=True) as events:
        await take(events, 2)
        more = asyncio.create_task(anext(events))
        await settle()
        for version in range(6, 106):
            stream.send(modified(thing("a", version)))
            await settle()

        first, second = await more, await anext(events)

        assert isinstance(first, Updated)
        assert isinstance(second, Updated)
        assert (first.new.resource_version, second.old.resource_version) == ("6", "6")
        assert second.new.resource_version == "105"
        assert events.depth == 0


async def test_resync_repeats_stored_objects(looptime: float) -> None:
    pods = pods_of(Page([thing("a")], version=5))

    async with running(pods.run()), pods.events(resync_period=30) as events:
        first, again = await anext(events), await anext(events)

    assert isinstance(first, Added)
    assert isinstance(again, Updated)
    assert again.resync
    assert looptime == pytest.approx(30, abs=1)


def test_invalid_options_are_refused_at_once() -> None:
    with pytest.raises(OptionsError):
        pods_of().events(resync_period=0.5)

    with pytest.raises(OptionsError):
        pods_of().events(filter="app=web")  # type: ignore[arg-type]
