"""Replica of a simulated shard group: a member, its clock, its watch and its work."""

from __future__ import annotations

import math
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from aioinformer.controller.shards.member import (
    Cancel,
    Drain,
    Member,
    MemberState,
    Outcome,
    Start,
    Write,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shard_simulation import Simulation


_EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Replica:
    """One replica, driven as the docstring of `member` says.

    Attributes:
        member: State machine.
        alive: False after a kill, or once it has left.
        paused: True while the process stands still.
        cut: True while no request arrives, as in a partition.
        stale: True while the watch shows nothing.
        failing: Share of requests that fail.
        losing: Share of requests that are applied, and whose answer is lost.
        slow: Mean of each way of a request in seconds.
        lag: Delay of the watch in seconds.
    """

    def __init__(self, world: Simulation, identity: str, rate: float) -> None:
        self.world = world
        self.random: random.Random = world.random
        self.identity = identity
        self.member = Member(identity, "sites", world.timing, ranges=world.ranges)
        self.alive = True
        self.paused = self.cut = self.stale = False
        self.failing = self.losing = 0.0
        self.slow = 0.02
        self.lag = world.random.choice(world.lags)
        self.rate = rate
        self.started = world.now
        self.offset = world.random.uniform(0, 1000)
        self.skew = timedelta(seconds=world.random.uniform(-30, 30))
        # Keys in work by range, and ranges of which work may start.
        self.work: dict[int, set[int]] = {}
        self.open: dict[int, None] = {}
        self._shown = 0
        self._known: dict[str, None] = {}  # in order
        self._arriving: deque[tuple[float, int]] = deque()
        self._inbox: list[Callable[[], None]] = []
        self._timer = math.inf
        world.after(world.random.uniform(0.05, 0.3), self.list)

    # ------------------------------------------------------------ clock

    def local(self) -> float:
        return self.offset + (self.world.now - self.started) * self.rate

    def wall(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.world.now) + self.skew

    # ------------------------------------------------------------ watch

    def list(self) -> None:
        """List all Leases, and watch from there. Order within a list means nothing."""
        if not self.alive or self.paused:
            return

        if not self.reaches():
            self.world.after(1.0, self.list)
            return

        server = self.world.server
        server.requests += 1
        now = self.local()
        names = list(server.leases)
        self.random.shuffle(names)
        gone = [name for name in self._known if name not in server.leases]
        for name in names:
            self.member.lease_seen(server.leases[name], now)

        for name in gone:
            self.member.lease_gone(name, now, missed=True)

        self._known = dict.fromkeys(names)
        self._shown = len(server.log)
        self._arriving.clear()
        self.member.synced(now)
        self.world.watching[self] = None
        self.drive()

    def reaches(self) -> bool:
        return not self.cut and self.world.up

    def arrives(self, index: int) -> None:
        """Schedule a change of the log that the watch delivers."""
        at = self.world.now + self.lag * self.random.uniform(0.5, 1.5)
        if self._arriving:
            at = max(at, self._arriving[-1][0])
            self._arriving.append((at, index))
        else:
            self._arriving.append((at, index))
            self.world.at(at, self._deliver)

    def _deliver(self) -> None:
        if not self.alive or self.paused or self.stale or not self.reaches():
            return

        now, server, limit = self.local(), self.world.server, self.world.now + 0.005
        while self._arriving and self._arriving[0][0] <= limit:
            index = self._arriving.popleft()[1]
            if index < self._shown:
                continue

            self._shown = index + 1
            change = server.log[index]
            if change.lease is not None:
                self._known[change.name] = None
                self.member.lease_seen(change.lease, now)
            else:
                self._known.pop(change.name, None)
                self.member.lease_gone(change.name, now)

        if self._arriving:
            self.world.at(self._arriving[0][0], self._deliver)

        if self.member.next_due <= now:
            self.drive()

    def reconnect(self) -> None:
        """Go on with the watch after a gap, by its version or by a list."""
        if not self.alive or self.paused or self.stale:
            return

        if not self.reaches():
            self.world.after(1.0, self.reconnect)
        elif self.random.random() < 0.5:
            self.list()
        else:
            self._arriving.clear()
            self._arriving.extend(
                (self.world.now, index)
                for index in range(self._shown, len(self.world.server.log))
            )
            self._deliver()

    # ------------------------------------------------------------ member

    def drive(self) -> None:
        """Do what the member says, and set the timer of its next step."""
        if not self.alive or self.paused:
            return

        now = self.local()
        for _ in range(50):
            for command in self.member.step(now, self.wall()):
                match command:
                    case Write():
                        self._send(command)
                    case Start(index):
                        self.world.started(self, index)
                        self.open[index] = None
                    case Drain(index):
                        self.world.closed(self, index)
                        self.open.pop(index, None)
                        self._check_end(index)
                    case Cancel(index):
                        self.world.closed(self, index)
                        self.open.pop(index, None)
                        self._cancel(index)

            if self.member.next_due > now:
                break
        else:
            raise AssertionError(f"{self.member!r} never rests")

        if self.member.state is MemberState.LEFT:
            self.world.removed(self, left=True)
            return

        # Later by a hair, as floats are not exact.
        at = self.world.now + (self.member.next_due - now) / self.rate + 1e-6
        if at < self._timer:
            self._timer = at
            self.world.at(at, self._wake)

    def _wake(self) -> None:
        if self.world.now >= self._timer:
            self._timer = math.inf
            self.drive()

    # ------------------------------------------------------------ requests

    def _send(self, write: Write) -> None:
        world = self.world
        world.server.requests += 1
        limit = self.world.timing.retry_period / self.rate
        answer = [False]

        def told(
            outcome: Outcome, version: str = "", uid: str = "", wait: float = 0.0
        ) -> None:
            if answer[0] or not self.alive:
                return

            if self.paused:
                self._inbox.append(partial(told, outcome, version, uid, wait))
                return

            answer[0] = True
            self.member.answered(
                write,
                outcome,
                self.local(),
                version=version,
                uid=uid,
                retry_after=wait,
            )
            self.drive()

        def arrived() -> None:
            if not world.up or (self.cut and self.random.random() < 0.5):
                return

            outcome, version, uid = world.write(write)
            wait = float(write.lease.name in world.server.refused)
            if self.random.random() >= self.losing:
                world.after(self._way(), lambda: told(outcome, version, uid, wait))

        world.after(limit, lambda: told(Outcome.NO_ANSWER))
        if not self.reaches():
            if self.random.random() < 0.5:
                world.after(0.01, lambda: told(Outcome.NO_ANSWER))
        elif self.random.random() < self.failing:
            world.after(self._way(), lambda: told(Outcome.NO_ANSWER))
        else:
            world.after(self._way(), arrived)

    def _way(self) -> float:
        if self.slow < 0.1:
            return self.random.uniform(0.5, 1.5) * self.slow

        return self.random.expovariate(1 / self.slow)

    # ------------------------------------------------------------ work

    def begin_work(self, index: int, key: int, seconds: float) -> None:
        """Work on a key, as a controller does: `owns()` is asked first."""
        if self.paused or not self.member.owns(index, self.local()):
            return

        keys = self.work.setdefault(index, set())
        if key in keys:
            return

        keys.add(key)
        self.world.begun(self, key)
        self.world.after(seconds, lambda: self._end_work(index, key))

    def _end_work(self, index: int, key: int, flight: float = 0.0) -> None:
        keys = self.work.get(index, set())
        if self.paused or key not in keys:
            return

        keys.discard(key)
        self.world.finished(self, key, flight)
        self._check_end(index)
        self.drive()

    def _check_end(self, index: int) -> None:
        if not self.work.get(index) and index not in self.open:
            self.world.vacated(self, index)
            self.member.ended(index, self.local())

    def _cancel(self, index: int) -> None:
        timing = self.world.timing
        for key in tuple(self.work.get(index, ())):
            ends = self.random.uniform(0, timing.stop) / self.rate
            flight = self.random.uniform(0, timing.flight)
            self.world.after(ends, partial(self._end_work, index, key, flight))

        if not self.work.get(index):
            self._check_end(index)

    # ------------------------------------------------------------ faults

    def kill(self) -> None:
        self.world.removed(self, left=False)

    def pause(self, seconds: float) -> None:
        self.paused = True
        self.world.suspended(self)
        self.world.after(seconds, self.resume)

    def resume(self) -> None:
        """Go on after a pause. Work on the way asks `owns()` before it writes."""
        if not self.alive:
            return

        self.paused = False
        now = self.local()
        for index, keys in self.work.items():
            for key in tuple(keys):
                if self.member.owns(index, now):
                    self.world.begun(self, key)
                    seconds = self.random.uniform(0, 5)
                    self.world.after(seconds, partial(self._end_work, index, key))
                else:
                    keys.discard(key)

        for index in self.open:
            if self.member.owns(index, now):
                self.world.started(self, index)

        # What waited in the sockets, in any order.
        inbox, self._inbox = self._inbox, []
        actions = [*inbox, self.drive, self.reconnect]
        self.random.shuffle(actions)
        for action in actions:
            action()

        for index in tuple(self.work):
            if not self.work[index] and index not in self.open:
                self._check_end(index)

        self.drive()
