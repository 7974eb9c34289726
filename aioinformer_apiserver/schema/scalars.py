"""Scalars: values of the types that Go structs are made of, read from JSON.

Each reader takes a value, its place and the notes of what was left out, and returns the
value as it is stored.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from aioinformer_apiserver.schema.places import Mismatch, Place, mismatch
from aioinformer_apiserver.schema.quantities import canonical_quantity
from aioinformer_apiserver.schema.times import canonical_time

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Reader", "anything", "integer", "of_class", "special"]

Reader: TypeAlias = Callable[[Any, Place, list[str]], Any]

_BITS = {"int32": 31, "int64": 63}
_INT64 = 2**63
_INVALID_BASE64 = "illegal base64 data at input byte"


def anything(value: Any, at: Place, notes: list[str]) -> Any:
    """Read a value of any form."""
    return value


def of_class(expected: type, go_type: str) -> Reader:
    """Make a reader of one class of JSON values."""

    def read(value: Any, at: Place, notes: list[str]) -> Any:
        if value is None:
            return expected()

        if value.__class__ is not expected:
            raise mismatch(value, at, go_type)

        return value

    return read


def integer(go_type: str, bits: str) -> Reader:
    """Make a reader of integers of a certain size."""
    limit = 1 << _BITS.get(bits, 63)

    def read(value: Any, at: Place, notes: list[str]) -> Any:
        if value is None:
            return 0

        if value.__class__ is not int or not -limit <= value < limit:
            raise mismatch(value, at, go_type)

        return value

    return read


def number(value: Any, at: Place, notes: list[str]) -> Any:
    """Read a number; a whole one is written without a fraction."""
    if value.__class__ not in {int, float}:
        raise mismatch(value, at, "float64")

    return plain_number(value)


def plain_number(value: float) -> float:
    """Return a number as Go writes it, a whole one without a fraction."""
    whole = value.__class__ is float and value.is_integer() and abs(value) < _INT64
    return int(value) if whole else value


def time(value: Any, at: Place, notes: list[str]) -> Any:
    """Read a time to the second."""
    return _in_words(_text(value, at), canonical_time)


def micro_time(value: Any, at: Place, notes: list[str]) -> Any:
    """Read a time to the microsecond."""
    return _in_words(_text(value, at), lambda it: canonical_time(it, micro=True))


def quantity(value: Any, at: Place, notes: list[str]) -> Any:
    """Read a quantity, given as text or as a number."""
    text = value if isinstance(value, str) else json.dumps(value)
    return "0" if value is None else _in_words(text, canonical_quantity)


def int_or_string(value: Any, at: Place, notes: list[str]) -> Any:
    """Read what may be an integer or text, such as a port."""
    if value.__class__ is str:
        return value

    return integer("int32", "int32")(value, at, notes)


def octets(value: Any, at: Place, notes: list[str]) -> Any:
    """Read base64."""
    if value is None:
        return ""

    if not isinstance(value, str):
        raise mismatch(value, at, "[]uint8")

    # Line ends may stand anywhere, other characters nowhere.
    text = value.replace("\n", "").replace("\r", "")
    try:
        return b64encode(b64decode(text, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise Mismatch(f"{_INVALID_BASE64} {_first_bad_byte(value)}") from None


def special(name: str) -> Reader | None:
    """Return the reader of a definition that is not a plain struct; None of others.

    Args:
        name: The last part of the definition's name, such as `"Time"`.
    """
    return _SPECIAL.get(name)


def _text(value: Any, at: Place) -> str:
    if value.__class__ is not str:
        raise mismatch(value, at, "string")

    return str(value)


def _in_words(text: str, canonical: Callable[[str], str]) -> str:
    try:
        return canonical(text)
    except ValueError as exc:
        raise Mismatch(str(exc)) from exc


def _first_bad_byte(text: str) -> int:
    """Say where Go's decoder gives up: at a foreign character, or an incomplete end."""
    read = 0
    for index, letter in enumerate(text):
        if letter in "\r\n":
            continue

        if letter == "=" and read % 4 > 1:
            if read % 4 == 3:
                return index + 1

            # After two letters there must be another one.
            rest = text[index + 1 :]
            if rest.startswith("="):
                return index + 2

            return index if rest else len(text)

        if not (letter.isascii() and letter.isalnum()) and letter not in "+/":
            return index

        read += 1

    return len(text) - read % 4


_SPECIAL: Mapping[str, Reader] = {
    "FieldsV1": anything,
    "IntOrString": int_or_string,
    "JSON": anything,
    "JSONSchemaPropsOrStringArray": anything,
    "MicroTime": micro_time,
    "Quantity": quantity,
    "RawExtension": anything,
    "Time": time,
}
