"""`InformerStatus`: the state of an informer at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.errors import ApiError, Forbidden, NotFound, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from aioinformer.informer.memory_budget import MemoryStatus

__all__ = ["CacheStatus", "InformerStatus", "combined", "describe_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """State of an informer's store on disk, as this process sees it."""

    path: Path
    """Directory of the store."""

    role: str
    """Role of this process:

    - `"writer"`: it lists and watches, writes the store, and reads it;
    - `"reader"`: it reads what another process writes, and replaces that if it ends;
    - `"memory"`: it could not use the store, and has its objects in memory.
    """

    why_in_memory: str = ""
    """Error for which the store is not used; empty while it is."""

    writer: int = 0
    """Process number of the writer; 0 if there was none yet."""

    writers_so_far: int = 0
    """Number of processes that have become the writer. Each one after the first has
    taken over, or was started later."""

    heartbeat_age: float | None = None
    """Seconds since the writer has last written its state, as it does each second. From
    10 s on, `InformerStatus.last_error` says so, and the app is not ready. None if there
    was no writer yet."""

    behind: int = 0
    """Number of changes in the store that handlers of this process are not told yet."""

    readers: int = 0
    """Number of informers that follow the store, in all processes."""

    stalled_readers: tuple[int, ...] = ()
    """Process numbers of those that have not ended a read for 30 s, such as a process
    that was stopped. The file grows with each change until they continue or end."""

    journal_entries: int = 0
    """Number of changes in the journal, which processes that fall behind can still read."""

    size: int = 0
    """Bytes of the file that are in use, or were and can be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerStatus:
    """State of an informer at one moment. Times are seconds of the loop's clock.

    The store stays readable in every state: an outage or a refusal removes no objects.
    See `age` for how stale it may be.

    With several namespaces, each value is a sum, or the worst of their values;
    `namespaces` has the state of each.
    """

    phase: str
    """Current activity:

    - `"idle"`: has not been run yet;
    - `"opening"`: has opened its store on disk, which no process writes at the moment;
    - `"listing"`: requests all objects;
    - `"watching"`: requests and receives changes;
    - `"backing off"`: waits after a failed attempt;
    - `"absent"`: the server has not had the resource for a minute, so all objects were
      removed; attempts continue;
    - `"stopping"`: receives no more changes; handlers process queued notifications;
    - `"stopped"`: has ended, or will never run.
    """

    synced: bool
    """True once the first complete list is in the store and in the handlers' queues.
    Never becomes False again; see `age` for freshness."""

    last_contact: float | None
    """Time of the last contact with the server: a part of a list, an accepted watch, an
    event or bookmark, the regular end of a watch. Refusals and failures do not count.
    None before the first contact."""

    last_event: float | None
    """Time of the last change from a watch. Bookmarks, lists and duplicates do not
    count. None before the first change."""

    age: float | None
    """Maximum staleness of the store in seconds: the time since a complete list, an
    event, a bookmark, or the regular end of a watch. These prove that the store was up
    to date. So the age grows during outages, while lists and watches fail, and between
    changes: see `Lister`. None before the first list."""

    resource_version: str
    """Version up to which everything is in the store; empty before the first list. If
    the resource is absent, the last version."""

    restarts: int
    """Number of attempts after errors. The regular end of a watch does not count."""

    relists: int = 0
    """Number of complete lists that followed a watch, for whatever reason."""

    last_relist: str = ""
    """Reason of the last one: the class of an error, such as `"ResourceExpired"`, `"Selection"`
    after a change of the selection, or `"NoVersion"` if the watch ended without a version
    to continue from. Empty before."""

    duplicates: int
    """Number of events that were dropped because their state, or a newer one, was
    known."""

    history_resets: int
    """Number of times that the server's versions went backwards, which makes the
    informer relist and compare all objects."""

    degraded: int
    """Number of objects and events left out because they cannot be read, of objects
    stored unchanged because the transform failed, and of bodies that `Lister.json` left
    out because they are not JSON. The store keeps the last readable state of an object.
    Objects that nest too deeply for a decoder are stored, and do not count."""

    not_served: bool
    """True if the last attempt failed with 404: the resource is not served."""

    last_error: BaseException | None
    """Error of the last list or watch; None after a success. For an informer that died
    of a bug, the bug."""

    failures: int
    """Number of attempts that failed in a row; 0 after a success."""

    namespaces: Mapping[str, InformerStatus] = field(default_factory=dict)
    """State of each namespace, if the informer has several; failed transforms are only
    counted in total."""

    sharded_by_server: bool | None = None
    """True if the server filters by shard, False if it sends all objects and this
    process drops the others: see `SharedInformerFactory.informer`. As of the last list
    that shows it. None without `shards=`, and while unknown: filtered lists of custom
    resources do not show it in Kubernetes 1.36, and processes that only read a store on
    disk do not list."""

    cache: CacheStatus | None = None
    """State of the store on disk; None for an informer in memory."""

    memory: MemoryStatus | None = None
    """Memory of all stores of the factory; None without `memory_budget=`."""

    @property
    def last_error_status(self) -> int:
        """HTTP status of the last error, such as 403; 0 if it has none."""
        error = self.last_error
        return error.status if isinstance(error, ApiError) else 0

    @property
    def last_error_reason(self) -> str:
        """Reason in the server's Status, such as `"Forbidden"`; empty if there is none."""
        error = self.last_error
        return error.reason if isinstance(error, ApiError) else ""


