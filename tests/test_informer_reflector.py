"""`Reflector`: which requests it makes, exactly when, and what it says of itself."""

from __future__ import annotations

import asyncio
import logging
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    Silence,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import Even, running, settle

from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    HistoryReset,
    NotFound,
    OptionsError,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.informer import Reflector, ReflectorOptions
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = ServerError("busy", status=503)
BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)


def reflector_of(
    source: FakeSource, store: FakeStore | None = None, **options: float
) -> Reflector:
    return Reflector(
        source,
        store or FakeStore(),
        name="pods",
        options=ReflectorOptions(**options) if options else None,  # type: ignore[arg-type]
        rng=Even(),
    )


# ---------------------------------------------------------------- requests


async def test_lists_from_what_the_server_has_and_watches_from_there() -> None:
    source = FakeSource([Page([thing("a", 3)], version=7)])
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await settle()

    assert [request.options for request in source.requests] == [
        ListOptions(resource_version="0", limit=500),
        WatchOptions(resource_version="7", timeout_seconds=450, bookmarks=True),
    ]
    assert (store.names, store.commits) == (["a@3"], ["7"])


async def test_reads_all_pages_without_a_pause() -> None:
    source = FakeSource(
        [
            Page([thing("a"), thing("b"), thing("c")], version=7, token="t1"),
            Page([thing("d")], version=8, token="t2"),
            Page([thing("e")], version=9),
        ]
    )
    store = FakeStore()

    async with running(reflector_of(source, store, page_size=3).run()):
        await settle()

    assert source.asked == ["list '0'", "list t1", "list t2", "watch '7'"]
    assert source.times == [0, 0, 0, 0]
    assert [getattr(it.options, "limit", None) for it in source.requests] == [
        *(3, 3, 3),
        None,
    ]
    assert store.names == ["a@1", "b@1", "c@1", "d@1", "e@1"]


async def test_a_list_without_objects_is_complete_too() -> None:
    store = FakeStore()

    async with running(reflector_of(FakeSource([Page(version=5)]), store).run()):
        await settle()

    assert store.commits == ["5"]


async def test_feeds_what_a_watch_brings_in_batches() -> None:
    stream = Stream([added(thing("a", 8)), added(thing("b", 9))], [bookmark(12)])
    store = FakeStore()

    async with running(
        reflector_of(FakeSource([Page(version=7)], [stream]), store).run()
    ):
        await settle()

    fed = [(len(deltas), version) for deltas, version in store.fed]
    assert fed == [(2, "9"), (0, "12")]
    assert store.names == ["a@8", "b@9"]


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        pytest.param(Stream([bookmark(9)], END), "watch '9'", id="clean-end"),
        pytest.param(Stream([bookmark(9)], BROKEN), "watch '9'", id="broken"),
        pytest.param(
            Stream([bookmark(9)], DecodeError("?")), "list '9'", id="unreadable"
        ),
        pytest.param(BROKEN, "watch '7'", id="connection-refused"),
        pytest.param(Forbidden("no", status=403), "watch '7'", id="403"),
        pytest.param(NotFound("?", status=404), "list '7'", id="404"),
        pytest.param(BUSY, "watch '7'", id="503"),
        pytest.param(EXPIRED, "list ''", id="410-as-status"),
        pytest.param(
            Stream([bookmark(9)], [error_event(410, "Expired")]),
            "list ''",
            id="410-as-event",
        ),
        pytest.param(
            Stream([bookmark(9)], [error_event(500)]), "watch '9'", id="500-as-event"
        ),
        pytest.param(
            Stream([bookmark(9)], [bookmark(8)]), "list ''", id="history-reset"
        ),
    ],
)
async def test_goes_on_after_a_watch(answer: Stream | Exception, then: str) -> None:
    source = FakeSource([Page(version=7)], [answer])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(10)

    assert source.asked[:3] == ["list '0'", "watch '7'", then]


async def test_a_list_that_fails_between_pages_begins_again() -> None:
    source = FakeSource(
        [
            Page([thing("a")], version=7, token="t1"),
            Page([thing("b")], error=EXPIRED),
            Page([thing("c")], version=9),
        ]
    )
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(10)

    assert source.asked == ["list '0'", "list t1", "list ''", "watch '9'"]
    assert (store.names, store.discards) == (["c@1"], 1)


