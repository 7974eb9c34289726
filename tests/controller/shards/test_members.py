"""Members beside each other: Leases that are deleted by hand, and creations that come late.

`World.run` fails if two of them ever own one range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import shard_mutants as mutants
from shard_driver import put
from shard_world import World

from aioinformer.controller.shards.assignment import score
from aioinformer.controller.shards.lease import Flag, Role, fence_name
from aioinformer.controller.shards.member import Outcome
from aioinformer.controller.shards.timing import ShardTiming

if TYPE_CHECKING:
    from shard_driver import Driver

    from aioinformer.controller.shards.commands import Write

SLOW, FAST = 0.8, 1.2
RATES = [(1.0, 1.0), (0.9, 1.1), (SLOW, FAST)]


def pair(rate: float = 1.0, other: float = 1.0) -> tuple[World, Driver, Driver, int]:
    """Return members b and x with a range each, just after a renewal of b."""
    world = World()
    b, x = world.add("b", rate), world.add("x", other)
    world.run(40)
    world.after_a_renewal("b")
    return world, b, x, world.range_of("b")


def fence_write(driver: Driver) -> Write:
    """Take the first write of a fence from those to be answered."""
    write = next(it for it in driver.writes if it.lease.role is Role.FENCE)
    driver.writes.remove(write)
    return write


@pytest.mark.parametrize(("slow", "fast"), RATES)
def test_member_is_not_taken_for_dead_after_a_list_that_skips_its_lease(
    slow: float, fast: float
) -> None:
    world, _, x, index = pair(slow, fast)
    world.cut.add("b")
    world.server.delete(world.lease_of("b"))
    world.run(10 / slow - 0.3)
    assert world.owners(index) == ["b"]
    x.shows = False
    world.cut.discard("b")
    world.run(0.3)  # b creates its Lease again, and sees it
    world.cut.add("b")
    world.server.delete(world.lease_of("b"))
    x.relist()
    x.shows = True
    world.run_until(lambda: world.owners(index) == ["x"])


def test_member_is_not_taken_for_dead_by_a_creation_that_comes_late() -> None:
    world, _, x, index = pair(SLOW, FAST)
    name = world.lease_of("b")
    world.cut.add("b")
    world.server.delete(name)
    world.run(11.8)
    x.shows = False
    world.cut.discard("b")
    world.run_until(lambda: name in world.server.leases)
    world.run(0.1)
    world.cut.add("b")
    world.run(0.5)
    world.server.delete(name)
    world.run_until(lambda: name in world.server.leases)
    assert world.server.leases[name].flags == {Flag.OWNER, Flag.CREATED}  # by x
    x.shows = True
    world.run_until(lambda: world.owners(index) == ["x"])


@pytest.mark.parametrize("deleted", [False, True])
def test_member_waits_for_another_one_by_the_longer_duration(*, deleted: bool) -> None:
    """Durations differ while they are changed by a rolling upgrade."""
    longer = ShardTiming(lease_duration=60, renew_deadline=35, retry_period=10)
    world = World()
    world.add("b", SLOW, longer)
    world.add("x", FAST)
    world.run(120)
    world.after_a_renewal("b")
    index = world.range_of("b")
    world.cut.add("b")
    if deleted:
        world.server.delete(world.lease_of("b"))
        world.server.delete(fence_name("sites", index))

    world.run(40)
    assert world.owners(index) == ["b"]
    world.run_until(lambda: world.owners(index) == ["x"], 90)


@pytest.mark.parametrize("delay", [0.6, 1.5, 2.9])
def test_late_answer_about_a_deleted_fence_holds_nothing(delay: float) -> None:
    world = World()
    names = sorted("bcdefghij", key=lambda it: -score(it, -1))
    world.add("x")
    world.run(20)
    b = world.add(names[-1], SLOW)
    for _ in range(2000):
        world.time += 0.05
        for name, it in world.drivers.items():
            it.now += 0.05 * (SLOW if name == names[-1] else 1)
            it.step()
            if it is b and any(one.lease.role is Role.FENCE for one in it.writes):
                break

            it.answer()
            it.watch()
            it.step()
        else:
            continue

        break

    claim = fence_write(b)
    world.add(names[0], FAST)
    outcome, version, uid = world.server.write(claim)
    for it in world.drivers.values():
        it.watch()

    world.server.delete(claim.lease.name)
    for it in world.drivers.values():
        it.watch()

    world.run(delay / SLOW)
    b.member.answered(claim, outcome, b.now, version=version, uid=uid)
    b.step()
    assert not b.member.owns(claim.lease.index, b.now)
    b.shows = False
    world.cut.add(names[-1])
    world.run(30)


def test_late_creation_by_an_owner_gives_its_range_to_no_newcomer() -> None:
    world, b, x, index = pair()
    name = fence_name("sites", index)
    world.server.delete(name)
    b.watch()
    b.step()
    late = fence_write(b)
    assert (late.verb, late.lease.holder) == ("create", "b")
    world.cut.add("b")
    b.shows = False
    world.run(60)
    assert world.owners(index) == ["x"]
    x.shows = False
    world.server.delete(name)
    assert world.server.write(late)[0] is Outcome.OK
    world.add("d")
    world.run(12)


def test_fences_of_a_new_group_are_believed_once() -> None:
    world = World()
    a = world.add("a")
    while not any(it.lease.role is Role.FENCE for it in a.writes):
        a.now += 0.05
        a.step()
        if not any(it.lease.role is Role.FENCE for it in a.writes):
            a.answer()
            a.watch()
            a.step()

    late = fence_write(a)
    a.answer()
    world.run(3)
    a.member.answered(late, Outcome.NO_ANSWER, a.now)
    world.run(20)
    assert world.owners(late.lease.index) == ["a"]
    log = [it.lease for it in world.server.log if it.name == late.lease.name]
    assert log[0] is not None
    assert log[0].flags == {Flag.CREATED}  # the first attempt may still arrive


@pytest.mark.parametrize("name", "abcefg")
def test_newcomer_waits_for_an_owner_whose_next_renewal_is_lost(name: str) -> None:
    world = World()
    owner = world.add(name, SLOW)
    world.run(40)
    world.after_a_renewal(name)
    owner.shows = False  # it does not see the deletion
    for lease in list(world.server.leases):
        world.server.delete(lease)

    newcomer = world.add("d", FAST)
    lost: Write | None = None
    begun = owner.now
    for _ in range(280):
        owner.now += 0.05 * SLOW
        owner.step()
        if lost is None and owner.writes:
            lost = owner.writes.pop(0)
            begun = owner.now
        elif lost is not None and owner.now >= begun + 3:
            owner.member.answered(lost, Outcome.NO_ANSWER, owner.now)

        owner.answer()
        owner.step()
        newcomer.now += 0.05 * FAST
        newcomer.turn()
        for index in (0, 1):
            assert world.owners(index) != [name, "d"], index


def claim_of(driver: Driver, name: str) -> Write | None:
    """Take a write that makes a fence the driver's own from those to be answered."""
    for it in driver.writes:
        if it.lease.name == name and it.lease.holder == driver.member.identity:
            driver.writes.remove(it)
            return it

    return None


