"""Deltas: what happened to an object, on its way from the reflector to the store."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from aioinformer.cache.store import Contents

__all__ = ["DeletedFinalStateUnknown", "Delta", "DeltaType", "Replacement"]

T = TypeVar("T")


class DeltaType(enum.StrEnum):
    """What happened; the values are client-go's."""

    ADDED = "Added"
    UPDATED = "Updated"
    DELETED = "Deleted"


class Delta(msgspec.Struct, Generic[T], gc=False):
    """One change of one object.

    Attributes:
        type: What happened.
        object: The object after the change; for DELETED its last state.
        older: What waited for the same key before it, oldest first; None if nothing
            did. The queue sets it: make a new delta for each change.
    """

    type: DeltaType
    object: T
    older: list[Delta[T]] | None = None

    def oldest_first(self) -> list[Delta[T]]:
        """The older changes, and then this one, in the order they came."""
        return [*(self.older or ()), self]


class Replacement(msgspec.Struct, Generic[T], frozen=True):
    """A complete list, ready to take the place of everything in a store."""

    contents: Contents[T]
    resource_version: str


class DeletedFinalStateUnknown(msgspec.Struct, Generic[T], frozen=True):
    """Stands for an object that is gone, where its deletion itself was not seen.

    Attributes:
        key: Its key.
        obj: Its last known state, which may be stale; None if there is none.
    """

    key: str
    obj: T | None
