"""What a Lease says of its holder, and what follows from it. Pure: times are handed in.

Times of other machines are never compared with the own clock. What counts is when this
process first saw a record: a lease is alive until its duration has passed since then.
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
    "Sighting",
    "Step",
    "claimed",
    "next_step",
    "released",
    "seen",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The part of a Lease's spec that electors write, with client-go's meaning.

    Attributes:
        holder: Who leads; empty for nobody.
        lease_seconds: How long the others have to wait for the holder. Whole seconds.
        acquired: When the holder began, as the Lease has it; for people to read.
        renewed: When it was renewed last, likewise.
        transitions: How often the holder has changed.
    """

    holder: str = ""
    lease_seconds: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> LeaseRecord:
        """Read it from a Lease's spec; what is missing or null is empty or 0.

        Raises:
            DecodeError: If a field is of another type; a kube-apiserver has none such.
        """
        return cls(
            holder=_field(spec, "holderIdentity", ""),
            lease_seconds=_field(spec, "leaseDurationSeconds", 0),
            acquired=_field(spec, "acquireTime", ""),
            renewed=_field(spec, "renewTime", ""),
            transitions=_field(spec, "leaseTransitions", 0),
        )

    def spec(self) -> dict[str, Any]:
        """What is written into the spec. Nobody is an empty text, as client-go has it."""
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
        raise DecodeError(f"the {name} of a Lease cannot be {value!r}")

    return value


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record, and since when this process knows it, in seconds of its loop's clock."""

    record: LeaseRecord
    since: float

    @property
    def alive_until(self) -> float:
        """Until when nobody but the holder may touch the lease."""
        return self.since + self.record.lease_seconds


class Step(enum.Enum):
    """What to do about a lease."""

    CREATE = enum.auto()
    """There is none: create it, as its holder."""
    CLAIM = enum.auto()
    """It is ours, free, or has run out: write ourselves into it."""
    WAIT = enum.auto()
    """Somebody else leads."""
    YIELD = enum.auto()
    """We lead, and the lease names us no more."""


def seen(before: Sighting | None, record: LeaseRecord, now: float) -> Sighting:
    """Note what was read or written; a record that is the same is as old as before."""
    if before is not None and before.record == record:
        return before

    return Sighting(record, now)


def next_step(
    sighting: Sighting | None, identity: str, now: float, *, leading: bool
) -> Step:
    """Decide what to do about what was read just now.

    Args:
        sighting: What was read; None if there is no Lease.
        identity: Ours.
        now: In seconds of the clock of the sightings.
        leading: Whether we lead. A leader whose Lease was deleted creates it again; one
            that is not named any more has lost it, even if nobody else is named.
    """
    if sighting is None:
        return Step.CREATE

    holder = sighting.record.holder
    if holder == identity:
        return Step.CLAIM

    if leading:
        return Step.YIELD

    return Step.WAIT if holder and now < sighting.alive_until else Step.CLAIM


def claimed(
    before: LeaseRecord | None, identity: str, lease_seconds: int, wall: datetime
) -> LeaseRecord:
    """The record that makes `identity` the holder, or lets it remain so.

    Args:
        before: The record that it replaces; None if there is no Lease.
        identity: The new holder.
        lease_seconds: How long the others have to wait from now on.
        wall: The time of day, for people to read.
    """
    now = micro_time(wall)
    if before is None:
        return LeaseRecord(identity, lease_seconds, now, now, 0)

    if before.holder == identity:
        return replace(before, lease_seconds=lease_seconds, renewed=now)

    return LeaseRecord(identity, lease_seconds, now, now, before.transitions + 1)


def released(before: LeaseRecord, wall: datetime) -> LeaseRecord:
    """The record of a lease that anybody may take at once; as client-go writes it."""
    now = micro_time(wall)
    # The server wants a duration of at least one second.
    return LeaseRecord("", 1, now, now, before.transitions)
