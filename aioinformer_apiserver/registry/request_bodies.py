"""Request bodies: decoded, checked against the URL and kind, and pruned.

The field validation of a request decides about fields that do not fit the schema: they
are dropped, dropped with a warning, or rejected. Pure, except for warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer.errors import ApiError
from aioinformer.model import Resource
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.field_errors import FieldError
from aioinformer_apiserver.errors.go_format import (
    VERSION_STRUCT,
    go_text,
    json_type,
    restore_error,
)
from aioinformer_apiserver.errors.json_errors import json_syntax_error
from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.decoding import (
    decode,
    decode_metadata,
    strict_decoding_error,
)
from aioinformer_apiserver.schema.openapi_schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.patches.patch_types import PatchType
    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "check_name",
    "check_namespace",
    "check_type",
    "decode_arranged",
    "decode_body",
    "decode_patched",
    "type_meta_error",
]

# Schema of a custom resource without a schema.
_ANYTHING = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def decode_body(kind: Kind, body: object, options: WriteOptions) -> dict[str, Any]:
    """Decode the body of a create or an update.

    Returns:
        A new body that fits the schema and has metadata.

    Raises:
        ApiError: 400 if the body is not an object of this kind, has values of wrong
            types, or has unknown fields and field validation is strict.
    """
    return _decode_checked(kind, check_type(kind, body), options)


def decode_arranged(kind: Kind, body: object) -> dict[str, Any]:
    """Decode a body that may hold anything, except in its metadata.

    A CustomResourceDefinition must fit its schema, because the server itself uses it.

    Raises:
        ApiError: 400 if the body is not an object of this kind, or has malformed
            metadata.
    """
    sent = check_type(kind, body)
    metadata = decode_metadata(sent.get("metadata"))
    schema = kind.schema
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS and schema is not None:
        return {**decode(schema, sent).body, "metadata": metadata}

    if kind.typed:
        # Built-in kinds hold no nulls except those that their schema requires.
        sent = {key: value for key, value in sent.items() if value is not None}

    return {**sent, "metadata": metadata}


def decode_patched(
    kind: Kind,
    body: object,
    options: WriteOptions,
    *,
    patch: object,
    patch_type: PatchType,
) -> dict[str, Any]:
    """Decode a patched object, like `decode_body()`.

    Args:
        kind: Kind of the object.
        body: Patched object.
        options: Options of the patch.
        patch: Patch, shown in errors.
        patch_type: Type of the patch.

    Raises:
        ApiError: 422 if the result is not an object of this kind or has values of wrong
            types; 500 if it is a custom resource without an API version.
    """
    shown = go_text(patch)
    if patch_type != "strategic":
        whole = dict(sorted(body.items())) if isinstance(body, dict) else body
        shown = json_codec.dumps(whole).decode()

    try:
        return _decode_checked(
            kind, _check_patch_result(kind, body, patch_type), options
        )
    except ApiError as exc:
        if exc.status != 400:
            raise

        # The reason follows the sentence about the kind.
        why = exc.message.partition(f" cannot be handled as a {kind.resource.kind}: ")[
            2
        ]
        why = why or exc.message
        if patch_type == "strategic":
            why = restore_error(why)

        raise _invalid_patch_error(shown, why) from exc


def _decode_checked(
    kind: Kind, sent: dict[str, Any], options: WriteOptions
) -> dict[str, Any]:
    schema = kind.schema or _ANYTHING
    found = decode(schema, sent, custom=not kind.typed)
    duplicate_fields = tuple(
        f"duplicate field {quote(it)}" for it in options.duplicate_fields
    )
    errors = duplicate_fields + found.errors
    if options.field_validation == "Strict":
        error = strict_decoding_error(schema, sent, errors)
        if error is not None:
            raise error

    if options.field_validation == "Warn":
        for problem in errors:
            options.warn(problem)

    metadata = found.body.get("metadata") or {}
    if (sent.get("metadata") or {}).get("managedFields") == []:
        # An empty list resets the managed fields.
        metadata = {**metadata, "managedFields": []}

    return {**found.body, "metadata": metadata}


def _check_patch_result(
    kind: Kind, body: object, patch_type: PatchType
) -> dict[str, Any]:
    """Check that a patched value is an object of its kind."""
    if not isinstance(body, dict):
        raise statuses.bad_request("the result of the patch is not an object")

    mistake = type_meta_error(body)
    if mistake:
        raise statuses.bad_request(mistake)

    if kind.typed:
        # A body without its version is decoded into an internal type without
        # metadata. The result of a strategic merge patch is not even decoded.
        read = body.get("apiVersion") or patch_type == "strategic"
        return check_type(kind, body if read else {})

    if not body.get("kind"):
        text = json_codec.dumps(body).decode()
        raise statuses.bad_request(f"Object 'Kind' is missing in '{text}'")

    if not body.get("apiVersion"):
        why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        causes = {"causes": [{"message": why}]}
        message = f"Internal error occurred: {why}"
        raise statuses.failure(500, "InternalError", message, causes)

    return body


def _invalid_patch_error(shown: str, why: str) -> ApiError:
    problem = FieldError.invalid("patch", shown, why)
    cause = {"reason": problem.reason, "message": problem.message, "field": "patch"}
    message = f' "" is invalid: patch: {problem.message}'
    return statuses.failure(422, "Invalid", message, {"causes": [cause]})


# ------------------------------------------------------------------ types and names


# Number of bytes that errors show.
_SHOWN_BYTES = 30


def check_type(kind: Kind, body: object) -> dict[str, Any]:
    """Check the API version and kind of a body, and return it with both set.

    Args:
        kind: Expected kind.
        body: Request body as JSON bytes or decoded.

    Raises:
        ApiError: 400 if the body is of another kind.
    """
    sent = _decode_json(kind, body) if isinstance(body, bytes) else body
    if sent is None and kind.typed:
        sent = {}

    mistake = type_meta_error(sent)
    if mistake:
        raise _unrecognized_error(kind, body, mistake)

    assert isinstance(sent, dict)
    problem = (
        _wrong_kind_error(kind, sent)
        if kind.typed
        else _wrong_custom_type_error(kind, sent, body)
    )
    if problem is not None:
        raise problem

    return {**sent, **{k: sent.get(k) or v for k, v in type_meta_of(kind).items()}}


def type_meta_error(body: object) -> str:
    """Return why a body has no readable type; empty if it has one."""
    why = "couldn't get version/kind; json parse error: json: cannot unmarshal "
    if not isinstance(body, dict):
        return f"{why}{json_type(body)} into Go value of type {VERSION_STRUCT}"

    for field, value in body.items():
        if field in {"apiVersion", "kind"} and not isinstance(value, str | None):
            found = json_type(value)
            return f"{why}{found} into Go struct field .{field} of type string"

    return ""


def check_name(namespace: str, name: str, metadata: Mapping[str, Any], /) -> None:
    """Check that the body of an update matches its URL.

    Raises:
        ApiError: 400 if the body has no name, or another name or namespace.
    """
    given = metadata.get("name") or ""
    if not given:
        raise statuses.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )

    if given != name:
        raise statuses.bad_request(
            f"the name of the object ({given}) does not match "
            f"the name on the URL ({name})"
        )

    check_namespace(namespace, metadata)


def check_namespace(namespace: str, metadata: Mapping[str, Any]) -> None:
    """Check that the namespace of a body matches its URL.

    Raises:
        ApiError: 400 if the body has another namespace.
    """
    if (metadata.get("namespace") or namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match "
            "the namespace sent on the request"
        )


def _decode_json(kind: Kind, raw: bytes) -> object:
    try:
        return json_codec.loads(raw)
    except json_codec.JSONDecodeError as exc:
        mistake = json_syntax_error(raw) or str(exc)
        why = f"couldn't get version/kind; json parse error: {mistake}"
        raise _unrecognized_error(kind, raw, why) from exc


def type_meta_of(kind: Kind) -> dict[str, str]:
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}


def _wrong_kind_error(kind: Kind, body: Mapping[str, Any]) -> ApiError | None:
    """Return the error for a body that claims another kind than the built-in one."""
    expected = kind.resource
    version = body.get("apiVersion") or expected.api_version
    name = body.get("kind") or expected.kind
    if (version, name) == (expected.api_version, expected.kind):
        return None

    scheme = f'no kind "{name}" is registered for version "{version}" in scheme '
    why = f'{scheme}"pkg/runtime/scheme.go:111"'
    group, _, short = version.rpartition("/")
    if short and schema_of(Resource(group, short, "kinds", name)) is not None:
        internal = expected.group.partition(".")[0] or "core"
        why = f"converting ({short}.{name}) to ({internal}.{expected.kind}): "
        why += "unknown conversion"

    return statuses.bad_request(
        f'{name} in version "{short}" cannot be handled as a {expected.kind}: {why}'
    )


def _wrong_custom_type_error(
    kind: Kind, body: Mapping[str, Any], sent: object
) -> ApiError | None:
    """Return the error for a custom resource without type, or of another version.

    Args:
        kind: Expected kind.
        body: Decoded object.
        sent: Same object as sent, perhaps as bytes.
    """
    for field, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        if not body.get(field):
            text = _bytes_of(sent).decode(errors="replace")
            return _unrecognized_error(
                kind, sent, f"Object '{called}' is missing in '{text}'"
            )

    found, expected = body["apiVersion"], kind.resource.api_version
    if found == expected:
        return None

    return statuses.bad_request(
        f"the API version in the data ({found}) does not match "
        f"the expected API version ({expected})"
    )


def _unrecognized_error(kind: Kind, body: object, why: str) -> ApiError:
    return statuses.bad_request(
        "the object provided is unrecognized (must be of type "
        f"{kind.resource.kind}): {why} ({_preview(body)})"
    )


def _preview(body: object) -> str:
    """Return the beginning of a body, in hexadecimal unless it looks like JSON."""
    raw = _bytes_of(body)
    if not raw:
        return "<empty>"

    start, more = raw[:_SHOWN_BYTES], " ..." if len(raw) > _SHOWN_BYTES else ""
    text = start.decode(errors="replace") if raw.startswith(b"{") else start.hex()
    return text + more


def _bytes_of(body: object) -> bytes:
    return body if isinstance(body, bytes) else json_codec.dumps(body)
