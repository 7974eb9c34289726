"""One cache for all workers of a web app, compared with one for each, and with Redis.

uvicorn starts eight workers, which share a directory by `cache_dir`, and have an index on
`spec.nodeName` and a handler of updates. A server of prepared bytes has 100,000 pods
and sends 1,000 changes per second. Peers: workers with informers of their own, and
workers that read from Redis, which a further process fills.

An app is ready when its copy is complete. Memory is anonymous memory (`RssAnon`): pages of
mapped files are shared by all workers. Reads are measured in one worker at a time.

    python benchmarks/shared_cache.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from bench.alone import alone, companion
from bench.canned_server import Changes, canned_server
from bench.corpus import encoded_pods
from bench.figures import OURS, Figure, median, percentile
from bench.redis_store import fill, missing, redis_server
from bench.script import Options, run
from bench.shared_app import SETTINGS, Changed, Ready, Settings, Spent, informer_of

from aioinformer import Client, SharedInformerFactory
from aioinformer.errors import NotSynced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

BENCHMARK = "shared_cache"
EACH = "an informer in each worker"
EACH_COMPRESSED = "an informer in each worker, compressed"
REDIS = "Redis"
A_NODE = 100
"""Pods of a node."""

CHANGES_A_SECOND = 1_000.0
START_SECONDS = 300.0
TAKEOVER_SECONDS = 30.0
SELECTORS = {
    "a label of few": "app.kubernetes.io/part-of=cache,tier=t1",
    "a label of many": "tier=t1",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work."""

    pods: int
    workers: int
    changes: int
    reads: int
    index_reads: int
    scans: int


FULL = Sizes(
    pods=100_000, workers=8, changes=10_000, reads=20_000, index_reads=500, scans=20
)
QUICK = Sizes(pods=1_000, workers=2, changes=200, reads=200, index_reads=20, scans=3)


@dataclass(kw_only=True)
class Outcome:
    """Results of a contestant: values of all rounds, by case and unit."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, case: str, unit: str, value: float) -> None:
        """Add the value of a round."""
        self.values.setdefault((case, unit), []).append(value)
        print(f"  {case}: {value:,.4g} {unit}", file=sys.stderr, flush=True)

    def spans(self, case: str, unit: str, values: list[float], *names: str) -> None:
        """Add percentiles of durations."""
        for name in names:
            self.add(f"{case}: {name}", unit, percentile(values, SHARES[name]))


SHARES = {"p50": 0.5, "p99": 0.99}


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK if options.quick else FULL
    pods = list(on_nodes(encoded_pods(sizes.pods)))
    contestants = [OURS, EACH] if options.quick else [OURS, EACH, EACH_COMPRESSED]
    why = missing()
    if not why:
        contestants.append(REDIS)

    outcomes = {name: Outcome() for name in contestants}
    empty: list[float] = []
    for number in range(options.rounds):
        with workers(Settings(control=""), 1) as (alone_,):
            empty.append(ask(alone_, "memory"))

        for name, outcome in outcomes.items():
            print(f"{name}, run {number + 1}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="shared-cache-") as folder:
                contest(name, sizes, pods, empty[-1], outcome, Path(folder))

        compare(outcomes)

    for name, outcome in outcomes.items():
        for (case, unit), values in outcome.values.items():
            full = f"{sizes.workers} workers, {sizes.pods:,} pods: {case}"
            yield median(BENCHMARK, full, name, unit, values)

    if why:
        print(f"{REDIS}: not measured, as {why}", file=sys.stderr)


def on_nodes(pods: list[bytes]) -> Iterator[bytes]:
    """Yield the pods with as many nodes as make a hundred pods for each."""
    for number, pod in enumerate(pods):
        node = b'"nodeName":"node-%d"' % (number % max(1, len(pods) // A_NODE))
        yield re.sub(rb'"nodeName":"[^"]*"', node, pod, count=1)


def contest(
    name: str,
    sizes: Sizes,
    pods: list[bytes],
    empty: float,
    outcome: Outcome,
    folder: Path,
) -> None:
    """Run all measurements of a contestant once."""
    if name in {OURS, EACH}:
        # Just before the start of all, as a busy machine affects both.
        one_alone(name, pods, folder, outcome)

    changes = Changes(count=sizes.changes, rate=CHANGES_A_SECOND, a_chunk=1)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(canned_server(pods, changes))
        settings = settings_of(name, url, folder, stack)
        began = time.monotonic()
        with workers(settings, sizes.workers) as crew:
            outcome.add("all ready", "s", max(it.ready.at for it in crew) - began)
            memory(crew, empty, outcome)
            reads(crew[-1], pods, sizes, outcome)
            watches = 1 if name in {OURS, REDIS} else sizes.workers
            change(crew, sizes.changes, url, watches, outcome)
            outcome.add("watches at the server", "watches", requests(url)["watches"])
            if name == OURS:
                on_disk(folder / "cache", sizes, outcome)
                takeover(crew, url, outcome)

        if name == OURS:
            restart(url, folder, pods, outcome)

    if name in {OURS, EACH}:
        rate(name, pods, folder, outcome)


def settings_of(
    name: str, url: str, folder: Path, stack: contextlib.ExitStack
) -> Settings:
    """Return the settings of a contestant's workers; start what it needs."""
    if name == REDIS:
        path = stack.enter_context(redis_server(folder))
        filler = stack.enter_context(companion(fill, url, path))
        filler.recv()
        return Settings(control="", url=url, redis=path)

    if name == OURS:
        return Settings(control="", url=url, cache_dir=str(folder / "cache"))

    return Settings(
        control="", url=url, compression="zstd" if name == EACH_COMPRESSED else ""
    )


