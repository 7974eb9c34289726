"""Field errors: the invalid fields of an object, and the 422 that reports them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.errors import ApiError
    from aioinformer.model import Resource

__all__ = ["Problem", "refusal"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid field.

    Attributes:
        field: Path of the field, such as `"metadata.name"`.
        message: Human-readable message, such as `"Required value: name or generateName is
            required"`.
        reason: Machine-readable reason.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> Problem:
        """Report an invalid value, which the message shows as JSON."""
        shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return cls(field, f"Invalid value: {shown}: {why}")

    @classmethod
    def forbidden(cls, field: str, why: str) -> Problem:
        """Report a field that must not be set, or must not be changed."""
        return cls(field, f"Forbidden: {why}", "FieldValueForbidden")


def refusal(
    resource: Resource,
    name: str,
    problems: Sequence[Problem],
    *,
    said_kind: str | None = None,
) -> ApiError:
    """Make the 422 that reports all invalid fields of an object.

    Args:
        resource: Resource of the object, in its storage version.
        name: Name of the object; may be empty.
        problems: One or more errors.
        said_kind: Name to use instead of the kind; None to use the kind.
    """
    causes = [
        {"reason": it.reason, "message": it.message, "field": it.field}
        for it in problems
    ]
    texts = list(dict.fromkeys(f"{it.field}: {it.message}" for it in problems))
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    shown = resource.kind if said_kind is None else said_kind
    title = f"{shown}.{resource.group}" if resource.group else shown
    details = {"name": name, "group": resource.group, "kind": shown, "causes": causes}
    return statuses.failure(
        422,
        "Invalid",
        f'{title} "{name}" is invalid: {told}',
        {key: value for key, value in details.items() if value},
    )