_WORST_FIRST = ("backing off", "absent", "listing")
"""Phases of a namespace that become the phase of the informer."""


def combined(
    namespaces: Mapping[str, InformerStatus], resource_version: str
) -> InformerStatus:
    """Return the status of an informer with several namespaces.

    Args:
        namespaces: Status of each namespace; at least one.
        resource_version: Version of the store.
    """
    parts = list(namespaces.values())
    worst = max(parts, key=lambda part: (part.failures, part.last_error is not None))
    phases = [part.phase for part in parts]
    return InformerStatus(
        phase=next((it for it in _WORST_FIRST if it in phases), phases[0]),
        synced=all(part.synced for part in parts),
        last_contact=_of_all(min, [part.last_contact for part in parts]),
        last_event=max(
            (it.last_event for it in parts if it.last_event is not None), default=None
        ),
        age=_of_all(max, [part.age for part in parts]),
        resource_version=resource_version,
        restarts=sum(part.restarts for part in parts),
        relists=sum(part.relists for part in parts),
        last_relist=next((it.last_relist for it in parts if it.last_relist), ""),
        duplicates=sum(part.duplicates for part in parts),
        history_resets=sum(part.history_resets for part in parts),
        degraded=sum(part.degraded for part in parts),
        not_served=any(part.not_served for part in parts),
        last_error=worst.last_error,
        failures=worst.failures,
        namespaces=namespaces,
        sharded_by_server=_all_or_none([part.sharded_by_server for part in parts]),
    )


def _of_all(
    choose: Callable[[Iterable[float]], float], values: list[float | None]
) -> float | None:
    """Return the minimum or maximum of values; None if a value is missing."""
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None


def _all_or_none(values: list[bool | None]) -> bool | None:
    """Return True if all values are; None if one is unknown, and none is False."""
    if False in values:
        return False

    return None if None in values else True


def describe_state(
    phase: str,
    error: Exception | None,
    failures: int,
    *,
    streams_given_up: bool = False,
) -> str:
    """Return the phase and the failures in one line.

    Args:
        phase: Phase of an `InformerStatus`.
        error: Last failure, or None.
        failures: Number of failures in a row.
        streams_given_up: True if the server turned out not to support streamed lists.
    """
    parts = [phase]
    if error is None:
        parts.append("not started yet" if phase == "idle" else "no error so far")
    else:
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        parts.append(f"{attempts} failed: {error}{_hint_for(error)}")

    if streams_given_up:
        parts.append("listing in pages because the server did not stream lists")

    return ", ".join(parts)


def _hint_for(error: Exception) -> str:
    """Return a hint for errors whose message may not be enough."""
    match error:
        case Unauthorized():
            return " (the server does not accept the credentials)"
        case Forbidden():
            return " (both list and watch must be allowed)"
        case NotFound() if error.reason:  # else the client has explained it
            return " (the server does not serve the resource)"
        case _:
            return ""
