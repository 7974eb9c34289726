"""Which keys are slowed down, for any sequence of reconciles and changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from storm_helpers import Simulation

from aioinformer.controller.storm_breaker import StormBreaker
from examples import examples

OURS = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
OTHERS = st.lists(st.sampled_from("xyz"), max_size=3, unique=True)
STEPS = st.lists(st.tuples(OURS, OTHERS, st.floats(0.0, 0.5)), min_size=1, max_size=8)


def repeated(it: Simulation, steps: list[Any], seconds: float, step: Any) -> None:
    """Repeat steps for some seconds, at most 500 of them."""
    end, number = it.now + seconds, 0
    while it.now < end and number < 500:
        step(it, *steps[number % len(steps)])
        number += 1


@examples(60)
@given(STEPS)
def test_answers_to_changes_of_other_fields_are_no_storm(steps: list[Any]) -> None:
    """Each change of others is answered by writes, then our writes by none."""

    def step(it: Simulation, ours: list[str], others: list[str], pause: float) -> None:
        it.others_write(*(others or ["x"]))
        it.reconcile(*ours)
        it.reconcile()
        it.now += pause

    it = Simulation(StormBreaker())
    repeated(it, steps, 60, step)

    assert not it.storms


@examples(60)
@given(STEPS)
def test_one_writing_reconcile_a_second_is_no_storm(steps: list[Any]) -> None:
    def step(it: Simulation, ours: list[str], others: list[str], pause: float) -> None:
        if others:
            it.others_write(*others, *ours)

        assert it.reconcile(*ours) == 0.0
        it.now += 1.0 + pause

    it = Simulation(StormBreaker())
    repeated(it, steps, 300, step)

    assert not it.storms


@examples(20)
@given(STEPS, st.floats(0.02, 0.6))
def test_own_loop_is_found_within_10_s_and_then_paused(
    steps: list[Any], period: float
) -> None:
    """Each reconcile writes `a`, and sometimes others; nobody else writes."""

    def step(it: Simulation, ours: list[str], _others: list[str], _: float) -> None:
        pause = it.reconcile("a", *ours)
        assert 0.0 <= pause < 1.001
        assert bool(pause) == bool(it.storms)
        it.now += max(period, pause)

    it = Simulation(StormBreaker())
    repeated(it, steps, 20, step)

    ((time, storm),) = it.storms
    assert time <= 10
    assert storm.cause == "own_writes"


@examples(60)
@given(STEPS, st.floats(0.02, 0.6))
def test_conflict_is_found_within_10_s(steps: list[Any], period: float) -> None:
    """Others write `a` before each reconcile that writes it, and more."""

    def step(it: Simulation, ours: list[str], others: list[str], _: float) -> None:
        it.others_write("a", *others)
        it.reconcile("a", *ours)
        it.now += period

    it = Simulation(StormBreaker())
    repeated(it, steps, 12, step)

    ((time, storm),) = it.storms
    assert time <= 10
    assert (storm.cause, storm.field) == ("conflict", "data.a")
