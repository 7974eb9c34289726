"""Structured merge diff: typed objects validated, compared, merged and pruned.

Kubernetes has it in a library of this name. Pure, over bodies, schemas and field sets.
Comparing skips equal values, so its cost is proportional to the differences.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer import json_codec
from aioinformer_apiserver.errors.go_format import go_text, go_type
from aioinformer_apiserver.patches.field_sets import (
    SELF,
    FieldSet,
    element_text,
    field_element,
    is_member,
)
from aioinformer_apiserver.patches.ownership import (
    Granularity,
    field_schema,
    granularity_of,
    is_declared,
    is_json_equal,
    list_element_of,
    with_named_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioinformer_apiserver.patches.field_sets import Tree
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = [
    "Comparison",
    "apply_errors",
    "compare",
    "field_set_of",
    "merge_applied",
    "merge_order",
    "prune_dropped",
    "remove_items",
]


# ------------------------------------------------------------------ field sets of
# bodies


def field_set_of(schema: Schema, body: Mapping[str, Any]) -> FieldSet:
    """Return the fields that an applier of a body owns.

    It owns the fields in the body. Unlike in a comparison it owns no containers, except
    for those that the schema does not declare.

    Args:
        schema: Schema of whole objects.
        body: Object or a part of it.

    Raises:
        ValueError: If list items have no identity.
    """
    return FieldSet(_map_tree(schema, body))


def remove_items(
    schema: Schema, body: Mapping[str, Any], fields: FieldSet
) -> dict[str, Any]:
    """Return a body without some of its fields and everything below them.

    A map or list that becomes empty becomes null, unless it is removed itself.

    Args:
        schema: Schema of whole objects.
        body: Object; not changed.
        fields: Fields to remove; they may be missing.
    """
    return _map_without(schema, body, fields.tree) or {}


def _map_tree(schema: Schema | None, body: Mapping[str, Any]) -> Tree:
    found: Tree = {}
    for name, value in body.items():
        node = _value_tree(field_schema(schema, name), value)
        if node is None and not is_declared(schema, name):
            node = {}

        if node is not None:
            own = bool(node) and not is_declared(schema, name)
            found[field_element(name)] = {SELF: {}, **node} if own else node

    return found


def _value_tree(schema: Schema | None, value: Any) -> Tree | None:
    """Return the node of a declared field; None if it has nothing to own.

    An empty object can be owned, an empty list cannot.
    """
    match granularity_of(schema, value):
        case Granularity.MAP:
            return _map_tree(schema, value) or (None if value else {})
        case Granularity.LIST:
            assert schema is not None
            return _list_tree(schema, value) or None
        case Granularity.LEAF:
            return {}


def _list_tree(schema: Schema, items: list[Any]) -> Tree:
    """Return the items as members; items of one key are owned as a whole."""
    elements = [list_element_of(schema, item) for item in items]
    counts = Counter(elements)
    found: Tree = {}
    for element, item in zip(elements, items, strict=True):
        below = _value_tree(schema.items, item) if counts[element] == 1 else None
        found[element] = {SELF: {}, **below} if below else {}

    return found


def _map_without(
    schema: Schema | None, body: Mapping[str, Any], tree: Tree
) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, value in body.items():
        node = tree.get(field_element(name))
        if node is None:
            found[name] = value
        elif not is_member(node):
            found[name] = _value_without(field_schema(schema, name), value, node)

    return found or None


def _value_without(schema: Schema | None, value: Any, tree: Tree) -> Any:
    match granularity_of(schema, value):
        case Granularity.MAP:
            return _map_without(schema, value, tree)
        case Granularity.LIST:
            assert schema is not None
            return _list_without(schema, value, tree)
        case Granularity.LEAF:
            return None if isinstance(value, (dict, list)) else value


def _list_without(schema: Schema, items: list[Any], tree: Tree) -> list[Any] | None:
    found: list[Any] = []
    for item in items:
        node = tree.get(list_element_of(schema, item))
        if node is None:
            found.append(item)
        elif not is_member(node):
            found.append(_value_without(schema.items, item, node))

    return found or None


# ------------------------------------------------------------------ comparisons


@dataclass(frozen=True)
class Comparison:
    """Differences between two states of an object.

    Attributes:
        removed: Fields that only the old state has, including containers.
        modified: Fields of both states, with different values.
        added: Fields that only the new state has, including containers.
    """

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    @cached_property
    def gained(self) -> FieldSet:
        """Fields that the new state has added or modified."""
        return self.modified | self.added

    def outside(self, fields: FieldSet) -> Comparison:
        """Return the comparison without some fields and everything below them."""
        if not fields:
            return self

        return Comparison(
            self.removed.outside(fields),
            self.modified.outside(fields),
            self.added.outside(fields),
        )


class _Change(NamedTuple):
    """Differences at and below one path; None without differences."""

    removed: Tree | None = None
    modified: Tree | None = None
    added: Tree | None = None


_MODIFIED = _Change(modified={})


def compare(
    schema: Schema, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Comparison:
    """Compare two states of an object.

    Args:
        schema: Schema of whole objects.
        old: Old state.
        new: New state.

    Raises:
        ValueError: If list items have no identity.
    """
    change = _compare_maps(schema, old, new)
    return Comparison(*(FieldSet(tree or {}) for tree in change))


def _compare_values(schema: Schema | None, old: Any, new: Any) -> _Change:
    """Compare two different values."""
    before, after = granularity_of(schema, old), granularity_of(schema, new)
    if not (old or new) or before is after is Granularity.LEAF:
        return _MODIFIED

    if Granularity.LIST not in {before, after} and _is_map(old, before, new, after):
        return _compare_maps(schema, old or {}, new or {})

    if Granularity.MAP not in {before, after} and _is_list(old, before, new, after):
        assert schema is not None
        return _compare_lists(schema, old or [], new or [])

    # The type has changed: everything below is removed or added.
    return _Change(
        _tree_below(schema, old) or None, {}, _tree_below(schema, new) or None
    )


def _is_map(old: Any, before: Granularity, new: Any, after: Granularity) -> bool:
    """Return whether both values are owned by field; null counts as empty."""
    return (before is Granularity.MAP or old is None) and (
        after is Granularity.MAP or new is None
    )


def _is_list(old: Any, before: Granularity, new: Any, after: Granularity) -> bool:
    """Return whether both values are owned by item; null counts as empty."""
    return (before is Granularity.LIST or old is None) and (
        after is Granularity.LIST or new is None
    )


def _compare_maps(
    schema: Schema | None, old: Mapping[str, Any], new: Mapping[str, Any]
) -> _Change:
    change = _Change({}, {}, {})
    for name, value in old.items():
        element = field_element(name)
        if name not in new:
            _put_change(
                change,
                element,
                _Change(removed=_tree_of_new(field_schema(schema, name), value)),
            )
        elif not is_json_equal(value, new[name]):
            child = field_schema(schema, name)
            _put_change(change, element, _compare_values(child, value, new[name]))

    for name, value in new.items():
        if name not in old:
            whole = _tree_of_new(field_schema(schema, name), value)
            _put_change(change, field_element(name), _Change(added=whole))

    return _without_empty(change)


def _compare_lists(schema: Schema, old: Sequence[Any], new: Sequence[Any]) -> _Change:
    change = _Change({}, {}, {})
    before, after = _by_element(schema, old), _by_element(schema, new)
    for element in {**before, **after}:
        was, now = before.get(element, ()), after.get(element, ())
        _put_change(change, element, _compare_items(schema, was, now))

    return _without_empty(change)


def _compare_items(schema: Schema, old: Sequence[Any], new: Sequence[Any]) -> _Change:
    """Compare the items of one key; several are owned as a whole."""
    if len(old) == len(new) and all(map(is_json_equal, old, new)):
        return _Change()

    if len(old) > 1 and len(new) > 1:
        return _MODIFIED

    if len(old) == len(new) == 1:
        return _compare_values(schema.items, old[0], new[0])

    return _Change(
        removed=_tree_of_items(schema, old) if old else None,
        added=_tree_of_items(schema, new) if new else None,
    )


def _tree_of_items(schema: Schema, items: Sequence[Any]) -> Tree:
    return {} if len(items) > 1 else _tree_of_new(schema.items, items[0])


def _tree_of_new(schema: Schema | None, value: object) -> Tree:
    """Return the node of a new value, with everything below it."""
    content = _tree_below(schema, value)
    return {SELF: {}, **content} if content else {}


def _tree_below(schema: Schema | None, value: Any) -> Tree | None:
    """Return the tree below a value; None if the value is atomic."""
    match granularity_of(schema, value):
        case Granularity.MAP:
            return {
                field_element(name): _tree_of_new(field_schema(schema, name), it)
                for name, it in value.items()
            }
        case Granularity.LIST:
            assert schema is not None
            items = _by_element(schema, value)
            return {
                element: _tree_of_items(schema, its) for element, its in items.items()
            }
        case Granularity.LEAF:
            return None


def _by_element(schema: Schema, items: Sequence[Any]) -> dict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for item in items:
        found[list_element_of(schema, item)].append(item)

    return found


def _put_change(change: _Change, element: str, found: _Change) -> None:
    """Add the differences at a path element to those of its parent."""
    for tree, node in zip(change, found, strict=True):
        if tree is not None and node is not None:
            tree[element] = node


def _without_empty(change: _Change) -> _Change:
    """Drop empty trees, which would count as members."""
    return _Change(*(tree or None for tree in change))


# ------------------------------------------------------------------ merging


def merge_applied(
    schema: Schema, live: Mapping[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge an applied body into the live one.

    Applied values win, and values that only the live object has stay. Lists that are
    not atomic are merged item by item.

    Args:
        schema: Schema of whole objects.
        live: Stored object; not changed.
        applied: Applied object, without duplicate list items.

    Raises:
        ValueError: If list items have no identity.
    """
    return _merge_maps(schema, live, applied)


