"""Rules of shard groups, removed one by one: each function patches one of them."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shard_replica import Replica
from shard_server import LeaseServer

from aioinformer.controller.shards.lease import member_name
from aioinformer.controller.shards.member import Member, Outcome, RangeState
from aioinformer.controller.shards.own_lease import OwnLease
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.controller.shards.upkeep import Upkeep
from aioinformer.controller.shards.view import GroupView

if TYPE_CHECKING:
    import pytest

    from aioinformer.controller.shards.view import SeenMember


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Work on what the assignment says."""

    def claim(self: Member, index: int, now: float, *_: object, **__: object) -> bool:
        if (
            self.states[index] is RangeState.NONE
            and self._wanted[index] == self.identity
        ):
            self._hold(index)

        return False

    patch.setattr(Member, "_claim", claim)
    patch.setattr(GroupView, "free_at", lambda *_: -math.inf)


def no_creation_at_once(patch: pytest.MonkeyPatch) -> None:
    """Wait for the watch to show that the own Lease was deleted."""
    patch.setattr(OwnLease, "base", lambda _, known: known)


def early_decision(patch: pytest.MonkeyPatch) -> None:
    """Give owners one attempt to create their deleted Leases."""
    patch.setattr(ShardTiming, "unseen", 4.0)


def no_drain(patch: pytest.MonkeyPatch) -> None:
    """Release a range while it is in work."""
    real = Member._plan_held

    def plan(self: Member, index: int, part: Any, wanted: bool, now: float) -> None:
        real(self, index, part, wanted, now)
        if part.state is RangeState.DRAINING:
            part.state = RangeState.RELEASING

    patch.setattr(Member, "_plan_held", plan)


def wall_clocks(patch: pytest.MonkeyPatch) -> None:
    """Compare `renewTime` with the own clock."""
    real = Replica.drive

    def drive(self: Replica) -> None:
        self.member._view.wall = self.wall, self.local  # type: ignore[attr-defined]
        real(self)

    def silent_at(self: GroupView, seen: SeenMember) -> float:
        wall, local = self.wall  # type: ignore[attr-defined]
        try:
            renewed = datetime.fromisoformat(seen.lease.renewed)
        except ValueError:
            return seen.changed
        age: float = (wall() - renewed).total_seconds()
        return local() - age + self._timing.lease_duration  # type: ignore[no-any-return]

    patch.setattr(Replica, "drive", drive)
    patch.setattr(GroupView, "silent_at", silent_at)


def no_deadline(patch: pytest.MonkeyPatch) -> None:
    """Work until another owner is seen."""
    patch.setattr(
        OwnLease, "deadline", property(lambda self: self.echo and self.echo + 1e9)
    )


def no_echo(patch: pytest.MonkeyPatch) -> None:
    """Count the deadline from the newest answered renewal."""
    real = Member._own_answered

    def answered(self: Member, write: Any, outcome: Outcome, now: float) -> None:
        real(self, write, outcome, now)
        if outcome is Outcome.OK and self._own.echo is not None and write.lease.holder:
            self._own.echo = max(self._own.echo, write.sent)

    patch.setattr(Member, "_own_answered", answered)


def no_expel(patch: pytest.MonkeyPatch) -> None:
    """Take the ranges of a silent member without a write to its Lease."""
    real = GroupView.dead_at

    def dead_at(self: GroupView, identity: str, epoch: int) -> float:
        seen = self.members.get(member_name("sites", identity))
        silent = math.inf if seen is None else self.silent_at(seen)
        return min(silent, real(self, identity, epoch))

    patch.setattr(GroupView, "dead_at", dead_at)
    patch.setattr(Upkeep, "_end_silent", lambda self, now, *_: now + 1)


def resume_on_sight(patch: pytest.MonkeyPatch) -> None:
    """Work on a range whose fence is shown as one's own."""
    real = Member._fence_seen

    def seen(self: Member, lease: Any, now: float) -> None:
        real(self, lease, now)
        state = self.states[lease.index]
        idle = state in (RangeState.NONE, RangeState.RELEASING)
        if idle and self.deadline is not None and self._own.is_mine(lease):
            self._hold(lease.index)

    patch.setattr(Member, "_fence_seen", seen)


def rejoin_before_work_has_ended(patch: pytest.MonkeyPatch) -> None:
    """Join in a new epoch while work of the old one goes on."""
    patch.setattr(Member, "_has_ended", lambda _: True)


def fence_without_version(patch: pytest.MonkeyPatch) -> None:
    """Write fences whatever their version."""
    real = LeaseServer.__init__

    def init(self: LeaseServer) -> None:
        real(self)
        self.checks_versions = False

    patch.setattr(LeaseServer, "__init__", init)


def no_pause_check(patch: pytest.MonkeyPatch) -> None:
    """Go on after a pause without a look at the clock."""
    patch.setattr(Member, "owns", lambda self, index, _: self._ranges[index].works)


def dead_if_the_epoch_differs(patch: pytest.MonkeyPatch) -> None:
    """Take a fence of a newer epoch than the seen one."""

    def dead_at(self: GroupView, identity: str, epoch: int) -> float:
        seen = self.members.get(member_name("sites", identity))
        if seen is None or (seen.lease.epoch == epoch and seen.lease.holder):
            return math.inf

        return -math.inf

    patch.setattr(GroupView, "dead_at", dead_at)


def trust_in_creations(patch: pytest.MonkeyPatch) -> None:
    """Believe that nobody has worked since a Lease was missing that was created."""
    patch.setattr(GroupView, "_proved_at", lambda *_: -math.inf)
    patch.setattr(GroupView, "_fence_gone", _fence_gone)


def _fence_gone(self: GroupView, index: int, now: float) -> None:
    self.fences[index] = None
    self.absent[index] = now
