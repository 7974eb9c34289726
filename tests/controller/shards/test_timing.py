"""`ShardTiming`: the rule that keeps two owners apart."""

from __future__ import annotations

import pytest

from aioinformer import Client, Shards
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.errors import OptionsError


def test_default_durations_keep_owners_apart() -> None:
    timing = ShardTiming()
    assert timing.longest_work == pytest.approx(16.0)
    assert timing.shortest_wait == pytest.approx(16.67, abs=0.01)


def test_shards_have_the_default_durations() -> None:
    assert Shards("sites", Client.from_url("http://localhost")).timing == ShardTiming()


def test_durations_of_an_election_are_refused_with_the_sum() -> None:
    with pytest.raises(OptionsError) as refused:
        ShardTiming(lease_duration=15, renew_deadline=10)

    text = str(refused.value)
    assert "(10 + 1) / 0.8 + 1 = 14.75 s is longer than" in text
    assert "15 / 1.2 = 12.50 s" in text


def test_durations_of_an_election_are_accepted_for_better_clocks() -> None:
    timing = ShardTiming(lease_duration=15, renew_deadline=10, clock_error=0.05)
    assert timing.longest_work <= timing.shortest_wait


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retry_period": 0.0}, "retry_period must be positive"),
        ({"lease_duration": -1.0}, "lease_duration must be positive"),
        ({"drain": -1.0}, "drain_timeout cannot be negative"),
        ({"clock_error": 1.0}, "clock_error must be at least 0 and below 1"),
        ({"retry_period": 6.0}, "must be at least twice retry_period"),
    ],
)
def test_impossible_durations_are_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        ShardTiming(**options)
