"""Decoding of built-in kinds from Protocol Buffers to JSON. Pure.

The encoding has numbers instead of field names, and cannot represent missing values.
Both come from the Go types of Kubernetes in `fields.json`. There, a field has a number,
its name in JSON, its type, and flags:

    o  an empty value is omitted from JSON (`omitempty`)
    z  an empty struct is omitted, too (`omitzero`)
    i  the fields of this struct are inlined (`inline`)

A type is a Go type, the name of another message, or one of them after `list:`, `map:`
(with string keys) or `items:` (a list that is a message of its own).
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["UnknownKindError", "decode_object", "fields", "to_signed", "varints"]

_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Options belong to no group, regardless of the request.
_OPTIONS = "DeleteOptions"
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MOST_BITS = 64


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message, in order.

    Values of a fixed length are bytes, like those of a variable length.

    Raises:
        ValueError: For a malformed message, with the text of Go.
    """
    place = 0
    while place < len(raw):
        key, place = _varint(raw, place)
        number, wire_type = key >> 3, key & 7
        if not number:
            raise ValueError(f"proto: illegal tag 0 (wire type {wire_type})")

        if wire_type == _VARINT:
            value, place = _varint(raw, place)
            yield number, value
            continue

        length, place = _length(raw, place, wire_type)
        if place + length > len(raw):
            raise ValueError("unexpected EOF")

        yield number, raw[place : place + length]
        place += length


def varints(raw: bytes) -> Iterator[int]:
    """Yield the numbers in a packed field.

    Raises:
        ValueError: If the last one is incomplete.
    """
    place = 0
    while place < len(raw):
        value, place = _varint(raw, place)
        yield value


def to_signed(value: int) -> int:
    """Convert an unsigned number of 64 bits to a signed one.

    Example:
        >>> to_signed(2**64 - 1)
        -1
    """
    return int(struct.unpack("<q", struct.pack("<Q", value))[0])


def _length(raw: bytes, place: int, wire_type: int) -> tuple[int, int]:
    """Return the length and the position of a value."""
    if wire_type == _BYTES:
        return _varint(raw, place)

    if wire_type == _EIGHT_BYTES:
        return 8, place

    if wire_type == _FOUR_BYTES:
        return 4, place

    raise ValueError(f"proto: illegal wireType {wire_type}")


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """Return the number at `place`, and the position after it."""
    value = 0
    for shift in range(0, _MOST_BITS, 7):
        if place >= len(raw):
            raise ValueError("unexpected EOF")

        byte = raw[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**_MOST_BITS - 1), place

    raise ValueError("proto: integer overflow")


class UnknownKindError(LookupError):
    """The kind is not built in, and so has no Protocol Buffers encoding."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decode an object of a built-in kind, with its `apiVersion` and `kind`.

    Raises:
        ValueError: For a malformed object, with the text of a real server.
        UnknownKindError: For other kinds.
    """
    if not raw:
        raise ValueError("empty data")

    if not raw.startswith(_MAGIC):
        raise ValueError(
            "provided data does not appear to be a protobuf message, expected prefix "
            f"[{' '.join(str(it) for it in _MAGIC)}]"
        )

    if raw == _MAGIC:
        raise ValueError("empty body")

    envelope = _bytes_of(raw[len(_MAGIC) :])
    head = _bytes_of(envelope.get(1, b""))
    api_version, kind = (_text(head.get(number, b"")) for number in (1, 2))
    body = _message(_message_of(api_version, kind), envelope.get(2, b""))
    return {"apiVersion": api_version, "kind": kind, **body}


def _bytes_of(raw: bytes) -> dict[int, bytes]:
    return {number: it for number, it in fields(raw) if isinstance(it, bytes)}


# ---------------------------------------------------------------- descriptions


class _Tables(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, str]


class _Field(NamedTuple):
    name: str
    type: str
    flags: str


@cache
def _tables() -> _Tables:
    """Load `fields.json` (57 KB) on first use."""
    raw = files(__package__).joinpath("fields.json").read_bytes()
    return msgspec.json.decode(raw, type=_Tables)


def _message_of(api_version: str, kind: str) -> str:
    kinds = _tables().kinds
    name = kinds.get(f"{'v1' if kind == _OPTIONS else api_version}/{kind}")
    if name is None:
        raise UnknownKindError(f"{api_version}/{kind}")

    return name


