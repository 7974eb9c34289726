"""`Absence`: how often, and for how long, a server has to say no."""

from __future__ import annotations

import pytest

from aioinformer.informer.listwatch.recovery import Absence


def test_a_minute_of_no_is_absence() -> None:
    absence = Absence()

    assert [absence.answered(False, now) for now in (0, 30, 59.9, 60, 61)] == [
        *(False, False, False),
        *(True, True),
    ]
    assert absence.confirmed


def test_the_first_no_of_all_decides_nothing() -> None:
    absence = Absence()

    assert not absence.answered(False, 10_000)
    assert not absence.confirmed


def test_an_unanswered_question_changes_nothing() -> None:
    absence = Absence()
    absence.answered(False, 0)

    assert not absence.answered(None, 70)
    assert absence.answered(False, 71)


@pytest.mark.parametrize("between", ["answered-yes", "interrupted", "ended"])
def test_the_minute_begins_anew_after_anything_else(between: str) -> None:
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


def test_an_interruption_does_not_bring_it_back() -> None:
    absence = Absence()
    absence.answered(False, 0)
    absence.answered(False, 60)

    absence.interrupted()

    assert not absence.answered(False, 70), "the minute counts again from here"
    assert absence.confirmed


@pytest.mark.parametrize("news", ["named", "listed"])
def test_it_is_there_again_when_the_server_says_so(news: str) -> None:
    absence = Absence()
    absence.answered(False, 0)
    absence.answered(False, 60)

    if news == "named":
        absence.answered(True, 90)
    else:
        absence.ended()

    assert not absence.confirmed
