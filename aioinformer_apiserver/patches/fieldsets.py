"""Field sets: which fields of an object somebody owns, as FieldsV1 writes it down.

A set is a tree. A node without children is a member; one with children is a member
only if it says so by the key `"."`. The trees are never changed once made, so that sets
share what they have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from aioinformer_apiserver.patches.elements import (
    SELF,
    element_text,
    in_order,
    parsed_element,
)
from aioinformer_apiserver.patches.grains import child_of, is_declared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["NOTHING", "FieldSet", "Tree", "is_member"]

# Invariant: below the root, a node that is neither a member nor leads to one is
# missing, and none has `SELF` as its only key.
Tree: TypeAlias = "dict[str, Tree]"

Path: TypeAlias = "tuple[str, ...]"


class FieldSet:
    """A set of fields: a value, compared and hashed by its members.

    Args:
        tree: A tree as described above, which is not changed from now on.
    """

    __slots__ = ("_given", "_tree")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # It is as somebody else wrote it, whose order of keys will do.
        self._given = False

    @classmethod
    def of(cls, *paths: Path) -> FieldSet:
        """Make a set of paths, each a tuple of steps such as `("f:data", "f:x")`."""
        tree: Tree = {}
        for path in paths:
            node: Tree = {}
            for element in reversed(path):
                node = {element: node}

            tree = _union(tree, node)

        return cls(tree)

    @classmethod
    def parse(cls, fields: object) -> FieldSet:
        """Read FieldsV1; steps of a kind unknown here are dropped.

        Raises:
            ValueError: If it is something else.
        """
        if not _is_tree(fields) or SELF in fields:
            return cls(_parsed(fields)[0])

        found = cls(fields)
        found._given = True
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(frozenset(self.paths()))

    def __bool__(self) -> bool:
        return bool(self._tree)

    def __contains__(self, path: Path) -> bool:
        node: Tree | None = self._tree
        for element in path:
            node = node.get(element) if node is not None else None

        return bool(path) and node is not None and is_member(node)

    def __repr__(self) -> str:
        shown = ["".join(map(element_text, path)) for path in self.paths()]
        return f"<FieldSet {' '.join(shown)}>"

    def __or__(self, other: FieldSet) -> FieldSet:
        """Return what is in either."""
        if not other or other is self:
            return self

        return FieldSet(_union(self._tree, other._tree)) if self else other

    def __and__(self, other: FieldSet) -> FieldSet:
        """Return what is in both."""
        return FieldSet(_intersection(self._tree, other._tree))

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Return what is here and not there; what lies below what is there stays."""
        if not (self and other):
            return self

        return FieldSet(_difference(self._tree, other._tree))

    @property
    def tree(self) -> Tree:
        """The tree; not to be changed."""
        return self._tree

    def outside(self, other: FieldSet) -> FieldSet:
        """Return what is here and neither there nor below what is there."""
        if not (self and other):
            return self

        return FieldSet(_outside(self._tree, other._tree))

    def below(self, element: str) -> FieldSet:
        """Return what lies below a step, as paths from there."""
        node = self._tree.get(element, {})
        return FieldSet({key: it for key, it in node.items() if key != SELF})

    def leaves(self) -> FieldSet:
        """Return the members that nothing else lies below."""
        return FieldSet(_leaves(self._tree))

    def with_declared(self, schema: Schema | None) -> FieldSet:
        """Return the set with the described fields on the way to its members.

        So a set that has `spec.template.x` gets `spec` and `spec.template` too, but of
        what leads through a map or a list, only the fields.
        """
        return FieldSet(_with_declared(self._tree, schema))

    def paths(self) -> Iterator[Path]:
        """Yield the members, sorted; those of a level before what lies below them."""
        return _paths(self._tree, ())

    def to_json(self) -> dict[str, Any]:
        """Write FieldsV1, its keys in the order that a real server gives them."""
        return self._tree if self._given else _sorted(self._tree)


