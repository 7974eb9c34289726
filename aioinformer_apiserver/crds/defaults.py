"""Defaults: whether those that a schema states fit the schema itself. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.checks import problems_of
from aioinformer_apiserver.schema.conformity import conform
from aioinformer_apiserver.schema.findings import NOWHERE, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["default_problems"]


def default_problems(path: str, text: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the defaults in a structural schema.

    Args:
        path: Of the schema in its definition.
        text: The schema.
    """
    return [
        problem
        for where, schema in _with_default(path, text)
        for problem in _problems(f"{where}.default", schema)
    ]


def _with_default(
    path: str, text: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if text.get("default") is not None:
        yield path, text

    for name, child in (text.get("properties") or {}).items():
        yield from _with_default(f"{path}.properties[{name}]", child)

    for field in ("items", "additionalProperties"):
        if isinstance(text.get(field), dict):
            yield from _with_default(f"{path}.{field}", text[field])


def _problems(path: str, text: Mapping[str, Any]) -> list[Problem]:
    """Check one default, as the one field of an object."""
    default = text["default"]
    body = {"value": default}
    schema = Schema({"type": "object", "properties": {"value": text}})
    if conform(schema, body, custom=True).body != body:
        return [invalid(path, default, "must not have unknown fields")]

    found = problems_of(Schema(text), default)
    return [replace(it, field=_joined(path, it.field)) for it in found]


def _joined(path: str, field: str) -> str:
    if field in {"", NOWHERE}:
        return path

    return f"{path}{field}" if field.startswith("[") else f"{path}.{field}"
