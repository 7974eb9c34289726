"""Defaults: what an object says without its author having said it.

Custom resources get the `default:` of their schema. Built-in kinds get what their types
are given wherever they occur: a probe in a Pod is completed like one in the template of
a CronJob.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aioinformer_apiserver.schema import default_rules
from aioinformer_apiserver.schema.builtin import definition, go_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["with_defaults"]


def with_defaults(schema: Schema, body: dict[str, Any]) -> dict[str, Any]:
    """Complete an object; doing it twice is the same as doing it once.

    Left out are the requests of a Pod as a whole (`spec.resources`), which a real server
    adds up from those of its containers.

    Args:
        schema: Of the kind; built-in ones must come from `schema_of`.
        body: The object, as `conform` returns it; it is not changed.

    Returns:
        A new object; parts to which nothing is added may be shared with the old one.
    """
    if schema.name:
        return _filled(schema.name, body)

    found: dict[str, Any] = _with_schema_defaults(schema, body)
    return found


# ---------------------------------------------------------------- custom resources


def _with_schema_defaults(schema: Schema, value: Any) -> Any:
    """Complete a value; the defaults within a default count as well."""
    if value.__class__ is list and schema.items is not None:
        items = schema.items
        return [_with_schema_defaults(items, it) for it in value]

    if value.__class__ is not dict:
        return value

    found = dict(value)
    for name in schema.fields:
        child = schema.field(name)
        if child is None:
            continue

        if name not in found and child.default is not msgspec.UNSET:
            found[name] = deepcopy(child.default)

        if name in found:
            found[name] = _with_schema_defaults(child, found[name])

    values = schema.values
    if values is not None:
        for name in found.keys() - set(schema.fields):
            found[name] = _with_schema_defaults(values, found[name])

    return found


# ---------------------------------------------------------------- built-in kinds


class _Way(NamedTuple):
    """A field behind which something is completed."""

    name: str
    form: type | None
    """`list` or `dict` if the field holds many; None if it holds one."""

    target: str
    """The definition of what it holds."""


def _filled(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Complete an object of a definition: itself first, then what is in it."""
    constants, written, fresh, rule = _rules(name)
    found = {**constants, **value}
    for field in written:
        if found[field] is None or found[field] == "":
            found[field] = constants[field]

    for field, make in fresh:
        if field not in found:
            found[field] = make()

    if rule is not None:
        rule(found)

    for field, form, target in _ways(name):
        it = found.get(field)
        if it is None:
            continue

        if form is list:
            found[field] = [_filled(target, one) for one in it]
        elif form is dict:
            found[field] = {key: _filled(target, one) for key, one in it.items()}
        else:
            found[field] = _filled(target, it)

    return found


class _Rules(NamedTuple):
    constants: dict[str, Any]

    written: tuple[str, ...]
    """Those that are there even if missing, as null or as an empty text."""

    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    """What can be changed is made anew for each object."""

    rule: default_rules.Rule | None


@cache
def _rules(name: str) -> _Rules:
    short = ".".join(name.split(".")[-3:])
    values = {**_declared(name), **default_rules.CONSTANTS.get(short, {})}
    types = go_fields(name)
    changeable = {k: v for k, v in values.items() if isinstance(v, dict | list)}
    constants = {k: v for k, v in values.items() if k not in changeable}
    return _Rules(
        constants=constants,
        written=tuple(k for k in constants if types.get(k, "").endswith("!")),
        fresh=tuple((k, partial(deepcopy, v)) for k, v in changeable.items()),
        rule=default_rules.RULES.get(short),
    )


def _declared(name: str) -> dict[str, Any]:
    """Return the defaults that OpenAPI tells; an empty one only says what null means.

    Of a pointer it says more: that is never null.
    """
    schema, types, found = definition(name), go_fields(name), {}
    for field in schema.fields:
        child = schema.field(field)
        assert child is not None
        default = child.default
        pointer = types.get(field, "").rpartition("/")[2].startswith("*")
        if default not in (msgspec.UNSET, {}) and (default or pointer):
            found[field] = default

    return found


@cache
def _ways(name: str) -> tuple[_Way, ...]:
    """Return the fields that lead to a definition with rules, at any distance."""
    return tuple(
        way for way in _all_ways(name) if any(map(_acts, _reached(way.target)))
    )


def _acts(name: str) -> bool:
    return any(_rules(name))


@cache
def _reached(name: str) -> frozenset[str]:
    """Return a definition and those that it contains, at any distance."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        it = waiting.pop()
        if it not in found:
            found.add(it)
            waiting += [way.target for way in _all_ways(it)]

    return frozenset(found)


@cache
def _all_ways(name: str) -> tuple[_Way, ...]:
    schema, found = definition(name), []
    for field in schema.fields:
        child = schema.field(field)
        assert child is not None
        if child.name:
            found.append(_Way(field, None, child.name))
        elif child.items is not None and child.items.name:
            found.append(_Way(field, list, child.items.name))
        elif child.values is not None and child.values.name:
            found.append(_Way(field, dict, child.values.name))

    return tuple(found)
