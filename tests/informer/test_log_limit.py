"""`LogLimit`: the first ones of a minute, then sums."""

from __future__ import annotations

import pytest

from aioinformer.informer.handlers.error_reporter import LogLimit, Verdict


def test_nine_in_a_minute_are_written_one_by_one() -> None:
    limit = LogLimit()

    verdicts = [limit.note(second) for second in range(9)]

    assert verdicts == [Verdict(each=True)] * 9


def test_from_the_tenth_on_there_are_sums_at_each_doubling() -> None:
    limit = LogLimit()

    verdicts = [limit.note(number / 10_000) for number in range(100)]

    sums = {number + 1: it.sum for number, it in enumerate(verdicts) if it.sum}
    assert sums == {10: 10, 20: 20, 40: 40, 80: 80}
    assert [it.each for it in verdicts] == [True] * 9 + [False] * 91


def test_another_minute_begins_anew_with_what_was_not_told_of_the_last() -> None:
    limit = LogLimit()
    for _ in range(15):
        limit.note(0.0)

    verdict = limit.note(60.0)

    assert verdict == Verdict(each=True, before=15)
    assert limit.note(61.0) == Verdict(each=True)


@pytest.mark.parametrize("count", [1, 9, 10, 20])
def test_what_was_told_already_is_not_told_again(count: int) -> None:
    limit = LogLimit()
    for _ in range(count):
        limit.note(0.0)

    assert limit.note(100.0) == Verdict(each=True)


def test_the_minute_begins_with_its_first_one() -> None:
    limit = LogLimit()
    limit.note(1000.0)
    for _ in range(8):
        limit.note(1059.9)

    assert limit.note(1059.9) == Verdict(each=False, sum=10)
    assert limit.note(1060.0).each


def test_a_clock_that_is_another_one_begins_a_new_minute() -> None:
    limit = LogLimit()
    for _ in range(10):
        limit.note(5000.0)

    assert limit.note(0.0) == Verdict(each=True)


def test_100_000_write_few_records_in_a_minute() -> None:
    limit = LogLimit()

    written = sum(it.each or it.sum > 0 for it in (limit.note(0) for _ in range(10**5)))

    assert written == 9 + 14
