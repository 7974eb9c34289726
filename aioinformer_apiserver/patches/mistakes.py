"""Mistakes: why a body cannot be applied, in the words of a real server.

An applied body is held against the schema before anything is merged. Only what the
merging itself needs is checked: the types, that fields are described, and that the
items of lists can be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.errors.go_format import go_text, go_type
from aioinformer_apiserver.patches.elements import element_text, field_element
from aioinformer_apiserver.patches.grains import (
    Grain,
    child_of,
    element_of,
    grain_of,
    is_declared,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["mistakes_in"]

_PLAIN_FORMATS = frozenset({"", "byte"})


def mistakes_in(schema: Schema, body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a body that is to be applied; empty if it will do.

    After the first unknown field of an object its other ones are not looked at.

    Args:
        schema: Of whole objects.
        body: As it was sent.
    """
    return list(_in_fields(schema, body, "", opened=False))


def _in_value(
    schema: Schema | None, value: Any, path: str, *, opened: bool
) -> Iterator[str]:
    """Look into a value; `opened` says that unknown fields may stand anywhere in it."""
    if value is None or schema is None:
        return

    match schema.type or type(value):
        case "object" if not isinstance(value, dict):
            yield f"{path}: expected map, got &{{{go_text(value)}}}"
        case "array" if not isinstance(value, list):
            yield f"{path}: expected list, got &{{{go_text(value)}}}"
        case "object" | type() if isinstance(value, dict):
            yield from _in_fields(schema, value, path, opened=opened)
        case "array" | type() if isinstance(value, list):
            yield from _in_items(schema, value, path, opened=opened)
        case type():
            return
        case _:
            problem = _scalar_problem(schema, value)
            if problem:
                yield f"{path}: {problem}"


def _in_fields(
    schema: Schema, body: Mapping[str, Any], path: str, *, opened: bool
) -> Iterator[str]:
    opened = opened or bool(schema.text.get("x-kubernetes-preserve-unknown-fields"))
    free = opened or _is_free(schema)
    for name in sorted(body):
        below = path + element_text(field_element(name))
        if not free and not is_declared(schema, name) and schema.values is None:
            yield f"{below}: field not declared in schema"
            return

        child = child_of(schema, name)
        # What is described elsewhere, as metadata are, is not opened along.
        inside = opened and not (child and child.name)
        yield from _in_value(child, body[name], below, opened=inside)


def _is_free(schema: Schema) -> bool:
    extra = schema.text.get("additionalProperties")
    return extra is True or (extra is None and not schema.text_of("properties"))


def _in_items(
    schema: Schema, items: list[Any], path: str, *, opened: bool
) -> Iterator[str]:
    seen: set[str] = set()
    for place, item in enumerate(items):
        element = f"i:{place}"
        if grain_of(schema, items) is Grain.LIST:
            try:
                element = element_of(schema, item)
            except ValueError as exc:
                yield f"{path}: element {place}: {exc}"
                return

            if element in seen:
                key = element_text(element)
                yield f"{path}: duplicate entries for key {key}"

        seen.add(element)
        below = path + element_text(element)
        yield from _in_value(schema.items, item, below, opened=opened)


def _scalar_problem(schema: Schema, value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    plain = schema.text.get("format", "") in _PLAIN_FORMATS
    match schema.type:
        case "integer" | "number" if not number:
            return f"expected numeric (int or float), got {go_type(value)}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got &{{{go_text(value)}}}"
        case "string" if plain and not isinstance(value, str):
            return f"expected string, got {_go_source(value)}"
        case _ if isinstance(value, (dict, list)):
            return f"expected any scalar, got &{{{go_text(value)}}}"
        case _:
            return ""


def _go_source(value: object) -> str:
    return f"&value.valueUnstructured{{Value:{_go_literal(value)}}}"


def _go_literal(value: object) -> str:
    """Write a value as Go source does."""
    match value:
        case dict():
            pairs = (f'"{key}":{_go_literal(it)}' for key, it in sorted(value.items()))
            return f"{go_type(value)}{{{', '.join(pairs)}}}"
        case list():
            return f"{go_type(value)}{{{', '.join(map(_go_literal, value))}}}"
        case None:
            return "interface {}(nil)"
        case _:
            return orjson.dumps(value).decode()
