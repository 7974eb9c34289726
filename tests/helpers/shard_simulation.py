"""Simulation of a shard group in virtual time: replicas, faults, and who works on what.

    python tests/helpers/shard_simulation.py --seeds 200 --seconds 3600

prints one line for each seed, and fails if two replicas ever worked on one key or range.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shard_replica import Replica
from shard_server import LeaseServer

from aioinformer.controller.shards.timing import ShardTiming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.controller.shards.member import Outcome, Write

KEYS = 1_000_000
FAULTS = (
    "kill",
    "pause",
    "partition",
    "stale",
    "leave",
    "lost",
    "failing",
    "slow",
    "late",
    "away",
    "delete",
    "delete_all",
    "delete_again",
    "blind",
    "scale",
)


@dataclass
class Result:
    """Result of a simulation.

    Attributes:
        seed: Seed of the simulation.
        violations: Keys and ranges on which two replicas worked at once.
        gaps: Seconds for which ranges had no owner, after the first start.
        first: Time at which every range had an owner for the first time.
        faults: Number of faults by kind.
        moves: Number of times a range began at a replica.
        requests: Requests a second.
        busiest: Most requests in one second.
        cpu: Seconds of CPU.
    """

    seed: int
    violations: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    first: float = math.inf
    faults: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    requests: float = 0.0
    busiest: int = 0
    cpu: float = 0.0

    @property
    def longest(self) -> float:
        """Longest time without an owner."""
        return max(self.gaps, default=0.0)

    def __str__(self) -> str:
        gaps = sorted(self.gaps) or [0.0]
        return (
            f"seed {self.seed}: {len(self.violations)} violations, {self.moves} moves, "
            f"unowned p50 {gaps[len(gaps) // 2]:.1f} s p99 "
            f"{gaps[len(gaps) * 99 // 100]:.1f} s max {gaps[-1]:.1f} s, first start "
            f"{self.first:.1f} s, {self.requests:.2f} requests/s (most {self.busiest}), "
            f"{sum(self.faults.values())} faults, {self.cpu:.1f} s of CPU"
        )


class Simulation:
    """One group in virtual time.

    Args:
        seed: Seed of everything random.
        replicas: Number of replicas.
        ranges: Number of ranges.
        timing: Durations of the group.
        faults: Kinds of faults.
        every: Mean number of seconds between two faults; exact if there is one kind.
        lags: Delays of the watches of the API servers.
        error: Largest difference of a clock's rate from 1.
    """

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 20,
        ranges: int = 64,
        timing: ShardTiming | None = None,
        faults: Iterable[str] = (),
        every: float = 25.0,
        lags: tuple[float, ...] = (0.05,),
        error: float = 0.2,
    ) -> None:
        self.random = random.Random(seed)
        self.result = Result(seed)
        self.timing = timing or ShardTiming()
        self.ranges = ranges
        self.lags = lags
        self.error = error
        self.server = LeaseServer()
        self.up = True
        self.now = 0.0
        self.watching: dict[Replica, None] = {}  # in order
        self.replicas: list[Replica] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = 0
        self._names = 0
        self._faults = tuple(faults)
        self._every = every
        # For each range: who takes keys of it and since when nobody does; who works on
        # it; and who may still have requests on the way, until when.
        self.takers: list[Replica | None] = [None] * ranges
        self.workers: list[Replica | None] = [None] * ranges
        self._unowned = [0.0] * ranges
        self._never = set(range(ranges))
        self._keys: dict[int, Replica] = {}
        self._flights: dict[int, tuple[Replica, float]] = {}
        self._returned = 0.0
        for _ in range(replicas):
            self.after(self.random.uniform(0, 2), self.join)

    # ------------------------------------------------------------ time

    def at(self, when: float, call: Callable[[], object]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self.now + seconds, call)

    def run(self, seconds: float, *, until_violated: bool = False) -> Result:
        """Run until this time, or until the first violation; return what was seen."""
        before = time.process_time()
        self.at(1.0, self._work)
        if self._faults:
            self.at(60.0, self._fault)

        second, count = 0, 0
        events = self._events
        while events and events[0][0] <= seconds:
            self.now, _, call = heapq.heappop(events)
            call()
            if until_violated and self.result.violations:
                break

            if self.now >= second + 1:
                self.result.busiest = max(
                    self.result.busiest, self.server.requests - count
                )
                second, count = int(self.now), self.server.requests

        self.now = seconds
        for index, taker in enumerate(self.takers):
            if taker is None:
                self._gap(index)

        result = self.result
        result.requests = self.server.requests / seconds
        result.cpu = time.process_time() - before
        return result

    # ------------------------------------------------------------ replicas

    def join(self, identity: str = "") -> Replica:
        self._names += 1
        rate = self.random.choice(
            [1 - self.error, 1.0, 1 + self.error, self.random.uniform(0.9, 1.1)]
            if self.error
            else [1.0]
        )
        replica = Replica(self, identity or f"replica-{self._names}", rate)
        self.replicas.append(replica)
        return replica

    def write(self, write: Write) -> tuple[Outcome, str, str]:
        before = len(self.server.log)
        answer = self.server.write(write)
        self._show(before)
        return answer

    def _show(self, before: int) -> None:
        for index in range(before, len(self.server.log)):
            for replica in self.watching:
                replica.arrives(index)

    # ------------------------------------------------------------ who works

    def started(self, replica: Replica, index: int) -> None:
        self.result.moves += 1
        worker = self.workers[index]
        if worker is not None and worker is not replica:
            self._violated(f"range {index}", worker, replica)

        self.workers[index] = replica
        if self.takers[index] is None:
            self._gap(index)

        self.takers[index] = replica

    def _gap(self, index: int) -> None:
        if index not in self._never:
            start = max(self._unowned[index], self._returned)
            self.result.gaps.append(self.now - start)
        elif self.now > 0:
            self._never.discard(index)
            if not self._never:
                self.result.first = self.now

    def closed(self, replica: Replica, index: int) -> None:
        if self.takers[index] is replica:
            self.takers[index] = None
            self._unowned[index] = self.now

    def vacated(self, replica: Replica, index: int) -> None:
        if self.workers[index] is replica:
            self.workers[index] = None

    def begun(self, replica: Replica, key: int) -> None:
        other = self._keys.get(key)
        if other is None and key in self._flights:
            other, until = self._flights.pop(key)
            if self.now >= until:
                other = None

        if other is not None and other is not replica:
            self._violated(f"key {key}", other, replica)

        self._keys[key] = replica

    def finished(self, replica: Replica, key: int, flight: float) -> None:
        if self._keys.get(key) is replica:
            del self._keys[key]
            if flight:
                self._flights[key] = replica, self.now + flight

    def suspended(self, replica: Replica) -> None:
        """Record that a process stands still or is gone; its last requests arrive."""
        for index, keys in replica.work.items():
            for key in keys:
                flight = self.random.uniform(0, self.timing.flight)
                self.finished(replica, key, flight)

            self.vacated(replica, index)

        for index in range(self.ranges):
            self.closed(replica, index)
            self.vacated(replica, index)

    def removed(self, replica: Replica, *, left: bool) -> None:
        if left and any(replica.work.values()):
            self.result.violations.append(f"{replica.identity} left with work")

        replica.alive = False
        self.watching.pop(replica, None)
        self.replicas.remove(replica)
        self.suspended(replica)

    def _violated(self, subject: str, one: Replica, other: Replica) -> None:
        self.result.violations.append(
            f"{self.now:.3f} s: {subject} at {one.identity} and {other.identity}"
        )

    def _work(self) -> None:
        self.after(self.random.expovariate(8), self._work)
        index = self.random.randrange(self.ranges)
        taker = self.takers[index]
        if taker is not None:
            # A few keys of each range are busy, so that two owners would meet.
            size = KEYS // self.ranges
            key = index * size + int(self.random.random() ** 8 * size)
            long = self.random.random() < 0.1
            seconds = self.random.uniform(0.05, 60) if long else 0.05
            taker.begin_work(index, key, seconds)

    # ------------------------------------------------------------ faults

    def _fault(self) -> None:
        single = len(self._faults) == 1
        pause = self._every if single else self.random.expovariate(1 / self._every)
        self.after(pause, self._fault)
        kind = self.random.choice(self._faults)
        self.result.faults[kind] += 1
        working = [each for each in self.replicas if not each.paused]
        if working:
            getattr(self, f"_{kind}")(self.random.choice(working))

    def _kill(self, replica: Replica) -> None:
        replica.kill()
        same = self.random.random() < 0.3
        self.after(
            self.random.uniform(0.5, 10),
            lambda: self.join(replica.identity if same else ""),
        )

    def _pause(self, replica: Replica) -> None:
        replica.pause(self.random.uniform(30, 90))

    def _partition(self, replica: Replica) -> None:
        replica.cut = True
        self.after(self.random.uniform(30, 90), lambda: self._heal(replica))

    def _stale(self, replica: Replica) -> None:
        replica.stale = True
        self.after(self.random.uniform(30, 60), lambda: self._heal(replica))

    def _heal(self, replica: Replica) -> None:
        replica.cut = replica.stale = False
        replica.reconnect()

    def _leave(self, replica: Replica) -> None:
        replica.member.leave(replica.local())
        replica.drive()
        self.after(30, self.join)

    def _scale(self, replica: Replica) -> None:
        if len(self.replicas) < 20:
            self.join()
        elif self.random.random() < 0.7:
            replica.member.leave(replica.local())
            replica.drive()
        else:
            self.join()

    def _rolling(self, _: Replica) -> None:
        for number, old in enumerate(tuple(self.replicas)):
            self.after(number * 8, self.join)
            self.after(number * 8 + 4, partial(self._retire, old))

    def _retire(self, replica: Replica) -> None:
        if replica.alive:
            replica.member.leave(replica.local())
            replica.drive()

    def _for_a_while(self, seconds: float, name: str, value: float) -> None:
        for replica in self.replicas:
            before = getattr(replica, name)
            setattr(replica, name, value)
            self.after(seconds, partial(setattr, replica, name, before))

    def _lost(self, _: Replica) -> None:
        self._for_a_while(60, "losing", 0.3)

    def _failing(self, _: Replica) -> None:
        self._for_a_while(self.random.uniform(10, 60), "failing", 0.3)

    def _slow(self, _: Replica) -> None:
        self._for_a_while(60, "slow", 1.5)
        self._for_a_while(60, "lag", 1.0)

    def _late(self, replica: Replica) -> None:
        before = replica.slow
        replica.slow = 8.0
        self.after(30, lambda: setattr(replica, "slow", before))

    def _away(self, _: Replica) -> None:
        if self.up:
            self.up = False
            self.after(self.random.uniform(3, 40), self._return)

    def _return(self) -> None:
        self.up = True
        self._returned = self.now
        for replica in self.replicas:
            self.after(self.random.uniform(0.2, 2), replica.reconnect)

    def _delete(self, _: Replica) -> None:
        names = sorted(self.server.leases)
        self._delete_leases(self.random.sample(names, min(len(names), 1)))

    def _delete_all(self, _: Replica) -> None:
        self._delete_leases(sorted(self.server.leases))

    def _delete_again(self, replica: Replica) -> None:
        """Delete all Leases repeatedly, about when absent fences are created again."""
        seconds = self.timing.lease_duration * self.random.uniform(0.8, 1.3)
        for number in range(12):
            self.after(seconds + number * 0.4, lambda: self._delete_all(replica))

        self._delete_all(replica)

    def _blind(self, _: Replica) -> None:
        """All Leases are deleted while no owner can see it, and a newcomer joins."""
        watching = tuple(self.replicas)
        for replica in watching:
            replica.stale = True

        self._delete_all(watching[0])
        self.after(self.random.uniform(0, 1), self.join)
        self.after(self.random.uniform(4, 10), partial(self._heal_all, watching))
        self.after(60, partial(self._retire, watching[0]))

    def _heal_all(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._heal(replica)

    def _delete_leases(self, names: list[str]) -> None:
        before = len(self.server.log)
        for name in names:
            self.server.delete(name)

        self._show(before)


def simulate(seed: int, seconds: float = 3600, **options: object) -> Result:
    """Run one simulation with all faults mixed, or with other options."""
    options = {"faults": FAULTS, "lags": (0.02, 0.05, 0.3, 1.0), **options}
    world = Simulation(seed, **options)  # type: ignore[arg-type]
    if options["faults"] is FAULTS and seconds >= 1800:
        world.at(900, lambda: world._rolling(world.replicas[0]))

    return world.run(seconds)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fault", help="only this kind of fault, every 150 s")
    given = parser.parse_args()
    options: dict[str, object] = {"seconds": given.seconds}
    if given.fault:
        kinds = () if given.fault == "none" else (given.fault,)
        options |= {"faults": kinds, "every": 150.0, "lags": (0.05,)}
        if given.fault == "rolling":
            options["every"] = 300.0

    violated = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        runs = [
            pool.submit(simulate, seed, **options)  # type: ignore[arg-type]
            for seed in range(given.first, given.first + given.seeds)
        ]
        for run in runs:
            result = run.result()
            violated += len(result.violations)
            print(result, *result.violations[:5], sep="\n    ", flush=True)

    print(f"{given.seeds} seeds, {violated} violations")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(_main())
