"""Shapes: built-in objects as the Go structs they pass through on a real server.

Decoding into a struct and encoding it again is what gives the stored objects of typed
kinds their form: unknown fields are gone, so are empty optional ones, and a few others
appear. A shape does the same to decoded JSON.
"""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer_apiserver.schema import scalars
from aioinformer_apiserver.schema.builtin import definition, go_fields
from aioinformer_apiserver.schema.places import Mismatch, Place, mismatch, unknown_field

if TYPE_CHECKING:
    from aioinformer_apiserver.schema.nodes import Schema
    from aioinformer_apiserver.schema.scalars import Reader

__all__ = ["Struct", "filled", "struct_of"]

# Plain values that need no reading: of this class, they are what is stored.
_PLAIN = {"string": str, "boolean": bool}
# What a value of its type is when it is missing. A list is null, not empty.
_ZEROS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0}
_ZEROS_OF_DEFINITIONS = {"Quantity": "0", "IntOrString": 0}
_NO_TIME = "1970-01-01T00:00:00Z"
_NO_MICRO_TIME = "1970-01-01T00:00:00.000000Z"
_TYPELESS = frozenset({"JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"})


class _Field(NamedTuple):
    plain: type | None
    """Values of this class need no reading."""

    keeps_empty: bool
    """An empty value is not the same as a missing one."""

    read: Reader

    owner: str
    """Whose field it is, in errors; after a dot the struct that was included there."""


class Struct:
    """A reader of objects of one definition.

    Args:
        name: The definition, such as `"io.k8s.api.core.v1.PodSpec"`.
        sketch: Keep unknown fields, and write an empty value for a required field that
            Go would write as null. No server accepts such an object, and typed clients
            cannot read it.
    """

    def __init__(self, name: str, *, sketch: bool = False) -> None:
        self._name = name
        self._sketch = sketch
        self._struct = name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"<Struct {self._name}>"

    def __call__(self, value: Any, at: Place, notes: list[str]) -> dict[str, Any]:
        """Read one object.

        Args:
            value: What was sent; null counts as empty.
            at: Where it stands.
            notes: Takes the sentences about unknown fields.

        Raises:
            Mismatch: If a value, here or within, is of a type that does not fit.
        """
        if value is None:
            value = {}
        elif value.__class__ is not dict:
            raise mismatch(value, at, self.go_type)

        fields, found = self._fields, {}
        for name, it in value.items():
            field = fields.get(name)
            if field is None:
                notes.append(unknown_field((at, name, "")))
                if self._sketch and it is not None:
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
        """What Go calls it, such as `v1.PodSpec`."""
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
                # An empty list or map is not told from a missing one.
                keeps_empty=(type_[0] == "*" or type_[-1] == "!")
                and not _is_collection(child),
                read=_reader(child, type_.strip("*!"), self._sketch),
                owner=f"{self._struct}.{source}".rstrip("."),
            )

        return fields

    @cached_property
    def _always(self) -> list[tuple[str, Any]]:
        """The fields that are written even if missing, and their zero values.

        A zero value that can be changed is a function that makes a new one.
        """
        schema, found = definition(self._name), {}
        for name, type_ in go_fields(self._name).items():
            child = schema.field(name)
            if type_[-1] == "!" and child is not None:
                pointer = type_.rpartition("/")[2][0] == "*"
                found[name] = None if pointer else _zero(child, self._sketch)

        for name in schema.required if self._sketch else ():
            child = schema.field(name)
            if child is not None and found.get(name) is None:
                found[name] = _empty(child)

        return [*found.items()]


@cache
def struct_of(name: str, *, sketch: bool = False) -> Struct:
    """Return the shape of a definition."""
    return Struct(name, sketch=sketch)


