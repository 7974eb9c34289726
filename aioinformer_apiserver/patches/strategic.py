"""Strategic merge patch: a merge patch that knows which lists are really maps. Pure.

Objects merge as in a JSON merge patch. What a list does is said by its schema: it is
replaced, its values are united, or its items are matched by one of their fields. A patch
may hold directives besides:

    $patch: delete | replace                in an object or in an item of a list
    $retainKeys: [...]                      only these fields of the object stay
    $deleteFromPrimitiveList/NAME: [...]    these values leave the list NAME
    $setElementOrder/NAME: [...]            the list NAME gets this order
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import go_text, go_type
from aioinformer_apiserver.patches.element_order import (
    checked_order,
    ordered,
    without_marked,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["strategic_merge_patch"]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PREFIX = "$deleteFromPrimitiveList"
_ORDER_PREFIX = "$setElementOrder"


def strategic_merge_patch(
    schema: Schema | None, body: Mapping[str, Any], patch: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply a patch.

    Args:
        schema: Of the kind; None merges objects and replaces lists.
        body: What is changed; not touched itself.
        patch: The change.

    Raises:
        ApiError: 400 or 500 if a directive is malformed, or an item lacks the field
            that its list is merged by. The codes are those of a real server.
    """
    return _merged_map(schema, body, patch)


def _merged_map(
    schema: Schema | None, old: Mapping[str, Any], patch: Mapping[str, Any]
) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _directed_map(patch)

    new, change = dict(old), dict(patch)
    _retain(new, change)
    for field in [it for it in change if it.startswith(_ORDER_PREFIX)]:
        _set_order(schema, new, change, field)

    for field, value in change.items():
        if field.startswith(_DELETE_PREFIX):
            _delete_values(new, field, value)
        elif value is None:
            new.pop(field, None)
        else:
            _merge_field(schema, new, field, value)

    return new


def _merge_field(
    schema: Schema | None, new: dict[str, Any], field: str, value: Any
) -> None:
    old = new.get(field)
    child = schema.field(field) if schema is not None else None
    if old is None:
        kept, keep = _without_directives(value)
        if keep:
            new[field] = kept
    elif isinstance(old, dict) and isinstance(value, dict):
        replaces = child is not None and "replace" in child.patch_strategies
        new[field] = value if replaces else _merged_map(child, old, value)
    elif isinstance(old, list) and isinstance(value, list):
        new[field] = _merged_list(child, old, value)
    else:
        new[field] = value


def _directed_map(patch: Mapping[str, Any]) -> dict[str, Any]:
    if patch[_DIRECTIVE] == "delete":
        return {}

    if patch[_DIRECTIVE] == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}

    raise _bad_directive(patch)


