"""Path elements: one step from a value into it, as the keys of FieldsV1 write it.

`f:name` is a field, `k:{"name":"x"}` the item of a list with these key fields, `v:"x"`
the item of a set, `i:0` an item by its place. Their text is their identity, so each has
one spelling only.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "SELF",
    "element_text",
    "field_element",
    "in_order",
    "item_element",
    "parsed_element",
    "path_text",
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
def parsed_element(text: str) -> str | None:
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


def in_order(elements: Iterable[str]) -> list[str]:
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
