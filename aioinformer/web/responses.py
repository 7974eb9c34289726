"""Server-sent events as bytes: frames, their ids, and what of a Secret goes in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.watch.kinds import type_of

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.web.change_log import StreamEvent

__all__ = [
    "HEADERS",
    "EventID",
    "HTTPResponse",
    "Responder",
    "encode_event",
    "heartbeat",
    "redacted",
    "refusal",
]


HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # nginx would otherwise hold events back until its buffer is full.
    "X-Accel-Buffering": "no",
}


"""Of an answer that is a stream of events."""


_SECRETS = ("", "secrets")


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class EventID(NamedTuple):
    """What a reader has been told of, as the id of an event."""

    epoch: str
    """Of the journal: another process, or a later beginning, has another one."""
    number: int
    """Up to this change."""
    selection: str
    """Of the objects that this selection has."""

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}-{self.selection}"

    @staticmethod
    def parse(text: str) -> EventID | None:
        """Read what `str` made; None if it is anything else."""
        match text.split("-", 3):
            case [epoch, number, selection] if number.isascii() and number.isdigit():
                # More digits than any count has would only cost time to read.
                return EventID(epoch, int(number[:20]), selection)
            case _:
                return None


def encode_event(
    told: StreamEvent,
    position: EventID | None = None,
    *,
    secret_data: bool = False,
    resource: Resource | None = None,
) -> bytes:
    """One event. Its data is the object as it is stored, or `{}` if there is none.

    Args:
        told: What it says.
        position: Its id, if it has one.
        secret_data: What Secrets hold goes in as well.
        resource: Resource of the informer, if known.
    """
    parts = [b"event: ", told.kind.value.encode(), b"\n"]
    if position is not None:
        parts += b"id: ", str(position).encode(), b"\n"

    data = b"{}"
    if told.obj is not None:
        obj = told.obj
        data = obj.raw if secret_data else redacted(obj, resource)

    # A line ends the field. In JSON there are lines between values only, where a blank
    # means the same.
    parts += b"data: ", data.replace(b"\r", b" ").replace(b"\n", b" "), b"\n\n"
    return b"".join(parts)


def heartbeat(position: EventID | None = None) -> bytes:
    """What keeps proxies from closing a silent connection, and is told to nobody.

    Args:
        position: Where the reader is now, for when it comes back: changes outside of
            its selection have passed, and no event has told it.
    """
    return b":\n\n" if position is None else f":\nid: {position}\n\n".encode()


def redacted(obj: KubeObject, resource: Resource | None = None) -> bytes:
    """A Secret as JSON without what it holds; anything else as it is stored.

    Neither `data` and `stringData` go in, nor the annotation in which `kubectl apply`
    keeps them. A Secret is what says so, all that an informer of secrets has, and what
    says nothing if the resource is not known, either. Of an object of which there is only
    the metadata nobody knows whether it is a Secret: that annotation is left out of all
    of them. Of a Secret that cannot be decoded, there is its identity alone.

    Args:
        obj: Object to show.
        resource: Resource of the informer; None if unknown.
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

    annotations = (body.get("metadata") or {}).get("annotations") or {}
    annotations.pop(_LAST_APPLIED, None)
    return msgspec.json.encode(body)


def _identity(obj: KubeObject) -> bytes:
    """Say who an object is, without its body."""
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


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """What a route answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    """Beside `Content-Type`."""


Responder: TypeAlias = Callable[[str], Awaitable[HTTPResponse]]


"""Called with the header `Accept`, which may be empty."""


def refusal(status: int, text: str, **headers: str) -> HTTPResponse:
    """An answer that says in a line of text why there is no other.

    The text may repeat what was asked: no browser is to take it for a page.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["X-Content-Type-Options"] = "nosniff"
    return HTTPResponse(status, f"{text}\n".encode(), headers=named)
