"""Strategic merge patch: a merge patch that merges lists by their schema. Pure.

Objects merge as in a JSON merge patch. Lists are replaced, united, or merged item by
item, as their schema says. A patch may have directives:

    $patch: delete | replace                in an object or in an item of a list
    $retainKeys: [...]                      only these fields of the object stay
    $deleteFromPrimitiveList/NAME: [...]    removes these values from the list NAME
    $setElementOrder/NAME: [...]            orders the list NAME

In an ordered list, items of the patch come in the order of the patch. Items that only
the server has keep their order, and come as early as their old position allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import go_text, go_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = [
    "check_element_order",
    "order_items",
    "strategic_merge_patch",
    "without_directive_items",
]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PREFIX = "$deleteFromPrimitiveList"
_ORDER_PREFIX = "$setElementOrder"


def strategic_merge_patch(
    schema: Schema | None, body: Mapping[str, Any], patch: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply a patch.

    Args:
        schema: Schema of the kind; None merges objects and replaces lists.
        body: Body to patch; not changed.
        patch: Decoded patch.

    Raises:
        ApiError: 400 or 500 if a directive is malformed, or if an item lacks the merge
            key of its list. These are the codes of a real server.
    """
    return _merge_map(schema, body, patch)


def _merge_map(
    schema: Schema | None, old: Mapping[str, Any], patch: Mapping[str, Any]
) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _apply_map_directive(patch)

    new, change = dict(old), dict(patch)
    _apply_retain_keys(new, change)
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
        new[field] = value if replaces else _merge_map(child, old, value)
    elif isinstance(old, list) and isinstance(value, list):
        new[field] = _merge_list(child, old, value)
    else:
        new[field] = value


def _apply_map_directive(patch: Mapping[str, Any]) -> dict[str, Any]:
    if patch[_DIRECTIVE] == "delete":
        return {}

    if patch[_DIRECTIVE] == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}

    raise _bad_directive(patch)


