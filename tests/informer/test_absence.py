"""`Absence`: how often, and for how long, a server has to say no."""

from __future__ import annotations

import pytest

from aioinformer.informer.listwatch.recovery import Absence


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

    assert not absence.answered(False, 70), "the minute counts again from here"
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
