"""`Member`: what one replica does about one event. The driver plays server and watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import shard_mutants as mutants
from shard_driver import Driver, put
from shard_server import LeaseServer

from aioinformer.controller.shards.lease import Flag, Role, ShardLease, member_name
from aioinformer.controller.shards.member import (
    Cancel,
    Drain,
    MemberState,
    Outcome,
    RangeState,
    Start,
)
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

HELD, NONE = RangeState.HELD, RangeState.NONE


def own(driver: Driver) -> ShardLease:
    return driver.server.leases[member_name("sites", driver.member.identity)]


def state_of(driver: Driver) -> MemberState:
    return driver.member.state


def alone(**options: int) -> Driver:
    """Return a member that holds all ranges of a new group."""
    driver = Driver(LeaseServer(), **options)  # type: ignore[arg-type]
    driver.run(15)
    assert driver.member.held == frozenset(range(options.get("ranges", 2)))
    return driver


def renewing(
    driver: Driver, seconds: float, identity: str = "b", epoch: int = 1, *flags: Flag
) -> None:
    """Let time pass while another member renews its Lease."""
    for _ in range(round(seconds)):
        put(driver.server, Role.MEMBER, identity, epoch, flags=flags)
        driver.run(1)


# ---------------------------------------------------------------- joining


def test_member_is_live_once_the_watch_shows_its_lease() -> None:
    driver = Driver(LeaseServer())
    driver.shows = False
    driver.run(1)
    assert Flag.JOINING in own(driver).flags
    assert state_of(driver) is MemberState.JOINING  # the answer is not enough
    driver.shows = True
    driver.run(0.2)
    assert state_of(driver) is MemberState.LIVE
    driver.run(0.2)
    assert own(driver).flags == frozenset()


def test_sight_of_a_lease_that_was_sent_long_ago_makes_nobody_live() -> None:
    driver = Driver(LeaseServer())
    driver.shows = False
    driver.run(0.2)
    driver.answers = False
    driver.run(12)
    driver.watch()
    assert state_of(driver) is MemberState.JOINING


def test_first_start_does_not_wait_for_absent_fences() -> None:
    driver = Driver(LeaseServer(), ranges=64)
    driver.run(15)
    assert driver.member.held == frozenset(range(64))
    assert own(driver).flags == {Flag.OWNER}


def test_absent_fences_of_a_group_that_exists_are_waited_for() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    driver = Driver(server)
    driver.run(19)
    assert not driver.member.held
    driver.run(2)
    assert driver.member.held == {0, 1}


def test_creator_of_a_group_waits_for_fences_if_somebody_may_own_them() -> None:
    server = LeaseServer()
    put(server, Role.MEMBER, "b", 1, flags=(Flag.OWNER, Flag.LEAVING))
    driver = Driver(server)
    driver.run(19)
    assert not driver.member.held
    driver.run(2)
    assert driver.member.held == {0, 1}


def test_creator_of_a_group_waits_for_members_that_create_their_leases_again() -> None:
    driver = Driver(LeaseServer())
    driver.run(2)  # everything was deleted by hand before, and b has not renewed since
    renewing(driver, 15, "b", 4, Flag.OWNER)
    assert not driver.member.held


@pytest.mark.parametrize("role", [Role.GROUP, Role.MEMBER])
def test_member_with_another_number_of_ranges_does_not_join(role: Role) -> None:
    server = LeaseServer()
    put(server, role, "b", 1, ranges=4)
    driver = Driver(server)
    driver.run(3)
    assert "has 4 ranges by uid" in driver.member.refusal
    assert "this replica has 2 by uid" in driver.member.refusal
    assert state_of(driver) is MemberState.LEFT
    assert len(server.log) == 1


def test_live_member_ignores_a_newcomer_with_another_number_of_ranges() -> None:
    driver = alone()
    put(driver.server, Role.MEMBER, "b", 1, ranges=4)
    driver.run(30)
    assert not driver.member.refusal
    assert driver.member.held == {0, 1}


def test_live_member_replaces_a_record_of_the_group_that_nobody_else_has() -> None:
    driver = alone()
    put(driver.server, Role.GROUP, "script", 1, ranges=4)
    renewing(driver, 12)
    assert state_of(driver) is MemberState.LIVE
    assert driver.member.held
    assert driver.server.leases["sites"].ranges == 2


def test_live_member_leaves_a_group_whose_record_and_members_differ() -> None:
    driver = alone()
    put(driver.server, Role.GROUP, "b", 1, ranges=4)
    driver.run(1)
    assert not driver.member.refusal
    put(driver.server, Role.MEMBER, "b", 1, ranges=4)
    driver.run(20)
    assert "has 4 ranges by uid" in driver.member.refusal
    assert state_of(driver) is MemberState.LEFT
    assert driver.server.leases["sites"].ranges == 4


def test_member_waits_while_another_process_has_its_identity() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "a", 1)
    put(server, Role.MEMBER, "a", 1)
    driver = Driver(server)
    driver.run(15)
    renewing(driver, 15, "a")
    assert state_of(driver) is MemberState.JOINING
    assert "another process has the identity 'a'" in driver.member.reason
    driver.run(21)
    assert state_of(driver) is MemberState.LIVE
    assert driver.member.epoch == 2


def test_epoch_is_greater_than_that_of_every_fence_of_the_identity() -> None:
    server = LeaseServer()
    put(server, Role.FENCE, "a", 6, index=0)
    driver = Driver(server)
    driver.run(19)
    assert driver.member.epoch == 0  # its Lease was deleted, and it may still work
    driver.run(2)
    assert driver.member.epoch == 7


def test_member_without_identity_is_refused() -> None:
    with pytest.raises(OptionsError, match="identity"):
        Driver(LeaseServer(), "")


# ---------------------------------------------------------------- the deadline


def test_member_cancels_all_work_at_its_deadline() -> None:
    driver = alone()
    driver.shows = False
    deadline = driver.member.deadline
    assert deadline is not None
    driver.run(12)
    assert driver.told[-2:] == [Cancel(0), Cancel(1)]
    assert "showed no renewal" in driver.member.reason


def test_member_owns_nothing_after_a_pause_before_its_next_step() -> None:
    driver = alone()
    driver.now += 12
    assert not driver.member.owns(0, driver.now)


def test_late_sight_of_a_renewal_does_not_bring_back_lost_ranges() -> None:
    driver = alone()
    driver.shows = False
    driver.run(9)
    driver.now += 5  # the process stood still
    driver.watch()
    assert state_of(driver) is MemberState.LOST
    assert not driver.member.owns(0, driver.now)


def test_answered_renewals_alone_do_not_move_the_deadline() -> None:
    driver = alone()
    driver.shows = False
    before = driver.member.deadline
    driver.run(8)
    assert driver.member.deadline == before


def test_member_rejoins_after_its_work_has_ended_and_not_before() -> None:
    driver = alone()
    driver.idle = False
    driver.shows = False
    driver.run(12)
    writes = len(driver.server.log)
    driver.shows = True
    driver.run(30)
    assert state_of(driver) is MemberState.LOST
    assert len(driver.server.log) == writes  # nothing was written
    assert driver.fence(0) is not None

    for index in (0, 1):
        driver.member.ended(index, driver.now)

    driver.run(1.1)  # requests of the work may still arrive
    assert state_of(driver) is MemberState.LOST
    driver.run(4)
    assert driver.member.epoch == 2
    assert driver.member.held == {0, 1}


def test_expelled_member_cancels_all_work() -> None:
    driver = alone()
    put(driver.server, Role.MEMBER, "", driver.member.epoch, owner="a")
    driver.watch()
    driver.step()
    assert driver.told[-2:] == [Cancel(0), Cancel(1)]
    assert "it was expelled" in driver.member.reason


def test_deleted_own_lease_is_created_again_in_the_same_epoch() -> None:
    driver = alone()
    driver.server.delete(own(driver).name)
    driver.run(1)
    assert own(driver).epoch == 1
    assert driver.member.held == {0, 1}


def test_deleted_own_lease_is_created_again_although_the_watch_stalls() -> None:
    """A newcomer that sees neither Lease nor fences would take all ranges."""
    driver = alone()
    driver.shows = False
    for name in tuple(driver.server.leases):
        driver.server.delete(name)

    driver.run(4)
    assert own(driver).epoch == 1
    assert own(driver).flags == {Flag.OWNER}
    assert driver.member.held == {0, 1}


def test_creation_of_a_lease_that_was_not_deleted_waits_for_the_watch() -> None:
    driver = alone()
    driver.shows = False
    put(driver.server, Role.MEMBER, "", driver.member.epoch, owner="a")
    before = driver.server.requests
    driver.run(8)
    assert not own(driver).holder  # expelled, and not written over
    assert driver.server.requests - before <= 2 * 3  # an update and a creation each 3 s
    driver.shows = True
    driver.run(1)
    assert driver.told[-2:] == [Cancel(0), Cancel(1)]


def test_newcomer_waits_for_owners_that_fail_to_renew_once() -> None:
    driver = Driver(LeaseServer())
    driver.run(9)
    put(driver.server, Role.MEMBER, "b", 1, flags=(Flag.OWNER,))
    renewing(driver, 8, "b", 1, Flag.OWNER)
    assert not driver.member.held


# ---------------------------------------------------------------- taking ranges


def test_ranges_of_a_silent_member_are_free_once_it_is_expelled() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.MEMBER, "b", 3)
    put(server, Role.FENCE, "b", 3, index=0)
    driver = Driver(server)
    driver.run(19)
    assert driver.state(0) is NONE
    driver.run(2)
    b = server.leases[member_name("sites", "b")]
    assert (b.holder, b.epoch) == ("", 3)
    assert driver.state(0) is HELD


def test_member_that_renews_in_time_is_not_expelled() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.MEMBER, "b", 3)
    put(server, Role.FENCE, "b", 3, index=0)
    driver = Driver(server)
    driver.run(19)
    driver.shows = False
    put(server, Role.MEMBER, "b", 3)  # the write that expels it comes too late
    driver.run(2)
    driver.shows = True
    driver.run(1)
    assert server.leases[member_name("sites", "b")].holder == "b"
    assert driver.state(0) is NONE


def test_fence_of_a_newer_epoch_than_the_seen_one_is_not_free() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.MEMBER, "", 2, owner="b")
    put(server, Role.FENCE, "b", 3, index=0)
    put(server, Role.FENCE, "b", 2, index=1)
    driver = Driver(server)
    driver.run(19)
    assert driver.member.held == {1}  # the view may be older than the fence
    driver.run(3)  # it is not: somebody has written that by hand
    assert driver.member.held == {0, 1}
    assert server.leases[member_name("sites", "b")].epoch == 3


def test_owner_without_a_lease_is_waited_for() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.FENCE, "b", 3, index=0)
    driver = Driver(server)
    driver.run(19)
    assert driver.state(0) is NONE
    driver.run(3)
    assert driver.state(0) is HELD


def test_work_starts_with_the_answer_and_not_with_the_sight_of_the_fence() -> None:
    server = LeaseServer()
    for index in (0, 1):
        put(server, Role.FENCE, index=index)

    driver = Driver(server)
    driver.answers = False
    for _ in range(3):
        driver.run(0.1)
        driver.answer_own()

    assert driver.state(0) is RangeState.ACQUIRING
    for write in driver.writes:
        server.write(write)  # applied, and no answer arrives

    driver.run(1)
    assert not driver.started
    driver.answer(Outcome.NO_ANSWER)
    driver.run(2)
    assert not driver.started
    driver.answer()  # of the second attempt, on the version that was seen
    driver.step()
    assert sorted(driver.started) == [0, 1]


def test_conflict_is_tried_again_once_the_watch_shows_another_fence() -> None:
    server = LeaseServer()
    for index in (0, 1):
        put(server, Role.FENCE, index=index)

    driver = Driver(server)
    driver.answers = False
    for _ in range(3):
        driver.run(0.1)
        driver.answer_own()

    put(server, Role.FENCE, index=0)
    driver.shows = False
    driver.answer()
    for _ in range(20):
        driver.run(0.1)
        driver.answer_own()

    assert driver.state(0) is NONE
    assert driver.state(1) is HELD
    assert not driver.writes
    driver.watch()
    driver.step()
    assert [write.lease.index for write in driver.writes] == [0]


def test_member_that_cannot_write_fences_asks_for_none() -> None:
    server = LeaseServer()
    for index in (0, 1):
        put(server, Role.FENCE, index=index)

    driver = Driver(server)
    driver.answers = False
    for _ in range(140):
        driver.run(0.1)
        driver.answer_own()
        driver.answer(Outcome.NO_ANSWER)  # 403, for example

    assert Flag.INELIGIBLE in own(driver).flags


def test_member_that_works_keeps_its_ranges_if_one_cannot_be_taken() -> None:
    driver = alone()
    driver.server.refused.add("sites-range-01")
    driver.server.delete("sites-range-01")
    driver.run(120)
    assert driver.member.held == {0}
    assert set(driver.member.unowned) == {1}
    assert own(driver).flags == {Flag.OWNER}
    driver.server.refused.clear()
    driver.run(12.5)  # the longest pause between two attempts
    assert driver.member.held == {0, 1}


def test_fence_of_this_member_that_it_does_not_want_is_given_up() -> None:
    driver = alone()
    renewing(driver, 12)  # b gets one of the two ranges
    (index,) = {0, 1} - driver.member.held
    put(driver.server, Role.FENCE, "a", 1, index=index)  # a late, unanswered write
    renewing(driver, 1)
    fence = driver.fence(index)
    assert fence is not None
    assert not fence.holder


# ---------------------------------------------------------------- giving ranges


def test_range_is_drained_before_it_is_released() -> None:
    driver = alone()
    driver.idle = False
    renewing(driver, 5)
    (drained,) = [each.index for each in driver.told if isinstance(each, Drain)]
    fence = driver.fence(drained)
    assert fence is not None
    assert fence.holder == "a"
    driver.member.ended(drained, driver.now)
    renewing(driver, 1)
    fence = driver.fence(drained)
    assert fence is not None
    assert not fence.holder


def test_new_owner_must_be_visible_before_a_range_is_drained_for_it() -> None:
    driver = alone()
    renewing(driver, 2)
    assert not any(isinstance(each, Drain) for each in driver.told)
    renewing(driver, 2)
    assert any(isinstance(each, Drain) for each in driver.told)


def test_drain_is_bounded_and_released_when_nothing_can_arrive_any_more() -> None:
    driver = alone()
    driver.idle = False
    renewing(driver, 4)
    (drained,) = [each.index for each in driver.told if isinstance(each, Drain)]
    renewing(driver, 6)
    assert Cancel(drained) not in driver.told
    renewing(driver, 2)
    assert Cancel(drained) in driver.told
    renewing(driver, 3)
    assert driver.state(drained) is RangeState.DRAINING
    driver.member.ended(drained, driver.now)
    driver.run(1)
    assert driver.state(drained) is RangeState.DRAINING
    driver.run(0.5)
    assert driver.state(drained) is NONE


def test_drained_range_that_is_wanted_again_starts_again() -> None:
    driver = alone()
    driver.idle = False
    renewing(driver, 4)
    (drained,) = [each.index for each in driver.told if isinstance(each, Drain)]
    put(driver.server, Role.MEMBER, "b", 1, flags=(Flag.LEAVING,))
    driver.run(0.3)
    assert driver.state(drained) is HELD
    assert driver.told[-1] == Start(drained)


def test_released_range_that_is_wanted_again_starts_with_an_answer_only() -> None:
    """A release without an answer may still arrive."""
    driver = alone()
    driver.idle = False
    renewing(driver, 4)
    (drained,) = [each.index for each in driver.told if isinstance(each, Drain)]
    driver.answers = False
    driver.member.ended(drained, driver.now)
    driver.step()
    driver.answer_own()
    (release,) = driver.writes
    driver.writes = []
    driver.member.answered(release, Outcome.NO_ANSWER, driver.now)
    starts = len(driver.started)
    put(driver.server, Role.MEMBER, "b", 1, flags=(Flag.LEAVING,))
    put(driver.server, Role.FENCE, "a", 1, index=drained)  # the fence is shown as own
    for _ in range(20):
        driver.run(0.1)
        driver.answer_own()

    assert len(driver.started) == starts  # no resume on sight
    (acquire,) = driver.writes
    assert (acquire.lease.holder, acquire.lease.epoch) == ("a", 1)
    assert driver.server.write(release)[0] is Outcome.CONFLICT
    driver.answer()
    driver.step()
    assert driver.told[-1] == Start(drained)


def test_leaving_member_gives_up_its_ranges_and_deletes_its_lease() -> None:
    driver = alone()
    driver.idle = False
    name = own(driver).name
    driver.member.leave(driver.now)
    driver.run(1)
    assert Flag.LEAVING in own(driver).flags
    assert state_of(driver) is MemberState.LEAVING
    for index in (0, 1):
        driver.member.ended(index, driver.now)

    driver.run(1)
    assert state_of(driver) is MemberState.LEFT
    assert name not in driver.server.leases
    assert all(fence and not fence.holder for fence in map(driver.fence, (0, 1)))


def test_leaving_member_that_loses_its_lease_leaves_when_its_work_has_ended() -> None:
    driver = alone()
    driver.idle = False
    driver.member.leave(driver.now)
    driver.shows = False
    driver.run(12)
    assert state_of(driver) is MemberState.LOST
    driver.shows = True
    for index in (0, 1):
        driver.member.ended(index, driver.now)

    driver.run(3)
    assert state_of(driver) is MemberState.LEFT
    assert not own(driver).holder  # others need not wait


# ---------------------------------------------------------------- fences


def test_fence_of_another_member_cancels_the_work() -> None:
    driver = alone()
    put(driver.server, Role.FENCE, "b", 1, index=1)
    driver.watch()
    driver.step()
    assert driver.told[-1] == Cancel(1)
    assert driver.state(0) is HELD


def test_deleted_fence_is_created_again_while_work_goes_on() -> None:
    driver = alone()
    driver.server.delete("sites-range-01")
    driver.run(1)
    fence = driver.fence(1)
    assert fence is not None
    assert fence.holder == "a"
    assert not any(isinstance(each, Cancel) for each in driver.told)
    driver.run(30)
    assert driver.member.held == {0, 1}
    fence = driver.fence(1)
    assert fence is not None
    assert not fence.flags
    assert fence.moves == 1  # the range has not moved since


def test_group_lease_that_is_deleted_before_a_list_is_created_again() -> None:
    driver = Driver(LeaseServer())
    while state_of(driver) is not MemberState.LIVE:
        driver.run(0.1)

    driver.shows = False
    driver.run(0.5)
    assert "sites" in driver.server.leases
    driver.server.delete("sites")  # the watch has not shown that it was there
    driver.relist()
    driver.shows = True
    driver.run(15)
    assert "sites" in driver.server.leases
    assert driver.member.held == {0, 1}


@pytest.mark.parametrize("lost", [False, True])
def test_range_whose_fence_a_list_does_not_show_is_taken_again(lost: bool) -> None:
    driver = alone()
    driver.shows = False
    driver.server.delete("sites-range-01")
    driver.watch()
    driver.run(0.2)
    assert driver.fence(1) is not None  # created again, and answered
    driver.server.delete("sites-range-01")
    driver.relist()
    if lost:
        driver.run(15)
        assert state_of(driver) is MemberState.JOINING

    driver.shows = True
    driver.run(5)
    assert Cancel(1) in driver.told[-3:]  # the watch has shown that it is not there
    driver.run(60)
    assert driver.member.held == {0, 1}


def test_created_fence_that_a_list_does_not_show_is_created_again() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b")  # not a new group
    put(server, Role.FENCE, index=0)
    driver = Driver(server)
    while True:
        driver.now += 0.1
        driver.step()
        driver.answer()
        if driver.fence(1) is not None:
            break

        driver.watch()

    driver.server.delete("sites-range-01")
    driver.relist()
    driver.shows = True
    driver.run(60)
    assert driver.member.held == {0, 1}


def alone_without_a_fence() -> tuple[Driver, float]:
    """Return a member whose fence was deleted and is not answered, and its deadline."""
    driver = alone()
    driver.answers = False
    driver.server.delete("sites-range-01")
    driver.watch()
    deadline = driver.member.deadline
    assert deadline is not None
    return driver, deadline


def test_range_whose_deleted_fence_cannot_be_created_ends_at_its_old_deadline() -> None:
    driver, deadline = alone_without_a_fence()
    while driver.now < deadline - 0.2:
        driver.run(0.1)
        driver.answer_own()
        driver.answer(Outcome.NO_ANSWER)

    assert driver.member.owns(1, driver.now)
    for _ in range(5):
        driver.run(0.1)
        driver.answer_own()
        driver.answer(Outcome.NO_ANSWER)

    assert driver.member.owns(0, driver.now)  # renewals were shown meanwhile
    assert not driver.member.owns(1, driver.now)
    assert driver.told[-1] == Cancel(1)


@pytest.mark.parametrize("news", ["answer", "sight"])
def test_fence_that_is_created_after_the_old_deadline_starts_the_range_anew(
    news: str,
) -> None:
    driver, deadline = alone_without_a_fence()
    while driver.now < deadline - 0.2:
        driver.run(0.1)
        driver.answer_own()

    (write,) = driver.writes
    driver.now = deadline + 0.01  # before the next step
    outcome, version, uid = driver.server.write(write)
    if news == "answer":
        driver.member.answered(write, outcome, driver.now, version=version, uid=uid)
    else:
        driver.watch()

    assert not driver.member.owns(1, driver.now)
    driver.answers = True
    driver.run(5)
    assert driver.member.owns(1, driver.now)
    assert driver.told[-2:] == [Cancel(1), Start(1)]


def test_deletion_that_only_a_list_shows_ends_the_work() -> None:
    driver = alone()
    driver.member.lease_gone("sites-range-01", driver.now, missed=True)
    driver.step()
    assert driver.told[-1] == Cancel(1)


def test_fence_that_a_list_skips_ends_the_work() -> None:
    server = LeaseServer()
    for index in (0, 1):
        put(server, Role.FENCE, index=index)

    driver = Driver(server)
    driver.run(0.1)
    driver.shows = False
    driver.run(0.1)
    assert driver.member.held == {0, 1}
    driver.run(4)
    driver.member.lease_seen(
        own(driver), driver.now
    )  # newer than the fences, and alone
    driver.step()
    assert driver.told[-2:] == [Cancel(0), Cancel(1)]


def test_late_answer_about_a_fence_that_was_deleted_does_not_last() -> None:
    server = LeaseServer()
    for index in (0, 1):
        put(server, Role.FENCE, index=index)

    driver = Driver(server)
    driver.answers = False
    for _ in range(3):
        driver.run(0.1)
        driver.answer_own()

    answers = [(write, server.write(write)) for write in driver.writes]
    driver.writes = []
    driver.watch()
    server.delete("sites-range-00")
    driver.watch()
    for write, (outcome, version, uid) in answers:
        driver.member.answered(write, outcome, driver.now, version=version, uid=uid)

    driver.answers = True
    driver.run(5)
    assert driver.told == [Start(1)]
    driver.run(25)
    assert driver.member.held == {0, 1}


def test_deleted_leases_are_all_created_again_while_work_goes_on() -> None:
    driver = alone(ranges=8)
    names = sorted(driver.server.leases)
    for name in names:
        driver.server.delete(name)

    driver.run(30)
    assert sorted(driver.server.leases) == names
    assert not any(isinstance(each, Cancel) for each in driver.told)


def test_absent_fence_is_created_as_free_and_taken_once_the_watch_shows_it() -> None:
    """Its creation may replace one of which nobody knew that it was deleted again."""
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1, ranges=1)
    driver = Driver(server, ranges=1)
    driver.run(19.9)
    driver.shows = False
    driver.run(1)
    fence = driver.fence(0)
    assert fence is not None
    assert not fence.holder
    assert fence.flags == {Flag.CREATED}
    driver.run(3)
    assert driver.fence(0) is fence
    driver.shows = True
    driver.run(0.3)
    fence = driver.fence(0)
    assert fence is not None
    assert (fence.holder, fence.flags) == ("a", frozenset())
    assert driver.started == [0]


def after_a_lost_fence() -> Driver:
    """Return a member that has seen fences of b deleted, and one created again."""
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    for index in (0, 1):
        put(server, Role.FENCE, "b", 1, index=index)

    driver = Driver(server)
    renewing(driver, 3)
    put(server, Role.MEMBER, "b", 1, flags=(Flag.LEAVING,))
    for index in (0, 1):
        server.delete(f"sites-range-0{index}")

    return driver


def test_fence_that_another_member_has_created_is_not_used_while_its_owner_may_work() -> (
    None
):
    driver = after_a_lost_fence()
    put(driver.server, Role.FENCE, index=0, flags=(Flag.CREATED,))
    renewing(driver, 19, "b", 1, Flag.LEAVING)
    assert not driver.member.held
    renewing(driver, 2, "b", 1, Flag.LEAVING)
    assert driver.member.held == {0, 1}


def test_fence_that_its_owner_has_created_again_is_taken_once_it_is_free() -> None:
    driver = after_a_lost_fence()
    put(driver.server, Role.FENCE, "b", 1, index=0)
    renewing(driver, 2, "b", 1, Flag.LEAVING)
    put(driver.server, Role.FENCE, index=0)
    renewing(driver, 2, "b", 1, Flag.LEAVING)
    assert driver.member.held == {0}


def test_fence_that_its_owner_creates_late_is_not_used_while_another_may_work() -> None:
    driver = alone(ranges=1)
    put(driver.server, Role.FENCE, "b", 1, index=0, ranges=1)
    driver.run(2)
    driver.server.delete("sites-range-00")
    driver.watch()
    put(
        driver.server, Role.FENCE, "a", 1, index=0, ranges=1
    )  # it was under way since before
    driver.run(18)
    assert not driver.member.held
    driver.run(3)
    assert driver.member.held == {0}


def test_newcomer_does_not_use_a_created_fence_that_may_have_had_an_owner() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.FENCE, index=0, flags=(Flag.CREATED,))
    put(server, Role.FENCE, index=1)
    driver = Driver(server)
    driver.run(19)
    assert driver.member.held == {1}
    driver.run(2)
    assert driver.member.held == {0, 1}


def test_list_that_skips_a_deletion_does_not_hide_the_last_owner() -> None:
    driver = after_a_lost_fence()
    driver.shows = False
    put(driver.server, Role.FENCE, index=0, flags=(Flag.CREATED,))
    for lease in driver.server.leases.values():
        driver.member.lease_seen(lease, driver.now)

    driver.member.synced(driver.now)
    driver.shows = True
    renewing(driver, 19, "b", 1, Flag.LEAVING)
    assert not driver.member.held
    renewing(driver, 2, "b", 1, Flag.LEAVING)
    assert driver.member.held == {0, 1}


def test_deletions_are_not_repeated_before_the_watch_can_show_them() -> None:
    driver = alone()
    name = member_name("sites", "b")
    put(driver.server, Role.MEMBER, "", 1, owner="b", flags=(Flag.OWNER,))
    driver.run(199)
    assert name in driver.server.leases
    before = driver.server.requests
    driver.shows = False
    driver.run(6, step=0.01)
    assert name not in driver.server.leases
    assert driver.server.requests - before <= 2 + 2  # renewals, deletions


def test_lease_of_an_expelled_member_is_deleted_in_the_end() -> None:
    driver = alone()
    name = member_name("sites", "b")
    put(driver.server, Role.MEMBER, "b", 1)
    driver.run(190)
    assert name in driver.server.leases
    driver.run(60)
    assert name not in driver.server.leases


# ---------------------------------------------------------------- views


def test_views_say_who_owns_what() -> None:
    server = LeaseServer()
    put(server, Role.GROUP, "b", 1)
    put(server, Role.MEMBER, "b", 3)
    put(server, Role.FENCE, "b", 3, index=0)
    put(server, Role.FENCE, index=1)
    driver = Driver(server)
    driver.run(1)
    member = driver.member
    assert member.owners == ("b", "a")
    assert member.wanted == {1}
    assert member.eligible == ("a", "b")
    assert member.unowned == {}
    renewing(driver, 1, epoch=3)
    silent = driver.now
    driver.run(18)
    put(driver.server, Role.MEMBER, "", 3, owner="b")
    driver.answers = False
    driver.run(0.1)
    assert member.owners == ("", "a")
    assert member.unowned[0] > silent


# ---------------------------------------------------------------- rules removed


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (
            mutants.resume_on_sight,
            test_released_range_that_is_wanted_again_starts_with_an_answer_only,
        ),
        (
            mutants.rejoin_before_work_has_ended,
            test_member_rejoins_after_its_work_has_ended_and_not_before,
        ),
        (
            mutants.dead_if_the_epoch_differs,
            test_fence_of_a_newer_epoch_than_the_seen_one_is_not_free,
        ),
        (mutants.no_expel, test_member_that_renews_in_time_is_not_expelled),
        (mutants.no_echo, test_answered_renewals_alone_do_not_move_the_deadline),
        (
            mutants.trust_in_creations,
            test_fence_that_another_member_has_created_is_not_used_while_its_owner_may_work,
        ),
        (
            mutants.trust_in_creations,
            test_newcomer_does_not_use_a_created_fence_that_may_have_had_an_owner,
        ),
    ],
)
def test_directed_test_finds_a_missing_rule(
    mutant: Callable[[pytest.MonkeyPatch], None],
    test: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test()
