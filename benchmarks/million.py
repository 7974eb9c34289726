"""A million pods in one process, which follows their changes and serves a web route.

The API server has 1,000,000 pods of 8 KB and 300,000 objects of 1.4 KB in nine other
collections. An app lists all of them by ten informers, with an async handler each, then
follows 8,000 changes per second, then lists everything again in another state, and
rests. Bodies are compressed; in the row `compressed`, there is a memory budget of 1.6
GiB, too. A client requests a web route of the same event loop every 5 ms all the time.
In the end, whole stores are compared.

The app has a core of its own; API server and web client share the others. If they delay
each other there, that counts as the app's. The delay of a change begins before the
server sends it, and ends in the handler.

    python benchmarks/million.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from bench.alone import companion, reserved_core
from bench.contestant import KUBE_RS_STREAMING, PLAIN_LIST
from bench.corpus import encoded_pods
from bench.figures import OURS, Figure, median, percentile
from bench.large_app import Settings, run_large_app, without_dictionary
from bench.large_cluster import serve_large_cluster
from bench.script import Options, run
from bench.turns import Course, figures, in_turns
from bench.web_client import Request, keep_requesting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from bench.contestant import Report

BENCHMARK = "million"
EVERY_SECONDS = 0.005
KIB_A_GIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Amount of work.

    Attributes:
        pods: Number of pods.
        others: Number of other objects.
        rate: Changes per second.
        seconds: Duration of the changes.
        rest_seconds: Duration without work.
        peers: Number of pods for other clients, which hold fewer.
    """

    pods: int
    others: int
    rate: float
    seconds: float
    rest_seconds: float
    peers: int


FULL = Sizes(
    pods=1_000_000,
    others=300_006,  # nine collections of the same size
    rate=8_000,
    seconds=30,
    rest_seconds=20,
    peers=100_000,
)
QUICK = Sizes(
    pods=2_000, others=900, rate=500, seconds=0.5, rest_seconds=0.3, peers=500
)
ROWS: dict[str, Settings] = {
    "compressed": {"memory_budget": "1.6GiB"},
    "compressed, without managed fields": {"drops_managed_fields": True},
    "compressed, metadata only": {"metadata_only": True},
}


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK if options.quick else FULL
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with (
        reserved_core() as (core, note),
        companion(serve_large_cluster, sizes.pods, sizes.others) as cluster,
    ):
        url, size = cluster.recv()
        values["size of a pod in JSON", "JSON", "KiB/pod"].append(size / 1024)
        for number in range(options.fewer_rounds):
            for name, settings in ROWS.items():
                print(f"{name}, run {number + 1}", file=sys.stderr)
                with companion(run_large_app, url, core, settings) as app:
                    for case, unit, value in once(sizes, cluster, app):
                        print(f"  {case}: {value:,.4g} {unit}", file=sys.stderr)
                        values[case, f"{OURS}, {name}", unit].append(value)

    for (case, contestant, unit), runs in values.items():
        case = f"{sizes.pods:,} pods: {case}"
        figure = median(BENCHMARK, case, contestant, unit, runs)
        yield msgspec.structs.replace(figure, note=note)

    if not options.quick:
        yield from peers(sizes, options)


def once(
    sizes: Sizes, cluster: Connection, app: Connection
) -> Iterator[tuple[str, str, float]]:
    """Measure an app once; yield cases, units and values.

    Raises:
        RuntimeError: The final state of an informer differs from the server.
    """
    port, before = app.recv()
    total = sizes.pods + sizes.others
    with companion(keep_requesting, port, EVERY_SECONDS) as client:
        client.recv()  # its first response
        synced = _told(app, "sync", total)
        yield "all synced", "s", synced["seconds"]
        grown = synced["resident"] - before["resident"]
        yield "memory of an object", "KiB/object", grown / total
        yield "resident", "GiB", synced["resident"] / KIB_A_GIB
        yield "peak of the list", "GiB", synced["peak"] / KIB_A_GIB

        _told(app, "follow")  # before the first event
        sent = _told(cluster, "events", sizes.rate, sizes.seconds)
        followed = _told(app, "followed", sent)
        yield "changes followed", "events/s", sent / followed["seconds"]
        delays = followed["delays"]
        yield "delay of a change: p50", "ms", percentile(delays, 0.5)
        yield "delay of a change: p99", "ms", percentile(delays, 0.99)
        yield "CPU at that rate", "% of a core", followed["cpu"]

        app.send(("relist", total))
        cluster.send(("relist",))
        cluster.recv()
        relisted = app.recv()
        yield "relist of everything", "s", relisted["told"]
        yield "relist, with what follows it", "s", relisted["seconds"]
        yield "peak of a relist", "GiB", relisted["peak"] / KIB_A_GIB
        ratio = relisted["peak"] / synced["resident"]
        yield "peak of a relist, compared with resident", "ratio", ratio

        rested = _told(app, "rest", sizes.rest_seconds)
        yield "CPU at rest, with web requests", "% of a core", rested["cpu"]
        client.send("end")
        requests: list[Request] = client.recv()
        quiet = _told(app, "rest", sizes.rest_seconds)
        yield "CPU at rest", "% of a core", quiet["cpu"]
        for phase, one in {
            "list": synced,
            "changes": followed,
            "relist": relisted,
            "rest": rested,
        }.items():
            times = [
                it.seconds * 1000
                for it in requests
                if it.sent < one["ended"] and it.sent + it.seconds > one["began"]
            ]
            for name, share in {"p99": 0.99, "worst": 1.0}.items():
                yield f"web, {phase}: {name}", "ms", percentile(times, share)

        if _told(app, "digests") != _told(cluster, "digests"):
            raise RuntimeError("an informer has another state than the server")


def _told(pipe: Connection, *command: object) -> Any:
    pipe.send(command)
    return pipe.recv()


def peers(sizes: Sizes, options: Options) -> Iterator[Figure]:
    """Yield the memory of other clients with a tenth of the pods, and what zstd alone makes."""
    pods = encoded_pods(sizes.peers)
    case = f"{sizes.peers:,} pods: memory of a pod"
    alone = without_dictionary(pods[:: max(1, len(pods) // 1000)])
    yield median(BENCHMARK, case, "zstd without a dictionary", "KiB/pod", [alone])
    outcomes = in_turns(
        case, Course(pods=pods), (PLAIN_LIST, KUBE_RS_STREAMING), options.fewer_rounds
    )
    yield from figures(BENCHMARK, case, "KiB/pod", outcomes, held)


def held(report: Report) -> float:
    grown = report["synced"]["resident"] - report["start"]["resident"]
    return float(grown / report["synced"]["objects"])


if __name__ == "__main__":
    sys.exit(run(measure))
