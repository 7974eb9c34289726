"""`RetryWatch`: pace, `stop()`, and cancelled readers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import END, FakeSource, Silence, Stream, error_event
from informer_helpers import Even
from retry_helpers import BROKEN, events_of, retry_watch, summaries, take, take_all

from aioinformer.errors import ServerError
from aioinformer.watch import RetryWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.watch import WatchOptions

# ---------------------------------------------------------------- pace


async def test_short_watches_start_at_regular_intervals() -> None:
    source, watch = retry_watch(
        *[Stream(events_of(version), END) for version in range(2, 8)], Stream()
    )
    async with watch:
        await take(watch, 6)

    gaps = [b - a for a, b in zip(source.times, source.times[1:], strict=False)]
    # 0.8 s, 1.5 times as long.
    assert gaps == pytest.approx([1.2] * 5, abs=0.01)


async def test_shortest_gap_between_watches_is_one_second() -> None:
    class Early(Even):
        def random(self) -> float:
            return 0.0

    source = FakeSource(watches=[Stream(END), Stream(events_of(2))])
    async with RetryWatch(source, "1", rng=Early()) as watch:
        await take(watch, 1)

    assert source.times == [0.0, 1.0], "0.8 s would be less"


async def test_long_watch_is_resumed_immediately() -> None:
    source, watch = retry_watch(
        Stream(30.0, END), Stream(1.6, BROKEN), Stream(events_of(2))
    )

    async with watch:
        await take(watch, 1)

    assert source.times == pytest.approx([0.0, 30.0, 31.6])


async def test_pauses_grow_with_failures_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, watch = retry_watch(*[BROKEN] * 9, Stream(events_of(2)))

    async with watch:
        await take(watch, 1)

    gaps = [b - a for a, b in zip(source.times, source.times[1:], strict=False)]
    assert gaps == pytest.approx(
        [1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 45, 45, 45], rel=0.001
    )
    assert watch.failures == 0
    assert watch.last_error is None
    # The 1st, 2nd, 4th and 8th of a row.
    assert len(caplog.records) == 4
    assert "failures=8" in caplog.text


@pytest.mark.parametrize(
    ("trouble", "start"),
    [
        pytest.param(
            ServerError("busy", status=503, retry_after=20.0), 20, id="a-refusal"
        ),
        pytest.param(
            Stream([error_event(500, details={"retryAfterSeconds": 20})]),
            20,
            id="an-event",
        ),
        pytest.param(
            ServerError("busy", status=503, retry_after=86400.0),
            120,
            id="2-min-at-most",
        ),
        pytest.param(
            ServerError("busy", status=503, retry_after=0.0), 1.2, id="no-excuse"
        ),
    ],
)
async def test_retry_watch_respects_retry_after(
    trouble: Stream | Exception, start: float
) -> None:
    source, watch = retry_watch(trouble, Stream(events_of(2)))

    async with watch:
        await take(watch, 1)

    assert source.times == pytest.approx([0, start])


async def test_retry_watch_repr_shows_state() -> None:
    stream = Stream(events_of(2))
    _, watch = retry_watch(BROKEN, stream)
    assert repr(watch) == (
        "<RetryWatch retry watch version=1 not connected failures=0>"
    )

    async with watch:
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(1)
        assert "not connected failures=1" in repr(watch)
        assert watch.last_error is BROKEN

        await waiting
        assert repr(watch) == (
            "<RetryWatch retry watch version=2 connected failures=0>"
        )

    assert "ended" in repr(watch)


# ---------------------------------------------------------------- stop


async def ended_by_stop(watch: RetryWatch, after: float) -> list[str]:
    """Return the events read until the watch was stopped; stopping takes no time."""
    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(take_all(watch))
    await asyncio.sleep(after)
    watch.stop()
    watch.stop()
    before = loop.time()
    events = await reading
    assert loop.time() == before
    return events


@pytest.mark.parametrize(
    ("watches", "after"),
    [
        pytest.param([Stream()], 5, id="while-reading"),
        pytest.param([Silence()], 5, id="while-connecting"),
        pytest.param([ServerError("", status=503, retry_after=99.0)], 5, id="pausing"),
        pytest.param([Stream(END)], 1.1, id="pausing-after-an-end"),
        pytest.param([Stream()], 0, id="before-its-first-step"),
    ],
)
async def test_stop_ends_retry_watch_immediately(
    watches: list[Any], after: float
) -> None:
    source, watch = retry_watch(*watches)

    async with watch:
        assert await ended_by_stop(watch, after) == []
        assert source.open == 0, "the reader has closed it"
        assert await watch.next_batch() == []


async def test_stop_in_any_turn_ends_retry_watch() -> None:
    for turns in range(30):
        source, watch = retry_watch(Stream(events_of(2), END), Silence())
        reading = asyncio.create_task(take_all(watch))
        for _ in range(turns):
            await asyncio.sleep(0)

        watch.stop()
        await asyncio.wait({reading})

        assert reading.result() in ([], ["ADDED 2"])
        assert source.open == 0


async def test_retry_watch_without_reader_can_be_stopped() -> None:
    source, watch = retry_watch(Stream(events_of(2, 3, 4)))

    async with watch:
        await take(watch, 1)
        watch.stop()
        assert watch.stopped
        assert await watch.next_batch() == [], "what was not taken is dropped"

    assert source.open == 0


async def test_retry_watch_stopped_before_reading_sends_nothing() -> None:
    source, watch = retry_watch(Stream(events_of(2)))

    watch.stop()
    async with watch:
        assert await take_all(watch) == []

    assert source.requests == []


async def test_leaving_retry_watch_closes_connection() -> None:
    source, watch = retry_watch(Stream(events_of(2)))

    async with watch:
        await take(watch, 1)
        assert source.open == 1

    assert source.open == 0


async def test_error_within_context_closes_connection() -> None:
    source, watch = retry_watch(Stream(events_of(2)))

    async def fail() -> None:
        async with watch:
            await take(watch, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert source.open == 0


async def test_error_while_leaving_watch_is_dropped() -> None:
    class Rude(FakeSource):
        @asynccontextmanager
        async def watch(self, options: WatchOptions) -> AsyncIterator[Stream]:
            async with super().watch(options) as stream:
                yield stream
                raise BROKEN

    source = Rude(watches=[Stream(events_of(2), END), Stream(events_of(3))])
    async with RetryWatch(source, "1") as watch:
        assert await take(watch, 2) == ["ADDED 2", "ADDED 3"]

    assert source.open == 0


async def test_retry_watch_stopped_while_leaving_starts_no_other() -> None:
    class Slow(FakeSource):
        @asynccontextmanager
        async def watch(self, options: WatchOptions) -> AsyncIterator[Stream]:
            async with super().watch(options) as stream:
                yield stream
                await asyncio.sleep(9)

    source = Slow(watches=[Stream(END), Stream()])
    async with RetryWatch(source, "1") as watch:
        reading = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(5)
        watch.stop()

        assert await reading == []

    assert len(source.requested) == 1
    assert source.open == 0


# ---------------------------------------------------------------- cancellation


async def test_cancelled_wait_loses_no_events() -> None:
    stream = Stream()
    source, watch = retry_watch(stream)

    async with watch:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await watch.next_batch()

        stream.send(*events_of(2))
        assert summaries(await watch.next_batch()) == ["ADDED 2"]

    assert source.requested == ["watch '1'"], "the connection outlived them"


async def test_cancelled_waits_do_not_shorten_pause() -> None:
    source, watch = retry_watch(
        ServerError("busy", status=503, retry_after=20.0), Stream(events_of(2))
    )

    async with watch:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await watch.next_batch()

        await take(watch, 1)

    assert source.times == pytest.approx([0, 20])


async def test_cancelled_attempts_start_one_second_apart() -> None:
    source, watch = retry_watch(*[Silence()] * 3, Stream(events_of(2)))

    async with watch:
        for _ in range(6):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await watch.next_batch()

            assert source.open == 0

        await take(watch, 1)

    assert source.times == pytest.approx([0, 1, 2, 3])
