"""Lists: whether a schema says rightly how a list is merged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.findings import invalid, not_supported, required

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["list_problems"]

_LIST_TYPE = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_MAP_TYPE = "x-kubernetes-map-type"
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def list_problems(path: str, text: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with the type and the keys of a list.

    Args:
        path: Of the schema in its definition.
        text: The schema, of a list or not.
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
        yield from _map(path, keys, items)
    elif given == "set":
        yield from _set(path, items)


def _map(path: str, keys: list[str], items: Mapping[str, Any]) -> Iterator[Problem]:
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
            yield from _key(place, properties[key], needed=needed)


def _key(path: str, text: Mapping[str, Any], *, needed: bool) -> Iterator[Problem]:
    if text.get("type") not in _SCALARS:
        why = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
        yield invalid(f"{path}.type", text.get("type") or "", why)
    elif not needed and "default" not in text:
        why = (
            f"this property is in {_KEYS}, so it must have a default or be a required "
        )
        yield required(f"{path}.default", f"{why}property")


def _set(path: str, items: Mapping[str, Any]) -> Iterator[Problem]:
    field = {"object": _MAP_TYPE, "array": _LIST_TYPE}.get(items.get("type") or "")
    if field is None or items.get(field) == "atomic":
        return

    # An array is atomic where nothing else is said, an object is not.
    if field == _MAP_TYPE or items.get(field) is not None:
        why = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        yield invalid(f"{path}.items.{field}", items.get(field), why)
