"""A member of a shard group, driven by hand: the test says what is answered and shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioinformer.controller.shards.lease import Flag, Role, ShardLease, fence_name
from aioinformer.controller.shards.lease import member_name as name_of
from aioinformer.controller.shards.member import (
    Cancel,
    Drain,
    Member,
    Outcome,
    RangeState,
    Start,
    Write,
)

if TYPE_CHECKING:
    from shard_server import LeaseServer

    from aioinformer.controller.shards.timing import ShardTiming

_EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Driver:
    """One member and its clock.

    Attributes:
        member: Member.
        now: Time of its clock.
        writes: Writes that the test has not answered.
        told: Other commands, in order.
        shows: False while the watch shows nothing.
        answers: False while no write is answered by itself.
        idle: True if drained and cancelled work ends at once.
    """

    def __init__(
        self,
        server: LeaseServer,
        identity: str = "a",
        *,
        ranges: int = 2,
        timing: ShardTiming | None = None,
    ) -> None:
        self.server = server
        self.member = Member(identity, "sites", timing, ranges=ranges)
        self.now = 100.0
        self.writes: list[Write] = []
        self.told: list[Start | Drain | Cancel] = []
        self.shows = self.answers = self.idle = True
        self._shown = len(server.log)
        for lease in server.leases.values():
            self.member.lease_seen(lease, self.now)

        self.member.synced(self.now)

    def run(self, seconds: float, step: float = 0.1) -> None:
        """Let time pass."""
        for _ in range(round(seconds / step)):
            self.now += step
            self.turn()

    def turn(self) -> None:
        """Do what is due now, once."""
        self.step()
        if self.answers:
            self.answer()

        if self.shows:
            self.watch()

        self.step()

    def step(self) -> None:
        """Take the commands of the member."""
        wall = _EPOCH + timedelta(seconds=self.now)
        for command in self.member.step(self.now, wall):
            if isinstance(command, Write):
                self.writes.append(command)
                continue

            self.told.append(command)
            if self.idle and not isinstance(command, Start):
                self.member.ended(command.index, self.now)

    def watch(self) -> None:
        """Show all changes that were not shown."""
        while self._shown < len(self.server.log):
            change = self.server.log[self._shown]
            self._shown += 1
            if change.lease is None:
                self.member.lease_gone(change.name, self.now)
            else:
                self.member.lease_seen(change.lease, self.now)

    def relist(self) -> None:
        """List all Leases in the place of changes that were not shown."""
        known: dict[str, ShardLease] = {}
        for change in self.server.log[: self._shown]:
            known.pop(change.name, None)
            if change.lease is not None:
                known[change.name] = change.lease

        self._shown = len(self.server.log)
        for name in known.keys() - self.server.leases.keys():
            self.member.lease_gone(name, self.now, missed=True)

        for name, lease in self.server.leases.items():
            if known.get(name) != lease:
                self.member.lease_seen(lease, self.now)

        self.member.synced(self.now)

    def answer(self, *outcomes: Outcome) -> None:
        """Apply and answer all writes; or answer them with these outcomes alone."""
        writes, self.writes = self.writes, []
        for number, write in enumerate(writes):
            if outcomes:
                outcome, version, uid = outcomes[number % len(outcomes)], "", ""
            else:
                self.server.requests += 1
                outcome, version, uid = self.server.write(write)

            self.member.answered(write, outcome, self.now, version=version, uid=uid)

    def answer_own(self) -> None:
        """Apply and answer the writes of the own Lease alone."""
        own = name_of("sites", self.member.identity)
        rest = [write for write in self.writes if write.lease.name != own]
        self.writes = [write for write in self.writes if write.lease.name == own]
        self.answer()
        self.writes = rest

    @property
    def started(self) -> list[int]:
        """Ranges that were started."""
        return [each.index for each in self.told if isinstance(each, Start)]

    def state(self, index: int) -> RangeState:
        return self.member.states[index]

    def fence(self, index: int) -> ShardLease | None:
        return self.server.leases.get(fence_name("sites", index))


def put(
    server: LeaseServer,
    role: Role,
    holder: str = "",
    epoch: int = 0,
    *,
    index: int = -1,
    owner: str = "",
    flags: tuple[Flag, ...] = (),
    ranges: int = 2,
) -> ShardLease:
    """Write a Lease as another replica, whatever its version.

    Args:
        server: Server.
        role: Role of the Lease.
        holder: Holder.
        epoch: Epoch.
        index: Range of a fence.
        owner: Identity that names a member's Lease; that of the holder if empty.
        flags: Flags.
        ranges: Number of ranges of the group.
    """
    name = {
        Role.GROUP: "sites",
        Role.MEMBER: name_of("sites", owner or holder),
        Role.FENCE: fence_name("sites", index),
    }[role]
    there = server.leases.get(name)
    lease = ShardLease(
        "sites",
        role,
        name,
        holder,
        epoch,
        ranges,
        "uid",
        index,
        frozenset(flags),
        renewed=f"by hand {len(server.log)}",
        version="" if there is None else there.version,
        uid="" if there is None else there.uid,
    )
    outcome, _, _ = server.write(
        Write("create" if there is None else "update", lease, 0)
    )
    assert outcome is Outcome.OK
    return server.leases[name]
