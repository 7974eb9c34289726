"""Reads from a cache: their durations, and the growth with the size of the cache.

There is no server and no informer: an `Indexer` as an informer has it, filled with its
objects, and a `Lister`. The index has a hundred objects for each value. They are spread
over memory like the pods of a node, and values are read in random order. So in a large
cache they are rarely in the processor's cache. That is the whole cost of the size, as the
reads of the same hundred objects show. Times are processor times: nothing waits here, and
other programs matter less.

    python benchmarks/indexer.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.alone import alone
from bench.corpus import encoded_pods
from bench.digest import digest
from bench.figures import OURS, median
from bench.script import Options, run

from aioinformer import Indexer, KubeObject, Lister
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace, index_by_label
from aioinformer.model.resources import PODS
from aioinformer.watch.decoding import ObjectDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.figures import Figure

BENCHMARK = "indexer"
SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (1_000, 2_000)
TOGETHER = 100
"""Objects per value of the index."""

SAME = f"the same {TOGETHER} objects, repeatedly"

WARM_UP = 100
"""Uncounted reads first, in which the interpreter specialises the code."""

NAME_LABEL = "app.kubernetes.io/name"
PART_LABEL = "app.kubernetes.io/part-of"
# Labels without an index, so that each selector scans all objects.
SELECTORS = {
    "one label": "tier=t1",
    "two labels": f"tier=t1,{PART_LABEL}=cache",
    "a set and an inequality": f"tier in (t1,t2),{PART_LABEL}!=cache",
}


class Repeats(NamedTuple):
    """Repetitions of reads in one process.

    Attributes:
        short: Repetitions of reads that take microseconds.
        scans: Repetitions of reads that scan all objects.
    """

    short: int
    scans: int


FULL = Repeats(short=20_000, scans=20)
QUICK = Repeats(short=1_000, scans=3)


class Times(NamedTuple):
    """Results of one process.

    Attributes:
        short: Microseconds for each read that does not scan.
        scans: Milliseconds for each read that scans all objects.
    """

    short: dict[str, float]
    scans: dict[str, float]


def measure(options: Options) -> Iterator[Figure]:
    sizes = QUICK_SIZES if options.quick else SIZES
    repeats = QUICK if options.quick else FULL
    runs: dict[int, list[Times]] = {size: [] for size in sizes}
    for number in range(options.rounds):
        for size, times in runs.items():
            print(f"{BENCHMARK}: {size:,}, run {number + 1}", file=sys.stderr)
            times.append(alone(reads, size, repeats))

    for size, times in runs.items():
        for name in times[0].short:
            values = [it.short[name] for it in times]
            yield median(BENCHMARK, f"{name}, among {size:,}", OURS, "μs", values)

        for name in times[0].scans:
            values = [it.scans[name] for it in times]
            yield median(BENCHMARK, f"{name}, over {size:,}", OURS, "ms", values)

    yield from _growth(runs)


def _growth(runs: dict[int, list[Times]]) -> Iterator[Figure]:
    """Yield the ratios of the durations in a larger and a smaller store."""
    fewest, most = min(runs), max(runs)
    for name in runs[most][0].short:
        ratios = [
            many.short[name] / few.short[name]
            for many, few in zip(runs[most], runs[fewest], strict=True)
        ]
        case = f"{name}, among {most:,} compared with {fewest:,}"
        yield median(BENCHMARK, case, OURS, "ratio", ratios)


# ---------------------------------------------------------------- in a process


def reads(size: int, repeats: Repeats) -> Times:
    """Fill an indexer, read from it in all ways, and check the results.

    Args:
        size: Number of objects.
        repeats: Repetitions of the reads.

    Raises:
        RuntimeError: A read found too much or too little, or the cache has another content
            than was added.
    """
    pods = encoded_pods(size)
    indexer = filled(pods)
    # The checks of an informer's lister: whether it runs and, on request, its age.
    lister = Lister(indexer, _live, lambda age, namespace: None)
    drawn = random.Random(size)

    def times(read: Callable[[str], object], values: list[str]) -> float:
        return _seconds_for_each(read, drawn.choices(values, k=repeats.short)) * 1e6

    values_of = indexer.list_index_func_values
    namespaces = values_of(NAMESPACE_INDEX)
    selectors = [f"{NAME_LABEL}={name}" for name in values_of("name")]
    of_namespace = times(lambda it: lister.namespace(it).list(), namespaces)
    short = {
        "one object by key": times(lister.get, indexer.list_keys()),
        f"{TOGETHER} objects by index": times(
            lambda it: lister.by_index("group", it), values_of("group")
        ),
        SAME: times(lambda it: lister.by_index("group", it), values_of("group")[:1]),
        "objects of an application, by an indexed label": times(lister.list, selectors),
        "a namespace, per object": of_namespace * len(namespaces) / size,
    }
    scans = {
        f"selector of {name}": _seconds_for_each(lister.list, [text] * repeats.scans)
        * 1e3
        for name, text in SELECTORS.items()
    }
    check(lister, indexer, pods)
    return Times(short, scans)


def filled(pods: list[bytes]) -> Indexer[KubeObject]:
    """Return an indexer as an informer has it, with the objects of these pods."""
    decode = ObjectDecoder(PODS).decode
    head = b'{"kind":"Pod","apiVersion":"v1",'
    objects = [decode(head + pod[1:]) for pod in pods]
    values = [number % (len(pods) // TOGETHER) for number in range(len(pods))]
    group_of = {
        obj.key: (f"group-{value}",) for obj, value in zip(objects, values, strict=True)
    }
    indexer = Indexer[KubeObject](
        {
            NAMESPACE_INDEX: by_namespace,
            "group": lambda obj: group_of[obj.key],
            "name": index_by_label(NAME_LABEL),
        }
    )
    indexer.replace(objects, "1")
    return indexer


def _live(namespace: str | None, *, unconfirmed: bool = False) -> None:
    """Accept every read."""


def _seconds_for_each(read: Callable[[str], object], arguments: Sequence[str]) -> float:
    for argument in arguments[:WARM_UP]:
        read(argument)

    started = time.process_time()
    for argument in arguments:
        read(argument)

    return (time.process_time() - started) / len(arguments)


def check(lister: Lister, indexer: Indexer[KubeObject], pods: list[bytes]) -> None:
    """Compare the results with a scan of all objects."""
    objects = indexer.list()
    if digest(obj.raw for obj in objects) != digest(pods):
        raise RuntimeError("the cache has another content than was added")

    for group in indexer.list_index_func_values("group"):
        if len(lister.by_index("group", group)) != TOGETHER:
            raise RuntimeError(f"not {TOGETHER} objects in {group}")

    tiers = [obj.labels["tier"] for obj in objects]
    parts = [obj.labels[PART_LABEL] == "cache" for obj in objects]
    pairs = list(zip(tiers, parts, strict=True))
    counts = (
        tiers.count("t1"),
        pairs.count(("t1", True)),
        pairs.count(("t1", False)) + pairs.count(("t2", False)),
    )
    for selector, count in zip(SELECTORS.values(), counts, strict=True):
        if len(lister.list(selector)) != count:
            raise RuntimeError(f"{selector!r} does not find {count} objects")

    spaces = indexer.list_index_func_values(NAMESPACE_INDEX)
    if sum(len(lister.namespace(it).list()) for it in spaces) != len(objects):
        raise RuntimeError("the namespaces together do not have all objects")


if __name__ == "__main__":
    sys.exit(run(measure))
