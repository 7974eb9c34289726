"""Problems: what is wrong with an object, field by field, and the refusal made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["Problem", "refusal"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One field that is not acceptable.

    Attributes:
        field: The path, such as `"metadata.name"`.
        message: For people, such as `"Required value: name or generateName is required"`.
        reason: For machines.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> Problem:
        """Say why a value cannot stand; texts are quoted, as all values in messages."""
        shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return cls(field, f"Invalid value: {shown}: {why}")

    @classmethod
    def forbidden(cls, field: str, why: str) -> Problem:
        """Say why nothing (or nothing else) can stand there."""
        return cls(field, f"Forbidden: {why}", "FieldValueForbidden")


def refusal(
    kind: Kind,
    name: str,
    problems: Sequence[Problem],
    *,
    said_kind: str | None = None,
) -> ApiError:
    """Make the 422 that tells all problems of an object.

    Args:
        kind: Of the object.
        name: Of the object; may be empty.
        problems: At least one.
        said_kind: What it is called, if not by its kind; None if so.
    """
    resource = kind.stored
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
