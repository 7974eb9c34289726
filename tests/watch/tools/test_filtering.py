"""Watches over watches: what passes, what is recorded, and how they end."""

from __future__ import annotations

import asyncio

import pytest
from canned import told
from conftest import pod
from fake_source import Stream, added, modified, thing

from aioinformer.errors import QueueShutDown, TransportError
from aioinformer.watch import (
    EventType,
    FakeWatch,
    RaceFreeFakeWatch,
    Recorder,
    WatchEvent,
    filtered,
)

# A few names, of which every other one passes.
TABLE = [WatchEvent.of("ADDED", pod(name)) for name in ("foo", "bar", "baz", "qux")]


def without_b(event: WatchEvent) -> WatchEvent | None:
    return None if event.object.name.startswith("b") else event


def played(*events: WatchEvent) -> RaceFreeFakeWatch:
    watch = RaceFreeFakeWatch()
    for event in events:
        watch.action(event)

    watch.end()
    return watch


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- what passes


async def test_only_what_the_filter_keeps_passes() -> None:
    watch = filtered(played(*TABLE), without_b)

    assert told([event async for event in watch]) == ["ADDED foo", "ADDED qux"]


async def test_batches_hold_what_the_filter_keeps() -> None:
    watch = filtered(played(*TABLE), without_b)

    assert told(await watch.next_batch()) == ["ADDED foo", "ADDED qux"]
    assert await watch.next_batch() == []


async def test_a_batch_of_which_nothing_is_kept_is_not_the_end() -> None:
    source = Stream([TABLE[1]], [TABLE[2]], [TABLE[3]], "end")

    assert told(await filtered(source, without_b).next_batch()) == ["ADDED qux"]


async def test_a_filter_may_give_another_event() -> None:
    def shout(event: WatchEvent) -> WatchEvent:
        return WatchEvent.of("BOOKMARK", pod(event.object.name + "-x"))

    watch = filtered(played(*TABLE[:2]), shout)

    assert told(await watch.next_batch()) == ["BOOKMARK foo-x", "BOOKMARK bar-x"]


async def test_events_and_batches_are_taken_by_turns() -> None:
    source = Stream(TABLE, [TABLE[3]], "end")
    watch = filtered(source, without_b)

    assert told([await anext(watch)]) == ["ADDED foo"]
    assert told(await watch.next_batch()) == ["ADDED qux"]
    assert told([await anext(watch)]) == ["ADDED qux"]
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_object_that_starts_to_match_is_still_modified() -> None:
    def is_running(event: WatchEvent) -> WatchEvent | None:
        return event if event.object.at("status.phase") == "Running" else None

    source = played(
        added(thing("a", 1, status={"phase": "Pending"})),
        modified(thing("a", 2, status={"phase": "Running"})),
        modified(thing("a", 3, status={"phase": "Failed"})),
    )

    events = await filtered(source, is_running).next_batch()

    assert [event.type for event in events] == [EventType.MODIFIED]


async def test_an_iteration_keeps_who_sends_waiting() -> None:
    source = FakeWatch()
    watch = filtered(source, without_b)
    sending = [asyncio.create_task(source.action(event)) for event in TABLE]
    await turns()

    assert told([await anext(watch)]) == ["ADDED foo"]
    await turns()

    assert [it.done() for it in sending] == [True, False, False, False]
    watch.stop()
    await asyncio.wait(sending)
    assert isinstance(sending[1].exception(), QueueShutDown)


async def test_skipped_is_that_of_the_source() -> None:
    source = Stream()
    watch = filtered(source, without_b)

    source.skipped = 3

    assert watch.skipped == 3


async def test_a_long_batch_comes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    watch = filtered(played(*TABLE), without_b)
    batches = []
    while batch := await watch.next_batch():
        batches.append(told(batch))

    assert batches == [["ADDED foo"], ["ADDED qux"]]


# ---------------------------------------------------------------- how it ends


async def test_stopping_stops_the_watch_below() -> None:
    source = RaceFreeFakeWatch()
    watch = filtered(source, without_b)
    reading = asyncio.create_task(watch.next_batch())
    await turns()

    watch.stop()
    watch.stop()

    assert source.stopped
    assert await reading == []
    assert [event async for event in watch] == []


async def test_stopping_wakes_an_iteration() -> None:
    watch = filtered(FakeWatch(), without_b)

    async def iterate() -> list[WatchEvent]:
        return [event async for event in watch]

    reading = asyncio.create_task(iterate())
    await turns()
    watch.stop()

    assert await reading == []


async def test_leaving_the_context_stops_the_watch_below() -> None:
    source = played(*TABLE)
    async with filtered(source, without_b) as watch:
        await anext(watch)

    assert source.stopped


async def test_stopping_in_any_turn_ends_it_for_who_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    for number in range(20):
        watch = filtered(played(*TABLE[1:3]), without_b)
        reading = asyncio.create_task(watch.next_batch())
        await turns(number)

        watch.stop()

        assert await reading == []


