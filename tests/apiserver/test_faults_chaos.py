"""Chaos draws faults of all kinds by its seed."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.testing import faults
from aioinformer_apiserver.faults import Chaos, Fault, Faults, Occasion, Refuse
from aioinformer_apiserver.faults.base import VERBS

LIES = {"Drop", "Foreign", "Unreadable"}


def drawn(chaos: Chaos, verbs: list[str]) -> list[Fault | None]:
    return [chaos.take(Occasion(verb=verb, resource="pods")) for verb in verbs]


def test_chaos_draws_same_faults_for_same_seed() -> None:
    verbs = ["list", "watch", "watch"] * 100

    first, second = (drawn(Chaos(seed=7, rate=0.3), verbs) for _ in range(2))
    other = drawn(Chaos(seed=8, rate=0.3), verbs)

    assert first == second != other
    assert len([it for it in first if it]) == pytest.approx(90, abs=30)


def test_chaos_draws_same_faults_in_every_python() -> None:
    chaos = Chaos(seed=7, rate=0.5, lies=True)

    drawn(chaos, ["list", "watch", "get"] * 3)

    assert [repr(it) for it in chaos.drawn] == [
        "Page(verb='watch', status=200)",
        "UnknownType(after_events=4)",
        "Duplicate(verb='list', after_events=1)",
    ]


def test_chaos_draw_depends_only_on_request_number_and_verb() -> None:
    watches = drawn(Chaos(seed=3, rate=0.5), ["watch"] * 60)
    mixed = drawn(Chaos(seed=3, rate=0.5), ["list"] * 30 + ["watch"] * 30)

    assert mixed[30:] == watches[30:]
    assert mixed[:30] != watches[:30]


@pytest.mark.parametrize("lies", [False, True])
def test_chaos_draws_every_kind_of_fault(*, lies: bool) -> None:
    every = {
        name
        for name in faults.__all__
        if isinstance(kind := getattr(faults, name), type) and issubclass(kind, Fault)
    }
    chaos = Chaos(seed=1, rate=1, lies=lies)

    drawn(chaos, ["list", "watch"] * 1000)

    abstract = {"Fault", "EventFault"}
    expected = every - abstract - (set() if lies else LIES)
    assert {type(it).__name__ for it in chaos.drawn} == expected


def test_chaos_draws_faults_for_verb_of_request() -> None:
    for verb in VERBS:
        chaos = Chaos(seed=5, rate=1, verbs=[verb], lies=True)
        assert all(it and it.verb == verb for it in drawn(chaos, [verb] * 200))
        assert all(it.acts_on == () or verb in it.acts_on for it in chaos.drawn)


def test_chaos_ignores_other_verbs() -> None:
    chaos = Chaos(seed=2, rate=1, verbs={"get"})

    assert drawn(chaos, ["list", "watch"]) == [None, None]
    alone = drawn(Chaos(seed=2, rate=1, verbs={"get"}), ["get"])
    assert drawn(chaos, ["get"]) == alone != [None]


def test_chaos_accepts_single_verb() -> None:
    chaos = Chaos(seed=5, rate=1, verbs="list")

    struck = [it is not None for it in drawn(chaos, ["list", "watch", "l"])]

    assert struck == [True, False, False]


def test_chaos_stops_at_limit() -> None:
    chaos = Chaos(seed=2, rate=1, limit=3)

    struck = drawn(chaos, ["list"] * 10)

    assert [it is not None for it in struck] == [True] * 3 + [False] * 7


def test_chaos_repr_shows_drawn_faults() -> None:
    chaos = Chaos(seed=11, rate=1, limit=1)
    assert repr(chaos) == "<Chaos seed=11 requests=0 drew nothing>"

    (fault,) = drawn(chaos, ["list"])

    assert repr(chaos) == f"<Chaos seed=11 requests=1 drew {fault!r}>"
    assert repr(fault).startswith(f"{type(fault).__name__}(verb='list'")


def test_chaos_takes_turn_among_other_faults() -> None:
    script, refusal = Faults(), Refuse(status=500, verb="list")
    chaos = Chaos(seed=1, rate=1, limit=1)
    script.add(refusal, chaos)

    script.take("list", "pods")
    assert list(script) == [chaos]
    script.take("list", "pods")
    assert script.take("list", "pods") is None
    assert [it.fault for it in script.taken] == [refusal, *chaos.drawn]
    assert len(chaos.drawn) == 1
    script.clear()
    assert len(script) == 0


@each_case(
    "options",
    [
        {"rate": 0},
        {"rate": 1.5},
        {"rate": -0.1},
        {"limit": 0},
        {"verbs": []},
        {"verbs": ["list", "lst"]},
        {"verbs": "lst"},
    ],
)
def test_chaos_rejects_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        Chaos(seed=1, **options)
