"""`assign()`: balance, few moves, and the same answer for equal views."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.controller.shards.assignment import assign

NAMES = [f"replica-{number}" for number in range(24)]
memberships = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(sorted)
holders = st.lists(st.sampled_from(["", *NAMES]), min_size=64, max_size=64)


def _settled(members: list[str]) -> tuple[str, ...]:
    return assign([""] * 64, members)


@settings(max_examples=25)
@given(holders, memberships)
def test_assignment_is_balanced_whoever_holds_what(
    held: list[str], members: list[str]
) -> None:
    sizes = Counter(assign(held, members))
    assert sorted(sizes) == members
    assert max(sizes.values()) - min(sizes.values()) <= 1


@settings(max_examples=25)
@given(holders, memberships)
def test_assignment_is_stable_once_it_is_reached(
    held: list[str], members: list[str]
) -> None:
    once = assign(held, members)
    assert assign(once, members) == once


@settings(max_examples=25)
@given(holders, memberships)
def test_assignment_moves_no_range_of_a_holder_within_its_quota(
    held: list[str], members: list[str]
) -> None:
    sizes = Counter(held)
    least = 64 // len(members)
    for before, after in zip(held, assign(held, members), strict=True):
        if before in members and sizes[before] <= least:
            assert after == before


@settings(max_examples=25)
@given(holders, memberships, st.data())
def test_assignment_is_the_same_when_a_range_moves_as_it_says(
    held: list[str], members: list[str], data: st.DataObject
) -> None:
    wanted = assign(held, members)
    moving = [index for index in range(64) if held[index] != wanted[index]]
    if not moving:
        return

    index = data.draw(st.sampled_from(moving))
    released = list(held)
    released[index] = ""
    taken = list(held)
    taken[index] = wanted[index]
    # Which of equal members has one range more may still change.
    assert Counter(assign(taken, members).count(one) for one in members) == Counter(
        wanted.count(one) for one in members
    )
    assert assign(taken, members)[index] == wanted[index]
    assert assign(released, members)[index] in members


@settings(max_examples=25)
@given(memberships.filter(lambda members: len(members) > 1), st.data())
def test_a_loss_moves_at_most_one_and_a_half_of_a_share(
    members: list[str], data: st.DataObject
) -> None:
    before = _settled(members)
    lost = data.draw(st.sampled_from(members))
    after = assign(before, [member for member in members if member != lost])
    moves = sum(a != b for a, b in zip(before, after, strict=True))
    # Of 64 ranges, a share is 64/n, and one member in turn has one more.
    assert moves <= max(1.5 * 64 / len(members), 1)


@settings(max_examples=25)
@given(memberships.filter(lambda members: len(members) < 24))
def test_a_join_moves_at_most_a_share(members: list[str]) -> None:
    before = _settled(members)
    joined = next(name for name in NAMES if name not in members)
    after = assign(before, sorted([*members, joined]))
    moved = [b for a, b in zip(before, after, strict=True) if a != b]
    assert set(moved) == {joined}
    assert len(moved) <= -(-64 // (len(members) + 1))


def test_assignment_is_empty_without_members() -> None:
    assert assign(["a", ""], []) == ("", "")


def test_ranges_of_a_lost_member_spread_over_all_others() -> None:
    before = _settled(NAMES[:4])
    after = assign(before, NAMES[1:4])
    takers = Counter(b for a, b in zip(before, after, strict=True) if a != b)
    assert sorted(takers.values()) == [5, 5, 6]
