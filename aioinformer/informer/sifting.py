"""What the events of a watch mean: their versions are checked, changes come out of them.

Pure and synchronous, as the machine is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.cache.deltas import Delta, DeltaType
from aioinformer.errors import DecodeError, HistoryReset
from aioinformer.model.keys import version_number
from aioinformer.watch.events import EventType

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent

__all__ = ["NO_VERSION", "Sifted", "history_reset", "same_state", "sift"]

NO_VERSION = frozenset({"", "0"})
"""Versions that ask for any state, or for the newest. A list should not be of such a
version; some mocks and emulators list at 0."""


@dataclass(slots=True)
class Sifted:
    """What a batch of events means."""

    deltas: list[Delta[KubeObject]]
    version: str
    """The version up to which the watch has brought everything."""

    duplicates: int = 0
    error: Exception | None = None
    """Why the watch is over, if the batch says so."""


def sift(
    events: list[WatchEvent],
    version: str,
    known: Callable[[str], KubeObject | None],
) -> Sifted:
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
    result = Sifted([], version)
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
