"""Validation of custom resources by their OpenAPI schema.

All of structural OpenAPI is implemented. CEL rules (`x-kubernetes-validations`) are
ignored. The schemas of built-in kinds are too rough to validate with; see
`aioinformer_apiserver.schema.builtin_validation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.errors.field_errors import NOWHERE, format_value
from aioinformer_apiserver.schema.go_types import plain_number
from aioinformer_apiserver.schema.string_formats import fits_format, go_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.errors.field_errors import FieldError
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["validate_custom_resource"]

# No old value; not the same as null.
_ABSENT = object()


def validate_custom_resource(
    schema: Schema, body: dict[str, Any], old: dict[str, Any] | None = None
) -> list[FieldError]:
    """Validate a custom resource.

    Args:
        schema: Schema of the kind.
        body: Object with its defaults.
        old: Stored object, for updates. Unchanged invalid values are accepted, so that
            a schema may become stricter.

    Returns:
        Errors in the words of a real server. Those of one object have the order of
        its fields; a real server has no fixed order.
    """
    found = _check(schema, body, "", _ABSENT if old is None else old).errors
    found += _validate_embedded(schema, body, "")
    if old is None or not _validate_duplicate(schema, old, ""):
        found += _validate_duplicate(schema, body, "")

    return found


@dataclass(slots=True)
class _Result:
    """Errors, and the number of valid parts, which selects the best alternative."""

    errors: list[FieldError] = field(default_factory=list)
    fitting: int = 0

    def add(self, other: _Result) -> None:
        self.errors += other.errors
        self.fitting += other.fitting


def _check(schema: Schema, value: Any, path: str, old: Any) -> _Result:
    """Validate a value and its children, in the order of a real server."""
    result = _Result(_validate_type(schema, value, path))
    if value is not None:
        result.add(_combinations(schema, value, path, old))

    if isinstance(value, str):
        result.errors += _validate_text(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result.errors += _validate_number(schema, value, path)
    elif isinstance(value, list):
        result.add(_items(schema, value, path, old))
        result.errors += _validate_size(schema, value, path)

    result.errors += _validate_enum(schema, value, path)
    if isinstance(value, dict):
        result.errors += _validate_size(schema, value, path)
        result.add(_fields(schema, value, path, old))

    if result.errors and old is not _ABSENT and _same(old, value):
        return _Result(fitting=result.fitting)

    result.fitting += not result.errors
    return result


def _same(one: Any, other: Any) -> bool:
    return format_value(one) == format_value(other)


# ---------------------------------------------------------------- children


def _items(schema: Schema, value: list[Any], path: str, old: Any) -> _Result:
    result, items = _Result(), schema.items
    if items is None:
        return result

    before = _items_by_key(schema, old)
    for index, it in enumerate(value):
        key = _key_of(schema, it)
        past = before.get(key, _ABSENT) if key else _ABSENT
        result.add(_check(items, it, f"{path}[{index}]", past))

    return result


def _items_by_key(schema: Schema, old: Any) -> dict[str, Any]:
    """Return the items of an old list by key; only keyed lists have keys."""
    if not isinstance(old, list) or schema.list_type != "map":
        return {}

    return {_key_of(schema, it): it for it in old}


def _key_of(schema: Schema, item: Any) -> str:
    if schema.list_type != "map" or not isinstance(item, dict):
        return ""

    return format_value([item.get(name) for name in schema.list_keys])


def _fields(schema: Schema, value: dict[str, Any], path: str, old: Any) -> _Result:
    result = _Result()
    before = old if isinstance(old, dict) else {}
    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            where = f"{path}.{name}" if path else name
            result.add(_check(child, it, where, before.get(name, _ABSENT)))

    result.errors += [
        field_errors.required(f"{path}.{name}".lstrip("."))
        for name in schema.required
        if name not in value
    ]
    return result


# ---------------------------------------------------------------- combinations


def _combinations(schema: Schema, value: Any, path: str, old: Any) -> _Result:
    result = _Result()
    for keyword, combine in (
        ("anyOf", _any_of),
        ("oneOf", _one_of),
        ("allOf", _all_of),
    ):
        texts = schema.text.get(keyword)
        if texts and not (keyword == "anyOf" and _is_int_or_string(schema)):
            tried = [_check(schema.with_text(it), value, path, old) for it in texts]
            result.add(combine(tried, path))

    text = schema.text.get("not")
    if text is not None and not _check(schema.with_text(text), value, path, old).errors:
        result.add(_failure(path, "must not validate the schema (not)"))

    return result


def _is_int_or_string(schema: Schema) -> bool:
    """Return whether the alternatives only repeat the type."""
    return bool(schema.text.get("x-kubernetes-int-or-string"))


def _any_of(tried: list[_Result], path: str) -> _Result:
    fitting = [it for it in tried if not it.errors]
    if fitting:
        return fitting[0]

    result = _failure(path, "must validate at least one schema (anyOf)")
    result.add(_best(tried))
    return result


def _one_of(tried: list[_Result], path: str) -> _Result:
    fitting = [it for it in tried if not it.errors]
    if len(fitting) == 1:
        return fitting[0]

    how = f"Found {len(fitting)} valid alternatives" if fitting else "Found none valid"
    result = _failure(path, f"must validate one and only one schema (oneOf). {how}")
    if not fitting:
        result.add(_best(tried))

    return result


def _all_of(tried: list[_Result], path: str) -> _Result:
    result = _Result()
    for it in tried:
        result.add(it)

    if result.errors:
        none = ". None validated" if all(it.errors for it in tried) else ""
        result.add(_failure(path, f"must validate all the schemas (allOf){none}"))

    return result


def _best(tried: list[_Result]) -> _Result:
    return max(tried, key=lambda it: it.fitting)


def _failure(path: str, why: str) -> _Result:
    return _Result([field_errors.invalid(NOWHERE, "", f'"{path}" {why}')])


# ---------------------------------------------------------------- embedded objects


def _validate_embedded(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Validate the type of embedded objects."""
    if isinstance(value, list):
        items = schema.items
        return [
            it
            for index, one in enumerate(value)
            if items is not None
            for it in _validate_embedded(items, one, f"{path}[{index}]")
        ]

    if not isinstance(value, dict):
        return []

    found = []
    if schema.embedded:
        for name in ("apiVersion", "kind"):
            if name not in value:
                found.append(field_errors.required(f"{path}.{name}"))
            elif not value[name]:
                where = f"{path}.{name}"
                found.append(field_errors.invalid(where, "", "must not be empty"))

    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            found += _validate_embedded(child, it, f"{path}.{name}".lstrip("."))

    return found


