"""Bodies of objects as pages show them, and the paths that differ between two. Pure."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioinformer import json_codec
from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import LEVELS, decode_encodable
from aioinformer.tables.cells import mapping
from aioinformer.web.dashboard.states import Details
from aioinformer.web.responses import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = [
    "MAX_COMPARED",
    "MAX_VALUES",
    "ShownBody",
    "changed_paths",
    "details_of",
    "shown_body",
]

MAX_COMPARED: Final = 256 * 1024
"""Maximum bytes of a body that is compared with another one, which takes some 10 ms."""

MAX_VALUES: Final = 10_000
"""Maximum number of values in two bodies that are compared, likewise."""

_MAX_PATH: Final = 300
"""Maximum characters of a path."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

# Servers change these with every write.
_IGNORED: Final = frozenset({"managedFields", "resourceVersion", "generation"})

_ABSENT: Final = object()


class ShownBody(NamedTuple):
    """Body of an object without what must not be shown."""

    value: dict[str, Any]
    """JSON value, not to be changed."""
    hidden: list[str]
    """Descriptions of the parts that were left out."""


def shown_body(obj: KubeObject, resource: Resource | None) -> ShownBody:
    """Return the body of an object without managed fields, and a Secret's without data.

    See `redacted`. A body that cannot be decoded is reduced to its identity. One that
    nests too deeply has null in place of the deepest values.

    Args:
        obj: The object.
        resource: Resource of the informer, or None if unknown.
    """
    try:
        text = redacted(obj, resource)
        body, truncated = decode_encodable(text)
        hidden = _missing(obj, body) if text != obj.raw else []
    except (DecodeError, RecursionError):
        return ShownBody(_identity(obj), ["all but the identity, as it is unreadable"])

    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.pop("managedFields", None) is not None:
        hidden.append("metadata.managedFields")

    if truncated:
        hidden.append(f"values nested deeper than {LEVELS} levels")

    return ShownBody(body, hidden)


def details_of(
    obj: KubeObject, before: KubeObject | None, resource: Resource | None
) -> Details:
    """Return the details of a state.

    Args:
        obj: Object in this state.
        before: Object in the state before. None if it is unknown.
        resource: Resource of the informer, or None if unknown.
    """
    size = len(obj.raw)
    if before is None or before.uid != obj.uid:
        return Details(size, [], 0)

    if max(size, len(before.raw)) > MAX_COMPARED:
        return Details(size, [], -1)

    try:
        old, new = _comparable(before, resource), _comparable(obj, resource)
        return Details(size, *changed_paths(old, new))
    except RecursionError:  # of hidden values, which are compared as a whole
        return Details(size, [], -1)


def changed_paths(
    old: dict[str, Any], new: dict[str, Any], limit: int = 12
) -> tuple[list[str], int]:
    """Return the paths that differ between two bodies, in the order of the fields.

    Managed fields, resource version and generation are ignored. Items of arrays are
    compared by their position. A path leads to the outermost value that only one of the
    bodies has.

    Args:
        old: Body before.
        new: Body after.
        limit: Maximum number of paths to return.

    Returns:
        Paths such as `status.conditions[3].status` and `metadata.labels["a.b/c"]`, and
        the number of further ones; -1 if there was too much to compare.
    """
    paths: list[str] = []
    more = compared = 0
    # No recursion: bodies may nest deeply.
    stack: list[tuple[str, Any, Any]] = [("", old, new)]
    while stack:
        path, before, after = stack.pop()
        if not (type(before) is type(after) and isinstance(before, dict | list)):
            if len(paths) < limit:
                paths.append(path)
            else:
                more += 1

            continue

        parts = []
        for step, was, now in _parts(before, after):
            compared += 1
            if compared > MAX_VALUES:
                return paths, -1

            if _is_equal_leaf(was, now) or (path == "metadata" and step in _IGNORED):
                continue

            parts.append((_extended(path, step), was, now))

        stack.extend(reversed(parts))

    return paths, more


def _parts(before: Any, after: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the fields of two objects, or the items of two arrays, with their names."""
    if isinstance(before, dict):
        for name in before | after:
            yield name, before.get(name, _ABSENT), after.get(name, _ABSENT)
    else:
        yield from (
            (index, was, now)
            for index, (was, now) in enumerate(
                zip_longest(before, after, fillvalue=_ABSENT)
            )
        )


def _is_equal_leaf(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or isinstance(one, dict | list):
        return False

    return bool(one == other)


def _extended(path: str, step: str | int) -> str:
    """Return the path of a field or an item."""
    if isinstance(step, int):
        path = f"{path}[{step}]"
    elif _PLAIN_NAME.fullmatch(step, endpos=_MAX_PATH):
        path = f"{path}.{step}" if path else step
    else:
        path = f"{path}[{json_codec.dumps(step[:_MAX_PATH]).decode()}]"

    return path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}..."


def _comparable(obj: KubeObject, resource: Resource | None) -> dict[str, Any]:
    """Return what is compared: the shown body, with what a Secret hides as one value."""
    body, hidden = shown_body(obj, resource)
    secret = _SECRET_FIELDS.intersection(hidden)
    if not secret:
        return body

    whole = obj.to_dict()
    # A tuple is compared as a whole: not even names of keys are shown.
    return body | {name: (whole[name],) for name in secret}


_SECRET_FIELDS: Final = frozenset({"data", "stringData"})


def _missing(obj: KubeObject, shown: dict[str, Any]) -> list[str]:
    """Return the fields that were removed."""
    whole = obj.to_dict()
    missing = [name for name in whole if name not in shown]
    after = mapping(shown, "metadata", "annotations")
    lost = [it for it in mapping(whole, "metadata", "annotations") if it not in after]
    return missing + [_extended("metadata.annotations", name) for name in lost]


def _identity(obj: KubeObject) -> dict[str, Any]:
    return {
        "metadata": {
            "name": obj.name,
            "namespace": obj.namespace,
            "uid": obj.uid,
            "resourceVersion": obj.resource_version,
        }
    }
