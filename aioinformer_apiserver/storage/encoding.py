"""JSON encoding of objects, lists and watch events, with the key order of Go.

Typed kinds have the order of their Go structs (`kind` first, `metadata` in the order of
ObjectMeta). Custom resources are maps in Go, so their keys are sorted. As in Go, `<`,
`>` and `&` are escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors.statuses import ExpiredToken
from aioinformer_apiserver.schema.field_order import order_of
from aioinformer_apiserver.schema.go_types import struct_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "bookmark",
    "canonical",
    "encode",
    "error_line",
    "escape",
    "event_line",
    "list_frame",
    "list_item",
    "plain",
    "status_of",
]

PIECE_BYTES = 64 * 1024

# Characters that Go escapes for HTML and JavaScript.
_ESCAPES = {
    b"&": b"\\u0026",
    b"<": b"\\u003c",
    b">": b"\\u003e",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}
# A number that `_to_integers()` changes, or a string that looks like one.
_FRACTION = re.compile(rb"[0-9](?:\.0|e[0-9]+)[,}\]]")
_INT64_BOUND = 2**63
_ESCAPED = re.compile(b"|".join(_ESCAPES))
_EMPTY: tuple[Any, ...] = (None, "", {}, [])


def encode(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Encode an object, which may be incomplete and is not validated."""
    metadata = _metadata(body.get("metadata") or {})
    whole = {**body, **_type_of(kind), "metadata": metadata}
    if not kind.typed:
        raw = plain(whole, sort=True)
        return plain(_to_integers(whole), sort=True) if _FRACTION.search(raw) else raw

    schema = kind.schema
    assert schema is not None
    return plain(order_of(schema.name)(whole))


def _to_integers(value: Any) -> Any:
    """Convert floats without a fraction to integers, as Go encodes them."""
    if isinstance(value, dict):
        return {key: _to_integers(it) for key, it in value.items()}

    if isinstance(value, list):
        return [_to_integers(it) for it in value]

    if isinstance(value, float) and value.is_integer() and abs(value) < _INT64_BOUND:
        return int(value)

    return value


def plain(value: object, *, sort: bool = False) -> bytes:
    """Encode any JSON value with the escapes of Go."""
    return escape(
        json_codec.dumps(value, option=json_codec.OPT_SORT_KEYS if sort else None)
    )


def escape(raw: bytes) -> bytes:
    """Escape the characters in JSON that Go escapes."""
    # They occur only inside strings, so no parsing is needed.
    if _ESCAPED.search(raw) is None:
        return raw

    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], raw)


def canonical(body: Mapping[str, Any]) -> bytes:
    """Encode a body so that equal contents give equal bytes."""
    return json_codec.dumps(body, option=json_codec.OPT_SORT_KEYS)


def event_line(event: str, raw: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (event.encode(), raw)


def bookmark(kind: Kind, version: int, *, initial_events_end: bool) -> bytes:
    """Encode the object of a BOOKMARK, of which only the version matters."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}

    body = {**_type_of(kind), "metadata": metadata}
    if not kind.typed:
        return plain(body, sort=True)

    # It is an empty Go struct, some of whose fields are always written.
    schema = kind.schema
    assert schema is not None
    whole = {**struct_decoder(schema.name)({}, None, []), **body}
    if kind.resource.group == "apps":
        _fill_in_conversions(kind.resource.kind, whole)

    return plain(order_of(schema.name)(whole))


def _fill_in_conversions(kind: str, blank: dict[str, Any]) -> None:
    """Add the fields that an empty object of the apps group gets by conversion.

    A server converts it from an internal type, in which some fields are not pointers.
    """
    if kind == "DaemonSet":
        annotations = blank["metadata"].get("annotations") or {}
        generation = {"deprecated.daemonset.template.generation": "0"}
        blank["metadata"]["annotations"] = generation | annotations
    elif kind in {"Deployment", "ReplicaSet", "StatefulSet"}:
        blank["spec"]["replicas"] = 0


def error_line(error: ApiError) -> bytes:
    """Return the ERROR event that ends a watch."""
    return event_line("ERROR", plain(status_of(error)))


def status_of(error: ApiError) -> dict[str, Any]:
    """Return the Status object for an error."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": _remaining_list(error),
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason

    # Most errors omit empty details, those of the router do not.
    is_routing = error.status in {403, 404, 405}
    is_routing |= error.message.startswith(("406: ", "415: "))
    if error.details or is_routing:
        status["details"] = dict(error.details)

    status["code"] = error.status
    return status


def _remaining_list(error: ApiError) -> dict[str, Any]:
    return {"continue": error.token} if isinstance(error, ExpiredToken) else {}


def list_frame(kind: Kind, metadata: dict[str, Any]) -> bytes:
    """Encode an empty list: `"items":[]`.

    Args:
        kind: Kind of the items, which decides the order of keys.
        metadata: Metadata of the list: `resourceVersion`, and `continue` on a page.
    """
    name, version = kind.list_kind, kind.resource.api_version
    if not kind.typed:
        metadata = {"continue": "", **metadata}

    head = {"kind": name, "apiVersion": version, "metadata": metadata, "items": []}
    return plain(head, sort=not kind.typed)


def list_item(kind: Kind, raw: bytes) -> bytes:
    """Return an encoded object as a list item; typed items omit their kind."""
    return b"{" + raw[len(kind.prefix) :] if kind.typed else raw


def _type_of(kind: Kind) -> dict[str, Any]:
    return {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}


def _metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """Omit empty fields, as `omitempty` does."""
    return {key: value for key, value in given.items() if value not in _EMPTY}
