"""Commands of a member, and its writes until they are answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from aioinformer.controller.shards.assignment import score
from aioinformer.controller.shards.commands import Outcome, Write
from aioinformer.controller.shards.lease import Role
from aioinformer.model.shards import HASHES
from aioinformer.model.times import micro_time

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.controller.shards.commands import Command
    from aioinformer.controller.shards.lease import ShardLease
    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["Outbox"]

_MAX_WRITES: Final = 16
"""Writes that one member has under way before it writes no further fence."""

_LONGEST_PAUSE: Final = 10.0
"""Longest pause in seconds after a write that failed, without jitter."""


@dataclass(frozen=True, slots=True)
class _Retry:
    """Pause before a Lease is written again; not for another version of it, if given.

    Attributes:
        at: Time of its end.
        version: Version that it is for, or None for each.
        failures: Failures in succession.
        since: Time of the first of them.
    """

    at: float
    version: str | None
    failures: int
    since: float


class Outbox:
    """Commands that a member has not returned, and writes without an answer.

    Attributes:
        commands: Commands for the next step.
        writes: Writes under way, by the name of the Lease.
        overtaken: Names of those whose Lease was deleted, or may have been. Their answers
            do not tell whether it is there.

    Args:
        identity: Identity of the member.
        timing: Durations of the group.
    """

    def __init__(self, identity: str, timing: ShardTiming) -> None:
        self.commands: list[Command] = []
        self.writes: dict[str, Write] = {}
        self.overtaken: set[str] = set()
        self._identity = identity
        self._timing = timing
        self._retry: dict[str, _Retry] = {}
        self._last: datetime | None = None
        self._draws = 0

    @property
    def is_full(self) -> bool:
        """True while no fence should be written."""
        return len(self.writes) >= _MAX_WRITES

    def stamp(self, wall: datetime) -> str:
        """Return the date and time for a write, later than each one before."""
        if self._last is not None and wall <= self._last:
            wall = self._last + timedelta(microseconds=1)

        self._last = wall
        return micro_time(wall)

    def write(
        self,
        lease: ShardLease,
        base: ShardLease | None,
        now: float,
        verb: Literal["update", "delete"] = "update",
    ) -> None:
        """Write a Lease in the place of `base`; create it if that is None."""
        if base is None:
            write = Write("create", replace(lease, version="", uid=""), now)
        else:
            replaced = replace(lease, version=base.version, uid=base.uid)
            write = Write(verb, replaced, now)

        self.writes[lease.name] = write
        self.commands.append(write)

    def listed(self) -> None:
        """Record that a list has replaced the watch: it may have skipped any write."""
        writes = self.writes.items()
        own = self._identity
        self.overtaken |= {
            name
            for name, it in writes
            if it.lease.role is not Role.MEMBER or it.lease.holder != own
        }

    def deleted(self, name: str) -> None:
        """Record that the watch has shown the deletion of a Lease."""
        self._retry.pop(name, None)
        if name in self.writes:
            self.overtaken.add(name)

    def may_write_at(self, name: str, base: ShardLease | None) -> float:
        """Return the earliest time of the next write of a Lease."""
        if name in self.writes:
            return math.inf

        retry = self._retry.get(name)
        version = "" if base is None else base.version
        if retry is None or retry.version not in (None, version):
            return -math.inf

        return retry.at

    def answered(
        self, write: Write, outcome: Outcome, now: float, retry_after: float = 0.0
    ) -> bool:
        """Record an answer; return False if the write is no longer waited for.

        Args:
            write: Write that was sent.
            outcome: Outcome, by the server's answer.
            now: Current time.
            retry_after: Pause in seconds that the server asks for, if it answered with an
                error; 0 without an answer.
        """
        name = write.lease.name
        if self.writes.get(name) is not write:
            return False

        del self.writes[name]
        self.overtaken.discard(name)
        before = self._retry.pop(name, None)
        if outcome is Outcome.OK:
            if replaced := write.lease.version:  # until the watch shows another one
                at = now + self._timing.retry_period
                self._retry[name] = _Retry(at, replaced, 0, now)

            if write.lease.role is Role.FENCE:  # others may succeed, too
                retries = self._retry.items()
                self._retry = {it: replace(one, failures=0) for it, one in retries}

            return True

        failures, since = 1, now
        if before is not None and before.failures:
            failures, since = before.failures + 1, before.since

        version, first = None, self._timing.retry_failed
        if outcome is Outcome.CONFLICT:
            # Only another state of the Lease makes another attempt useful.
            version, first = write.lease.version, self._timing.retry_period
            if before is not None and before.version != version:
                failures, since = 1, now

        longest, doubles = _LONGEST_PAUSE, True
        if write.lease.role is Role.MEMBER and write.lease.holder == self._identity:
            # Until the deadline, each attempt counts, unless a server has refused it: it
            # may be overloaded. After the deadline, none is urgent.
            urgent = now - since < self._timing.renew_deadline
            longest = self._timing.retry_period * (1.0 if urgent else 1.5)
            doubles = retry_after > 0
            if doubles:
                first = longest / 2

            if not urgent:
                first = longest
            elif failures == 1 and outcome is Outcome.NO_ANSWER and not doubles:
                # The attempt has taken long enough: see `ShardTiming.unseen`.
                first = 0.0

        pause = first * 2 ** min(failures - 1, 10) if doubles else first
        pause = max(first, min(pause, longest)) * (0.75 + 0.5 * self.draw())
        at = now + max(pause, min(retry_after, longest))
        self._retry[name] = _Retry(at, version, failures, since)
        return True

    def forget_failures(self) -> None:
        """Write everything without a pause: the reason for failures may be gone."""
        self._retry.clear()

    def draw(self) -> float:
        """Return a number in [0, 1) that differs between members and calls."""
        self._draws += 1
        return score(self._identity, -self._draws) / HASHES
