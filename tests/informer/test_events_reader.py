"""`SharedInformer.events`: what handlers are told, as an async iterator."""

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
from informer_helpers import pods_of, running, settle
from namespace_helpers import tell
from queue_helpers import error_in_thread

from aioinformer.errors import InformerStopped, InternalError, OptionsError, WrongLoop
from aioinformer.informer import Added, Updated

if TYPE_CHECKING:
    from aioinformer.informer.handlers.registration import Events
    from aioinformer.informer.notifications import Notification


async def take(events: Events, number: int) -> list[str]:
    return [tell(await anext(events)) for _ in range(number)]


async def test_what_there_is_comes_first_and_then_every_change_in_order() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with running(pods.run()), pods.events() as events:
        stream.send(modified(thing("b", 6)), added(thing("c", 7)))
        stream.send(deleted(thing("a", 8)))

        assert await take(events, 5) == [
            *("initial a", "initial b", "updated b", "added c", "deleted a"),
        ]


async def test_each_block_has_all_of_it_from_its_own_beginning() -> None:
    stream = Stream()
    pods = pods_of(Page([thing("a")], version=5), watches=(stream,))

    async with running(pods.run()), pods.events() as early:
        await pods.wait_synced()
        stream.send(modified(thing("a", 6)))
        await pods.wait_for_version("6")
        async with pods.events() as late:
            assert await take(late, 1) == ["initial a"]

        assert await take(early, 2) == ["initial a", "updated a"]


async def test_an_end_that_was_not_seen_is_told() -> None:
    pods = pods_of(
        Page([thing("a")], version=5),
        Page([], version=9),
        watches=(Stream(1.0, [error_event(410)]),),
    )

    async with running(pods.run()), pods.events() as events:
        assert await take(events, 2) == ["initial a", "gone a"]


async def test_they_may_be_asked_for_before_it_runs() -> None:
    pods = pods_of()

    async with pods.events() as events, running(pods.run()):
        assert await take(events, 2) == ["initial a", "initial b"]


async def test_iterates_for_as_long_as_one_wants() -> None:
    pods = pods_of()
    names: list[str] = []

    async with running(pods.run()), pods.events() as events:
        async for event in events:
            assert isinstance(event, Added)
            names.append(event.obj.name)
            if len(names) == 2:
                break

    assert names == ["a", "b"]


# ---------------------------------------------------------------- at its own pace


async def test_who_is_slow_loses_nothing_and_delays_nobody(looptime: float) -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    told: list[str] = []

    async with running(pods.run()), pods.events() as events:
        pods.add_event_handler(on_event=lambda event: told.append(tell(event)))
        stream.send(*(modified(thing("a", 6 + more)) for more in range(100)))
        await asyncio.sleep(10)
        waiting = events.depth
        seen: list[str] = []
        for _ in range(102):
            seen += await take(events, 1)
            await asyncio.sleep(1)

        assert (waiting, events.depth) == (102, 0)
        assert seen == told
        assert looptime == 112


async def test_what_is_taken_ahead_is_bounded() -> None:
    """The rest waits where it is seen, counted and warned of."""
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
async def test_nothing_is_lost_when_waiting_is_cancelled(turns: int) -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    seen: list[str] = []

    async def consume(events: Events) -> None:
        while True:
            seen.append(tell(await anext(events)))

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


async def test_a_cancelled_block_is_removed() -> None:
    pods = pods_of()

    async def follow() -> None:
        async with pods.events() as events:
            async for _ in events:
                pass

    async with running(pods.run()):
        task = asyncio.create_task(follow())
        await settle()
        during = len(pods._processor.listeners)
        task.cancel()
        await asyncio.wait({task})
        await settle()

        assert (during, len(pods._processor.listeners)) == (1, 0)
        assert pods._run_state.followers == [pods._waiters.wake_all]


# ---------------------------------------------------------------- the end


