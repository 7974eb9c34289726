"""Decoding: bodies in the form in which their kind stores them.

Like the decoder of a real server, it drops and reports unknown fields,
rejects values of wrong types, and canonicalizes quantities and times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.schema.go_types import (
    FieldPath,
    GoDecodeError,
    path_of,
    plain_number,
    struct_decoder,
    unknown_field,
)

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.go_types import StructDecoder
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = [
    "METADATA",
    "DecodedObject",
    "decode",
    "decode_loosely",
    "decode_metadata",
    "prune",
    "strict_decoding_error",
]


@dataclass(frozen=True, slots=True)
class DecodedObject:
    """Body that fits its kind."""

    body: dict[str, Any]
    """New body; may share parts with the given one."""

    errors: tuple[str, ...]
    """Messages about dropped fields, such as `unknown field "spec.foo"`."""


def decode(
    schema: Schema, body: dict[str, Any], *, custom: bool = False
) -> DecodedObject:
    """Decode a body.

    Built-in kinds lose unknown fields, nulls, and empty values of optional fields. They
    gain the fields that Go always writes. Custom resources lose the nulls that their
    schema does not allow, and unknown fields unless it preserves them. Values of wrong
    types stay; `validate_custom_resource` reports them. Metadata is decoded in the same
    way for all kinds.

    Args:
        schema: Schema of the kind; for built-in kinds from `schema_of`.
        body: Object; not changed.
        custom: Whether the kind is a custom one.

    Raises:
        ApiError: 400 if a value has a wrong type; for custom resources only in
            metadata.
    """
    notes: list[str] = []
    try:
        found = (
            prune(schema, body, notes)
            if custom
            else struct_decoder(schema.name)(body, None, notes)
        )
    except GoDecodeError as exc:
        raise _decoding_error(schema, body, str(exc)) from exc

    return DecodedObject(found, tuple(notes))


def decode_loosely(schema: Schema, body: dict[str, Any]) -> dict[str, Any]:
    """Decode an arranged object of a built-in kind as far as possible.

    It gains the fields that a server always writes, and loses nulls and empty values of
    optional fields. Unknown fields stay.

    Args:
        schema: Schema of the kind, from `schema_of`.
        body: Object; not changed.

    Returns:
        A new object, or the given one if a value has a wrong type.
    """
    try:
        return struct_decoder(schema.name, lenient=True)(body, None, [])
    except GoDecodeError:
        return body


def decode_metadata(given: object) -> dict[str, Any]:
    """Decode the metadata of an object of any kind; null counts as empty.

    Raises:
        ApiError: 400 if a value has a wrong type.
    """
    try:
        return struct_decoder(METADATA)(given, (None, "metadata", "ObjectMeta"), [])
    except GoDecodeError as exc:
        raise statuses.bad_request(str(exc)) from exc


def strict_decoding_error(
    schema: Schema, body: dict[str, Any], errors: tuple[str, ...]
) -> ApiError | None:
    """Return the error of a request with strict field validation, or None.

    Args:
        schema: Schema of the kind.
        body: Body as sent.
        errors: Errors from `decode`, and duplicate fields.
    """
    if not errors:
        return None

    return _decoding_error(schema, body, f"strict decoding error: {', '.join(errors)}")


def _decoding_error(schema: Schema, body: dict[str, Any], why: str) -> ApiError:
    known = schema.text.get("x-kubernetes-group-version-kind")
    kind = known[0]["kind"] if known else str(body.get("kind"))
    version = (
        known[0]["version"] if known else str(body.get("apiVersion")).rpartition("/")[2]
    )
    return statuses.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: {why}'
    )


METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Fields of every object; a schema need not specify them.
_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(schema: Schema, body: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Drop the fields that a schema does not specify.

    Args:
        schema: Schema of the custom resource.
        body: Object.
        notes: List that receives messages about unknown fields: first those of the
            metadata, then the others by path, as on a real server.

    Raises:
        GoDecodeError: If metadata is malformed, also that of an embedded object.
    """
    pruner = _Pruner()
    own = dict(body)
    if "metadata" in body:
        own["metadata"] = _metadata()(body["metadata"], None, pruner.inner)
        pruner.inner = [it.replace('"', '"metadata.', 1) for it in pruner.inner]

    first, pruner.inner = pruner.inner, []
    found = pruner.fields(schema, own, None, is_object=True)
    notes += first + sorted(pruner.unknown) + pruner.inner
    return found


class _Pruner:
    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.inner: list[str] = []

    def value(self, schema: Schema, value: Any, at: FieldPath) -> Any:
        """Prune any value; ignore values of wrong types."""
        if value.__class__ is dict:
            return self.fields(schema, value, at, is_object=schema.embedded)

        if value.__class__ is list:
            items = schema.items
            if items is None:
                return (
                    value
                    if _preserves_unknown_fields(schema)
                    else [_empty_values(it) for it in value]
                )

            return [self.value(items, it, (at, n, "")) for n, it in enumerate(value)]

        return plain_number(value) if value.__class__ is float else value

    def fields(
        self, schema: Schema, value: dict[str, Any], at: FieldPath, *, is_object: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, it in value.items():
            if is_object and name in _OBJECT_FIELDS:
                found[name] = self._type_or_metadata(name, it, at)
                continue

            child = schema.field(name)
            if child is None:
                if _preserves_unknown_fields(schema):
                    found[name] = it
                else:
                    self.unknown.append(unknown_field((at, name, "")))
            elif it is not None or child.nullable:
                found[name] = self.value(child, it, (at, name, ""))

        return found

    def _type_or_metadata(self, name: str, value: Any, at: FieldPath) -> Any:
        if at is None:
            return value

        path = path_of((at, name, ""))
        if name != "metadata":
            if value.__class__ is not str:
                raise GoDecodeError(
                    f"{path}: Invalid value: {_format_value(value)}: must be a string"
                )

            return value

        notes: list[str] = []
        try:
            found = _metadata()(value, None, notes)
        except GoDecodeError as exc:
            raise GoDecodeError(
                f"{path}: Invalid value: {_format_value(value)}: {exc}"
            ) from exc

        self.inner += [it.replace('"', f'"{path}.', 1) for it in notes]
        return found


@cache
def _metadata() -> StructDecoder:
    return struct_decoder(METADATA)


def _preserves_unknown_fields(schema: Schema) -> bool:
    text = schema.text
    return bool(
        text.get("x-kubernetes-preserve-unknown-fields")
        or text.get("additionalProperties") is True
    )


def _empty_values(value: Any) -> Any:
    """Empty an object in a list without a schema for its items."""
    return {} if value.__class__ is dict else value


def _format_value(value: Any) -> str:
    return json_codec.dumps(value, option=json_codec.OPT_SORT_KEYS).decode()
