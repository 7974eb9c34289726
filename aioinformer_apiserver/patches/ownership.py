"""Ownership: how finely the fields of a value are owned, by its schema.

An atomic value is owned as a whole: scalars, and lists and maps that the schema
declares atomic. Other maps are owned field by field, and other lists item by item.
Items are identified by their keys or, in a set, by their values. Without a schema,
objects are maps and lists are atomic.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer_apiserver.patches.field_sets import (
    SELF,
    FieldSet,
    item_element,
    value_element,
)
from aioinformer_apiserver.schema.decoding import decode
from aioinformer_apiserver.schema.openapi_schema import Schema, definition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.patches.field_sets import Tree

__all__ = [
    "Granularity",
    "empty_object_of",
    "field_schema",
    "granularity_of",
    "is_declared",
    "is_json_equal",
    "list_element_of",
    "schema_of_object",
    "with_named_fields",
]

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TEXT = Schema({"type": "string"})
_ANYTHING = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


class Granularity(Enum):
    """Granularity of the ownership of a value."""

    LEAF = "leaf"
    MAP = "map"
    LIST = "list"


class _ObjectSchema(Schema):
    """Schema of a custom object, with its implicit kind and metadata."""

    def __init__(self, inner: Schema) -> None:
        super().__init__(inner.text)
        self._inner = inner

    def field(self, name: str) -> Schema | None:
        match name:
            case "metadata":
                return definition(_METADATA)
            case "apiVersion" | "kind":
                return _TEXT
            case _:
                return self._inner.field(name)


def schema_of_object(schema: Schema | None) -> Schema:
    """Return the schema of whole objects of a kind, including its metadata.

    Args:
        schema: Schema of the kind; None if it is unknown and any field is allowed.
    """
    found = schema or _ANYTHING
    return found if found.name else _ObjectSchema(found)


def empty_object_of(schema: Schema) -> Mapping[str, Any]:
    """Return the empty object that a new object is compared with.

    For built-in kinds it is an empty Go struct, which writes some fields even if they
    are not set. For custom resources it is empty.

    Args:
        schema: Schema of whole objects.
    """
    return _blank(schema) if schema.name else {}


def field_schema(schema: Schema | None, name: str) -> Schema | None:
    """Return the schema of a field or of a map's value; None if there is none."""
    if schema is None:
        return None

    found = schema.field(name)
    return _ObjectSchema(found) if found is not None and found.embedded else found


def is_declared(schema: Schema | None, name: str) -> bool:
    """Return whether the schema declares a field, unlike the keys of a map."""
    if schema is None:
        return False

    if isinstance(schema, _ObjectSchema) and name in {"apiVersion", "kind", "metadata"}:
        return True

    return name in schema.text_of("properties")


def granularity_of(schema: Schema | None, value: object) -> Granularity:
    """Return the granularity of a value; nulls are atomic."""
    if isinstance(value, dict):
        if schema is None or (schema.type in {"object", ""} and not schema.atomic_map):
            return Granularity.MAP
    elif (
        isinstance(value, list)
        and schema is not None
        and schema.type in {"array", ""}
        and schema.list_type != "atomic"
    ):
        return Granularity.LIST

    return Granularity.LEAF


def list_element_of(schema: Schema, item: object) -> str:
    """Return the path element of a list item.

    Missing keys of an item have their defaults.

    Args:
        schema: Schema of the list, which must be a keyed list or a set.
        item: Item of the list.

    Raises:
        ValueError: If the item has no identity; the message is the server's.
    """
    return _keyed_element(schema, item) if schema.list_keys else _set_element(item)


def with_named_fields(schema: Schema | None, fields: FieldSet) -> FieldSet:
    """Return a field set with the declared fields on the way to its members.

    A set with `spec.template.x` gets `spec` and `spec.template`, too. Path elements
    that lead through a map or a list are not added.

    Args:
        schema: Schema of whole objects.
        fields: The field set.
    """
    return FieldSet(_tree_with_named_fields(schema, fields.tree))


def is_json_equal(one: Any, two: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, 1 is not true."""
    return one is two or (one == two and _booleans_match(one, two))


def _booleans_match(one: Any, two: Any) -> bool:
    """Return whether equal values have their booleans in the same places."""
    if isinstance(one, dict):
        for key, it in one.items():
            # Most values are strings, so skip the call.
            if it.__class__ is not str and not _booleans_match(it, two[key]):
                return False

        return True

    if isinstance(one, list):
        return all(map(_booleans_match, one, two))

    return (one.__class__ is bool) is (two.__class__ is bool)


@cache
def _blank(schema: Schema) -> Mapping[str, Any]:
    return decode(schema, {}).body


def _keyed_element(schema: Schema, item: object) -> str:
    if item is None:
        raise ValueError("associative list with keys may not have a null element")

    if not isinstance(item, dict):
        reason = "associative list with keys may not have non-map elements"
        raise ValueError(reason)

    found = {
        key: value
        for key in schema.list_keys
        if (value := item.get(key, _default(schema, key))) is not msgspec.UNSET
    }
    if found:
        return item_element(found)

    keys = " ".join(f'"{key}"' for key in schema.list_keys)
    raise ValueError(
        f"associative list with keys has an element that omits all key fields [{keys}] "
        "(and doesn't have default values for any key fields)"
    )


def _default(schema: Schema, key: str) -> Any:
    of_key = schema.items.field(key) if schema.items is not None else None
    return msgspec.UNSET if of_key is None else of_key.default


def _set_element(item: object) -> str:
    match item:
        case dict():
            reason = "associative list without keys has an element that's a map type"
        case list():
            reason = "not supported: associative list with lists as elements"
        case None:
            reason = "associative list without keys has an element that's an explicit "
            reason += "null"
        case _:
            return value_element(item)

    raise ValueError(reason)


def _tree_with_named_fields(schema: Schema | None, tree: Tree) -> Tree:
    found: Tree = {}
    for element, node in tree.items():
        if not node:
            found[element] = node
            continue

        named = element[2:] if element.startswith("f:") else None
        below = _tree_with_named_fields(_below(schema, element), node)
        if named is not None and is_declared(schema, named):
            below = {SELF: {}, **below}

        found[element] = below

    return found


def _below(schema: Schema | None, element: str) -> Schema | None:
    if schema is None:
        return None

    if element.startswith("f:"):
        return field_schema(schema, element[2:])

    return schema.items if element.startswith("k:") else None
