"""OpenAPI schemas: views of a schema's text, and the schemas of built-in kinds.

Child schemas are made on first use, because a schema may contain itself (that of
CustomResourceDefinition does). The schemas of built-in kinds come from a file that a
real server of version 1.36 has written, and that is read on first use.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model import Resource

__all__ = ["Schema", "definition", "definitions", "go_fields", "schema_of"]

_REF = "$ref"
_NOTHING: Mapping[str, Any] = {}


class Schema:
    """Schema of one value: its type, its children, and its merge strategy.

    Args:
        text: OpenAPI schema, or a reference `{"$ref": ".../name"}`. The reference may
            also be the only member of `allOf`, next to a `default`.
        definitions: Targets of references, by the last part of their path.
    """

    def __init__(
        self, text: Mapping[str, Any], definitions: Mapping[str, Any] = _NOTHING
    ) -> None:
        self._definitions = definitions
        self._text, self._name = _resolve(text, definitions)
        self._made: dict[str, Schema] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.type or 'any'} {sorted(self.text_of('properties'))}>"

    @property
    def text(self) -> Mapping[str, Any]:
        """OpenAPI text with references resolved on this level; must not be changed."""
        return self._text

    @property
    def name(self) -> str:
        """Name of the referred definition; empty if the text is inline."""
        return self._name

    def text_of(self, field: str) -> Mapping[str, Any]:
        """Return a mapping of the text, such as `"properties"`; empty if missing."""
        found = self._text.get(field)
        return found if isinstance(found, dict) else _NOTHING

    # ---------------------------------------------------------------- properties

    @cached_property
    def type(self) -> str:
        """`"object"`, `"array"`, `"string"`, ...; empty if any type is allowed."""
        return str(self._text.get("type") or "")

    @cached_property
    def nullable(self) -> bool:
        """Whether an explicit null is kept."""
        return bool(self._text.get("nullable"))

    @cached_property
    def int_or_string(self) -> bool:
        """Whether both integers and strings are allowed."""
        return bool(
            self._text.get("x-kubernetes-int-or-string")
            or self._text.get("format") == "int-or-string"
        )

    @cached_property
    def embedded(self) -> bool:
        """Whether the value is a Kubernetes object with kind and metadata."""
        return bool(self._text.get("x-kubernetes-embedded-resource"))

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Names of the required properties."""
        return tuple(self._text.get("required") or ())

    @cached_property
    def default(self) -> Any:
        """Value of a missing field; `msgspec.UNSET` without a default."""
        return self._text.get("default", msgspec.UNSET)

    # ---------------------------------------------------------------- children

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Names of the declared properties."""
        return tuple(self.text_of("properties"))

    def field(self, name: str) -> Schema | None:
        """Return the schema of a property or map value; None if it is unknown."""
        properties = self.text_of("properties")
        if name in properties:
            return self._child(name, properties[name])

        return self.values

    @cached_property
    def values(self) -> Schema | None:
        """Schema of a map's values; None if this is not a map."""
        text = self._text.get("additionalProperties")
        return Schema(text, self._definitions) if isinstance(text, dict) else None

    @cached_property
    def items(self) -> Schema | None:
        """Schema of a list's items; None if this is not a list."""
        text = self._text.get("items")
        return Schema(text, self._definitions) if isinstance(text, dict) else None

    def with_text(self, text: Mapping[str, Any]) -> Schema:
        """Make a schema of a text within this one, such as one of `anyOf`."""
        return Schema(text, self._definitions)

    def _child(self, name: str, text: Mapping[str, Any]) -> Schema:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = Schema(text, self._definitions)

        return made

    # ---------------------------------------------------------------- merging

    @cached_property
    def list_type(self) -> Literal["atomic", "set", "map"]:
        """List type for server-side apply: owned as a whole, by value, or by key."""
        given = self._text.get("x-kubernetes-list-type")
        return given if given in {"set", "map"} else "atomic"

    @cached_property
    def list_keys(self) -> tuple[str, ...]:
        """Key fields of the items of a `"map"` list."""
        return tuple(self._text.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def atomic_map(self) -> bool:
        """Whether server-side apply owns an object as a whole."""
        return self._text.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def patch_strategies(self) -> frozenset[str]:
        """Strategies of a strategic merge patch: `"merge"`, `"retainKeys"`, ..."""
        given = str(self._text.get("x-kubernetes-patch-strategy") or "")
        return frozenset(given.split(",")) - {""}

    @cached_property
    def patch_key(self) -> str:
        """Merge key of list items in a strategic merge patch."""
        return str(self._text.get("x-kubernetes-patch-merge-key") or "")


def _resolve(
    text: Mapping[str, Any], definitions: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """Return the referred text, merged with fields beside references, and its name."""
    name = ""
    while True:
        if _REF in text:
            reference, with_text = (
                text[_REF],
                {k: v for k, v in text.items() if k != _REF},
            )
        elif len(text.get("allOf") or ()) == 1 and _REF in text["allOf"][0]:
            reference = text["allOf"][0][_REF]
            with_text = {k: v for k, v in text.items() if k != "allOf"}
        else:
            return text, name

        name = reference.rpartition("/")[2]
        text = {**definitions[name], **with_text}


_REFERENCE = "#/components/schemas/"


class _Tables(msgspec.Struct):
    definitions: dict[str, dict[str, Any]]
    kinds: dict[str, str]
    fields: dict[str, dict[str, str]]


# ------------------------------------------------------------------ built-in kinds


def schema_of(resource: Resource) -> Schema | None:
    """Return the schema of a built-in kind; None for other kinds.

    The first call reads the file (about 250 KB); results are cached.

    Args:
        resource: Resource; its group, version and kind count.
    """
    return _schema(f"{resource.api_version}/{resource.kind}")


def definitions() -> Mapping[str, dict[str, Any]]:
    """Return the OpenAPI definitions, without descriptions; must not be changed.

    They refer to each other by `{"$ref": "#/components/schemas/<name>"}`. They include
    all kinds and their lists, and Scale, DeleteOptions, Status and Eviction.
    """
    return _tables().definitions


@cache
def definition(name: str) -> Schema:
    """Return the schema of one definition.

    Args:
        name: Name of the definition, such as `"io.k8s.api.core.v1.PodSpec"`.

    Raises:
        KeyError: If there is no such definition.
    """
    return Schema({"$ref": _REFERENCE + name}, definitions())


def go_fields(name: str) -> Mapping[str, str]:
    """Return the Go types of a definition's fields; empty if it is not a struct.

    A leading `*` is a pointer, which keeps an empty value. A trailing `!` means that a
    missing value is written. Before a `/` is the name of the embedded struct that the
    field comes from.

    Args:
        name: Name of the definition, such as `"io.k8s.api.core.v1.PodSpec"`.
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
