"""`ShardsStatus`: who owns which range of a group, as one replica sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.controller.shards.lease import fence_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.controller.lease_record import LeaseStatus
    from aioinformer.controller.shards.lease import ShardLease
    from aioinformer.controller.shards.member import Member

__all__ = ["RangeStatus", "ShardsStatus", "range_statuses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeStatus:
    """State of one range.

    Attributes:
        number: Number of the range.
        owner: Identity of its owner; empty for none.
        unowned: Seconds for which it has been without an owner, as seen here.
        moves: Number of owners that it has had.
        acquired: Time at which its owner acquired it, as the Lease has it, of the clock
            of the owner; empty if nobody has.
    """

    number: int
    owner: str
    unowned: float
    moves: int
    acquired: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsStatus:
    """State of a group at one moment, as one replica sees it.

    Attributes:
        name: Name of the group.
        identity: Identity of the replica that sees it.
        state: State of that replica: `"idle"` if it does not take part, else
            `"joining"`, `"live"`, `"lost"`, `"leaving"` or `"left"`.
        reason: Reason for the state; empty if that is obvious.
        lease: Own Lease of this replica; None unless it is a member. Its age counts from
            the sending of the last renewal that the watch has shown.
        owned: Ranges that this replica owns, ascending.
        inactive: Those of them that a user cannot work on yet, such as a controller whose
            informer has not listed their objects, with the reasons.
        members: Identities of the replicas that may own ranges.
        ranges: State of all ranges, by number.
        problem: Ranges that nobody has worked on for longer than a dead owner explains, or
            else the last error of a request for Leases; empty if all is well.
    """

    name: str
    identity: str
    state: str
    reason: str
    lease: LeaseStatus | None
    owned: tuple[int, ...]
    inactive: Mapping[int, str]
    members: tuple[str, ...]
    ranges: tuple[RangeStatus, ...]
    problem: str

    @property
    def unowned(self) -> tuple[int, ...]:
        """Numbers of the ranges without an owner."""
        return tuple(it.number for it in self.ranges if not it.owner)


def range_statuses(
    member: Member, group: str, leases: Mapping[str, ShardLease], now: float
) -> tuple[RangeStatus, ...]:
    """Return the state of all ranges, as a member sees them.

    Args:
        member: Member that has seen the Leases.
        group: Name of the group.
        leases: Leases by name.
        now: Time of the clock of the member.
    """
    unowned = member.unowned
    found = []
    for number, owner in enumerate(member.owners):
        fence = leases.get(fence_name(group, number))
        found.append(
            RangeStatus(
                number=number,
                owner=owner,
                unowned=max(0.0, now - unowned[number]) if number in unowned else 0.0,
                moves=fence.moves if fence else 0,
                acquired=fence.acquired if fence else "",
            )
        )

    return tuple(found)
