"""Shard selectors, with the errors of an API server. Pure.

`aioinformer.model.shards` has selectors of clients, which merge their ranges. A server
returns the ranges as they were requested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from aioinformer.model.shards import HASHES, HashRange, hash_of
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.requests.cel import CELError, ExpressionKind, parse_cel

if TYPE_CHECKING:
    from aioinformer_apiserver.requests.cel import Expression
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = ["ShardSelector", "shard_selector_of"]

_UID, _NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
_DIGITS = 16

# For each change, every watch needs the same hash.
_hash_of = lru_cache(maxsize=1 << 17)(hash_of)


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """Selector of objects by the hash of one field.

    Attributes:
        field: Path of the field.
        ranges: Ranges of hashes, in the order of the request.
    """

    field: str
    ranges: tuple[HashRange, ...]

    def __str__(self) -> str:
        """Return the selector as the metadata of a list show it."""
        return " || ".join(
            f"shardRange({self.field}, '{start:#018x}', '{end:#018x}')"
            for start, end in self.ranges
        )

    def matches(self, state: StoredObject) -> bool:
        """Return whether an object is selected."""
        value = _hash_of(state.uid if self.field == _UID else state.namespace)
        return any(start <= value < end for start, end in self.ranges)


def shard_selector_of(text: str) -> ShardSelector | None:
    """Parse a shard selector; None if there is none.

    Args:
        text: Value of the query parameter.

    Raises:
        ApiError: 500 for a malformed selector, like a real server.
    """
    if not text:
        return None

    try:
        return _parse(text)
    except _SelectorError as exc:
        raise statuses.failure(500, "", f"invalid shard selector: {exc}") from None


class _SelectorError(Exception):
    """Malformed selector."""


def _parse(text: str) -> ShardSelector:
    text = text.strip()
    if not text:
        raise _SelectorError(
            "empty shard selector is not allowed; omit the parameter for unfiltered lists"
        )

    try:
        expression = parse_cel(text)
    except CELError as exc:
        raise _SelectorError(f"CEL parse error: {exc}") from None

    found = _requirements_in(expression)
    first = found[0][0]
    for field, _ in found:
        if field != first:
            raise _SelectorError(
                "all shard ranges must use the same field, got "
                f"{quote(first)} and {quote(field)}"
            )

    return ShardSelector(first, tuple(it for _, it in found))


def _requirements_in(expression: Expression) -> list[tuple[str, HashRange]]:
    """Return the field and range of each call."""
    if expression.kind != ExpressionKind.CALL:
        raise _SelectorError(
            f"unexpected expression kind {expression.kind:d}; expected shardRange() call "
            "or || operator"
        )

    if expression.name == "_||_":
        return [it for part in expression.parts for it in _requirements_in(part)]

    if expression.name != "shardRange":
        raise _SelectorError(
            f"unsupported function {quote(expression.name)}; only shardRange() and || "
            "are allowed"
        )

    return [_requirement_of(expression.parts)]


def _requirement_of(arguments: tuple[Expression, ...]) -> tuple[str, HashRange]:
    if len(arguments) != 3:
        raise _SelectorError(
            f"shardRange() requires exactly 3 arguments, got {len(arguments)}"
        )

    field = _field_path_of(arguments[0])
    if field not in {_UID, _NAMESPACE}:
        raise _SelectorError(
            f"unsupported field path {quote(field)}; supported: {_UID}, {_NAMESPACE}"
        )

    start = _hash_text_of(arguments[1], "hexStart")
    end = _hash_text_of(arguments[2], "hexEnd")
    found = HashRange(int(start, 16), int(end, 16))
    if found.start >= found.end:
        raise _SelectorError(f"shard range start {start} must be less than end {end}")

    return field, found


def _field_path_of(expression: Expression) -> str:
    names = []
    while expression.kind == ExpressionKind.SELECT:
        names.append(expression.name)
        (expression,) = expression.parts

    if expression.kind == ExpressionKind.IDENT:
        return ".".join([expression.name, *reversed(names)])

    raise _SelectorError(
        "shardRange() first argument: expected field path (e.g. object.metadata.uid), "
        f"got expression kind {expression.kind:d}"
    )


def _hash_text_of(expression: Expression, name: str) -> str:
    """Return the text of a hash, which has 16 digits, or 17 for the end of all."""
    if expression.kind != ExpressionKind.LITERAL:
        raise _SelectorError(
            f"{name} must be a string literal (e.g. '0xff'), got expression kind "
            f"{expression.kind:d}"
        )

    text = expression.text
    if expression.name != "string":
        raise _SelectorError(f"{name} must be a string literal, got {expression.name}")

    if not text.startswith("0x"):
        raise _SelectorError(f"{name} must have '0x' prefix, got {quote(text)}")

    _check_digits(text, name)
    return text


def _check_digits(text: str, name: str) -> None:
    digits = text.removeprefix("0x")
    length = len(digits.encode())
    if not digits:
        raise _SelectorError(f"{name}: hex value is required after '0x'")

    if length > _DIGITS + 1:
        raise _SelectorError(
            f"{name}: hex value too long ({length} chars, max {_DIGITS + 1}): "
            f"{quote(digits)}"
        )

    if wrong := re.search("[^0-9a-f]", digits):
        raise _SelectorError(
            f"{name}: invalid hex character {quote(wrong[0])} in {quote(text)}"
        )

    if length > _DIGITS and int(digits, 16) != HASHES:
        raise _SelectorError(
            f"{name}: 17-digit hex value must be '{HASHES:#x}' (2^64), got {quote(text)}"
        )

    if length < _DIGITS:
        raise _SelectorError(
            f"{name} must be a 0x-prefixed 16-digit hex value, got {quote(text)} (did "
            f"you mean {quote(f'0x{digits:0>16}')}?)"
        )
