"""Deltas: changes of objects, between the reflector and the store."""

from __future__ import annotations

import enum
from typing import Generic, TypeVar

import msgspec

from aioinformer.cache.interface import Contents

__all__ = [
    "DeletedFinalStateUnknown",
    "Delta",
    "DeltaType",
    "Deltas",
    "Replacement",
    "Requeue",
    "ResyncAll",
]

T = TypeVar("T")


class DeltaType(enum.StrEnum):
    """Kind of change; the values are client-go's.

    (client-go has more of them, for a whole list, a whole resync and a bookmark. Here
    the first two are entries of their own, `Replacement` and `ResyncAll`. A bookmark
    only moves the version that the queue has applied.)
    """

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"
    """The object is in a list."""
    SYNC = "Sync"
    """Nothing changed: a resync repeats the object."""


class Delta(msgspec.Struct, Generic[T], gc=False):
    """One change of one object.

    Attributes:
        type: Kind of change.
        object: Object after the change; for DELETED its last state, or the
            `DeletedFinalStateUnknown` with what is known of it.
        reason: Reason of a deletion; see `Deleted`.
    """

    type: DeltaType
    object: T
    reason: str = ""


class Replacement(msgspec.Struct, Generic[T], frozen=True):
    """Complete list, ready to replace all objects of a store."""

    contents: Contents[T]
    resource_version: str


class ResyncAll(msgspec.Struct, frozen=True):
    """Request to repeat all objects that the consumer has when it pops this."""


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """Tombstone of an object whose deletion was missed.

    Attributes:
        key: Key of the object.
        obj: Last known state, which may be stale; None if there is none.
    """

    key: str
    obj: T | None


Deltas = list[Delta[T | DeletedFinalStateUnknown[T]]]
"""Deltas of one key, oldest first; never empty."""


class Requeue(Exception):
    """Request to queue an entry again, raised by the function that processes it.

    A `DeltaFIFO` queues deltas at the end, unless something newer is queued for their
    key. An `OrderedFIFO` puts entries back to the front, and every queue does so with a
    whole list. If it is raised `from` another exception, `pop` raises that one.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
