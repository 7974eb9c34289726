"""JSON that nests deeper than decoders follow, read without recursion.

Decoders give up at about 1,000 levels. An API server stores custom objects that nest
deeper. The functions here take time for each bracket, so they are used only when a
decoder gave up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LEVELS", "check_json", "json_field", "truncate_nesting"]

LEVELS: Final = 100
"""Levels of JSON that `truncate_nesting` keeps. Decoders follow that many from any call depth."""

# Whole strings match as well, so that no bracket is found inside of one.
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_QUOTE, _OPENING = ord('"'), frozenset(b"[{")

_prove: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def check_json(text: bytes | memoryview) -> None:
    """Check that a text is JSON, however deep it nests.

    What stands in its strings is not looked at: they may be no UTF-8.

    Raises:
        DecodeError: If it is not.
    """
    try:
        _prove(text)
    except RecursionError:
        truncate_nesting(bytes(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"not JSON: {exc}") from exc


def truncate_nesting(text: bytes) -> bytes:
    """Return JSON with null in place of what nests deeper than `LEVELS`.

    What is replaced is checked as well: the whole text is JSON.

    Raises:
        DecodeError: If it is not.
    """
    layer = b""
    try:
        for layer in _layers(text):
            _prove(layer)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"not JSON: {exc}") from exc

    return layer


def json_field(text: bytes, name: str) -> bytes:
    """Return the JSON of one field of an object; empty if the field is absent.

    Args:
        text: The object. It must be JSON: see `check_json`.
        name: The field.

    Raises:
        DecodeError: If the text is no object.
    """
    # Each array or object in a field is replaced by an array with its number.
    spans: list[tuple[int, int]] = []
    parts: list[bytes] = []
    start = copied = 0
    for at, before, behind in _brackets(text):
        if (before, behind) == (1, 2):
            parts.append(b"%b[%d]" % (text[copied:at], len(spans)))
            start = at
        elif (before, behind) == (2, 1):
            copied = at + 1
            spans.append((start, copied))

    parts.append(text[copied:])
    try:
        found = _decode_object(b"".join(parts))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"not a JSON object: {exc}") from exc

    if name not in found:
        return b""

    value = found[name]
    if not isinstance(value, list):
        return msgspec.json.encode(value)

    start, end = spans[value[0]]
    return text[start:end]


def _layers(text: bytes) -> Iterator[bytes]:
    """Cut a text into texts of at most `LEVELS` levels each, the outermost last.

    If the brackets do not match, neither do those of the outermost text.
    """
    # The parts of the layer at hand, and of those around it, outermost first.
    layers: list[list[bytes]] = [[]]
    copied = 0
    for at, before, behind in _brackets(text):
        if before < behind and behind % LEVELS == 0:
            layers[-1] += text[copied:at], b"null"
            layers.append([])
            copied = at
        elif before > behind and before % LEVELS == 0 and len(layers) > 1:
            yield b"".join((*layers.pop(), text[copied : at + 1]))
            copied = at + 1

    yield b"".join((*layers[0], text[copied:]))


def _brackets(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Iterate over the brackets: the position, the depth before and the depth behind."""
    depth = 0
    for found in _TOKENS.finditer(text):
        at = found.start()
        token = text[at]
        if token != _QUOTE:
            before = depth
            depth += 1 if token in _OPENING else -1
            yield at, before, depth
