"""Notifications to handlers: `Added`, `Updated` and `Deleted`."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from aioinformer.model.objects import KubeObject

__all__ = [
    "MOVED",
    "Added",
    "Deleted",
    "Notification",
    "Updated",
    "change_of",
    "object_of",
]


MOVED: Final = "moved"
"""Reason of the deletion of an object that a changed selection does not have."""


class Added(msgspec.Struct, gc=False, frozen=True):
    """Notification of an object that entered the informer's selection.

    Attributes:
        obj: State of the object.
        initial: True if it existed when the informer, or this handler, started.
    """

    obj: KubeObject
    initial: bool = False


class Updated(msgspec.Struct, gc=False, frozen=True):
    """Notification of a change.

    Attributes:
        old: State of the previous notification.
        new: New state.
        resync: True if nothing changed and this is a periodic resync.
    """

    old: KubeObject
    new: KubeObject
    resync: bool = False


class Deleted(msgspec.Struct, gc=False, frozen=True):
    """Notification of an object that left the selection, by deletion or by a change.

    Attributes:
        obj: Last state.
        final_state_unknown: True if the deletion was missed, for example while
            disconnected. Then `obj` is the last state known.
        reason: `"moved"` if the selection has changed, so that the object is not in it
            any more. It may still exist, and `obj` is the last state known. Else empty.
    """

    obj: KubeObject
    final_state_unknown: bool = False
    reason: str = ""


Notification: TypeAlias = Added | Updated | Deleted


def object_of(event: Notification) -> KubeObject:
    """Return the object of a notification, in its newest state."""
    match event:
        case Updated():
            return event.new
        case Added() | Deleted():
            return event.obj
        case _:
            assert_never(event)


def change_of(event: Notification) -> Literal["", "added", "modified", "deleted"]:
    """Return the change in one word; empty for an initial object or a resync."""
    match event:
        case Added(initial=True) | Updated(resync=True):
            return ""
        case Added():
            return "added"
        case Updated():
            return "modified"
        case Deleted():
            return "deleted"
        case _:
            assert_never(event)
