"""Add, get, done: the work queues beside a bare `asyncio.Queue`, in one run.

One producer adds distinct keys, a thousand in each turn of the loop, and one worker
takes them. The bare queue is put into and got from; it keeps nobody from working on one
key twice. Each measurement is a process of its own, the kinds take turns, and what is
shown are medians, for a second of the processor's time: nothing here waits for anything
else, and other programs count less then.

    python benchmarks/workqueue.py [--keys N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from itertools import cycle
from typing import TYPE_CHECKING

from aioinformer.metrics import NullSink
from aioinformer.workqueue import PriorityQueue, RateLimitingQueue, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

ADDS_A_TURN = 1000
PRIORITIES = 4


# ---------------------------------------------------------------- the sinks


class PlainSink(NullSink):
    """Is told of each change, and does nothing with it."""

    enabled = True


class ReadSink(PlainSink):
    """Is told when it is read, which nobody does here, and of many values at once."""

    def register(self, tell: Callable[[], None], /) -> None:
        """Read never."""

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        """Throw the measurements away."""


def measured_for_prometheus() -> WorkQueue[str]:
    from prometheus_client import CollectorRegistry

    from aioinformer.metrics_prometheus import PrometheusSink

    return WorkQueue("bench", metrics=PrometheusSink(CollectorRegistry()))


# ---------------------------------------------------------------- the work


async def produce(add: Callable[[str], object], keys: list[str]) -> None:
    for start in range(0, len(keys), ADDS_A_TURN):
        for key in keys[start : start + ADDS_A_TURN]:
            add(key)

        await asyncio.sleep(0)


async def timed(
    keys: list[str], add: Callable[[str], object], work: Callable[[], Awaitable[None]]
) -> float:
    """Keys a second."""
    started = time.process_time()
    async with asyncio.TaskGroup() as group:
        producer = group.create_task(produce(add, keys))
        await work()
        await producer

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
    "WorkQueue": lambda keys: ours(keys, WorkQueue("bench")),
    "RateLimitingQueue": lambda keys: ours(keys, RateLimitingQueue("bench")),
    "WorkQueue, measured": lambda keys: ours(
        keys, WorkQueue("bench", metrics=ReadSink())
    ),
    "WorkQueue, Prometheus": lambda keys: ours(keys, measured_for_prometheus()),
    "WorkQueue, told at once": lambda keys: ours(
        keys, WorkQueue("bench", metrics=PlainSink())
    ),
    "PriorityQueue": with_priorities,
}


# ---------------------------------------------------------------- the measurement


def run(kind: str, number: int, answer: Connection) -> None:
    keys = [f"namespace-{n % 40}/pod-{n:06}" for n in range(number)]

    async def measure() -> float:
        return await KINDS[kind](keys)

    asyncio.run(measure())  # the interpreter adapts to what it runs often
    answer.send(asyncio.run(measure()))


def measure_alone(kind: str, number: int) -> float:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(kind, number, there))
    process.start()
    there.close()
    rate: float = here.recv()
    process.join()
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()

    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(arguments.rounds):
        for kind, measured in rates.items():
            measured.append(measure_alone(kind, arguments.keys))

    medians = {kind: statistics.median(measured) for kind, measured in rates.items()}
    # Of one round each, so that a busy moment counts for both.
    ratios = {
        kind: statistics.median(
            mine / other
            for mine, other in zip(measured, rates["asyncio.Queue"], strict=True)
        )
        for kind, measured in rates.items()
    }
    if arguments.json:
        print(json.dumps({"keys_per_second": medians, "ratio": ratios}))
        return 0

    print(f"{'':24} {'keys/s':>12} {'ratio':>8} {'lowest':>12} {'highest':>12}")
    for kind, measured in rates.items():
        low, high = min(measured), max(measured)
        print(
            f"{kind:24} {medians[kind]:12,.0f} {ratios[kind]:8.2f} "
            f"{low:12,.0f} {high:12,.0f}"
        )

    return 0


if __name__ == "__main__":
    sys.exit(main())
