"""Field errors: problems of fields, in the words of a real server."""

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

# Path of problems that the real server reports without a path.
NOWHERE = "<nil>"


class GoStruct(dict[str, object]):
    """Value whose fields are shown in its own order, as Go does; maps are sorted."""


def invalid(field: str, value: object, why: str) -> Problem:
    """Make a problem of an invalid value."""
    return Problem(field, f"Invalid value: {shown(value)}: {why}")


def immutable(field: str, value: object) -> Problem:
    """Make a problem of a changed immutable value."""
    return invalid(field, value, "field is immutable")


def type_invalid(field: str, value: object, why: str) -> Problem:
    """Make a problem of a value of a wrong type."""
    message = f"Invalid value: {shown(value)}: {why}"
    return Problem(field, message, "FieldValueTypeInvalid")


def required(field: str, why: str = "") -> Problem:
    """Make a problem of a missing value."""
    message = f"Required value: {why}" if why else "Required value"
    return Problem(field, message, "FieldValueRequired")


def forbidden(field: str, why: str) -> Problem:
    """Make a problem of a value that must be missing, or must not change."""
    return Problem(field, f"Forbidden: {why}", "FieldValueForbidden")


def not_supported(field: str, value: object, choices: Iterable[object]) -> Problem:
    """Make a problem of a value that is not one of the choices.

    Args:
        field: Path of the field.
        value: Value of the field.
        choices: Supported values, in the order of the message.
    """
    known = ", ".join(f'"{it}"' for it in choices)
    told = f": supported values: {known}" if known else ""
    message = f"Unsupported value: {shown(value)}{told}"
    return Problem(field, message, "FieldValueNotSupported")


def duplicate(field: str, value: object, why: str = "") -> Problem:
    """Make a problem of a value that occurs twice."""
    message = f"Duplicate value: {shown(value)}" + (f": {why}" if why else "")
    return Problem(field, message, "FieldValueDuplicate")


def too_long(field: str, limit: int) -> Problem:
    """Make a problem of a text with too many bytes."""
    message = f"Too long: may not be more than {limit} bytes"
    return Problem(field, message, "FieldValueTooLong")


def too_many(field: str, count: int, limit: int) -> Problem:
    """Make a problem of a list or map with too many members."""
    message = f"Too many: {count}: must have at most {limit} items"
    return Problem(field, message, "FieldValueTooMany")


def shown(value: object) -> str:
    """Format a value for a message."""
    option = 0 if isinstance(value, GoStruct) else orjson.OPT_SORT_KEYS
    return orjson.dumps(value, option=option).decode()
