"""Keywords: what OpenAPI says about one value, and what is said when it is not so.

Each function checks one aspect of a value, without looking into it. The sentences are
those of a real server, its oddities included.
"""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.findings import NOWHERE, shown
from aioinformer_apiserver.schema.patterns import go_pattern
from aioinformer_apiserver.schema.scalars import plain_number
from aioinformer_apiserver.schema.text_formats import fits_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.errors.field_errors import Problem
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["enum", "number", "size", "text", "type_"]

_WORDS: dict[type, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}
_FORMATS_OF_VALUES = {int: "int64", float: "float64"}


def type_(schema: Schema, value: Any, path: str) -> list[Problem]:
    """Check the type of a value."""
    word, expected = _WORDS[type(value)], _types(schema)
    if value is None:
        if not expected or schema.nullable:
            return []

        return [_mistyped(path, ",".join(expected), word)]

    format_ = _format(schema)
    fits = word in expected or (word == "integer" and "number" in expected)
    if format_ and word in {"string", "array"}:
        if not {"integer", "number"} & set(expected):
            # Left to the check of the format, which only looks at text.
            return []
    elif format_ and not fits:
        return [_mistyped(path, format_, _FORMATS_OF_VALUES.get(type(value), ""))]

    return [] if fits or not expected else [_mistyped(path, ",".join(expected), word)]


def enum(schema: Schema, value: Any, path: str) -> list[Problem]:
    """Check that a value is one of those listed."""
    choices = schema.text.get("enum")
    if not choices or any(_equal(it, value) for it in choices):
        return []

    known = [it if isinstance(it, str) else shown(it) for it in choices]
    return [findings.not_supported(path, value, known)]


def text(schema: Schema, value: str, path: str) -> list[Problem]:
    """Check the length, pattern and format of a text."""
    rules, found = schema.text, []
    longest, shortest = rules.get("maxLength"), rules.get("minLength")
    pattern = go_pattern(rules["pattern"]) if rules.get("pattern") else None
    if longest is not None and len(value) > longest:
        found.append(findings.too_long(path, longest))
    elif shortest is not None and len(value) < shortest:
        why = f"{path} in body should be at least {shortest} chars long"
        found.append(findings.invalid(path, value, why))
    elif pattern is not None and not pattern.search(value):
        why = f"{path} in body should match '{rules['pattern']}'"
        found.append(findings.invalid(path, value, why))

    format_ = _format(schema)
    if format_ and not fits_format(format_, value):
        why = f'{path} in body must be of type {format_}: "{value}"'
        found.append(findings.type_invalid(path, value, why))

    return found


def number(schema: Schema, value: float, path: str) -> list[Problem]:
    """Check that a number is in its range."""
    rules = schema.text
    found = _in_words(schema, value, "Checked", path)
    step = rules.get("multipleOf")
    if step is not None:
        misfit = _in_words(schema, step, "MultipleOf", path)
        found += misfit or _multiple(value, step, path)

    low, high = rules.get("minimum"), rules.get("maximum")
    if low is not None and not _inside(value, low, rules.get("exclusiveMinimum")):
        word = "than" if rules.get("exclusiveMinimum") else "than or equal to"
        why = f"{path} in body should be greater {word} {_plain(low)}"
        found.append(findings.invalid(path, value, why))

    if high is not None and not _inside(-value, -high, rules.get("exclusiveMaximum")):
        word = "than" if rules.get("exclusiveMaximum") else "than or equal to"
        why = f"{path} in body should be less {word} {_plain(high)}"
        found.append(findings.invalid(path, value, why))

    return found


def size(
    schema: Schema, value: list[Any] | Mapping[str, Any], path: str
) -> list[Problem]:
    """Check how many members a list or map has, and that they differ."""
    lists = isinstance(value, list)
    suffix, word = ("Items", "items") if lists else ("Properties", "properties")
    rules, found, count = schema.text, [], len(value)
    fewest, most = rules.get(f"min{suffix}"), rules.get(f"max{suffix}")
    if fewest is not None and count < fewest:
        why = f"{path} in body should have at least {fewest} {word}"
        found.append(findings.invalid(path, count, why))

    if most is not None and count > most:
        found.append(findings.too_many(path, count, most))

    if lists and rules.get("uniqueItems") and len({*map(shown, value)}) < count:
        why = f"{path} in body shouldn't contain duplicates"
        found.append(findings.invalid(path, "", why))

    return found


def _types(schema: Schema) -> list[str]:
    if schema.text.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]

    return [schema.type] if schema.type else []


def _format(schema: Schema) -> str:
    """Return the format, if it is one that counts for the type."""
    format_ = str(schema.text.get("format") or "")
    match schema.type:
        case "integer":
            return format_ if format_ in {"int32", "int64"} else ""
        case "number":
            return format_ if format_ in {"float", "double"} else ""
        case "string" | "":
            return format_
        case _:
            return ""


def _mistyped(path: str, expected: str, found: str) -> Problem:
    why = f'{path} in body must be of type {expected}: "{found}"'
    return findings.type_invalid(path, found, why)


def _equal(choice: Any, value: Any) -> bool:
    if isinstance(choice, int) and isinstance(value, float):
        # The real server compares after making it an integer.
        value = int(value)

    # In Python True is 1, but in JSON it is not.
    same_kind = isinstance(choice, bool) == isinstance(value, bool)
    return same_kind and bool(choice == value)


def _in_words(schema: Schema, value: float, what: str, path: str) -> list[Problem]:
    """Check that a value (or a bound of it) can be an integer of its format."""
    if schema.type != "integer":
        return []

    format_ = _format(schema)
    limit = 2**31 if format_ == "int32" else 2**63
    if float(value).is_integer() and -limit <= value < limit:
        return []

    kind = f"with format {format_}" if format_ else "(default format)"
    why = f"{what} value must be of type integer {kind} in {path}"
    return [findings.invalid(NOWHERE, "", why)]


def _multiple(value: float, step: float, path: str) -> list[Problem]:
    if isinstance(value, int):
        # A whole number is divided by a whole number, even if that is zero.
        step = int(step)

    if step <= 0:
        why = f"factor MultipleOf declared for {path} must be positive: {_plain(step)}"
        return [findings.invalid(path, plain_number(step), why)]

    quotient = value / step
    if isclose(quotient, round(quotient), abs_tol=1e-9):
        return []

    why = f"{path} in body should be a multiple of {_plain(step)}"
    return [findings.invalid(path, value, why)]


def _inside(value: float, low: float, exclusive: object) -> bool:
    return value > low if exclusive else value >= low


def _plain(value: float) -> str:
    return shown(plain_number(value))
