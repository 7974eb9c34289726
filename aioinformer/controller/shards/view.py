"""View of a shard group by one member, and the decisions that follow from it.

Records come from one ordered watch, so they are always judged by a view of the same age.
Answers to own writes are ahead of it: they say what the next write replaces, and no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer.controller.shards.assignment import score
from aioinformer.controller.shards.lease import (
    Flag,
    Role,
    ShardLease,
    fence_name,
    member_name,
)
from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["GroupView", "SeenMember"]

_RANK_PAUSE: Final = 0.2
"""Seconds between the members that would all write the same."""

_RANKS: Final = 5
"""Number of members that do not wait for each other longer than the last of them."""


@dataclass(slots=True)
class SeenMember:
    """Lease of a member, and since when it is as it is by the local clock."""

    lease: ShardLease
    changed: float
    joining: float | None = None


class GroupView:
    """Leases of a shard group, as one member has seen them.

    Attributes:
        synced: True once the first list is complete.
        group: Lease of the group, or None.
        members: Leases of members by name.
        fences: Fence of each range, or None.
        since: Time of the last list. Every change after it is shown.
        wait: Time after which a member without a renewal has ended: the longest
            `lease_duration` that the Leases have.
        absent: Time since which each fence is missing.
        seen_fence: True once any fence was seen.
        written: Answered own writes that the watch has not shown, by name.

    Args:
        timing: Durations of the group.
        ranges: Number of ranges.
    """

    def __init__(self, group: str, timing: ShardTiming, ranges: int) -> None:
        self.synced: bool = False
        self.group: ShardLease | None = None
        self.members: dict[str, SeenMember] = {}
        self.fences: list[ShardLease | None] = [None] * ranges
        self.since: float = 0.0
        self.wait: float = timing.lease_duration
        self.absent: list[float] = [0.0] * ranges
        self.seen_fence: bool = False
        self.written: dict[str, ShardLease] = {}
        self._group_name = group
        self._timing = timing
        self._ranges = ranges
        # Owner of each range whose fence was deleted, and when, until another has it.
        self._last_owners: dict[int, tuple[ShardLease, float]] = {}
        # Times at which Leases of members were deleted, if that is not long ago.
        self._members_gone: dict[str, float] = {}
        # Members that a fence names and that have no Lease, by the name of it.
        self._unknown: dict[str, float] = {}

    # ------------------------------------------------------------ changes

    def listed(self, now: float, working: Collection[int] = ()) -> None:
        """Record that a list is complete: what it did not show is absent.

        Args:
            now: Current time.
            working: Ranges in work. What is known of their fences by an answer alone
                stays, as the watch shows soon whether it is so.
        """
        self.synced = True
        self.since = now
        members = [it.lease for it in self.members.values()]
        leases = [*members, *filter(None, self.fences)]
        self.wait = max([self._timing.lease_duration, *(it.seconds for it in leases)])
        self.absent = [now] * self._ranges
        self._unknown.clear()
        self.written = {
            name: it
            for name, it in self.written.items()
            if it.role is Role.MEMBER
            or it.index in working
            or self.shown(it) is not None
        }

    def see(self, lease: ShardLease, now: float) -> None:
        """Record a Lease."""
        self.wait = max(self.wait, lease.seconds)
        if lease.role is Role.FENCE:
            self._see_fence(lease, now)

        written = self.written.get(lease.name)
        if written is not None and not self.is_newer(written, lease):
            del self.written[lease.name]

        if lease.role is Role.GROUP:
            self.group = lease
        elif lease.role is Role.MEMBER:
            before = self.members.get(lease.name)
            joining = None
            if Flag.JOINING in lease.flags:
                joining = now
                if before is not None and before.joining is not None:
                    joining = before.joining

            self.members[lease.name] = SeenMember(lease, now, joining)
            self._unknown.pop(lease.name, None)

    def _see_fence(self, lease: ShardLease, now: float) -> None:
        before = self.fences[lease.index]
        if before is not None and before.uid != lease.uid:  # a list skips deletions
            self._fence_gone(lease.index, now)
            before = None

        last = self._last_owners.get(lease.index)
        if last is not None and lease.holder:
            # An update was made on what was seen, after the wait for the last owner. A
            # creation proves that only if it is by that owner.
            owner = last[0]
            same = (owner.holder, owner.epoch) == (lease.holder, lease.epoch)
            if same or before is not None:
                del self._last_owners[lease.index]

        self.fences[lease.index] = lease
        self.seen_fence = True

    def _fence_gone(self, index: int, now: float) -> None:
        last = self.fence(index)
        if last is not None and last.holder:
            self._last_owners[index] = last, now

        self.fences[index] = None
        self.absent[index] = now

    def wrote(self, lease: ShardLease) -> None:
        """Record the answer to an own write, unless the watch was faster."""
        shown = self.shown(lease)
        if shown is None or self.is_newer(lease, shown):
            self.written[lease.name] = lease

    def refused(self, lease: ShardLease) -> None:
        """Record a conflict: what an earlier answer said is no longer so."""
        written = self.written.get(lease.name)
        if written is not None and written.version == lease.version:
            del self.written[lease.name]

    def not_shown(self, index: int) -> None:
        """Record that a list has skipped the deletion of a fence."""
        self.written.pop(fence_name(self._group_name, index), None)

    def forget(self, name: str, now: float) -> int | None:
        """Record that a Lease was deleted, and return the index of a fence."""
        found = None
        for index, fence in enumerate(self.fences):
            if fence is not None and fence.name == name:
                self._fence_gone(index, now)
                found = index
                break

        self.written.pop(name, None)
        if self.group is not None and self.group.name == name:
            self.group = None

        member = self.members.pop(name, None)
        if member is not None and member.lease.holder:
            gone, old = self._members_gone, now - self.wait
            self._members_gone = {it: at for it, at in gone.items() if at > old}
            self._members_gone[name] = now

        return found

    def excuse(self, now: float, grace: float) -> None:
        """Count the silence of others at most up to `grace` seconds before its limit.

        A member that was cut off cannot know whether others were cut off too.
        """
        for seen in self.members.values():
            wait = self.silent_at(seen) - seen.changed
            seen.changed = max(seen.changed, now - wait + grace)

    # ------------------------------------------------------------ Leases

    @staticmethod
    def is_newer(one: ShardLease, other: ShardLease) -> bool:
        """Return True if a Lease has a later version than another state of it."""
        return version_number(one.version) > version_number(other.version)

    def shown(self, lease: ShardLease) -> ShardLease | None:
        """Return what the watch has shown of a Lease."""
        if lease.role is Role.GROUP:
            return self.group

        if lease.role is Role.FENCE:
            return self.fences[lease.index]

        seen = self.members.get(lease.name)
        return None if seen is None else seen.lease

    def fence(self, index: int) -> ShardLease | None:
        """Return the newest known fence of a range."""
        return self.written.get(fence_name(self._group_name, index), self.fences[index])

    def holders(self) -> list[str]:
        """Return who holds each range by the newest known fences; empty for nobody."""
        holders = ["" if fence is None else fence.holder for fence in self.fences]
        for lease in self.written.values():
            if lease.role is Role.FENCE:
                holders[lease.index] = lease.holder

        return holders

    def member(self, identity: str) -> ShardLease | None:
        """Return the newest known Lease of a member."""
        name = member_name(self._group_name, identity)
        seen = self.members.get(name)
        return self.written.get(name, seen.lease if seen else None)

    # ------------------------------------------------------------ decisions

    def dead_at(self, identity: str, epoch: int) -> float:
        """Return the time from which a member in this epoch can never work again.

        It is infinite for a member that may. An older epoch than that of the fence means
        that this view is old.
        """
        name = member_name(self._group_name, identity)
        seen = self.members.get(name)
        if seen is None or seen.lease.epoch < epoch:
            return math.inf

        lease = seen.lease
        if lease.epoch > epoch:
            return -math.inf

        if lease.holder:
            return math.inf

        return self._proved_at(lease, self._members_gone.get(name, -math.inf))

    def _proved_at(self, lease: ShardLease, gone: float) -> float:
        """Return the time from which a Lease without a holder proves that nobody works.

        The creation of a Lease cannot tell "still absent" from "absent again". It may have
        been under way for long. Who worked meanwhile, and whose Lease was deleted again,
        has perhaps seen neither that nor the new Lease.

        Args:
            lease: Lease that the watch has shown.
            gone: Time at which the watch has shown the deletion of an earlier one.
        """
        if Flag.CREATED not in lease.flags:
            return -math.inf

        return max(gone, self.since) + self.wait

    def free_at(self, index: int, me: str, epoch: int) -> float:
        """Return the time from which a member may write the fence of a range.

        It may create an absent one as free, and make an existing one its own. What the
        watch has not shown may be a creation: see `_proved_at`.

        Args:
            index: Number of the range.
            me: Identity of the member.
            epoch: Its epoch.

        Returns:
            Time; infinite while there is an owner, or until the watch shows the fence.
        """
        fence = self.fence(index)
        if fence is None:
            return self.absent[index] + self.wait

        if Flag.CREATED in fence.flags and fence is not self.fences[index]:
            return math.inf

        at = self._proved_at(fence, -math.inf)
        if fence.holder and (fence.holder, fence.epoch) != (me, epoch):
            at = max(at, self.dead_at(fence.holder, fence.epoch))

        if (last := self._last_owners.get(index)) is not None:
            owner, gone = last
            at = max(at, min(gone + self.wait, self.dead_at(owner.holder, owner.epoch)))

        return at

    def silent_at(self, seen: SeenMember) -> float:
        """Return the time from which a member may be expelled.

        Its own `lease_duration` counts if that is longer: it works for so long.
        """
        return seen.changed + max(self._timing.lease_duration, seen.lease.seconds)

    def is_eligible(self, seen: SeenMember, now: float) -> bool:
        """Return True if a member may be given ranges."""
        lease = seen.lease
        if (
            not lease.holder
            or Flag.LEAVING in lease.flags
            or now >= self.silent_at(seen)
        ):
            return False

        return seen.joining is None or now < seen.joining + self._timing.joining

    def eligible(self, now: float, but: str) -> tuple[list[str], list[str]]:
        """Return the other members that may be given ranges, and those that cannot take any."""
        able: list[str] = []
        unable: list[str] = []
        for seen in self.members.values():
            lease = seen.lease
            if lease.holder != but and self.is_eligible(seen, now):
                (unable if Flag.INELIGIBLE in lease.flags else able).append(
                    lease.holder
                )

        return able, unable

    def is_joining(self, identity: str) -> bool:
        """Return True if a member cannot take ranges yet."""
        seen = self.members.get(member_name(self._group_name, identity))
        return seen is None or seen.joining is not None

    def owners(self, now: float) -> list[str]:
        """Return the owner of each range, which renews its Lease; empty for none."""
        alive = {
            (seen.lease.holder, seen.lease.epoch)
            for seen in self.members.values()
            if now < self.silent_at(seen)
        }
        return [
            fence.holder if fence and (fence.holder, fence.epoch) in alive else ""
            for fence in self.fences
        ]

    def is_new(self) -> bool:
        """Return True if nobody can have worked in this group."""
        return not self.seen_fence and not any(
            Flag.OWNER in seen.lease.flags for seen in self.members.values()
        )

    def newest_epoch(self, identity: str) -> int:
        """Return the highest epoch of a member in any Lease; 0 for none."""
        lease = self.member(identity)
        epochs = [
            fence.epoch for fence in self.fences if fence and fence.holder == identity
        ]
        return max(epochs, default=0) if lease is None else max([*epochs, lease.epoch])

    def unknown(self, now: float) -> dict[str, tuple[ShardLease, float]]:
        """Return fences whose owner has no Lease, and since when that is so.

        An expelled member of an older epoch counts as without one: somebody has written
        that by hand.
        """
        found: dict[str, tuple[ShardLease, float]] = {}
        for fence in self.fences:
            if fence is None or not fence.holder:
                continue

            name = member_name(self._group_name, fence.holder)
            seen = self.members.get(name)
            if seen is not None and (
                seen.lease.holder or seen.lease.epoch >= fence.epoch
            ):
                continue

            since = self._unknown.setdefault(name, now)
            if name not in found or found[name][0].epoch < fence.epoch:
                found[name] = fence, since

        for name in self._unknown.keys() - found.keys():
            del self._unknown[name]

        return found

    def abandoned(self, now: float, me: str, rank: list[str]) -> list[ShardLease]:
        """Return Leases of expelled members that nobody needs any more."""
        found = []
        named = {
            member_name(self._group_name, fence.holder)
            for fence in self.fences
            if fence is not None and fence.holder
        }
        for name, seen in self.members.items():
            if seen.lease.holder or name in named:
                continue

            at = seen.changed + 10 * self.wait
            if now >= at + self.pause(name, me, rank):
                found.append(seen.lease)

        return found

    def pause(self, subject: str, me: str, rank: list[str]) -> float:
        """Return how long a member waits for others that would write the same."""
        mine = score(f"{subject}/{me}", -2)
        before = sum(score(f"{subject}/{other}", -2) > mine for other in rank)
        return _RANK_PAUSE * min(before, _RANKS)
