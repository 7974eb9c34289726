"""Leases that no member calls its own: that of the group, and those of dead members."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from aioinformer.controller.shards.lease import Flag, Role, ShardLease, member_name

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.controller.shards.agreement import Agreement
    from aioinformer.controller.shards.outbox import Outbox
    from aioinformer.controller.shards.own_lease import OwnLease
    from aioinformer.controller.shards.timing import ShardTiming
    from aioinformer.controller.shards.view import GroupView

__all__ = ["Upkeep"]


class Upkeep:
    """Writes that any member may do for its group.

    Attributes:
        created: Time at which the watch showed the own Lease of the group, or None.
        to_create: Ranges of a new group whose fences this member creates.

    Args:
        identity: Identity of the member.
        blank: Lease with the fields that all Leases of the group share.
        view: Leases that the member has seen.
        agreement: Leases with another number of ranges.
        outbox: Writes of the member.
        timing: Durations of the group.
    """

    def __init__(
        self,
        identity: str,
        blank: ShardLease,
        view: GroupView,
        agreement: Agreement,
        outbox: Outbox,
        timing: ShardTiming,
    ) -> None:
        self.created: float | None = None
        self.to_create: set[int] = set()
        self._identity = identity
        self._blank = blank
        self._view = view
        self._agreement = agreement
        self._outbox = outbox
        self._timing = timing
        self._name = member_name(blank.group, identity)
        self._group_gone = 0.0

    def group_gone(self, now: float) -> None:
        """Record that the Lease of the group is missing."""
        self.created = None
        self._group_gone = now

    def listed(self, now: float) -> None:
        """Leave the decision to others, as not everything was shown in between."""
        self.group_gone(now)
        self.to_create.clear()

    def forget(self) -> None:
        """Leave the fences of a new group to others."""
        self.created = None
        self.to_create.clear()

    def write(
        self, now: float, wall: datetime, own: OwnLease, others: list[str]
    ) -> float:
        """Write what is due, and return when to ask again."""
        again = self._create_group(now, wall, own.epoch, others)
        again = min(again, self._delete_record(now, others))
        again = min(again, self._end_silent(now, wall, others))
        self._delete_abandoned(now, others)
        if own.echo is not None:
            self._decide(own.echo)

        return again

    # ------------------------------------------------------------ the group

    @property
    def decided_at(self) -> float | None:
        """Time of the own renewal whose sight decides whether the group is new.

        By then, all members that can work have shown themselves, as they create their
        deleted Leases again, even if one attempt fails. The sight proves that the view is
        not older.
        """
        return None if self.created is None else self.created + self._timing.unseen

    def _decide(self, echo: float) -> None:
        """Decide whether all fences can be created without waiting for their owners."""
        at = self.decided_at
        if at is not None and echo >= at:
            self.created = None
            if self._view.is_new():
                self.to_create.update(range(self._blank.ranges))

    def _create_group(
        self, now: float, wall: datetime, epoch: int, others: list[str]
    ) -> float:
        """Create the Lease of the group if it is missing; return when to ask again."""
        name = self._blank.group
        if self._view.group is not None or name in self._view.written:
            return math.inf

        pause = self._view.pause(name, self._identity, others)
        at = max(self._group_gone + pause, self._outbox.may_write_at(name, None))
        if now < at:
            return at

        stamp = self._outbox.stamp(wall)
        group = replace(
            self._blank,
            role=Role.GROUP,
            name=name,
            holder=self._identity,
            epoch=epoch,
            acquired=stamp,
            renewed=stamp,
        )
        self._outbox.write(group, None, now)
        return math.inf

    def _delete_record(self, now: float, others: list[str]) -> float:
        """Delete a Lease of the group that fits no member; return when to ask again."""
        if self._agreement.record is None:
            return math.inf

        lease, seen = self._agreement.record
        # By then, members that it fits would have renewed their Leases.
        at = seen + 2 * self._timing.retry_period
        at += self._view.pause(lease.name, self._identity, others)
        at = max(at, self._outbox.may_write_at(lease.name, lease))
        if now < at:
            return at

        self._outbox.write(lease, lease, now, verb="delete")
        return math.inf

    # ------------------------------------------------------------ dead members

    def _end_silent(self, now: float, wall: datetime, others: list[str]) -> float:
        """Expel members that no longer renew; return when to ask again.

        Only this write proves that a member will not renew: it fails if the member
        was faster.
        """
        again = math.inf
        for seen in self._view.members.values():
            lease = seen.lease
            if not lease.holder or lease.name == self._name:
                continue

            at = self._view.silent_at(seen)
            if now >= at:
                at += self._view.pause(lease.name, self._identity, others)

            again = min(again, self._expel(lease, lease, at, now, wall))

        for name, (fence, since) in self._view.unknown(now).items():
            if name != self._name:
                at = since + self._view.wait
                at += self._view.pause(name, self._identity, others)
                known = self._view.members.get(name)
                base = None if known is None else known.lease
                blank = replace(self._blank, name=name, epoch=fence.epoch)
                again = min(again, self._expel(blank, base, at, now, wall))

        return again

    def _expel(
        self,
        lease: ShardLease,
        base: ShardLease | None,
        at: float,
        now: float,
        wall: datetime,
    ) -> float:
        at = max(at, self._outbox.may_write_at(lease.name, base))
        if now < at:
            return at

        stamp = self._outbox.stamp(wall)
        flags = frozenset({Flag.OWNER} if base else {Flag.OWNER, Flag.CREATED})
        gone = replace(lease, holder="", flags=flags, seconds=1, renewed=stamp)
        self._outbox.write(gone, base, now)
        return math.inf

    def _delete_abandoned(self, now: float, others: list[str]) -> None:
        """Delete Leases of members that were expelled long ago, and own no fence."""
        for lease in self._view.abandoned(now, self._identity, others):
            if now >= self._outbox.may_write_at(lease.name, lease):
                self._outbox.write(lease, lease, now, verb="delete")
