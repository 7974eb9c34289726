"""`recovery_for`, classes of errors, and `Absence`; test_machine.py has the table."""

from __future__ import annotations

import pytest

from aioinformer.errors import (
    ApiError,
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
from aioinformer.informer.listwatch.recovery import (
    Absence,
    Recovery,
    is_internal,
    is_refusal,
    is_unsupported,
    recovery_for,
)

BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)


@pytest.mark.parametrize(
    ("error", "recovery"),
    [
        pytest.param(ServerError("?", status=500), Recovery.RELIST, id="500"),
        pytest.param(ServerError("?", status=503), Recovery.RESUME, id="503"),
        pytest.param(BROKEN, Recovery.RESUME, id="transport"),
        pytest.param(Forbidden("?", status=403), Recovery.RESUME, id="403"),
        pytest.param(EXPIRED, Recovery.RELIST_NEWEST, id="410"),
    ],
)
def test_persistent_internal_errors_cause_a_list(
    error: Exception, recovery: Recovery
) -> None:
    assert recovery_for(error, persistent=True) is recovery
    assert is_internal(error) is (recovery is Recovery.RELIST)


def test_causes_that_are_no_list_are_ignored() -> None:
    error = ServerError("?", status=504, details={"causes": 5})

    assert recovery_for(error) is Recovery.RESUME


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
def test_refusals_are_errors_that_only_a_person_can_fix(
    error: Exception, refusal: bool
) -> None:
    assert is_refusal(error) is refusal


@pytest.mark.parametrize(
    ("error", "unsupported"),
    [
        (ApiError("?", status=405), True),
        (ApiError("?", status=406), False),
        (NotFound("?", status=404), False),
        (BROKEN, False),
    ],
    ids=lambda value: repr(value) if isinstance(value, bool) else str(value),
)
def test_status_405_means_an_unsupported_verb(
    error: Exception, unsupported: bool
) -> None:
    assert is_unsupported(error) is unsupported


# ---------------------------------------------------------------- absence


def test_absence_is_confirmed_after_a_minute_of_denials() -> None:
    absence = Absence()

    assert [absence.answered(False, now) for now in (0, 30, 59.9, 60, 61)] == [
        *(False, False, False),
        *(True, True),
    ]
    assert absence.confirmed


def test_first_denial_confirms_nothing() -> None:
    absence = Absence()

    assert not absence.answered(False, 10_000)
    assert not absence.confirmed


def test_unknown_answer_does_not_restart_the_minute() -> None:
    absence = Absence()
    absence.answered(False, 0)

    assert not absence.answered(None, 70)
    assert absence.answered(False, 71)


@pytest.mark.parametrize("between", ["answered-yes", "interrupted", "ended"])
def test_minute_restarts_after_any_other_result(between: str) -> None:
    absence = Absence()
    absence.answered(False, 0)
    match between:
        case "answered-yes":
            assert not absence.answered(True, 30)
        case "interrupted":
            absence.interrupted()
        case _:
            absence.ended()

    assert [absence.answered(False, now) for now in (61, 120, 121)] == [
        *(False, False),
        True,
    ]


def test_interruption_keeps_a_confirmed_absence() -> None:
    absence = Absence()
    absence.answered(False, 0)
    absence.answered(False, 60)

    absence.interrupted()

    assert not absence.answered(False, 70), "the minute restarts here"
    assert absence.confirmed


@pytest.mark.parametrize("news", ["named", "listed"])
def test_absence_ends_when_the_resource_is_served_again(news: str) -> None:
    absence = Absence()
    absence.answered(False, 0)
    absence.answered(False, 60)

    if news == "named":
        absence.answered(True, 90)
    else:
        absence.ended()

    assert not absence.confirmed