_WORDS: dict[type, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}
# ------------------------------------------------------------------ keywords


_FORMATS_OF_VALUES = {int: "int64", float: "float64"}


def _validate_type(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Validate the type of a value."""
    word, expected = _WORDS[type(value)], _types(schema)
    if value is None:
        if not expected or schema.nullable:
            return []

        return [_type_error(path, ",".join(expected), word)]

    format_ = _format(schema)
    fits = word in expected or (word == "integer" and "number" in expected)
    if format_ and word in {"string", "array"}:
        if not {"integer", "number"} & set(expected):
            # The format is validated separately, for strings only.
            return []
    elif format_ and not fits:
        return [_type_error(path, format_, _FORMATS_OF_VALUES.get(type(value), ""))]

    return [] if fits or not expected else [_type_error(path, ",".join(expected), word)]


def _validate_enum(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Validate that a value is one of the choices."""
    choices = schema.text.get("enum")
    if not choices or any(_equal(it, value) for it in choices):
        return []

    known = [it if isinstance(it, str) else format_value(it) for it in choices]
    return [field_errors.not_supported(path, value, known)]


def _validate_text(schema: Schema, value: str, path: str) -> list[FieldError]:
    """Validate the length, pattern and format of a text."""
    rules, found = schema.text, []
    longest, shortest = rules.get("maxLength"), rules.get("minLength")
    pattern = go_pattern(rules["pattern"]) if rules.get("pattern") else None
    if longest is not None and len(value) > longest:
        found.append(field_errors.too_long(path, longest))
    elif shortest is not None and len(value) < shortest:
        why = f"{path} in body should be at least {shortest} chars long"
        found.append(field_errors.invalid(path, value, why))
    elif pattern is not None and not pattern.search(value):
        why = f"{path} in body should match '{rules['pattern']}'"
        found.append(field_errors.invalid(path, value, why))

    format_ = _format(schema)
    if format_ and not fits_format(format_, value):
        why = f'{path} in body must be of type {format_}: "{value}"'
        found.append(field_errors.type_invalid(path, value, why))

    return found


def _validate_number(schema: Schema, value: float, path: str) -> list[FieldError]:
    """Validate the range of a number."""
    rules = schema.text
    found = _validate_integer_format(schema, value, "Checked", path)
    step = rules.get("multipleOf")
    if step is not None:
        misfit = _validate_integer_format(schema, step, "MultipleOf", path)
        found += misfit or _multiple(value, step, path)

    low, high = rules.get("minimum"), rules.get("maximum")
    if low is not None and not _inside(value, low, rules.get("exclusiveMinimum")):
        word = "than" if rules.get("exclusiveMinimum") else "than or equal to"
        why = f"{path} in body should be greater {word} {_plain(low)}"
        found.append(field_errors.invalid(path, value, why))

    if high is not None and not _inside(-value, -high, rules.get("exclusiveMaximum")):
        word = "than" if rules.get("exclusiveMaximum") else "than or equal to"
        why = f"{path} in body should be less {word} {_plain(high)}"
        found.append(field_errors.invalid(path, value, why))

    return found


def _validate_size(
    schema: Schema, value: list[Any] | Mapping[str, Any], path: str
) -> list[FieldError]:
    """Validate the size and uniqueness of a list or map."""
    lists = isinstance(value, list)
    suffix, word = ("Items", "items") if lists else ("Properties", "properties")
    rules, found, count = schema.text, [], len(value)
    fewest, most = rules.get(f"min{suffix}"), rules.get(f"max{suffix}")
    if fewest is not None and count < fewest:
        why = f"{path} in body should have at least {fewest} {word}"
        found.append(field_errors.invalid(path, count, why))

    if most is not None and count > most:
        found.append(field_errors.too_many(path, count, most))

    if lists and rules.get("uniqueItems") and len({*map(format_value, value)}) < count:
        why = f"{path} in body shouldn't contain duplicates"
        found.append(field_errors.invalid(path, "", why))

    return found


def _types(schema: Schema) -> list[str]:
    if schema.text.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]

    return [schema.type] if schema.type else []