async def test_filtered_watch_ends_when_its_source_is_stopped() -> None:
    source = RaceFreeFakeWatch()
    reading = asyncio.create_task(filtered(source, without_b).next_batch())
    await turns()

    source.stop()

    assert await reading == []


async def test_errors_of_the_watch_below_are_raised() -> None:
    watch = filtered(Stream([TABLE[0]], TransportError("broken")), without_b)

    assert told([await anext(watch)]) == ["ADDED foo"]
    with pytest.raises(TransportError, match="broken"):
        await anext(watch)


async def test_a_cancelled_reader_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    for number in range(20):
        watch = filtered(played(*TABLE), without_b)
        seen: list[WatchEvent] = []

        async def read(watch: object, seen: list[WatchEvent]) -> None:
            assert hasattr(watch, "next_batch")
            while batch := await watch.next_batch():
                seen += batch

        reading = asyncio.create_task(read(watch, seen))
        await turns(number)
        reading.cancel()
        await asyncio.wait({reading})
        await read(watch, seen)

        assert told(seen) == ["ADDED foo", "ADDED qux"], number


# ---------------------------------------------------------------- a filter that fails


class Fragile:
    """A filter that fails at `bar`, and notes what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, event: WatchEvent) -> WatchEvent:
        self.given.append(event.object.name)
        if event.object.name == "bar":
            raise ZeroDivisionError

        return event


async def test_an_error_of_the_filter_comes_in_the_place_of_its_event() -> None:
    fragile = Fragile()
    watch = filtered(played(*TABLE), fragile)

    assert told([await anext(watch)]) == ["ADDED foo"]
    with pytest.raises(ZeroDivisionError):
        await anext(watch)

    assert told([event async for event in watch]) == ["ADDED baz", "ADDED qux"]
    assert fragile.given == ["foo", "bar", "baz", "qux"]


async def test_an_error_of_the_filter_comes_behind_the_batch_before_it() -> None:
    fragile, source = Fragile(), RaceFreeFakeWatch()
    watch = filtered(source, fragile)
    for event in TABLE:
        source.action(event)

    assert told(await watch.next_batch()) == ["ADDED foo"]
    with pytest.raises(ZeroDivisionError):
        await watch.next_batch()

    assert told(await watch.next_batch()) == ["ADDED baz", "ADDED qux"]
    assert fragile.given == ["foo", "bar", "baz", "qux"]


async def test_an_error_of_the_filter_is_raised_to_who_goes_on_by_single_events() -> (
    None
):
    watch = filtered(played(*TABLE), Fragile())
    await watch.next_batch()

    with pytest.raises(ZeroDivisionError):
        await anext(watch)

    assert told([await anext(watch)]) == ["ADDED baz"]


async def test_an_error_of_the_filter_goes_with_the_watch() -> None:
    watch = filtered(played(*TABLE), Fragile())
    await watch.next_batch()

    watch.stop()

    assert await watch.next_batch() == []
    assert [event async for event in watch] == []


async def test_a_predicate_is_told_that_it_is_no_filter() -> None:
    watch = filtered(played(*TABLE), lambda event: bool(event))  # type: ignore[arg-type, return-value]

    with pytest.raises(TypeError, match="not True"):
        await anext(watch)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_filter_may_stop_the_watch(whole: bool) -> None:
    given: list[WatchEvent] = []

    def stop(event: WatchEvent) -> WatchEvent:
        given.append(event)
        watch.stop()
        return event

    watch = filtered(played(*TABLE), stop)

    if whole:
        assert await watch.next_batch() == []
    else:
        assert [event async for event in watch] == []

    assert told(given) == ["ADDED foo"]


# ---------------------------------------------------------------- the recorder


async def test_a_recorder_remembers_what_passed() -> None:
    recorder = Recorder(played(*TABLE))
    assert recorder.events == []

    assert told([event async for event in recorder]) == told(TABLE)

    assert told(recorder.events) == told(TABLE)


async def test_a_recorder_remembers_what_was_handed_out_and_no_more() -> None:
    recorder = Recorder(played(*TABLE))

    await anext(recorder)
    assert told(recorder.events) == ["ADDED foo"]

    await recorder.next_batch()
    assert told(recorder.events) == told(TABLE)


async def test_events_of_a_recorder_are_a_copy() -> None:
    recorder = Recorder(played(*TABLE))
    await recorder.next_batch()

    recorder.events.clear()

    assert len(recorder.events) == len(TABLE)


async def test_a_recorder_keeps_its_events_after_the_stop() -> None:
    source = played(*TABLE)
    async with Recorder(source) as recorder:
        await anext(recorder)

    assert source.stopped
    assert told(recorder.events) == ["ADDED foo"]


async def test_watches_over_watches_say_what_is_below() -> None:
    watch = Recorder(filtered(FakeWatch(), without_b))

    assert repr(watch) == "<Recorder of <Filtered of <FakeWatch open buffered=0>>>"
