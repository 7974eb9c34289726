"""The wire format of Protocol Buffers, as far as it needs no description. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fields", "signed", "varints"]

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MOST_BITS = 64


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message, in order.

    What is of a fixed length comes as bytes, as whatever is of any length does.

    Raises:
        ValueError: If it is no message; the text is what Go says.
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
    """Yield numbers that are packed into one field.

    Raises:
        ValueError: If the last one is cut off.
    """
    place = 0
    while place < len(raw):
        value, place = _varint(raw, place)
        yield value


def signed(value: int) -> int:
    """Take a number for one that may be negative.

    Example:
        >>> signed(2**64 - 1)
        -1
    """
    return int(struct.unpack("<q", struct.pack("<Q", value))[0])


def _length(raw: bytes, place: int, wire_type: int) -> tuple[int, int]:
    """Return how long a value is, and where it begins."""
    if wire_type == _BYTES:
        return _varint(raw, place)

    if wire_type == _EIGHT_BYTES:
        return 8, place

    if wire_type == _FOUR_BYTES:
        return 4, place

    raise ValueError(f"proto: illegal wireType {wire_type}")


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at `place`, and where it ends."""
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
