"""Version checks: what one version of a definition says beside its name. Pure.

What all versions say alike counts as said once, for the whole definition: errors in it
have the path of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.crds.structural import schema_problems
from aioinformer_apiserver.schema.findings import (
    duplicate,
    invalid,
    required,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["SHARED_FIELDS", "check_parts", "shared_parts"]

SHARED_FIELDS = (
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
)

_TYPES = ("boolean", "date", "integer", "number", "string")
_FORMATS = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_NO_SIMPLE_PATH = "must be a simple json path starting with ."
_SELECTABLE = frozenset({"string", "boolean", "integer"})
_SELECTABLE_COUNT = 8


def shared_parts(versions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts that all versions have in common."""
    if not versions:
        return {}

    first = versions[0]
    return {
        field: first.get(field)
        for field in SHARED_FIELDS
        if all(version.get(field) == first.get(field) for version in versions)
    }


def check_parts(path: str, parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the parts of a version, or what all versions have in common.

    Args:
        path: Of what they are parts of.
        parts: By their fields; some may be missing.
    """
    for index, column in enumerate(parts.get("additionalPrinterColumns") or ()):
        yield from _column(f"{path}.additionalPrinterColumns[{index}]", column)

    text = (parts.get("schema") or {}).get("openAPIV3Schema") or {}
    shared = path == "spec"
    yield from _selectable(path, parts, text, shared=shared)
    if text:
        where = "spec.validation" if shared else f"{path}.schema"
        yield from schema_problems(f"{where}.openAPIV3Schema", text)

    scale = (parts.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale(f"{path}.subresources.scale", scale)


def _column(path: str, column: Mapping[str, Any]) -> Iterator[Problem]:
    if not column.get("name"):
        yield required(f"{path}.name")

    kind, form = column.get("type") or "", column.get("format") or ""
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(_TYPES)}")
    elif kind not in _TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(_TYPES)}")

    if form and form not in _FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_FORMATS)}")

    where = column.get("jsonPath") or ""
    if not where:
        yield required(f"{path}.JSONPath")
    elif not where.startswith("."):
        yield invalid(f"{path}.JSONPath", where, _NO_SIMPLE_PATH)


def _scale(path: str, scale: Mapping[str, Any]) -> Iterator[Problem]:
    for field, roots, needed in (
        ("specReplicasPath", (".spec",), True),
        ("statusReplicasPath", (".status",), True),
        ("labelSelectorPath", (".spec", ".status"), False),
    ):
        where = scale.get(field) or ""
        if not where:
            if needed:
                yield required(f"{path}.{field}")
        elif not where.startswith("."):
            yield invalid(f"{path}.{field}", where, _NO_SIMPLE_PATH)
        elif not any(where.startswith(f"{root}.") for root in roots):
            told = " or ".join(roots)
            told = f"either {told}" if len(roots) > 1 else told
            yield invalid(
                f"{path}.{field}", where, f"should be a json path under {told}"
            )


def _selectable(
    path: str, parts: Mapping[str, Any], text: Mapping[str, Any], *, shared: bool
) -> Iterator[Problem]:
    given = parts.get("selectableFields") or []
    path = f"{path}.selectableFields"
    if given and "schema" not in parts:
        # Said of versions that differ in this, but not in their schemas.
        why = "may only be set when `version.schema.openAPIV3Schema` is not included"
        yield invalid(path, "", why)
        return

    if len(given) > _SELECTABLE_COUNT:
        yield too_many(path, len(given), _SELECTABLE_COUNT)

    seen: set[str] = set()
    for index, field in enumerate(given):
        where = field.get("jsonPath") or ""
        at = f"{path}[{index}].jsonPath"
        problem = _selectable_problem(where, text)
        if not where:
            yield required(at)
        elif problem:
            yield invalid(at, where, problem)
        elif where in seen:
            yield duplicate(at, where)

        seen.add(where)


def _selectable_problem(where: str, text: Mapping[str, Any]) -> str:
    """Say why a field cannot be selected by; empty if it can."""
    if not where.startswith("."):
        return f"is an invalid path: expected [ or . but got: {where}"

    if "[" in where:
        return "is an invalid path: array notation is not allowed"

    found: Any = text
    parts = where[1:].split(".")
    for part in parts:
        found = (found.get("properties") or {}).get(part)
        if found is None or parts[0] == "metadata":
            return "is an invalid path: does not refer to a valid field"

    if found.get("type") in _SELECTABLE:
        return ""

    return (
        "must point to a field of type string, boolean or integer. Enum string fields "
        "and strings with formats are allowed."
    )
