"""Go types: decoding of built-in objects like the structs of a real server.

Decoding into a struct and encoding it again gives stored objects their form: it drops
unknown fields and empty optional ones, and adds others. A decoder does the same to
decoded JSON. It takes a value, its path, and a list for messages about unknown fields.

A field path is a chain from the inside out, `(parent, piece, struct)`, so that
descending costs one tuple per level; text is made only for messages. `struct` is set
for fields of a Go struct, and empty for list items and map keys. After a dot it names
an embedded struct, which is part of the path.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.schema.openapi_schema import definition, go_fields
from aioinformer_apiserver.schema.quantities import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = [
    "Decoder",
    "FieldPath",
    "GoDecodeError",
    "StructDecoder",
    "anything",
    "canonical_time",
    "integer",
    "of_class",
    "path_of",
    "special",
    "struct_decoder",
    "type_mismatch",
    "unknown_field",
    "with_zero_values",
]

FieldPath: TypeAlias = "tuple[FieldPath, str | int, str] | None"
_WORDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}


class GoDecodeError(Exception):
    """A value has a wrong type, in the words of the decoder of Go."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


# ------------------------------------------------------------------ paths


def path_of(at: FieldPath) -> str:
    """Format a path as Kubernetes does: `spec.containers[0].name`."""
    pieces: list[str] = []
    while at is not None:
        at, piece, _ = at
        pieces.append(f"[{piece}]" if isinstance(piece, int) else f".{piece}")

    return "".join(reversed(pieces)).removeprefix(".")


def unknown_field(at: FieldPath) -> str:
    """Return the message about an unknown field."""
    return f"unknown field {quote(path_of(at))}"


def type_mismatch(value: object, at: FieldPath, expected: str) -> GoDecodeError:
    """Make the error of a value of a wrong JSON type.

    Args:
        value: Value that was found.
        at: Path of the value.
        expected: Go type of the field. Numbers are shown if it is a number.
    """
    word = _WORDS.get(type(value), "null")
    if word == "number" and expected.startswith(("int", "uint", "float")):
        word = f"number {value}"

    fields: list[str] = []
    owner = ""
    while at is not None:
        at, piece, struct = at
        if struct:
            name, _, included = struct.partition(".")
            fields += [str(piece), included] if included else [str(piece)]
            owner = owner or name

    path = ".".join(reversed(fields))
    where = f"struct field {owner}.{path} of" if owner else "value of"
    return GoDecodeError(
        f"json: cannot unmarshal {word} into Go {where} type {expected}"
    )


# ------------------------------------------------------------------ times


_SECONDS = "2006-01-02T15:04:05Z07:00"
_MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"
# Elements of these two Go layouts, and the text that each accepts.
_ELEMENTS = re.compile(r"2006|01|02|15|04|05|\.000000|Z07:00|.")
_ACCEPTED = {
    "2006": r"\d{4}",
    "01": r"\d{2}",
    "02": r"\d{2}",
    "15": r"\d{2}",
    "04": r"\d{2}",
    "05": r"\d{2}",
    ".000000": r"\.\d{6}",
    "Z07:00": r"Z|[+-]\d{2}:\d{2}",
}

_RANGES = {
    "01": (1, 12, "month"),
    "15": (0, 23, "hour"),
    "04": (0, 59, "minute"),
    "05": (0, 59, "second"),
}


@lru_cache(maxsize=4096)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """Format a time as the server stores it: in UTC, to the second.

    Args:
        text: Time in the format of RFC 3339, in any zone.
        micro: Whether it has microseconds, as in a Lease; they are then required.

    Raises:
        ValueError: If the text is not such a time; the message is the server's.
    """
    layout = _MICROSECONDS if micro else _SECONDS
    _check(text, layout)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise ValueError(f'parsing time "{text}": day out of range') from None

    shown = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{shown}.{moment.microsecond:06}Z" if micro else f"{shown}Z"


