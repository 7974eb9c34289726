"""A controller on four replicas that share its objects, compared with one on its own.

The API server is the one for tests, with 10,000 pods, and filters by shard or does not.
Each replica is a process, and receives through a relay that counts bytes. They share
the ranges, then list their pods, and get 1,000 changes. Memory is anonymous memory
(`RssAnon`) beyond that before the start. In another group, one replica is killed.
Finally, 20 replicas share 64 ranges while nothing moves.

    python benchmarks/shards.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.alone import companion
from bench.figures import OURS, Figure, median
from bench.script import Options, run
from bench.shard_server import CHANGED, serve
from bench.shared_app import private_memory

from aioinformer import Client, Controller, Shards, SharedInformerFactory
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context

BENCHMARK = "shards"
ALONE = "not sharded"
RANGES = 64
TIMEOUT_SECONDS = 300.0
POLL_SECONDS = 0.1
PATIENT = {"lease_duration": 120, "renew_deadline": 60, "retry_period": 3}
"""Durations that let no range move while the server is busy with lists."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work.

    Attributes:
        pods: Number of pods.
        replicas: Number of processes that share them.
        changes: Number of changes.
        members: Number of replicas whose requests are counted.
        quiet: Seconds for which they are counted.
        durations: Options of `Shards`.
    """

    pods: int
    replicas: int
    changes: int
    members: int
    quiet: float
    durations: dict[str, Any]


FULL = Sizes(pods=10_000, replicas=4, changes=1_000, members=20, quiet=60, durations={})
QUICK = Sizes(
    pods=200,
    replicas=2,
    changes=20,
    members=3,
    quiet=3,
    durations={"lease_duration": 6, "renew_deadline": 2.2, "retry_period": 1},
)


@dataclass(kw_only=True)
class Outcome:
    """Values of all rounds, by case, contestant and unit."""

    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def add(self, case: str, unit: str, value: float, contestant: str = OURS) -> None:
        """Add the value of a round."""
        self.values.setdefault((case, contestant, unit), []).append(value)
        print(f"  {contestant}: {case}: {value:,.4g} {unit}", file=sys.stderr)


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK if options.quick else FULL
    outcome = Outcome()
    for _ in range(options.rounds):
        alone = worked_alone(sizes)
        for filters in (True, False):
            compare(sizes, alone, outcome, filters=filters)

        killed(sizes, outcome)
        quiet(sizes, outcome)

    for (case, contestant, unit), values in outcome.values.items():
        yield median(BENCHMARK, case, contestant, unit, values)


# ---------------------------------------------------------------- bytes, memory, kill


@dataclass
class State:
    """State of a replica: its ranges, its pods, those of them that changed, its memory."""

    held: int
    stored: int
    changes: int
    memory: float


@dataclass
class Replica:
    """Process of one replica."""

    pipe: Connection
    pid: int

    def state(self) -> State:
        """Ask it for its state."""
        self.pipe.send("state")
        found: State = self.pipe.recv()
        return found


@dataclass
class Use:
    """Resources of the replica that needs most: megabytes received, MiB of memory."""

    received: float
    memory: float


def compare(sizes: Sizes, alone: Use, outcome: Outcome, *, filters: bool) -> None:
    """Run several replicas, and compare each with one on its own."""
    how = "server filters" if filters else "server sends everything"
    start = f"{sizes.replicas} replicas, {sizes.pods:,} pods, {how}: "
    with running(sizes, sizes.replicas, PATIENT, filters=filters) as (server, replicas):
        shared = work(sizes, server, replicas)
        for name, unit, mine, theirs in (
            ("bytes of a replica, largest", "MB", shared.received, alone.received),
            ("memory of a replica, largest", "MiB", shared.memory, alone.memory),
        ):
            outcome.add(start + name, unit, mine)
            outcome.add(start + name, unit, theirs, ALONE)
            share = f"{start}{name}, compared with one not sharded"
            outcome.add(share, "ratio", mine / theirs)


def worked_alone(sizes: Sizes) -> Use:
    with running(sizes, 1, PATIENT) as (server, replicas):
        return work(sizes, server, replicas)


def work(sizes: Sizes, server: Connection, replicas: list[Replica]) -> Use:
    """Have all pods listed and changed; return what that takes."""
    for it in replicas:
        it.pipe.send("join")

    until(lambda: is_even([it.state() for it in replicas]))
    for it in replicas:
        it.pipe.send("work")

    until(lambda: sum(it.state().stored for it in replicas) == sizes.pods)
    server.send(("change", sizes.changes))
    changes = server.recv()
    until(lambda: sum(it.state().changes for it in replicas) >= changes)
    server.send(("bytes",))
    most = max(server.recv())
    return Use(most / 1e6, max(it.state().memory for it in replicas))


def is_even(states: list[State]) -> bool:
    """Return True if the ranges are shared evenly."""
    held = [it.held for it in states]
    return sum(held) == RANGES and max(held) - min(held) <= 1


def killed(sizes: Sizes, outcome: Outcome) -> None:
    """Kill a replica, and measure the time until the others own its ranges."""
    with running(replace(sizes, pods=0), sizes.replicas, sizes.durations) as (
        _,
        replicas,
    ):
        for it in replicas:
            it.pipe.send("join")

        until(lambda: is_even([it.state() for it in replicas]))
        victim = replicas.pop()
        os.kill(victim.pid, signal.SIGKILL)
        began = time.monotonic()
        until(lambda: sum(it.state().held for it in replicas) == RANGES)
        seconds = time.monotonic() - began

    outcome.add(f"{sizes.replicas} replicas: all owned after kill -9", "s", seconds)


@contextlib.contextmanager
def running(
    sizes: Sizes, number: int, durations: dict[str, Any], *, filters: bool = True
) -> Iterator[tuple[Connection, list[Replica]]]:
    """Run a server and replicas for the time of a block; they wait for a command."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(companion(serve, sizes.pods, number, filters))
        pipes = [
            stack.enter_context(companion(replicate, url, durations, number > 1))
            for url in server.recv()
        ]
        yield server, [Replica(it, it.recv()) for it in pipes]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached in {TIMEOUT_SECONDS:g} s")

        time.sleep(POLL_SECONDS)


