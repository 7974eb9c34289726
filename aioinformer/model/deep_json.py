"""JSON that nests too deeply for decoders, read without recursion.

Decoders fail at about 1,000 levels, but an API server stores custom objects that nest
deeper. The functions here take time for each bracket, so they are used only after a
decoder or an encoder has failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer import json_codec
from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LEVELS",
    "check_json",
    "decode_encodable",
    "json_field",
    "truncate_nesting",
]

LEVELS: Final = 100
"""Levels of JSON that `truncate_nesting` keeps. Decoders can read them at any call depth."""

# Matches whole strings as well, so that brackets inside of them are skipped.
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_QUOTE, _OPENING = ord('"'), frozenset(b"[{")

_prove: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def check_json(text: bytes | memoryview) -> None:
    """Check that a text is JSON, at any nesting depth.

    Strings may contain invalid UTF-8, as they are not checked.

    Raises:
        DecodeError: If it is not JSON.
    """
    try:
        _prove(text)
    except RecursionError:
        truncate_nesting(bytes(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"not JSON: {exc}") from exc


def decode_encodable(text: bytes) -> tuple[Any, bool]:
    """Decode JSON so that the value can be encoded again.

    Encoders fail at fewer levels than decoders: at 255, and those of YAML soon after.

    Returns:
        The value, and whether it has null in place of values nested deeper than
        `LEVELS`.

    Raises:
        DecodeError: If it is not JSON.
    """
    try:
        value = json_codec.loads(text)
        json_codec.dumps(value)
    except (json_codec.JSONDecodeError, TypeError, RecursionError):
        text = truncate_nesting(text)
    else:
        return value, False

    try:
        return json_codec.loads(text), True
    except json_codec.JSONDecodeError as exc:
        raise DecodeError(f"not JSON: {exc}") from exc


def truncate_nesting(text: bytes) -> bytes:
    """Return JSON with null in place of values nested deeper than `LEVELS`.

    The replaced values are checked as well: the whole text is JSON.

    Raises:
        DecodeError: If it is not JSON.
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
        text: JSON object. It must be valid JSON: see `check_json`.
        name: Name of the field.

    Raises:
        DecodeError: If the text is not an object.
    """
    # Replace each array or object in a field by an array with its index.
    spans: list[tuple[int, int]] = []
    parts: list[bytes] = []
    start = copied = 0
    for at, before, after in _brackets(text):
        if (before, after) == (1, 2):
            parts.append(b"%b[%d]" % (text[copied:at], len(spans)))
            start = at
        elif (before, after) == (2, 1):
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
    """Split a text into texts of at most `LEVELS` levels each, the outermost last.

    If the brackets of the text do not match, those of the outermost part do not either.
    """
    # Parts of the current layer and those around it, outermost first.
    layers: list[list[bytes]] = [[]]
    copied = 0
    for at, before, after in _brackets(text):
        if before < after and after % LEVELS == 0:
            layers[-1] += text[copied:at], b"null"
            layers.append([])
            copied = at
        elif before > after and before % LEVELS == 0 and len(layers) > 1:
            yield b"".join((*layers.pop(), text[copied : at + 1]))
            copied = at + 1

    yield b"".join((*layers[0], text[copied:]))


def _brackets(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield for each bracket its position, the depth before it and the depth after it."""
    depth = 0
    for found in _TOKENS.finditer(text):
        at = found.start()
        token = text[at]
        if token != _QUOTE:
            before = depth
            depth += 1 if token in _OPENING else -1
            yield at, before, depth