async def test_changes_in_front_of_an_error_event_are_taken() -> None:
    stream = Stream([added(thing("a", 8)), error_event(410), added(thing("b", 9))])
    store = FakeStore()

    async with running(
        reflector_of(FakeSource([Page(version=7)], [stream]), store).run()
    ):
        await settle()

        assert store.names == ["a@8"]


async def test_after_a_history_reset_takes_the_list_as_it_is() -> None:
    stream = Stream([added(thing("a", 90))], [modified(thing("b", 4))])
    source = FakeSource([Page(version=80), Page([thing("b", 4)], version=5)], [stream])
    store = FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(10)

        assert reflector.history_resets == 1
        assert source.asked == ["list '0'", "watch '80'", "list ''", "watch '5'"]
        assert (store.names, store.version) == (["b@4"], "5")


async def test_broken_history_is_reported_with_both_versions() -> None:
    stream = Stream([modified(thing("a", 4))])
    source = FakeSource([Page([thing("a", 3)], version=7), Silence()], [stream])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()

    assert isinstance(reflector.last_error, HistoryReset)
    assert "MODIFIED of version 4 after version 7" in str(reflector.last_error)
    assert (reflector.history_resets, reflector.restarts) == (1, 1)


# ---------------------------------------------------------------- times


def attempts(seed: int, number: int) -> list[float]:
    """When attempts should start that all fail at once."""
    draw, d, starts = random.Random(seed), 0.8, [0.0]
    while len(starts) < number:
        starts.append(starts[-1] + d * (1 + draw.random()))
        d = min(d * 2, 30.0)

    return starts


async def test_attempts_that_fail_are_spaced_with_doubling_and_jitter() -> None:
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


async def test_the_gap_is_counted_from_the_start_of_an_attempt() -> None:
    slow = Page([thing("a")], seconds=1.0, error=BROKEN)
    source = FakeSource([slow])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(5)

    # Gaps of 1.2, 2.4 and 4.8 s; each attempt took one second of its gap.
    assert source.times == pytest.approx([0, 1.2, 3.6], abs=1e-3)


async def test_an_attempt_that_outlived_its_gap_is_followed_at_once() -> None:
    slow = Page([thing("a")], seconds=20.0, error=BROKEN)
    source = FakeSource([slow])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(65)

    assert source.times == pytest.approx([0, 20, 40, 60], abs=1e-3)


async def test_a_watch_that_outlived_its_gap_leaves_the_spacing_as_it_is() -> None:
    watches: list[Stream | Exception] = [Stream(10.0, END) for _ in range(4)]
    watches.append(BUSY)
    source = FakeSource([Page(version=7)], watches)

    async with running(reflector_of(source).run()):
        await asyncio.sleep(41.3)

    # At 40 s the first failure: the gap behind it is still the first one, 1.2 s.
    assert source.times == pytest.approx([0, 0, 10, 20, 30, 40, 41.2], abs=1e-3)


