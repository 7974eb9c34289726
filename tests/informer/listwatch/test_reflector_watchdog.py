"""`Reflector`: watches without the usual bookmarks are stalled, and are ended."""

from __future__ import annotations

import asyncio

import pytest
from fake_source import (
    FakeSource,
    FakeStore,
    Page,
    Stream,
    added,
    bookmark,
    error_event,
    initial_events_end,
    modified,
    thing,
)
from informer_helpers import reflector_of, running

from aioinformer.errors import HistoryReset, TransportError


def rhythm(bookmarks: int, every: float = 60.0) -> Stream:
    """Make a stream with regular bookmarks that then falls silent."""
    stream = Stream()
    for number in range(bookmarks):
        stream.then(every)
        stream.then([bookmark(10 + number)])

    return stream


def watches(source: FakeSource) -> list[float]:
    return [it.time for it in source.requests if it.verb == "watch"]


async def test_stalled_watch_is_ended_and_resumed() -> None:
    source = FakeSource([Page(version=7)], [rhythm(2, every=50.0)])
    errors: list[Exception] = []
    reflector = reflector_of(source)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await asyncio.sleep(226)  # 2.5 times 50 s after the last bookmark at 100 s

        assert source.open == 1

    assert source.requested == ["list '0'", "watch '7'", "watch '11'"]
    assert watches(source)[1] == pytest.approx(225, abs=0.1)
    (error,) = errors
    assert isinstance(error, TransportError)
    assert str(error) == "watch was silent for 125 s, with bookmarks every 50 s before"


async def test_stall_is_detected_after_90_s_at_the_earliest() -> None:
    source = FakeSource([Page(version=7)], [rhythm(3, every=10.0)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(150)

    assert watches(source)[1] == pytest.approx(30 + 90, abs=0.1)


@pytest.mark.parametrize("bookmarks", [0, 1])
async def test_watch_without_bookmarks_may_be_silent(bookmarks: int) -> None:
    source = FakeSource([Page(version=7)], [rhythm(bookmarks)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(1000)

    assert len(watches(source)) == 1


async def test_error_event_does_not_count_as_a_bookmark() -> None:
    # A bookmark, an ERROR event a minute later, then a watch that is only silent.
    stream = Stream(1.0, [bookmark(8)], 60.0, [error_event(500)])
    source = FakeSource([Page(version=7)], [stream])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(1000)

    assert len(watches(source)) == 2


async def test_any_event_postpones_the_deadline() -> None:
    stream = rhythm(2)
    for number in range(10):
        stream.then(140.0)
        stream.then([modified(thing("a", 20 + number))])
    source = FakeSource([Page(version=7)], [stream])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(120 + 1400 + 149)

        assert len(watches(source)) == 1
        await asyncio.sleep(2)

    assert len(watches(source)) == 2


async def test_bookmarks_among_other_events_are_measured() -> None:
    stream = Stream()
    for number in range(4):
        version = 10 + 2 * number
        stream.then(40.0)
        stream.then([added(thing("a", version)), bookmark(version + 1)])
    source = FakeSource([Page(version=7)], [stream])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(400)

    assert watches(source)[1] == pytest.approx(160 + 100, abs=0.1)


async def test_single_long_gap_is_forgotten() -> None:
    stream = rhythm(2, every=100.0)
    for number in range(10):
        stream.then(40.0)
        stream.then([bookmark(20 + number)])
    source = FakeSource([Page(version=7)], [stream])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(800)

    assert watches(source)[1] == pytest.approx(200 + 400 + 100, abs=0.1)


async def test_measured_gaps_apply_to_the_next_watch() -> None:
    first = rhythm(3)
    first.then(TransportError("cut"))
    source = FakeSource([Page(version=7)], [first, Stream()])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(180 + 151)

    assert watches(source)[1:] == pytest.approx([180, 330], abs=0.1)


async def test_stream_is_watched_after_its_list() -> None:
    stream = Stream([added(thing("a", 3)), initial_events_end(9)])
    for number in range(2):
        stream.then(60.0)
        stream.then([bookmark(10 + number)])
    source = FakeSource([], [stream])

    async with running(reflector_of(source, streaming_list=True).run()):
        await asyncio.sleep(300)

    assert source.requested == ["stream ''", "watch '11'"]
    assert watches(source) == pytest.approx([120 + 150], abs=0.1)


class StoreThatWaits(FakeStore):
    """A store that takes long for its third batch."""

    async def feed(self, deltas, resource_version):  # type: ignore[no-untyped-def]
        await super().feed(deltas, resource_version)
        if len(self.fed) == 3:
            await asyncio.sleep(1000)


async def test_slow_store_does_not_count_as_silence() -> None:
    stream = rhythm(3)
    stream.then([bookmark(90)])
    source = FakeSource([Page(version=7)], [stream])
    store = StoreThatWaits()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(180 + 1000 + 1)

        assert (store.version, reflector.failures) == ("90", 0)

    assert len(watches(source)) == 1


async def test_no_timer_remains_after_the_end() -> None:
    loop = asyncio.get_running_loop()
    source = FakeSource([Page(version=7)], [rhythm(3)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(181)

    timers = [it for it in loop._scheduled if not it.cancelled()]  # type: ignore[attr-defined]
    assert [it for it in timers if "Guard" in repr(it)] == []


async def test_batches_do_not_start_timers_of_their_own() -> None:
    stream = rhythm(3)
    for number in range(1000):
        stream.then([modified(thing("a", 20 + number))])
    loop = asyncio.get_running_loop()
    source = FakeSource([Page(version=7)], [stream])
    set_timers: list[float] = []
    call_at = loop.call_at

    def counting(when, callback, *args, **more):  # type: ignore[no-untyped-def]
        if "WatchdogTimer" in repr(callback):
            set_timers.append(when)

        return call_at(when, callback, *args, **more)

    loop.call_at = counting  # type: ignore[assignment, method-assign]
    try:
        async with running(reflector_of(source).run()):
            await asyncio.sleep(300)
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]

    assert 0 < len(set_timers) <= 3


async def test_silence_of_a_new_watch_is_still_checked() -> None:
    first = rhythm(3, every=30.0)
    first.then(TransportError("cut"))
    source = FakeSource([Page(version=7)], [first, Stream()])
    source.newest = 3
    errors: list[Exception] = []
    reflector = reflector_of(source)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await asyncio.sleep(160)

    assert source.checks[0] == pytest.approx(90 + 60, abs=0.1)
    assert [type(it) for it in errors] == [TransportError, HistoryReset]
