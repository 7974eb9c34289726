"""Comparisons: which fields of an object were added, changed and removed. Pure.

What is equal is passed over without a look inside, so that comparing costs as much as
there are differences.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer_apiserver.patches.elements import SELF, field_element
from aioinformer_apiserver.patches.fieldsets import FieldSet
from aioinformer_apiserver.patches.grains import (
    Grain,
    child_of,
    element_of,
    grain_of,
    is_same,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer_apiserver.patches.fieldsets import Tree
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["Comparison", "compared"]


@dataclass(frozen=True)
class Comparison:
    """What differs between two states of an object.

    Attributes:
        removed: Fields that only the old one has, the containers of others among them.
        modified: Fields of both, with other values.
        added: Fields that only the new one has, the containers of others among them.
    """

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    @cached_property
    def gained(self) -> FieldSet:
        """What the new one has that the old one has not."""
        return self.modified | self.added

    def outside(self, fields: FieldSet) -> Comparison:
        """Return the comparison without some fields and what lies below them."""
        if not fields:
            return self

        return Comparison(
            self.removed.outside(fields),
            self.modified.outside(fields),
            self.added.outside(fields),
        )


class _Change(NamedTuple):
    """What differs at and below one place; None where nothing does."""

    removed: Tree | None = None
    modified: Tree | None = None
    added: Tree | None = None


_MODIFIED = _Change(modified={})


def compared(
    schema: Schema, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Comparison:
    """Compare two states of an object.

    Args:
        schema: Of whole objects.
        old: As it was.
        new: As it is.

    Raises:
        ValueError: If a list has items that cannot be told apart.
    """
    change = _compared_maps(schema, old, new)
    return Comparison(*(FieldSet(tree or {}) for tree in change))


def _compared(schema: Schema | None, old: Any, new: Any) -> _Change:
    """Compare two values that are not the same."""
    before, after = grain_of(schema, old), grain_of(schema, new)
    if not (old or new) or before is after is Grain.LEAF:
        return _MODIFIED

    if Grain.LIST not in {before, after} and _is_map(old, before, new, after):
        return _compared_maps(schema, old or {}, new or {})

    if Grain.MAP not in {before, after} and _is_list(old, before, new, after):
        assert schema is not None
        return _compared_lists(schema, old or [], new or [])

    # It became something else altogether; nothing below an empty one was ever there.
    return _Change(_content(schema, old) or None, {}, _content(schema, new) or None)


def _is_map(old: Any, before: Grain, new: Any, after: Grain) -> bool:
    """Say whether both are owned by fields; a null is an empty object beside one."""
    return (before is Grain.MAP or old is None) and (after is Grain.MAP or new is None)


def _is_list(old: Any, before: Grain, new: Any, after: Grain) -> bool:
    """Say whether both are owned by items; a null is an empty list beside one."""
    return (before is Grain.LIST or old is None) and (
        after is Grain.LIST or new is None
    )


def _compared_maps(
    schema: Schema | None, old: Mapping[str, Any], new: Mapping[str, Any]
) -> _Change:
    change = _Change({}, {}, {})
    for name, value in old.items():
        element = field_element(name)
        if name not in new:
            _put(
                change, element, _Change(removed=_whole(child_of(schema, name), value))
            )
        elif not is_same(value, new[name]):
            child = child_of(schema, name)
            _put(change, element, _compared(child, value, new[name]))

    for name, value in new.items():
        if name not in old:
            whole = _whole(child_of(schema, name), value)
            _put(change, field_element(name), _Change(added=whole))

    return _without_empty(change)


def _compared_lists(schema: Schema, old: Sequence[Any], new: Sequence[Any]) -> _Change:
    change = _Change({}, {}, {})
    before, after = _by_element(schema, old), _by_element(schema, new)
    for element in {**before, **after}:
        was, now = before.get(element, ()), after.get(element, ())
        _put(change, element, _compared_items(schema, was, now))

    return _without_empty(change)


def _compared_items(schema: Schema, old: Sequence[Any], new: Sequence[Any]) -> _Change:
    """Compare the items of one key: one at most, or else they are owned as a whole."""
    if len(old) == len(new) and all(map(is_same, old, new)):
        return _Change()

    if len(old) > 1 and len(new) > 1:
        return _MODIFIED

    if len(old) == len(new) == 1:
        return _compared(schema.items, old[0], new[0])

    return _Change(
        removed=_of_items(schema, old) if old else None,
        added=_of_items(schema, new) if new else None,
    )


def _of_items(schema: Schema, items: Sequence[Any]) -> Tree:
    return {} if len(items) > 1 else _whole(schema.items, items[0])


def _whole(schema: Schema | None, value: object) -> Tree:
    """Return the node of a value that was not there before, with all that is in it."""
    content = _content(schema, value)
    return {SELF: {}, **content} if content else {}


def _content(schema: Schema | None, value: Any) -> Tree | None:
    """Return all that is in a value; None if it is owned as a whole."""
    match grain_of(schema, value):
        case Grain.MAP:
            return {
                field_element(name): _whole(child_of(schema, name), it)
                for name, it in value.items()
            }
        case Grain.LIST:
            assert schema is not None
            items = _by_element(schema, value)
            return {element: _of_items(schema, its) for element, its in items.items()}
        case Grain.LEAF:
            return None


def _by_element(schema: Schema, items: Sequence[Any]) -> dict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for item in items:
        found[element_of(schema, item)].append(item)

    return found


def _put(change: _Change, element: str, found: _Change) -> None:
    """Enter what differs at a step into what differs above."""
    for tree, node in zip(change, found, strict=True):
        if tree is not None and node is not None:
            tree[element] = node


def _without_empty(change: _Change) -> _Change:
    """Without anything below it, a node would count as a member itself."""
    return _Change(*(tree or None for tree in change))