async def test_several_who_read_share_what_comes() -> None:
    """Also where one notification is handed over at a time, and one of them is slow."""
    pods = pods_of()
    taken: dict[int, list[str]] = {1: [], 2: []}

    async with running(pods.run()), pods.events(coalesce=True) as events:

        async def read(number: int) -> None:
            async for event in events:
                taken[number].append(tell(event))
                await asyncio.sleep(1000)

        async with running(read(1)), running(read(2)):
            await asyncio.sleep(1)

    assert taken == {1: ["initial a"], 2: ["initial b"]}


async def test_leaving_the_block_ends_it_whatever_waits() -> None:
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


async def test_another_task_that_iterates_ends_when_the_block_is_left() -> None:
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


async def test_the_end_of_the_informer_is_raised_behind_what_it_told() -> None:
    pods = pods_of()
    seen: list[str] = []

    async def follow() -> None:
        async with pods.events() as events:
            async for event in events:
                seen.append(tell(event))
                await asyncio.sleep(1)

    task = asyncio.create_task(follow())
    await settle()
    async with running(pods.run()):
        await pods.wait_synced()
        await settle()

    with pytest.raises(InformerStopped, match="pods has ended") as raised:
        await task

    assert seen == ["initial a", "initial b"], "handlers may finish, and so may this"
    assert raised.value.__cause__ is None


async def test_what_it_died_of_is_the_cause() -> None:
    pods = pods_of()
    bug = InternalError("ours")

    async def dies(*_: object) -> None:
        raise bug

    pods._sources.all[0].pipeline.commit = dies  # type: ignore[method-assign, assignment]
    async with pods.events() as events:
        task = asyncio.create_task(pods.run())
        with pytest.raises(InformerStopped) as raised:
            await anext(events)

        await asyncio.wait({task})

    assert raised.value.__cause__ is bug
    assert task.exception() is bug


async def test_the_end_is_raised_again_and_again() -> None:
    pods = pods_of(Page(version=5))

    async with pods.events() as events:
        async with running(pods.run()):
            await settle()

        for _ in range(2):
            with pytest.raises(InformerStopped):
                await anext(events)


async def test_one_that_will_never_run_says_so() -> None:
    pods = pods_of()

    async with pods.events() as events:
        waiter = asyncio.create_task(anext(events))
        await settle()
        pods.abandon()

        with pytest.raises(InformerStopped):
            await waiter

    with pytest.raises(InformerStopped):
        await pods.events().__aenter__()


async def test_one_who_has_stopped_reading_holds_up_the_end_for_5_seconds(
    looptime: float,
) -> None:
    pods = pods_of(Page([thing(f"p{n}") for n in range(100)], version=5))

    async with pods.events() as events:
        async with running(pods.run()):
            await pods.wait_synced()
            await take(events, 1)

        assert looptime == 5
        # One more was put in the place of the one that was taken, if there was time.
        assert events.depth in {63, 64}, "the rest is dropped"
        await take(events, events.depth)
        with pytest.raises(InformerStopped):
            await anext(events)


# ---------------------------------------------------------------- its use


async def test_it_is_used_in_one_block() -> None:
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


async def test_it_belongs_to_the_informers_loop() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await settle()
        error = error_in_thread(lambda: asyncio.run(pods.events().__aenter__()))

    assert isinstance(error, WrongLoop)


# ---------------------------------------------------------------- options of handlers


async def test_a_filter_chooses_what_the_reader_is_told() -> None:
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


async def test_what_waits_for_a_slow_reader_may_be_merged() -> None:
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


async def test_a_reader_may_be_reminded_of_what_there_is(looptime: float) -> None:
    pods = pods_of(Page([thing("a")], version=5))

    async with running(pods.run()), pods.events(resync_period=30) as events:
        first, again = await anext(events), await anext(events)

    assert isinstance(first, Added)
    assert isinstance(again, Updated)
    assert again.resync
    assert looptime == pytest.approx(30, abs=1)


def test_options_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(OptionsError):
        pods_of().events(resync_period=0.5)

    with pytest.raises(OptionsError):
        pods_of().events(filter="app=web")  # type: ignore[arg-type]
