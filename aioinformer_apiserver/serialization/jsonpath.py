r"""JSONPath expressions of printer columns.

The dialect of Kubernetes: `.spec.replicas`,
`.metadata.labels.app\.kubernetes\.io/name`, `.metadata.labels['app']`, `.list[0]`,
`[-1:]`, `[0,2]`, `[*]`, `.map.*`, `..deep`, and filters such as
`.status.conditions[?(@.type=="Ready")].status`.

Missing values are left out. An index beyond the end, and an index or a filter on a
value that is not a list, fail instead, so that the column is empty.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from aioinformer import json_codec

__all__ = ["Finder", "JSONPathError", "json_path"]

Finder = Callable[[object], list[Any]]
"""Function that returns the values in an object."""

_Step = Callable[[list[Any]], list[Any]]


class JSONPathError(ValueError):
    """The path is malformed, or does not apply to the object."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

_FIELD = re.compile(r"\.?((?:\\.|[^.\[\]\\])+)")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_SLICE = re.compile(r"(-?[0-9]{1,18})?(?::(-?[0-9]{1,18})?)?(?::([0-9]{1,18})?)?")
_FILTER = re.compile(
    r"""
    \s* (?P<left> (?: '[^']*' | "[^"]*" | [^'"=!<>] )+? ) \s*
    (?: (?P<operator> == | != | <= | >= | < | > ) \s* (?P<right> .+? ) \s* )?
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")


@lru_cache(maxsize=1024)
def json_path(path: str) -> Finder:
    """Compile a path.

    Args:
        path: Path such as `".spec.replicas"`, without braces.

    Returns:
        Finder, which raises `JSONPathError` if the path does not apply to an object.

    Raises:
        JSONPathError: If the path is malformed.
    """
    steps = _steps(path.removeprefix("$"))

    def find(body: object) -> list[Any]:
        values = [body]
        for step in steps:
            values = step(values)

        return values

    return find


# ------------------------------------------------------------------------ reading


def _steps(path: str) -> list[_Step]:
    steps: list[_Step] = []
    position = 0
    while position < len(path):
        if path.startswith("..", position):
            steps.append(_descend)
            position += 1 if path[position + 2 : position + 3] not in {"", "["} else 2
        elif path[position] == "[":
            end = _end_of_bracket(path, position)
            steps.append(_parse_bracket(path[position + 1 : end].strip()))
            position = end + 1
        else:
            step, position = _field(path, position)
            steps.append(step)

    return steps


def _field(path: str, position: int) -> tuple[_Step, int]:
    found = _FIELD.match(path, position)
    if found is None:
        raise JSONPathError(f"{path!r}: expected a name at {position}")

    name = found[1]
    step = _all if name == "*" else _field_step([_ESCAPED.sub(r"\1", name)])
    return step, found.end()


def _end_of_bracket(path: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth, position = 0, start
    while position < len(path):
        quoted = _QUOTED.match(path, position)
        if quoted is not None:
            position = quoted.end()
            continue

        depth += (path[position] == "[") - (path[position] == "]")
        if not depth:
            return position

        position += 1

    raise JSONPathError(f"{path!r}: the bracket at {start} is not closed")


def _parse_bracket(inner: str) -> _Step:
    if inner == "*":
        return _slice(":")

    if inner.startswith("?(") and inner.endswith(")"):
        return _filter(inner[2:-1])

    if inner[:1] in {"'", '"'}:
        return _field_step([_unquote(part) for part in _QUOTED.finditer(inner)])

    return _union([_slice(part.strip()) for part in inner.split(",")])


def _unquote(found: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", found[1] if found[1] is not None else found[2])


# ------------------------------------------------------------------------ finding


def _field_step(names: list[str]) -> _Step:
    def step(values: list[Any]) -> list[Any]:
        maps = [it for it in values if isinstance(it, dict)]
        return [it[name] for name in names for it in maps if name in it]

    return step


def _all(values: list[Any]) -> list[Any]:
    return [inner for value in values for inner in _inner(value)]


def _inner(value: object) -> list[Any]:
    """Return the values in a list, or in an object in the order of its keys."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]

    return value if isinstance(value, list) else []


def _descend(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        inner = _inner(value)
        if inner:
            found.append(value)
            found.extend(_descend(inner))

    return found


def _union(steps: list[_Step]) -> _Step:
    return lambda values: [found for step in steps for found in step(values)]


def _slice(text: str) -> _Step:
    found = _SLICE.fullmatch(text)
    if found is None or not text:
        raise JSONPathError(f"[{text}] is not an index")

    first, last, stride = (int(part) if part else None for part in found.groups())
    if ":" not in text:
        assert first is not None
        last = first + 1 or None

    if stride == 0:
        raise JSONPathError(f"[{text}] has a step of 0")

    def step(values: list[Any]) -> list[Any]:
        return [
            inner
            for value in _lists(values)
            for inner in _slice_list(value, first, last)[:: stride or 1]
        ]

    return step


def _lists(values: list[Any]) -> list[list[Any]]:
    known = [value for value in values if value is not None]
    if not all(isinstance(value, list) for value in known):
        raise JSONPathError("only lists have an index")

    return known


def _slice_list(value: list[Any], first: int | None, last: int | None) -> list[Any]:
    size = len(value)
    begin = 0 if first is None else first + size * (first < 0)
    end = size if last is None else last + size * (last < 0)
    if begin == end:
        return []

    if not (0 <= begin < size and begin < end <= size):
        raise JSONPathError(f"[{first}:{last}] is out of bounds")

    return value[begin:end]


# ------------------------------------------------------------------------ filtering


def _filter(text: str) -> _Step:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise JSONPathError(f"?({text}) is not a filter")

    left, right = _operand(found["left"]), _operand(found["right"] or "''")
    comparison = _COMPARISONS.get(found["operator"] or "")

    def passes(value: object) -> bool:
        lefts = left(value)
        if comparison is None:
            return bool(lefts)

        return _compare(comparison, lefts, right(value))

    def step(values: list[Any]) -> list[Any]:
        return [it for value in _lists(values) for it in value if passes(it)]

    return step


def _compare(
    comparison: Callable[[Any, Any], bool], lefts: list[Any], rights: list[Any]
) -> bool:
    if not lefts or not rights:
        return False

    operands = [*lefts, *rights]
    if len(operands) > 2 or any(isinstance(it, (dict, list)) for it in operands):
        raise JSONPathError("only single values can be compared")

    try:
        return comparison(lefts[0], rights[0])
    except TypeError as exc:
        raise JSONPathError(str(exc)) from exc


def _operand(text: str) -> Finder:
    if text.startswith("@"):
        return json_path(text[1:])

    quoted = _QUOTED.fullmatch(text)
    try:
        value = json_codec.loads(text) if quoted is None else _unquote(quoted)
    except json_codec.JSONDecodeError as exc:
        raise JSONPathError(f"{text!r} cannot be compared") from exc

    return lambda _: [value]
