"""The functions of orjson that `json_codec` needs, made of msgspec's JSON.

msgspec is less strict than orjson, and encodes more types. The differences are removed
here, which makes encoding slower: it first copies the value.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import re
import uuid
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OPT_INDENT_2", "OPT_SORT_KEYS", "dumps", "loads"]

# The values of orjson.
OPT_INDENT_2: Final = 1
OPT_SORT_KEYS: Final = 1 << 5

# Limits of orjson.
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_LEVELS_DECODED, _LEVELS_ENCODED = 1024, 254

_POSITION: Final = re.compile(r" \(byte (\d+)\)$")
_MANY_DIGITS: Final = re.compile(rb"\d{19}")
_NOT_UNICODE: Final = "str is not valid UTF-8: surrogates not allowed"


def loads(source: object, /) -> Any:
    """Decode a JSON text.

    Integers beyond 64 bits become floats.

    Args:
        source: JSON text as bytes, a bytearray, a memoryview or a string.

    Raises:
        JSONDecodeError: If it is not JSON, or nested too deeply: more than 1024 levels, or
            fewer if the stack of Python is smaller.
    """
    if not isinstance(source, bytes | bytearray | memoryview | str):
        message = "Input must be bytes, bytearray, memoryview, or str"
        raise JSONDecodeError(message, "", 0)

    try:
        text = source.encode() if isinstance(source, str) else bytes(source)
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _decode_error("depth limit exceeded", source, None) from None
    except UnicodeError:
        raise _decode_error(_NOT_UNICODE, source, 0) from None
    except msgspec.DecodeError as exc:
        found = _POSITION.search(str(exc))
        position = int(found[1]) if found else None
        raise _decode_error(_POSITION.sub("", str(exc)), source, position) from None

    brackets = text.count(b"[") + text.count(b"{")
    if brackets > _LEVELS_DECODED or _MANY_DIGITS.search(text):
        try:
            return _limited(value)
        except OverflowError as exc:
            raise _decode_error(str(exc), source, 0) from None

    return value


def dumps(
    value: Any,
    /,
    default: Callable[[Any], Any] | None = None,
    option: int | None = None,
) -> bytes:
    """Encode a value as JSON.

    Args:
        value: Value of dicts with strings as keys, lists, tuples, strings, numbers,
            enums, data classes, dates, times and UUIDs. Floats that JSON lacks are null.
        default: Function that converts values of other types.
        option: Sum of `OPT_INDENT_2` and `OPT_SORT_KEYS`.

    Raises:
        TypeError: If a value cannot be encoded, or is nested deeper than 254 levels.
    """
    option = option or 0
    order: Literal["deterministic"] | None = None
    if option & OPT_SORT_KEYS:
        order = "deterministic"

    try:
        text = msgspec.json.encode(_plain(value, default, 0), order=order)
    except (UnicodeError, RecursionError) as exc:
        unicode = isinstance(exc, UnicodeError)
        raise TypeError(
            _NOT_UNICODE if unicode else "Recursion limit reached"
        ) from None

    return msgspec.json.format(text, indent=2) if option & OPT_INDENT_2 else text


def _decode_error(
    message: str, source: bytes | bytearray | memoryview | str, position: int | None
) -> JSONDecodeError:
    """Return the error at a position in bytes; None for the end of the text."""
    if isinstance(source, str):
        source = source.encode(errors="replace")

    before = bytes(source[:position]).decode(errors="replace")
    text = before + bytes(source[len(source[:position]) :]).decode(errors="replace")
    return JSONDecodeError(message, text, len(before))


def _limited(value: Any) -> Any:
    """Return a decoded value with floats in place of integers beyond 64 bits.

    Raises:
        OverflowError: If a number is too large for a float, or the nesting is too deep.
    """
    whole = [value]
    layer: list[Any] = [whole]
    for _ in range(_LEVELS_DECODED + 1):
        below = []
        for parent in layer:
            entries = parent.items() if isinstance(parent, dict) else enumerate(parent)
            for key, child in list(entries):
                if isinstance(child, dict | list):
                    below.append(child)
                elif type(child) is int and not _SMALLEST <= child <= _LARGEST:
                    parent[key] = _float(child)
        layer = below
        if not layer:
            return whole[0]

    raise OverflowError("depth limit exceeded")


def _float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise OverflowError("number is infinity when parsed as double") from None


def _plain(value: Any, default: Callable[[Any], Any] | None, level: int) -> Any:
    """Return a value as msgspec encodes it like orjson.

    Raises:
        TypeError: If orjson does not encode it.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value

    if level > _LEVELS_ENCODED:
        raise TypeError("Recursion limit reached")

    if isinstance(value, enum.Enum):
        return _plain(value.value, default, level)

    if isinstance(value, str):
        return str.__str__(value)

    if isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise TypeError("Integer exceeds 64-bit range")
        return int(value)

    if kind is float:
        # orjson and Go write 1e+16 where msgspec writes 1e16.
        large = 1e16 <= abs(value) < math.inf
        return msgspec.Raw(repr(value).encode()) if large else value

    if isinstance(value, dict):
        if any(type(key) is not str for key in value):
            raise TypeError("Dict key must be str")
        return {key: _plain(it, default, level + 1) for key, it in value.items()}

    if isinstance(value, list) or kind is tuple:
        return [_plain(it, default, level + 1) for it in value]

    return _converted(value, default, level)


def _converted(value: Any, default: Callable[[Any], Any] | None, level: int) -> Any:
    """Return the encodable form of a value that is no part of JSON.

    Raises:
        TypeError: If it has none.
    """
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise TypeError("datetime.time must not have tzinfo set")

    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()

    if isinstance(value, uuid.UUID):
        return str(value)

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [it.name for it in dataclasses.fields(value)]
        shown = {it: getattr(value, it) for it in fields if not it.startswith("_")}
        return _plain(shown, default, level)

    message = f"Type is not JSON serializable: {type(value).__name__}"
    if default is None:
        raise TypeError(message)

    try:
        other = default(value)
    except Exception as exc:
        raise TypeError(message) from exc

    return _plain(other, default, level + 1)
