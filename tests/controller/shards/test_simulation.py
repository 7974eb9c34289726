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
    assert result.first < 18
    assert not result.violations


@pytest.mark.parametrize("seed", range(5))
def test_simulated_newcomer_takes_nothing_while_the_owner_misses_deletions(
    seed: int,
) -> None:
    world = Simulation(seed, replicas=1, ranges=16, faults=["blind"], every=90.0)
    result = world.run(400)
    assert not result.violations, result
    assert result.faults["blind"] == 4


def test_simulated_fence_that_nobody_can_write_moves_no_other_range() -> None:
    world = Simulation(1, replicas=6, ranges=16, error=0.0)
    world.run(60)
    world.server.refused.add("sites-range-07")
    owner = world.takers[7]
    assert owner is not None
    world.at(61, owner.kill)
    world.run(120)
    before, requests = world.result.moves, world.server.requests
    result = world.run(420)
    assert result.moves == before
    assert [it for it, taker in enumerate(world.takers) if taker is None] == [7]
    assert (world.server.requests - requests) / 300 < 3  # 5 renewals in 3 s
    world.server.refused.clear()
    world.run(440)
    assert None not in world.takers


def test_simulated_refusal_of_all_writes_is_met_by_8_requests_a_second() -> None:
    world = Simulation(1, error=0.0)
    world.run(60)
    before = world.server.requests
    world.server.refused = set(world.server.leases)
    counts = []
    for end in range(70, 130, 10):
        world.run(end)
        counts.append((world.server.requests - before) / 10)
        before = world.server.requests

    assert max(counts) <= 8, counts
    world.server.refused.clear()
    world.run(140)
    assert None not in world.takers


@pytest.mark.parametrize("refused", ["fences", "all"])
def test_simulated_refusals_cause_no_storm_of_requests(refused: str) -> None:
    world = Simulation(1, error=0.0)
    world.run(60)
    names = set(world.server.leases)
    world.server.refused = {it for it in names if refused == "all" or "-range-" in it}
    for replica in world.replicas[:5]:
        world.at(61, replica.kill)

    world.run(120)
    before = world.server.requests
    result = world.run(420)
    assert (world.server.requests - before) / 300 <= 8
    assert not result.violations
    world.server.refused.clear()
    world.run(450)
    assert None not in world.takers
