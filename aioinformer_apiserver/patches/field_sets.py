"""Path elements: one step from a value into it, as the keys of FieldsV1 write it.

`f:name` is a field, `k:{"name":"x"}` the item of a list with these key fields, `v:"x"`
the item of a set, `i:0` an item by its place. Their text is their identity, so each has
one spelling only.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import orjson

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
    "sorted_elements",
    "value_element",
]


# Stands among the children of a field that is itself a member of a set of fields.
SELF = "."


# Go escapes these for HTML's sake, and orjson does not.
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


def field_element(name: str) -> str:
    """Return the step to a field of an object."""
    return f"f:{name}"


def item_element(keys: Mapping[str, Any]) -> str:
    """Return the step to the list item whose key fields have these values."""
    return f"k:{_json(keys)}"


def value_element(value: object) -> str:
    """Return the step to a value in a set."""
    return f"v:{_json(value)}"


@lru_cache(maxsize=4096)
def parse_element(text: str) -> str | None:
    """Return a step in its one spelling; None if it is of a kind unknown here.

    Raises:
        ValueError: If it is no step at all.
    """
    if text[1:2] != ":":
        raise ValueError(f"missing colon: {text}")

    match text[0]:
        case "f":
            return text
        case "k":
            return item_element(_object(text[2:]))
        case "v":
            return value_element(orjson.loads(text[2:]))
        case "i":
            return f"i:{int(text[2:])}"
        case _:
            return None


def sorted_elements(elements: Iterable[str]) -> list[str]:
    """Sort steps as Go does: fields, items by keys, values, places; numbers by size."""
    ordered = sorted(elements)
    if not ordered or ordered[-1].startswith(("f:", SELF)):
        return ordered

    return sorted(ordered, key=_rank)


def element_text(element: str) -> str:
    """Write a step for people: `.name`, `[name="x"]`, `[="x"]`, `[0]`."""
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
    """Write a path for people: `.spec.containers[name="x"].image`."""
    return "".join(map(element_text, path))


def _object(text: str) -> dict[str, Any]:
    found = orjson.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected keys of an item, got {text}")

    return found


def _json(value: Any) -> str:
    text = orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()
    return text.translate(_ESCAPES) if _ESCAPED.search(text) else text


def _plain(value: Any) -> Any:
    """Write whole numbers without a fraction, as Go does."""
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
            found = _value_rank(orjson.loads(given))
        case _:
            found = int(given)

    return (_RANKS[element[0]], found)


def _value_rank(value: object) -> tuple[Any, ...]:
    """Numbers come before texts, those before true and false, those before the rest."""
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

    def paths(self) -> Iterator[Path]:
        """Yield the members, sorted; those of a level before what lies below them."""
        return _paths(self._tree, ())

    def to_json(self) -> dict[str, Any]:
        """Write FieldsV1, its keys in the order that a real server gives them."""
        return self._tree if self._given else _sorted(self._tree)


EMPTY = FieldSet({})


def is_member(node: Tree) -> bool:
    """Say whether the field at a node of the tree (not its root) is in the set."""
    return not node or SELF in node


def _is_tree(fields: Any) -> TypeGuard[Tree]:
    """Say whether FieldsV1 is a tree as it stands; it is, unless written by hand."""
    if fields.__class__ is not dict or (SELF in fields and len(fields) == 1):
        return False

    for key, below in fields.items():
        if key[:2] != "f:" and (below if key == SELF else parse_element(key) != key):
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

        element = parse_element(key)
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


def _paths(tree: Tree, start: Path) -> Iterator[Path]:
    ordered = [element for element in sorted_elements(tree) if element != SELF]
    for element in ordered:
        if is_member(tree[element]):
            yield (*start, element)

    for element in ordered:
        yield from _paths(tree[element], (*start, element))


def _sorted(tree: Tree) -> dict[str, Any]:
    elements = sorted_elements(tree) if len(tree) > 1 else tree
    return {it: _sorted(tree[it]) if tree[it] else {} for it in elements}
