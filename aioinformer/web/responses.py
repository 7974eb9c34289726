"""Responses of the endpoints, and server-sent events as bytes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from aioinformer import json_codec
from aioinformer.errors import DecodeError
from aioinformer.model.objects import KubeObject, json_default
from aioinformer.watch.kinds import type_of

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource
    from aioinformer.web.change_log import StreamEventType

__all__ = [
    "HEADERS",
    "EndpointRequest",
    "EventID",
    "HTTPResponse",
    "Render",
    "Responder",
    "encode_event",
    "encode_json_event",
    "heartbeat",
    "redacted",
    "refusal",
    "rendered",
]


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """Response of an endpoint."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    """Headers besides `Content-Type`."""


class EndpointRequest(NamedTuple):
    """Request of an endpoint."""

    accept: str = ""
    """Header `Accept`, or an empty string."""

    query: tuple[tuple[str, str], ...] = ()
    """Parameters of the query, in their order."""

    def values(self, name: str) -> list[str]:
        """Return the values of a parameter, which may be empty."""
        return [value for it, value in self.query if it == name]


Responder: TypeAlias = Callable[[EndpointRequest], Awaitable[HTTPResponse]]
"""Endpoint."""


def refusal(status: int, text: str, **headers: str) -> HTTPResponse:
    """Return an error as one line of text.

    The text may repeat parts of the request, so browsers must not render it.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["X-Content-Type-Options"] = "nosniff"
    return HTTPResponse(status, f"{text}\n".encode(), headers=named)


# ------------------------------------------------------------ server-sent events

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # nginx would otherwise hold events back until its buffer is full.
    "X-Accel-Buffering": "no",
}
"""Headers of a stream of events."""

_SECRETS = ("", "secrets")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class EventID(NamedTuple):
    """Position of a reader, sent as the id of an event."""

    epoch: str
    """Token of the change log. Another process, or a later log, has another one."""
    number: int
    """Number of the last change that was sent."""
    selection: str
    """Token of the reader's selection."""

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}-{self.selection}"

    @staticmethod
    def parse(text: str) -> EventID | None:
        """Parse an id, or return None if it is invalid."""
        match text.split("-", 3):
            case [epoch, number, selection] if number.isascii() and number.isdigit():
                # Longer numbers are never valid, and only take time to parse.
                return EventID(epoch, int(number[:20]), selection)
            case _:
                return None


def encode_event(
    kind: StreamEventType, data: bytes = b"{}", position: EventID | None = None
) -> bytes:
    """Encode one event.

    Args:
        kind: Type of the event.
        data: Data of the event. Its lines are sent as lines of the event.
        position: Id of the event, or None.
    """
    parts = [b"event: ", kind.value.encode(), b"\n"]
    if position is not None:
        parts += b"id: ", str(position).encode(), b"\n"

    parts += b"data: ", b"\ndata: ".join(data.splitlines()), b"\n\n"
    return b"".join(parts)


def encode_json_event(name: str, value: object) -> bytes:
    """Encode one event whose data is a JSON value."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json_codec.dumps(value))


def heartbeat(position: EventID | None = None) -> bytes:
    """Return a comment that keeps proxies from closing an idle connection.

    Args:
        position: Position of the reader, for a later resume. It advances by changes
            outside of the reader's selection, too.
    """
    return b":\n\n" if position is None else f":\nid: {position}\n\n".encode()


Render: TypeAlias = Callable[[KubeObject], object]
"""Function that returns the data to send for an object: bytes, or a JSON value."""


def rendered(obj: KubeObject, render: Render) -> bytes:
    """Return the projection of an object as the data of an event.

    Raises:
        TypeError: If it is None, or neither bytes nor a JSON value.
        Exception: Exception of the function.
    """
    value = render(obj)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("render returned a coroutine, and must not wait")

    if value is None:
        raise TypeError(
            "render returned None, not data to send (to leave objects out, pass "
            "namespace= or label_selector= to the stream)"
        )

    return value if isinstance(value, bytes) else json_codec.dumps(value, json_default)


def redacted(obj: KubeObject, resource: Resource | None = None) -> bytes:
    """Return an object as JSON, a Secret without its data.

    `data`, `stringData` and the annotation of `kubectl apply` are removed. An object
    counts as a Secret if its kind says so, if the informer is one of secrets, or if
    both are unknown. Metadata-only objects may be Secrets, so the annotation is removed
    from all of them. A Secret that cannot be decoded is reduced to its identity.

    Args:
        obj: Object to encode.
        resource: Resource of the informer, or None if unknown.
    """
    try:
        kind = type_of(obj.raw)[0]
        if resource is None:
            secret = kind in {"Secret", ""}
        else:
            secret = kind == "Secret" or (resource.group, resource.plural) == _SECRETS

        if secret:
            return _without(obj, ["data", "stringData"])

        if kind == "PartialObjectMetadata" and _LAST_APPLIED in obj.annotations:
            return _without(obj, [])

    except DecodeError:
        return _identity(obj)

    return obj.raw


def _without(obj: KubeObject, hidden: list[str]) -> bytes:
    body = obj.to_dict()
    for name in hidden:
        body.pop(name, None)

    annotations = (body.get("metadata") or {}).get("annotations")
    if isinstance(annotations, dict):
        annotations.pop(_LAST_APPLIED, None)

    return msgspec.json.encode(body)


def _identity(obj: KubeObject) -> bytes:
    """Return the identity of an object as JSON."""
    return msgspec.json.encode(
        {
            "metadata": {
                "name": obj.name,
                "namespace": obj.namespace,
                "uid": obj.uid,
                "resourceVersion": obj.resource_version,
            }
        }
    )
