"""`CurrentSelection` and `next_change`: membership, repeated changes, and steps."""

from __future__ import annotations

import uuid

import pytest
from fake_source import FakeSource, thing
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.informer.listwatch.current_selection import (
    CurrentSelection,
    ListAgain,
    Narrow,
    Widen,
    next_change,
)
from aioinformer.model import KubeObject, ShardSelector, ranges_of
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch import Selectors

QUARTERS = ranges_of(4)


def shards(*numbers: int) -> ShardSelector:
    return ShardSelector(tuple(QUARTERS[it] for it in numbers))


def in_quarter(number: int, version: int = 1) -> KubeObject:
    """Make an object whose uid is in a quarter of all hashes."""
    for attempt in range(1000):
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}-{attempt}"))
        obj = thing(f"in-{number}", version, uid)
        if shards(number).selects(obj):
            return obj

    raise AssertionError(number)


def selection(
    selected: ShardSelector | None, *known: KubeObject, stored: bool = True
) -> CurrentSelection:
    source = FakeListerWatcher().with_selectors(Selectors(shards=selected))
    current = CurrentSelection(source, {it.key: it for it in known}.get)
    current.stored = stored
    return current


# ---------------------------------------------------------------- membership


def test_selection_of_an_unknown_source_has_all() -> None:
    current = CurrentSelection(FakeSource(), lambda _: None)

    assert current.has_all
    assert current.selectors == Selectors()


@pytest.mark.parametrize("selected", [None, shards(0, 1, 2, 3)], ids=str)
def test_selection_of_all_hashes_has_all(selected: ShardSelector | None) -> None:
    current = selection(selected)

    assert current.has_all
    assert current.has(in_quarter(3))


def test_selection_has_objects_of_its_shards_only() -> None:
    current = selection(shards(1))

    assert not current.has_all
    assert current.has(in_quarter(1))
    assert not current.has(in_quarter(2))


def test_known_uid_is_not_hashed_once_the_store_has_no_other_objects() -> None:
    other = in_quarter(2)

    assert selection(shards(1), other).has(other)
    assert not selection(shards(1), other, stored=False).has(other)


def test_known_object_of_another_shard_may_not_be_kept() -> None:
    other = in_quarter(2)
    current = selection(shards(1), other, stored=False)

    assert not current.may_have(other.key)
    assert current.may_have("default/unknown")


# ---------------------------------------------------------------- repeated changes


def test_changes_up_to_the_floor_of_their_shard_are_left_out() -> None:
    current = selection(shards(0))
    both = Selectors(shards=shards(0, 1))

    current.widen(both, shards(1), watched=10, listed=6)

    assert current.selectors == both
    assert [current.leaves_out(in_quarter(0), it) for it in (10, 11)] == [True, False]
    assert [current.leaves_out(in_quarter(1), it) for it in (6, 7)] == [True, False]
    assert current.leaves_out(in_quarter(2), 99)


def test_floors_end_when_the_watch_passes_all_of_them() -> None:
    current = selection(shards(0))
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=6, listed=10)

    caught_up = []
    for version in (9, 10):
        current.reached(version)
        caught_up.append(current.caught_up)

    assert caught_up == [False, True]
    assert not current.leaves_out(in_quarter(1), 5)


def test_list_at_the_version_of_the_watch_needs_no_floor() -> None:
    current = selection(shards(0))

    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=6, listed=6)

    assert current.caught_up


def test_complete_list_ends_all_floors() -> None:
    current = selection(shards(0))
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=6, listed=10)

    current.listed()

    assert current.stored
    assert current.caught_up
    assert not current.leaves_out(in_quarter(0), 5)


def test_floors_of_earlier_lists_stay_until_they_are_passed() -> None:
    current = selection(shards(0))
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=5, listed=20)
    current.widen(Selectors(shards=shards(0, 1, 2)), shards(2), watched=8, listed=7)

    floors = [
        next(v for v in range(99) if not current.leaves_out(in_quarter(it), v)) - 1
        for it in range(3)
    ]
    assert floors == [8, 20, 7]
    assert current.newest_floor == 20


def test_shards_that_were_removed_and_listed_again_have_the_newer_floor() -> None:
    current = selection(shards(0))
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=5, listed=20)
    current.becomes(Selectors(shards=shards(0)))
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=6, listed=9)

    assert current.leaves_out(in_quarter(1), 9)
    assert not current.leaves_out(in_quarter(1), 10)


def test_deletion_with_the_last_version_of_a_known_object_is_no_repetition() -> None:
    known = in_quarter(0, 7)
    current = selection(shards(0), known)
    current.widen(Selectors(shards=shards(0, 1)), shards(1), watched=10, listed=6)

    assert not current.leaves_out(known, 7)
    assert current.leaves_out(in_quarter(0, 8), 8)


# ---------------------------------------------------------------- steps


def test_other_labels_and_fields_and_hashed_fields_need_a_list() -> None:
    active = Selectors(label_selector="a=b", shards=shards(0))
    by_namespace = ShardSelector(QUARTERS[:1], "namespace")
    for wanted in (
        Selectors(shards=shards(0)),
        Selectors(label_selector="a=b", field_selector="c=d", shards=shards(0)),
        Selectors(label_selector="a=b", shards=by_namespace),
    ):
        assert next_change(active, wanted) == ListAgain()


def test_all_objects_are_the_shards_of_all_hashes() -> None:
    everything, some = Selectors(), Selectors(shards=shards(1))

    assert next_change(everything, some) == Narrow(some)
    assert next_change(some, everything) == Widen(everything, shards(0, 2, 3))


_PARTS = st.one_of(st.none(), st.sets(st.integers(0, 3)))


@given(_PARTS, _PARTS)
def test_steps_lead_to_the_wanted_shards(
    before: set[int] | None, after: set[int] | None
) -> None:
    def of(numbers: set[int] | None) -> Selectors:
        return Selectors(shards=None if numbers is None else shards(*numbers))

    active, wanted = of(before), of(after)
    steps = []
    while (change := next_change(active, wanted)) is not None:
        assert not isinstance(change, ListAgain)
        steps.append(type(change))
        if isinstance(change, Widen):
            assert change.part(active, change.added) == change.selectors

        active = change.selectors

    assert active == wanted
    assert steps in ([], [Narrow], [Widen], [Narrow, Widen])


def test_part_of_the_added_shards_leads_to_a_part_of_the_selection() -> None:
    change = Widen(Selectors(shards=shards(0, 1, 2)), shards(1, 2))

    part = change.part(Selectors(shards=shards(0)), shards(2))

    assert part == Selectors(shards=shards(0, 2))
    assert change.has_some(shards(2, 3))
    assert not change.has_some(shards(0, 3))
    assert not change.has_some(ShardSelector(QUARTERS[1:2], "namespace"))
