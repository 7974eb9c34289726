"""Ordering: the keys of built-in objects in the order in which Go writes them.

The fields of a struct stand in the order of its declaration, the keys of a map are
sorted. What the schema does not know keeps its place, behind the rest.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.openapi_schema import definition, go_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.schema.openapi_schema import Schema

    Order = Callable[[Any], Any]
    _Shape = tuple[tuple[str, ...], tuple[tuple[str, Order], ...]]

__all__ = ["StructOrder", "order_of"]

# Clients that send ever new shapes are not to fill the memory.
_SHAPES_KEPT = 200
# Inlined in every object, in front of its own fields.
_TYPE = ("kind", "apiVersion")


class StructOrder:
    """Orders the objects of one definition.

    Args:
        name: The definition, such as `"io.k8s.api.core.v1.PodSpec"`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Objects of few shapes are ordered all the time. By the keys as they came: the
        # keys in order, and what is to be ordered within.
        self._known: dict[tuple[str, ...], _Shape] = {}

    def __repr__(self) -> str:
        return f"<StructOrder {self._name}>"

    def __call__(self, value: Any) -> Any:
        """Return the object with its keys in order, down to the leaves.

        What is no object is returned as it is.
        """
        if value.__class__ is not dict:
            return value

        names = tuple(value)
        ordered, inner = self._known.get(names) or self._learn(names)
        if not inner and ordered == names:
            return value

        found = {name: value[name] for name in ordered}
        for name, order in inner:
            found[name] = order(found[name])

        return found

    def _learn(self, names: tuple[str, ...]) -> _Shape:
        rank = self._ranks
        ordered = tuple(sorted(names, key=lambda name: rank.get(name, len(rank))))
        inner = tuple((it, self._inner[it]) for it in ordered if it in self._inner)
        if len(self._known) < _SHAPES_KEPT:
            self._known[names] = ordered, inner

        return ordered, inner

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {it: n for n, it in enumerate((*_TYPE, *go_fields(self._name)))}

    @cached_property
    def _inner(self) -> dict[str, Order]:
        """The orders of those fields that hold more than plain values."""
        schema, found = definition(self._name), {}
        for name in schema.fields:
            child = schema.field(name)
            order = _order(child) if child is not None else None
            if order is not None:
                found[name] = order

        return found


@cache
def order_of(name: str) -> StructOrder:
    """Return the order of a definition."""
    return StructOrder(name)


def _order(schema: Schema) -> Order | None:
    if schema.name:
        return order_of(schema.name) if go_fields(schema.name) else None

    if schema.items is not None:
        return _of_list(_order(schema.items))

    if schema.values is not None:
        return _of_map(_order(schema.values))

    return None


def _of_list(item: Order | None) -> Order | None:
    if item is None:
        return None

    def order(value: Any) -> Any:
        return [item(it) for it in value] if value.__class__ is list else value

    return order


def _of_map(item: Order | None) -> Order:
    def order(value: Any) -> Any:
        if value.__class__ is not dict:
            return value

        if item is not None:
            return {key: item(value[key]) for key in sorted(value)}

        names = list(value)
        return value if names == sorted(names) else dict(sorted(value.items()))

    return order
