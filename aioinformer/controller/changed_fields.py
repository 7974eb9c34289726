"""Fields that differ between two states of an object, and their managers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioinformer import json_codec

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = [
    "EXISTENCE",
    "MAX_FIELDS",
    "FieldPath",
    "changed_fields",
    "field_manager",
    "field_value",
    "shown_field",
    "writes_field",
]

FieldPath: TypeAlias = tuple[str | tuple[str, str], ...]
"""Names of nested fields. A pair is the item of a list that has this key and value."""

EXISTENCE: Final[FieldPath] = ()
"""Path that stands for the creation or the deletion of an object."""

MAX_FIELDS: Final = 32
"""Maximum number of changed fields that are found in one object."""

# Deeper values count as one field.
_MAX_DEPTH = 12

# Servers change these with every write, or never.
_SERVER_FIELDS = frozenset(
    {"resourceVersion", "managedFields", "generation", "uid", "creationTimestamp"}
)

# Fields that identify the items of lists, as in most lists of Kubernetes.
_ITEM_KEYS = ("type", "name", "key", "uid")


def changed_fields(old: KubeObject, new: KubeObject) -> frozenset[FieldPath]:
    """Return the fields that differ, at most `MAX_FIELDS`.

    Fields that servers maintain in the metadata are left out. Items of lists are
    compared by their type or name where all items have one.

    Raises:
        DecodeError: If a body cannot be decoded.
    """
    found: set[FieldPath] = set()
    _compare(dict(old), dict(new), (), found)
    return frozenset(found)


def _compare(old: Any, new: Any, path: FieldPath, found: set[FieldPath]) -> None:
    if len(found) >= MAX_FIELDS or old == new:
        return

    if len(path) < _MAX_DEPTH:
        before, after = _parts(old), _parts(new)
        # A field that did not exist counts as an empty one.
        before = {} if before is None and old is None else before
        after = {} if after is None and new is None else after
        if before is not None and after is not None and (before or after):
            for step in before | after:
                if path != ("metadata",) or step not in _SERVER_FIELDS:
                    _compare(before.get(step), after.get(step), (*path, step), found)

            return

    found.add(path)


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the fields of an object, or the items of a list that have keys."""
    if isinstance(value, dict):
        return value

    if not isinstance(value, list) or not all(isinstance(it, dict) for it in value):
        return None

    for key in _ITEM_KEYS:
        items = {(key, str(it[key])): it for it in value if key in it}
        if len(items) == len(value):
            return items

    return None


def shown_field(path: FieldPath) -> str:
    """Return a path as text.

    Example:
        >>> shown_field(("status", "conditions", ("type", "Ready"), "status"))
        'status.conditions[Ready].status'
    """
    text = ""
    for step in path:
        text += f"[{step[1]}]" if isinstance(step, tuple) else f".{step}"

    return text.removeprefix(".")


def field_value(body: Any, path: FieldPath) -> Any:
    """Return the value of a path in a decoded object; None if there is none."""
    for step in path:
        if isinstance(step, tuple):
            parts = _parts(body) or {}
            body = parts.get(step)
        else:
            body = body.get(step) if isinstance(body, Mapping) else None

        if body is None:
            return None

    return body


def writes_field(body: Any, path: FieldPath) -> bool:
    """Return True if the decoded body of a patch sets a field, or a part of it.

    Args:
        body: Object of a merge patch or an apply, or list of a JSON patch.
        path: Path of the field.
    """
    if isinstance(body, list):
        return any(_patches(operation, path) for operation in body)

    for step in path:
        if not isinstance(body, dict):  # a list, or a value in place of an object
            return True

        if step not in body:
            return False

        body = body[step]

    return True


def _patches(operation: Any, path: FieldPath) -> bool:
    """Return True if an operation of a JSON patch is about a field or a part of it."""
    names = str(operation.get("path", "")).split("/")[1:]
    for name, step in zip(names, path, strict=False):
        if isinstance(step, tuple):  # its index is not known
            return True

        if name.replace("~1", "/").replace("~0", "~") != step:
            return False

    return True


def field_manager(obj: KubeObject, path: FieldPath) -> str:
    """Return the manager that wrote a field last, or "" if the object does not tell."""
    newest, manager = "", ""
    for entry in obj.at("metadata.managedFields") or ():
        time = str(entry.get("time", ""))
        if time >= newest and _has(entry.get("fieldsV1"), path):
            newest, manager = time, str(entry.get("manager", ""))

    return manager


def _has(fields: Any, path: FieldPath) -> bool:
    """Return True if a set of fields has a path, or an atomic value that contains it."""
    for step in path:
        if not isinstance(fields, Mapping):
            return False

        if isinstance(step, str):
            fields = fields.get(f"f:{step}")
        else:
            fields = next((fields[it] for it in fields if _names(it, step)), None)

        if fields is None:
            return False

        if not fields:  # it is owned as a whole
            return True

    return bool(path)


def _names(item: str, step: tuple[str, str]) -> bool:
    """Return True if `k:{"type":"Ready"}` names an item of a list."""
    if not item.startswith("k:"):
        return False

    key, value = step
    try:
        return str(json_codec.loads(item[2:]).get(key)) == value
    except (ValueError, AttributeError):  # another server's notation
        return False