def compare(outcomes: dict[str, Outcome]) -> None:
    """Add the ratios of one cache to an informer in memory, within a round."""
    ours, theirs = outcomes[OURS], outcomes[EACH]
    selectors = [f"selector of {it}: p50" for it in SELECTORS]
    for case, unit in [("list rate", "pods/s"), *((it, "ms") for it in selectors)]:
        ratio = ours.values[case, unit][-1] / theirs.values[case, unit][-1]
        ours.add(f"{case}, compared with memory", "ratio", ratio)

    many, one = (ours.values[it, "s"][-1] for it in ("all ready", "one ready"))
    ours.add("all ready, compared with one alone", "ratio", many / one)


# ---------------------------------------------------------------- measurements


def memory(crew: list[Worker], empty: float, outcome: Outcome) -> None:
    for worker in crew:
        ask(worker, "told")

    grown = sorted(ask(worker, "memory") - empty for worker in crew)
    case = "private memory of a worker"
    outcome.add(f"{case}, median", "MiB", percentile(grown, 0.5))
    outcome.add(f"{case}, largest", "MiB", grown[-1])


def reads(worker: Worker, pods: list[bytes], sizes: Sizes, outcome: Outcome) -> None:
    drawn = random.Random(1)
    keys = [key_of(it) for it in drawn.choices(pods, k=sizes.reads)]
    spent: Spent = ask(worker, "get", keys)
    if spent.found != len(keys):
        raise RuntimeError(f"only {spent.found} of {len(keys)} pods were found")

    outcome.spans("get", "μs", spent.microseconds, "p50", "p99")
    nodes = [f"node-{it}" for it in range(max(1, len(pods) // A_NODE))]
    spent = ask(worker, "by_node", drawn.choices(nodes, k=sizes.index_reads))
    if spent.found != A_NODE * sizes.index_reads:
        raise RuntimeError(f"{spent.found} pods were found by index")

    milliseconds = [it / 1000 for it in spent.microseconds]
    outcome.spans(f"{A_NODE} by index", "ms", milliseconds, "p50", "p99")
    for what, selector in SELECTORS.items():
        spent = ask(worker, "select", [selector] * sizes.scans)
        milliseconds = [it / 1000 for it in spent.microseconds]
        found = spent.found // sizes.scans
        print(f"  {what} finds {found:,}", file=sys.stderr)
        outcome.spans(f"selector of {what}", "ms", milliseconds, "p50")


def change(
    crew: list[Worker], count: int, url: str, watches: int, outcome: Outcome
) -> None:
    """Send changes, and wait until the handlers of all workers have got them."""
    for worker in crew:
        worker.pipe.send(("watch", count))

    with urllib.request.urlopen(f"{url}/bench/go?watches={watches}"):
        pass

    seen: list[Changed] = [worker.pipe.recv() for worker in crew]
    latencies = [it for one in seen for it in one.latencies]
    case = f"{CHANGES_A_SECOND:,.0f} changes/s"
    outcome.spans(case, "ms", latencies, "p50", "p99")
    worst = max(percentile(it.latencies, 0.99) for it in seen)
    outcome.add(f"{case}: p99 of the slowest worker", "ms", worst)
    shares = sorted(it.cpu for it in seen)
    outcome.add(f"{case}: CPU of a worker, median", "cores", percentile(shares, 0.5))
    outcome.add(f"{case}: CPU of a worker, largest", "cores", shares[-1])


def on_disk(folder: Path, sizes: Sizes, outcome: Outcome) -> None:
    # Files are sparse, so their sizes say nothing.
    files = [it for it in folder.rglob("*") if it.is_file()]
    used = sum(it.stat().st_blocks * 512 for it in files)
    outcome.add("disk", "B/pod", used / sizes.pods)


def takeover(crew: list[Worker], url: str, outcome: Outcome) -> None:
    """Kill the writer, and wait for the watch of another worker."""
    before = requests(url)
    (writer,) = (it for it in crew if ask(it, "writes"))
    killed = time.monotonic()
    os.kill(writer.ready.pid, signal.SIGKILL)
    while requests(url)["watches"] == before["watches"]:
        if time.monotonic() - killed > TAKEOVER_SECONDS:
            raise RuntimeError("no worker took over from the killed one")

        time.sleep(0.005)

    outcome.add("takeover after kill -9", "s", time.monotonic() - killed)
    lists = requests(url)["lists"] - before["lists"]
    outcome.add("takeover after kill -9: lists", "lists", lists)


def restart(url: str, folder: Path, pods: list[bytes], outcome: Outcome) -> None:
    before = requests(url)["lists"]
    readable, synced = alone(
        restarted, url, str(folder / "cache"), key_of(pods[len(pods) // 2])
    )
    outcome.add("restart: readable, unconfirmed", "s", readable)
    outcome.add("restart: synced", "s", synced)
    outcome.add("restart: lists", "lists", requests(url)["lists"] - before)


def restarted(url: str, cache_dir: str, key: str) -> tuple[float, float]:
    """Return the seconds until a pod is readable, and until the cache is confirmed."""
    return asyncio.run(_restarted(url, cache_dir, key))


async def _restarted(url: str, cache_dir: str, key: str) -> tuple[float, float]:
    began = time.monotonic()
    factory = SharedInformerFactory(Client.from_url(url), cache_dir=cache_dir)
    lister = informer_of(factory, "").lister
    async with factory:
        found = None
        while found is None:
            with contextlib.suppress(NotSynced):
                found = lister.get(key, allow_unconfirmed=True)

            await asyncio.sleep(0.001)

        readable = time.monotonic() - began
        await factory.wait_for_cache_sync(timeout=START_SECONDS)
        return readable, time.monotonic() - began


def one_alone(name: str, pods: list[bytes], folder: Path, outcome: Outcome) -> None:
    """Measure the start of one worker with an empty directory."""
    with canned_server(pods) as url, contextlib.ExitStack() as stack:
        settings = settings_of(name, url, folder / "alone", stack)
        began = time.monotonic()
        with workers(settings, 1) as (worker,):
            outcome.add("one ready", "s", worker.ready.at - began)


def rate(name: str, pods: list[bytes], folder: Path, outcome: Outcome) -> None:
    """Measure one list, in a process of its own."""
    cache_dir = str(folder / "rate") if name == OURS else ""
    with canned_server(pods) as url:
        outcome.add("list rate", "pods/s", len(pods) / alone(listed, url, cache_dir))


def listed(url: str, cache_dir: str) -> float:
    """Return the seconds from the start until the cache is complete."""
    return asyncio.run(_listed(url, cache_dir))


async def _listed(url: str, cache_dir: str) -> float:
    more: dict[str, Any] = {"cache_dir": cache_dir} if cache_dir else {}
    async with Client.from_url(url) as client:
        factory = SharedInformerFactory(client, **more)
        informer_of(factory, "")
        began = time.monotonic()
        async with factory:
            await factory.wait_for_cache_sync(timeout=START_SECONDS)
            return time.monotonic() - began


# ---------------------------------------------------------------- workers


@dataclass(frozen=True)
class Worker:
    """One worker of uvicorn."""

    pipe: Connection
    ready: Ready


def ask(worker: Worker, command: str, argument: Any = None) -> Any:
    worker.pipe.send((command, argument))
    return worker.pipe.recv()


@contextmanager
def workers(settings: Settings, count: int) -> Iterator[list[Worker]]:
    """Run uvicorn with some workers for the time of a block, once all are ready."""
    with tempfile.TemporaryDirectory(prefix="workers-") as folder:
        control = f"{folder}/control.sock"
        settings = msgspec.structs.replace(settings, control=control)
        environment = {
            **os.environ,
            SETTINGS: msgspec.json.encode(settings).decode(),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-m", "uvicorn", "bench.shared_app:app"]
        options = ["--workers", str(count), "--port", "0", "--log-level", "warning"]
        with Listener(control, backlog=2 * count) as listener:
            process = subprocess.Popen(
                [*command, *options], env=environment, start_new_session=True
            )
            try:
                with contextlib.ExitStack() as stack:
                    pipes = [
                        stack.enter_context(listener.accept()) for _ in range(count)
                    ]
                    yield [Worker(it, it.recv()) for it in pipes]
            finally:
                # The supervisor would replace workers that end one by one.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def requests(url: str) -> dict[str, int]:
    """Return the numbers of lists and watches at the server so far."""
    with urllib.request.urlopen(f"{url}/bench/requests") as response:
        made: dict[str, int] = json.load(response)
        return made


_NAME = re.compile(rb'"name":"([^"]+)"')
_NAMESPACE = re.compile(rb'"namespace":"([^"]+)"')


def key_of(pod: bytes) -> str:
    """Return the key of an encoded pod."""
    name, namespace = _NAME.search(pod), _NAMESPACE.search(pod)
    assert name is not None
    assert namespace is not None
    return f"{namespace[1].decode()}/{name[1].decode()}"


if __name__ == "__main__":
    sys.exit(run(measure))
