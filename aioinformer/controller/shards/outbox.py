"""Commands of a member, and its writes until they are answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from aioinformer.controller.shards.assignment import score
from aioinformer.controller.shards.commands import Outcome, Write
from aioinformer.model.shards import HASHES
from aioinformer.model.times import micro_time

if TYPE_CHECKING:
    from datetime import datetime

    from aioinformer.controller.shards.commands import Command
    from aioinformer.controller.shards.lease import ShardLease
    from aioinformer.controller.shards.timing import ShardTiming

__all__ = ["Outbox"]


@dataclass(frozen=True, slots=True)
class _Retry:
    """Pause before a Lease is written again; not for another version of it, if given."""

    at: float
    version: str | None


class Outbox:
    """Commands that a member has not returned, and writes without an answer.

    Attributes:
        commands: Commands for the next step.
        writes: Writes under way, by the name of the Lease.

    Args:
        identity: Identity of the member.
        timing: Durations of the group.
    """

    def __init__(self, identity: str, timing: ShardTiming) -> None:
        self.commands: list[Command] = []
        self.writes: dict[str, Write] = {}
        self._identity = identity
        self._timing = timing
        self._retry: dict[str, _Retry] = {}
        self._last: datetime | None = None
        self._draws = 0

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

    def may_write_at(self, name: str, base: ShardLease | None) -> float:
        """Return the earliest time of the next write of a Lease."""
        if name in self.writes:
            return math.inf

        retry = self._retry.get(name)
        version = "" if base is None else base.version
        if retry is None or retry.version not in (None, version):
            return -math.inf

        return retry.at

    def answered(self, write: Write, outcome: Outcome, now: float) -> bool:
        """Record an answer; return False if the write is no longer waited for."""
        name = write.lease.name
        if self.writes.get(name) is not write:
            return False

        del self.writes[name]
        self._retry.pop(name, None)
        if outcome is Outcome.CONFLICT:
            # Only another state of the Lease makes another attempt useful.
            at = now + self._timing.retry_period
            self._retry[name] = _Retry(at, write.lease.version)
        elif outcome is Outcome.NO_ANSWER:
            self._retry[name] = _Retry(now + self.pause(), None)

        return True

    def draw(self) -> float:
        """Return a number in [0, 1) that differs between members and calls."""
        self._draws += 1
        return score(self._identity, -self._draws) / HASHES

    def pause(self) -> float:
        """Return the pause after a write that failed."""
        return self._timing.retry_failed * (0.75 + 0.5 * self.draw())
