"""From the first request of a list to a handler that has seen every pod.

The pods are prepared bytes, sent by a process of its own in chunks, as kube-apiserver sends
them; a case of its own has them with a Content-Length. In one case, the body is not
read. In the other there is an index on `spec.nodeName`, and the handler reads
`status.phase`. Clients that decode everything pay the same in both.

Two more cases are about `strip_managed_fields`, without peers: the pods arrive with their
managed fields or, as from a server with `ManagedFieldsOptOut`, without them.

    python benchmarks/list_sync.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.contestant import (
    KUBE_RS_STREAMING,
    OURSELVES,
    PEERS,
    PLAIN_LIST,
    PROTOBUF,
    PROTOBUF_PLAIN_LIST,
)
from bench.corpus import encoded_pods
from bench.figures import OURS, Figure
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

from aioinformer import KubeObject, strip_managed_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
BENCHMARK = "list_sync"
LOOKS = {
    "body not read": (),
    "index on nodeName, handler reads phase": ("--body",),
}
MANY = 100_000
FAST = {"client-go typed JSON", "kube-rs", "lightkube"}
"""Contestants that list 100,000 pods within a minute, and within the memory."""


def measure(options: Options) -> Iterator[Figure]:
    for size in (500,) if options.quick else (10_000, MANY):
        pods = encoded_pods(size)
        rounds = options.rounds if size < MANY else options.fewer_rounds
        fast = [it for it in PEERS if it.name in FAST]
        fast += [PLAIN_LIST, KUBE_RS_STREAMING]
        # Encoding 100,000 pods as protobuf would take longer than all measurements.
        slow = [it for it in PEERS if it.name not in FAST]
        peers = fast if size == MANY else [*fast, *slow, PROTOBUF, PROTOBUF_PLAIN_LIST]
        for look, arguments in LOOKS.items():
            case = f"{size:,} pods, {look}"
            course = Course(pods=pods, options=arguments)
            outcomes = in_turns(case, course, (OURSELVES, *peers), rounds)
            yield from figures(BENCHMARK, case, "pods/s", outcomes, rate)

        if size < MANY:
            case = f"{size:,} pods, body not read, with a Content-Length"
            course = Course(pods=pods, content_length=True)
            outcomes = in_turns(case, course, (OURSELVES, *fast), rounds)
            yield from figures(BENCHMARK, case, "pods/s", outcomes, rate)

        yield from managed_fields(pods, rounds)


def managed_fields(pods: list[bytes], rounds: int) -> Iterator[Figure]:
    """Measure pods whose managed fields are sent, and pods whose are not."""
    sent = {"sent": pods, "not sent": [*map(without_managed_fields, pods)]}
    for what, bodies in sent.items():
        case = f"{len(pods):,} pods, managed fields stripped, {what}"
        course = Course(pods=bodies, options=("--transform", "drop-managed-fields"))
        outcomes = in_turns(case, course, (OURSELVES,), rounds)
        yield from figures(BENCHMARK, case, "pods/s", outcomes, rate)
        yield Figure(
            benchmark=BENCHMARK,
            case=f"{case}: bytes",
            contestant=OURS,
            unit="KiB/pod",
            value=sum(map(len, bodies)) / len(bodies) / 1024,
        )


def without_managed_fields(pod: bytes) -> bytes:
    """Return a pod as a server with `ManagedFieldsOptOut` sends it."""
    return strip_managed_fields(KubeObject.of(pod)).raw


def rate(report: Report) -> float:
    return float(report["synced"]["objects"] / report["synced"]["seconds"])


if __name__ == "__main__":
    sys.exit(run(measure))
