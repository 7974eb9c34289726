"""Deltas: what happened to an object, on its way from the reflector to the store."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from aioinformer.cache.store import Contents

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
    """What happened; the values are client-go's.

    (It has more of them, for a whole list, a whole resync and a bookmark. Here the
    first two are entries of their own, `Replacement` and `ResyncAll`, and a bookmark
    only moves the version that the queue has applied.)
    """

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"
    REPLACED = "Replaced"
    """It is in a list."""
    SYNC = "Sync"
    """Nothing happened: it is told again."""


class Delta(msgspec.Struct, Generic[T], gc=False):
    """One change of one object.

    Attributes:
        type: What happened.
        object: The object after the change; for DELETED its last state, or the
            `DeletedFinalStateUnknown` that stands for it.
    """

    type: DeltaType
    object: T


class Replacement(msgspec.Struct, Generic[T], frozen=True):
    """A complete list, ready to take the place of everything in a store."""

    contents: Contents[T]
    resource_version: str


class ResyncAll(msgspec.Struct, frozen=True):
    """Whatever the consumer has stored when it takes this is to be told again."""


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """Stands for an object that is gone, where its deletion itself was not seen.

    Attributes:
        key: Its key.
        obj: Its last known state, which may be stale; None if there is none.
    """

    key: str
    obj: T | None


Deltas = list[Delta[T | DeletedFinalStateUnknown[T]]]
"""Changes of one key, oldest first; never none."""


class Requeue(Exception):
    """Raised by a function that processes an entry: it is to come again.

    By key, as in a `DeltaFIFO`, it goes to the end of the line, unless something newer
    is queued for its key. In an `OrderedFIFO`, and if it is a whole list, it goes back
    to the front. Raised `from` another exception, that one is raised to whoever popped
    the entry.
    """
