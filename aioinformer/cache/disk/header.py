"""`Header` and `WriterState`: what a store on disk says about itself."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["FORMAT", "Header", "WriterState", "same_identity"]

FORMAT = 1
"""Version of the layout. Each version has stores of its own."""

FRESH_SECONDS: Final = 5.0
"""Age of a heartbeat up to which a new process believes that the store is confirmed."""

SILENT_SECONDS: Final = 10.0
"""Age of a heartbeat from which the writer counts as stopped or dead."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """State of the store, written in each transaction that changes it."""

    format: int = FORMAT
    selection: str = ""
    """Resource, namespace, selectors and `metadata_only`, as text."""

    endpoint: str = ""
    """Print of the API server's address and certificate authority."""

    cluster: str = ""
    """Uid of the cluster (of its namespace `kube-system`); empty if unknown."""

    transform: str = ""
    """Print of the transform; empty for none."""

    indexes: dict[str, tuple[int, str]] = {}
    """Number of each complete index that the writer keeps, and print of its function,
    by name. A function that changes gets another number."""

    generation: int = 0
    """Which of the two sets of databases holds the objects: 0 or 1."""

    listed: bool = False
    """True once a complete list is stored."""

    version: str = ""
    """Version up to which everything is stored."""

    count: int = 0
    """Number of stored objects."""

    first: int = 1
    """Number of the oldest entry of the journal."""

    last: int = 0
    """Number of the newest entry of the journal; `first - 1` if it is empty."""


class WriterState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the writer and its reflector: written each second, and on changes.

    Times are those of the loop's clock, `CLOCK_MONOTONIC`, which all processes of a
    machine share until it restarts.
    """

    boot: str = ""
    """Id of the machine's boot, as the environment has written it."""

    pid: int = 0
    epoch: int = 0
    """Number of writers so far."""

    heartbeat: float = 0.0
    """Time of this record."""

    confirmed: bool = False
    """True once this writer knows that the store agrees with the server."""

    ended: bool = False
    """True if the writer has ended in order."""

    phase: str = ""
    in_step: float | None = None
    last_contact: float | None = None
    last_event: float | None = None
    restarts: int = 0
    duplicates: int = 0
    history_resets: int = 0
    readers: int = 0
    """Number of informers that follow the store."""

    stalled_readers: tuple[int, ...] = ()
    """Processes that have not ended a read for half a minute."""

    skipped: int = 0
    transform_failures: int = 0
    not_served: bool = False
    streamless: bool = False
    failures: int = 0
    refusals: int = 0
    error: str = ""
    """Text of the last error; empty after a success."""

    error_status: int = 0
    error_reason: str = ""

    def vouches(self, now: float) -> bool:
        """Return True if the store is confirmed, as long as this writer still writes."""
        # A writer that was stopped keeps its lock.
        return self.confirmed and now - self.heartbeat < FRESH_SECONDS

    def silence(self, now: float) -> float:
        """Return the seconds since the last record if they are too many, else 0.

        That is a writer that was stopped or is dead, and not one that ended in order.
        """
        seconds = now - self.heartbeat
        silent = self.pid and not self.ended and seconds > SILENT_SECONDS
        return seconds if silent else 0.0

    def without_times(self) -> WriterState:
        """Return what other processes should know at once: no times and no statistics."""
        return msgspec.structs.replace(
            self,
            heartbeat=0.0,
            in_step=None,
            last_contact=None,
            last_event=None,
            duplicates=0,
        )


def same_identity(one: Header, other: Header) -> bool:
    """Return True if the objects of two stores are comparable by their versions."""
    return (one.selection, one.endpoint, one.transform) == (
        other.selection,
        other.endpoint,
        other.transform,
    )
