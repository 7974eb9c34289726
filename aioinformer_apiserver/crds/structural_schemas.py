"""Structural schemas: validation of the schema of a definition. Pure.

A structural schema specifies the type of every value outside of `anyOf`, `allOf`,
`oneOf` and `not`, which may only restrict it further.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors.field_errors import (
    NOWHERE,
    forbidden,
    invalid,
    not_supported,
    required,
)
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.decoding import decode
from aioinformer_apiserver.schema.schema_validation import validate_custom_resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = ["validate_structural_schema"]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_MAP_TYPE = "x-kubernetes-map-type"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTIONS = ("allOf", "anyOf", "oneOf")
_ANY_NUMBER_OR_TEXT = [{"type": "integer"}, {"type": "string"}]
_UNSUPPORTED = (
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
    "id",
)
# Keywords that a restriction must not have, and the error of the server.
_NOT_IN_RESTRICTIONS = {
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "title": "must be empty to be structural",
    "type": "must be empty to be structural",
    _EMBEDDED: "must be false to be structural",
    _INT_OR_STRING: "must be false to be structural",
    _PRESERVE: "must be undefined to be structural",
}


def validate_structural_schema(path: str, text: Mapping[str, Any]) -> list[FieldError]:
    """Validate the schema of one version.

    Args:
        path: Path of the schema in the definition.
        text: OpenAPI text of the schema.
    """
    found = [*_root_rules(path, text), *_validate_common_rules(path, text)]
    structural = [
        *_validate_root_type(path, text),
        *_validate_structure(path, text, _AT_ROOT),
    ]
    # A real server iterates maps in random order, and sorts the errors.
    found += sorted(structural, key=lambda it: f"{it.field}: {it.message}")
    return found or _validate_default(path, text)


# -------------------------------------------------------------------- rules for all
# schemas

_AT_ROOT, _AS_FIELD, _AS_ITEM = "at the root", "field", "item"


def _root_rules(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    if text.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")

    if text.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")


def _validate_common_rules(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the rules that hold for every schema, including nested ones."""
    if text.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes "
        yield forbidden(f"{path}.uniqueItems", f"{why}quadratic")

    if text.get("additionalProperties") is not None and text.get("properties"):
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", why)

    for field in _UNSUPPORTED:
        if text.get(field) is not None:
            yield forbidden(f"{path}.{field}", f"{field} is not supported")

    if text.get(_PRESERVE) is False:
        yield invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined")

    yield from _validate_map_type(path, text)
    yield from _validate_list(path, text)
    yield from _validate_pattern(path, text.get("pattern"))
    if isinstance(text.get("items"), list):
        why = "items must be a schema object and not an array"
        yield forbidden(f"{path}.items", why)

    for where, child in _children(path, text):
        yield from _validate_common_rules(where, child)


