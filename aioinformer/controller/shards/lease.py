"""Leases of a shard group: their names, labels and fields.

| Lease | role | name | `holderIdentity` |
|---|---|---|---|
| group | `group` | `sites` | `identity/epoch` of the member that created it |
| member | `member` | `sites-member-0123456789abcdef` (hash of the identity) | identity; empty once it was expelled |
| fence of a range | `fence` | `sites-range-07` | `identity/epoch` of the owner; empty if free |

All have the labels `aioinformer.dev/shards: sites` and `aioinformer.dev/role`, and two
annotations: the number of ranges, and the field that is hashed. `leaseTransitions` is the
epoch of a member, which grows each time it joins. A fence counts its owners there.
`renewTime` makes each write of a member unique. People read it; nothing compares it with a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from aioinformer.model.shards import ShardField, hash_of

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["GROUP_LABEL", "ROLE_LABEL", "Flag", "Role", "ShardLease", "fence_name"]

GROUP_LABEL: Final = "aioinformer.dev/shards"
ROLE_LABEL: Final = "aioinformer.dev/role"
_RANGES: Final = "aioinformer.dev/shard-ranges"
_FIELD: Final = "aioinformer.dev/shard-field"
_FLAGS: Final = "aioinformer.dev/shard-flags"


class Role(StrEnum):
    """Role of a Lease in a shard group."""

    GROUP = "group"
    MEMBER = "member"
    FENCE = "fence"


class Flag(StrEnum):
    """What a member says of itself."""

    JOINING = "joining"
    """It has not seen its own Lease yet."""
    LEAVING = "leaving"
    """It gives its ranges away and ends."""
    INELIGIBLE = "ineligible"
    """It could not take its ranges, so others should have them."""
    OWNER = "owner"
    """It has written a fence in this or an earlier epoch."""


def member_name(group: str, identity: str) -> str:
    """Return the name of a member's Lease."""
    return f"{group}-member-{hash_of(identity):016x}"


def fence_name(group: str, index: int) -> str:
    """Return the name of the fence of a range."""
    return f"{group}-range-{index:02}"


@dataclass(frozen=True, slots=True)
class ShardLease:
    """Lease of a shard group, as it was read or is to be written.

    Attributes:
        group: Name of the group.
        role: Role in the group.
        name: Name of the Lease.
        holder: Identity of the member, the owner or the creator; empty for none.
        epoch: Epoch of the holder.
        ranges: Number of ranges of the group.
        field: Field of an object's metadata that is hashed.
        index: Number of the range of a fence; -1 for others.
        flags: What a member says of itself.
        seconds: `leaseDurationSeconds`, for people.
        acquired: `acquireTime`, for people.
        renewed: `renewTime`, different in each write of a member.
        moves: Number of owners that a fence has had.
        version: `resourceVersion`; empty in a Lease that is to be created.
        uid: Uid; empty in a Lease that is to be created.
    """

    group: str
    role: Role
    name: str
    holder: str
    epoch: int
    ranges: int
    field: ShardField
    index: int = -1
    flags: frozenset[Flag] = frozenset()
    seconds: int = 1
    acquired: str = ""
    renewed: str = ""
    moves: int = 0
    version: str = ""
    uid: str = ""

    @classmethod
    def of(cls, lease: KubeObject) -> ShardLease:
        """Read a Lease of a shard group.

        Raises:
            DecodeError: If it is not a Lease as members write them.
        """
        raise NotImplementedError

    def body(self) -> dict[str, Any]:
        """Return the whole Lease for a create or an update.

        The body of an update has `resourceVersion` and `uid`. Without the uid, an update
        would create a Lease that was deleted, on the version of the deleted one.
        """
        raise NotImplementedError