NOTHING = FieldSet({})


def is_member(node: Tree) -> bool:
    """Say whether the field at a node of the tree (not its root) is in the set."""
    return not node or SELF in node


def _is_tree(fields: Any) -> TypeGuard[Tree]:
    """Say whether FieldsV1 is a tree as it stands; it is, unless written by hand."""
    if fields.__class__ is not dict or (SELF in fields and len(fields) == 1):
        return False

    for key, below in fields.items():
        if key[:2] != "f:" and (below if key == SELF else parsed_element(key) != key):
            return False

        if below != {} and not _is_tree(below):
            return False

    return True


def _parsed(fields: object) -> tuple[Tree, bool]:
    """Read the children of a node, and whether it is a member itself."""
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object of fields, got {fields!r}")

    tree: Tree = {}
    for key, below in fields.items():
        if key == SELF:
            continue

        element = parsed_element(key)
        if element is None:
            continue

        children, member = _parsed(below)
        tree[element] = {SELF: {}, **children} if member and children else children

    return tree, SELF in fields or not tree


def _node(children: Tree, *, member: bool) -> Tree | None:
    if not children:
        return {} if member else None

    return {SELF: {}, **children} if member else children


def _union(one: Tree, two: Tree) -> Tree:
    found = dict(one)
    for element, node in two.items():
        known = found.get(element)
        found[element] = node if known is None else _joined(known, node)

    return found


def _joined(one: Tree, two: Tree) -> Tree:
    """Unite two nodes of one path, each of which may be a member without children."""
    if one is two:
        return one

    if one and two:
        return _union(one, two)

    both = one or two
    return {SELF: {}, **both} if both else both


def _intersection(one: Tree, two: Tree) -> Tree:
    found: Tree = {}
    for element, node in one.items():
        other = two.get(element)
        if other is None or element == SELF:
            continue

        both = _node(
            _intersection(node, other), member=is_member(node) and is_member(other)
        )
        if both is not None:
            found[element] = both

    return found


def _difference(one: Tree, two: Tree) -> Tree:
    found: Tree = {}
    for element, node in one.items():
        if element == SELF:
            continue

        other = two.get(element)
        if other is None:
            found[element] = node
            continue

        rest = _node(
            _difference(node, other), member=is_member(node) and not is_member(other)
        )
        if rest is not None:
            found[element] = rest

    return found


def _outside(one: Tree, two: Tree) -> Tree:
    found: Tree = {}
    for element, node in one.items():
        other = two.get(element)
        if element == SELF or (other is not None and is_member(other)):
            continue

        rest: Tree | None = node
        if other is not None:
            rest = _node(_outside(node, other), member=is_member(node))

        if rest is not None:
            found[element] = rest

    return found


def _leaves(tree: Tree) -> Tree:
    return {element: _leaves(node) for element, node in tree.items() if element != SELF}


def _with_declared(tree: Tree, schema: Schema | None) -> Tree:
    found: Tree = {}
    for element, node in tree.items():
        if not node:
            found[element] = node
            continue

        named = element[2:] if element.startswith("f:") else None
        below = _with_declared(node, _below(schema, element))
        if named is not None and is_declared(schema, named):
            below = {SELF: {}, **below}

        found[element] = below

    return found


def _below(schema: Schema | None, element: str) -> Schema | None:
    if schema is None:
        return None

    if element.startswith("f:"):
        return child_of(schema, element[2:])

    return schema.items if element.startswith("k:") else None


def _paths(tree: Tree, start: Path) -> Iterator[Path]:
    ordered = [element for element in in_order(tree) if element != SELF]
    for element in ordered:
        if is_member(tree[element]):
            yield (*start, element)

    for element in ordered:
        yield from _paths(tree[element], (*start, element))


def _sorted(tree: Tree) -> dict[str, Any]:
    elements = in_order(tree) if len(tree) > 1 else tree
    return {it: _sorted(tree[it]) if tree[it] else {} for it in elements}
