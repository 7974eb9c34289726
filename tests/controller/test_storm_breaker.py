"""`StormBreaker`: decisions, without a controller."""

from __future__ import annotations

import pytest
from storm_helpers import CHANGED, Simulation

from aioinformer.controller.reconcile import Cause
from aioinformer.controller.storm_breaker import (
    MAX_INSPECTED,
    MAX_KEYS,
    MAX_SLOW_SECONDS,
    SETTLE_SECONDS,
    SLOW_SECONDS,
    TRIAL_SECONDS,
    Storm,
    StormBreaker,
)


def loop(it: Simulation, seconds: float, period: float = 0.1) -> float:
    """Write one field in each reconcile, and return the last pause."""
    end, pause = it.now + seconds, 0.0
    while it.now < end:
        pause = it.reconcile("seen")
        it.now += max(period, pause)

    return pause


def fight(it: Simulation, seconds: float, period: float = 0.2) -> None:
    end = it.now + seconds
    while it.now < end:
        it.others_write("mode")
        it.reconcile("mode")
        it.reconcile()
        it.now += period


@pytest.mark.parametrize("period", [0.001, 0.01, 0.1, 0.5, 0.65])
def test_loop_of_own_writes_is_found_within_10_s(period: float) -> None:
    it = Simulation(StormBreaker())
    loop(it, 20, period)

    ((time, storm),) = it.storms
    assert (1 if period < 0.003 else 3) <= time < 10  # a key of 1000 rounds is sooner
    assert storm == Storm(
        "own_writes", "ConfigMap default/a", "data.seen", "PATCH", manager=""
    )


@pytest.mark.parametrize("period", [0.01, 0.1, 0.5, 0.65])
def test_conflict_is_found_within_10_s(period: float) -> None:
    it = Simulation(StormBreaker())
    fight(it, 20, period)

    ((time, storm),) = it.storms
    assert 3 <= time < 10
    assert storm.cause == "conflict"
    assert storm.field == "data.mode"


def test_loop_of_one_round_a_second_is_no_storm() -> None:
    it = Simulation(StormBreaker())
    loop(it, 200, 1.0)

    assert not it.storms
    assert not it.breaker.inspects


def test_burst_shorter_than_3_s_is_not_even_inspected() -> None:
    it = Simulation(StormBreaker())
    for _ in range(10):
        loop(it, 2.9, 0.01)
        assert not it.breaker.inspects
        it.now += 400

    assert not it.storms


def test_slow_key_pauses_until_one_second_after_its_beginning() -> None:
    it = Simulation(StormBreaker())
    loop(it, 10)
    began = it.now
    it.breaker.began(it.request, (CHANGED,), began)

    assert it.breaker.ended(it.request, [], began + 0.3) == pytest.approx(0.7)
    assert it.breaker.ended(it.request, [], began + 7.0) == 0.0


def test_trials_are_doubled_up_to_a_limit_while_the_storm_lasts() -> None:
    it = Simulation(StormBreaker())
    loop(it, 9)
    waits = []
    for _ in range(6):
        wait = it.breaker.proceed(it.request, it.now)
        assert wait is not None
        waits.append(wait)
        it.now += wait
        assert it.breaker.proceed(it.request, it.now) == TRIAL_SECONDS
        assert loop(it, 3) > 0

    assert waits[0] == pytest.approx(SLOW_SECONDS, abs=6)
    assert waits[1] == pytest.approx(2 * SLOW_SECONDS, abs=3)
    assert waits[-1] == pytest.approx(MAX_SLOW_SECONDS, abs=3)
    assert len(it.storms) == 1
    assert it.breaker.storms == 1


def test_trial_without_rounds_ends_the_storm_and_forgets_the_key() -> None:
    it = Simulation(StormBreaker())
    loop(it, 9)
    it.now += SLOW_SECONDS
    assert it.breaker.proceed(it.request, it.now) == TRIAL_SECONDS
    assert it.reconcile() == 0.0
    assert it.breaker.proceed(it.request, it.now + 4) == pytest.approx(6)
    assert it.breaker.proceed(it.request, it.now + TRIAL_SECONDS) is None

    assert it.breaker.storms == 0
    assert not it.breaker.inspects


def test_trial_counts_only_its_own_rounds() -> None:
    it = Simulation(StormBreaker())
    loop(it, SLOW_SECONDS)
    while (wait := it.breaker.proceed(it.request, it.now)) != TRIAL_SECONDS:
        assert wait is not None
        loop(it, wait)

    assert it.reconcile("seen") == 0.0
    assert it.reconcile() == 0.0
    assert it.breaker.proceed(it.request, it.now + TRIAL_SECONDS) is None


