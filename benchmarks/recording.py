"""Recordings: what they cost the informers, their size, and how long a replay takes.

A process has informers of 1,000 pods of 8 KB and of nine small collections, which change 20
times per second. Its CPU is compared with and without a recording, in turns. The CPU of the
recorder's thread counts.

A second case records an hour of that by a clock of its own, in memory, and measures the
file and a replay to an informer.

    python benchmarks/recording.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.alone import companion
from bench.canned_server import at_version
from bench.corpus import encoded_pods
from bench.figures import OURS, Figure, median
from bench.large_cluster import OTHERS, serve_large_cluster
from bench.script import Options, run

from aioinformer import Client, KubeObject, Resource, SharedInformerFactory, Updated
from aioinformer.recording import Digest, record, replay
from aioinformer.recording.lines import InformerLine
from aioinformer.recording.redaction import Redaction
from aioinformer.recording.sinks import Entry, FileSink, Whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from aioinformer.informer.notifications import Notification

BENCHMARK = "recording"
RATE = 20
SECONDS_AN_HOUR = 3600
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work.

    Attributes:
        pods: Number of pods.
        seconds: Duration of the changes.
        hour: Seconds of the long recording.
    """

    pods: int
    seconds: float
    hour: int


FULL = Sizes(pods=1_000, seconds=60, hour=SECONDS_AN_HOUR)
QUICK = Sizes(pods=100, seconds=1, hour=10)


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK if options.quick else FULL
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with companion(serve_large_cluster, sizes.pods, 10 * OTHERS) as cluster:
        url, _ = cluster.recv()
        for number in range(options.rounds):
            used = {}
            for recorded in (False, True):
                with (
                    tempfile.TemporaryDirectory() as folder,
                    companion(follow, url, folder if recorded else "") as app,
                ):
                    app.recv()
                    app.send("begin")
                    app.recv()  # before the first change
                    cluster.send(("events", RATE, sizes.seconds))
                    count = cluster.recv()
                    app.send(count)
                    used[recorded] = app.recv()

            print(f"run {number + 1}: {used}", file=sys.stderr)
            case = f"{RATE} changes/s"
            for recorded, name in {False: "not recorded", True: "recorded"}.items():
                row = (f"{case}: CPU", f"{OURS}, {name}", "% of a core")
                values[row].append(used[recorded]["cpu"])

            for what, name in {"cpu": "", "loop": " in the event loop"}.items():
                more = 100 * (used[True][what] / used[False][what] - 1)
                row = (f"{case}: CPU of a recording{name}", OURS, "% of the informers")
                values[row].append(more)

    for number in range(options.rounds):
        for name, unit, value in hour(sizes):
            print(
                f"hour, run {number + 1}: {name}: {value:,.4g} {unit}", file=sys.stderr
            )
            values[f"an hour of {RATE} changes/s: {name}", OURS, unit].append(value)

    for (case, contestant, unit), runs in values.items():
        yield median(BENCHMARK, case, contestant, unit, runs)


# ------------------------------------------------------------ the cost


def follow(pipe: Connection, url: str, folder: str) -> None:
    """Run informers, and report their CPU between `begin` and a number of changes.

    In all threads, and in that of the event loop.

    Args:
        pipe: Pipe for commands and reports.
        url: Address of the API server.
        folder: Folder of a recording; empty for none.
    """
    asyncio.run(_follow(pipe, url, folder))


async def _follow(pipe: Connection, url: str, folder: str) -> None:
    seen, expected, reached = 0, -1, asyncio.Event()

    async def changed(_: Notification) -> None:
        nonlocal seen
        seen += 1
        if seen == expected:
            reached.set()

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client.from_url(url))
        factory = SharedInformerFactory(client)
        names = ["pods", *(f"others{number}" for number in range(OTHERS))]
        for name in names:
            factory.informer(Resource("", "v1", name)).add_event_handler(
                on_event=changed
            )

        await stack.enter_async_context(factory)
        await factory.wait_for_cache_sync(60)
        if folder:
            recorder = record(factory, Path(folder) / "it.alog")
            await stack.enter_async_context(recorder)
            await recorder.save()  # the objects in the stores

        await asyncio.sleep(1)
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)
        seen, began = 0, time.monotonic()
        cpu, loop_cpu = time.process_time(), time.thread_time()
        pipe.send(None)
        expected = await asyncio.to_thread(pipe.recv)
        if seen < expected:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await reached.wait()

        percent = 100 / (time.monotonic() - began)
        used = (time.process_time() - cpu, time.thread_time() - loop_cpu)
        pipe.send({"cpu": percent * used[0], "loop": percent * used[1]})
        await asyncio.to_thread(pipe.recv)


# ------------------------------------------------------------ an hour


def hour(sizes: Sizes) -> Iterator[tuple[str, str, float]]:
    """Yield the figures of a long recording, and of its replay."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it.alog"
        size, changes, version, cpu = _record_hour(path, sizes)
        yield "CPU of the writer", "us/change", 1e6 * cpu / changes
        yield "file", "MB", path.stat().st_size / 1e6
        yield "text", "MB", size / 1e6
        began = time.perf_counter()
        count = asyncio.run(_replay(path, version))
        yield "replay", "s", time.perf_counter() - began
        assert count == changes + sizes.pods, (count, changes)


def _record_hour(path: Path, sizes: Sizes) -> tuple[int, int, int, float]:
    """Write a recording by a clock of its own.

    Returns:
        Bytes, number of changes, last version, and seconds of CPU that writing took.
    """
    rng = random.Random(1)
    sink = FileSink(path, Redaction())
    sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
    pods = [KubeObject.of(it) for it in encoded_pods(sizes.pods)]
    line = InformerLine(
        t=0, e="INFORMER", s=0, name="pods", api_version="v1", plural="pods", kind="Pod"
    )
    version = max(int(it.resource_version) for it in pods)
    sink.write([Entry(0, 0, line), Entry(0, 0, Whole(pods, str(version)))])
    changes = size = 0
    cpu = 0.0
    for second in range(sizes.hour):
        portion = []
        for part in range(RATE):
            version += 1
            index = rng.randrange(len(pods))
            new = KubeObject.of(at_version(pods[index].raw, version))
            size += len(new.raw)
            event: Any = Updated(pods[index], new)
            pods[index] = new
            portion.append(Entry(second + part / RATE, 0, [event]))

        began = time.process_time()
        sink.write(portion)
        cpu += time.process_time() - began
        changes += len(portion)

    sink.close(sizes.hour)
    return size, changes, version, cpu


async def _replay(path: Path, version: int) -> int:
    """Replay a recording up to a version; return the number of notifications."""
    async with replay(path) as played:
        pods = played.informer("pods")
        told = Digest()
        registration = pods.add_event_handler(on_event=told)
        running = asyncio.create_task(pods.run())
        await played.run()
        await pods.wait_for_version(str(version), 60)
        while registration.depth:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.001)

        running.cancel()
        await asyncio.wait({running})
        return told.count


if __name__ == "__main__":
    sys.exit(run(measure))
