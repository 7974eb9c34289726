"""Bounds of recovery times by cause, derived from the defaults.

The tests in `tests/scenarios` assert them on a real server, and `docs/production.md`
lists them. Each counts from the end of the failure.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from aioinformer.backoff import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    PROBE_JITTER_SECONDS,
    PROBE_SECONDS,
    RELIST_JITTER_SECONDS,
)
from aioinformer.client.config import ClientConfig
from aioinformer.controller.elector_state import LeaseTiming
from aioinformer.informer.listwatch.interface import WATCH_GRACE_SECONDS
from aioinformer.informer.listwatch.watch_reader import CHECK_SECONDS, SILENCE_SECONDS

__all__ = [
    "BOUNDS",
    "SLOW_BYTES",
    "SLOW_BYTES_PER_SECOND",
    "STALLED_WATCH_SECONDS",
    "Bound",
]

# Maximum time of a server to list, or to send events, on a busy machine.
ANSWER = 10.0

# Between the starts of two attempts, with each gap drawn from [d, 2d).
SHORTEST_GAP = 2 * FIRST_SECONDS
LONGEST_GAP = 2 * LONGEST_SECONDS
LONGEST_PROBE_GAP = PROBE_SECONDS + PROBE_JITTER_SECONDS

READ = ClientConfig(server="https://127.0.0.1").read_seconds
LEASES = LeaseTiming.of(15.0, 10.0, 2.0)
# Until a waiting replica looks again, and has a response.
LOOK = LEASES.pause(1.0) + LEASES.request

SLOW_BYTES, SLOW_BYTES_PER_SECOND = 400_000, 200_000
"""Size of the changes, and rate of the connection, in the test of a slow connection."""

STALLED_WATCH_SECONDS = 5
"""Requested duration in the test of a stalled watch, to keep it short."""


class Bound(NamedTuple):
    """One row of the table."""

    what: str
    seconds: int
    why: str


def _bound(what: str, seconds: float, why: str) -> Bound:
    return Bound(what, ceil(seconds), why)


BOUNDS = {
    "changes": _bound(
        "many changes at once", ANSWER, "no failure: 10 s for the events"
    ),
    "20,000 objects": _bound(
        "20,000 objects are listed", 3 * ANSWER, "no failure: 30 s for a large list"
    ),
    "slow": _bound(
        f"a connection at {SLOW_BYTES_PER_SECOND // 1000} kB/s has to transfer "
        f"{SLOW_BYTES // 1000} kB",
        SLOW_BYTES / SLOW_BYTES_PER_SECOND + ANSWER,
        "2 s for the bytes, 10 s for the events",
    ),
    "end": _bound(
        "a connection is cut, by FIN or RST",
        SHORTEST_GAP + ANSWER,
        "a first backoff of 1.6 s, 10 s for the events",
    ),
    "outage": _bound(
        "the API server is killed, and starts again 2, 15 or 120 s later",
        5,
        "1.5 s to the next probe, 1 s to the list if the version is too old (410), 2.5 s to list",
    ),
    "outage of many": _bound(
        "the same with 50 informers of one client",
        10,
        "1.5 s to the next probe, requests spread over 2 s and 1 s, 5.5 s to list",
    ),
    "killed while listing": _bound(
        "the API server is killed in the middle of a list",
        LONGEST_GAP + ANSWER,
        "a backoff of 60 s, 10 s to list",
    ),
    "compacted": _bound(
        "the watched version was compacted (410)",
        LONGEST_PROBE_GAP + RELIST_JITTER_SECONDS + ANSWER,
        "1.5 s to the next attempt, 1 s to the list, 10 s to list",
    ),
    "restored": _bound(
        "etcd was restored from a backup",
        LONGEST_GAP + SILENCE_SECONDS + CHECK_SECONDS + LONGEST_GAP + ANSWER,
        "a backoff of 60 s, 60 s of silence, 30 s for a check, a backoff of 60 s, 10 s to list",
    ),
    "role": _bound(
        "permissions are restored (403)",
        LONGEST_GAP + ANSWER,
        "a backoff of 60 s, 10 s for the events",
    ),
    "token": _bound(
        "a token is refused (401), and its file has a new one",
        SHORTEST_GAP + ANSWER,
        "the file is read again at once; a first backoff of 1.6 s, 10 s for the events",
    ),
    "definition": _bound(
        "a CRD is deleted and created again",
        2 * LONGEST_GAP + ANSWER,
        "a backoff of 60 s, another one if it returns while the watch ends, 10 s to list",
    ),
    "stalled list": _bound(
        "a list stalls",
        READ + LONGEST_GAP + ANSWER,
        "30 s without a byte, a backoff of 60 s, 10 s to list",
    ),
    "stalled watch": _bound(
        f"a watch stalls that was requested with `watch_seconds={STALLED_WATCH_SECONDS}`",
        2 * STALLED_WATCH_SECONDS + WATCH_GRACE_SECONDS + SHORTEST_GAP + ANSWER,
        "twice that, 10 s of grace, a first backoff of 1.6 s, 10 s for the events; without "
        "the option see [above](#load-balancers-and-timeouts)",
    ),
    "leader ends": _bound(
        "a leader shuts down",
        LOOK,
        "the Lease is released; 4.4 s until another replica reads it, 5 s for its requests",
    ),
    "leader dies": _bound(
        "a leader dies",
        LEASES.lease + LOOK,
        "15 s until the Lease has expired, then the same",
    ),
}
"""Bounds by the names that tests use."""
