"""`RetryWatch` with a scripted source: forwarded events, errors, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from fake_source import (
    END,
    FakeSource,
    Stream,
    added,
    bookmark,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import settle
from retry_helpers import BROKEN, events_of, retry_watch, summaries, take

from aioinformer.errors import (
    DecodeError,
    Forbidden,
    Invalid,
    NotFound,
    OptionsError,
    ResourceExpired,
    ServerError,
    Unauthorized,
)
from aioinformer.watch import EventType, RetryWatch

if TYPE_CHECKING:
    from fake_source import Step

# ---------------------------------------------------------------- to begin with


@pytest.mark.parametrize("version", ["", "0"])
def test_retry_watch_rejects_version_that_cannot_be_resumed(version: str) -> None:
    with pytest.raises(OptionsError, match="cannot resume a watch from version"):
        RetryWatch(FakeSource(), version)


@pytest.mark.parametrize("seconds", [0, 0.9, -1, float("nan")])
def test_retry_watch_rejects_too_short_watches(seconds: float) -> None:
    with pytest.raises(OptionsError):
        RetryWatch(FakeSource(), "1", watch_seconds=seconds)

    RetryWatch(FakeSource(), "1", watch_seconds=1)  # is none of these


async def test_retry_watch_requests_version_bookmarks_and_timeout() -> None:
    source, watch = retry_watch(Stream(events_of(9)), version="8")

    async with watch:
        assert await take(watch, 1) == ["ADDED 9"]

    (request,) = source.requests
    options: Any = request.options
    assert options.resource_version == "8"
    assert options.bookmarks
    assert options.timeout_seconds == 450, "1.5 times 300 s"
    assert not options.send_initial_events


async def test_retry_watch_sends_nothing_before_it_is_read() -> None:
    source, watch = retry_watch(Stream(events_of(2)))

    async with watch:
        await settle()
        assert source.requested == []


async def test_retry_watch_forwards_changes_without_bookmarks() -> None:
    stream = Stream(
        [added(thing("a", 2)), bookmark(3)],
        [bookmark(4)],
        [modified(thing("a", 5)), deleted(thing("a", 6))],
    )
    source, watch = retry_watch(stream)

    async with watch:
        assert summaries(await watch.next_batch()) == ["ADDED 2"]
        assert summaries(await watch.next_batch()) == ["MODIFIED 5", "DELETED 6"]

    assert source.requested == ["watch '1'"]


async def test_retry_watch_skips_versions_not_above_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = Stream([*events_of(5, 5, 4, 6), deleted(thing("o5", 5))], END)
    second = Stream([*events_of(3, 6), bookmark(2)], [*events_of(7)])
    source, watch = retry_watch(first, second, version="4")

    async with watch:
        assert await take(watch, 3) == ["ADDED 5", "ADDED 6", "ADDED 7"]

    assert source.requested == ["watch '4'", "watch '6'"]
    assert watch.duplicates == 5
    # The 1st, the 2nd, the 4th.
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


# ---------------------------------------------------------------- what it survives

SURVIVED: list[Any] = [
    pytest.param(BROKEN, id="client-error"),
    pytest.param(DecodeError("a log-in page"), id="a-page"),
    pytest.param(NotFound("no such kind", status=404), id="404"),
    pytest.param(ServerError("busy", status=503), id="503"),
    pytest.param(Stream([error_event(504, "Timeout")]), id="timeout-event"),
    pytest.param(Stream([error_event(500, "InternalError")]), id="500-event"),
    pytest.param(Stream([error_event(9001)]), id="unknown-code"),
    pytest.param(Stream([error_event(403)]), id="403-event"),
    pytest.param(Stream([bookmark(1), error_event(500)]), id="after-others"),
    pytest.param(Stream(BROKEN), id="connection-breaks"),
    pytest.param(Stream(DecodeError("what?")), id="unreadable"),
    pytest.param(Stream(ServerError("odd", status=500)), id="an-api-error-in-a-stream"),
    pytest.param(Stream(END), id="clean-end"),
]


@each_case("trouble", SURVIVED)
async def test_retry_watch_resumes_from_last_version_after_failure(
    trouble: Stream | Exception,
) -> None:
    if isinstance(trouble, Stream):
        trouble = Stream(*trouble._steps)  # each run reads its own

    before = Stream(events_of(2, 3), END)
    source, watch = retry_watch(before, trouble, Stream(events_of(4)))

    async with watch:
        assert await take(watch, 3) == ["ADDED 2", "ADDED 3", "ADDED 4"]
        assert source.open == 1, "the ones before are closed"

    assert source.requested == ["watch '1'", "watch '3'", "watch '3'"]
    assert source.open == 0


async def test_retry_watch_forwards_events_before_failure_immediately(
    looptime: float,
) -> None:
    steps: list[Step] = [[*events_of(2), error_event(500), *events_of(3)]]
    source, watch = retry_watch(Stream(*steps))

    async with watch:
        assert summaries(await watch.next_batch()) == ["ADDED 2"]
        assert looptime == 0
        assert watch.failures == 1

    assert source.requested == ["watch '1'"], "what comes behind an ERROR means nothing"


@pytest.mark.parametrize(
    ("version", "streams"),
    [
        pytest.param(1, [[2]], id="1-watch"),
        pytest.param(1, [[2], [3]], id="2-watches"),
        pytest.param(1, [[2, 3], [5, 8]], id="2-watches-with-gaps"),
        pytest.param(1, [[1000], [2000]], id="2-watches-much-lower"),
        pytest.param(6, [[7], [9, 11], [], [11, 12, 55]], id="4-watches"),
    ],
)
async def test_retry_watch_survives_closed_watches(
    version: int, streams: list[list[int]]
) -> None:
    watches = [Stream(events_of(*versions), END) for versions in streams]
    source, watch = retry_watch(*watches, version=str(version))
    wanted = list(dict.fromkeys(number for each in streams for number in each))

    async with watch:
        assert await take(watch, len(wanted)) == [f"ADDED {it}" for it in wanted]

    # Each starts after the last version of those before.
    last, requests = version, []
    for versions in streams:
        requests.append(f"watch '{last}'")
        last = max([last, *versions])

    assert source.requested == requests


async def test_bookmark_updates_version_to_resume_from() -> None:
    source, watch = retry_watch(
        Stream([*events_of(2), bookmark(90)], END), Stream(events_of(91))
    )

    async with watch:
        await take(watch, 2)

    assert source.requested == ["watch '1'", "watch '90'"]


async def test_retry_watch_counts_skipped_events_of_all_watches() -> None:
    first, second = Stream(events_of(2), END), Stream(events_of(3))
    first.skipped, second.skipped = 2, 3
    _, watch = retry_watch(first, second)

    async with watch:
        await take(watch, 1)
        assert watch.skipped == 2
        await take(watch, 1)
        assert watch.skipped == 5

    assert watch.skipped == 5


# ---------------------------------------------------------------- how it ends


async def test_retry_watch_ends_with_410_error_event() -> None:
    source, watch = retry_watch(
        Stream([*events_of(2), error_event(410, "Expired"), *events_of(3)])
    )

    async with watch:
        events = [event async for event in watch]
        assert await watch.next_batch() == []
        assert source.open == 0, "closed before it is left"
        assert "ended" in repr(watch)

    assert [event.type for event in events] == ["ADDED", "ERROR"]
    assert isinstance(events[1].error(), ResourceExpired)
    assert source.requested == ["watch '1'"]


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden("not you", status=403, reason="Forbidden"),
        Unauthorized("who?", status=401, reason="Unauthorized"),
        ResourceExpired("too old", status=410, reason="Expired"),
        Invalid("what?", status=400, reason="BadRequest"),
        Invalid("what?", status=422, reason="Invalid"),
    ],
    ids=lambda error: str(error.status),
)
@pytest.mark.parametrize("first", [True, False], ids=["at-first", "later"])
async def test_retry_watch_ends_with_error_event_of_final_refusal(
    refusal: Forbidden, first: bool
) -> None:
    before = [] if first else [Stream(events_of(2), END)]
    source, watch = retry_watch(*before, refusal, Stream(events_of(3)))

    async with watch:
        *changes, last = [event async for event in watch]

    assert summaries(changes) == ([] if first else ["ADDED 2"])
    assert last.type is EventType.ERROR
    assert vars(last.error()) == vars(refusal)
    assert len(source.requests) == len(before) + 1
    assert source.open == 0


async def test_retry_watch_ends_with_error_for_change_without_version() -> None:
    source, watch = retry_watch(Stream([*events_of(2), added(thing("x", ""))]))

    async with watch:
        events = [event async for event in watch]

    assert [event.type for event in events] == ["ADDED", "ERROR"]
    assert "default/x has no resource version" in events[1].error().message
    assert source.requested == ["watch '1'"]


async def test_retry_watch_raises_options_error_of_client() -> None:
    _, watch = retry_watch(OptionsError("this client is not entered"))

    async with watch:
        with pytest.raises(OptionsError, match="not entered"):
            await watch.next_batch()


@pytest.mark.parametrize(
    "error",
    [TimeoutError("mine"), OSError(28, "No space left on device"), KeyError("token")],
    ids=repr,
)
async def test_retry_watch_survives_any_exception_of_source(
    error: Exception,
) -> None:
    source, watch = retry_watch(error, Stream(error), Stream(events_of(2)))

    async with watch:
        assert await take(watch, 1)

    assert len(source.times) == 3
