"""`decide`: the whole table of decisions after an event or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from each_case import each_case
from fake_source import added, bookmark, deleted, error_event, modified, thing

from aioinformer import errors
from aioinformer.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DecodeError,
    Forbidden,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resources import NODES
from aioinformer.watch import EventType, WatchEvent
from aioinformer.watch.decoding import ObjectDecoder
from aioinformer.watch.tools.retry_watch import Finish, Forward, Ignore, Retry, decide

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model import KubeObject

# ---------------------------------------------------------------- changes, bookmarks


@each_case("change", [added, modified, deleted])
@each_case(
    "version, new, handed_on",
    [
        pytest.param("7", "8", True, id="the-next-one"),
        pytest.param("7", "900", True, id="far-above"),
        pytest.param("9", "10", True, id="above-as-a-number"),
        pytest.param("7", "7", False, id="equal"),
        pytest.param("7", "6", False, id="below"),
        pytest.param("7", "0", False, id="zero"),
        pytest.param("x", "a", True, id="words-are-not-compared"),
        pytest.param("x", "x", True, id="not-even-equal-words"),
        pytest.param("7", "x", True, id="a-word-after-a-number"),
        pytest.param("x", "7", True, id="a-number-after-a-word"),
    ],
)
def test_decide_forwards_change_above_last_version(
    change: Callable[[KubeObject], WatchEvent], version: str, new: str, handed_on: bool
) -> None:
    event = change(thing("a", new))

    expected = Forward(new) if handed_on else Ignore(version)
    assert decide(event, version) == expected


@each_case(
    "version, new, after",
    [
        pytest.param("7", "8", "8", id="above"),
        pytest.param("7", "7", "7", id="equal"),
        pytest.param("7", "6", "7", id="below"),
        pytest.param("7", "", "7", id="none"),
        pytest.param("x", "y", "y", id="words"),
    ],
)
def test_decide_ignores_bookmark_and_notes_version(
    version: str, new: str, after: str
) -> None:
    assert decide(bookmark(new), version) == Ignore(after)


@pytest.mark.parametrize("change", [added, modified, deleted])
def test_decide_ends_for_change_without_version(
    change: Callable[[KubeObject], WatchEvent],
) -> None:
    decision = decide(change(thing("a", "")), "7")

    assert isinstance(decision, Finish)
    assert decision.event.type is EventType.ERROR
    error = decision.event.error()
    assert type(error) is ServerError
    assert (error.status, error.reason) == (500, "InternalError")
    assert "default/a has no resource version" in error.message


# ---------------------------------------------------------------- ERROR events


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(error_event(410, "Expired"), id="expired"),
        pytest.param(error_event(410, "Gone"), id="gone"),
        pytest.param(error_event(410), id="code-alone"),
    ],
)
def test_decide_ends_for_410_error_event(event: WatchEvent) -> None:
    assert decide(event, "7") == Finish(event)


@each_case(
    "event, seconds",
    [
        pytest.param(error_event(500, "InternalError"), None, id="500"),
        pytest.param(error_event(504, "Timeout"), None, id="504"),
        pytest.param(error_event(403, "Forbidden"), None, id="403-with-retry-after"),
        pytest.param(error_event(9001), None, id="unknown-code"),
        pytest.param(
            error_event(504, details={"retryAfterSeconds": 12}), 12, id="asks-to-wait"
        ),
        pytest.param(WatchEvent(EventType.ERROR, thing("a")), None, id="no-status"),
    ],
)
def test_decide_retries_after_other_error_event(
    event: WatchEvent, seconds: float | None
) -> None:
    decision = decide(event, "7")

    assert isinstance(decision, Retry)
    assert decision.seconds == seconds
    assert isinstance(decision.error, ApiError | DecodeError)


def test_decide_retries_after_malformed_error_event() -> None:
    head = b'{"metadata":{"name":"x","uid":"u","resourceVersion":"1","labels":{}},'
    event = WatchEvent(EventType.ERROR, ObjectDecoder(NODES).decode(head + b'"data":'))

    decision = decide(event, "7")

    assert isinstance(decision, Retry)
    assert isinstance(decision.error, DecodeError)
    assert decision.seconds is None


# ---------------------------------------------------------------- failures

# Whether a retry may help, for each class of errors of a source.
FAILURES: dict[type[Exception], bool] = {
    ApiError: True,
    Unauthorized: False,
    Forbidden: False,
    NotFound: True,  # the kind may come back
    Conflict: True,
    AlreadyExists: True,
    ResourceExpired: False,
    Invalid: False,
    TooManyRequests: True,
    ServerError: True,
    TransportError: True,
    DecodeError: True,
}


def test_decide_table_has_every_error_of_a_source() -> None:
    kinds = {getattr(errors, name) for name in errors.__all__}

    assert set(FAILURES) == {
        *(kind for kind in kinds if issubclass(kind, ApiError)),
        *(TransportError, DecodeError),
    }


@each_case("kind, again", FAILURES.items())
def test_decide_retries_after_temporary_failure(
    kind: type[Exception], again: bool
) -> None:
    error = kind("why")

    decision = decide(error, "7")

    if again:
        assert decision == Retry(error)
    else:
        assert isinstance(decision, Finish)


@pytest.mark.parametrize("again", [True, False], ids=["survived", "final"])
def test_decide_keeps_status_of_refusal(again: bool) -> None:
    error = ApiError.from_status(
        {
            "code": 503 if again else 403,
            "reason": "ServiceUnavailable" if again else "Forbidden",
            "message": "not now" if again else "not you",
            "details": {"kind": "pods", "retryAfterSeconds": 9},
        }
    )

    decision = decide(error, "7")

    if isinstance(decision, Retry):
        assert again
        assert decision.seconds == 9
        return

    assert isinstance(decision, Finish)
    assert decision.event.type is EventType.ERROR
    final = decision.event.error()
    assert type(final) is Forbidden
    assert vars(final) == vars(error)
    assert decision.event.object.at("kind") == "Status"
    assert decision.event.object.at("status") == "Failure"


def test_decide_keeps_retry_after_of_final_refusal() -> None:
    decision = decide(Forbidden("not yet", status=403, retry_after=9.0), "7")

    assert isinstance(decision, Finish)
    assert decision.event.error().retry_after == 9.0


def test_decide_retries_after_too_large_version() -> None:
    """The server is older than the one that returned the version."""
    error = ApiError.from_status(
        {
            "code": 504,
            "reason": "Timeout",
            "message": "Too large resource version: 9, current: 7",
            "details": {
                "causes": [{"reason": "ResourceVersionTooLarge"}],
                "retryAfterSeconds": 1,
            },
        }
    )

    assert decide(error, "9") == Retry(error)


def test_decide_retries_after_end_of_stream() -> None:
    decision = decide(None, "7")

    assert decision == Retry(None)
    assert isinstance(decision, Retry)
    assert decision.seconds is None
