"""Records of a Lease, and the decisions of an elector. Pure: times are arguments.

Timestamps of other machines are never compared with the local clock. A lease is valid
until its duration has passed since this process first saw its record.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from aioinformer.errors import DecodeError
from aioinformer.model.times import micro_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = [
    "LeaseRecord",
    "LeaseStatus",
    "ObservedRecord",
    "Step",
    "claimed",
    "next_coordinated_step",
    "next_step",
    "observe",
    "released",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Part of a Lease's spec that electors write, with client-go's meaning.

    Attributes:
        holder: Identity of the leader, empty for none.
        lease_seconds: Whole seconds that other replicas wait for the holder.
        acquired: Timestamp of the acquisition, informational.
        renewed: Timestamp of the last renewal, informational.
        transitions: Number of changes of the holder.
        preferred: Identity that a coordinator wants to lead next; empty for none. It is
            read only.
    """

    holder: str = ""
    lease_seconds: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    preferred: str = ""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> LeaseRecord:
        """Read the record from a Lease's spec. Missing and null fields are empty or 0.

        Raises:
            DecodeError: If a field has another type, which a kube-apiserver prevents.
        """
        return cls(
            holder=_field(spec, "holderIdentity", ""),
            lease_seconds=_field(spec, "leaseDurationSeconds", 0),
            acquired=_field(spec, "acquireTime", ""),
            renewed=_field(spec, "renewTime", ""),
            transitions=_field(spec, "leaseTransitions", 0),
            preferred=_field(spec, "preferredHolder", ""),
        )

    def spec(self) -> dict[str, Any]:
        """Return the fields of the spec. As in client-go, no holder is an empty string."""
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": self.acquired or None,
            "renewTime": self.renewed or None,
            "leaseTransitions": self.transitions,
        }


def _field(spec: Mapping[str, Any], name: str, absent: T) -> T:
    value = spec.get(name)
    if value is None:
        return absent

    if not isinstance(value, type(absent)):
        raise DecodeError(f"invalid {name} of a Lease: {value!r}")

    return value


@dataclass(frozen=True, slots=True)
class ObservedRecord:
    """Record, and the loop's time at which this process first saw it."""

    record: LeaseRecord
    since: float

    @property
    def alive_until(self) -> float:
        """Time until which only the holder may write the lease."""
        return self.since + self.record.lease_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """State of a Lease at one moment, as one replica sees it.

    The Lease has expired if `age` exceeds `duration`.

    Attributes:
        name: `namespace/name` of the Lease, or the name of a lock without a namespace.
        holder: Identity of the holder; empty for none.
        age: Seconds since this replica observed the last renewal, by its own clock.
        duration: Seconds that other replicas wait for the holder after a renewal.
    """

    name: str
    holder: str
    age: float
    duration: int


class Step(enum.Enum):
    """Next step of an elector."""

    CREATE = enum.auto()
    """Create the missing Lease, as its holder."""
    CLAIM = enum.auto()
    """Acquire or renew the Lease: it is held by this replica, free, or has expired."""
    WAIT = enum.auto()
    """Wait: another replica leads."""
    YIELD = enum.auto()
    """Stop leading: the Lease does not name this replica any more."""


def observe(
    before: ObservedRecord | None, record: LeaseRecord, now: float
) -> ObservedRecord:
    """Return the observation of a record. An unchanged record keeps its age."""
    if before is not None and before.record == record:
        return before

    return ObservedRecord(record, now)


def next_step(
    observed: ObservedRecord | None, identity: str, now: float, *, leading: bool
) -> Step:
    """Return the next step for the Lease that was just observed.

    Args:
        observed: Observed record, or None without a Lease.
        identity: Identity of this replica.
        now: Time of the clock of the observations.
        leading: True if this replica leads. A leader creates a deleted Lease again. It
            has lost a Lease that does not name it, even if it has no holder.
    """
    if observed is None:
        return Step.CREATE

    holder = observed.record.holder
    if holder == identity:
        return Step.CLAIM

    if leading:
        return Step.YIELD

    return Step.WAIT if holder and now < observed.alive_until else Step.CLAIM


def next_coordinated_step(
    observed: ObservedRecord | None, identity: str, now: float, *, leading: bool
) -> Step:
    """Return the next step for the observed Lease of a coordinator.

    It is never created or taken: the coordinator writes the holder. A leader yields when
    the coordinator prefers another one. See `next_step` for the arguments.
    """
    if observed is None:
        return Step.WAIT

    record = observed.record
    if record.holder != identity or (leading and record.preferred):
        return Step.YIELD if leading else Step.WAIT

    held = now < observed.alive_until and not record.preferred
    return Step.CLAIM if held else Step.WAIT


def claimed(
    before: LeaseRecord | None, identity: str, lease_seconds: int, wall: datetime
) -> LeaseRecord:
    """Return the record that makes `identity` the holder, or keeps it the holder.

    Args:
        before: Record that it replaces, or None without a Lease.
        identity: Identity of the holder.
        lease_seconds: Seconds that other replicas wait from now on.
        wall: Current date and time, informational.
    """
    now = micro_time(wall)
    if before is None:
        return LeaseRecord(identity, lease_seconds, now, now, 0)

    if before.holder == identity:
        return replace(before, lease_seconds=lease_seconds, renewed=now)

    return LeaseRecord(identity, lease_seconds, now, now, before.transitions + 1)


def released(before: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Return the record of a released lease, as client-go writes it."""
    now = micro_time(wall)
    # The server requires a duration of at least one second.
    return LeaseRecord("", 1, now, now, before.transitions)