def filled(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the fields that are written even if missing, and no others.

    Args:
        name: The definition.
        body: The object; one that holds what it cannot hold is returned as it is.
    """
    try:
        return struct_of(name)(body, None, [])
    except Mismatch:
        return body


def _reader(schema: Schema, go_type: str, sketch: bool) -> Reader:
    """Make the reader of values of a schema.

    Args:
        schema: Of the value.
        go_type: What Go calls its type; shown in errors.
        sketch: See `Struct`.
    """
    if schema.name:
        return _referred(schema.name, sketch)

    if schema.items is not None:
        return _list_of(schema.items, go_type, sketch)

    if schema.values is not None:
        return _map_of(schema.values, go_type, sketch)

    match schema.type:
        case "integer":
            return scalars.integer(go_type, str(schema.text.get("format")))
        case "number":
            return scalars.number
        case "boolean":
            return scalars.of_class(bool, go_type)
        case "string" if schema.text.get("format") == "byte":
            return scalars.octets
        case "string":
            return scalars.of_class(str, go_type)
        case _:
            return scalars.anything


def _referred(name: str, sketch: bool) -> Reader:
    last = name.rpartition(".")[2]
    if last in _TYPELESS:
        return _schema_or_other

    return scalars.special(last) or struct_of(name, sketch=sketch)


def _list_of(schema: Schema, go_type: str, sketch: bool) -> Reader:
    item = _reader(schema, _inner(go_type, schema), sketch)
    plain = _plain(schema)

    def read(value: Any, at: Place, notes: list[str]) -> Any:
        if value.__class__ is not list:
            raise mismatch(value, at, go_type)

        return [
            it if it.__class__ is plain else item(it, (at, index, ""), notes)
            for index, it in enumerate(value)
        ]

    return read


def _map_of(schema: Schema, go_type: str, sketch: bool) -> Reader:
    item = _reader(schema, _inner(go_type, schema), sketch)
    plain = _plain(schema)

    def read(value: Any, at: Place, notes: list[str]) -> Any:
        if value.__class__ is not dict:
            raise mismatch(value, at, go_type)

        return {
            key: it if it.__class__ is plain else item(it, (at, key, ""), notes)
            for key, it in value.items()
        }

    return read


def _schema_or_other(value: Any, at: Place, notes: list[str]) -> Any:
    """Read what is a JSON schema, or else a boolean or a list of schemas.

    Its Go type decodes for itself, leniently: unknown fields in it are not told.
    """
    if value.__class__ is not dict:
        return value

    package = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
    return struct_of(f"{package}.JSONSchemaProps")(value, at, [])


def _inner(go_type: str, schema: Schema) -> str:
    """Return the type of the items of `[]X` or `map[K]X`."""
    if go_type.startswith(("[]", "map[")):
        return go_type.partition("]")[2].removeprefix("*")

    # A named type, such as v1.ResourceList, does not tell.
    return ".".join(schema.name.split(".")[-2:]) or schema.type


def _plain(schema: Schema) -> type | None:
    """Return the class of values that need no reading, if there is one."""
    special = schema.name or schema.text.get("format") == "byte"
    return None if special else _PLAIN.get(schema.type)


def _is_collection(schema: Schema) -> bool:
    return not schema.name and schema.type in {"array", "object"}


def _zero(schema: Schema, sketch: bool) -> Any:
    """Return what Go writes for a value that was never set."""
    if not schema.name:
        return None if _is_collection(schema) else _ZEROS.get(schema.type)

    last = schema.name.rpartition(".")[2]
    if scalars.special(last) or last in _TYPELESS:
        return _ZEROS_OF_DEFINITIONS.get(last)

    return partial(struct_of(schema.name, sketch=sketch), {}, None, [])


def _empty(schema: Schema) -> Any:
    """Return an empty value for a required one that Go writes as null."""
    match schema.type:
        case "array":
            return list
        case "object":
            return _zero(schema, sketch=True) or dict
        case "string" if schema.text.get("format") == "date-time":
            return _NO_MICRO_TIME if schema.name.endswith("MicroTime") else _NO_TIME
        case _:
            return _ZEROS.get(schema.type)
