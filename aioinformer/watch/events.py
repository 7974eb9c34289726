"""Events of a watch, as the server sends them."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer.errors import ApiError, DecodeError, OptionsError
from aioinformer.model.deep_json import truncate_nesting
from aioinformer.model.objects import KubeObject
from aioinformer.model.views import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EventType", "WatchEvent"]

# Largest number in a Status; a header may have any.
_MOST_SECONDS: Final = 2**31 - 1


class EventType(enum.StrEnum):
    """Kind of event; the values are those of the API."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing changed. The object has only a newer resource version."""

    ERROR = "ERROR"
    """The watch ends. The object is a Status with the reason."""


class WatchEvent(msgspec.Struct, gc=False, frozen=True):
    """One event of a watch.

    Its `repr()` names the object and shows nothing of its body.

    Attributes:
        type: Kind of event.
        object: Object after the change; for DELETED its last state, with the version of
            the deletion; for ERROR a Status.
    """

    type: EventType
    object: KubeObject

    @classmethod
    def of(
        cls,
        what: WatchEvent | EventType | str,
        obj: KubeObject | Mapping[str, Any] | None = None,
    ) -> WatchEvent:
        """Make an event of a type and an object, or return an event unchanged.

        Args:
            what: Type, or event.
            obj: Object; None with an event.

        Raises:
            OptionsError: If the type is unknown, or one of the two is missing.
            DecodeError: If the object's metadata has the wrong shape.
            TypeError: If the mapping has values that are not JSON.

        Example:
            >>> WatchEvent.of("ADDED", {"metadata": {"name": "web", "namespace": "shop"}})
            <WatchEvent ADDED 'shop/web' rv=''>
        """
        if isinstance(what, WatchEvent):
            if obj is not None:
                raise OptionsError("obj= must be None: the event has an object already")

            return what

        if obj is None:
            # Without the value: it may be the object, such as a Secret.
            raise OptionsError("invalid event: type or object is missing")

        if what not in EventType.__members__:
            known = ", ".join(EventType)
            raise OptionsError(f"unknown event type {what!r} (types: {known})")

        return cls(EventType(what), KubeObject.of(obj))

    @classmethod
    def of_error(cls, error: ApiError | KubeObject | Mapping[str, Any]) -> WatchEvent:
        """Make the ERROR event of an error; `error()` returns the error again.

        Args:
            error: Error, or its Status object.

        Raises:
            DecodeError: If the Status has metadata of the wrong shape.
            TypeError: If the Status, or the error's details, are not JSON.
        """
        status = _status_of(error) if isinstance(error, ApiError) else error
        return cls(EventType.ERROR, KubeObject.of(status))

    def error(self) -> ApiError:
        """Return the error of an ERROR event.

        Raises:
            DecodeError: If its object is not JSON, or not a Status.
        """
        try:
            status = self.object.to_dict()
        except DecodeError:
            # It may nest too deeply. The fields of a Status are in the first levels.
            status = decode_json(truncate_nesting(self.object.raw), "an ERROR event")

        kind = status.get("kind")
        # Without a kind it counts as a Status.
        if kind and kind != "Status":
            name = f" {self.object.key}" if self.object.key else ""
            raise DecodeError(f"ERROR event has a {kind}{name} instead of a Status")

        return ApiError.from_status(status)

    def __repr__(self) -> str:
        obj = self.object
        if self.type is EventType.ERROR:
            return f"<WatchEvent ERROR {_summary(obj)}>"

        return f"<WatchEvent {self.type} {obj.key!r} rv={obj.resource_version!r}>"


def _status_of(error: ApiError) -> dict[str, Any]:
    """Return the Status from which `ApiError.from_status()` makes the same error."""
    details = dict(error.details)
    if error.retry_after is not None:
        # The field holds whole seconds, and is a lower bound.
        seconds = math.ceil(min(error.retry_after, _MOST_SECONDS))
        details.setdefault("retryAfterSeconds", seconds)

    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "details": details,
        "code": error.status,
    }


def _summary(status: KubeObject) -> str:
    """Return the code and the reason of a Status, if they can be read."""
    try:
        return f"{status.at('code', 0)} {status.at('reason', '')}".rstrip()
    except DecodeError:
        return "unreadable"
