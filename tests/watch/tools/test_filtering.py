"""`filtered()` and `Recorder`: forwarded events, and the end."""

from __future__ import annotations

import asyncio

import pytest
from canned import summaries
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


async def test_filtered_returns_only_kept_events() -> None:
    watch = filtered(played(*TABLE), without_b)

    assert summaries([event async for event in watch]) == ["ADDED foo", "ADDED qux"]


async def test_filtered_batches_have_only_kept_events() -> None:
    watch = filtered(played(*TABLE), without_b)

    found = []
    while batch := await watch.next_batch():  # perhaps two, as slices end by the clock
        found += batch

    assert summaries(found) == ["ADDED foo", "ADDED qux"]


async def test_batch_without_kept_events_does_not_end_watch() -> None:
    source = Stream([TABLE[1]], [TABLE[2]], [TABLE[3]], "end")

    assert summaries(await filtered(source, without_b).next_batch()) == ["ADDED qux"]


async def test_filter_may_return_another_event() -> None:
    def shout(event: WatchEvent) -> WatchEvent:
        return WatchEvent.of("BOOKMARK", pod(event.object.name + "-x"))

    watch = filtered(played(*TABLE[:2]), shout)

    found = [event async for event in watch]
    assert summaries(found) == ["BOOKMARK foo-x", "BOOKMARK bar-x"]


async def test_events_and_batches_of_filtered_watch_can_alternate() -> None:
    source = Stream(TABLE, [TABLE[3]], "end")
    watch = filtered(source, without_b)

    assert summaries([await anext(watch)]) == ["ADDED foo"]
    assert summaries(await watch.next_batch()) == ["ADDED qux"]
    assert summaries([await anext(watch)]) == ["ADDED qux"]
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_object_that_starts_to_match_stays_modified() -> None:
    def is_running(event: WatchEvent) -> WatchEvent | None:
        return event if event.object.at("status.phase") == "Running" else None

    source = played(
        added(thing("a", 1, status={"phase": "Pending"})),
        modified(thing("a", 2, status={"phase": "Running"})),
        modified(thing("a", 3, status={"phase": "Failed"})),
    )

    events = await filtered(source, is_running).next_batch()

    assert [event.type for event in events] == [EventType.MODIFIED]


async def test_filtered_iteration_takes_one_event_from_source() -> None:
    source = FakeWatch()
    watch = filtered(source, without_b)
    sending = [asyncio.create_task(source.action(event)) for event in TABLE]
    await turns()

    assert summaries([await anext(watch)]) == ["ADDED foo"]
    await turns()

    assert [it.done() for it in sending] == [True, False, False, False]
    watch.stop()
    await asyncio.wait(sending)
    assert isinstance(sending[1].exception(), QueueShutDown)


async def test_skipped_of_filtered_watch_is_that_of_source() -> None:
    source = Stream()
    watch = filtered(source, without_b)

    source.skipped = 3

    assert watch.skipped == 3


async def test_filtered_processes_long_batch_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    watch = filtered(played(*TABLE), without_b)
    batches = []
    while batch := await watch.next_batch():
        batches.append(summaries(batch))

    assert batches == [["ADDED foo"], ["ADDED qux"]]


# ---------------------------------------------------------------- how it ends


async def test_stopping_filtered_watch_stops_source() -> None:
    source = RaceFreeFakeWatch()
    watch = filtered(source, without_b)
    reading = asyncio.create_task(watch.next_batch())
    await turns()

    watch.stop()
    watch.stop()

    assert source.stopped
    assert await reading == []
    assert [event async for event in watch] == []


async def test_stopping_filtered_watch_wakes_iteration() -> None:
    watch = filtered(FakeWatch(), without_b)

    async def iterate() -> list[WatchEvent]:
        return [event async for event in watch]

    reading = asyncio.create_task(iterate())
    await turns()
    watch.stop()

    assert await reading == []


async def test_leaving_filtered_watch_stops_source() -> None:
    source = played(*TABLE)
    async with filtered(source, without_b) as watch:
        await anext(watch)

    assert source.stopped


