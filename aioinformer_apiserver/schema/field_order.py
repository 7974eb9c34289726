"""Field order: keys of built-in objects in the order in which Go writes them.

Fields of a struct have the order of its declaration, keys of a map are sorted. Unknown
fields keep their order and come last.
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

# Limit of cached shapes, against clients that always send new ones.
_SHAPES_KEPT = 200
# Inlined in every object, before its own fields.
_TYPE = ("kind", "apiVersion")


class StructOrder:
    """Order of the objects of one definition.

    Args:
        name: Name of the definition, such as `"io.k8s.api.core.v1.PodSpec"`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Cache, as most objects have one of a few shapes. Keys are the field
        # names as given; values are the sorted names, and the orders of nested
        # values.
        self._known: dict[tuple[str, ...], _Shape] = {}

    def __repr__(self) -> str:
        return f"<StructOrder {self._name}>"

    def __call__(self, value: Any) -> Any:
        """Return the object with sorted keys, down to the leaves.

        Other values are returned unchanged.
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
        """Orders of the fields that hold more than scalars."""
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
