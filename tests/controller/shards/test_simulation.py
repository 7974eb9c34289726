"""Simulated groups: two replicas never work on one key, and no range is long without owner.

Longer runs: `python tests/helpers/shard_simulation.py --seeds 200 --jobs 2`.
"""

from __future__ import annotations

import pytest
from shard_simulation import Simulation, simulate

SMALL = {"replicas": 6, "ranges": 16}


@pytest.mark.parametrize("seed", range(3))
def test_simulated_faults_never_give_a_key_to_two_replicas(seed: int) -> None:
    result = simulate(seed, 400, replicas=8, ranges=16)
    assert not result.violations, result
    assert result.moves > 16, result


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ("leave", 12.0),
        ("rolling", 15.0),
        ("partition", 15.0),
        ("stale", 15.0),
        ("kill", 24.0),
        ("pause", 24.0),
        ("away", 15.0),
        ("lost", 1.0),
        ("delete", 1.0),
        ("delete_all", 1.0),
    ],
)
def test_simulated_range_has_an_owner_again_in_time(fault: str, seconds: float) -> None:
    world = Simulation(7, faults=[fault], every=150.0, **SMALL)  # type: ignore[arg-type]
    result = world.run(400)
    assert not result.violations, result
    assert result.longest <= seconds, result
    assert sum(result.faults.values()) == 3


def test_simulated_group_of_20_sends_few_requests_when_nothing_moves() -> None:
    world = Simulation(3)
    world.run(25)
    before = world.server.requests
    result = world.run(85)
    assert (world.server.requests - before) / 60 <= 8
    assert result.first < 15
    assert not result.violations


@pytest.mark.parametrize("seed", range(5))
def test_simulated_newcomer_takes_nothing_while_the_owner_misses_deletions(
    seed: int,
) -> None:
    world = Simulation(seed, replicas=1, ranges=16, faults=["blind"], every=90.0)
    result = world.run(400)
    assert not result.violations, result
    assert result.faults["blind"] == 4
