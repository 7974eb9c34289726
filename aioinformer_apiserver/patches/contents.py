"""Contents: the fields that a body has, as an applier owns them, and taking some away.

Applying owns what is written there and nothing besides: unlike a comparison it takes no
ownership of the containers, except where the schema does not describe them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.patches.elements import SELF, field_element
from aioinformer_apiserver.patches.fieldsets import FieldSet, is_member
from aioinformer_apiserver.patches.grains import (
    Grain,
    child_of,
    element_of,
    grain_of,
    is_declared,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.patches.fieldsets import Tree
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["fields_of", "without"]


def fields_of(schema: Schema, body: Mapping[str, Any]) -> FieldSet:
    """Return the fields that are set in a body.

    Args:
        schema: Of whole objects.
        body: The object, or a part of it.

    Raises:
        ValueError: If a list has items that cannot be told apart.
    """
    return FieldSet(_of_map(schema, body))


def without(
    schema: Schema, body: Mapping[str, Any], fields: FieldSet
) -> dict[str, Any]:
    """Return a body without some of its fields, and without what lies below them.

    A map or list that loses all it has becomes a null, if it is not to go itself.

    Args:
        schema: Of whole objects.
        body: The object; it is not changed.
        fields: Those to remove; they need not be there.
    """
    return _map_without(schema, body, fields.tree) or {}


def _of_map(schema: Schema | None, body: Mapping[str, Any]) -> Tree:
    found: Tree = {}
    for name, value in body.items():
        node = _of_value(child_of(schema, name), value)
        if node is None and not is_declared(schema, name):
            node = {}

        if node is not None:
            own = bool(node) and not is_declared(schema, name)
            found[field_element(name)] = {SELF: {}, **node} if own else node

    return found


def _of_value(schema: Schema | None, value: Any) -> Tree | None:
    """Return the node of a described field; None if there is nothing to own in it.

    An empty object can be owned, but an empty list cannot.
    """
    match grain_of(schema, value):
        case Grain.MAP:
            return _of_map(schema, value) or (None if value else {})
        case Grain.LIST:
            assert schema is not None
            return _of_list(schema, value) or None
        case Grain.LEAF:
            return {}


def _of_list(schema: Schema, items: list[Any]) -> Tree:
    """Return the items, each a member; those of one key are owned as a whole."""
    elements = [element_of(schema, item) for item in items]
    counts = Counter(elements)
    found: Tree = {}
    for element, item in zip(elements, items, strict=True):
        below = _of_value(schema.items, item) if counts[element] == 1 else None
        found[element] = {SELF: {}, **below} if below else {}

    return found


def _map_without(
    schema: Schema | None, body: Mapping[str, Any], tree: Tree
) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, value in body.items():
        node = tree.get(field_element(name))
        if node is None:
            found[name] = value
        elif not is_member(node):
            found[name] = _value_without(child_of(schema, name), value, node)

    return found or None


def _value_without(schema: Schema | None, value: Any, tree: Tree) -> Any:
    match grain_of(schema, value):
        case Grain.MAP:
            return _map_without(schema, value, tree)
        case Grain.LIST:
            assert schema is not None
            return _list_without(schema, value, tree)
        case Grain.LEAF:
            return None if isinstance(value, (dict, list)) else value


def _list_without(schema: Schema, items: list[Any], tree: Tree) -> list[Any] | None:
    found: list[Any] = []
    for item in items:
        node = tree.get(element_of(schema, item))
        if node is None:
            found.append(item)
        elif not is_member(node):
            found.append(_value_without(schema.items, item, node))

    return found or None
