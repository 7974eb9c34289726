"""Bytes: how objects, lists and watch events are written, key by key.

Typed kinds keep the order of Go's structs (`kind` first, `metadata` in the order of
ObjectMeta); custom resources are maps in Go, whose keys come out sorted. Either way the
three characters that Go escapes for HTML's sake are escaped here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer.errors import ApiError
    from aioinformer.testing.kinds import Kind

__all__ = [
    "bookmark_line",
    "canonical",
    "encode",
    "error_line",
    "event_line",
    "list_pieces",
    "plain",
    "status_of",
]

PIECE_BYTES = 64 * 1024

_METADATA_ORDER = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
# Go writes its maps sorted, whatever order they came in.
_SORTED_MAPS = ("labels", "annotations")
_EMPTY: tuple[Any, ...] = (None, "", {}, [])


def encode(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Write an object as the server would; it may be incomplete, but is not checked."""
    metadata = _metadata(body.get("metadata") or {})
    if not kind.typed:
        whole = {**body, **_type_of(kind), "metadata": metadata}
        return plain(whole, sort=True)

    rest = {
        key: value
        for key, value in body.items()
        if key not in {"kind", "apiVersion", "metadata", "spec", "status"}
        and value is not None
    }
    ordered = {**_type_of(kind), "metadata": metadata}
    if body.get("spec") is not None:
        ordered["spec"] = body["spec"]

    ordered.update(rest)
    if body.get("status") is not None:
        ordered["status"] = body["status"]

    return plain(ordered)


def plain(value: object, *, sort: bool = False) -> bytes:
    """Write any JSON value, escaped as Go escapes it."""
    raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort else None)
    # These three can stand only inside strings, so a blind replacement is right.
    raw = raw.replace(b"&", b"\\u0026")
    return raw.replace(b"<", b"\\u003c").replace(b">", b"\\u003e")


def canonical(body: Mapping[str, Any]) -> bytes:
    """Write a body so that equal contents give equal bytes."""
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def event_line(event: str, raw: bytes) -> bytes:
    """Write one line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (event.encode(), raw)


def bookmark_line(kind: Kind, version: int, *, initial_events_end: bool) -> bytes:
    """Write a BOOKMARK: an object of which only the version means something."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if kind.typed:
        # A Go struct cannot leave its time out; clients must bear the null.
        metadata["creationTimestamp"] = None

    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}

    return event_line(
        "BOOKMARK",
        plain({**_type_of(kind), "metadata": metadata}, sort=not kind.typed),
    )


def error_line(error: ApiError) -> bytes:
    """Write the ERROR event that ends a watch."""
    return event_line("ERROR", plain(status_of(error)))


def status_of(error: ApiError) -> dict[str, Any]:
    """Return the Status object that tells a client about `error`."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason

    # Most refusals without details leave them out; these two write them empty.
    if error.details or error.status in {404, 405}:
        status["details"] = dict(error.details)

    status["code"] = error.status
    return status


def list_pieces(
    kind: Kind, metadata: dict[str, Any], bodies: Iterable[bytes]
) -> Iterator[bytes]:
    """Write a list in pieces of about 64 KiB, without ever holding the whole.

    Args:
        kind: What the objects are; decides the order of keys.
        metadata: Of the list: `resourceVersion` and, on a page, `continue`.
        bodies: The encoded objects.
    """
    name, version = kind.resource.kind + "List", kind.resource.api_version
    head = {"kind": name, "apiVersion": version, "metadata": metadata}
    if kind.typed:
        cut = len(kind.prefix)
        items: Iterable[bytes] = (b"{" + body[cut:] for body in bodies)
        before, after = plain(head)[:-1] + b',"items":[', b"]}\n"
    else:
        head = {**head, "metadata": {"continue": "", **metadata}, "items": []}
        whole = plain(head, sort=True)
        # Only the version may stand before the items, so the first match is theirs.
        before, mark, after = whole.partition(b'"items":[')
        items, before, after = bodies, before + mark, after + b"\n"

    return _packed(_parts(before, items, after))


def _parts(before: bytes, items: Iterable[bytes], after: bytes) -> Iterator[bytes]:
    yield before
    comma = b""
    for item in items:
        yield comma
        yield item
        comma = b","

    yield after


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts to pieces of `PIECE_BYTES` or a little over."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0

    if waiting:
        yield b"".join(waiting)


def _type_of(kind: Kind) -> dict[str, Any]:
    return {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}


def _metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """Order the metadata, and leave out what is empty, as `omitempty` does."""
    known = {
        key: given[key]
        for key in _METADATA_ORDER
        if key in given and given[key] not in _EMPTY
    }
    for key in _SORTED_MAPS:
        if key in known:
            known[key] = dict(sorted(known[key].items()))

    return known
