"""The durations of an election."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from aioinformer.controller.lease_timing import LeaseTiming
from aioinformer.errors import OptionsError


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "why"),
    [
        pytest.param(15, 15, 2, "lease_duration", id="no-time-between"),
        pytest.param(10, 15, 2, "lease_duration", id="lease-too-short"),
        # 15 is what the Lease would say, and after 15 s others take it.
        pytest.param(
            15.9, 15.5, 2, "lease_duration", id="lease-cut-below-the-deadline"
        ),
        pytest.param(15, 2.4, 2, "renew_deadline", id="deadline-of-one-jittered-retry"),
        pytest.param(15, 1, 2, "renew_deadline", id="deadline-below-retry"),
        pytest.param(15, 10, 0, "retry_period", id="no-pause"),
        pytest.param(15, 10, -2, "retry_period", id="negative-pause"),
        pytest.param(0.9, 0.5, 0.1, "lease_duration", id="lease-below-a-second"),
        pytest.param(math.inf, 10, 2, "inf", id="infinite-lease"),
        pytest.param(15, math.nan, 2, "nan", id="no-number"),
    ],
)
def test_durations_that_do_not_fit_are_refused(
    lease: float, renew: float, retry: float, why: str
) -> None:
    with pytest.raises(OptionsError, match=why):
        LeaseTiming.of(lease, renew, retry)


def test_a_lease_counts_in_whole_seconds() -> None:
    timing = LeaseTiming.of(timedelta(seconds=15.9), timedelta(seconds=10), 2)

    assert timing == LeaseTiming(15, 10.0, 2.0)


def test_who_waits_pauses_for_one_to_two_periods_and_a_bit() -> None:
    timing = LeaseTiming.of(15, 10, 2)

    assert timing.pause(0) == 2
    assert timing.pause(0.5) == pytest.approx(3.2)
    assert timing.pause(0.999_999) < 4.4


def test_one_attempt_that_hangs_leaves_time_for_another() -> None:
    timing = LeaseTiming.of(15, 10, 2)

    assert timing.retry + timing.request < timing.renew
