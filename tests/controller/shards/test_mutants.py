"""Each rule that keeps two owners apart: without it, a simulation finds a violation.

`test_member.py` has those that a simulation seldom finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import shard_mutants as mutants
from shard_simulation import Simulation

from aioinformer.controller.shards.timing import ShardTiming

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


def is_violated(
    *faults: str, timing: ShardTiming | None = None, replicas: int = 6
) -> bool:
    """Return True if two replicas ever work on one key."""
    for seed in range(6):
        world = Simulation(
            seed,
            replicas=replicas,
            ranges=16,
            faults=faults,
            every=20.0,
            timing=timing,
        )
        if world.run(600, until_violated=True).violations:
            return True

    return False


@pytest.mark.parametrize(
    ("mutant", "faults"),
    [
        (mutants.no_fence, ["kill", "scale", "stale"]),
        (mutants.no_drain, ["leave"]),
        (mutants.wall_clocks, ["kill"]),
        (mutants.no_deadline, ["partition"]),
        (mutants.no_pause_check, ["pause"]),
        (mutants.fence_without_version, ["slow", "late", "kill"]),
    ],
)
def test_simulation_finds_a_missing_rule(
    mutant: Callable[[Patch], None], faults: list[str], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    assert is_violated(*faults)


def test_simulation_finds_missing_echo_and_expel(monkeypatch: Patch) -> None:
    """Each of the two covers for the other in most faults."""
    mutants.no_echo(monkeypatch)
    mutants.no_expel(monkeypatch)
    assert is_violated("stale", "kill")


def test_simulation_finds_owners_that_do_not_show_themselves(
    monkeypatch: Patch,
) -> None:
    mutants.no_creation_at_once(monkeypatch)
    mutants.early_decision(monkeypatch)
    assert is_violated("blind", replicas=1)


def test_simulation_finds_durations_that_break_the_rule(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ShardTiming, "__post_init__", lambda _: None)
    timing = ShardTiming(lease_duration=12, renew_deadline=11)
    assert timing.longest_work > timing.shortest_wait
    assert is_violated("partition", timing=timing)
