"""Field sets: fields of an object, in the form of FieldsV1.

A path element is one step from a value into it: `f:name` is a field, `k:{"name":"x"}`
the list item with these keys, `v:"x"` a value in a set, `i:0` an item by index.
Elements are compared by their text, so each has one canonical spelling.

A field set is a tree of path elements. A node without children is a member. A node with
children is a member only if it has the key `"."`. Trees are never changed, so that sets
can share subtrees.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "EMPTY",
    "SELF",
    "FieldSet",
    "Tree",
    "element_text",
    "field_element",
    "is_member",
    "item_element",
    "parse_element",
    "path_text",
    "sort_elements",
    "value_element",
]

# Key of a node with children that is a member itself.
SELF = "."
# Go escapes these characters for HTML, `json_codec` does not.
_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)
_ESCAPED = re.compile("[<>&\u2028\u2029]")
_RANKS = {"f": 0, "k": 1, "v": 2, "i": 3}


# ------------------------------------------------------------------ path elements


def field_element(name: str) -> str:
    """Return the path element of a field."""
    return f"f:{name}"


def item_element(keys: Mapping[str, Any]) -> str:
    """Return the path element of the list item with these keys."""
    return f"k:{_json(keys)}"


def value_element(value: object) -> str:
    """Return the path element of a value in a set."""
    return f"v:{_json(value)}"


@lru_cache(maxsize=4096)
def parse_element(text: str) -> str | None:
    """Return the canonical spelling of a path element; None for unknown types.

    Raises:
        ValueError: If the text is not a path element.
    """
    if text[1:2] != ":":
        raise ValueError(f"missing colon: {text}")

    match text[0]:
        case "f":
            return text
        case "k":
            return item_element(_object(text[2:]))
        case "v":
            return value_element(json_codec.loads(text[2:]))
        case "i":
            return f"i:{int(text[2:])}"
        case _:
            return None


def sort_elements(elements: Iterable[str]) -> list[str]:
    """Sort path elements as Go does: fields, keys, values, indices."""
    ordered = sorted(elements)
    if not ordered or ordered[-1].startswith(("f:", SELF)):
        return ordered

    return sorted(ordered, key=_rank)


def element_text(element: str) -> str:
    """Format a path element for messages: `.name`, `[name="x"]`, `[="x"]`, `[0]`."""
    given = element[2:]
    match element[0]:
        case "f":
            return f".{given}"
        case "k":
            pairs = _object(given).items()
            return f"[{','.join(f'{name}={_json(it)}' for name, it in pairs)}]"
        case "v":
            return f"[={given}]"
        case _:
            return f"[{given}]"


def path_text(path: Iterable[str]) -> str:
    """Format a path for messages: `.spec.containers[name="x"].image`."""
    return "".join(map(element_text, path))


def _object(text: str) -> dict[str, Any]:
    found = json_codec.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected keys of an item, got {text}")

    return found


def _json(value: Any) -> str:
    text = json_codec.dumps(_plain(value), option=json_codec.OPT_SORT_KEYS).decode()
    return text.translate(_ESCAPES) if _ESCAPED.search(text) else text


def _plain(value: Any) -> Any:
    """Convert whole floats to integers, as Go writes them."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict() if any(isinstance(it, float) for it in value.values()):
            return {key: _plain(it) for key, it in value.items()}
        case _:
            return value


@lru_cache(maxsize=4096)
def _rank(element: str) -> tuple[Any, ...]:
    if element == SELF:
        return (-1,)

    given = element[2:]
    match element[0]:
        case "f":
            found: Any = given
        case "k":
            found = [(name, _value_rank(it)) for name, it in _object(given).items()]
        case "v":
            found = _value_rank(json_codec.loads(given))
        case _:
            found = int(given)

    return (_RANKS[element[0]], found)


def _value_rank(value: object) -> tuple[Any, ...]:
    """Return a sort key: numbers, then strings, booleans, and all else."""
    match value:
        case bool():
            return (2, value)
        case int() | float():
            return (0, value)
        case str():
            return (1, value)
        case _:
            return (3, _json(value))


