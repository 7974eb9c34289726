"""Patches: one entry to all ways of saying a change, except for server-side apply. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import json_type
from aioinformer_apiserver.errors.json_errors import json_mistake
from aioinformer_apiserver.patches.merge import merge_patch
from aioinformer_apiserver.patches.strategic import strategic_merge_patch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.client.verbs import PatchType
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["applied_object", "decoded_patch", "patched"]

_DECODING = "error decoding patch: "


def patched(
    schema: Schema | None,
    body: Mapping[str, Any],
    patch: object,
    patch_type: PatchType,
    *,
    typed: bool = True,
) -> Any:
    """Apply a patch.

    Args:
        schema: Of the kind; None if there is none. Only strategic patches need it.
        body: The object as it is; not touched itself.
        patch: The change, decoded.
        patch_type: How it is said; not `"apply"`.
        typed: False for custom resources, which know no strategic patch.

    Returns:
        The new body, unchecked: a patch can make anything of it, not only an object.

    Raises:
        ApiError: 400, 413, 422 or 500 if the patch is malformed or does not apply, 415
            if the kind does not know its type.
    """
    match patch_type:
        case "json":
            return _json_patched(body, patch)
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


def applied_object(patch: object) -> Mapping[str, Any]:
    """Return what is to be applied, decoded; a null applies nothing.

    Raises:
        ApiError: 400, if it is no object.
    """
    prefix = "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
    return {} if patch is None else _check_object(patch, prefix)


def decoded_patch(raw: bytes, patch_type: PatchType) -> object:
    """Decode a patch that is written as JSON.

    Raises:
        ApiError: 400, if it is none.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        prefix = "" if patch_type == "strategic" else _DECODING
        raise statuses.bad_request(prefix + (json_mistake(raw) or str(exc))) from exc


def _json_patched(body: Mapping[str, Any], patch: object) -> Any:
    try:
        # Imported here, because the package comes with an extra that few need.
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
