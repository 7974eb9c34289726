"""Leases of a shard group: their names, labels and fields.

| Lease | role | name | `holderIdentity` |
|---|---|---|---|
| group | `group` | `sites` | `identity/epoch` of the member that created it |
| member | `member` | `sites-member-` and a hash | identity; empty once it was expelled |
| fence of a range | `fence` | `sites-range-07` | `identity/epoch` of the owner; empty if free |

All have the labels `aioinformer.dev/shards: sites` and `aioinformer.dev/role`, and two
annotations: the number of ranges, and the field that is hashed. `leaseTransitions` is the
epoch of a member, which grows each time it joins. A fence counts its owners there.
`renewTime` makes each write of a member unique. People read it; nothing compares it with a
clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from aioinformer.controller.lease_record import LeaseRecord
from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.object_meta import version_number
from aioinformer.model.resources import LEASES
from aioinformer.model.shards import ShardField, ShardSelector, hash_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.objects import KubeObject

__all__ = [
    "GROUP_LABEL",
    "ROLE_LABEL",
    "Flag",
    "Role",
    "ShardLease",
    "blank_lease",
    "disagreement",
    "fence_name",
    "member_name",
    "written_of",
    "written_text",
]

GROUP_LABEL: Final = "aioinformer.dev/shards"
ROLE_LABEL: Final = "aioinformer.dev/role"
_RANGES: Final = "aioinformer.dev/shard-ranges"
_FIELD: Final = "aioinformer.dev/shard-field"
_FLAGS: Final = "aioinformer.dev/shard-flags"
_WRITTEN: Final = "aioinformer.dev/shard-written"


class Role(StrEnum):
    """Role of a Lease in a shard group."""

    GROUP = "group"
    MEMBER = "member"
    FENCE = "fence"


class Flag(StrEnum):
    """Statement of a member about itself, or about a Lease that it writes."""

    JOINING = "joining"
    """It has not seen its own Lease yet."""
    LEAVING = "leaving"
    """It gives its ranges away and ends."""
    INELIGIBLE = "ineligible"
    """It could not take its ranges, so others should have them."""
    OWNER = "owner"
    """It has written a fence in this or an earlier epoch."""
    CREATED = "created"
    """This fence, or Lease of an expelled member, replaced an absent one, and nobody has
    taken it since: see `GroupView`."""


@lru_cache(maxsize=1 << 12)
def member_name(group: str, identity: str) -> str:
    """Return the name of a member's Lease."""
    return f"{group}-member-{hash_of(identity):016x}"


@lru_cache(maxsize=1 << 12)
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
        flags: Statements of a member about itself, or about this Lease.
        seconds: `leaseDurationSeconds`. Others wait for a member for so long.
        acquired: `acquireTime`, for people.
        renewed: `renewTime`, different in each write of a member.
        moves: Number of owners that a fence has had.
        version: `resourceVersion`; empty in a Lease that is to be created.
        uid: Uid; empty in a Lease that is to be created.
        written: Versions that previous owners have written, in a free fence: see
            `written_of`.
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
    written: str = ""

    @classmethod
    def of(cls, lease: KubeObject) -> ShardLease:
        """Read a Lease of a shard group.

        Raises:
            DecodeError: If it is not a Lease as members write them.
        """
        labels, annotations = lease.labels, lease.annotations
        record = LeaseRecord.of(lease.at("spec") or {})
        try:
            group, role = labels[GROUP_LABEL], Role(labels[ROLE_LABEL])
            ranges, field = int(annotations[_RANGES]), annotations[_FIELD]
            # Later versions may have more flags.
            words = annotations.get(_FLAGS, "").split()
            flags = frozenset(flag for flag in Flag if flag in words)
            index = _index_of(group, lease.name, ranges) if role is Role.FENCE else -1
        except (KeyError, ValueError) as exc:
            raise DecodeError(
                f"the Lease {lease.name!r} is not as members of a shard group write "
                f"it: {exc!r}. Delete it if nobody needs it"
            ) from exc

        if field not in ("uid", "namespace"):
            raise DecodeError(
                f"the Lease {lease.name!r} has shards by {field!r}, which this version "
                f"does not know"
            )

        if lease.resource_version and version_number(lease.resource_version) < 0:
            raise DecodeError(
                f"the Lease {lease.name!r} has the resourceVersion "
                f"{lease.resource_version!r}, which is no number, as Kubernetes from 1.35 "
                "on guarantees. Shards cannot run on this API server"
            )

        holder, epoch = record.holder, record.transitions
        moves = 0
        if role is not Role.MEMBER:
            holder, _, text = record.holder.rpartition("/")
            epoch = int(text) if text.isdecimal() else 0
            moves = record.transitions

        return cls(
            group,
            role,
            lease.name,
            holder,
            epoch,
            ranges,
            cast("ShardField", field),
            index,
            flags,
            record.lease_seconds,
            record.acquired,
            record.renewed,
            moves,
            lease.resource_version,
            lease.uid,
            annotations.get(_WRITTEN, ""),
        )

    def body(self) -> dict[str, Any]:
        """Return the whole Lease for a create or an update.

        The body of an update has `resourceVersion` and `uid`. Without the uid, an update
        would create a Lease that was deleted, on the version of the deleted one.
        """
        annotations = {_RANGES: str(self.ranges), _FIELD: self.field}
        if self.flags:
            annotations[_FLAGS] = " ".join(sorted(self.flags))

        if self.written:
            annotations[_WRITTEN] = self.written

        metadata: dict[str, Any] = {
            "name": self.name,
            "labels": {GROUP_LABEL: self.group, ROLE_LABEL: self.role.value},
            "annotations": annotations,
        }
        if self.version:
            metadata |= {"resourceVersion": self.version, "uid": self.uid}

        member = self.role is Role.MEMBER
        incarnation = f"{self.holder}/{self.epoch}" if self.holder else ""
        record = LeaseRecord(
            self.holder if member else incarnation,
            self.seconds,
            self.acquired,
            self.renewed,
            self.epoch if member else self.moves,
        )
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": record.spec(),
        }