def _check(text: str, layout: str) -> None:
    """Parse a time by its Go layout, element by element."""
    rest = text
    for element in _ELEMENTS.findall(layout):
        accepted = _ACCEPTED.get(element, re.escape(element))
        found = re.match(accepted, rest)
        if not found:
            raise ValueError(
                f'parsing time "{text}" as "{layout}": '
                f'cannot parse "{rest}" as "{element}"'
            )

        low, high, name = _RANGES.get(element, (0, 0, ""))
        if name and not low <= int(found[0]) <= high:
            raise ValueError(f'parsing time "{text}": {name} out of range')

        if element == "Z07:00" and found[0][1:3] > "24":
            why = "time zone offset hour out of range"
            raise ValueError(f'parsing time "{text}": {why}')

        rest = rest[found.end() :]
        if element == "05" and layout == _SECONDS:
            # Go accepts a fraction after the seconds, even if the layout
            # has none.
            rest = re.sub(r"^[.,]\d+", "", rest)

    if rest:
        raise ValueError(f'parsing time "{text}": extra text: "{rest}"')


Decoder: TypeAlias = Callable[[Any, FieldPath, list[str]], Any]
# ------------------------------------------------------------------ scalars


_BITS = {"int32": 31, "int64": 63}
_INT64 = 2**63
_INVALID_BASE64 = "illegal base64 data at input byte"


