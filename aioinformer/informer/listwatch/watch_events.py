"""Interpretation of watch events: version checks, and changes for the store.

Pure and synchronous, like the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.errors import DecodeError, HistoryReset
from aioinformer.model.object_meta import version_number
from aioinformer.watch.events import EventType

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent

__all__ = [
    "NO_VERSION",
    "PATIENCE_SECONDS",
    "InitialBatch",
    "InitialEvents",
    "WatchChanges",
    "history_reset",
    "same_state",
    "to_changes",
]


NO_VERSION = frozenset({"", "0"})
"""Versions that request the newest state, or any. Responses should not have such a
version, but some mocks and emulators return 0."""


@dataclass(slots=True)
class WatchChanges:
    """Changes in a batch of events."""

    deltas: list[Delta[KubeObject]]
    version: str
    """Version that the watch has reached."""

    duplicates: int = 0
    left_out: int = 0
    """Number of events that the store does not get; they only move the version."""

    error: Exception | None = None
    """Error that ends the watch, or None."""


def to_changes(
    events: list[WatchEvent],
    version: str,
    known: Callable[[str], KubeObject | None],
    leaves_out: Callable[[KubeObject, int], bool] | None = None,
) -> WatchChanges:
    """Check the versions of a batch and return its changes.

    Within a watch, decimal versions only increase. An event with the uid and version of
    the known object is a duplicate, unless it is a deletion: some servers send
    deletions with the last version of the object. Any other event at or below the last
    version means that the server's history was reset (a restored backup). So does a
    bookmark below it. Versions that are not decimal have no order, so only duplicates
    are detected.

    A watch without a version (`""`, `"0"`) begins with the current objects in any
    order. As in client-go, versions are neither compared nor used until the first event
    that is not ADDED.

    The result does not depend on how events are grouped into batches.

    Args:
        events: Events in the order of the watch.
        version: Last version before them.
        known: Function that returns the newest known state for a key; None if there is
            no object.
        leaves_out: Function that returns True for an object and a version that the
            store does not get. Such an event is like a bookmark of its version. None
            for a store that gets all objects.
    """
    result = WatchChanges([], version)
    append = result.deltas.append
    # States after the events of this batch, which `known` does not have yet.
    states: dict[str, KubeObject | None] = {}
    last = version_number(version)
    initial = version in NO_VERSION
    for event in events:
        kind, obj = event.type, event.object
        if kind is EventType.ERROR:
            result.error = _error_of(event)
            break

        key = obj.key
        number = version_number(obj.resource_version)
        initial = initial and kind is EventType.ADDED
        not_newer = 0 <= number <= last
        moves_only = kind is EventType.BOOKMARK
        if leaves_out is not None and not moves_only and leaves_out(obj, number):
            result.left_out += 1
            moves_only = True

        repeated = False
        if initial or not_newer or number < 0:
            if moves_only and not_newer and number == last:
                continue

            before = states[key] if key in states else known(key)
            repeated = before is not None and same_state(before, obj)
            if not_newer and not (repeated or initial):
                result.error = history_reset(f"{kind} event of version {number}", last)
                break

        if obj.resource_version and not (initial or not_newer):
            last = number
            result.version = obj.resource_version

        if moves_only:
            continue

        if repeated and kind is not EventType.DELETED:
            result.duplicates += 1
        else:
            append(Delta(_DELTAS[kind], obj))
            states[key] = None if kind is EventType.DELETED else obj

    return result


def _error_of(event: WatchEvent) -> Exception:
    """Return the error of an ERROR event, or the error of reading it."""
    try:
        return event.error()
    except DecodeError as exc:
        return exc


def history_reset(what: str, known: str | int) -> HistoryReset:
    """Return the error for a version older than the known one."""
    return HistoryReset(
        f"{what} is older than version {known}: the server's history was reset"
    )


_DELTAS = {
    EventType.ADDED: DeltaType.ADDED,
    EventType.MODIFIED: DeltaType.UPDATED,
    EventType.DELETED: DeltaType.DELETED,
}


def same_state(one: KubeObject, other: KubeObject) -> bool:
    """Return True for the same version of the same object; empty versions are unknown."""
    return (
        one.resource_version == other.resource_version
        and one.uid == other.uid
        and bool(one.resource_version)
    )


PATIENCE_SECONDS = 30.0
"""Seconds to wait for the end of the initial events; see `InitialEvents`. Servers send
objects without a pause, then wait a second or two for their cache to catch up."""


INITIAL_EVENTS_END = ("metadata", "annotations", "k8s.io/initial-events-end")


@dataclass(slots=True)
class InitialBatch:
    """Last state of each object in a batch of initial events."""

    present: list[KubeObject] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Keys of deleted objects."""

    rest: list[WatchEvent] = field(default_factory=list)
    """Events after the initial ones: changes, as in any watch."""


class InitialEvents:
    """Beginning of a watch that sends the current objects first.

    ADDED, MODIFIED and DELETED events all belong to it, as objects change while the
    server sends them. Their versions have no order and are not compared. A bookmark
    with the annotation `k8s.io/initial-events-end: "true"` ends it. All of that is as
    in client-go.

    client-go waits for the end without a limit. A server that does not know the option
    starts a plain watch, which has events but no such bookmark. So there is a limit: 30
    s without an event while all events are ADDED, as for the current objects, and 30 s
    in total after the first other event.

    Attributes:
        version: Version of the list; empty until it is complete.
        complete: True once the bookmark that ends it was taken.
        count: Number of events so far.
    """

    def __init__(self) -> None:
        self.version: str = ""
        self.complete: bool = False
        self.count: int = 0
        # Time limit after the first event that is not ADDED.
        self._limit: float | None = None

    def __repr__(self) -> str:
        return f"<InitialEvents {self.count} complete={self.complete}>"

    def deadline(self, now: float) -> float:
        """Return the time until which to wait for more events, on the clock of `now`."""
        return now + PATIENCE_SECONDS if self._limit is None else self._limit

    def take(self, events: list[WatchEvent], now: float) -> InitialBatch:
        """Take the next events, in their order.

        Raises:
            ApiError: If one is an ERROR event.
            DecodeError: If an ERROR event cannot be read, or the end has no version to
                continue from.
        """
        # Last state of each object in this batch.
        states: dict[str, KubeObject | None] = {}
        portion = InitialBatch()
        for position, event in enumerate(events):
            obj = event.object
            match event.type:
                case EventType.ADDED | EventType.MODIFIED:
                    states[obj.key] = obj
                case EventType.DELETED:
                    states[obj.key] = None
                case EventType.ERROR:
                    raise event.error()
                case EventType.BOOKMARK if obj.at(INITIAL_EVENTS_END) == "true":
                    self._end(obj.resource_version)
                    portion.rest = events[position + 1 :]
                    break
                case EventType.BOOKMARK:
                    pass

            if event.type is not EventType.ADDED and self._limit is None:
                self._limit = now + PATIENCE_SECONDS

        self.count += len(events) - len(portion.rest)
        portion.present = [obj for obj in states.values() if obj is not None]
        portion.deleted = [key for key, obj in states.items() if obj is None]
        return portion

    def _end(self, version: str) -> None:
        if not version:
            raise DecodeError("end of the initial events has no resource version")

        self.version = version
        self.complete = True