def _without_directives(value: Any) -> tuple[Any, bool]:
    """Drop new values with directives; also return whether a value is left."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False

        kept = ((key, _without_directives(it)) for key, it in value.items())
        return {key: it for key, (it, keep) in kept if keep}, True

    if isinstance(value, list):
        items = (_without_directives(it) for it in value)
        return [it for it, keep in items if keep], True

    return value, True


# ---------------------------------------------------------------- directives of an
# object


def _apply_retain_keys(new: dict[str, Any], change: dict[str, Any]) -> None:
    """Apply `$retainKeys`, and remove it from the change."""
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
    """Apply `$deleteFromPrimitiveList/NAME`."""
    field = _directive_field(directive, "invalid patch format of primitive list")
    if isinstance(values, list) and isinstance(new.get(field), list):
        new[field] = [value for value in new[field] if value not in values]


def _set_order(
    schema: Schema | None, new: dict[str, Any], change: dict[str, Any], directive: str
) -> None:
    """Apply `$setElementOrder/NAME`; remove it and its list from the change."""
    element_order = change.pop(directive)
    field = _directive_field(directive, "invalid patch format of setElementOrder list")
    if not isinstance(element_order, list):
        raise _unexpected_type(element_order)

    child = schema.field(field) if schema is not None else None
    if schema is not None and child is None:
        why = f'unable to find api field in struct for the json field "{field}"'
        raise _server_error(why)

    key = child.patch_key if child is not None else ""
    old, given = new.get(field) or [], change.pop(field, None) or []
    if not isinstance(given, list):
        raise _unexpected_type(given)

    check_element_order(given, element_order, key)
    if not old and not given:
        return

    merged = _merge_list(child, old, given) if old else without_directive_items(given)
    new[field] = order_items(merged, element_order, old, key)


def _directive_field(directive: str, problem: str) -> str:
    prefix, slash, field = directive.partition("/")
    if not slash or prefix not in {_DELETE_PREFIX, _ORDER_PREFIX}:
        raise statuses.bad_request(problem)

    return field


# ---------------------------------------------------------------- lists


def _merge_list(schema: Schema | None, old: list[Any], patch: list[Any]) -> list[Any]:
    if schema is None or "merge" not in schema.patch_strategies:
        return patch

    if not old and not patch:
        return old

    if len({go_type(item) for item in (*old, *patch)}) > 1:
        found = f"[{go_text(old)} {go_text(patch)}]"
        raise _server_error(f"list element types are not identical: {found}")

    if not isinstance((old or patch)[0], dict):
        united = list(dict.fromkeys([*old, *patch]))
        return order_items(united, patch, old, "")

    return _merge_items(schema, old, patch)


def _merge_items(schema: Schema, old: list[Any], patch: list[Any]) -> list[Any]:
    """Merge items by their merge key."""
    key = schema.patch_key
    new, changes = _apply_item_directives(old, patch, key)
    before = list(new)
    for change in changes:
        if key not in change:
            raise _no_merge_key(change, key)

        at = next((i for i, it in enumerate(new) if it.get(key) == change[key]), None)
        if at is None:
            new.append(change)
        else:
            new[at] = _merge_map(schema.items, new[at], change)

    return order_items(new, changes, before, key)


def _apply_item_directives(
    old: list[Any], patch: list[Any], key: str
) -> tuple[list[Any], list[Any]]:
    """Apply items with directives; return the rest of both lists."""
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
                raise _server_error(
                    "merging lists cannot yet be specified in the patch"
                )
            case _:
                raise _bad_directive(change)

    return (changes, []) if replaces else (new, changes)


# ---------------------------------------------------------------- errors


def _bad_directive(patch: Mapping[str, Any]) -> ApiError:
    found = patch[_DIRECTIVE]
    text = (
        found if isinstance(found, str) else f"%!s({go_type(found)}={go_text(found)})"
    )
    return _server_error(f"unknown patch type: {text} in map: {go_text(patch)}")


def _no_merge_key(item: Mapping[str, Any], key: str) -> ApiError:
    return _server_error(
        f"map: {go_text(item)} does not contain declared merge key: {key}"
    )


def _unexpected_type(value: object) -> ApiError:
    return _server_error(
        f"expected a []interface {{}}, but received a {go_type(value)}"
    )


def _server_error(message: str) -> ApiError:
    # A real server does not recognize these as client errors.
    return statuses.failure(500, "", message)


# ------------------------------------------------------------------ order


def order_items(
    items: Sequence[Any], element_order: Sequence[Any], old: Sequence[Any], key: str
) -> list[Any]:
    """Order the items of a merged list.

    Args:
        items: Merged list.
        wanted: Order of the patch, as values or as items with the key.
        old: List before the patch.
        key: Merge key of the items; empty for plain values.
    """
    ranks, places = _positions(element_order, key), _positions(old, key)
    named = [it for it in items if _identity(it, key) in ranks]
    others = [it for it in items if _identity(it, key) not in ranks]
    named.sort(key=lambda it: ranks[_identity(it, key)])
    others.sort(key=lambda it: places.get(_identity(it, key), len(places)))
    return _merge_ordered(others, named, places, key)


def check_element_order(
    given: Sequence[Any], element_order: Sequence[Any], key: str
) -> None:
    """Check that the items of a patch have the order that it requests.

    Args:
        given: Items of the patch.
        wanted: Order of the patch.
        key: Merge key of the items; empty for plain values.

    Raises:
        ApiError: 500 if an item is missing in the order or out of order.
    """
    if not given or not element_order:
        return

    ranks = iter([_identity(it, key) for it in element_order])
    # Each lookup consumes the iterator, so the order is checked, too.
    if not all(_identity(it, key) in ranks for it in without_directive_items(given)):
        message = f"The order in patch list:\n{go_text(list(given))}\n doesn't match "
        message += f"$setElementOrder list:\n{go_text(list(element_order))}\n"
        raise statuses.failure(500, "", message)


def without_directive_items(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list that have no directive."""
    return [it for it in items if not (isinstance(it, dict) and "$patch" in it)]


def _merge_ordered(
    others: list[Any], named: list[Any], places: dict[str, int], key: str
) -> list[Any]:
    """Merge two ordered lists, by the old positions of their items."""
    result: list[Any] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        here = places.get(_identity(others[left], key))
        there = places.get(_identity(named[right], key))
        if here is not None and there is not None and here < there:
            result.append(others[left])
            left += 1
        else:
            result.append(named[right])
            right += 1

    return [*result, *others[left:], *named[right:]]


def _positions(items: Sequence[Any], key: str) -> dict[str, int]:
    """Return the first index of each item."""
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        places.setdefault(_identity(item, key), place)

    return places


def _identity(item: Any, key: str) -> str:
    """Return a hashable identity of an item."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return f"{type(value).__name__}:{go_text(value)}"
