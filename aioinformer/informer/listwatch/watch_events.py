"""What the events of a watch mean: their versions are checked, changes come out of them.

Pure and synchronous, as the machine is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.errors import DecodeError, HistoryReset
from aioinformer.model.keys import version_number
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
"""Versions that ask for any state, or for the newest. A list should not be of such a
version; some mocks and emulators list at 0."""


@dataclass(slots=True)
class WatchChanges:
    """What a batch of events means."""

    deltas: list[Delta[KubeObject]]
    version: str
    """The version up to which the watch has brought everything."""

    duplicates: int = 0
    error: Exception | None = None
    """Why the watch is over, if the batch says so."""


def to_changes(
    events: list[WatchEvent],
    version: str,
    known: Callable[[str], KubeObject | None],
) -> WatchChanges:
    """Check the versions of a batch and turn its events into changes.

    Inside one watch decimal versions only grow. An event that repeats uid and version
    of the object we know is a duplicate, unless it is a deletion: some servers delete
    under the last version of the object. Any other that is not above the last version
    means that the server's history is not the one we know (a restored backup); so does
    a bookmark below it. Versions that are not decimal are not compared with anything.

    A watch from no version (`""`, `"0"`) begins with the current objects in any order:
    their versions are neither compared nor taken, up to the first event that is not
    ADDED, as in client-go.

    How the events were cut into batches makes no difference.

    Args:
        events: In the order they came.
        version: The last version before them.
        known: The newest state known of the object with a key; None if it is gone.
    """
    result = WatchChanges([], version)
    append = result.deltas.append
    # What the events before say of their objects; `known` learns it after the batch.
    told: dict[str, KubeObject | None] = {}
    last = version_number(version)
    initial = version in NO_VERSION
    for event in events:
        kind, obj = event.type, event.object
        if kind is EventType.ERROR:
            result.error = _reason(event)
            break

        key = obj.key
        number = version_number(obj.resource_version)
        initial = initial and kind is EventType.ADDED
        if initial or 0 <= number <= last:
            if kind is EventType.BOOKMARK and number == last:
                continue

            before = told[key] if key in told else known(key)
            repeated = before is not None and same_state(before, obj)
            if not (repeated or initial):
                result.error = history_reset(f"{kind} of version {number}", last)
                break

            if repeated and kind is not EventType.DELETED:
                result.duplicates += 1
                continue
        elif obj.resource_version:
            last = number
            result.version = obj.resource_version

        if kind is not EventType.BOOKMARK:
            append(Delta(_DELTAS[kind], obj))
            told[key] = None if kind is EventType.DELETED else obj

    return result


def _reason(event: WatchEvent) -> Exception:
    """Why an ERROR event ends its watch; that it cannot be read is a reason too."""
    try:
        return event.error()
    except DecodeError as exc:
        return exc


def history_reset(what: str, known: str | int) -> HistoryReset:
    """The error that says that `what` is older than the version known before."""
    return HistoryReset(
        f"{what} after version {known}: the server's history is not the one known so far"
    )


_DELTAS = {
    EventType.ADDED: DeltaType.ADDED,
    EventType.MODIFIED: DeltaType.UPDATED,
    EventType.DELETED: DeltaType.DELETED,
}


def same_state(one: KubeObject, other: KubeObject) -> bool:
    """True for the same version of the same object; an empty version is no version."""
    return (
        one.resource_version == other.resource_version
        and one.uid == other.uid
        and bool(one.resource_version)
    )


PATIENCE_SECONDS = 30.0
"""How long the end may take once nothing gets on. Servers send what they have without a
pause; then they wait for their cache to catch up, which takes them a second or two."""


END = ("metadata", "annotations", "k8s.io/initial-events-end")


@dataclass(slots=True)
class InitialBatch:
    """What a batch of initial events says, in the end, of each object in it."""

    present: list[KubeObject] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Keys of objects that were there before, and are gone."""

    rest: list[WatchEvent] = field(default_factory=list)
    """Behind the end: changes, as in any watch."""


class InitialEvents:
    """The beginning of a watch that was asked to begin with the current objects.

    ADDED, MODIFIED and DELETED all count: things change while the server sends what
    there is. Their versions are in no order and are not compared. The end is a bookmark
    with the annotation `k8s.io/initial-events-end: "true"`; any other one is none. All
    of that as in client-go.

    client-go waits for the end without a limit. A server that does not know the request
    takes it for a common watch, in which the end never comes; in a busy cluster there is
    always something else to read. So there is a limit: 30 s without an event while
    nothing but ADDED came, which is how the objects themselves arrive, and 30 s in all
    once something else did.

    Attributes:
        version: The version of the whole, once it is complete.
        complete: The end has come.
        count: Events so far.
    """

    def __init__(self) -> None:
        self.version = ""
        self.complete = False
        self.count = 0
        # When patience is over, once something else than ADDED came.
        self._limit: float | None = None

    def __repr__(self) -> str:
        return f"<InitialEvents {self.count} complete={self.complete}>"

    def deadline(self, now: float) -> float:
        """When to give up if more is waited for from now on; on the clock of `now`."""
        return now + PATIENCE_SECONDS if self._limit is None else self._limit

    def take(self, events: list[WatchEvent], now: float) -> InitialBatch:
        """Take the next events, in the order they came.

        Raises:
            ApiError: If one of them is an ERROR event; the stream is over.
            DecodeError: If that cannot be read, or the end has no version, from which
                one could go on.
        """
        # The last word on each object in this batch.
        told: dict[str, KubeObject | None] = {}
        portion = InitialBatch()
        for at, event in enumerate(events):
            obj = event.object
            match event.type:
                case EventType.ADDED | EventType.MODIFIED:
                    told[obj.key] = obj
                case EventType.DELETED:
                    told[obj.key] = None
                case EventType.ERROR:
                    raise event.error()
                case EventType.BOOKMARK if obj.at(END) == "true":
                    self._end(obj.resource_version)
                    portion.rest = events[at + 1 :]
                    break
                case EventType.BOOKMARK:
                    pass

            if event.type is not EventType.ADDED and self._limit is None:
                self._limit = now + PATIENCE_SECONDS

        self.count += len(events) - len(portion.rest)
        portion.present = [obj for obj in told.values() if obj is not None]
        portion.deleted = [key for key, obj in told.items() if obj is None]
        return portion

    def _end(self, version: str) -> None:
        if not version:
            raise DecodeError("the initial events end at no version")

        self.version = version
        self.complete = True
