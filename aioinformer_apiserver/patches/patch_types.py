"""Patch types: one function for all patches except server-side apply. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import json_type
from aioinformer_apiserver.errors.json_errors import json_syntax_error
from aioinformer_apiserver.patches.strategic_merge_patch import strategic_merge_patch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["PatchType", "apply_patch", "decode_applied", "decode_patch", "merge_patch"]

PatchType = Literal["merge", "json", "strategic", "apply"]

_DECODING = "error decoding patch: "


def apply_patch(
    schema: Schema | None,
    body: Mapping[str, Any],
    patch: object,
    patch_type: PatchType,
    *,
    typed: bool = True,
) -> Any:
    """Apply a patch.

    Args:
        schema: Schema of the kind; None if there is none. Only strategic patches use
            it.
        body: Stored object; not changed.
        patch: Decoded patch.
        patch_type: Type of the patch; not `"apply"`.
        typed: False for custom resources, which do not support strategic patches.

    Returns:
        Result of the patch without validation, not always an object.

    Raises:
        ApiError: 400, 413, 422 or 500 if the patch is malformed or does not apply; 415
            if the kind does not support its type.
    """
    match patch_type:
        case "json":
            return _apply_json_patch(body, patch)
        case "merge":
            if patch is None:
                raise statuses.bad_request("Invalid JSON Patch")

            _check_object(patch, _DECODING)
            return merge_patch(body, patch)
        case "strategic" if typed:
            change = {} if patch is None else _check_object(patch, "")
            return strategic_merge_patch(schema, body, change)
        case _:
            raise statuses.of_code(415, message="415: Unsupported Media Type")


def decode_applied(patch: object) -> Mapping[str, Any]:
    """Return the decoded object of an apply; null applies nothing.

    Raises:
        ApiError: 400 if it is not an object.
    """
    prefix = "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
    return {} if patch is None else _check_object(patch, prefix)


def decode_patch(raw: bytes, patch_type: PatchType) -> object:
    """Decode a patch from JSON.

    Raises:
        ApiError: 400 if it is malformed.
    """
    try:
        return json_codec.loads(raw)
    except json_codec.JSONDecodeError as exc:
        prefix = "" if patch_type == "strategic" else _DECODING
        raise statuses.bad_request(
            prefix + (json_syntax_error(raw) or str(exc))
        ) from exc


def _apply_json_patch(body: Mapping[str, Any], patch: object) -> Any:
    try:
        # Imported late, because jsonpatch comes with an optional extra.
        from aioinformer_apiserver.patches.json_patch import json_patch
    except ImportError as exc:
        raise _not_installed() from exc

    return json_patch(body, patch)


def _not_installed() -> ApiError:
    message = "JSON patches need the package jsonpatch: pip install 'aioinformer[test]'"
    return statuses.failure(501, "NotImplemented", message)


def _check_object(patch: object, prefix: str) -> Mapping[str, Any]:
    if isinstance(patch, dict):
        return patch

    expected = "Go value of type map[string]interface {}"
    found = json_type(patch)
    raise statuses.bad_request(
        f"{prefix}json: cannot unmarshal {found} into {expected}"
    )


def merge_patch(target: object, patch: object) -> Any:
    """Apply a JSON merge patch (RFC 7386).

    Args:
        target: Value to patch; not changed.
        patch: Patch, any JSON value.
    """
    if not isinstance(patch, dict):
        return patch

    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)

    return merged
