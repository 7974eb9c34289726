"""JSON for tests: texts that are hard to split, and ways to encode and split bodies."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Delimiters that code searches for when it splits JSON, and similar text.
HARD_TEXTS = [
    '"',
    "\\",
    '\\"',
    "\\\\",
    "{}",
    "[]",
    "}}",
    "]}",
    '},{"metadata":',
    '},{"apiVersion":"apps/v1","kind":"Deployment","metadata":',
    '},"spec":',
    '},"data":',
    ',"spec":',
    ',"managedFields":[',
    '"items":[',
    "\n",
    "\u2028",
    "ä€😀",
]

texts = st.one_of(
    st.text(max_size=5),
    st.lists(st.sampled_from(HARD_TEXTS), max_size=3).map("".join),
)
keys = st.one_of(
    st.sampled_from(["metadata", "spec", "items", "kind", "managedFields", "name"]),
    texts,
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=6,
)

STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
    "escaped": {"separators": (",", ":")},
    "spaced": {"ensure_ascii": False},
    "pretty": {"indent": 2, "ensure_ascii": False},
}
styles = st.sampled_from(sorted(STYLES))


def written(value: object, style: str = "compact") -> bytes:
    """Encode JSON as Go does, or in another style."""
    return json.dumps(value, **STYLES[style]).encode()


def chunks_of(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Split `data` at these places, taken modulo its length; pieces may be empty."""
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    return [data[start:end] for start, end in pairwise([0, *places, len(data)])]


def pieces_of(data: bytes, size: int) -> list[bytes]:
    """Split `data` into pieces of `size` bytes."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def nested(depth: int = 30_000) -> bytes:
    """Make nested objects, deeper than decoders follow (Python 3.14: 1,000,000)."""
    return b'{"a":' * depth + b"1" + b"}" * depth


def calls_of(function: Callable[[], object]) -> int:
    """Return the number of calls, of Python and C functions, that `function` makes."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)

    return count
