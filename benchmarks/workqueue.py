"""Add, get, done: the work queues compared with an `asyncio.Queue`, in one run.

A producer adds distinct keys, a thousand in each turn of the loop, and a worker takes them.
The `asyncio.Queue` does not prevent two workers from processing the same key. Each
measurement is a process of its own, and the kinds take turns. The figures are medians per
second of processor time: nothing waits here, and other programs matter less.

    python benchmarks/workqueue.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import cycle
from typing import TYPE_CHECKING

from bench.alone import alone
from bench.figures import OURS, Figure, median
from bench.queue_work import PlainSink, ReadSink, add_and_work, keys_of
from bench.script import Options, run

from aioinformer.workqueue import PriorityQueue, RateLimitingQueue, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

BENCHMARK = "workqueue"
ADDS_A_TURN = 1000
PRIORITIES = 4


def measured_for_prometheus() -> WorkQueue[str]:
    from prometheus_client import CollectorRegistry

    from aioinformer.metrics_prometheus import PrometheusSink

    return WorkQueue("bench", metrics=PrometheusSink(CollectorRegistry()))


# ---------------------------------------------------------------- the work


async def timed(
    keys: list[str], add: Callable[[str], object], work: Callable[[], Awaitable[None]]
) -> float:
    """Return keys per second."""
    started = time.process_time()
    await add_and_work(keys, add, work, adds_a_turn=ADDS_A_TURN)
    return len(keys) / (time.process_time() - started)


async def bare(keys: list[str]) -> float:
    queue = asyncio.Queue[str]()

    async def work() -> None:
        get = queue.get
        for _ in keys:
            await get()

    return await timed(keys, queue.put_nowait, work)


async def ours(keys: list[str], queue: WorkQueue[str]) -> float:
    async def work() -> None:
        get, done = queue.get, queue.done
        for _ in keys:
            done(await get())

    rate = await timed(keys, queue.add, work)
    assert await queue.shut_down_with_drain() == frozenset()
    return rate


async def with_priorities(keys: list[str]) -> float:
    queue = PriorityQueue[str]("bench")
    priorities = cycle(range(PRIORITIES))

    async def work() -> None:
        get, done = queue.get, queue.done
        for _ in keys:
            done(await get())

    return await timed(keys, lambda key: queue.add(key, next(priorities)), work)


KINDS: dict[str, Callable[[list[str]], Awaitable[float]]] = {
    "asyncio.Queue": bare,
    f"{OURS}, WorkQueue": lambda keys: ours(keys, WorkQueue("bench")),
    f"{OURS}, RateLimitingQueue": lambda keys: ours(keys, RateLimitingQueue("bench")),
    f"{OURS}, WorkQueue, measured": lambda keys: ours(
        keys, WorkQueue("bench", metrics=ReadSink())
    ),
    f"{OURS}, WorkQueue, Prometheus": lambda keys: ours(
        keys, measured_for_prometheus()
    ),
    f"{OURS}, WorkQueue, unbuffered metrics": lambda keys: ours(
        keys, WorkQueue("bench", metrics=PlainSink())
    ),
    f"{OURS}, PriorityQueue": with_priorities,
}


# ---------------------------------------------------------------- the measurement


def rate_of(kind: str, number: int) -> float:
    """Return keys per second, measured in a process of its own."""
    keys = keys_of(number)

    async def rate() -> float:
        return await KINDS[kind](keys)

    asyncio.run(rate())  # the interpreter specialises hot code
    return asyncio.run(rate())


def measure(options: Options) -> Iterator[Figure]:
    keys = 5_000 if options.quick else 500_000
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        print(f"workqueue: run {number + 1}", file=sys.stderr)
        for kind, measured in rates.items():
            measured.append(alone(rate_of, kind, keys))

    case = f"{keys:,} keys"
    for kind, measured in rates.items():
        yield median(BENCHMARK, case, kind, "keys/s", measured)


if __name__ == "__main__":
    sys.exit(run(measure, rounds=5))
