"""Changes of pods, from the watch to an async handler, through the whole pipeline.

After the list, the canned server sends changes as fast as the client reads them: 16 in
each HTTP chunk, as a busy server does, or one. Then it sends a thousand per second, one in
each chunk, to measure the latency until the handler gets it. The versions of these changes
are times, so they are not encoded in advance, and there is no protobuf.

    python benchmarks/watch_throughput.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.canned_server import Changes
from bench.contestant import OURSELVES, PEERS, PROTOBUF
from bench.corpus import encoded_pods
from bench.figures import percentile
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
    from bench.figures import Figure

BENCHMARK = "watch_throughput"
# Case, changes per chunk, and options of the contestants.
BULK = {
    "16 per chunk, body not read": (16, ()),
    "16 per chunk, handler reads phase": (16, ("--body",)),
    "1 per chunk, body not read": (1, ()),
}
LONE_RATE = 1000.0


def measure(options: Options) -> Iterator[Figure]:
    pods = encoded_pods(200 if options.quick else 2_000)
    everyone = (OURSELVES, *PEERS, PROTOBUF)
    for case, (a_chunk, arguments) in BULK.items():
        count = 500 if options.quick else 20_000
        changes = Changes(count=count, a_chunk=a_chunk)
        course = Course(pods=pods, changes=changes, options=arguments)
        outcomes = in_turns(case, course, everyone, options.rounds)
        yield from figures(BENCHMARK, case, "events/s", outcomes, rate)

    # A client below a thousand per second would only show the length of its queue.
    case = "1,000/s, 1 per chunk"
    count = 500 if options.quick else 5_000
    changes = Changes(count=count, a_chunk=1, rate=LONE_RATE)
    course = Course(pods=pods, changes=changes)
    fast = (OURSELVES, *(it for it in PEERS if not it.slow))
    outcomes = in_turns(case, course, fast, options.rounds)
    for share, name in ((0.5, "p50"), (0.99, "p99"), (1.0, "worst")):

        def latency(report: Report, share: float = share) -> float:
            return percentile(report["watched"]["latencies"], share)

        yield from figures(BENCHMARK, f"{case}: {name}", "ms", outcomes, latency)


def rate(report: Report) -> float:
    return float(report["watched"]["events"] / report["watched"]["seconds"])


if __name__ == "__main__":
    sys.exit(run(measure))
