"""Field errors: the invalid fields of an object, and the 422 that reports them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.errors import ApiError
    from aioinformer.model import Resource

__all__ = [
    "NOWHERE",
    "FieldError",
    "GoStruct",
    "duplicate",
    "forbidden",
    "format_value",
    "immutable",
    "invalid",
    "invalid_error",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field.

    Attributes:
        field: Path of the field, such as `"metadata.name"`.
        message: Human-readable message, such as `"Required value: name or generateName
            is required"`.
        reason: Machine-readable reason.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> FieldError:
        """Report an invalid value, which the message shows as JSON."""
        shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return cls(field, f"Invalid value: {shown}: {why}")

    @classmethod
    def forbidden(cls, field: str, why: str) -> FieldError:
        """Report a field that must not be set, or must not be changed."""
        return cls(field, f"Forbidden: {why}", "FieldValueForbidden")


def invalid_error(
    resource: Resource,
    name: str,
    errors: Sequence[FieldError],
    *,
    shown_kind: str | None = None,
) -> ApiError:
    """Return the 422 that reports all invalid fields of an object.

    Args:
        resource: Resource of the object, in its storage version.
        name: Name of the object; may be empty.
        errors: One or more errors.
        shown_kind: Name to use instead of the kind; None to use the kind.
    """
    causes = [
        {"reason": it.reason, "message": it.message, "field": it.field} for it in errors
    ]
    texts = list(dict.fromkeys(f"{it.field}: {it.message}" for it in errors))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    shown = resource.kind if shown_kind is None else shown_kind
    title = f"{shown}.{resource.group}" if resource.group else shown
    details = {"name": name, "group": resource.group, "kind": shown, "causes": causes}
    return statuses.failure(
        422,
        "Invalid",
        f'{title} "{name}" is invalid: {text}',
        {key: value for key, value in details.items() if value},
    )


# Path of errors that a real server reports without a path.
NOWHERE = "<nil>"


class GoStruct(dict[str, object]):
    """Value whose fields are shown in its own order, as Go does; maps are sorted."""


def invalid(field: str, value: object, why: str) -> FieldError:
    """Return the error for an invalid value."""
    return FieldError(field, f"Invalid value: {format_value(value)}: {why}")


def immutable(field: str, value: object) -> FieldError:
    """Return the error for a changed immutable value."""
    return invalid(field, value, "field is immutable")


def type_invalid(field: str, value: object, why: str) -> FieldError:
    """Return the error for a value of a wrong type."""
    message = f"Invalid value: {format_value(value)}: {why}"
    return FieldError(field, message, "FieldValueTypeInvalid")


def required(field: str, why: str = "") -> FieldError:
    """Return the error for a missing value."""
    message = f"Required value: {why}" if why else "Required value"
    return FieldError(field, message, "FieldValueRequired")


def forbidden(field: str, why: str) -> FieldError:
    """Return the error for a value that must be missing, or must not change."""
    return FieldError(field, f"Forbidden: {why}", "FieldValueForbidden")


def not_supported(field: str, value: object, choices: Iterable[object]) -> FieldError:
    """Return the error for a value that is not one of the choices.

    Args:
        field: Path of the field.
        value: Value of the field.
        choices: Supported values, in the order of the message.
    """
    known = ", ".join(f'"{it}"' for it in choices)
    text = f": supported values: {known}" if known else ""
    message = f"Unsupported value: {format_value(value)}{text}"
    return FieldError(field, message, "FieldValueNotSupported")


def duplicate(field: str, value: object, why: str = "") -> FieldError:
    """Return the error for a value that occurs twice."""
    message = f"Duplicate value: {format_value(value)}" + (f": {why}" if why else "")
    return FieldError(field, message, "FieldValueDuplicate")


def too_long(field: str, limit: int) -> FieldError:
    """Return the error for a text with too many bytes."""
    message = f"Too long: may not be more than {limit} bytes"
    return FieldError(field, message, "FieldValueTooLong")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """Return the error for a list or map with too many members."""
    message = f"Too many: {count}: must have at most {limit} items"
    return FieldError(field, message, "FieldValueTooMany")


def format_value(value: object) -> str:
    """Format a value for a message."""
    option = 0 if isinstance(value, GoStruct) else json_codec.OPT_SORT_KEYS
    return json_codec.dumps(value, option=option).decode()