async def test_short_watches_are_spaced_like_failures() -> None:
    source = FakeSource([Page(version=7)], [Stream(END) for _ in range(9)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(20)

    assert source.times == pytest.approx([0, 0, 1.2, 3.6, 8.4, 18], abs=1e-3)


@pytest.mark.parametrize(
    ("seconds", "next_gap"),
    [pytest.param(119.0, 9.6, id="not-yet"), pytest.param(120.0, 1.2, id="useful")],
)
async def test_a_watch_of_two_minutes_resets_the_spacing(
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
    ("asked", "waited"),
    [
        pytest.param(None, 1.2, id="none"),
        pytest.param(0.5, 1.2, id="shorter-than-the-gap"),
        pytest.param(50.0, 50.0, id="longer"),
        pytest.param(3600.0, 120.0, id="at-most-two-minutes"),
    ],
)
@pytest.mark.parametrize("where", ["list", "watch"])
async def test_retry_after_is_a_lower_bound(
    asked: float | None, waited: float, where: str
) -> None:
    error = TooManyRequests("patience", status=429, retry_after=asked)
    source = (
        FakeSource([error, Page()])
        if where == "list"
        else FakeSource([Page()], [error])
    )

    async with running(reflector_of(source).run()):
        await asyncio.sleep(200)

    failed, after = [it.time for it in source.requests if it.verb == where][:2]
    assert after - failed == pytest.approx(waited, abs=1e-3)


async def test_an_error_event_can_ask_for_patience() -> None:
    event = error_event(429, "TooManyRequests", details={"retryAfterSeconds": 7})
    source = FakeSource([Page()], [Stream(5.0, [event])])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(30)

    assert source.times == pytest.approx([0, 0, 12], abs=1e-3)


async def test_a_loop_of_good_lists_and_bad_watches_is_no_hot_loop() -> None:
    source = FakeSource([Page()], [EXPIRED for _ in range(50)])

    async with running(reflector_of(source).run()):
        await asyncio.sleep(60)

    assert len(source.requests) < 20


# ---------------------------------------------------------------- watch seconds


async def test_watch_seconds_are_drawn_between_once_and_twice() -> None:
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
def test_watch_seconds_must_make_sense(seconds: float) -> None:
    with pytest.raises(OptionsError, match="watch_seconds"):
        ReflectorOptions(watch_seconds=seconds)


@pytest.mark.parametrize("size", [0, -5])
def test_page_size_must_make_sense(size: int) -> None:
    with pytest.raises(OptionsError, match="page_size"):
        ReflectorOptions(page_size=size)


# ---------------------------------------------------------------- what it says


async def test_failures_are_logged_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")

    async with running(reflector_of(FakeSource([BUSY])).run()):
        await asyncio.sleep(200)

    lines = [(it.levelname, it.getMessage()) for it in caplog.records]
    assert lines == [
        (
            "WARNING",
            f"pods: attempt failed ({n} in a row), will try again: 503: busy",
        )
        for n in (1, 2, 4, 8)
    ]


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param(EXPIRED, id="410-as-status"),
        pytest.param(Stream(5.0, BROKEN), id="connection-broke"),
        pytest.param(Stream(5.0, [error_event(500)]), id="error-event"),
    ],
)
async def test_what_is_part_of_normal_life_is_no_warning(
    watch: Stream | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioinformer")

    async with running(reflector_of(FakeSource([Page(version=7)], [watch])).run()):
        await asyncio.sleep(5.5)

    lines = [(it.levelname, it.getMessage()) for it in caplog.records]
    assert lines[0] == ("INFO", "pods: listed at version 7")
    assert lines[1][0] == "INFO"
    assert lines[1][1].startswith("pods: watch ended, going on: ")


async def test_keeps_account_of_failures() -> None:
    refused = Forbidden("no", status=403)
    source = FakeSource([BUSY, refused, refused, Page()])
    reflector = reflector_of(source)
    account = []

    def note() -> None:
        counts = (reflector.restarts, reflector.failures, reflector.refusals)
        account.append((*counts, reflector.last_error))

    async with running(reflector.run()):
        note()
        for moment in (0.6, 1.8, 4.8, 4.8):  # behind the starts at 0, 1.2, 3.6 and 8.4
            await asyncio.sleep(moment)
            note()

    assert account == [
        (0, 0, 0, None),
        (1, 1, 0, BUSY),
        (2, 2, 1, refused),
        (3, 3, 2, refused),
        (3, 0, 0, None),
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        Unauthorized("?", status=401),
        Forbidden("?", status=403),
        NotFound("?", status=404),
        ApiError("?", status=405),
    ],
    ids=str,
)
async def test_another_failure_ends_a_row_of_refusals(refusal: Exception) -> None:
    reflector = reflector_of(FakeSource([refusal, BUSY]))

    async with running(reflector.run()):
        await settle()
        counts = [reflector.refusals]
        await asyncio.sleep(2)
        counts.append(reflector.refusals)

    assert counts == [1, 0]


async def test_a_watch_that_is_accepted_is_a_success() -> None:
    source = FakeSource([Page()], [BUSY, Stream(1.0, BROKEN)])
    reflector = reflector_of(source)
    errors = []

    async with running(reflector.run()):
        for moment in (0.5, 1.0, 1.0):
            await asyncio.sleep(moment)
            errors.append((reflector.failures, reflector.last_error))

    assert errors == [(1, BUSY), (0, None), (1, BROKEN)]


async def test_knows_that_a_resource_is_not_served() -> None:
    source = FakeSource([NotFound("?", status=404), Page()])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()
        before = reflector.not_served
        await asyncio.sleep(5)

    assert before
    assert not reflector.not_served


