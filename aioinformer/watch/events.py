"""Events of a watch, as the server sends them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from aioinformer.errors import ApiError

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["EventType", "WatchEvent"]


class EventType(enum.StrEnum):
    """What an event says about its object; the values are those on the wire."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing changed; the object carries only a newer resource version."""

    ERROR = "ERROR"
    """The watch ends; the object is a Status that says why."""


class WatchEvent(msgspec.Struct, gc=False, frozen=True):
    """One event of a watch.

    Attributes:
        type: What happened.
        object: The object after the change; for DELETED its last state, with the
            version of the deletion; for ERROR a Status.
    """

    type: EventType
    object: KubeObject

    def error(self) -> ApiError:
        """What an ERROR event says.

        Raises:
            DecodeError: If the Status is not JSON.
        """
        return ApiError.from_status(self.object.to_dict())
