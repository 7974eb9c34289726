"""`Backoff` and `RetryWithDeadline`: when to try again, computed without a clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.backoff import Backoff, RetryWithDeadline


class Jitter(random.Random):
    """Draws what the test says: the same part of a gap every time."""

    def __init__(self, part: float = 0.0) -> None:
        super().__init__()
        self.part = part

    def random(self) -> float:
        return self.part


def attempt(backoff: Backoff, lasts: float, *, failed: bool = True) -> float:
    """One attempt of so many seconds; how long to wait after it."""
    backoff.begin(0.0)
    return backoff.end(lasts, failed=failed)


def test_failures_double_the_gap_from_0_8_s_to_30_s() -> None:
    backoff = Backoff(Jitter())

    waits = [attempt(backoff, 0.0) for _ in range(8)]

    assert waits == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(
    ("part", "wait"),
    [
        pytest.param(0.0, 0.8, id="least"),
        pytest.param(0.5, 1.2, id="middle"),
        pytest.param(0.75, 1.4, id="more"),
    ],
)
def test_a_gap_is_drawn_between_d_and_twice_d(part: float, wait: float) -> None:
    assert attempt(Backoff(Jitter(part)), 0.0) == pytest.approx(wait)


def test_a_new_jitter_is_drawn_for_each_attempt() -> None:
    jitter = Jitter(0.0)
    backoff = Backoff(jitter)
    backoff.begin(0.0)
    jitter.part = 0.5  # counts from the next attempt

    first = backoff.end(0.0, failed=True)

    assert first == 0.8
    assert attempt(backoff, 0.0) == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("lasted", "failed", "wait", "d"),
    [
        pytest.param(0.3, True, 0.5, 1.6, id="failed-within-its-gap"),
        pytest.param(0.3, False, 0.5, 1.6, id="ended-within-its-gap"),
        pytest.param(0.8, False, 0.0, 0.8, id="lasted-as-long-as-its-gap"),
        pytest.param(5.0, False, 0.0, 0.8, id="outlived-its-gap"),
        pytest.param(5.0, True, 0.0, 1.6, id="outlived-its-gap-but-failed"),
        pytest.param(500.0, True, 0.0, 1.6, id="useful-but-failed"),
    ],
)
def test_what_an_attempt_means_for_the_next(
    lasted: float, failed: bool, wait: float, d: float
) -> None:
    backoff = Backoff(Jitter())

    waited = attempt(backoff, lasted, failed=failed)

    assert waited == pytest.approx(wait)
    assert repr(backoff) == f"<Backoff d={d:g}s>"


@pytest.mark.parametrize(
    ("lasted", "failed", "d"),
    [
        pytest.param(120.0, False, 0.8, id="useful"),
        pytest.param(119.9, False, 6.4, id="not-long-enough"),
        pytest.param(120.0, True, 12.8, id="failed"),
    ],
)
def test_two_useful_minutes_set_the_gap_back(
    lasted: float, failed: bool, d: float
) -> None:
    backoff = Backoff(Jitter())
    for _ in range(3):
        attempt(backoff, 0.0)

    attempt(backoff, lasted, failed=failed)

    assert repr(backoff) == f"<Backoff d={d:g}s>"


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [
        pytest.param(None, 0.8, id="absent"),
        pytest.param(0.0, 0.8, id="zero"),
        pytest.param(-5.0, 0.8, id="negative"),
        pytest.param(0.5, 0.8, id="less-than-the-gap"),
        pytest.param(10.0, 10.0, id="more-than-the-gap"),
        pytest.param(120.0, 120.0, id="two-minutes"),
        pytest.param(3600.0, 120.0, id="more-than-two-minutes"),
    ],
)
def test_the_servers_wish_is_a_lower_bound_of_at_most_two_minutes(
    retry_after: float | None, wait: float
) -> None:
    backoff = Backoff(Jitter())
    backoff.begin(50.0)

    assert backoff.end(50.0, failed=True, retry_after=retry_after) == wait


def test_an_outage_does_not_set_the_gap_back_however_long_it_lasts() -> None:
    """client-go starts over every 2 minutes, whether anything got better or not."""
    backoff = Backoff(Jitter())
    now = 0.0
    waits = []
    for _ in range(40):
        backoff.begin(now)
        waits.append(backoff.end(now, failed=True))
        now += waits[-1]

    assert now > 1000
    assert waits[6:] == [30.0] * 34


def test_growth_does_not_end_with_a_number_of_steps() -> None:
    """Behind the cap a reset is followed by the whole sequence again."""
    backoff = Backoff(Jitter())
    for _ in range(50):
        attempt(backoff, 0.0)

    attempt(backoff, 120.0, failed=False)

    assert [attempt(backoff, 0.0) for _ in range(7)] == [
        0.8,
        1.6,
        3.2,
        6.4,
        12.8,
        25.6,
        30.0,
    ]


def test_a_seeded_generator_makes_the_sequence_reproducible() -> None:
    def sequence(seed: int) -> list[float]:
        backoff = Backoff(random.Random(seed))
        return [attempt(backoff, 0.0) for _ in range(5)]

    assert sequence(1) == sequence(1)
    assert sequence(1) != sequence(2)


def test_two_of_them_do_not_draw_the_same() -> None:
    one, two = Backoff(), Backoff()

    draws = [(attempt(one, 0.0), attempt(two, 0.0)) for _ in range(5)]

    assert any(first != second for first, second in draws)


@given(
    attempts=st.lists(
        st.tuples(st.floats(0, 300), st.booleans(), st.none() | st.floats(0, 300)),
        max_size=20,
    ),
    seed=st.integers(0, 100),
)
def test_attempts_start_at_least_d_apart(
    attempts: list[tuple[float, bool, float | None]], seed: int
) -> None:
    """And at most 2 d later than asked for; d stays between 0.8 s and 30 s."""
    backoff = Backoff(random.Random(seed))
    now = 1000.0
    for lasts, failed, retry_after in attempts:
        d = backoff._d
        started = now
        backoff.begin(now)
        now += lasts
        wait = backoff.end(now, failed=failed, retry_after=retry_after)
        now += wait

        assert now - started >= d * 0.999999
        assert 0 <= wait <= max(2 * d, min(retry_after or 0.0, 120.0))
        assert 0.8 <= backoff._d <= 30.0
        assert lasts < 2 * d or wait == min(retry_after or 0.0, 120.0)


# ---------------------------------------------------------------- RetryWithDeadline


OURS, OTHER = ValueError("ours"), KeyError("another")


def retrying(max_duration: float, **more: float) -> RetryWithDeadline:
    def is_ours(error: Exception) -> bool:
        return isinstance(error, ValueError)

    return RetryWithDeadline(is_ours, max_duration, **more)


def answers(
    retry: RetryWithDeadline, failures: list[tuple[float, Exception]]
) -> list[bool]:
    said = []
    for now, error in failures:
        retry.after(error, now)
        said.append(retry.should_retry(now))

    return said


@pytest.mark.parametrize(
    ("max_duration", "failures", "said"),
    [
        pytest.param(0, [(1, OURS), (2, OURS)], [False, False], id="off"),
        pytest.param(-1, [(1, OURS)], [False], id="less-than-off"),
        pytest.param(
            1, [(1, OURS), (2, OURS), (3, OURS)], [True, True, False], id="1s"
        ),
        pytest.param(1, [(1, OTHER)], [False], id="another-error"),
        pytest.param(
            2,
            [(1, OURS), (2, OTHER), (3, OURS)],
            [True, False, True],
            id="another-error-keeps-the-window-open",
        ),
        pytest.param(
            2,
            [(1, OURS), (2, OTHER), (3.5, OURS)],
            [True, False, False],
            id="another-error-does-not-prolong-the-window",
        ),
        pytest.param(
            1,
            [(1, OURS), (3, OURS), (4, OURS), (5, OURS), (6, OURS)],
            [True, False, True, True, False],
            id="another-window-behind-the-first",
        ),
        pytest.param(
            30,
            [(float(second), OURS) for second in range(33)],
            [True] * 31 + [False, True],
            id="30s-with-an-error-each-second",
        ),
        pytest.param(
            30,
            [(0, OURS), (59.9, OURS), (60, OURS)],
            [True, False, True],
            id="less-than-a-minute-is-the-same-row",
        ),
        pytest.param(
            30,
            [(0, OURS), (60, OURS), (120, OURS), (181, OURS)],
            [True] * 4,
            id="a-minute-between-errors-begins-a-new-row",
        ),
        pytest.param(
            100,
            [(0, OURS), (50, OURS), (100, OURS), (101, OURS)],
            [True, True, True, False],
            id="the-window-counts-from-the-first-of-the-row",
        ),
    ],
)
def test_retries_are_allowed_for_some_time_since_the_first_error_in_a_row(
    max_duration: float, failures: list[tuple[float, Exception]], said: list[bool]
) -> None:
    assert answers(retrying(max_duration), failures) == said


def test_without_an_error_there_is_nothing_to_retry() -> None:
    assert not retrying(30).should_retry(0.0)


def test_the_window_is_over_even_if_nothing_fails_any_more() -> None:
    retry = retrying(30)
    retry.after(OURS, 0.0)

    said = [retry.should_retry(now) for now in (30.0, 30.1, 30.2)]

    assert said == [True, False, False]


def test_how_long_a_row_may_pause_can_be_chosen() -> None:
    failures: list[tuple[float, Exception]] = [(0, OURS), (8, OURS), (18, OURS)]

    assert answers(retrying(9, min_reset_period=10), failures) == [True, True, True]
    assert answers(retrying(9, min_reset_period=11), failures) == [True, True, False]


def test_its_repr_tells_the_window() -> None:
    retry = retrying(30)
    before = repr(retry)
    retry.after(OURS, 5.0)

    assert before == "<RetryWithDeadline 30s, no window>"
    assert repr(retry) == "<RetryWithDeadline 30s, open since 5>"


@given(
    failures=st.lists(
        st.tuples(st.floats(0, 90), st.sampled_from([OURS, OTHER])), max_size=30
    ),
    max_duration=st.floats(0, 120),
)
def test_a_row_of_errors_is_never_retried_for_longer(
    failures: list[tuple[float, Exception]], max_duration: float
) -> None:
    """Of all answers between two refusals, or two pauses of a minute."""
    retry = retrying(max_duration)
    now = 0.0
    first: float | None = None
    last = 0.0
    for pause, error in failures:
        now += pause
        retry.after(error, now)
        allowed = retry.should_retry(now)
        if error is OTHER:
            assert not allowed
            continue

        if first is None or now - last >= 60:
            first = now

        last = now
        assert allowed is (max_duration > 0 and now - first <= max_duration)
        if not allowed and max_duration > 0:
            first = None
