"""`Backoff` and `RetryWithDeadline`: times of retries, computed without a clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.backoff import Backoff, Failure, RetryWithDeadline


class Jitter(random.Random):
    """A generator that always draws the same part of a gap."""

    def __init__(self, part: float = 0.0) -> None:
        super().__init__()
        self.part = part

    def random(self) -> float:
        return self.part


UNREACHABLE, VOID, OTHER = Failure


def attempt(
    backoff: Backoff,
    lasts: float = 0.0,
    failure: Failure | None = OTHER,
    *,
    accepted: bool = False,
) -> float:
    """Make one attempt of so many seconds; return the wait after it."""
    backoff.begin(0.0)
    return backoff.end(lasts, failure, accepted=accepted)


class Attempts:
    """Consecutive attempts, each after its wait."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self.backoff = backoff or Backoff(Jitter())
        self.now = 1000.0

    def make(
        self, lasts: float, failure: Failure | None = None, *, accepted: bool = True
    ) -> float:
        self.backoff.begin(self.now)
        self.now += lasts
        wait = self.backoff.end(self.now, failure, accepted=accepted)
        self.now += wait
        return wait

    def fail(self, number: int = 1) -> list[float]:
        return [self.make(0.0, OTHER, accepted=False) for _ in range(number)]


@pytest.mark.parametrize("lasts", [0.0, 45.0], ids=["at-once", "slowly"])
def test_failures_double_the_gap_from_0_8_s_to_30_s(lasts: float) -> None:
    """However long the attempt took: the gap counts from its end."""
    backoff = Backoff(Jitter())

    waits = [attempt(backoff, lasts) for _ in range(8)]

    assert waits == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(
    ("part", "wait"),
    [
        pytest.param(0.0, 0.8, id="least"),
        pytest.param(0.5, 1.2, id="middle"),
        pytest.param(0.75, 1.4, id="more"),
    ],
)
def test_gap_is_drawn_between_d_and_twice_d(part: float, wait: float) -> None:
    assert attempt(Backoff(Jitter(part))) == pytest.approx(wait)


def test_new_jitter_is_drawn_for_each_attempt() -> None:
    jitter = Jitter(0.0)
    backoff = Backoff(jitter)
    backoff.begin(0.0)
    jitter.part = 0.5  # counts from the next attempt

    first = backoff.end(0.0, OTHER)

    assert first == 0.8
    assert attempt(backoff) == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("lasted", "failure", "accepted", "wait", "d"),
    [
        pytest.param(0.3, None, True, 5 - 0.3, 12.8, id="clean-end-at-once"),
        pytest.param(4.0, None, True, 1.0, 12.8, id="clean-end-soon"),
        pytest.param(15.0, None, True, 0.0, 12.8, id="clean-end"),
        pytest.param(1.5, OTHER, True, 12.8, 25.6, id="broken-at-once"),
        pytest.param(1.6, OTHER, True, 5 - 1.6, 12.8, id="broken-soon"),
        pytest.param(5.0, OTHER, True, 0.0, 12.8, id="broken"),
        pytest.param(130.0, None, True, 0.0, 0.8, id="clean-end-after-2-minutes"),
        pytest.param(130.0, OTHER, True, 0.0, 0.8, id="broken-after-2-minutes"),
        pytest.param(0.3, OTHER, False, 12.8, 25.6, id="refused"),
        pytest.param(130.0, OTHER, False, 12.8, 25.6, id="refused-after-2-minutes"),
        pytest.param(0.3, UNREACHABLE, False, 1.0, 12.8, id="unreachable"),
        pytest.param(30.0, UNREACHABLE, False, 1.0, 12.8, id="unreachable-slowly"),
        pytest.param(0.3, VOID, False, 0.0, 12.8, id="version-void"),
        pytest.param(300.0, VOID, True, 0.0, 0.8, id="version-void-in-mid-watch"),
    ],
)
def test_outcome_of_an_attempt_determines_the_next_gap(
    lasted: float, failure: Failure | None, accepted: bool, wait: float, d: float
) -> None:
    attempts = Attempts()
    attempts.fail(4)

    waited = attempts.make(lasted, failure, accepted=accepted)

    assert waited == pytest.approx(wait)
    assert repr(attempts.backoff) == f"<Backoff d={d:g}s>"


@pytest.mark.parametrize("failure", [None, OTHER], ids=["clean", "broken"])
@pytest.mark.parametrize("seconds", [5.0, 15.0, 35.0, 55.0])
def test_backoff_resets_after_two_quiet_minutes_of_any_watches(
    seconds: float, failure: Failure | None
) -> None:
    attempts = Attempts()
    attempts.fail(8)
    began = attempts.now

    while "d=30s" in repr(attempts.backoff):
        assert attempts.make(seconds, failure) == 0.0

    assert 120.0 <= attempts.now - began < 120.0 + seconds
    assert repr(attempts.backoff) == "<Backoff d=0.8s>"


@pytest.mark.parametrize(
    ("lasted", "wait"),
    [pytest.param(119.0, 0.8, id="soon"), pytest.param(120.0, 0.0, id="late")],
)
def test_watch_that_causes_a_list_must_live_two_minutes_to_reset(
    lasted: float, wait: float
) -> None:
    backoff = Backoff(Jitter())
    backoff.begin(0.0)

    assert backoff.end(lasted, OTHER, accepted=True, relists=True) == wait


def test_failure_restarts_the_quiet_minutes() -> None:
    attempts = Attempts()
    attempts.fail(4)

    for failure in (OTHER, UNREACHABLE, UNREACHABLE):
        attempts.make(110.0)
        attempts.make(0.0, failure, accepted=False)

    assert repr(attempts.backoff) == "<Backoff d=25.6s>"


