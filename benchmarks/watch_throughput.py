"""Changes of pods, from the watch to an async handler, through the whole pipeline.

After the list the canned server sends changes as fast as they are taken: sixteen in an
HTTP chunk, as a busy server does, or each alone. And then a thousand a second, each
alone: how long after it was sent has the handler got it?

    python benchmarks/watch_throughput.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.canned_server import Changes
from bench.contestant import OURSELVES, PEERS
from bench.corpus import encoded_pods
from bench.figures import percentile
from bench.script import Options, run
from bench.turns import Course, figures, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Report
    from bench.figures import Figure

QUESTION = "watch_throughput"
# What is asked, how many changes are in a chunk, and what contestants are given.
BULK = {
    "16 a chunk, nobody looks at the body": (16, ()),
    "16 a chunk, handler reads phase": (16, ("--body",)),
    "one a chunk, nobody looks at the body": (1, ()),
}
LONE_RATE = 1000.0


def measure(options: Options) -> Iterator[Figure]:
    pods = encoded_pods(200 if options.quick else 2_000)
    everyone = (OURSELVES, *PEERS)
    for case, (a_chunk, arguments) in BULK.items():
        count = 500 if options.quick else 20_000
        changes = Changes(count=count, a_chunk=a_chunk)
        course = Course(pods=pods, changes=changes, options=arguments)
        outcomes = in_turns(case, course, everyone, options.rounds)
        yield from figures(QUESTION, case, "events/s", outcomes, rate)

    # Who takes fewer than a thousand a second would only show how long its queue is.
    case = "a thousand a second, one a chunk"
    count = 500 if options.quick else 5_000
    changes = Changes(count=count, a_chunk=1, rate=LONE_RATE)
    course = Course(pods=pods, changes=changes)
    fast = (OURSELVES, *(it for it in PEERS if not it.slow))
    outcomes = in_turns(case, course, fast, options.rounds)
    for share, name in ((0.5, "p50"), (0.99, "p99"), (1.0, "worst")):

        def latency(report: Report, share: float = share) -> float:
            return percentile(report["watched"]["latencies"], share)

        yield from figures(QUESTION, f"{case}: {name}", "ms", outcomes, latency)


def rate(report: Report) -> float:
    return float(report["watched"]["events"] / report["watched"]["seconds"])


if __name__ == "__main__":
    sys.exit(run(measure))
