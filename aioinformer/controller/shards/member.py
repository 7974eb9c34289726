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
import math
import re
from collections import deque
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioinformer.controller.shards.assignment import assign, score
from aioinformer.controller.shards.lease import (
    GROUP_LABEL,
    Flag,
    Role,
    ShardLease,
    fence_name,
    member_name,
)
from aioinformer.controller.shards.timing import SETTLE, ShardTiming
from aioinformer.controller.shards.view import GroupView
from aioinformer.errors import OptionsError
from aioinformer.model.shards import HASHES, ShardSelector
from aioinformer.model.times import micro_time

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


_GROUP_LENGTH: Final = 40
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")

_MAX_RANGES: Final = 1024

_MAX_WRITES: Final = 16
"""Writes of fences that one member has under way."""

_MAX_SENT: Final = 64
"""Own writes whose sight is still recognised."""

_INELIGIBLE: Final = 60.0
"""Seconds for which a member that could not take its ranges asks for none."""


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


_WORKING: Final = (RangeState.HELD, RangeState.DRAINING)


@dataclass(frozen=True, slots=True)
class _Retry:
    """Pause before a Lease is written again; not for another version of it, if given."""

    at: float
    version: str | None


@dataclass(slots=True)
class _Range:
    """State of a range at this member.

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
        if not identity:
            raise OptionsError("the identity of a member cannot be empty")

        if not _GROUP.fullmatch(group):
            raise OptionsError(
                f"the name of a shard group must be at most {_GROUP_LENGTH} lower-case "
                f"letters, digits and inner hyphens, as it is part of names of Leases: "
                f"{group!r}"
            )

        if ranges < 1 or ranges & (ranges - 1) or ranges > _MAX_RANGES:
            raise OptionsError(
                f"the number of ranges must be a power of two up to {_MAX_RANGES}, not "
                f"{ranges}"
            )

        ShardSelector((), field)  # refuses an unknown field
        self.identity: str = identity
        self.timing: ShardTiming = ShardTiming() if timing is None else timing
        self.epoch: int = 0
        self.state: MemberState = MemberState.JOINING
        self.reason: str = ""
        self.refusal: str = ""
        self.next_due: float = -math.inf
        self._view = GroupView(group, self.timing, ranges)
        self._ranges = [_Range() for _ in range(ranges)]
        self._blank = ShardLease(group, Role.MEMBER, "", "", 0, ranges, field)
        self._name = member_name(group, identity)
        self._commands: list[Command] = []
        self._dirty = True
        self._plan_at = -math.inf
        self._draws = 0

        # Writes under way, and pauses after those that failed, by name.
        self._writes: dict[str, Write] = {}
        self._retry: dict[str, _Retry] = {}
        self._wall: datetime | None = None

        # Times at which the own Lease was written in this epoch, by its renewTime, and
        # the newest of them that the watch has shown.
        self._sent: dict[str, float] = {}
        self._echo: float | None = None
        # renewTime of writes of earlier epochs: those are not of another process.
        self._earlier: deque[str] = deque(maxlen=_MAX_SENT)
        self._renew_at = -math.inf
        self._owner = False
        self._unable_until = -math.inf
        self._leaving = False
        self._ending = False
        self._end_by = math.inf

        # A missing group is created; its creator may create all fences at once.
        self._group_gone = -math.inf
        self._founded: float | None = None
        self._to_create: set[int] = set()

        self._wanted: tuple[str, ...] = ("",) * ranges
        self._wanted_for: tuple[list[str], list[str]] | None = None
        self._eligible: tuple[str, ...] = ()
        self._owners: tuple[str, ...] = ("",) * ranges
        self._unowned: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Member {self.identity}/{self.epoch} {self.state.value}>"

    # ------------------------------------------------------------ inputs

    def synced(self, now: float) -> None:
        """Record that all Leases of the first list were passed to `lease_seen`."""
        self._view.start(now)
        self._group_gone = now
        self._touch()

    def lease_seen(self, lease: ShardLease, now: float) -> None:
        """Record a Lease that the watch or a list has shown."""
        self._check_deadline(now)
        if not self._agrees(lease):
            return

        if lease.role is Role.MEMBER:
            seen = self._view.members.get(lease.name)
            before = None if seen is None else seen.lease
            self._view.see(lease, now)
            if lease.name == self._name:
                self._own_seen(lease, now)
            elif (
                before is None
                or before.flags != lease.flags
                or before.epoch != lease.epoch
                or before.holder != lease.holder
            ):
                self._touch()
        else:
            self._view.see(lease, now)
            if lease.role is Role.FENCE:
                self._fence_seen(lease)
            elif self._founded is None and self._is_mine(lease):
                self._founded = now

            self._touch()

    def lease_gone(self, name: str, now: float, *, missed: bool = False) -> None:
        """Record that a Lease was deleted.

        Args:
            name: Name of the Lease.
            now: Current time.
            missed: True if a later list showed it, and not the watch.
        """
        self._check_deadline(now)
        index = self._view.forget(name, now)
        if name == self._blank.group:
            self._founded, self._group_gone = None, now
        elif name == self._name:
            self._renew_at = min(self._renew_at, now)
        elif index is not None:
            self._fence_gone(index, missed)

        self._touch()

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
        self._check_deadline(now)
        name = write.lease.name
        if self._writes.get(name) is not write:
            return  # the watch was faster

        del self._writes[name]
        self._retry.pop(name, None)
        if outcome is Outcome.OK:
            if write.verb != "delete":
                self._view.wrote(replace(write.lease, version=version, uid=uid))
        elif outcome is Outcome.CONFLICT:
            # Only another state of the Lease makes another attempt useful.
            at = now + self.timing.retry_period
            self._retry[name] = _Retry(at, write.lease.version)
        else:
            self._retry[name] = _Retry(now + self._pause(), None)

        if name == self._name:
            self._own_answered(write, outcome, now)
        elif write.lease.role is Role.FENCE:
            self._fence_answered(write, outcome, now)

        self._touch()

    def ended(self, index: int, now: float) -> None:
        """Record that nothing of a drained or cancelled range is in work any more."""
        self._check_deadline(now)
        part = self._ranges[index]
        if part.state is RangeState.DRAINING and not part.cancelled:
            part.state = RangeState.RELEASING
        elif part.state in (RangeState.DRAINING, RangeState.STOPPING):
            # Requests of cancelled work may still arrive.
            timing = self.timing
            part.quiet = now + timing.flight * (1 + timing.clock_error)

        self._touch()

    def leave(self, now: float) -> None:
        """Begin to leave the group."""
        self._check_deadline(now)
        self._leaving = True
        if self.state is MemberState.LIVE:
            self.state = MemberState.LEAVING
            self._renew_at = now

        self._touch()

    # ------------------------------------------------------------ own Lease

    def _agrees(self, lease: ShardLease) -> bool:
        """Return True if a Lease belongs to a group as this member's; or refuse to join."""
        mine = self._blank
        if lease.ranges == mine.ranges and lease.field == mine.field:
            return lease.index < mine.ranges

        begins = self.state is MemberState.JOINING and not self.epoch
        if (lease.role is Role.GROUP or begins) and not self.refusal:
            self.refusal = (
                f"the shard group {mine.group!r} has {lease.ranges} ranges by "
                f"{lease.field} (Lease {lease.name!r}), and this replica has "
                f"{mine.ranges} by {mine.field}. Use the same options at all replicas; "
                f"to change them, stop all replicas and delete the Leases with the label "
                f"{GROUP_LABEL}={mine.group}"
            )
            self.reason = "another number of ranges or another field"
            self._leaving = True
            if self.state is MemberState.LIVE:
                self.state = MemberState.LEAVING

            self._touch()

        return False

    def _own_seen(self, lease: ShardLease, now: float) -> None:
        sent = self._sent.get(lease.renewed)
        if sent is not None and lease.holder == self.identity:
            write = self._writes.get(self._name)
            if write is not None and write.lease.renewed == lease.renewed:
                del self._writes[self._name]  # a sight is as good as an answer
                self._own_answered(write, Outcome.OK, now)
                self._touch()

            if self._is_echo(sent):
                self._echo = sent
                if self._founded is not None:
                    self._touch()

            if self.state is MemberState.JOINING and now < self._work_until(sent):
                self._begin(now)
        elif self.state is MemberState.LOST:
            self._touch()
        elif self._sent and lease.epoch >= self.epoch:
            expelled = "it was expelled: others saw no renewal in time"
            other = f"another process has the identity {self.identity!r}"
            self._lose(other if lease.holder else expelled)
        elif self.state is MemberState.JOINING:
            self._touch()

    def _is_echo(self, sent: float) -> bool:
        return self._echo is None or sent > self._echo

    def _work_until(self, sent: float) -> float:
        return sent + self.timing.renew_deadline

    def _begin(self, now: float) -> None:
        self.state = MemberState.LEAVING if self._leaving else MemberState.LIVE
        self.reason = ""
        self._view.excuse(now, self.timing.retry_period + 2)
        self._renew_at = now  # at once, without the flag
        self._touch()

    def _check_deadline(self, now: float) -> None:
        deadline = self.deadline
        if deadline is not None and now >= deadline:
            limit = self.timing.renew_deadline
            self._lose(
                f"the watch showed no renewal that was sent in the last {limit:g} s"
            )

    def _lose(self, reason: str) -> None:
        """End all work. Nothing is given up: others take the ranges when it has ended."""
        self.state = MemberState.LOST
        self.reason = reason
        self._forget_epoch()
        for index, part in enumerate(self._ranges):
            if part.state in _WORKING:
                self._stop(index)
            elif part.state is not RangeState.STOPPING:
                part.state = RangeState.NONE

        self._touch()

    def _forget_epoch(self) -> None:
        self._earlier.extend(self._sent)
        self._sent.clear()
        self._echo = self._founded = None
        self._to_create.clear()

    def _is_own(self, lease: ShardLease) -> bool:
        """Return True if this process has written this state of its Lease."""
        return lease.renewed in self._sent or lease.renewed in self._earlier

    def _own_answered(self, write: Write, outcome: Outcome, now: float) -> None:
        if outcome is Outcome.NO_ANSWER:
            self._renew_at = now + self._pause()
        elif outcome is Outcome.CONFLICT or write.lease.flags != self._flags(now):
            self._renew_at = now
        else:
            self._renew_at = write.sent + self.timing.retry_period

        is_last = write.verb == "delete" or not write.lease.holder
        if is_last and (outcome is not Outcome.NO_ANSWER or now >= self._end_by):
            self.state = MemberState.LEFT

    def _flags(self, now: float) -> frozenset[Flag]:
        flags = {
            Flag.JOINING: self.state is MemberState.JOINING,
            Flag.LEAVING: self._leaving,
            Flag.INELIGIBLE: now < self._unable_until,
            Flag.OWNER: self._owner,
        }
        return frozenset(flag for flag, is_set in flags.items() if is_set)

    def _renew(self, now: float, wall: datetime) -> None:
        """Write the own Lease if that is due."""
        base = self._view.member(self.identity)
        at = max(self._renew_at, self._may_write_at(self._name, base))
        if self.state is MemberState.JOINING and base is not None and base.holder:
            seen = self._view.members.get(self._name)
            if seen is not None and not self._is_own(base):
                self.reason = f"another process has the identity {self.identity!r}"
                at = max(at, seen.changed + self.timing.lease_duration)

        if now < at:
            self._due(at)
            return

        ours = base is not None and base.renewed in self._sent
        if self.state is MemberState.JOINING:
            newest = self._view.newest_epoch(self.identity)
            if not self._sent or (newest >= self.epoch and not ours):
                self._forget_epoch()
                self.epoch = max(self.epoch, newest) + 1

        stamp = self._stamp(wall)
        lease = replace(
            self._blank,
            name=self._name,
            holder=self.identity,
            epoch=self.epoch,
            flags=self._flags(now),
            seconds=math.ceil(self.timing.lease_duration),
            acquired=base.acquired if base is not None and ours else stamp,
            renewed=stamp,
        )
        self._sent[stamp] = now
        if len(self._sent) > _MAX_SENT:
            self._earlier.append(oldest := next(iter(self._sent)))
            del self._sent[oldest]

        self._renew_at = now + self.timing.retry_period
        self._write(lease, base, now)

    def _stamp(self, wall: datetime) -> str:
        """Return the date and time, later than each one before."""
        if self._wall is not None and wall <= self._wall:
            wall = self._wall + timedelta(microseconds=1)

        self._wall = wall
        return micro_time(wall)

    def _rejoin(self, now: float) -> None:
        """Join again, or leave, once all work has ended."""
        if not self._has_ended():
            return

        if self._leaving:
            self._end(now)
            return

        self.state = MemberState.JOINING
        # All members come back at once when the API does.
        self._renew_at = now + self.timing.retry_failed * self._draw()

    def _has_ended(self) -> bool:
        return all(part.state is RangeState.NONE for part in self._ranges)

    def _end(self, now: float) -> None:
        """Give up the own Lease as the last write, if it is there."""
        if self._name in self._writes:
            return  # the answer shows whether it is

        base = self._view.member(self.identity)
        if base is None or not base.holder or not self._is_own(base):
            self.state = MemberState.LEFT
            return

        if not self._ending:
            self._ending = True
            self._end_by = now + self.timing.retry_period

        at = self._may_write_at(self._name, base)
        if now < at:
            self._due(at)
            return

        named = any(
            fence is not None and self._is_mine(fence)
            for fence in map(self._view.fence, range(len(self._ranges)))
        )
        if named:  # the Lease must say that this epoch has ended
            gone = replace(base, holder="", flags=base.flags & {Flag.OWNER})
            self._write(gone, base, now)
        else:
            self._write(base, base, now, verb="delete")

    # ------------------------------------------------------------ fences

    def _is_mine(self, fence: ShardLease) -> bool:
        return fence.holder == self.identity and fence.epoch == self.epoch

    def _fence_seen(self, lease: ShardLease) -> None:
        part = self._ranges[lease.index]
        newest = self._view.fence(lease.index)
        if newest is not lease:  # older than an answered write
            return

        if self._is_mine(lease):
            part.until = None
        elif part.state in _WORKING:
            self._stop(lease.index)

        if (
            lease.holder == self.identity
            and lease.epoch > self.epoch
            and self.deadline is not None
        ):
            self._lose(f"another process has the identity {self.identity!r}")

    def _fence_gone(self, index: int, missed: bool) -> None:
        part = self._ranges[index]
        if part.state in _WORKING:
            deadline = self.deadline
            if missed or deadline is None:
                self._stop(index)
            elif part.until is None:
                # What the watch shows from now on says nothing about this range: others
                # may take it once they have waited.
                part.until = deadline

    def _fence_answered(self, write: Write, outcome: Outcome, now: float) -> None:
        index = write.lease.index
        part = self._ranges[index]
        done = outcome is Outcome.OK
        if outcome is not Outcome.NO_ANSWER:
            self._to_create.discard(index)

        if part.state is RangeState.ACQUIRING:
            part.state = RangeState.NONE
            if done and self.deadline is not None and self._is_mine(write.lease):
                self._hold(index)
                part.answered = now
                part.until = None
        elif part.state is RangeState.RELEASING:
            if done and not write.lease.holder:
                part.state = RangeState.NONE
        elif part.state in _WORKING and done and self._is_mine(write.lease):
            part.until = None
            part.answered = now

    def _hold(self, index: int) -> None:
        part = self._ranges[index]
        part.state = RangeState.HELD
        part.unwanted = part.free = None
        part.cancelled = False
        self._commands.append(Start(index))

    def _stop(self, index: int) -> None:
        part = self._ranges[index]
        part.state = RangeState.STOPPING
        if not part.cancelled:
            self._cancel(index)

    def _cancel(self, index: int) -> None:
        part = self._ranges[index]
        part.cancelled = True
        part.quiet = None
        self._commands.append(Cancel(index))

    def _note_ends(self, now: float) -> bool:
        """Go on with ranges whose cancelled work has ended; return True for any."""
        any_ended = False
        for part in self._ranges:
            if part.quiet is None:
                continue

            if now < part.quiet:
                self._due(part.quiet)
                continue

            any_ended = True
            part.quiet = None
            part.cancelled = False
            drained = part.state is RangeState.DRAINING
            part.state = RangeState.RELEASING if drained else RangeState.NONE

        return any_ended

    def _claim(
        self, index: int, now: float, wall: datetime, owner: bool = True
    ) -> bool:
        """Write a fence as one's own, or as free. Return False if it has to wait."""
        base = self._view.fence(index)
        name = fence_name(self._blank.group, index)
        at = self._may_write_at(name, base)
        if now < at:
            self._due(at)
            return False

        if len(self._writes) > _MAX_WRITES:
            return False  # an answer comes first

        stamp = self._stamp(wall)
        lease = replace(
            self._blank,
            role=Role.FENCE,
            name=name,
            index=index,
            holder=self.identity if owner else "",
            epoch=self.epoch if owner else 0,
            acquired=stamp,
            renewed=stamp,
            seconds=math.ceil(self.timing.lease_duration),
            moves=(0 if base is None else base.moves) + owner,
        )
        if owner and not self._owner:
            self._owner = True
            self._renew_at = now

        self._write(lease, base, now)
        return True

    # ------------------------------------------------------------ decisions

    def step(self, now: float, wall: datetime) -> list[Command]:
        """Return what to do now.

        Args:
            now: Current time.
            wall: Current date and time, informational.
        """
        self._check_deadline(now)
        if now >= self.next_due:
            dirty, self._dirty = self._dirty, False
            self.next_due = math.inf
            dirty |= self._note_ends(now)
            if self.state is MemberState.LOST:
                self._rejoin(now)

            if self.state is MemberState.JOINING and self._view.synced:
                if self._leaving:
                    self._end(now)
                else:
                    self._renew(now, wall)

            if (deadline := self.deadline) is not None:
                self._due(deadline)
                if not self._ending:
                    self._renew(now, wall)

                if dirty or now >= self._plan_at:
                    self._plan(now, wall)

                self._due(self._plan_at)
            elif dirty:
                self._note_owners(now)

        commands, self._commands = self._commands, []
        return commands

    def _plan(self, now: float, wall: datetime) -> None:
        """Compare the ranges with what they should be, and change what differs."""
        due, self.next_due = self.next_due, math.inf
        others, unable = self._view.eligible(now, self.identity)
        self._assign(now, others, unable)
        self._write_for_others(now, wall, others)
        for index, part in enumerate(self._ranges):
            self._plan_range(index, part, now, wall)

        self._note_owners(now)
        if (
            self.state is MemberState.LEAVING
            and self._has_ended()
            and not any(
                write.lease.role is Role.FENCE for write in self._writes.values()
            )
        ):
            self._end(now)

        self._plan_at = self.next_due
        self.next_due = due

    def _assign(self, now: float, others: list[str], unable: list[str]) -> None:
        if self._leaving:
            pass
        elif now < self._unable_until:
            unable.append(self.identity)
            self._due(self._unable_until)
        else:
            others = [*others, self.identity]

        members = sorted(others or unable)
        holders = []
        for index, part in enumerate(self._ranges):
            fence = self._view.fence(index)
            holder = "" if fence is None else fence.holder
            holders.append(self.identity if part.state in _WORKING else holder)

        if (members, holders) != self._wanted_for:
            self._wanted_for = members, holders
            self._wanted = assign(holders, members)
            self._eligible = tuple(members)

    def _plan_range(self, index: int, part: _Range, now: float, wall: datetime) -> None:
        wanted = self._wanted[index] == self.identity
        fence = self._view.fence(index)
        if part.state in _WORKING and self._is_lost(index, part, now):
            self._stop(index)
        elif part.state in _WORKING and fence is None:
            self._claim(index, now, wall)  # it was deleted

        if part.state is RangeState.HELD:
            self._plan_held(index, part, wanted, now)

        if part.state is RangeState.DRAINING and not part.cancelled:
            if wanted:
                self._hold(index)
            elif now >= part.drained_by:
                self._cancel(index)
            else:
                self._due(part.drained_by)

        if part.state is RangeState.RELEASING:
            if wanted or (
                fence is not None and not self._is_mine(fence)
            ):  # the work has ended, so it begins by a write, as elsewhere
                part.state = RangeState.NONE
            else:
                self._claim(index, now, wall, owner=False)

        if part.state is RangeState.NONE:
            self._plan_unheld(index, part, wanted, now, wall)

    def _is_lost(self, index: int, part: _Range, now: float) -> bool:
        """Return True if another member may soon take a range, or has taken it."""
        if part.until is not None:
            if now >= part.until:
                return True

            self._due(part.until)

        # A newer own Lease was seen, so the fence would have been: a list skipped it.
        name = fence_name(self._blank.group, index)
        return name in self._view.written and (self._echo or 0.0) > part.answered

    def _plan_held(self, index: int, part: _Range, wanted: bool, now: float) -> None:
        if wanted:
            part.unwanted = None
            return

        if part.unwanted is None:
            part.unwanted = now

        at = part.unwanted + (0.0 if self._leaving else SETTLE)
        if now < at:
            self._due(at)
            return

        taker = self._wanted[index]
        if not self._leaving and (not taker or self._view.is_joining(taker)):
            return  # it could not take the range yet

        part.state = RangeState.DRAINING
        part.drained_by = now + self.timing.drain
        self._due(part.drained_by)
        self._commands.append(Drain(index))

    def _plan_unheld(
        self, index: int, part: _Range, wanted: bool, now: float, wall: datetime
    ) -> None:
        fence = self._view.fence(index)
        if fence is None:
            free = self._view.is_absent(index, now)
            if wanted and not free:
                self._due(self._view.absent[index] + self.timing.lease_duration)
        else:
            free = self._view.is_free(fence) or self._is_mine(fence)

        if not (wanted and free):
            part.free = None
            if fence is not None and self._is_mine(fence):
                part.state = RangeState.RELEASING  # an unanswered write arrived
                self._claim(index, now, wall, owner=False)

            return

        if part.free is None:
            part.free = now
        elif now >= part.free + self.timing.unable:
            self._give_up(now)
            return

        self._due(part.free + self.timing.unable)
        if self._claim(index, now, wall):
            part.state = RangeState.ACQUIRING

    def _give_up(self, now: float) -> None:
        """Ask for no range for a while: this member could not take one that was free."""
        self._unable_until = now + _INELIGIBLE
        self._renew_at = now
        for part in self._ranges:
            part.free = None

        self._touch()

    def _write_for_others(self, now: float, wall: datetime, others: list[str]) -> None:
        """Write the Leases of the group, and of members that cannot write their own."""
        self._found(now, wall, others)
        silent, again = self._view.expired(now, self.identity, others)
        self._due(again)
        for lease in silent:
            self._expel(lease, lease, now, wall)

        for name, (fence, since) in self._view.unknown(now).items():
            if name == self._name:
                continue

            at = since + self.timing.lease_duration
            at += self._view.pause(name, self.identity, others)
            if now < at:
                self._due(at)
            else:
                blank = replace(self._blank, name=name, epoch=fence.epoch)
                self._expel(blank, None, now, wall)

        for lease in self._view.abandoned(now, self.identity, others):
            if now >= self._may_write_at(lease.name, lease):
                self._write(lease, lease, now, verb="delete")

    def _expel(
        self, lease: ShardLease, base: ShardLease | None, now: float, wall: datetime
    ) -> None:
        """Write that a member's epoch has ended, unless the member writes first."""
        at = self._may_write_at(lease.name, base)
        if now < at:
            self._due(at)
            return

        stamp = self._stamp(wall)
        flags = frozenset({Flag.OWNER})
        gone = replace(lease, holder="", flags=flags, seconds=1, renewed=stamp)
        self._write(gone, base, now)

    def _found(self, now: float, wall: datetime, others: list[str]) -> None:
        """Create the Lease of the group, and the fences of a group that is new."""
        name = self._blank.group
        if name in self._view.written:
            return  # the watch shows it soon

        if self._view.group is None:
            pause = self._view.pause(name, self.identity, others)
            at = max(self._group_gone + pause, self._may_write_at(name, None))
            if now < at:
                self._due(at)
                return

            stamp = self._stamp(wall)
            group = replace(
                self._blank,
                role=Role.GROUP,
                name=name,
                holder=self.identity,
                epoch=self.epoch,
                acquired=stamp,
                renewed=stamp,
            )
            self._write(group, None, now)

        elif self._founded is not None and self._echo is not None:
            # By then, all members that can work have shown themselves: they create
            # their deleted Leases again. An own renewal that was sent later proves that
            # the view is as new.
            at = self._founded + self.timing.retry_period + self.timing.flight
            if now < at:
                self._due(at)
                self._renew_at = min(self._renew_at, at)
            elif self._echo >= at:
                self._founded = None
                if self._view.is_new():
                    self._to_create.update(range(len(self._ranges)))

        for index in sorted(self._to_create):
            if self._view.fence(index) is not None:
                self._to_create.discard(index)
            else:
                self._claim(index, now, wall, owner=False)

    def _write(
        self,
        lease: ShardLease,
        base: ShardLease | None,
        now: float,
        verb: Literal["update", "delete"] = "update",
    ) -> None:
        if base is None:
            write = Write("create", replace(lease, version="", uid=""), now)
        else:
            write = Write(verb, replace(lease, version=base.version, uid=base.uid), now)

        self._writes[lease.name] = write
        self._commands.append(write)

    def _may_write_at(self, name: str, base: ShardLease | None) -> float:
        """Return the earliest time of the next write of a Lease."""
        if name in self._writes:
            return math.inf

        retry = self._retry.get(name)
        version = "" if base is None else base.version
        if retry is None or retry.version not in (None, version):
            return -math.inf

        return retry.at

    def _due(self, at: float) -> None:
        self.next_due = min(self.next_due, at)

    def _touch(self) -> None:
        self._dirty = True
        self.next_due = -math.inf

    def _draw(self) -> float:
        """Return a number in [0, 1) that differs between members and calls."""
        self._draws += 1
        return score(f"{self.identity}/{self.epoch}", self._draws) / HASHES

    def _pause(self) -> float:
        return self.timing.retry_failed * (0.75 + 0.5 * self._draw())

    # ------------------------------------------------------------ views

    def owns(self, index: int, now: float) -> bool:
        """Return True if work on a range may go on and write at this moment."""
        part, deadline = self._ranges[index], self.deadline
        return (
            part.state in _WORKING
            and deadline is not None
            and now < deadline
            and (part.until is None or now < part.until)
        )

    @property
    def deadline(self) -> float | None:
        """Time until which this member may work, or None if it may not."""
        if self._echo is None or self.state not in (
            MemberState.LIVE,
            MemberState.LEAVING,
        ):
            return None

        return self._work_until(self._echo)

    @property
    def states(self) -> tuple[RangeState, ...]:
        """State of each range at this member."""
        return tuple(part.state for part in self._ranges)

    @property
    def held(self) -> frozenset[int]:
        """Ranges of which this member starts new work."""
        return frozenset(
            index
            for index, part in enumerate(self._ranges)
            if part.state is RangeState.HELD
        )

    @property
    def wanted(self) -> frozenset[int]:
        """Ranges that this member has or should have."""
        if self.deadline is None:
            return frozenset()

        return frozenset(
            index
            for index, (part, member) in enumerate(
                zip(self._ranges, self._wanted, strict=True)
            )
            if member == self.identity or part.state in _WORKING
        )

    @property
    def owners(self) -> tuple[str, ...]:
        """Identity of the owner of each range as seen here; empty for none."""
        return self._owners

    @property
    def unowned(self) -> Mapping[int, float]:
        """Ranges without an owner, and the time since which that was seen."""
        return dict(self._unowned)

    @property
    def eligible(self) -> tuple[str, ...]:
        """Identities of the members that may be given ranges."""
        return self._eligible

    def _note_owners(self, now: float) -> None:
        owners = []
        for index, part in enumerate(self._ranges):
            owner = (
                self.identity
                if part.state in _WORKING
                else self._view.owner(index, now, but=self.identity)
            )
            owners.append(owner)
            if owner:
                self._unowned.pop(index, None)
            else:
                self._unowned.setdefault(index, now)

        self._owners = tuple(owners)