def merge_order(
    live: Sequence[str], applied: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Yield the order of the items of a merged list.

    Applied items keep their order. A live item that is not applied follows the nearest
    live item before it, as far as shared items are still in order.

    Args:
        live: Path elements of the live items.
        applied: Path elements of the applied items, each once.

    Yields:
        Origin of an item, `"live"` or `"applied"`, and its index there. Items of both
        come from the applied ones.
    """
    applied_elements, known = set(applied), set(live)
    shared = deque(it for it in applied if it in known)
    left, right = 0, 0
    while left < len(live) or right < len(applied):
        head = live[left] if left < len(live) else None
        if head is not None and head not in applied_elements:
            yield "live", left
            left += 1
        elif head is not None and not (shared and head == shared[0]):
            left += 1  # it comes later, or was already yielded
        else:
            yield "applied", right
            if shared and applied[right] == shared[0]:
                shared.popleft()

            left += head == applied[right]
            right += 1


def _merge_maps(
    schema: Schema | None, live: Mapping[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    merged = dict(live)
    for name, value in applied.items():
        if name in live:
            merged[name] = _merge_values(field_schema(schema, name), live[name], value)
        else:
            merged[name] = value

    return merged


def _merge_values(schema: Schema | None, live: Any, applied: Any) -> Any:
    before, after = granularity_of(schema, live), granularity_of(schema, applied)
    if before is after is Granularity.MAP:
        return _merge_maps(schema, live, applied)

    if before is after is Granularity.LIST:
        assert schema is not None
        return _merge_lists(schema, live, applied) or applied

    # A null does not affect the ownership of fields below it.
    return (
        live if applied is None and before is not Granularity.LEAF and live else applied
    )


def _merge_lists(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    before = [list_element_of(schema, item) for item in live]
    after = [list_element_of(schema, item) for item in applied]
    counts = Counter(before)
    by_element = dict(zip(before, live, strict=True))
    merged = []
    for origin, place in merge_order(before, after):
        if origin == "live":
            merged.append(live[place])
        elif counts[after[place]] == 1:
            mine = by_element[after[place]]
            merged.append(_merge_values(schema.items, mine, applied[place]))
        else:
            merged.append(applied[place])

    return merged


# ------------------------------------------------------------------ pruning


def prune_dropped(
    schema: Schema, body: dict[str, Any], last: FieldSet, owned: FieldSet
) -> dict[str, Any]:
    """Return a merged body without the fields that its applier has dropped.

    A field is removed if the applier owned it before and nobody owns it now. Fields
    below it are removed, too, unless they are owned.

    Args:
        schema: Schema of whole objects.
        body: Merged object; not changed.
        last: Fields that the applier owned before.
        owned: Fields that any manager owns now, including those applied now.

    Raises:
        ValueError: If list items have no identity.
    """
    last = with_named_fields(schema, last)
    owned = with_named_fields(schema, owned)
    if not last - owned:
        return body

    # Removing a field also removes everything below it. Put back what is owned,
    # with its parents. Fields that are neither owned nor were applied stay only if
    # their parents stay.
    everything = with_named_fields(schema, field_set_of(schema, body))
    bare = remove_items(schema, body, last)
    kept = with_named_fields(schema, field_set_of(schema, bare)) | owned
    restored = remove_items(schema, body, everything - kept)
    unowned = everything - with_named_fields(schema, field_set_of(schema, restored))
    return remove_items(schema, body, unowned & last)


# ------------------------------------------------------------------ validation


_PLAIN_FORMATS = frozenset({"", "byte"})


def apply_errors(schema: Schema, body: Mapping[str, Any]) -> list[str]:
    """Return why a body cannot be applied; empty if it can.

    Validates only the requirements of merging: types, declared fields, and the identity
    of list items. After the first unknown field of an object, its other fields are
    skipped.

    Args:
        schema: Schema of whole objects.
        body: Applied body as sent.
    """
    return list(_field_errors(schema, body, "", opened=False))


def _value_errors(
    schema: Schema | None, value: Any, path: str, *, opened: bool
) -> Iterator[str]:
    """Validate a value; `opened` allows unknown fields anywhere in it."""
    if value is None or schema is None:
        return

    match schema.type or type(value):
        case "object" if not isinstance(value, dict):
            yield f"{path}: expected map, got &{{{go_text(value)}}}"
        case "array" if not isinstance(value, list):
            yield f"{path}: expected list, got &{{{go_text(value)}}}"
        case "object" | type() if isinstance(value, dict):
            yield from _field_errors(schema, value, path, opened=opened)
        case "array" | type() if isinstance(value, list):
            yield from _item_errors(schema, value, path, opened=opened)
        case type():
            return
        case _:
            problem = _scalar_error(schema, value)
            if problem:
                yield f"{path}: {problem}"


def _field_errors(
    schema: Schema, body: Mapping[str, Any], path: str, *, opened: bool
) -> Iterator[str]:
    opened = opened or bool(schema.text.get("x-kubernetes-preserve-unknown-fields"))
    free = opened or _allows_unknown_fields(schema)
    for name in sorted(body):
        below = path + element_text(field_element(name))
        if not free and not is_declared(schema, name) and schema.values is None:
            yield f"{below}: field not declared in schema"
            return

        child = field_schema(schema, name)
        # Values with a definition of their own, such as metadata, do not
        # inherit this.
        inside = opened and not (child and child.name)
        yield from _value_errors(child, body[name], below, opened=inside)


def _allows_unknown_fields(schema: Schema) -> bool:
    extra = schema.text.get("additionalProperties")
    return extra is True or (extra is None and not schema.text_of("properties"))


def _item_errors(
    schema: Schema, items: list[Any], path: str, *, opened: bool
) -> Iterator[str]:
    seen: set[str] = set()
    for place, item in enumerate(items):
        element = f"i:{place}"
        if granularity_of(schema, items) is Granularity.LIST:
            try:
                element = list_element_of(schema, item)
            except ValueError as exc:
                yield f"{path}: element {place}: {exc}"
                return

            if element in seen:
                key = element_text(element)
                yield f"{path}: duplicate entries for key {key}"

        seen.add(element)
        below = path + element_text(element)
        yield from _value_errors(schema.items, item, below, opened=opened)


def _scalar_error(schema: Schema, value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    plain = schema.text.get("format", "") in _PLAIN_FORMATS
    match schema.type:
        case "integer" | "number" if not number:
            return f"expected numeric (int or float), got {go_type(value)}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got &{{{go_text(value)}}}"
        case "string" if plain and not isinstance(value, str):
            return f"expected string, got {_go_source(value)}"
        case _ if isinstance(value, (dict, list)):
            return f"expected any scalar, got &{{{go_text(value)}}}"
        case _:
            return ""


def _go_source(value: object) -> str:
    return f"&value.valueUnstructured{{Value:{_go_literal(value)}}}"


def _go_literal(value: object) -> str:
    """Format a value as Go source."""
    match value:
        case dict():
            pairs = (f'"{key}":{_go_literal(it)}' for key, it in sorted(value.items()))
            return f"{go_type(value)}{{{', '.join(pairs)}}}"
        case list():
            return f"{go_type(value)}{{{', '.join(map(_go_literal, value))}}}"
        case None:
            return "interface {}(nil)"
        case _:
            return json_codec.dumps(value).decode()
