"""Pruning: what of a custom resource its schema describes, and nothing else."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.schema.places import Mismatch, Place, path_of, unknown_field
from aioinformer_apiserver.schema.scalars import plain_number
from aioinformer_apiserver.schema.shapes import struct_of

if TYPE_CHECKING:
    from aioinformer_apiserver.schema.nodes import Schema
    from aioinformer_apiserver.schema.shapes import Struct

__all__ = ["METADATA", "pruned"]

METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# The fields that every object has; a schema need not describe them.
_OF_OBJECTS = frozenset({"apiVersion", "kind", "metadata"})


def pruned(schema: Schema, body: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Leave out what a schema does not describe.

    Args:
        schema: Of the custom resource.
        body: The object.
        notes: Takes the sentences about unknown fields: those of the metadata first,
            then the others in the order of their paths, as the real server does.

    Raises:
        Mismatch: If the metadata, here or of an embedded object, is malformed.
    """
    pruner = _Pruner()
    own = dict(body)
    if "metadata" in body:
        own["metadata"] = _metadata()(body["metadata"], None, pruner.inner)
        pruner.inner = [it.replace('"', '"metadata.', 1) for it in pruner.inner]

    first, pruner.inner = pruner.inner, []
    found = pruner.fields(schema, own, None, is_object=True)
    notes += first + sorted(pruner.unknown) + pruner.inner
    return found


class _Pruner:
    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.inner: list[str] = []

    def value(self, schema: Schema, value: Any, at: Place) -> Any:
        """Prune any value; what does not fit the schema's type is left to others."""
        if value.__class__ is dict:
            return self.fields(schema, value, at, is_object=schema.embedded)

        if value.__class__ is list:
            items = schema.items
            if items is None:
                return value if _keeps(schema) else [_emptied(it) for it in value]

            return [self.value(items, it, (at, n, "")) for n, it in enumerate(value)]

        return plain_number(value) if value.__class__ is float else value

    def fields(
        self, schema: Schema, value: dict[str, Any], at: Place, *, is_object: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, it in value.items():
            if is_object and name in _OF_OBJECTS:
                found[name] = self._of_object(name, it, at)
                continue

            child = schema.field(name)
            if child is None:
                if _keeps(schema):
                    found[name] = it
                else:
                    self.unknown.append(unknown_field((at, name, "")))
            elif it is not None or child.nullable:
                found[name] = self.value(child, it, (at, name, ""))

        return found

    def _of_object(self, name: str, value: Any, at: Place) -> Any:
        if at is None:
            return value

        path = path_of((at, name, ""))
        if name != "metadata":
            if value.__class__ is not str:
                raise Mismatch(
                    f"{path}: Invalid value: {_shown(value)}: must be a string"
                )

            return value

        notes: list[str] = []
        try:
            found = _metadata()(value, None, notes)
        except Mismatch as exc:
            raise Mismatch(f"{path}: Invalid value: {_shown(value)}: {exc}") from exc

        self.inner += [it.replace('"', f'"{path}.', 1) for it in notes]
        return found


@cache
def _metadata() -> Struct:
    return struct_of(METADATA)


def _keeps(schema: Schema) -> bool:
    text = schema.text
    return bool(
        text.get("x-kubernetes-preserve-unknown-fields")
        or text.get("additionalProperties") is True
    )


def _emptied(value: Any) -> Any:
    """Empty an object in a list that has no schema for its items."""
    return {} if value.__class__ is dict else value


def _shown(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
