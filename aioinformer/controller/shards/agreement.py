"""`Agreement`: whether the Leases of a group have the number of ranges of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.controller.shards.lease import Role

if TYPE_CHECKING:
    from aioinformer.controller.shards.lease import ShardLease

__all__ = ["Agreement"]


class Agreement:
    """Leases of a group that differ in the number of ranges, or in the hashed field.

    Two groups of one name would share objects differently. The record of a group alone
    may be wrong, as somebody has written it: members that it fits would renew Leases.

    Attributes:
        record: Lease of the group if it differs, and the time at which it was seen; else
            None.

    Args:
        blank: Lease with the fields that all Leases of the group share.
    """

    def __init__(self, blank: ShardLease) -> None:
        self.record: tuple[ShardLease, float] | None = None
        self._blank = blank
        # Names of different Leases of members, and of fences with an owner.
        self._others: set[str] = set()

    def see(self, lease: ShardLease, now: float) -> bool:
        """Record a Lease; return False if it differs."""
        agrees = (lease.ranges, lease.field) == (self._blank.ranges, self._blank.field)
        if lease.role is Role.GROUP:
            self.record = None if agrees else (lease, now)
        elif agrees or not lease.holder:
            self._others.discard(lease.name)
        else:
            self._others.add(lease.name)

        return agrees

    def forget(self, name: str) -> None:
        """Record that a Lease was deleted."""
        self._others.discard(name)
        if self.record is not None and self.record[0].name == name:
            self.record = None

    @property
    def broken(self) -> ShardLease | None:
        """Different Lease of the group, if others work by it."""
        return self.record[0] if self.record is not None and self._others else None