def _format(schema: Schema) -> str:
    """Return the format, if it applies to the type."""
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


def _type_error(path: str, expected: str, found: str) -> FieldError:
    why = f'{path} in body must be of type {expected}: "{found}"'
    return field_errors.type_invalid(path, found, why)


def _equal(choice: Any, value: Any) -> bool:
    if isinstance(choice, int) and isinstance(value, float):
        # The real server converts it to an integer first.
        value = int(value)

    # True equals 1 in Python, but not in JSON.
    same_kind = isinstance(choice, bool) == isinstance(value, bool)
    return same_kind and bool(choice == value)


def _validate_integer_format(
    schema: Schema, value: float, what: str, path: str
) -> list[FieldError]:
    """Validate that a value or bound fits the integer format."""
    if schema.type != "integer":
        return []

    format_ = _format(schema)
    limit = 2**31 if format_ == "int32" else 2**63
    if float(value).is_integer() and -limit <= value < limit:
        return []

    kind = f"with format {format_}" if format_ else "(default format)"
    why = f"{what} value must be of type integer {kind} in {path}"
    return [field_errors.invalid(NOWHERE, "", why)]


def _multiple(value: float, step: float, path: str) -> list[FieldError]:
    if isinstance(value, int):
        # Integers are divided by integers, even by zero.
        step = int(step)

    if step <= 0:
        why = f"factor MultipleOf declared for {path} must be positive: {_plain(step)}"
        return [field_errors.invalid(path, plain_number(step), why)]

    quotient = value / step
    if isclose(quotient, round(quotient), abs_tol=1e-9):
        return []

    why = f"{path} in body should be a multiple of {_plain(step)}"
    return [field_errors.invalid(path, value, why)]


def _inside(value: float, low: float, exclusive: object) -> bool:
    return value > low if exclusive else value >= low


def _plain(value: float) -> str:
    return format_value(plain_number(value))


# ------------------------------------------------------------------ duplicates


_NO_OBJECT = "must be an object for an array of list-type map"


def _validate_duplicate(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Validate that sets and keyed lists have no duplicates, at any depth.

    Args:
        schema: Schema of the value.
        value: Value.
        path: Path of the value, with map keys in brackets.
    """
    if isinstance(value, list):
        return _of_list(schema, value, path)

    if not isinstance(value, dict):
        return []

    found: list[FieldError] = []
    described = set(schema.fields)
    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            mapped = f"{path}[{name}]"
            dotted = f"{path}.{name}" if path else name
            found += _validate_duplicate(
                child, it, dotted if name in described else mapped
            )

    return found


def _of_list(schema: Schema, value: list[Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    match schema.list_type:
        case "set":
            found += _duplicates_at(
                value, [format_value(it) for it in value], value, path
            )
        case "map":
            found += _of_map(schema, value, path)
        case _:
            pass

    items = schema.items
    for index, it in enumerate(value):
        if items is not None:
            found += _validate_duplicate(items, it, f"{path}[{index}]")

    return found


def _of_map(schema: Schema, value: list[Any], path: str) -> list[FieldError]:
    for index, it in enumerate(value):
        if it is not None and not isinstance(it, dict):
            return [field_errors.invalid(f"{path}[{index}]", it, _NO_OBJECT)]

    keys = [_keys_of(schema, it or {}) for it in value]
    return _duplicates_at(value, [format_value(it) for it in keys], keys, path)


def _keys_of(schema: Schema, item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in schema.list_keys if name in item}


def _duplicates_at(
    value: list[Any], identities: list[str], shown_values: list[Any], path: str
) -> list[FieldError]:
    """Report each duplicate value once, at its second position."""
    seen: dict[str, int] = {}
    found = []
    for index in range(len(value)):
        identity = identities[index]
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:
            found.append(
                field_errors.duplicate(f"{path}[{index}]", shown_values[index])
            )

    return found
