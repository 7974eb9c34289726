"""Rates of events in steps of five seconds."""

from __future__ import annotations

import pytest

from aioinformer.web.dashboard.step_counts import STEPS, StepCounts


def test_rates_are_those_of_complete_steps() -> None:
    counts = StepCounts()
    for now in (1000.0, 1004.9, 1005.0, 1017.0):
        counts.add(now)

    assert counts.rates(1004.9) == counts.rates(1019.9), (
        "an earlier time changes nothing"
    )
    assert counts.rates(1019.9)[-3:] == [0.4, 0.2, 0.0]
    assert counts.rates(1020.0)[-4:] == [0.4, 0.2, 0.0, 0.2]
    assert len(counts.rates(1020.0)) == STEPS


def test_rate_is_that_of_the_last_seconds() -> None:
    counts = StepCounts()
    for _ in range(10):
        counts.add(1004.0)

    assert counts.rate(1004.0) == pytest.approx(10 / 9)
    assert counts.rate(1009.0) == pytest.approx(10 / 9)
    assert counts.rate(1010.0) == 0


@pytest.mark.parametrize("seconds", [305.0, 1e9])
def test_steps_are_forgotten(seconds: float) -> None:
    counts = StepCounts()
    counts.add(1000.0)
    assert sum(counts.rates(1000.0 + seconds - 5)) == (0.2 if seconds == 305.0 else 0)
    assert sum(counts.rates(1000.0 + seconds)) == 0
