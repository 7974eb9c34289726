"""The list-watch machine: successful responses, requests, and recoveries from errors.

test_machine_table.py has the next phase after every error in every phase.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DecodeError,
    Forbidden,
    HistoryReset,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.informer.listwatch.interface import Resume
from aioinformer.informer.listwatch.machine import (
    Action,
    Clear,
    Commit,
    Discard,
    Extend,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Report,
    Reselected,
    ShardsListed,
    StreamListed,
    WatchEnded,
    Watching,
    advance,
    first_phase,
    list_options,
    stream_options,
)
from aioinformer.informer.listwatch.recovery import Recovery, recovery_for
from aioinformer.watch import ListOptions, WatchOptions

BROKEN = TransportError("broken")
BACKWARDS = HistoryReset("backwards")
EXPIRED = ResourceExpired("too old", status=410)
AHEAD = ServerError(
    "slow down",
    status=504,
    details={"causes": ["?", {"reason": "ResourceVersionTooLarge"}]},
)
GONE = NotFound("no such resource", status=404)

# ---------------------------------------------------------------- first phase


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("resume", "first"),
    [
        pytest.param(None, Listing("0"), id="no-store"),
        pytest.param(Resume(cluster="c"), Listing("0"), id="empty-store"),
        pytest.param(Resume(version="7"), Watching("7"), id="stored-list"),
        pytest.param(
            Resume(version="7", comparable=False),
            Listing("", known="7", after_reset=True),
            id="not-comparable",
        ),
        pytest.param(
            Resume(comparable=False),
            Listing("", known="", after_reset=True),
            id="neither-comparable-nor-complete",
        ),
    ],
)
def test_first_phase_follows_from_the_stored_list(
    resume: Resume | None, first: Phase, streaming: bool
) -> None:
    assert first_phase(resume, streaming=streaming) == replace(
        first, streaming=streaming
    )


# ---------------------------------------------------------------- advance


@pytest.mark.parametrize(
    ("phase", "happened", "then", "actions"),
    [
        pytest.param(
            Listing(), PageListed("5", "t1"), Listing("0", "t1", "5"), [], id="page"
        ),
        pytest.param(
            Listing("0", "t1", "5"),
            PageListed("6", "t2"),
            Listing("0", "t2", "5"),
            [],
            id="second-page",
        ),
        pytest.param(
            Listing("0", "t2", "5"),
            PageListed("6"),
            Watching("5"),
            [Commit("5")],
            id="last-page",
        ),
        pytest.param(
            Listing("7"), PageListed("9"), Watching("9"), [Commit("9")], id="only-page"
        ),
        pytest.param(
            Listing("0", "t1", "5"),
            ListFailed(EXPIRED),
            Listing("", whole=True),
            [Discard(), Report(EXPIRED)],
            id="410-while-paging",
        ),
        pytest.param(
            Listing("", whole=True),
            PageListed("5", "t1"),
            Listing("", "t1", "5", whole=True),
            [],
            id="page-of-a-list-that-was-to-be-whole",
        ),
        pytest.param(
            Listing("3"),
            ListFailed(EXPIRED),
            Listing(""),
            [Discard(), Report(EXPIRED)],
            id="410-on-list",
        ),
        pytest.param(
            Listing("3"),
            ListFailed(AHEAD),
            Listing(""),
            [Discard(), Report(AHEAD)],
            id="version-too-large-on-list",
        ),
        pytest.param(Watching("5"), WatchEnded("8"), Watching("8"), [], id="clean-end"),
        pytest.param(
            Watching("5"),
            WatchEnded("8", BROKEN),
            Watching("8"),
            [Report(BROKEN)],
            id="resume",
        ),
        pytest.param(
            Watching("5"),
            WatchEnded("8", GONE, established=False),
            Listing("8", known="8"),
            [Report(GONE)],
            id="relist",
        ),
        pytest.param(
            Watching("5"),
            WatchEnded("8", EXPIRED),
            Listing("", known="8"),
            [Report(EXPIRED)],
            id="relist-newest",
        ),
        pytest.param(
            Watching("5"),
            WatchEnded("8", BACKWARDS),
            Listing("", known="8", after_reset=True),
            [Report(BACKWARDS)],
            id="broken-history",
        ),
        pytest.param(
            Listing("", known="8"),
            PageListed("8"),
            Watching("8"),
            [Commit("8")],
            id="nothing-new",
        ),
        pytest.param(
            Listing("", known="8", after_reset=True),
            PageListed("3"),
            Watching("3"),
            [Commit("3")],
            id="taken-as-it-is",
        ),
        pytest.param(
            Listing("", known="8"),
            PageListed("abc"),
            Watching("abc"),
            [Commit("abc")],
            id="versions-that-cannot-be-compared",
        ),
        pytest.param(
            Listing("0", streaming=True),
            StreamListed("9"),
            Watching("9", streaming=True),
            [Commit("9")],
            id="stream",
        ),
        pytest.param(
            Listing("8", known="8", streaming=True, broken=2),
            StreamListed("8"),
            Watching("8", streaming=True),
            [Commit("8")],
            id="stream-with-nothing-new",
        ),
        pytest.param(
            Listing("", known="8", after_reset=True, streaming=True),
            StreamListed("3"),
            Watching("3", streaming=True),
            [Commit("3")],
            id="stream-taken-as-it-is",
        ),
        pytest.param(
            Listing("0", detour=True),
            PageListed("5", "t1"),
            Listing("0", "t1", "5", detour=True),
            [],
            id="page-of-a-detour",
        ),
        pytest.param(
            Listing("0", "t1", "5", detour=True),
            PageListed("5"),
            Watching("5", streaming=True),
            [Commit("5")],
            id="streams-again-after-a-detour",
        ),
        pytest.param(
            Watching("5", streaming=True),
            WatchEnded("8"),
            Watching("8", streaming=True),
            [],
            id="clean-end-of-what-began-as-a-stream",
        ),
        pytest.param(
            Watching(""),
            WatchEnded(""),
            Listing("", known=""),
            [],
            id="clean-end-without-a-version",
        ),
        pytest.param(
            Watching("0"),
            WatchEnded("8"),
            Watching("8"),
            [],
            id="clean-end-at-the-first-version",
        ),
        pytest.param(
            Listing("8", known="8", detour=True),
            ListFailed(GONE, absent=True),
            Listing("0", streaming=True),
            [Discard(), Clear(), Report(GONE)],
            id="absent",
        ),
        pytest.param(
            Listing("", known=""),
            ListFailed(GONE, absent=True),
            Listing("0"),
            [Discard(), Clear(), Report(GONE)],
            id="absent-after-a-list-without-a-version",
        ),
        pytest.param(
            Watching("8", streaming=True),
            Reselected(),
            Listing("8", known="8", streaming=True),
            [],
            id="other-selection",
        ),
        pytest.param(
            Watching("8"),
            ShardsListed("5"),
            Watching("5", ahead=8),
            [Extend(8, 5)],
            id="further-shards-listed-before-the-end-of-the-watch",
        ),
        pytest.param(
            Watching("5", ahead=8),
            ShardsListed("6"),
            Watching("5", ahead=8),
            [Extend(5, 6)],
            id="further-shards-listed-behind-earlier-ones",
        ),
        pytest.param(
            Watching("8"),
            ShardsListed("8"),
            Watching("8"),
            [Extend(8, 8)],
            id="further-shards-listed-at-the-end-of-the-watch",
        ),
        pytest.param(
            Watching("5", ahead=8),
            WatchEnded("7"),
            Watching("7", ahead=8),
            [],
            id="clean-end-behind-some-shards",
        ),
        pytest.param(
            Watching("5", ahead=8),
            WatchEnded("8"),
            Watching("8"),
            [],
            id="clean-end-after-catching-up",
        ),
        pytest.param(
            Watching("5", ahead=8),
            WatchEnded("7", GONE),
            Listing("8", known="8"),
            [Report(GONE)],
            id="relist-behind-some-shards",
        ),
        pytest.param(
            Watching("5", ahead=8),
            WatchEnded("7", EXPIRED),
            Listing("", known="8"),
            [Report(EXPIRED)],
            id="expired-behind-some-shards",
        ),
        pytest.param(
            Watching("5", ahead=8),
            Reselected(),
            Listing("8", known="8"),
            [],
            id="other-selection-behind-some-shards",
        ),
        pytest.param(
            Watching("8", streaming=True),
            ShardsListed("10"),
            Watching("8", streaming=True, ahead=10),
            [Extend(8, 10)],
            id="further-shards-listed-after-the-end-of-the-watch",
        ),
        pytest.param(
            Watching("8"),
            ShardsListed("new"),
            Listing("8", known="8"),
            [],
            id="further-shards-listed-at-a-version-without-order",
        ),
        pytest.param(
            Watching("old"),
            ShardsListed("8"),
            Listing("old", known="old"),
            [],
            id="further-shards-listed-after-a-watch-without-order",
        ),
    ],
)
def test_advance(
    phase: Phase, happened: Input, then: Phase, actions: list[Action]
) -> None:
    assert advance(phase, happened) == (then, actions)


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize(
    ("error", "recovery"),
    [
        pytest.param(ApiError("?", status=405), Recovery.RELIST, id="405"),
        pytest.param(ApiError("?", status=418), Recovery.RESUME, id="other-4xx"),
        pytest.param(ApiError("?"), Recovery.RESUME, id="no-status"),
        pytest.param(Invalid("?", status=400), Recovery.RELIST_NEWEST, id="400"),
        pytest.param(Invalid("?", status=422), Recovery.RELIST_NEWEST, id="422"),
        pytest.param(Invalid("?"), Recovery.RELIST_NEWEST, id="invalid-by-reason-only"),
        pytest.param(Unauthorized("?", status=401), Recovery.RESUME, id="401"),
        pytest.param(Forbidden("?", status=403), Recovery.RESUME, id="403"),
        pytest.param(GONE, Recovery.RELIST, id="404"),
        pytest.param(Conflict("?", status=409), Recovery.RESUME, id="409"),
        pytest.param(AlreadyExists("?", status=409), Recovery.RESUME, id="409-exists"),
        pytest.param(EXPIRED, Recovery.RELIST_NEWEST, id="410"),
        pytest.param(TooManyRequests("?", status=429), Recovery.RESUME, id="429"),
        pytest.param(ServerError("?", status=500), Recovery.RESUME, id="500"),
        pytest.param(ServerError("?", status=503), Recovery.RESUME, id="503"),
        pytest.param(ServerError("?", status=504), Recovery.RESUME, id="504"),
        pytest.param(AHEAD, Recovery.RELIST_NEWEST, id="too-large-by-cause"),
        pytest.param(
            ServerError("Too large resource version: 9, current: 5", status=504),
            Recovery.RELIST_NEWEST,
            id="too-large-by-words",
        ),
        pytest.param(
            ServerError(
                "?",
                status=504,
                details={"causes": [{"message": "Too large resource version"}]},
            ),
            Recovery.RELIST_NEWEST,
            id="too-large-by-words-of-the-cause",
        ),
        pytest.param(
            ServerError("?", status=500, reason="StorageReadError"),
            Recovery.RELIST,
            id="an-object-that-the-server-cannot-read",
        ),
        pytest.param(
            ServerError("?", status=504, details={"causes": [{"reason": "Other"}]}),
            Recovery.RESUME,
            id="504-by-another-cause",
        ),
        pytest.param(BROKEN, Recovery.RESUME, id="transport"),
        pytest.param(DecodeError("?"), Recovery.RELIST, id="unreadable"),
        pytest.param(HistoryReset("?"), Recovery.RELIST_ANEW, id="history-reset"),
        pytest.param(ValueError("?"), Recovery.RELIST, id="anything-else"),
    ],
)
def test_recovery(error: Exception, recovery: Recovery) -> None:
    assert recovery_for(error) is recovery


@pytest.mark.parametrize(
    ("phase", "listed", "then"),
    [
        pytest.param(
            Listing("", "t1", "3", known="8"),
            PageListed("3"),
            Listing("", known="8", after_reset=True),
            id="in-pages",
        ),
        pytest.param(
            Listing("8", known="8", detour=True),
            PageListed("3"),
            Listing("", known="8", after_reset=True, detour=True),
            id="in-pages-this-once",
        ),
        pytest.param(
            Listing("8", known="8", streaming=True, broken=2),
            StreamListed("3"),
            Listing("", known="8", after_reset=True, streaming=True, broken=2),
            id="as-a-stream",
        ),
    ],
)
def test_list_older_than_the_known_version_resets_the_history(
    phase: Phase, listed: Input, then: Phase
) -> None:
    phase, actions = advance(phase, listed)

    assert phase == then
    discard, report = actions
    assert discard == Discard()
    assert isinstance(report, Report)
    assert isinstance(report.error, HistoryReset)
    assert "version 3" in str(report.error)
    assert "version 8" in str(report.error)


def test_every_class_of_api_error_has_a_row_in_the_recovery_table() -> None:
    def kinds(of: type[ApiError]) -> set[type[ApiError]]:
        return {of}.union(*(kinds(kind) for kind in of.__subclasses__()))

    marks = next(it for it in test_recovery.pytestmark if it.name == "parametrize")  # type: ignore[attr-defined]
    covered = {type(row.values[0]) for row in marks.args[1]}

    # Subclasses of the server for tests do not count.
    ours = {it for it in kinds(ApiError) if it.__module__ == ApiError.__module__}
    assert ours <= covered


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("phase", "page_size", "options"),
    [
        pytest.param(
            Listing(), None, ListOptions(resource_version="0", limit=500), id="first"
        ),
        pytest.param(
            Listing(), 7, ListOptions(resource_version="0", limit=7), id="first-sized"
        ),
        pytest.param(Listing(""), None, ListOptions(limit=500), id="newest"),
        pytest.param(Listing(""), 7, ListOptions(limit=7), id="newest-sized"),
        pytest.param(
            Listing("5"),
            None,
            ListOptions(resource_version="5", resource_version_match="NotOlderThan"),
            id="relist-whole",
        ),
        pytest.param(
            Listing("5"),
            7,
            ListOptions(
                resource_version="5", resource_version_match="NotOlderThan", limit=7
            ),
            id="relist-in-pages",
        ),
        pytest.param(Listing("", whole=True), 7, ListOptions(), id="newest-whole"),
        pytest.param(
            Listing("5", whole=True),
            7,
            ListOptions(resource_version="5", resource_version_match="NotOlderThan"),
            id="relist-whole-as-pages-failed",
        ),
        pytest.param(
            Listing("5", "t", "6"),
            None,
            ListOptions(limit=500, continue_token="t"),
            id="next-page",
        ),
        pytest.param(
            Listing("5", "t", "6"),
            7,
            ListOptions(limit=7, continue_token="t"),
            id="next-page-sized",
        ),
    ],
)
def test_list_options(
    phase: Listing, page_size: int | None, options: ListOptions
) -> None:
    assert list_options(phase, page_size) == options


@pytest.mark.parametrize(
    ("version", "requested"),
    [
        pytest.param("0", "", id="first"),
        pytest.param("", "", id="newest"),
        pytest.param("5", "5", id="not-older-than"),
    ],
)
def test_stream_options(version: str, requested: str) -> None:
    options = stream_options(Listing(version, streaming=True), 300)

    assert options == WatchOptions(
        resource_version=requested,
        timeout_seconds=300,
        bookmarks=True,
        send_initial_events=True,
    )


@given(
    st.builds(
        Listing,
        version=st.sampled_from(["", "0", "5", "abc"]),
        token=st.sampled_from(["", "t"]),
        listed=st.sampled_from(["", "6"]),
        whole=st.booleans(),
    ),
    st.none() | st.integers(1, 5000),
)
def test_list_with_a_limit_and_a_version_requests_not_older_than(
    phase: Listing, page_size: int | None
) -> None:
    options = list_options(phase, page_size)

    if options.limit and options.resource_version not in ("", "0"):
        assert options.resource_version_match == "NotOlderThan"

    if options.continue_token:
        assert options.resource_version == ""
