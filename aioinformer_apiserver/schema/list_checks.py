"""Lists of type set and map, whose items must differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.findings import shown

if TYPE_CHECKING:
    from aioinformer_apiserver.errors.field_errors import Problem
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["doubles"]

_NO_OBJECT = "must be an object for an array of list-type map"


def doubles(schema: Schema, value: Any, path: str) -> list[Problem]:
    """Find the items that are in a list twice, anywhere in a value.

    Args:
        schema: Of the value.
        value: The value.
        path: Where it is; keys of maps are written in brackets.
    """
    if isinstance(value, list):
        return _of_list(schema, value, path)

    if not isinstance(value, dict):
        return []

    found: list[Problem] = []
    described = set(schema.fields)
    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            mapped = f"{path}[{name}]"
            dotted = f"{path}.{name}" if path else name
            found += doubles(child, it, dotted if name in described else mapped)

    return found


def _of_list(schema: Schema, value: list[Any], path: str) -> list[Problem]:
    found: list[Problem] = []
    match schema.list_type:
        case "set":
            found += _twice(value, [shown(it) for it in value], value, path)
        case "map":
            found += _of_map(schema, value, path)
        case _:
            pass

    items = schema.items
    for index, it in enumerate(value):
        if items is not None:
            found += doubles(items, it, f"{path}[{index}]")

    return found


def _of_map(schema: Schema, value: list[Any], path: str) -> list[Problem]:
    for index, it in enumerate(value):
        if it is not None and not isinstance(it, dict):
            return [findings.invalid(f"{path}[{index}]", it, _NO_OBJECT)]

    keys = [_keys_of(schema, it or {}) for it in value]
    return _twice(value, [shown(it) for it in keys], keys, path)


def _keys_of(schema: Schema, item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in schema.list_keys if name in item}


def _twice(
    value: list[Any], identities: list[str], told: list[Any], path: str
) -> list[Problem]:
    """Tell each value that occurs more than once, where it does so first."""
    seen: dict[str, int] = {}
    found = []
    for index in range(len(value)):
        identity = identities[index]
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:
            found.append(findings.duplicate(f"{path}[{index}]", told[index]))

    return found