def test_only_the_first_of_consecutive_expired_versions_is_relisted_at_once() -> None:
    jitter = Jitter(0.5)
    attempts = Attempts(Backoff(jitter))

    waits = [attempts.make(0.1, VOID) for _ in range(4)]

    assert waits == pytest.approx([0.5, 1.2, 2.4, 4.8])
    attempts.make(2.0)
    assert attempts.make(0.1, VOID) == 0.5


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
def test_retry_after_is_a_lower_bound_of_at_most_two_minutes(
    retry_after: float | None, wait: float
) -> None:
    backoff = Backoff(Jitter())
    backoff.begin(50.0)

    assert backoff.end(50.0, OTHER, retry_after=retry_after) == wait


def test_long_outage_does_not_reset_the_gap() -> None:
    """client-go starts over every 2 minutes, whether anything got better or not."""
    attempts = Attempts()

    waits = attempts.fail(40)

    assert attempts.now > 2000
    assert waits[6:] == [30.0] * 34


def test_growth_is_not_limited_by_a_number_of_steps() -> None:
    """Behind the cap a reset is followed by the whole sequence again."""
    attempts = Attempts()
    attempts.fail(50)

    attempts.make(120.0)

    assert attempts.fail(7) == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_seeded_generator_makes_the_sequence_reproducible() -> None:
    def sequence(seed: int) -> list[float]:
        backoff = Backoff(random.Random(seed))
        return [attempt(backoff) for _ in range(5)]

    assert sequence(1) == sequence(1)
    assert sequence(1) != sequence(2)


def test_two_backoffs_draw_different_gaps() -> None:
    one, two = Backoff(), Backoff()

    draws = [(attempt(one), attempt(two)) for _ in range(5)]

    assert any(first != second for first, second in draws)


@given(
    attempts=st.lists(
        st.tuples(
            st.floats(0, 300),
            st.sampled_from([None, *Failure]),
            st.booleans(),
            st.none() | st.floats(0, 300),
        ),
        max_size=20,
    ),
    seed=st.integers(0, 100),
)
def test_waits_and_gaps_stay_within_their_bounds(
    attempts: list[tuple[float, Failure | None, bool, float | None]], seed: int
) -> None:
    backoff = Backoff(random.Random(seed))
    now = 1000.0
    for lasts, failure, accepted, retry_after in attempts:
        d = backoff._d
        backoff.begin(now)
        began, now = now, now + lasts
        lasts = now - began  # as rounded
        accepted = accepted or failure is None
        wait = backoff.end(now, failure, accepted=accepted, retry_after=retry_after)
        now += wait

        asked = min(retry_after or 0.0, 120.0)
        assert wait >= asked
        assert 0.8 <= backoff._d <= 30.0
        assert backoff._d in (d, min(2 * d, 30.0), 0.8)
        if failure is None or (accepted and lasts >= 1.6):
            assert wait <= max(5.0, asked)
            assert backoff._d in (d, 0.8)
        elif failure is OTHER:
            assert wait >= d
            assert wait <= max(2 * d, asked)


# ---------------------------------------------------------------- RetryWithDeadline


OURS, FOREIGN = ValueError("ours"), KeyError("another")


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
        pytest.param(1, [(1, FOREIGN)], [False], id="another-error"),
        pytest.param(
            2,
            [(1, OURS), (2, FOREIGN), (3, OURS)],
            [True, False, True],
            id="another-error-keeps-the-window-open",
        ),
        pytest.param(
            2,
            [(1, OURS), (2, FOREIGN), (3.5, OURS)],
            [True, False, False],
            id="another-error-does-not-prolong-the-window",
        ),
        pytest.param(
            1,
            [(1, OURS), (3, OURS), (4, OURS), (5, OURS), (6, OURS)],
            [True, False, True, True, False],
            id="another-window-after-the-first",
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
def test_retries_are_allowed_for_a_time_after_the_first_consecutive_error(
    max_duration: float, failures: list[tuple[float, Exception]], said: list[bool]
) -> None:
    assert answers(retrying(max_duration), failures) == said


def test_nothing_is_retried_without_an_error() -> None:
    assert not retrying(30).should_retry(0.0)


def test_window_ends_even_if_no_further_error_occurs() -> None:
    retry = retrying(30)
    retry.after(OURS, 0.0)

    said = [retry.should_retry(now) for now in (30.0, 30.1, 30.2)]

    assert said == [True, False, False]


def test_pause_that_ends_a_row_is_configurable() -> None:
    failures: list[tuple[float, Exception]] = [(0, OURS), (8, OURS), (18, OURS)]

    assert answers(retrying(9, min_reset_period=10), failures) == [True, True, True]
    assert answers(retrying(9, min_reset_period=11), failures) == [True, True, False]


def test_repr_names_the_window() -> None:
    retry = retrying(30)
    before = repr(retry)
    retry.after(OURS, 5.0)

    assert before == "<RetryWithDeadline 30s, no window>"
    assert repr(retry) == "<RetryWithDeadline 30s, open since 5>"


@given(
    failures=st.lists(
        st.tuples(st.floats(0, 90), st.sampled_from([OURS, FOREIGN])), max_size=30
    ),
    max_duration=st.floats(0, 120),
)
def test_consecutive_errors_are_never_retried_longer_than_the_window(
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
        if error is FOREIGN:
            assert not allowed
            continue

        if first is None or now - last >= 60:
            first = now

        last = now
        assert allowed is (max_duration > 0 and now - first <= max_duration)
        if not allowed and max_duration > 0:
            first = None