# Invariant: below the root, a node that is neither a member nor leads to one is
# missing, and none has `SELF` as its only key.
Tree: TypeAlias = "dict[str, Tree]"
Path: TypeAlias = "tuple[str, ...]"


# ------------------------------------------------------------------ field sets


class FieldSet:
    """Immutable set of fields, compared and hashed by its members.

    Args:
        tree: Tree as described above; must not be changed later.
    """

    __slots__ = ("_given", "_tree")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # The tree was parsed; its order of keys is kept.
        self._given = False

    @classmethod
    def of(cls, *paths: Path) -> FieldSet:
        """Make a set of paths, such as `("f:data", "f:x")`."""
        tree: Tree = {}
        for path in paths:
            node: Tree = {}
            for element in reversed(path):
                node = {element: node}

            tree = _union(tree, node)

        return cls(tree)

    @classmethod
    def parse(cls, fields: object) -> FieldSet:
        """Parse FieldsV1, dropping path elements of unknown types.

        Raises:
            ValueError: If the value is not FieldsV1.
        """
        if not _is_tree(fields) or SELF in fields:
            return cls(_parse(fields)[0])

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
        """Return the union."""
        if not other or other is self:
            return self

        return FieldSet(_union(self._tree, other._tree)) if self else other

    def __and__(self, other: FieldSet) -> FieldSet:
        """Return the intersection."""
        return FieldSet(_intersection(self._tree, other._tree))

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Return the difference; fields below removed ones stay."""
        if not (self and other):
            return self

        return FieldSet(_difference(self._tree, other._tree))

    @property
    def tree(self) -> Tree:
        """Tree of the set; must not be changed."""
        return self._tree

    def outside(self, other: FieldSet) -> FieldSet:
        """Return the recursive difference, without fields below removed ones."""
        if not (self and other):
            return self

        return FieldSet(_outside(self._tree, other._tree))

    def below(self, element: str) -> FieldSet:
        """Return the paths below a path element, relative to it."""
        node = self._tree.get(element, {})
        return FieldSet({key: it for key, it in node.items() if key != SELF})

    def leaves(self) -> FieldSet:
        """Return the members that have no members below them."""
        return FieldSet(_leaves(self._tree))

    def paths(self) -> Iterator[Path]:
        """Yield the members in order; those of a level precede those below them."""
        return _paths(self._tree, ())

    def to_json(self) -> dict[str, Any]:
        """Return FieldsV1, with keys in the order of a real server."""
        return self._tree if self._given else _sort(self._tree)


EMPTY = FieldSet({})


def is_member(node: Tree) -> bool:
    """Return whether the field at a node (not the root) is a member."""
    return not node or SELF in node


def _is_tree(fields: Any) -> TypeGuard[Tree]:
    """Return whether FieldsV1 is canonical; only hand-written ones are not."""
    if fields.__class__ is not dict or (SELF in fields and len(fields) == 1):
        return False

    for key, below in fields.items():
        if key[:2] != "f:" and (below if key == SELF else parse_element(key) != key):
            return False

        if below != {} and not _is_tree(below):
            return False

    return True


def _parse(fields: object) -> tuple[Tree, bool]:
    """Parse the children of a node, and return whether it is a member itself."""
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object of fields, got {fields!r}")

    tree: Tree = {}
    for key, below in fields.items():
        if key == SELF:
            continue

        element = parse_element(key)
        if element is None:
            continue

        children, member = _parse(below)
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
        found[element] = node if known is None else _join(known, node)

    return found


def _join(one: Tree, two: Tree) -> Tree:
    """Merge two nodes of one path; each may be a member without children."""
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


def _paths(tree: Tree, start: Path) -> Iterator[Path]:
    ordered = [element for element in sort_elements(tree) if element != SELF]
    for element in ordered:
        if is_member(tree[element]):
            yield (*start, element)

    for element in ordered:
        yield from _paths(tree[element], (*start, element))


def _sort(tree: Tree) -> dict[str, Any]:
    elements = sort_elements(tree) if len(tree) > 1 else tree
    return {it: _sort(tree[it]) if tree[it] else {} for it in elements}
