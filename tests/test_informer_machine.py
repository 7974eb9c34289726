"""The list-watch machine: its table row by row, and the versions of events."""

from __future__ import annotations

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
    InternalError,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.informer.machine import (
    Action,
    Commit,
    Discard,
    Input,
    ListFailed,
    Listing,
    PageListed,
    Phase,
    Recovery,
    Report,
    WatchEnded,
    Watching,
    advance,
    is_refusal,
    list_options,
    recovery_for,
)
from aioinformer.watch import ListOptions

BROKEN = TransportError("broken")
BACKWARDS = HistoryReset("backwards")
EXPIRED = ResourceExpired("too old", status=410)
AHEAD = ServerError(
    "slow down",
    status=504,
    details={"causes": ["?", {"reason": "ResourceVersionTooLarge"}]},
)
GONE = NotFound("no such resource", status=404)

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
            Listing(""),
            [Discard(), Report(EXPIRED)],
            id="410-while-paging",
        ),
        pytest.param(
            Listing("3", "t1", "5"),
            ListFailed(BROKEN),
            Listing("3"),
            [Discard(), Report(BROKEN)],
            id="broken-while-paging",
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
        pytest.param(
            Listing("3"),
            ListFailed(GONE),
            Listing("3"),
            [Discard(), Report(GONE)],
            id="404-on-list",
        ),
        pytest.param(
            Listing(""),
            ListFailed(BROKEN),
            Listing(""),
            [Discard(), Report(BROKEN)],
            id="newest-is-asked-for-again",
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
            Listing("", known="8", anew=True),
            [Report(BACKWARDS)],
            id="broken-history",
        ),
        pytest.param(
            Listing("", known="8"),
            ListFailed(BROKEN),
            Listing("", known="8"),
            [Discard(), Report(BROKEN)],
            id="what-is-known-is-remembered",
        ),
        pytest.param(
            Listing("", known="8"),
            PageListed("8"),
            Watching("8"),
            [Commit("8")],
            id="nothing-new",
        ),
        pytest.param(
            Listing("", known="8", anew=True),
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
    ],
)
def test_advance(
    phase: Phase, happened: Input, then: Phase, actions: list[Action]
) -> None:
    assert advance(phase, happened) == (then, actions)


@pytest.mark.parametrize(
    ("phase", "happened"),
    [
        pytest.param(Listing(), WatchEnded("1"), id="watch-ended-while-listing"),
        pytest.param(
            Listing("1", "t", "1"),
            WatchEnded("1", BROKEN),
            id="watch-failed-while-paging",
        ),
        pytest.param(Watching("1"), PageListed("1"), id="page-while-watching"),
        pytest.param(
            Watching("1"), PageListed("1", "t"), id="page-with-token-while-watching"
        ),
        pytest.param(
            Watching("1"), ListFailed(BROKEN), id="list-failed-while-watching"
        ),
    ],
)
def test_impossible_input_is_refused(phase: Phase, happened: Input) -> None:
    before = repr(phase)

    with pytest.raises(InternalError, match="cannot happen while"):
        advance(phase, happened)

    assert repr(phase) == before


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize(
    ("error", "recovery"),
    [
        pytest.param(ApiError("?", status=405), Recovery.RESUME, id="405"),
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
            ServerError("?", status=504, details={"causes": [{"reason": "Other"}]}),
            Recovery.RESUME,
            id="504-by-another-cause",
        ),
        pytest.param(BROKEN, Recovery.RESUME, id="transport"),
        pytest.param(DecodeError("?"), Recovery.RELIST, id="unreadable"),
        pytest.param(HistoryReset("?"), Recovery.RELIST_ANEW, id="history-reset"),
        pytest.param(ValueError("?"), Recovery.RESUME, id="anything-else"),
    ],
)
def test_recovery(error: Exception, recovery: Recovery) -> None:
    assert recovery_for(error) is recovery


def test_a_list_older_than_what_is_known_is_broken_history() -> None:
    phase, actions = advance(Listing("", "t1", "3", known="8"), PageListed("3"))

    assert phase == Listing("", known="8", anew=True)
    discard, report = actions
    assert discard == Discard()
    assert isinstance(report, Report)
    assert isinstance(report.error, HistoryReset)
    assert "version 3" in str(report.error)
    assert "version 8" in str(report.error)


def test_a_page_that_names_itself_as_the_next_one_fails_the_list() -> None:
    phase, actions = advance(Listing("7", "t1", "9"), PageListed("9", "t1"))

    assert phase == Listing("7")
    discard, report = actions
    assert discard == Discard()
    assert isinstance(report, Report)
    assert isinstance(report.error, DecodeError)


def test_causes_that_are_no_list_are_no_cause() -> None:
    error = ServerError("?", status=504, details={"causes": 5})

    assert recovery_for(error) is Recovery.RESUME


def test_every_kind_of_api_error_has_a_row_above() -> None:
    def kinds(of: type[ApiError]) -> set[type[ApiError]]:
        return {of}.union(*(kinds(kind) for kind in of.__subclasses__()))

    marks = next(it for it in test_recovery.pytestmark if it.name == "parametrize")  # type: ignore[attr-defined]
    covered = {type(row.values[0]) for row in marks.args[1]}

    # What the server for tests derives from them is theirs.
    ours = {it for it in kinds(ApiError) if it.__module__ == ApiError.__module__}
    assert ours <= covered


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (Invalid("?", status=400), True),
        (Invalid("?", status=422), True),
        (Unauthorized("?", status=401), True),
        (Forbidden("?", status=403), True),
        (NotFound("?", status=404), True),
        (ApiError("?", status=405), True),
        (ApiError("?", status=406), False),
        (EXPIRED, False),
        (TooManyRequests("?", status=429), False),
        (ServerError("?", status=500), False),
        (BROKEN, False),
        (DecodeError("?"), False),
    ],
    ids=lambda value: repr(value) if isinstance(value, bool) else str(value),
)
def test_refusals_are_what_only_a_person_can_change(
    error: Exception, refusal: bool
) -> None:
    assert is_refusal(error) is refusal


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


@given(
    st.builds(
        Listing,
        version=st.sampled_from(["", "0", "5", "abc"]),
        token=st.sampled_from(["", "t"]),
        listed=st.sampled_from(["", "6"]),
    ),
    st.none() | st.integers(1, 5000),
)
def test_a_limit_never_goes_with_a_bare_version(
    phase: Listing, page_size: int | None
) -> None:
    options = list_options(phase, page_size)

    if options.limit and options.resource_version not in ("", "0"):
        assert options.resource_version_match == "NotOlderThan"

    if options.continue_token:
        assert options.resource_version == ""