def written_of(text: str) -> dict[str, int]:
    """Return the versions in `ShardLease.written`, by resource.

    Example:
        >>> written_of("configmaps=12 deployments.apps=9")
        {'configmaps': 12, 'deployments.apps': 9}
    """
    pairs = (it.partition("=") for it in text.split())
    versions = {name: version_number(version) for name, _, version in pairs}
    return {name: version for name, version in versions.items() if version >= 0}


def written_text(versions: Mapping[str, int]) -> str:
    """Return the value of `ShardLease.written`."""
    return " ".join(f"{name}={version}" for name, version in sorted(versions.items()))


def _index_of(group: str, name: str, ranges: int) -> int:
    prefix = f"{group}-range-"
    if not name.startswith(prefix):
        raise ValueError(f"the name does not begin with {prefix!r}")

    index = int(name.removeprefix(prefix))
    if not 0 <= index < ranges:
        raise ValueError(f"range {index} of {ranges}")

    return index


_GROUP_LENGTH: Final = 40
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")

_MAX_RANGES: Final = 1024


def blank_lease(group: str, ranges: int, field: ShardField) -> ShardLease:
    """Return a Lease with the fields that all Leases of a group share.

    Raises:
        OptionsError: If the number of ranges is not a power of two, the field is unknown,
            or the group cannot be part of a name.
    """
    if not _GROUP.fullmatch(group):
        raise OptionsError(
            f"the name of a shard group must be at most {_GROUP_LENGTH} lower-case "
            f"letters, digits and inner hyphens, as it is part of names of Leases: "
            f"{group!r}"
        )

    number: Any = ranges
    if not isinstance(number, int) or isinstance(number, bool):
        raise OptionsError(f"the number of ranges must be an int, not {ranges!r}")

    if not 1 <= ranges <= _MAX_RANGES or ranges & (ranges - 1):
        raise OptionsError(
            f"the number of ranges must be a power of two up to {_MAX_RANGES}, not "
            f"{ranges}"
        )

    ShardSelector((), field)  # refuses an unknown field
    return ShardLease(group, Role.MEMBER, "", "", 0, ranges, field)


def disagreement(mine: ShardLease, other: ShardLease) -> str:
    """Return why a replica cannot join a group whose Lease differs from its own."""
    return (
        f"the shard group {mine.group!r} has {other.ranges} ranges by {other.field} "
        f"(Lease {other.name!r}), and this replica has {mine.ranges} by {mine.field}. "
        f"Use the same options at all replicas. To change them, stop all replicas and "
        f"delete the Leases with the label {GROUP_LABEL}={mine.group}"
    )
