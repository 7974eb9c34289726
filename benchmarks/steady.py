"""Informers of a quiet cluster: CPU, requests, and wake-ups of the event loop.

A process has 50 informers of 200 pods each, with an async handler each, and nothing
changes. The API server is the one for tests. As a real one, it sends a bookmark to each
watch every minute, and ends watches after 5 to 10 minutes, the duration that clients
request.

    python benchmarks/steady.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.alone import companion
from bench.corpus import pods
from bench.figures import OURS, Figure, median
from bench.script import Options, run

from aioinformer import Client, SharedInformerFactory
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from aioinformer.informer.notifications import Notification

BENCHMARK = "steady"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work.

    Attributes:
        informers: Number of informers.
        pods: Number of pods of each.
        seconds: Duration of the measurement, after the lists and as long again.
    """

    informers: int
    pods: int
    seconds: float


FULL = Sizes(informers=50, pods=200, seconds=120)
QUICK = Sizes(informers=5, pods=20, seconds=1)


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK if options.quick else FULL
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(options.fewer_rounds):
        for (name, unit), value in once(sizes).items():
            print(f"  {name}: {value:,.4g} {unit}", file=sys.stderr)
            values[name, unit].append(value)

    for (name, unit), runs in values.items():
        case = f"{sizes.informers} informers, nothing changes: {name}"
        yield median(BENCHMARK, case, OURS, unit, runs)


def once(sizes: Sizes) -> dict[tuple[str, str], float]:
    """Measure a new process."""
    with (
        companion(serve, sizes.pods) as server,
        companion(watch, server.recv(), sizes.informers) as app,
    ):
        app.recv()  # all synced
        time.sleep(sizes.seconds)
        server.send(True)
        before = server.recv()
        app.send(sizes.seconds)
        cpu, woken = app.recv()
        server.send(True)
        requests = server.recv() - before

    minutes = sizes.seconds / 60
    return {
        ("CPU", "% of a core"): 100 * cpu / sizes.seconds,
        ("wake-ups of the event loop", "a minute"): woken / minutes,
        ("requests", "a minute"): requests / minutes,
    }


# ---------------------------------------------------------------- in other processes


def serve(pipe: Connection, count: int) -> None:
    """Serve pods until killed; send the URL, then the number of requests whenever asked."""
    asyncio.run(_serve(pipe, count))


async def _serve(pipe: Connection, count: int) -> None:
    async with APIServer(auto_namespaces=True) as server:
        for body in pods(count):
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        pipe.send(server.url)
        while await asyncio.to_thread(pipe.recv):
            pipe.send(len(server.requests))


class CountingSelector(selectors.DefaultSelector):
    """Selector that counts how often the event loop waits for it."""

    waits = 0

    def select(self, timeout: float | None = None) -> Any:
        """Wait: see `selectors.BaseSelector.select`."""
        self.waits += 1
        return super().select(timeout)


def watch(pipe: Connection, url: str, informers: int) -> None:
    """Run informers until killed.

    Args:
        pipe: Sends True once all are synced. It receives a number of seconds, and sends the
            seconds of CPU and the number of wake-ups in this time.
        url: URL of the server.
        informers: Number of informers.
    """
    selector = CountingSelector()
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(selector)
    ) as runner:
        runner.run(_watch(pipe, url, informers, selector))


async def _watch(
    pipe: Connection, url: str, informers: int, selector: CountingSelector
) -> None:
    factory = SharedInformerFactory(Client.from_url(url))
    for number in range(informers):
        informer = factory.informer(PODS, name=f"pods {number}")
        informer.add_event_handler(on_event=_ignore)

    async with factory:
        await factory.wait_for_cache_sync(timeout=60)
        pipe.send(True)
        seconds = await asyncio.to_thread(pipe.recv)
        cpu, waits = time.process_time(), selector.waits
        await asyncio.sleep(seconds)
        pipe.send((time.process_time() - cpu, selector.waits - waits))
        await asyncio.Event().wait()


async def _ignore(event: Notification) -> None:
    pass


if __name__ == "__main__":
    sys.exit(run(measure))