def test_late_answer_holds_nothing_if_a_list_shows_another_fence() -> None:
    world = World()
    world.add("x")
    world.add("y")
    world.run(40)
    index = world.range_of("y")
    name = fence_name("sites", index)
    world.add("b")
    world.run(5)
    del world.drivers["y"]  # killed
    world.server.delete(name)
    x = world.drivers["x"]
    claim: Write | None = None
    for _ in range(1200):
        world.time += 0.05
        for it in world.drivers.values():
            it.now += 0.05
            it.step()
            claim = claim or claim_of(it, name)
            it.answer()
            it.watch()
            it.step()
            claim = claim or claim_of(it, name)

        if claim is not None:
            break

    assert claim is not None
    owner = world.drivers[claim.lease.holder]
    owner.shows = False
    outcome, version, uid = world.server.write(claim)
    world.server.delete(name)
    put(world.server, Role.FENCE, index=index, flags=(Flag.CREATED,))
    owner.relist()
    owner.shows = True
    owner.member.answered(claim, outcome, owner.now, version=version, uid=uid)
    owner.step()
    assert not owner.member.owns(index, owner.now)
    assert x.member.deadline is not None
    world.run(60)
    assert world.owners(index)


@pytest.mark.parametrize("name", ["x1", "x3", "x6"])
def test_late_answer_prolongs_nothing_after_a_list(name: str) -> None:
    world = World()
    b = world.add("b", SLOW)
    world.add("y")
    world.run(40)
    x = world.add(name, FAST)
    world.run(5)
    world.after_a_renewal("b")
    index = world.range_of("b")
    world.run(0.45)
    world.server.delete(fence_name("sites", index))
    b.watch()
    b.step()
    create = fence_write(b)
    b.shows = False
    x.watch()
    outcome, version, uid = world.server.write(create)
    x.watch()
    world.server.delete(fence_name("sites", index))
    x.watch()
    while b.now < create.sent + 2.9:
        world.run(0.05)

    b.relist()  # it has the own renewal, and not the fence
    b.step()
    b.member.answered(create, outcome, b.now, version=version, uid=uid)
    b.step()
    world.cut.add("b")
    world.run(25)