async def test_stop_in_any_turn_ends_filtered_watch(
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


async def test_filtered_raises_errors_of_source() -> None:
    watch = filtered(Stream([TABLE[0]], TransportError("broken")), without_b)

    assert summaries([await anext(watch)]) == ["ADDED foo"]
    with pytest.raises(TransportError, match="broken"):
        await anext(watch)


async def test_cancelled_reader_loses_no_events(
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

        assert summaries(seen) == ["ADDED foo", "ADDED qux"], number


# ---------------------------------------------------------------- a filter that fails


class Fragile:
    """Filter that fails at `bar`, and records its arguments."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, event: WatchEvent) -> WatchEvent:
        self.given.append(event.object.name)
        if event.object.name == "bar":
            raise ZeroDivisionError

        return event


async def test_filter_error_replaces_its_event() -> None:
    fragile = Fragile()
    watch = filtered(played(*TABLE), fragile)

    assert summaries([await anext(watch)]) == ["ADDED foo"]
    with pytest.raises(ZeroDivisionError):
        await anext(watch)

    assert summaries([event async for event in watch]) == ["ADDED baz", "ADDED qux"]
    assert fragile.given == ["foo", "bar", "baz", "qux"]


async def test_filter_error_is_raised_after_earlier_batch() -> None:
    fragile, source = Fragile(), RaceFreeFakeWatch()
    watch = filtered(source, fragile)
    for event in TABLE:
        source.action(event)

    assert summaries(await watch.next_batch()) == ["ADDED foo"]
    with pytest.raises(ZeroDivisionError):
        await watch.next_batch()

    # The time that one step may take divides batches on a busy machine.
    rest = await watch.next_batch()
    rest += await watch.next_batch() if len(rest) == 1 else []
    assert summaries(rest) == ["ADDED baz", "ADDED qux"]
    assert fragile.given == ["foo", "bar", "baz", "qux"]


async def test_filter_error_is_raised_to_iteration_after_batch() -> None:
    watch = filtered(played(*TABLE), Fragile())
    await watch.next_batch()

    with pytest.raises(ZeroDivisionError):
        await anext(watch)

    assert summaries([await anext(watch)]) == ["ADDED baz"]


async def test_stop_drops_filter_error() -> None:
    watch = filtered(played(*TABLE), Fragile())
    await watch.next_batch()

    watch.stop()

    assert await watch.next_batch() == []
    assert [event async for event in watch] == []


async def test_filter_that_returns_bool_raises_type_error() -> None:
    watch = filtered(played(*TABLE), lambda event: bool(event))  # type: ignore[arg-type, return-value]

    with pytest.raises(TypeError, match="not True"):
        await anext(watch)


@pytest.mark.parametrize("whole", [True, False])
async def test_filter_may_stop_watch(whole: bool) -> None:
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

    assert summaries(given) == ["ADDED foo"]


# ---------------------------------------------------------------- the recorder


async def test_recorder_keeps_events() -> None:
    recorder = Recorder(played(*TABLE))
    assert recorder.events == []

    assert summaries([event async for event in recorder]) == summaries(TABLE)

    assert summaries(recorder.events) == summaries(TABLE)


async def test_recorder_keeps_only_returned_events() -> None:
    recorder = Recorder(played(*TABLE))

    await anext(recorder)
    assert summaries(recorder.events) == ["ADDED foo"]

    await recorder.next_batch()
    assert summaries(recorder.events) == summaries(TABLE)


async def test_recorder_events_are_a_copy() -> None:
    recorder = Recorder(played(*TABLE))
    await recorder.next_batch()

    recorder.events.clear()

    assert len(recorder.events) == len(TABLE)


async def test_recorder_keeps_events_after_stop() -> None:
    source = played(*TABLE)
    async with Recorder(source) as recorder:
        await anext(recorder)

    assert source.stopped
    assert summaries(recorder.events) == ["ADDED foo"]


async def test_repr_of_wrapping_watches_shows_source() -> None:
    watch = Recorder(filtered(FakeWatch(), without_b))

    assert repr(watch) == "<Recorder of <Filtered of <FakeWatch open buffered=0>>>"
