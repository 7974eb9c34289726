"""State machine of one member of a shard group.

`Member` takes what a replica learns, and returns what it has to do. To drive it:

1. Watch the Leases with the label `aioinformer.dev/shards: <group>`, in one ordered watch.
   Call `lease_seen()` and `lease_gone()` for each change, and `synced()` after the first list.
2. Call `step()` after every input, and when the clock passes `next_due`. Do the commands that
   it returns, in their order. Each call may change `next_due`.
3. Send each `Write` in a task of its own, and call `answered()` exactly once. Give up after
   `timing.retry_period` seconds with `Outcome.NO_ANSWER`; also for every error that does not
   prove that nothing was written. A write with `verb` "create" or "update" sends
   `lease.body()`; "delete" sends only the name, with the uid as a precondition.
4. Work only on keys of ranges for which `owns()` is True, and ask again before each write to
   the API. `Start` begins or resumes a range, `Drain` takes nothing new of it, `Cancel`
   cancels what is in work. When nothing of a drained or cancelled range is in work any more,
   call `ended()`. After a pause of the process, `owns()` is False before `step()` has run.
5. To end, call `leave()`, go on as before, and stop once `state` is `LEFT`.
   If `refusal` is set, the member leaves by itself. Raise the text as an OptionsError.

All times are seconds of one monotonic clock. Where the machine may be suspended, use one
that goes on meanwhile, such as `CLOCK_BOOTTIME` of Linux.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from aioinformer.controller.shards.lease import ShardLease
from aioinformer.controller.shards.timing import ShardTiming

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.shards import ShardField

__all__ = [
    "Cancel",
    "Command",
    "Drain",
    "Member",
    "MemberState",
    "Outcome",
    "RangeState",
    "Start",
    "Write",
]


class MemberState(enum.Enum):
    """State of a member."""

    JOINING = "joining"
    """It has written its Lease, or waits to, and its watch has not shown that."""
    LIVE = "live"
    """It may own ranges, until its deadline."""
    LOST = "lost"
    """Its deadline passed or it was expelled. It writes nothing until all work has ended."""
    LEAVING = "leaving"
    """It gives its ranges away."""
    LEFT = "left"
    """It has ended. Nothing of it is in work, and no command follows."""


class RangeState(enum.Enum):
    """State of a range at one member."""

    NONE = "none"
    ACQUIRING = "acquiring"
    """The fence was written, without an answer yet."""
    HELD = "held"
    DRAINING = "draining"
    """Nothing new is started. The fence is not given up before the work has ended."""
    STOPPING = "stopping"
    """The range is lost. Its work was cancelled and has not ended."""
    RELEASING = "releasing"
    """No work is left. The free fence was written, without an answer yet."""


class Outcome(enum.Enum):
    """Outcome of a write."""

    OK = "ok"
    """Written. For a delete also: it did not exist."""
    CONFLICT = "conflict"
    """Refused, because the Lease has another version or uid, or exists, or does not."""
    NO_ANSWER = "no answer"
    """Unknown: it may have been written, or may still be. Also for refusals like 403."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write of one Lease. At most one write of a Lease is under way.

    Attributes:
        verb: How to write it. An update replaces exactly `lease.version`.
        lease: Lease to write.
        sent: Time of the step that returned it.
    """

    verb: Literal["create", "update", "delete"]
    lease: ShardLease
    sent: float


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to work on a range, or take new keys of it again."""

    index: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Start no new work on a range, and report the end of the rest."""

    index: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel all work on a range, and report its end."""

    index: int


Command: TypeAlias = Write | Start | Drain | Cancel


class Member:
    """One replica of a shard group.

    Attributes:
        identity: Identity of this replica.
        timing: Durations.
        epoch: Number that grows with each join.
        state: State of this member.
        reason: Why it is in this state, for logs; empty if that is obvious.
        refusal: Why it cannot belong to the group; empty if it can.
        next_due: Time of the next step without an input.

    Args:
        identity: Identity of this replica, unique in the group.
        group: Name of the group.
        timing: Durations, the same at all members.
        ranges: Number of ranges, a power of two; the same at all members.
        field: Field of an object's metadata that is hashed.

    Raises:
        OptionsError: If the number of ranges is not a power of two, the group cannot be
            part of a name, or the identity is empty.
    """

    def __init__(
        self,
        identity: str,
        group: str,
        timing: ShardTiming | None = None,
        *,
        ranges: int = 64,
        field: ShardField = "uid",
    ) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ inputs

    def synced(self, now: float) -> None:
        """Record that all Leases of the first list were passed to `lease_seen`."""

    def lease_seen(self, lease: ShardLease, now: float) -> None:
        """Record a Lease that the watch or a list has shown."""

    def lease_gone(self, name: str, now: float, *, missed: bool = False) -> None:
        """Record that a Lease was deleted.

        Args:
            name: Name of the Lease.
            now: Current time.
            missed: True if a later list showed it, and not the watch.
        """

    def answered(
        self,
        write: Write,
        outcome: Outcome,
        now: float,
        *,
        version: str = "",
        uid: str = "",
    ) -> None:
        """Record the outcome of a write.

        Args:
            write: Write that was sent.
            outcome: What the server said.
            now: Current time.
            version: `resourceVersion` of the Lease after a create or an update.
            uid: Its uid.
        """

    def ended(self, index: int, now: float) -> None:
        """Record that nothing of a drained or cancelled range is in work any more."""

    def leave(self, now: float) -> None:
        """Begin to leave the group."""

    # ------------------------------------------------------------ decisions

    def step(self, now: float, wall: datetime) -> list[Command]:
        """Return what to do now.

        Args:
            now: Current time.
            wall: Current date and time, informational.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ views

    def owns(self, index: int, now: float) -> bool:
        """Return True if work on a range may go on and write at this moment."""
        raise NotImplementedError

    @property
    def deadline(self) -> float | None:
        """Time until which this member may work, or None if it may not."""

    @property
    def states(self) -> tuple[RangeState, ...]:
        """State of each range at this member."""
        raise NotImplementedError

    @property
    def held(self) -> frozenset[int]:
        """Ranges of which this member starts new work."""
        raise NotImplementedError

    @property
    def wanted(self) -> frozenset[int]:
        """Ranges that this member has or should have."""
        raise NotImplementedError

    @property
    def owners(self) -> tuple[str, ...]:
        """Identity of the owner of each range as seen here; empty for none."""
        raise NotImplementedError

    @property
    def unowned(self) -> Mapping[int, float]:
        """Ranges without an owner, and the time since which that was seen."""
        raise NotImplementedError

    @property
    def eligible(self) -> tuple[str, ...]:
        """Identities of the members that may be given ranges."""
        raise NotImplementedError
