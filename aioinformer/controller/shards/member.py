"""State machine of one member of a shard group. The package says how to drive it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from aioinformer.controller.shards.agreement import Agreement
from aioinformer.controller.shards.assignment import assign
from aioinformer.controller.shards.commands import (
    Cancel,
    Command,
    Drain,
    MemberState,
    Outcome,
    RangeRecord,
    RangeState,
    Start,
    Write,
)
from aioinformer.controller.shards.lease import (
    Flag,
    Role,
    ShardLease,
    blank_lease,
    disagreement,
    fence_name,
)
from aioinformer.controller.shards.outbox import Outbox
from aioinformer.controller.shards.own_lease import OwnLease
from aioinformer.controller.shards.timing import SETTLE, ShardTiming
from aioinformer.controller.shards.upkeep import Upkeep
from aioinformer.controller.shards.view import GroupView
from aioinformer.errors import OptionsError

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


class Member:
    """One replica of a shard group.

    Attributes:
        identity: Identity of this replica.
        timing: Durations.
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

        self.identity: str = identity
        self.timing: ShardTiming = ShardTiming() if timing is None else timing
        self.state: MemberState = MemberState.JOINING
        self.reason: str = ""
        self.refusal: str = ""
        self.next_due: float = -math.inf
        self._blank = blank_lease(group, ranges, field)
        self._view = GroupView(group, self.timing, ranges)
        self._outbox = Outbox(identity, self.timing)
        self._own = OwnLease(identity, self._blank, self.timing)
        self._agreement = Agreement(self._blank)
        self._upkeep = Upkeep(
            identity,
            self._blank,
            self._view,
            self._agreement,
            self._outbox,
            self.timing,
        )
        self._ranges = [RangeRecord() for _ in range(ranges)]
        self._dirty = True
        self._plan_at = -math.inf
        self._renew_at = -math.inf
        self._owner = False
        self._unable_until = -math.inf
        self._leaving = False
        self._ending = False
        self._end_by = math.inf
        self._wanted: tuple[str, ...] = ("",) * ranges
        self._wanted_for: tuple[list[str], list[str]] | None = None
        self._eligible: tuple[str, ...] = ()
        self._owners: tuple[str, ...] = ("",) * ranges
        self._unowned: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Member {self.identity}/{self.epoch} {self.state.value}>"

    # ------------------------------------------------------------ inputs

    def synced(self, now: float) -> None:
        """Record that all Leases of a list were passed to `lease_seen`."""
        working = [i for i, part in enumerate(self._ranges) if part.works]
        self._view.listed(now, working)
        self._upkeep.listed(now)
        self._outbox.listed()
        self._touch()

    def lease_seen(self, lease: ShardLease, now: float) -> None:
        """Record a Lease that the watch or a list has shown."""
        self._check_deadline(now)
        if not self._agrees(lease, now):
            return

        if lease.role is Role.MEMBER:
            seen = self._view.members.get(lease.name)
            before = None if seen is None else seen.lease
            self._view.see(lease, now)
            if lease.name == self._own.name:
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
                self._fence_seen(lease, now)
            elif self._upkeep.created is None and self._own.is_mine(lease):
                self._upkeep.created = now

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
        self._agreement.forget(name)
        self._outbox.deleted(name)
        if name == self._blank.group:
            self._upkeep.group_gone(now)
        elif name == self._own.name:
            self._renew_at = min(self._renew_at, now)
        elif index is not None:
            self._upkeep.to_create.discard(index)
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
        retry_after: float = 0.0,
    ) -> None:
        """Record the outcome of a write.

        Args:
            write: Write that was sent.
            outcome: Outcome, by the server's answer.
            now: Current time.
            version: `resourceVersion` of the Lease after a create or an update.
            uid: Its uid.
            retry_after: See `Outbox.answered`.
        """
        self._check_deadline(now)
        shown = self._view.shown(write.lease)
        answer = replace(write.lease, version=version, uid=uid)
        overtaken = write.lease.name in self._outbox.overtaken or (
            shown is not None and self._view.is_newer(shown, answer)
        )
        if not self._outbox.answered(write, outcome, now, retry_after):
            return  # the watch was faster

        if overtaken and outcome is Outcome.OK:
            outcome = Outcome.NO_ANSWER  # the watch shows whether it is there

        if outcome is Outcome.CONFLICT:
            self._view.refused(write.lease)
        elif outcome is Outcome.OK and write.verb != "delete":
            self._view.wrote(answer)

        if write.lease.name == self._own.name:
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
            part.quiet = now + self.timing.longest_flight

        self._touch()

    def decline(self, now: float, seconds: float) -> None:
        """Ask for no range for a while, unless no other member can have it."""
        self._check_deadline(now)
        if now >= self._unable_until:
            self._renew_at = now

        self._unable_until = max(self._unable_until, now + seconds)
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

    def _agrees(self, lease: ShardLease, now: float) -> bool:
        """Return True if a Lease belongs to a group as this member's; or refuse to join."""
        if self._agreement.see(lease, now):
            return True

        if self.state is MemberState.JOINING and not self.epoch:
            self._refuse(lease, now)

        self._touch()
        return False

    def _refuse(self, lease: ShardLease, now: float) -> None:
        """Leave a group whose Lease differs."""
        if self.refusal:
            return

        self.refusal = disagreement(self._blank, lease)
        self.reason = "another number of ranges or another field"
        self.leave(now)

    def _own_seen(self, lease: ShardLease, now: float) -> None:
        if self._own.see(lease):
            write = self._outbox.writes.get(lease.name)
            if write is not None and write.lease.renewed == lease.renewed:
                self._outbox.answered(write, Outcome.OK, now)  # as good as an answer
                self._own_answered(write, Outcome.OK, now)
                self._touch()

            if self._upkeep.created is not None or self._view.written:
                self._touch()

            deadline = self._own.deadline
            if (
                self.state is MemberState.JOINING
                and deadline is not None
                and now < deadline
            ):
                if self._view.newest_epoch(self.identity) > self.epoch:
                    self._renew_at = now  # in a newer epoch
                    self._touch()
                else:
                    self._begin(now)
        elif self.state is MemberState.LOST:
            self._touch()
        elif self._own.was_sent and lease.epoch >= self.epoch:
            expelled = "it was expelled: others saw no renewal in time"
            other = f"another process has the identity {self.identity!r}"
            self._lose(other if lease.holder else expelled)
        elif self.state is MemberState.JOINING:
            self._touch()

    def _begin(self, now: float) -> None:
        self.state = MemberState.LEAVING if self._leaving else MemberState.LIVE
        self.reason = ""
        # The watch has shown what was answered earlier, or a list has skipped its end.
        self._view.written.clear()
        self._outbox.forget_failures()
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
        self._own.end_epoch()
        self._upkeep.forget()
        for index, part in enumerate(self._ranges):
            if part.works:
                self._stop(index)
            elif part.state is not RangeState.STOPPING:
                part.state = RangeState.NONE

        self._touch()

    def _own_answered(self, write: Write, outcome: Outcome, now: float) -> None:
        if outcome is not Outcome.OK or write.lease.flags != self._flags(now):
            self._renew_at = now  # or after a pause of the outbox
            if outcome is Outcome.CONFLICT and self.deadline is not None:
                self._own.refused = write.lease.version
                if write.verb == "create":
                    self._renew_at += self.timing.retry_period
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
        base = self._own.base(self._view.member(self.identity))
        at = max(self._renew_at, self._outbox.may_write_at(self._own.name, base))
        if self.state is MemberState.JOINING and base is not None and base.holder:
            seen = self._view.members.get(self._own.name)
            if seen is not None and not self._own.is_own(base):
                self.reason = f"another process has the identity {self.identity!r}"
                at = max(at, self._view.silent_at(seen))

        newest = self._view.newest_epoch(self.identity)
        if base is None and self.state is MemberState.JOINING and newest > self.epoch:
            # Its Lease was deleted, and it may still work.
            self.reason = f"another process had the identity {self.identity!r}"
            at = max(at, self._view.since + self._view.wait)

        if now < at:
            self._due(at)
            return

        if self.state is MemberState.JOINING:
            ours = base is not None and self._own.is_current(base)
            begun = self._own.was_sent and newest <= self.epoch
            if not begun or (newest == self.epoch and not ours):
                self._own.begin_epoch(newest)

        stamp = self._outbox.stamp(wall)
        lease = self._own.renewal(base, self._flags(now), stamp, now)
        self._renew_at = now + self.timing.retry_period
        self._outbox.write(lease, base, now)

    def _rejoin(self, now: float) -> None:
        """Join again, or leave, once all work has ended."""
        if not self._has_ended():
            return

        if self._leaving:
            self._end(now)
            return

        self.state = MemberState.JOINING
        # All members come back at once when the API does.
        self._renew_at = now + self.timing.retry_failed * self._outbox.draw()

    def _has_ended(self) -> bool:
        return all(part.state is RangeState.NONE for part in self._ranges)

    def _end(self, now: float) -> None:
        """Give up the own Lease as the last write, if it is there."""
        if self._own.name in self._outbox.writes:
            return  # the answer shows whether it is

        base = self._view.member(self.identity)
        if base is None or not base.holder or not self._own.is_own(base):
            self.state = MemberState.LEFT
            return

        if not self._ending:
            self._ending = True
            self._end_by = now + self.timing.retry_period

        at = self._outbox.may_write_at(self._own.name, base)
        if now < at:
            self._due(at)
            return

        named = any(
            fence is not None and self._own.is_mine(fence)
            for fence in map(self._view.fence, range(len(self._ranges)))
        )
        if named:  # the Lease must say that this epoch has ended
            gone = replace(base, holder="", flags=base.flags & {Flag.OWNER})
            self._outbox.write(gone, base, now)
        else:
            self._outbox.write(base, base, now, verb="delete")

    # ------------------------------------------------------------ fences

    def _fence_seen(self, lease: ShardLease, now: float) -> None:
        part = self._ranges[lease.index]
        newest = self._view.fence(lease.index)
        if newest is not lease:  # older than an answered write
            return

        if self._own.is_mine(lease):
            part.keep(now)
        elif part.works:
            self._stop(lease.index)

        if (
            lease.holder == self.identity
            and lease.epoch > self.epoch
            and self.deadline is not None
        ):
            self._lose(f"another process has the identity {self.identity!r}")

    def _fence_gone(self, index: int, missed: bool) -> None:
        part = self._ranges[index]
        if part.works:
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
        # Without an answer, it may arrive when somebody has had the range already.
        self._upkeep.to_create.discard(index)
        if part.state is RangeState.ACQUIRING:
            part.state = RangeState.NONE
            if done and self.deadline is not None and self._own.is_mine(write.lease):
                self._hold(index)
                part.answered = now
                part.until = None
        elif part.state is RangeState.RELEASING:
            if done and not write.lease.holder:
                part.state = RangeState.NONE
        elif part.works and done and self._own.is_mine(write.lease):
            part.keep(now)
            part.answered = now

    def _hold(self, index: int) -> None:
        part = self._ranges[index]
        part.state = RangeState.HELD
        part.unwanted = part.free = None
        part.cancelled = False
        self._outbox.commands.append(Start(index))

    def _stop(self, index: int) -> None:
        part = self._ranges[index]
        part.state = RangeState.STOPPING
        if not part.cancelled:
            self._cancel(index)

    def _cancel(self, index: int) -> None:
        part = self._ranges[index]
        part.cancelled = True
        part.quiet = None
        self._outbox.commands.append(Cancel(index))

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
        """Write a fence as one's own, or as free. Return False if it has to wait.

        All fences of a new group are created at once, as nobody can have worked there.
        """
        base = self._view.fence(index)
        name = fence_name(self._blank.group, index)
        at = self._outbox.may_write_at(name, base)
        if now < at:
            self._due(at)
            return False

        if self._outbox.is_full:
            return False  # an answer comes first

        created = base is None and index not in self._upkeep.to_create
        if base is not None and not owner:
            # Nobody else has worked if this member has owned the range for so long.
            proved = self._ranges[index].answered + self._view.wait
            created = Flag.CREATED in base.flags and now < proved

        flags = frozenset({Flag.CREATED} if created else ())
        lease = self._own.fence(index, base, owner, self._outbox.stamp(wall), flags)
        if owner and not self._owner:
            self._owner = True
            self._renew_at = now

        self._outbox.write(lease, base, now)
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
            if (other := self._agreement.broken) is not None:
                self._refuse(other, now)

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

        commands, self._outbox.commands = self._outbox.commands, []
        return commands

    def _plan(self, now: float, wall: datetime) -> None:
        """Compare the ranges with what they should be, and change what differs."""
        due, self.next_due = self.next_due, math.inf
        others, unable = self._view.eligible(now, self.identity)
        self._assign(now, others, unable)
        self._keep_up(now, wall, others)
        me = self.identity
        for index, part in enumerate(self._ranges):
            if part.state is RangeState.NONE and self._wanted[index] != me:
                # Nothing is to be done for most ranges.
                fence = self._view.fences[index]
                if fence is not None and fence.holder != me and part.free is None:
                    continue

            self._plan_range(index, part, now, wall)

        self._note_owners(now)
        done = self.state is MemberState.LEAVING and self._has_ended()
        if done and not self._outbox.writes:
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
        holders = self._view.holders()
        for index, part in enumerate(self._ranges):
            if part.state is not RangeState.NONE and part.works:
                holders[index] = self.identity

        if (members, holders) != self._wanted_for:
            self._wanted_for = members, holders
            self._wanted = assign(holders, members)
            self._eligible = tuple(members)

    def _plan_range(
        self, index: int, part: RangeRecord, now: float, wall: datetime
    ) -> None:
        wanted = self._wanted[index] == self.identity
        fence = self._view.fence(index)
        if part.works and self._is_lost(index, part, now):
            self._view.not_shown(index)
            self._stop(index)
        elif part.works and fence is None:
            self._claim(index, now, wall)  # it was deleted
        elif part.works and fence is not None and Flag.CREATED in fence.flags:
            if now >= (proved := part.answered + self._view.wait):
                self._claim(index, now, wall)  # nobody else can have worked
            else:
                self._due(proved)

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
            if wanted or (fence is not None and not self._own.is_mine(fence)):
                # Only the answer to another write makes it held.
                part.state = RangeState.NONE
            else:
                self._claim(index, now, wall, owner=False)

        if part.state is RangeState.NONE:
            self._plan_unheld(index, part, wanted, now, wall)

    def _is_lost(self, index: int, part: RangeRecord, now: float) -> bool:
        """Return True if another member may soon take a range, or has taken it."""
        if part.until is not None:
            if now >= part.until:
                return True

            self._due(part.until)

        # A newer own Lease was seen, so the fence would have been: a list skipped it.
        name = fence_name(self._blank.group, index)
        return name in self._view.written and (self._own.echo or 0.0) > part.answered

    def _plan_held(
        self, index: int, part: RangeRecord, wanted: bool, now: float
    ) -> None:
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
        self._outbox.commands.append(Drain(index))

    def _plan_unheld(
        self, index: int, part: RangeRecord, wanted: bool, now: float, wall: datetime
    ) -> None:
        fence = self._view.fence(index)
        at = self._view.free_at(index, self.identity, self.epoch)
        if not wanted or now < at:
            part.free = None
            if wanted:
                self._due(at)

            if fence is not None and self._own.is_mine(fence):
                part.state = RangeState.RELEASING  # an unanswered write arrived
                part.answered = now
                self._claim(index, now, wall, owner=False)

            return

        if part.free is None:
            part.free = now
        elif self._can_take_none(now):
            self._give_up(now)
            return

        if (at := part.free + self.timing.unable) > now:
            self._due(at)

        owner = fence is not None
        if self._claim(index, now, wall, owner) and owner:
            part.state = RangeState.ACQUIRING

    def _can_take_none(self, now: float) -> bool:
        """Return True if it works on nothing, and all that it wants was free for long.

        A fence that nobody can write would only be passed around, and others with it.
        """
        before = now - self.timing.unable
        mine = [self._ranges[index] for index in self.wanted]
        return all(it.free is not None and it.free <= before for it in mine)

    def _give_up(self, now: float) -> None:
        """Ask for no range for a while: this member could not take one that was free."""
        self._unable_until = now + self.timing.ineligible
        self._renew_at = now
        for part in self._ranges:
            part.free = None

        self._touch()

    def _keep_up(self, now: float, wall: datetime, others: list[str]) -> None:
        """Write Leases that are not this member's alone."""
        upkeep = self._upkeep
        self._due(upkeep.write(now, wall, self._own, others))
        at = upkeep.decided_at
        if at is not None and now < at:
            self._renew_at = min(self._renew_at, at)
            self._due(at)

        for index in sorted(upkeep.to_create):
            if self._view.fence(index) is None:
                self._claim(index, now, wall, owner=False)
            else:
                upkeep.to_create.discard(index)

    def _due(self, at: float) -> None:
        self.next_due = min(self.next_due, at)

    def _touch(self) -> None:
        self._dirty = True
        self.next_due = -math.inf

    # ------------------------------------------------------------ views

    def owns(self, index: int, now: float) -> bool:
        """Return True if work on a range may go on and write at this moment."""
        part, deadline = self._ranges[index], self.deadline
        return (
            part.works
            and deadline is not None
            and now < deadline
            and (part.until is None or now < part.until)
        )

    @property
    def deadline(self) -> float | None:
        """Time until which this member may work, or None if it may not."""
        lives = self.state in (MemberState.LIVE, MemberState.LEAVING)
        return self._own.deadline if lives else None

    @property
    def renewed(self) -> float | None:
        """Time at which the last renewal was sent that was seen; None if not a member."""
        return None if self.deadline is None else self._own.echo

    @property
    def epoch(self) -> int:
        """Number that grows with each join of this member."""
        return self._own.epoch

    @property
    def states(self) -> tuple[RangeState, ...]:
        """State of each range at this member."""
        return tuple(part.state for part in self._ranges)

    @property
    def held(self) -> frozenset[int]:
        """Ranges of which this member starts new work."""
        return frozenset(i for i, it in enumerate(self.states) if it is RangeState.HELD)

    @property
    def wanted(self) -> frozenset[int]:
        """Ranges that this member has or should have."""
        if self.deadline is None:
            return frozenset()

        pairs = enumerate(zip(self._ranges, self._wanted, strict=True))
        me = self.identity
        return frozenset(i for i, (part, one) in pairs if part.works or one == me)

    @property
    def owners(self) -> tuple[str, ...]:
        """Identity of the owner of each range as seen here; empty for none."""
        return self._owners

    @property
    def unowned(self) -> Mapping[int, float]:
        """Ranges without an owner, and the time since which that was seen."""
        return dict(self._unowned)

    @property
    def assigned(self) -> tuple[str, ...]:
        """Identity of the member that each range should have; empty for none."""
        return self._wanted

    @property
    def eligible(self) -> tuple[str, ...]:
        """Identities of the members that may be given ranges."""
        return self._eligible

    def _note_owners(self, now: float) -> None:
        owners = self._view.owners(now)
        for index, part in enumerate(self._ranges):
            if part.state is not RangeState.NONE and part.works:
                owners[index] = self.identity
            elif owners[index] == self.identity:
                owners[index] = ""

        self._owners = tuple(owners)
        unowned = [index for index, owner in enumerate(owners) if not owner]
        self._unowned = {index: self._unowned.get(index, now) for index in unowned}