def _validate_map_type(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    given, kind = text.get(_MAP_TYPE), text.get("type") or ""
    if given is None:
        return

    if kind != "object":
        why = f"must be object if {_MAP_TYPE} is specified"
        yield invalid(f"{path}.type", kind, why)

    if given not in {"atomic", "granular"}:
        yield not_supported(f"{path}.{_MAP_TYPE}", given, ("atomic", "granular"))


def _validate_pattern(path: str, pattern: str | None) -> Iterator[FieldError]:
    try:
        re.compile(pattern or "")
    except re.error as exc:
        why = f"must be a valid regular expression, but isn't: {exc}"
        yield invalid(f"{path}.pattern", pattern, why)


def _children(
    path: str, text: Mapping[str, Any], *, junctions: bool = True
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, child in (text.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", child

    for field in ("items", "additionalProperties", "not"):
        if isinstance(text.get(field), dict) and (junctions or field != "not"):
            yield f"{path}.{field}", text[field]

    for field in _JUNCTIONS if junctions else ():
        for index, child in enumerate(text.get(field) or ()):
            yield f"{path}.{field}[{index}]", child


# -------------------------------------------------------------------- types


def _validate_root_type(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the types of `apiVersion`, `kind` and `metadata`."""
    properties = text.get("properties") or {}
    for name, expected in (
        ("apiVersion", "string"),
        ("kind", "string"),
        ("metadata", "object"),
    ):
        kind = (properties.get(name) or {}).get("type") or expected
        if kind != expected:
            where = f"{path}.properties[{name}].type"
            yield invalid(where, kind, f"must be {expected}")

    metadata = properties.get("metadata") or {}
    where = f"{path}.properties[metadata]"
    if "default" in metadata:
        yield forbidden(f"{where}.default", "must not be set in top-level metadata")

    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        why = (
            "must not specify anything other than name and generateName, but metadata "
        )
        yield forbidden(where, f"{why}is implicitly specified")


def _validate_structure(
    path: str, text: Mapping[str, Any], place: str
) -> Iterator[FieldError]:
    """Validate a schema and its children, without restrictions."""
    yield from _validate_type(path, text, place)
    if text.get("type") == "array" and text.get("items") is None:
        yield required(f"{path}.items", "must be specified")

    if text.get(_EMBEDDED):
        yield from _validate_embedded(path, text)

    for junction, child in _restrictions(path, text):
        yield from _validate_restriction(
            junction, child, exempt=_is_int_or_string_pattern(path, text, junction)
        )
        yield from _validate_declared_fields(path, text, junction, child)

    for where, child in _children(path, text, junctions=False):
        yield from _validate_structure(
            where, child, _AS_ITEM if where == f"{path}.items" else _AS_FIELD
        )


def _validate_type(
    path: str, text: Mapping[str, Any], place: str
) -> Iterator[FieldError]:
    kind = text.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
        return

    if place == _AT_ROOT and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")

    if kind or text.get(_INT_OR_STRING) or text.get(_PRESERVE):
        return

    why = {
        _AT_ROOT: "must not be empty at the root",
        _AS_FIELD: "must not be empty for specified object fields",
        _AS_ITEM: "must not be empty for specified array items",
    }[place]
    yield required(f"{path}.type", why)


def _validate_embedded(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    kind = text.get("type") or ""
    if kind != "object":
        why = f"must be object if {_EMBEDDED} is true"
        yield invalid(f"{path}.type", kind, why)

    if not text.get(_PRESERVE) and not text.get("properties"):
        why = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{path}.properties", why)


# -------------------------------------------------------------------- restrictions


def _restrictions(
    path: str, text: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in _JUNCTIONS:
        for index, child in enumerate(text.get(field) or ()):
            yield f"{path}.{field}[{index}]", child

    if isinstance(text.get("not"), dict):
        yield f"{path}.not", text["not"]


def _validate_restriction(
    path: str, text: Mapping[str, Any], *, exempt: bool = False
) -> Iterator[FieldError]:
    """Validate that a restriction has no structural keywords."""
    for field, why in _NOT_IN_RESTRICTIONS.items():
        if text.get(field) not in (None, "", False) and not (
            exempt and field == "type"
        ):
            yield forbidden(f"{path}.{field}", why)

    first = path.endswith(".allOf[0]") and exempt
    for where, child in _children(path, text):
        yield from _validate_restriction(
            where, child, exempt=first and ".anyOf[" in where
        )


def _is_int_or_string_pattern(
    path: str, text: Mapping[str, Any], junction: str
) -> bool:
    """Return whether a restriction belongs to the one pattern that may name types.

    This is `anyOf` an integer or a string, beside `x-kubernetes-int-or-string` or in
    its first `allOf`.
    """
    if not text.get(_INT_OR_STRING):
        return False

    first = (text.get("allOf") or [{}])[0].get("anyOf")
    if junction == f"{path}.allOf[0]":
        return bool(first == _ANY_NUMBER_OR_TEXT)

    given = text.get("anyOf")
    return junction.startswith(f"{path}.anyOf[") and given == _ANY_NUMBER_OR_TEXT


def _validate_declared_fields(
    path: str, text: Mapping[str, Any], junction: str, restriction: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Find fields that a restriction specifies, but the structure does not."""
    if text.get(_PRESERVE) or isinstance(text.get("additionalProperties"), dict):
        return

    described = text.get("properties") or {}
    for name in restriction.get("properties") or {}:
        if described and name not in described:
            why = f"because it is defined in {junction}.properties[{name}]"
            yield required(f"{path}.properties[{name}]", why)


# ------------------------------------------------------------------ lists


_LIST_TYPE = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def _validate_list(path: str, text: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the type and keys of a list.

    Args:
        path: Path of the schema in the definition.
        text: OpenAPI text of the schema, of a list or not.
    """
    given, kind = text.get(_LIST_TYPE), text.get("type") or ""
    if given is not None and kind != "array":
        why = f"must be array if {_LIST_TYPE} is specified"
        yield invalid(f"{path}.type", kind, why)
    elif given not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.{_LIST_TYPE}", given, ("atomic", "set", "map"))

    keys = text.get(_KEYS) or []
    if keys and given != "map":
        why = f"must be map if {_KEYS} is non-empty"
        where = f"{path}.{_LIST_TYPE}"
        yield required(where, why) if given is None else invalid(where, given, why)

    items = text.get("items")
    items = items if isinstance(items, dict) else {}
    if given == "map":
        yield from _validate_keyed_list(path, keys, items)
    elif given == "set":
        yield from _validate_set(path, items)


def _validate_keyed_list(
    path: str, keys: list[str], items: Mapping[str, Any]
) -> Iterator[FieldError]:
    where = f"{path}.{_KEYS}"
    if not keys:
        yield required(where, f"must not be empty if {_LIST_TYPE} is map")
        return

    kind = items.get("type") or ""
    if kind != "object":
        why = f"must be object if parent array's {_LIST_TYPE} is map"
        yield invalid(f"{path}.items.type", kind, why)
        return

    properties = items.get("properties") or {}
    if not set(keys) <= set(properties):
        yield invalid(where, keys, "entries must all be names of item properties")

    if len(set(keys)) < len(keys):
        yield invalid(where, keys, "must not contain duplicate entries")

    for key in dict.fromkeys(keys):
        if key in properties:
            place = f"{path}.items.properties[{key}]"
            needed = key in (items.get("required") or ())
            yield from _validate_key(place, properties[key], needed=needed)


def _validate_key(
    path: str, text: Mapping[str, Any], *, needed: bool
) -> Iterator[FieldError]:
    if text.get("type") not in _SCALARS:
        why = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
        yield invalid(f"{path}.type", text.get("type") or "", why)
    elif not needed and "default" not in text:
        why = (
            f"this property is in {_KEYS}, so it must have a default or be a required "
        )
        yield required(f"{path}.default", f"{why}property")


def _validate_set(path: str, items: Mapping[str, Any]) -> Iterator[FieldError]:
    field = {"object": _MAP_TYPE, "array": _LIST_TYPE}.get(items.get("type") or "")
    if field is None or items.get(field) == "atomic":
        return

    # Arrays are atomic by default, objects are not.
    if field == _MAP_TYPE or items.get(field) is not None:
        why = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        yield invalid(f"{path}.items.{field}", items.get(field), why)


# ------------------------------------------------------------------ defaults


def _validate_default(path: str, text: Mapping[str, Any]) -> list[FieldError]:
    """Validate the defaults in a structural schema.

    Args:
        path: Path of the schema in the definition.
        text: OpenAPI text of the schema.
    """
    return [
        problem
        for where, schema in _with_default(path, text)
        for problem in _validate_default_value(f"{where}.default", schema)
    ]


def _with_default(
    path: str, text: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if text.get("default") is not None:
        yield path, text

    for name, child in (text.get("properties") or {}).items():
        yield from _with_default(f"{path}.properties[{name}]", child)

    for field in ("items", "additionalProperties"):
        if isinstance(text.get(field), dict):
            yield from _with_default(f"{path}.{field}", text[field])


def _validate_default_value(path: str, text: Mapping[str, Any]) -> list[FieldError]:
    """Validate one default as the field of an object."""
    default = text["default"]
    body = {"value": default}
    schema = Schema({"type": "object", "properties": {"value": text}})
    if decode(schema, body, custom=True).body != body:
        return [invalid(path, default, "must not have unknown fields")]

    found = validate_custom_resource(Schema(text), default)
    return [replace(it, field=_join_path(path, it.field)) for it in found]


def _join_path(path: str, field: str) -> str:
    if field in {"", NOWHERE}:
        return path

    return f"{path}{field}" if field.startswith("[") else f"{path}.{field}"