def _without_directives(value: Any) -> tuple[Any, bool]:
    """Drop what carries a directive from a value that is new; says if any is left."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False

        kept = ((key, _without_directives(it)) for key, it in value.items())
        return {key: it for key, (it, keep) in kept if keep}, True

    if isinstance(value, list):
        items = (_without_directives(it) for it in value)
        return [it for it, keep in items if keep], True

    return value, True


# ---------------------------------------------------------------- directives of an object


def _retain(new: dict[str, Any], change: dict[str, Any]) -> None:
    """Obey `$retainKeys`, and take it out of the change."""
    if _RETAIN not in change:
        return

    kept = change.pop(_RETAIN)
    directives = (_DELETE_PREFIX, _ORDER_PREFIX)
    given = [
        key
        for key, value in change.items()
        if value is not None and not key.startswith(directives)
    ]
    if not isinstance(kept, list) or any(key not in kept for key in given):
        raise statuses.bad_request("invalid patch format of retainKeys")

    for key in [key for key in new if key not in kept]:
        del new[key]


def _delete_values(new: dict[str, Any], directive: str, values: Any) -> None:
    """Obey `$deleteFromPrimitiveList/NAME`."""
    field = _named(directive, "invalid patch format of primitive list")
    if isinstance(values, list) and isinstance(new.get(field), list):
        new[field] = [value for value in new[field] if value not in values]


def _set_order(
    schema: Schema | None, new: dict[str, Any], change: dict[str, Any], directive: str
) -> None:
    """Obey `$setElementOrder/NAME`; takes it, and the list, out of the change."""
    wanted = change.pop(directive)
    field = _named(directive, "invalid patch format of setElementOrder list")
    if not isinstance(wanted, list):
        raise _unexpected(wanted)

    child = schema.field(field) if schema is not None else None
    if schema is not None and child is None:
        why = f'unable to find api field in struct for the json field "{field}"'
        raise _broken(why)

    key = child.patch_key if child is not None else ""
    old, given = new.get(field) or [], change.pop(field, None) or []
    if not isinstance(given, list):
        raise _unexpected(given)

    checked_order(given, wanted, key)
    if not old and not given:
        return

    merged = _merged_list(child, old, given) if old else without_marked(given)
    new[field] = ordered(merged, wanted, old, key)


def _named(directive: str, problem: str) -> str:
    prefix, slash, field = directive.partition("/")
    if not slash or prefix not in {_DELETE_PREFIX, _ORDER_PREFIX}:
        raise statuses.bad_request(problem)

    return field


# ---------------------------------------------------------------- lists


def _merged_list(schema: Schema | None, old: list[Any], patch: list[Any]) -> list[Any]:
    if schema is None or "merge" not in schema.patch_strategies:
        return patch

    if not old and not patch:
        return old

    if len({go_type(item) for item in (*old, *patch)}) > 1:
        found = f"[{go_text(old)} {go_text(patch)}]"
        raise _broken(f"list element types are not identical: {found}")

    if not isinstance((old or patch)[0], dict):
        united = list(dict.fromkeys([*old, *patch]))
        return ordered(united, patch, old, "")

    return _merged_items(schema, old, patch)


def _merged_items(schema: Schema, old: list[Any], patch: list[Any]) -> list[Any]:
    """Merge items that the field `patch_key` tells apart."""
    key = schema.patch_key
    new, changes = _directed_items(old, patch, key)
    before = list(new)
    for change in changes:
        if key not in change:
            raise _no_merge_key(change, key)

        at = next((i for i, it in enumerate(new) if it.get(key) == change[key]), None)
        if at is None:
            new.append(change)
        else:
            new[at] = _merged_map(schema.items, new[at], change)

    return ordered(new, changes, before, key)


def _directed_items(
    old: list[Any], patch: list[Any], key: str
) -> tuple[list[Any], list[Any]]:
    """Obey the items that only say what to do; returns what is left of both lists."""
    new, changes, replaces = list(old), [], False
    for change in patch:
        match change.get(_DIRECTIVE):
            case None:
                changes.append(change)
            case "delete":
                if key not in change:
                    raise _no_merge_key(change, key)

                new = [it for it in new if it.get(key) != change[key]]
            case "replace":
                replaces = True
            case "merge":
                raise _broken("merging lists cannot yet be specified in the patch")
            case _:
                raise _bad_directive(change)

    return (changes, []) if replaces else (new, changes)


# ---------------------------------------------------------------- what may go wrong


def _bad_directive(patch: Mapping[str, Any]) -> ApiError:
    found = patch[_DIRECTIVE]
    text = (
        found if isinstance(found, str) else f"%!s({go_type(found)}={go_text(found)})"
    )
    return _broken(f"unknown patch type: {text} in map: {go_text(patch)}")


def _no_merge_key(item: Mapping[str, Any], key: str) -> ApiError:
    return _broken(f"map: {go_text(item)} does not contain declared merge key: {key}")


def _unexpected(value: object) -> ApiError:
    return _broken(f"expected a []interface {{}}, but received a {go_type(value)}")


def _broken(message: str) -> ApiError:
    # A real server does not know these errors for the client's, and says 500.
    return statuses.failure(500, "", message)