def test_process_waits_for_an_earlier_one_of_its_identity_whose_lease_is_gone() -> None:
    world, b, _, index = pair()
    world.cut.add("b")
    b.shows = False
    world.server.delete(world.lease_of("b"))
    world.add("b again", identity="b")
    world.run(10)
    assert world.owners(index) == ["b"]
    world.run_until(lambda: world.owners(index) not in ([], ["b"]))


def test_process_joins_in_an_epoch_after_that_of_a_late_fence() -> None:
    world = World()
    b = world.add("b")
    world.add("x")
    world.run(40)
    world.cut.add("b")
    world.run(15)
    world.cut.clear()
    world.run(40)
    assert b.member.epoch == 2
    index = world.range_of("b")
    for name in list(world.server.leases):
        world.server.delete(name)

    b.watch()
    b.step()
    late = fence_write(b)
    del world.drivers["b"]  # killed
    new = world.add("b")
    new.step()
    world.server.write(late)
    world.run_until(lambda: bool(world.owners(index)))
    assert new.member.epoch == 3


def test_owner_clears_the_flag_of_a_fence_that_it_has_created_again() -> None:
    """With it, ranges would wait for 20 s after each list, such as after an outage."""
    world, _, _, index = pair()
    world.server.delete(fence_name("sites", index))
    world.run(1)
    assert world.server.leases[fence_name("sites", index)].flags == {Flag.CREATED}
    world.run(25)
    assert not world.server.leases[fence_name("sites", index)].flags
    assert world.owners(index) == ["b"]


def test_group_is_created_again_after_a_late_answer_about_a_deleted_one() -> None:
    world = World()
    a = world.add("a")
    while not (writes := [it for it in a.writes if it.lease.role is Role.GROUP]):
        a.answer()
        a.watch()
        a.now += 0.05
        a.step()

    a.writes.remove(writes[0])
    outcome, version, uid = world.server.write(writes[0])
    a.watch()
    world.server.delete("sites")
    a.watch()
    a.member.answered(writes[0], outcome, a.now, version=version, uid=uid)
    world.run(5)
    assert "sites" in world.server.leases


def test_creations_that_are_believed_give_a_range_to_two_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutants.trust_in_creations(monkeypatch)
    with pytest.raises(AssertionError, match=r"range . at"):
        test_member_is_not_taken_for_dead_by_a_creation_that_comes_late()

    with pytest.raises(AssertionError, match=r"range . at"):
        test_late_creation_by_an_owner_gives_its_range_to_no_newcomer()
