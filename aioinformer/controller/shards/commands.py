"""States of a member and its ranges, and the commands of a member."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from aioinformer.controller.shards.lease import ShardLease

__all__ = [
    "Cancel",
    "Command",
    "Drain",
    "MemberState",
    "Outcome",
    "RangeRecord",
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
        verb: Kind of write. An update replaces exactly `lease.version`.
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


@dataclass(slots=True)
class RangeRecord:
    """Record of a range at one member.

    Attributes:
        state: State.
        answered: Time at which the write of the fence was answered.
        until: Time at which a range whose fence was deleted is given up, or None.
        unwanted: Time since which another member should have it, or None.
        drained_by: Time at which the rest of its work is cancelled.
        cancelled: True if the rest was cancelled.
        quiet: Time at which nothing of cancelled work can arrive any more, or None
            while it goes on.
        free: Time since which it could be taken and was not, or None.
    """

    state: RangeState = RangeState.NONE
    answered: float = 0.0
    until: float | None = None
    unwanted: float | None = None
    drained_by: float = 0.0
    cancelled: bool = False
    quiet: float | None = None
    free: float | None = None

    def keep(self, now: float) -> None:
        """Go on with a range whose fence is there again, unless it was given up before.

        Its users have to be told the end first, as they have dropped work since then.
        """
        if self.until is not None and now < self.until:
            self.until = None

    @property
    def works(self) -> bool:
        """True while work of the range may go on."""
        return self.state in (RangeState.HELD, RangeState.DRAINING)