@cache
def _fields_of(message: str) -> Mapping[int, _Field]:
    """Parse the description of a message: `1 name string, 2 volumeSource ... i`."""
    found: dict[int, _Field] = {}
    for text in filter(None, _tables().messages[message].split(", ")):
        number, name, kind, *flags = text.split(" ")
        found[int(number)] = _Field(name, kind, "".join(flags))

    return found


# ---------------------------------------------------------------- values


def _message(name: str, raw: bytes) -> dict[str, Any]:
    known = _fields_of(name)
    body: dict[str, Any] = {}
    for number, value in fields(raw):
        field = known.get(number)
        # Unknown fields come from newer clients. Like Go, skip them.
        if field is not None:
            _add(body, field, value)

    for field in known.values():
        if _is_null_if_missing(field):
            body.setdefault(field.name, None)

    return body


def _is_null_if_missing(field: _Field) -> bool:
    """Return whether a missing value is null in JSON: in Go, a nil slice or map."""
    return field.type.startswith(("list:", "map:")) and "o" not in field.flags


def _add(body: dict[str, Any], field: _Field, value: int | bytes) -> None:
    form, _, inner = field.type.partition(":")
    if form == "list":
        body.setdefault(field.name, []).extend(_elements(inner, value))
    elif form == "map":
        entry = dict(fields(_as_bytes(value)))
        key = _text(_as_bytes(entry.get(1, b"")))
        body.setdefault(field.name, {})[key] = _value(inner, entry.get(2))
    elif "i" in field.flags:
        body.update(_message(field.type, _as_bytes(value)))
    else:
        read = _value(field.type, value)
        if not _is_omitted(field, read):
            body[field.name] = read


def _elements(kind: str, value: int | bytes) -> list[Any]:
    """Return the elements of one field of a list; numbers may be packed."""
    if kind in _NUMBERS and isinstance(value, bytes):
        return [_NUMBERS[kind](it) for it in varints(value)]

    return [_value(kind, value)]


def _is_omitted(field: _Field, read: Any) -> bool:
    if read is None or isinstance(read, dict):
        return not read and "z" in field.flags

    return not read and "o" in field.flags and field.type != "IntOrString"


def _value(kind: str, value: int | bytes | None) -> Any:
    """Decode one value; None is a missing value in an entry of a map."""
    if kind in _NUMBERS:
        if isinstance(value, bytes):
            raise ValueError(f"proto: wrong wireType = 2 for a number of type {kind}")

        return _NUMBERS[kind](value or 0)

    raw = b"" if value is None else _as_bytes(value)
    if kind in _READERS:
        return _READERS[kind](raw)

    form, _, inner = kind.partition(":")
    if form == "items":
        return [_value(inner, it) for _, it in fields(raw)]

    return _message(kind, raw)


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("proto: wrong wireType = 0 for a field of bytes")

    return value


def _text(raw: bytes) -> str:
    # Go accepts any bytes in a string, and JSON replaces invalid UTF-8.
    return raw.decode("utf-8", "replace")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _time(raw: bytes) -> str | None:
    return _format_time(raw, "seconds")


def _micro_time(raw: bytes) -> str | None:
    return _format_time(raw, "microseconds")


def _format_time(raw: bytes, unit: str) -> str | None:
    moment = _moment(raw)
    if moment is None:
        return None

    return f"{moment.replace(tzinfo=None).isoformat(timespec=unit)}Z"


def _moment(raw: bytes) -> datetime | None:
    """Decode seconds and nanoseconds; None if both are missing."""
    parts = {number: it for number, it in fields(raw) if isinstance(it, int)}
    seconds, nanoseconds = to_signed(parts.get(1, 0)), to_signed(parts.get(2, 0))
    if not seconds and not nanoseconds:
        return None

    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError as exc:
        raise ValueError(f"timestamp out of range: {seconds} s after 1970") from exc


def _quantity(raw: bytes) -> str:
    return _text(_bytes_of(raw).get(1, b"0"))


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(fields(raw))
    if parts.get(1):
        return _text(_as_bytes(parts.get(3, b"")))

    number: int = _value("int32", parts.get(2))
    return number


def _embedded(raw: bytes) -> Any:
    """Decode embedded JSON."""
    inner = _bytes_of(raw).get(1)
    return json_codec.loads(inner) if inner else None


_NUMBERS: dict[str, Callable[[Any], int | bool]] = {
    "int32": to_signed,
    "int64": to_signed,
    "bool": bool,
}

_READERS: dict[str, Callable[[bytes], Any]] = {
    "string": _text,
    "bytes": _base64,
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "FieldsV1": _embedded,
}