def test_answers_to_changes_that_arrive_during_a_reconcile_are_no_storm() -> None:
    it = Simulation(StormBreaker())
    for _ in range(300):
        it.reconcile("step", after=("report",))
        it.now += 0.05

    assert it.breaker.inspects
    assert not it.storms


def test_mixed_causes_delay_one_reconcile_a_minute() -> None:
    it = Simulation(StormBreaker())
    pauses = []
    for _ in range(1200):
        pauses.append(it.reconcile("seen"))
        it.others_write("wish")
        pauses.append(it.reconcile("seen"))
        it.others_write("wish")
        it.now += 0.1

    assert not it.storms
    assert set(pauses) == {0.0, SETTLE_SECONDS}
    assert 2 <= pauses.count(SETTLE_SECONDS) <= 4


def test_inspection_ends_when_the_key_calms_down() -> None:
    it = Simulation(StormBreaker())
    loop(it, 3.5)
    assert it.breaker.inspects
    it.now += 60
    it.reconcile("seen")
    it.now += 60
    it.reconcile()

    assert not it.breaker.inspects


def test_one_change_of_others_is_one_round_of_a_conflict() -> None:
    it = Simulation(StormBreaker())
    loop(it, 3.5)
    it.others_write("mode")
    for _ in range(100):
        it.others_write("wish")
        it.reconcile("mode")
        it.now += 0.1

    assert not it.storms


def test_creation_of_new_objects_is_progress() -> None:
    it = Simulation(StormBreaker())
    for number in range(400):
        it.create(f"child-{number}")
        it.now += 0.05

    assert not it.storms


def test_creation_of_one_object_again_and_again_is_a_storm() -> None:
    it = Simulation(StormBreaker())
    for _ in range(200):
        it.create("child")
        it.now += 0.05

    ((_, storm),) = it.storms
    assert str(storm).startswith("POST ConfigMap default/child creates it, which")


def test_own_deletions_and_creations_in_turn_are_a_storm() -> None:
    it = Simulation(StormBreaker())
    for _ in range(100):
        it.create("child")
        it.now += 0.05
        it.delete("child")
        it.now += 0.05

    ((_, storm),) = it.storms
    assert storm.cause == "own_writes"


def test_update_without_changes_does_not_claim_the_write_of_others() -> None:
    it = Simulation(StormBreaker())
    for _ in range(1000):
        it.others_write("wish")
        it.reconcile_idly("seen")
        it.now += 0.02

    assert it.breaker.inspects
    assert not it.storms


@pytest.mark.parametrize("change", ["requeue", "resync", "initial"])
def test_reconcile_with_a_cause_of_its_own_is_no_round(change: str) -> None:
    it = Simulation(StormBreaker())
    for _ in range(1000):
        it.reconcile("seen", causes=(CHANGED, Cause(change, "", it.request.key)))  # type: ignore[arg-type]
        it.now += 0.1

    assert not it.storms


def test_retry_that_a_write_precedes_is_a_round() -> None:
    it = Simulation(StormBreaker())
    for _ in range(100):
        it.reconcile("seen", causes=(CHANGED, Cause("retry", "", it.request.key)))
        it.now += 0.1

    assert len(it.storms) == 1


def test_change_of_others_between_two_rounds_of_own_writes_is_no_conflict() -> None:
    it = Simulation(StormBreaker())
    for _ in range(300):
        it.reconcile("seen")
        it.others_write("wish")
        it.now += 0.05

    assert not it.storms


def test_inspected_keys_are_bounded_and_make_room_for_others() -> None:
    breaker = StormBreaker()
    busy = [Simulation(breaker, f"key-{n}") for n in range(2 * MAX_INSPECTED)]
    bad = Simulation(breaker, "bad")
    for step in range(120):
        for it in [*busy, bad]:
            it.now = step * 0.1
            if it is not bad:
                it.others_write("wish")

            it.reconcile("seen")
            assert len(breaker._inspected) <= MAX_INSPECTED + 1

    assert [storm.target for _, storm in bad.storms] == ["ConfigMap default/bad"]


def test_meters_of_idle_keys_are_forgotten() -> None:
    breaker = StormBreaker()
    for number in range(3 * MAX_KEYS):
        it = Simulation(breaker, f"key-{number}")
        it.now = number * 0.01
        it.reconcile("seen")
        assert len(breaker._meters) <= MAX_KEYS


def test_events_of_a_key_are_bounded() -> None:
    it = Simulation(StormBreaker())
    loop(it, 3.5)
    for _ in range(1000):
        it.others_write("wish")

    (entry,) = it.breaker._inspected.values()
    assert len(entry.events) == 256