async def test_counts_duplicates_and_what_cannot_be_read() -> None:
    stream = Stream([added(thing("a", 3)), added(thing("b", 8))])
    stream.skipped = 2
    source = FakeSource([Page([thing("a", 3)], version=7, skipped=3)], [stream])
    reflector = reflector_of(source)

    async with running(reflector.run()):
        await settle()
        counted = reflector.skipped
        stream.skipped = 4
        stream.then(END)
        await settle()

    assert reflector.duplicates == 1
    assert counted == 5
    assert reflector.skipped == 7, "what came behind the last batch counts too"


async def test_what_a_second_watch_skips_is_added() -> None:
    streams = [Stream(2.0, END), Stream()]
    streams[0].skipped = streams[1].skipped = 1
    reflector = reflector_of(FakeSource([Page()], streams))

    async with running(reflector.run()):
        await asyncio.sleep(3)

    assert reflector.skipped == 2


async def test_knows_when_it_last_heard_of_the_server() -> None:
    stream = Stream(10.0, [added(thing("a", 8))], 10.0, [bookmark(9)], 10.0, END)
    reflector = reflector_of(FakeSource([Page(version=7, seconds=5.0)], [stream]))
    contacts, events = [], []

    async with running(reflector.run()):
        for moment in (1, 5, 10, 10, 10):
            await asyncio.sleep(moment)
            contacts.append(reflector.last_contact)
            events.append(reflector.last_event)

    assert contacts == [None, *(pytest.approx(it, abs=1e-3) for it in (5, 15, 25, 35))]
    assert events == [None, None, *(pytest.approx(15, abs=1e-3),) * 3]


async def test_tells_its_phase_and_when_it_changes() -> None:
    phases: list[str] = []
    source = FakeSource([BUSY, Page([thing("a")], seconds=1.0)])
    reflector = Reflector(
        source,
        FakeStore(),
        name="pods",
        on_change=lambda: phases.append(reflector.phase),
        rng=Even(),
    )
    idle = (reflector.phase, repr(reflector))

    async with running(reflector.run()):
        await asyncio.sleep(1.5)
        listing = reflector.phase
        await asyncio.sleep(3)

        assert reflector.phase == "watching"

    assert idle == (
        "listing",
        "<Reflector pods phase=Listing(version='0', token='', listed='') failures=0>",
    )
    assert listing == "listing"
    assert list(dict.fromkeys(phases)) == ["listing", "backing off", "watching"]


async def test_works_with_defaults() -> None:
    source = FakeSource([BUSY, Page()])

    async with running(Reflector(source, FakeStore()).run()):
        await asyncio.sleep(2)

    assert source.asked == ["list '0'", "list '0'", "watch '1'"]


# ---------------------------------------------------------------- its end


async def test_an_error_that_is_not_the_servers_ends_it() -> None:
    source = FakeSource([ValueError("a bug")])

    with pytest.raises(ValueError, match="a bug"):
        await reflector_of(source).run()

    assert source.open == 0


class StuckStore(FakeStore):
    """Waits for ever in one of its coroutines."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.stuck = asyncio.Event()
        setattr(self, where, self._wait)

    async def _wait(self, *_: object) -> None:
        self.stuck.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("where", ["stage", "commit", "feed"])
async def test_cancelled_while_the_store_waits_leaves_nothing(where: str) -> None:
    source = FakeSource([Page([thing("a")])], [Stream([deleted(thing("a", 9))])])
    store = StuckStore(where)
    tasks = asyncio.all_tasks()

    async with running(reflector_of(source, store).run()) as task:
        await store.stuck.wait()

    assert task.cancelled()
    assert source.open == 0
    assert asyncio.all_tasks() == tasks, "nothing to be closed later"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: FakeSource([Silence()]), id="list-unanswered"),
        pytest.param(lambda: FakeSource([Page(seconds=9)]), id="list-arriving"),
        pytest.param(lambda: FakeSource([Page()], [Silence()]), id="watch-unanswered"),
        pytest.param(lambda: FakeSource([Page()], [Stream()]), id="watch-silent"),
        pytest.param(lambda: FakeSource([BUSY]), id="pause"),
    ],
)
async def test_cancelled_while_it_waits_leaves_nothing(
    source: Callable[[], FakeSource],
) -> None:
    answers = source()
    reflector = reflector_of(answers)

    async with running(reflector.run()) as task:
        await settle()

    assert task.cancelled()
    assert answers.open == 0
    assert reflector.phase != "backing off"
