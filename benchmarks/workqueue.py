"""Add, get, done: the work queues beside a bare `asyncio.Queue`, in one run.

One producer adds distinct keys, a thousand in each turn of the loop, and one worker
takes them. The bare queue is put into and got from; it keeps nobody from working on one
key twice. Each measurement is a process of its own, the kinds take turns, and what is
shown are medians, for a second of the processor's time: nothing here waits for anything
else, and other programs count less then.

    python benchmarks/workqueue.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from itertools import cycle
from typing import TYPE_CHECKING

from bench.figures import OURS, Figure, median
from bench.script import Options, run

from aioinformer.metrics import NullSink
from aioinformer.workqueue import PriorityQueue, RateLimitingQueue, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.connection import Connection

QUESTION = "workqueue"
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
    f"{OURS}, WorkQueue": lambda keys: ours(keys, WorkQueue("bench")),
    f"{OURS}, RateLimitingQueue": lambda keys: ours(keys, RateLimitingQueue("bench")),
    f"{OURS}, WorkQueue, measured": lambda keys: ours(
        keys, WorkQueue("bench", metrics=ReadSink())
    ),
    f"{OURS}, WorkQueue, Prometheus": lambda keys: ours(
        keys, measured_for_prometheus()
    ),
    f"{OURS}, WorkQueue, told at once": lambda keys: ours(
        keys, WorkQueue("bench", metrics=PlainSink())
    ),
    f"{OURS}, PriorityQueue": with_priorities,
}


# ---------------------------------------------------------------- the measurement


def measure_one(kind: str, number: int, answer: Connection) -> None:
    keys = [f"namespace-{n % 40}/pod-{n:06}" for n in range(number)]

    async def rate() -> float:
        return await KINDS[kind](keys)

    asyncio.run(rate())  # the interpreter adapts to what it runs often
    answer.send(asyncio.run(rate()))


def measure_alone(kind: str, number: int) -> float:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure_one, args=(kind, number, there))
    process.start()
    there.close()
    rate: float = here.recv()
    process.join()
    return rate


def measure(options: Options) -> Iterator[Figure]:
    keys = 5_000 if options.quick else 500_000
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        print(f"workqueue: run {number + 1}", file=sys.stderr)
        for kind, measured in rates.items():
            measured.append(measure_alone(kind, keys))

    case = f"{keys:,} keys"
    for kind, measured in rates.items():
        yield median(QUESTION, case, kind, "keys/s", measured)


if __name__ == "__main__":
    sys.exit(run(measure, rounds=5))
