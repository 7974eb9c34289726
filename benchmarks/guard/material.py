"""Input of the counted work: created in advance by another process, from a seed.

Creating it takes longer than reading it, in particular where each instruction is counted.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LISTED_VERSION", "WATCHED_PODS", "Material", "read", "write"]

LISTED_VERSION = 2_000_000
"""Resource version of each list; those of changes follow."""

PODS = 120
EVENTS = 128
WATCHED_PODS = 16
"""Number of pods, from the first, that exist while changes are counted."""

SEED = 3


class Material(msgspec.Struct, frozen=True):
    """Prepared bytes.

    Attributes:
        pods: Pods as in a list, ordered by key.
        events: Lines of a watch: changes of the first `WATCHED_PODS`.
    """

    pods: list[bytes]
    events: list[bytes]


def write(path: Path) -> None:
    """Create the input, and write it to a file."""
    # Imported only by the process that creates it.
    from bench.canned_server import at_version, event
    from bench.corpus import encoded_pods

    pods = encoded_pods(PODS)
    drawn = random.Random(SEED)
    events = [
        event(
            b"MODIFIED",
            at_version(
                pods[drawn.randrange(WATCHED_PODS)], LISTED_VERSION + 1 + number
            ),
        )
        for number in range(EVENTS)
    ]
    path.write_bytes(msgspec.msgpack.encode(Material(pods, events)))


def read(path: Path) -> Material:
    """Return the input made by `write()`."""
    return msgspec.msgpack.decode(path.read_bytes(), type=Material)
