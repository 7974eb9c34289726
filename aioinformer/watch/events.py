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

# What a Status has room for; a header may ask for any number.
_MOST_SECONDS: Final = 2**31 - 1


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

    Its `repr()` names the object and shows nothing of its body.

    Attributes:
        type: What happened.
        object: The object after the change; for DELETED its last state, with the
            version of the deletion; for ERROR a Status.
    """

    type: EventType
    object: KubeObject

    @classmethod
    def of(
        cls,
        what: WatchEvent | EventType | str,
        obj: KubeObject | Mapping[str, Any] | None = None,
    ) -> WatchEvent:
        """Make an event of its type and its object; one that is complete stays itself.

        Args:
            what: The type, or the event.
            obj: The object; None with an event.

        Raises:
            OptionsError: If the type is unknown, or one of the two is missing.
            DecodeError: If the object's metadata has the wrong shape.
            TypeError: If the mapping holds something that is not JSON.

        Example:
            >>> WatchEvent.of("ADDED", {"metadata": {"name": "web", "namespace": "shop"}})
            <WatchEvent ADDED 'shop/web' rv=''>
        """
        if isinstance(what, WatchEvent):
            if obj is not None:
                raise OptionsError("an event has its object already")

            return what

        if obj is None:
            # Without showing what there is: it may be the object, and that a Secret.
            raise OptionsError("of an event the type or the object is missing")

        if what not in EventType.__members__:
            known = ", ".join(EventType)
            raise OptionsError(f"{what!r} is no type of event (there are: {known})")

        return cls(EventType(what), KubeObject.of(obj))

    @classmethod
    def of_error(cls, error: ApiError | KubeObject | Mapping[str, Any]) -> WatchEvent:
        """Make the ERROR event that tells of an error; `error()` gives it back.

        Args:
            error: The error, or the Status object that says it.

        Raises:
            DecodeError: If the Status has metadata of the wrong shape.
            TypeError: If the Status, or the error's details, are not JSON.
        """
        status = _status_of(error) if isinstance(error, ApiError) else error
        return cls(EventType.ERROR, KubeObject.of(status))

    def error(self) -> ApiError:
        """What an ERROR event says.

        Raises:
            DecodeError: If its object is not JSON, or is none that says what happened:
                of another kind than Status.
        """
        try:
            said = self.object.to_dict()
        except DecodeError:
            # It may nest too deeply: what matters stands in the first levels.
            said = decode_json(truncate_nesting(self.object.raw), "an ERROR event")

        kind = said.get("kind")
        # One without a kind is taken for what it should be.
        if kind and kind != "Status":
            name = f" {self.object.key}" if self.object.key else ""
            raise DecodeError(f"an ERROR event with a {kind}{name} and not a Status")

        return ApiError.from_status(said)

    def __repr__(self) -> str:
        obj = self.object
        if self.type is EventType.ERROR:
            return f"<WatchEvent ERROR {_summary(obj)}>"

        return f"<WatchEvent {self.type} {obj.key!r} rv={obj.resource_version!r}>"


def _status_of(error: ApiError) -> dict[str, Any]:
    """The Status object from which `ApiError.from_status()` makes the same error."""
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
    """The code and the reason of a Status, as far as they can be read."""
    try:
        return f"{status.at('code', 0)} {status.at('reason', '')}".rstrip()
    except DecodeError:
        return "unreadable"