def anything(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a value of any type."""
    return value


def of_class(expected: type, go_type: str) -> Decoder:
    """Make a decoder of one class of JSON values."""

    def read(value: Any, at: FieldPath, notes: list[str]) -> Any:
        if value is None:
            return expected()

        if value.__class__ is not expected:
            raise type_mismatch(value, at, go_type)

        return value

    return read


def integer(go_type: str, bits: str) -> Decoder:
    """Make a decoder of integers of a certain size."""
    limit = 1 << _BITS.get(bits, 63)

    def read(value: Any, at: FieldPath, notes: list[str]) -> Any:
        if value is None:
            return 0

        if value.__class__ is not int or not -limit <= value < limit:
            raise type_mismatch(value, at, go_type)

        return value

    return read


def number(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a number; whole numbers lose their fraction."""
    if value.__class__ not in {int, float}:
        raise type_mismatch(value, at, "float64")

    return plain_number(value)


def plain_number(value: float) -> float:
    """Return a number as Go writes it; whole numbers lose their fraction."""
    whole = value.__class__ is float and value.is_integer() and abs(value) < _INT64
    return int(value) if whole else value


def time(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a Time."""
    return _canonicalize(_text(value, at), canonical_time)


def micro_time(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a MicroTime."""
    return _canonicalize(_text(value, at), lambda it: canonical_time(it, micro=True))


def quantity(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a quantity from a string or number."""
    text = value if isinstance(value, str) else json.dumps(value)
    return "0" if value is None else _canonicalize(text, canonical_quantity)


def int_or_string(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode an integer or string, such as a port."""
    if value.__class__ is str:
        return value

    return integer("int32", "int32")(value, at, notes)


def octets(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode base64 data."""
    if value is None:
        return ""

    if not isinstance(value, str):
        raise type_mismatch(value, at, "[]uint8")

    # Line breaks are allowed anywhere, other characters nowhere.
    text = value.replace("\n", "").replace("\r", "")
    try:
        return b64encode(b64decode(text, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise GoDecodeError(f"{_INVALID_BASE64} {_first_bad_byte(value)}") from None


def special(name: str) -> Decoder | None:
    """Return the decoder of a definition that is not a plain struct; None for others.

    Args:
        name: Last part of the definition's name, such as `"Time"`.
    """
    return _SPECIAL.get(name)


def _text(value: Any, at: FieldPath) -> str:
    if value.__class__ is not str:
        raise type_mismatch(value, at, "string")

    return str(value)


def _canonicalize(text: str, canonical: Callable[[str], str]) -> str:
    try:
        return canonical(text)
    except ValueError as exc:
        raise GoDecodeError(str(exc)) from exc


def _first_bad_byte(text: str) -> int:
    """Return where Go's decoder fails: an invalid character or incomplete end."""
    read = 0
    for index, letter in enumerate(text):
        if letter in "\r\n":
            continue

        if letter == "=" and read % 4 > 1:
            if read % 4 == 3:
                return index + 1

            # After two characters there must be a second padding.
            rest = text[index + 1 :]
            if rest.startswith("="):
                return index + 2

            return index if rest else len(text)

        if not (letter.isascii() and letter.isalnum()) and letter not in "+/":
            return index

        read += 1

    return len(text) - read % 4


_SPECIAL: Mapping[str, Decoder] = {
    "FieldsV1": anything,
    "IntOrString": int_or_string,
    "JSON": anything,
    "JSONSchemaPropsOrStringArray": anything,
    "MicroTime": micro_time,
    "Quantity": quantity,
    "RawExtension": anything,
    "Time": time,
}
# Classes of values that are stored as they are.
_PLAIN = {"string": str, "boolean": bool}
# Zero values by type. A missing list is null, not empty.
_ZEROS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0}
_ZEROS_OF_DEFINITIONS = {"Quantity": "0", "IntOrString": 0}
_NO_TIME = "1970-01-01T00:00:00Z"
_NO_MICRO_TIME = "1970-01-01T00:00:00.000000Z"
_TYPELESS = frozenset({"JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"})


class _Field(NamedTuple):
    plain: type | None
    """Class of values that need no decoding."""

    keeps_empty: bool
    """True if an empty value differs from a missing one."""

    read: Decoder

    owner: str
    """Name of the struct in errors, after a dot that of an embedded struct."""


# ------------------------------------------------------------------ structs


class StructDecoder:
    """Decoder of the objects of one definition.

    Args:
        name: Name of the definition, such as `"io.k8s.api.core.v1.PodSpec"`.
        lenient: Whether to keep unknown fields, and to write empty values for required
            fields that Go would write as null. No server accepts such an object, and
            typed clients cannot read it.
    """

    def __init__(self, name: str, *, lenient: bool = False) -> None:
        self._name = name
        self._lenient = lenient
        self._struct = name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"<StructDecoder {self._name}>"

    def __call__(self, value: Any, at: FieldPath, notes: list[str]) -> dict[str, Any]:
        """Decode one object.

        Args:
            value: Value as sent; null counts as empty.
            at: Path of the value.
            notes: List that receives messages about unknown fields.

        Raises:
            GoDecodeError: If this or a nested value has a wrong type.
        """
        if value is None:
            value = {}
        elif value.__class__ is not dict:
            raise type_mismatch(value, at, self.go_type)

        fields, found = self._fields, {}
        for name, it in value.items():
            field = fields.get(name)
            if field is None:
                notes.append(unknown_field((at, name, "")))
                if self._lenient and it is not None:
                    found[name] = it

                continue

            plain, keeps_empty, read, owner = field
            if it.__class__ is not plain:
                if it is None:
                    continue

                it = read(it, (at, name, owner), notes)

            if it or keeps_empty:
                found[name] = it

        for name, zero in self._always:
            if name not in found:
                found[name] = zero() if callable(zero) else zero

        return found

    @property
    def go_type(self) -> str:
        """Go type of the struct, such as `v1.PodSpec`."""
        return ".".join(self._name.split(".")[-2:])

    @cached_property
    def _fields(self) -> dict[str, _Field]:
        schema, types = definition(self._name), go_fields(self._name)
        fields: dict[str, _Field] = {}
        for name in schema.fields:
            child = schema.field(name)
            assert child is not None
            source, _, type_ = types.get(name, "/string").rpartition("/")
            fields[name] = _Field(
                plain=_plain(child),
                # Empty lists and maps count as missing.
                keeps_empty=(type_[0] == "*" or type_[-1] == "!")
                and not _is_collection(child),
                read=_decoder_of(child, type_.strip("*!"), self._lenient),
                owner=f"{self._struct}.{source}".rstrip("."),
            )

        return fields

    @cached_property
    def _always(self) -> list[tuple[str, Any]]:
        """Fields that Go always writes, and their zero values.

        A mutable zero value is a function that makes a new one.
        """
        schema, found = definition(self._name), {}
        for name, type_ in go_fields(self._name).items():
            child = schema.field(name)
            if type_[-1] == "!" and child is not None:
                pointer = type_.rpartition("/")[2][0] == "*"
                found[name] = None if pointer else _zero(child, self._lenient)

        for name in schema.required if self._lenient else ():
            child = schema.field(name)
            if child is not None and found.get(name) is None:
                found[name] = _empty(child)

        return [*found.items()]


@cache
def struct_decoder(name: str, *, lenient: bool = False) -> StructDecoder:
    """Return the decoder of a definition."""
    return StructDecoder(name, lenient=lenient)


def with_zero_values(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the fields that Go always writes, without unknown ones.

    Args:
        name: Name of the definition.
        body: Object; returned unchanged if a value has a wrong type.
    """
    try:
        return struct_decoder(name)(body, None, [])
    except GoDecodeError:
        return body


def _decoder_of(schema: Schema, go_type: str, lenient: bool) -> Decoder:
    """Make the decoder of values of a schema.

    Args:
        schema: Schema of the value.
        go_type: Go type of the value, shown in errors.
        lenient: Same as for `StructDecoder`.
    """
    if schema.name:
        return _definition_decoder(schema.name, lenient)

    if schema.items is not None:
        return _list_decoder(schema.items, go_type, lenient)

    if schema.values is not None:
        return _map_decoder(schema.values, go_type, lenient)

    match schema.type:
        case "integer":
            return integer(go_type, str(schema.text.get("format")))
        case "number":
            return number
        case "boolean":
            return of_class(bool, go_type)
        case "string" if schema.text.get("format") == "byte":
            return octets
        case "string":
            return of_class(str, go_type)
        case _:
            return anything


def _definition_decoder(name: str, lenient: bool) -> Decoder:
    last = name.rpartition(".")[2]
    if last in _TYPELESS:
        return _decode_schema_or_other

    return special(last) or struct_decoder(name, lenient=lenient)


def _list_decoder(schema: Schema, go_type: str, lenient: bool) -> Decoder:
    item = _decoder_of(schema, _inner(go_type, schema), lenient)
    plain = _plain(schema)

    def read(value: Any, at: FieldPath, notes: list[str]) -> Any:
        if value.__class__ is not list:
            raise type_mismatch(value, at, go_type)

        return [
            it if it.__class__ is plain else item(it, (at, index, ""), notes)
            for index, it in enumerate(value)
        ]

    return read


def _map_decoder(schema: Schema, go_type: str, lenient: bool) -> Decoder:
    item = _decoder_of(schema, _inner(go_type, schema), lenient)
    plain = _plain(schema)

    def read(value: Any, at: FieldPath, notes: list[str]) -> Any:
        if value.__class__ is not dict:
            raise type_mismatch(value, at, go_type)

        return {
            key: it if it.__class__ is plain else item(it, (at, key, ""), notes)
            for key, it in value.items()
        }

    return read


def _decode_schema_or_other(value: Any, at: FieldPath, notes: list[str]) -> Any:
    """Decode a JSON schema, or else a boolean or list of schemas.

    Its Go type has a lenient decoder: unknown fields in it are not reported.
    """
    if value.__class__ is not dict:
        return value

    package = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
    return struct_decoder(f"{package}.JSONSchemaProps")(value, at, [])


def _inner(go_type: str, schema: Schema) -> str:
    """Return the type of the items of `[]X` or `map[K]X`."""
    if go_type.startswith(("[]", "map[")):
        return go_type.partition("]")[2].removeprefix("*")

    # A named type, such as v1.ResourceList, does not contain the type of its items.
    return ".".join(schema.name.split(".")[-2:]) or schema.type


def _plain(schema: Schema) -> type | None:
    """Return the class of values that need no decoding, or None."""
    special = schema.name or schema.text.get("format") == "byte"
    return None if special else _PLAIN.get(schema.type)


def _is_collection(schema: Schema) -> bool:
    return not schema.name and schema.type in {"array", "object"}


def _zero(schema: Schema, lenient: bool) -> Any:
    """Return what Go writes for a value that was never set."""
    if not schema.name:
        return None if _is_collection(schema) else _ZEROS.get(schema.type)

    last = schema.name.rpartition(".")[2]
    if special(last) or last in _TYPELESS:
        return _ZEROS_OF_DEFINITIONS.get(last)

    return partial(struct_decoder(schema.name, lenient=lenient), {}, None, [])


def _empty(schema: Schema) -> Any:
    """Return an empty value for a required one that Go writes as null."""
    match schema.type:
        case "array":
            return list
        case "object":
            return _zero(schema, lenient=True) or dict
        case "string" if schema.text.get("format") == "date-time":
            return _NO_MICRO_TIME if schema.name.endswith("MicroTime") else _NO_TIME
        case _:
            return _ZEROS.get(schema.type)
