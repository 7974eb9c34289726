"""Findings: the problems of fields, in the words of a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioinformer_apiserver.errors.field_errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "NOWHERE",
    "GoStruct",
    "duplicate",
    "forbidden",
    "immutable",
    "invalid",
    "not_supported",
    "required",
    "shown",
    "too_long",
    "too_many",
    "type_invalid",
]

# The path of a problem about which the real server does not say where it is.
NOWHERE = "<nil>"


class GoStruct(dict[str, object]):
    """A value that is shown in its own order, as Go does; maps are sorted."""


def invalid(field: str, value: object, why: str) -> Problem:
    """The value cannot stand there."""
    return Problem(field, f"Invalid value: {shown(value)}: {why}")


def immutable(field: str, value: object) -> Problem:
    """The value cannot be changed any more."""
    return invalid(field, value, "field is immutable")


def type_invalid(field: str, value: object, why: str) -> Problem:
    """The value is of a wrong type."""
    message = f"Invalid value: {shown(value)}: {why}"
    return Problem(field, message, "FieldValueTypeInvalid")


def required(field: str, why: str = "") -> Problem:
    """There must be a value."""
    message = f"Required value: {why}" if why else "Required value"
    return Problem(field, message, "FieldValueRequired")


def forbidden(field: str, why: str) -> Problem:
    """There must be no value, or no other one."""
    return Problem(field, f"Forbidden: {why}", "FieldValueForbidden")


def not_supported(field: str, value: object, choices: Iterable[object]) -> Problem:
    """The value is none of those that are known.

    Args:
        field: The path.
        value: What was found.
        choices: What could stand there; told in this order.
    """
    known = ", ".join(f'"{it}"' for it in choices)
    told = f": supported values: {known}" if known else ""
    message = f"Unsupported value: {shown(value)}{told}"
    return Problem(field, message, "FieldValueNotSupported")


def duplicate(field: str, value: object, why: str = "") -> Problem:
    """The value stands elsewhere as well."""
    message = f"Duplicate value: {shown(value)}" + (f": {why}" if why else "")
    return Problem(field, message, "FieldValueDuplicate")


def too_long(field: str, limit: int) -> Problem:
    """The text has too many bytes."""
    message = f"Too long: may not be more than {limit} bytes"
    return Problem(field, message, "FieldValueTooLong")


def too_many(field: str, count: int, limit: int) -> Problem:
    """The list or map has too many members."""
    message = f"Too many: {count}: must have at most {limit} items"
    return Problem(field, message, "FieldValueTooMany")


def shown(value: object) -> str:
    """Write a value as it appears in messages."""
    option = 0 if isinstance(value, GoStruct) else orjson.OPT_SORT_KEYS
    return orjson.dumps(value, option=option).decode()