# ---------------------------------------------------------------- in other processes


def replicate(
    pipe: Connection, url: str, durations: dict[str, Any], shared: bool
) -> None:
    """Run a controller of pods, alone or as one of several replicas."""
    asyncio.run(_replicate(pipe, url, durations, shared=shared))


async def _replicate(
    pipe: Connection, url: str, durations: dict[str, Any], *, shared: bool
) -> None:
    client = Client.from_url(url)
    factory = SharedInformerFactory(client)
    pods = factory.informer(PODS)
    shards = Shards("pods", client, **durations) if shared else None
    controller = Controller("pods", _nothing, for_=pods, shards=shards)
    pipe.send(os.getpid())
    await asyncio.to_thread(pipe.recv)
    before = private_memory()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        if shards is not None:
            shards.join(Idle())
            await stack.enter_async_context(shards)

        while True:
            if await asyncio.to_thread(pipe.recv) == "work":
                await stack.enter_async_context(factory)
                group.create_task(controller.run())
                continue

            held = len(shards.held) if shards else RANGES
            stored = pods.store.list()
            changes = sum(CHANGED in it.labels for it in stored)
            memory = private_memory() - before
            pipe.send(State(held, len(stored), changes, memory))


async def _nothing(request: ReconcileRequest, ctx: Context) -> None:
    pass


def gather(pipe: Connection, url: str, members: int, durations: dict[str, Any]) -> None:
    """Run many replicas in one process; send a message when they share all ranges."""
    asyncio.run(_gather(pipe, url, members, durations))


async def _gather(
    pipe: Connection, url: str, members: int, durations: dict[str, Any]
) -> None:
    client = Client.from_url(url)
    groups = [
        Shards("pods", client, identity=f"member-{number}", **durations)
        for number in range(members)
    ]
    async with contextlib.AsyncExitStack() as stack:
        for it in groups:
            it.join(Idle())
            await stack.enter_async_context(it)

        fewest = RANGES // members
        while True:
            held = [len(it.held) for it in groups]
            if sum(held) == RANGES and min(held) >= fewest:
                break

            await asyncio.sleep(0.05)

        pipe.send(held)
        await asyncio.to_thread(pipe.recv)


class Idle:
    """User that does no work."""

    def keep(self, numbers: frozenset[int]) -> None:
        """Do nothing."""

    def start(self, number: int) -> None:
        """Do nothing."""

    drain = cancel = start

    def busy(self, number: int) -> bool:
        """Return False."""
        return False

    def lacking(self) -> dict[int, str]:
        """Return nothing: it needs no objects."""
        return {}


def quiet(sizes: Sizes, outcome: Outcome) -> None:
    """Count the requests of replicas that share all ranges, while nothing moves."""
    with companion(serve, 0, 1, True) as server:
        (url,) = server.recv()
        with companion(gather, url, sizes.members, sizes.durations) as group:
            group.recv()
            time.sleep(1)  # for writes under way
            counts = []
            for seconds in (0.0, sizes.quiet):
                time.sleep(seconds)
                server.send(("requests",))
                counts.append(server.recv())

    case = f"{sizes.members} replicas, {RANGES} ranges, nothing moves"
    outcome.add(case, "requests/s", (counts[1] - counts[0]) / sizes.quiet)


if __name__ == "__main__":
    sys.exit(run(measure))
