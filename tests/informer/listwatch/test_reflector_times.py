"""`Reflector`: exact times of its attempts, and duration of its watches."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Stream,
    error_event,
    initial_events_end,
    modified,
    thing,
)
from informer_helpers import reflector_of, running

from aioinformer.errors import (
    DecodeError,
    OptionsError,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
)
from aioinformer.informer import Reflector, ReflectorOptions
from aioinformer.watch import WatchEvent, WatchOptions

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)
TOO_LARGE = ServerError(
    "Too large resource version: 9, current: 7", status=504, reason="Timeout"
)


# ---------------------------------------------------------------- times


def attempts(seed: int, number: int) -> list[float]:
    """Return the expected starts of attempts that all fail at once."""
    draw, d, starts = random.Random(seed), 0.8, [0.0]
    while len(starts) < number:
        starts.append(starts[-1] + d * (1 + draw.random()))
        d = min(d * 2, 30.0)

    return starts


async def test_failing_attempts_are_spaced_with_doubling_and_jitter() -> None:
    source = FakeSource([BUSY])

    async with running(Reflector(source, FakeStore(), rng=random.Random(7)).run()):
        await asyncio.sleep(400)

    assert source.times == pytest.approx(attempts(7, len(source.times)), abs=1e-3)
    gaps = [after - before for before, after in pairwise(source.times)]
    assert len(gaps) > 9
    for d, gap in zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6], gaps, strict=False):
        assert d <= gap < 2 * d

    assert all(30 <= gap < 60 for gap in gaps[6:])


async def test_another_seed_gives_another_jitter() -> None:
    times = []
    for seed in (1, 2):
        source = FakeSource([BUSY])
        async with running(
            Reflector(source, FakeStore(), rng=random.Random(seed)).run()
        ):
            before = asyncio.get_running_loop().time()
            await asyncio.sleep(3)
            times.append(source.times[1] - before)

    assert times[0] != pytest.approx(times[1], abs=1e-3)


@pytest.mark.parametrize("error", [BROKEN, BUSY], ids=["broken", "503"])
async def test_gap_after_a_slow_failing_list_starts_at_its_end(
    error: Exception,
) -> None:
    """Otherwise such a list would be in progress all the time."""
    slow = Page([thing("a")], seconds=20.0, error=error)
    source = FakeSource([slow])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(6 * 3600)

    gaps = [after - before - 20 for before, after in pairwise(source.times)]
    assert gaps[:6] == pytest.approx([1.2, 2.4, 4.8, 9.6, 19.2, 38.4], abs=1e-3)
    assert gaps[6:] == pytest.approx([45.0] * len(gaps[6:]), abs=1e-3)
    assert len(source.times) < 6 * 60 * 60 / 60


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(EXPIRED, id="410"),
        pytest.param(TOO_LARGE, id="too-large"),
        pytest.param(error_event(410, "Expired"), id="410-in-mid-watch"),
        pytest.param(modified(thing("b", 3)), id="history-reset"),
    ],
)
async def test_expired_version_is_relisted_within_a_second(
    error: Exception | WatchEvent,
) -> None:
    """Earlier failures have made the gaps long."""
    end = error if isinstance(error, Exception) else Stream([error])
    source = FakeSource([*[BUSY] * 4, Page(version=7)], [end, Stream()])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(60)

    watched = next(it for it in source.requests if it.verb == "watch")
    relisted = source.requests[source.requests.index(watched) + 1]
    assert relisted.verb == "list"
    assert relisted.time - watched.time == pytest.approx(0.5, abs=1e-3)


async def test_stream_counts_as_a_watch_from_the_end_of_its_list() -> None:
    # Each list takes longer than its gap, and the watch after it expires at once.
    def slow_list() -> Stream:
        return Stream(2.0, [initial_events_end(7)], [error_event(410, "Expired")])

    source = FakeSource([], [slow_list() for _ in range(50)])

    async with running(reflector_of(source, streaming_list=True).run()):
        await asyncio.sleep(60)

    gaps = [after - before - 2.0 for before, after in pairwise(source.times)]
    assert gaps == pytest.approx([0.5, 1.2, 2.4, 4.8, 9.6, 19.2], abs=1e-3)


async def test_watch_that_outlived_its_gap_does_not_change_the_spacing() -> None:
    watches: list[Stream | Exception] = [Stream(10.0, END) for _ in range(4)]
    watches.append(BUSY)
    source = FakeSource([Page(version=7)], watches)

    async with running(reflector_of(source).run()):
        await asyncio.sleep(41.3)

    # The first failure is at 40 s, and the gap after it is still the first one, 1.2 s.
    assert source.times == pytest.approx([0, 0, 10, 20, 30, 40, 41.2], abs=1e-3)


async def test_watches_that_end_at_once_are_spaced_evenly() -> None:
    source = FakeSource([Page(version=7)], [Stream(END) for _ in range(9)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(5)

    assert source.times == pytest.approx([0, 0, 1.2, 2.4, 3.6, 4.8], abs=1e-3)


async def test_watches_that_break_at_once_are_spaced_like_failures() -> None:
    source = FakeSource([Page(version=7)], [Stream(BROKEN) for _ in range(9)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(20)

    assert source.times == pytest.approx([0, 0, 1.2, 3.6, 8.4, 18], abs=1e-3)


@pytest.mark.parametrize(
    ("seconds", "next_gap"),
    [pytest.param(119.0, 9.6, id="not-yet"), pytest.param(120.0, 1.2, id="useful")],
)
async def test_watch_of_two_minutes_resets_the_spacing(
    seconds: float, next_gap: float
) -> None:
    # Three failures double the gap to 9.6 s, before it is drawn for the last watch.
    watches: list[Stream | Exception] = [BUSY, BUSY, BUSY, Stream(seconds, END), BUSY]
    source = FakeSource([Page(version=7)], watches)

    async with running(reflector_of(source).run()):
        await asyncio.sleep(160)

    started, failed, after = source.times[4:7]
    assert failed - started == pytest.approx(seconds, abs=1e-3)
    assert after - failed == pytest.approx(next_gap, abs=1e-3)


@pytest.mark.parametrize(
    ("requested", "waited"),
    [
        pytest.param(None, 1.2, id="none"),
        pytest.param(0.5, 1.2, id="shorter-than-the-gap"),
        pytest.param(50.0, 50.0, id="longer"),
        pytest.param(3600.0, 120.0, id="at-most-two-minutes"),
    ],
)
@pytest.mark.parametrize("where", ["list", "watch"])
async def test_retry_after_is_a_lower_bound(
    requested: float | None, waited: float, where: str
) -> None:
    error = TooManyRequests("patience", status=429, retry_after=requested)
    source = (
        FakeSource([error, Page()])
        if where == "list"
        else FakeSource([Page()], [error])
    )

    async with running(reflector_of(source).run()):
        await asyncio.sleep(200)

    failed, after = [it.time for it in source.requests if it.verb == where][:2]
    assert after - failed == pytest.approx(waited, abs=1e-3)


async def test_error_event_can_carry_retry_after() -> None:
    event = error_event(429, "TooManyRequests", details={"retryAfterSeconds": 7})
    source = FakeSource([Page()], [Stream(5.0, [event])])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(30)

    assert source.times == pytest.approx([0, 0, 12], abs=1e-3)


@pytest.mark.parametrize(
    "end",
    [DecodeError("garbled"), [error_event(410, "Expired")]],
    ids=["garbled", "410"],
)
async def test_watches_that_always_cause_a_list_slow_down(
    end: Exception | list[WatchEvent],
) -> None:
    """Each watch lasts some seconds, but lists are expensive."""
    source = FakeSource([Page(version=7)], [Stream(5.0, end) for _ in range(500)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(3600)

    assert sum(it.verb == "list" for it in source.requests) < 3600 / 30


async def test_good_lists_with_failing_watches_are_no_hot_loop() -> None:
    source = FakeSource([Page()], [EXPIRED for _ in range(50)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(60)

    assert len(source.requests) < 20


# ---------------------------------------------------------------- watch seconds


async def test_watch_timeout_is_drawn_between_once_and_twice_watch_seconds() -> None:
    source = FakeSource([Page()], [Stream(200.0, END) for _ in range(60)])
    reflector = Reflector(
        source,
        FakeStore(),
        options=ReflectorOptions(watch_seconds=100),
        rng=random.Random(3),
    )

    async with running(reflector.run()):
        await asyncio.sleep(200 * 60)

    drawn = [
        it.options.timeout_seconds
        for it in source.requests
        if isinstance(it.options, WatchOptions)
    ]
    assert all(seconds is not None and 100 <= seconds < 200 for seconds in drawn)
    assert len(set(drawn)) > 20


@pytest.mark.parametrize("seconds", [0, 0.99, -1, float("inf"), float("nan")])
def test_invalid_watch_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(OptionsError, match=r"watch_seconds|duration"):
        ReflectorOptions(watch_seconds=seconds)


@pytest.mark.parametrize("size", [0, -5])
def test_invalid_page_size_is_refused(size: int) -> None:
    with pytest.raises(OptionsError, match="page_size"):
        ReflectorOptions(page_size=size)
