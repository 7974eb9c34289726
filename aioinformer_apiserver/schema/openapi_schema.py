"""Nodes: what is known about one value of an object, read from OpenAPI when asked.

A schema is a view of its OpenAPI text; children are made when somebody walks there, so
that schemas may contain themselves (a CustomResourceDefinition holds one).
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.resource import Resource

__all__ = ["Schema", "definition", "definitions", "go_fields", "schema_of"]


_REF = "$ref"


_NOTHING: Mapping[str, Any] = {}


class Schema:
    """What is known about one value: its type, its children, how it is merged.

    Args:
        text: The OpenAPI schema, or a reference `{"$ref": ".../name"}` to one, also as
            the only member of `allOf`, beside which a `default` may stand.
        definitions: Where references lead, by the last part of their path.
    """

    def __init__(
        self, text: Mapping[str, Any], definitions: Mapping[str, Any] = _NOTHING
    ) -> None:
        self._definitions = definitions
        self._text, self._name = _resolved(text, definitions)
        self._made: dict[str, Schema] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.type or 'any'} {sorted(self.text_of('properties'))}>"

    @property
    def text(self) -> Mapping[str, Any]:
        """The OpenAPI text, its references resolved on this level; not to be changed."""
        return self._text

    @property
    def name(self) -> str:
        """The name of the definition that the text refers to; empty if it is inline."""
        return self._name

    def text_of(self, field: str) -> Mapping[str, Any]:
        """Return a mapping of the text, such as `"properties"`; empty if missing."""
        found = self._text.get(field)
        return found if isinstance(found, dict) else _NOTHING

    # ---------------------------------------------------------------- what it is

    @cached_property
    def type(self) -> str:
        """`"object"`, `"array"`, `"string"`, ...; empty where any value may stand."""
        return str(self._text.get("type") or "")

    @cached_property
    def nullable(self) -> bool:
        """An explicit null is kept."""
        return bool(self._text.get("nullable"))

    @cached_property
    def int_or_string(self) -> bool:
        """Both an integer and a string may stand here."""
        return bool(
            self._text.get("x-kubernetes-int-or-string")
            or self._text.get("format") == "int-or-string"
        )

    @cached_property
    def embedded(self) -> bool:
        """The value is an object of Kubernetes itself, with a kind and metadata."""
        return bool(self._text.get("x-kubernetes-embedded-resource"))

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The properties that must be present."""
        return tuple(self._text.get("required") or ())

    @cached_property
    def default(self) -> Any:
        """What a missing value becomes; `msgspec.UNSET` if it stays missing."""
        return self._text.get("default", msgspec.UNSET)

    # ---------------------------------------------------------------- its children

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the properties that are described."""
        return tuple(self.text_of("properties"))

    def field(self, name: str) -> Schema | None:
        """Return the schema of a property or, in a map, of a value; None if unknown."""
        properties = self.text_of("properties")
        if name in properties:
            return self._child(name, properties[name])

        return self.values

    @cached_property
    def values(self) -> Schema | None:
        """The schema of a map's values; None if this is no map."""
        text = self._text.get("additionalProperties")
        return Schema(text, self._definitions) if isinstance(text, dict) else None

    @cached_property
    def items(self) -> Schema | None:
        """The schema of a list's items; None if this is no list."""
        text = self._text.get("items")
        return Schema(text, self._definitions) if isinstance(text, dict) else None

    def beside(self, text: Mapping[str, Any]) -> Schema:
        """Make a schema of a text that belongs to this one, such as one of `anyOf`."""
        return Schema(text, self._definitions)

    def _child(self, name: str, text: Mapping[str, Any]) -> Schema:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = Schema(text, self._definitions)

        return made

    # ---------------------------------------------------------------- how it merges

    @cached_property
    def list_type(self) -> Literal["atomic", "set", "map"]:
        """How server-side apply owns a list: as a whole, by value, or by key."""
        given = self._text.get("x-kubernetes-list-type")
        return given if given in {"set", "map"} else "atomic"

    @cached_property
    def list_keys(self) -> tuple[str, ...]:
        """The fields that tell the items of a `"map"` list apart."""
        return tuple(self._text.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def atomic_map(self) -> bool:
        """Server-side apply owns an object as a whole."""
        return self._text.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def patch_strategies(self) -> frozenset[str]:
        """How a strategic merge patch treats it: `"merge"`, `"retainKeys"`, ..."""
        given = str(self._text.get("x-kubernetes-patch-strategy") or "")
        return frozenset(given.split(",")) - {""}

    @cached_property
    def patch_key(self) -> str:
        """By which field a strategic merge patch tells a list's items apart."""
        return str(self._text.get("x-kubernetes-patch-merge-key") or "")


def _resolved(
    text: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """Follow references; what stands beside one is kept. Returns the last one, too."""
    name = ""
    while True:
        if _REF in text:
            reference, beside = text[_REF], {k: v for k, v in text.items() if k != _REF}
        elif len(text.get("allOf") or ()) == 1 and _REF in text["allOf"][0]:
            reference = text["allOf"][0][_REF]
            beside = {k: v for k, v in text.items() if k != "allOf"}
        else:
            return text, name

        name = reference.rpartition("/")[2]
        text = {**definitions[name], **beside}


_REFERENCE = "#/components/schemas/"


class _Tables(msgspec.Struct):
    definitions: dict[str, dict[str, Any]]
    kinds: dict[str, str]
    fields: dict[str, dict[str, str]]


def schema_of(resource: Resource) -> Schema | None:
    """Return what is known about the objects of a built-in kind; None of other kinds.

    The first call reads the file (about 250 KB); the answers are kept.

    Args:
        resource: Its group, version and kind count.
    """
    return _schema(f"{resource.api_version}/{resource.kind}")


def definitions() -> Mapping[str, dict[str, Any]]:
    """Return the OpenAPI definitions, without descriptions; not to be changed.

    They refer to each other by `{"$ref": "#/components/schemas/<name>"}`. Besides the
    kinds themselves there are their lists, and Scale, DeleteOptions, Status, Eviction.
    """
    return _tables().definitions


@cache
def definition(name: str) -> Schema:
    """Return the schema of one definition.

    Args:
        name: Such as `"io.k8s.api.core.v1.PodSpec"`.

    Raises:
        KeyError: If there is none of this name.
    """
    return Schema({"$ref": _REFERENCE + name}, definitions())


def go_fields(name: str) -> Mapping[str, str]:
    """Return the Go types of the fields of a definition; empty if it is no struct.

    A leading `*` is a pointer, which keeps an empty value; a trailing `!` says that a
    missing value is written out. Before a `/` stands the struct that the field comes
    from, where the definition includes another.

    Args:
        name: Such as `"io.k8s.api.core.v1.PodSpec"`.
    """
    return _tables().fields.get(name, {})


@cache
def _schema(kind: str) -> Schema | None:
    name = _tables().kinds.get(kind)
    return definition(name) if name else None


@cache
def _tables() -> _Tables:
    text = files(__package__).joinpath("kubernetes.json").read_bytes()
    return msgspec.json.decode(text, type=_Tables)
