"""Checks: whether an object is as its schema says, and what is said if it is not.

This is the whole of structural OpenAPI, as a real server applies it to custom resources.
Rules in CEL (`x-kubernetes-validations`) are not evaluated; they are ignored. Built-in
kinds are not checked by their schemas, which describe them only roughly, but by
`aioinformer_apiserver.schema.builtin_checks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import findings, keywords
from aioinformer_apiserver.schema.findings import NOWHERE, shown
from aioinformer_apiserver.schema.list_checks import doubles

if TYPE_CHECKING:
    from aioinformer_apiserver.errors.field_errors import Problem
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["problems_of"]

# No old value, which is not the same as null.
_ABSENT = object()


def problems_of(
    schema: Schema, body: dict[str, Any], old: dict[str, Any] | None = None
) -> list[Problem]:
    """Find what is wrong with a custom resource.

    Args:
        schema: Of the kind.
        body: The object, with its defaults.
        old: As it is stored, if this is an update: what was wrong before, and is not
            changed, is let through, so that a schema may become stricter.

    Returns:
        The problems in the words of a real server; those of one object are told in the
        order of its fields, where the real one has no certain order.
    """
    found = _check(schema, body, "", _ABSENT if old is None else old).problems
    found += _embedded_problems(schema, body, "")
    if old is None or not doubles(schema, old, ""):
        found += doubles(schema, body, "")

    return found


@dataclass(slots=True)
class _Result:
    """What was found, and how much fitted: the best of several failures is told."""

    problems: list[Problem] = field(default_factory=list)
    fitting: int = 0

    def add(self, other: _Result) -> None:
        self.problems += other.problems
        self.fitting += other.fitting


def _check(schema: Schema, value: Any, path: str, old: Any) -> _Result:
    """Check a value and what is in it, in the order in which the real server does."""
    result = _Result(keywords.type_(schema, value, path))
    if value is not None:
        result.add(_combinations(schema, value, path, old))

    if isinstance(value, str):
        result.problems += keywords.text(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result.problems += keywords.number(schema, value, path)
    elif isinstance(value, list):
        result.add(_items(schema, value, path, old))
        result.problems += keywords.size(schema, value, path)

    result.problems += keywords.enum(schema, value, path)
    if isinstance(value, dict):
        result.problems += keywords.size(schema, value, path)
        result.add(_fields(schema, value, path, old))

    if result.problems and old is not _ABSENT and _same(old, value):
        return _Result(fitting=result.fitting)

    result.fitting += not result.problems
    return result


def _same(one: Any, other: Any) -> bool:
    return shown(one) == shown(other)


# ---------------------------------------------------------------- what is in it


def _items(schema: Schema, value: list[Any], path: str, old: Any) -> _Result:
    result, items = _Result(), schema.items
    if items is None:
        return result

    before = _by_key(schema, old)
    for index, it in enumerate(value):
        key = _key_of(schema, it)
        past = before.get(key, _ABSENT) if key else _ABSENT
        result.add(_check(items, it, f"{path}[{index}]", past))

    return result


def _by_key(schema: Schema, old: Any) -> dict[str, Any]:
    """Tell the items of an old list apart; only lists of type map allow that."""
    if not isinstance(old, list) or schema.list_type != "map":
        return {}

    return {_key_of(schema, it): it for it in old}


def _key_of(schema: Schema, item: Any) -> str:
    if schema.list_type != "map" or not isinstance(item, dict):
        return ""

    return shown([item.get(name) for name in schema.list_keys])


def _fields(schema: Schema, value: dict[str, Any], path: str, old: Any) -> _Result:
    result = _Result()
    before = old if isinstance(old, dict) else {}
    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            where = f"{path}.{name}" if path else name
            result.add(_check(child, it, where, before.get(name, _ABSENT)))

    result.problems += [
        findings.required(f"{path}.{name}".lstrip("."))
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
            tried = [_check(schema.beside(it), value, path, old) for it in texts]
            result.add(combine(tried, path))

    text = schema.text.get("not")
    if text is not None and not _check(schema.beside(text), value, path, old).problems:
        result.add(_told(path, "must not validate the schema (not)"))

    return result


def _is_int_or_string(schema: Schema) -> bool:
    """The alternatives then only say again what the type is."""
    return bool(schema.text.get("x-kubernetes-int-or-string"))


def _any_of(tried: list[_Result], path: str) -> _Result:
    fitting = [it for it in tried if not it.problems]
    if fitting:
        return fitting[0]

    result = _told(path, "must validate at least one schema (anyOf)")
    result.add(_best(tried))
    return result


def _one_of(tried: list[_Result], path: str) -> _Result:
    fitting = [it for it in tried if not it.problems]
    if len(fitting) == 1:
        return fitting[0]

    how = f"Found {len(fitting)} valid alternatives" if fitting else "Found none valid"
    result = _told(path, f"must validate one and only one schema (oneOf). {how}")
    if not fitting:
        result.add(_best(tried))

    return result


def _all_of(tried: list[_Result], path: str) -> _Result:
    result = _Result()
    for it in tried:
        result.add(it)

    if result.problems:
        none = ". None validated" if all(it.problems for it in tried) else ""
        result.add(_told(path, f"must validate all the schemas (allOf){none}"))

    return result


def _best(tried: list[_Result]) -> _Result:
    return max(tried, key=lambda it: it.fitting)


def _told(path: str, why: str) -> _Result:
    return _Result([findings.invalid(NOWHERE, "", f'"{path}" {why}')])


# ---------------------------------------------------------------- embedded objects


def _embedded_problems(schema: Schema, value: Any, path: str) -> list[Problem]:
    """Check that objects within the object say what they are."""
    if isinstance(value, list):
        items = schema.items
        return [
            it
            for index, one in enumerate(value)
            if items is not None
            for it in _embedded_problems(items, one, f"{path}[{index}]")
        ]

    if not isinstance(value, dict):
        return []

    found = []
    if schema.embedded:
        for name in ("apiVersion", "kind"):
            if name not in value:
                found.append(findings.required(f"{path}.{name}"))
            elif not value[name]:
                where = f"{path}.{name}"
                found.append(findings.invalid(where, "", "must not be empty"))

    for name, it in value.items():
        child = schema.field(name)
        if child is not None:
            found += _embedded_problems(child, it, f"{path}.{name}".lstrip("."))

    return found
