"""JSON patch (RFC 6902). Pure.

An API server is more liberal than the RFC: `replace` also adds, a negative index counts
from the end, a missing value equals null, and a path need not begin with a slash.
Operations are rewritten accordingly before they are applied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jsonpatch
import jsonpointer

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import json_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError

__all__ = ["json_patch"]

MAX_OPERATIONS = 10_000

_INDEX = re.compile(r"[-+]?[0-9]+")
_MISSING: Any = object()


def json_patch(body: Mapping[str, Any], patch: object) -> Any:
    """Apply all operations of a patch, or none if one fails.

    Args:
        body: Body to patch; not changed.
        patch: Decoded list of operations.

    Raises:
        ApiError: 400 if the patch is malformed, 413 if it is too long, 422 if an
            operation does not apply.
    """
    document = json_codec.loads(json_codec.dumps(body))
    for operation in _check_operations(patch):
        try:
            document = _apply(document, operation)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as exc:
            raise _unprocessable() from exc

    return document


def _check_operations(patch: object) -> list[dict[str, Any]]:
    """Check the operations as far as possible without a document."""
    if patch is None:
        return []

    if not isinstance(patch, list):
        raise _decoding_error(patch, "Go value of type []handlers.jsonPatchOp")

    for operation in patch:
        if not isinstance(operation, dict | None):
            raise _decoding_error(operation, "Go value of type handlers.jsonPatchOp")

        for field in ("op", "from", "path"):
            value = (operation or {}).get(field)
            if not isinstance(value, str | None):
                whole = f"Go struct field jsonPatchOp.{field} of type string"
                raise _decoding_error(value, whole)

    if len(patch) > MAX_OPERATIONS:
        message = "Request entity too large: The allowed maximum operations in a "
        message += f"JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise statuses.of_code(413, message=message)

    return [operation or {} for operation in patch]


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    """Apply one operation; may change the given document."""
    action, path = operation.get("op"), operation.get("path")
    if not path and action != "replace":
        # Only `replace` may replace the whole document.
        raise _unprocessable()

    strict, found = _resolve(document, path or "", adding=action in _ADDING)
    if action == "test":
        if _encode(found) != _encode(operation.get("value")):
            raise _unprocessable()

        return document

    rewritten = {**operation, "path": strict}
    rewritten.setdefault("value", None)
    if action == "replace" and found is _MISSING:
        rewritten["op"] = "add"
    elif action in {"move", "copy"}:
        source, value = _resolve(document, operation.get("from") or "")
        rewritten["from"] = source
        if action == "copy" and value is _MISSING:
            rewritten.update(op="add", value=None)

    return jsonpatch.JsonPatch([rewritten]).apply(document, in_place=True)


# Operations whose last index may equal the length of the list.
_ADDING = frozenset({"add", "move", "copy"})


def _resolve(document: Any, path: str, *, adding: bool = False) -> tuple[str, Any]:
    """Return a path in the spelling of the RFC, and its value.

    As on a real server, text before the first slash is ignored. If only the last part
    of the path does not exist, the value is missing.

    Raises:
        ApiError: 422 if any earlier part does not exist.
    """
    parts, here, strict = path.split("/")[1:], document, ""
    for number, part in enumerate(parts):
        if here is _MISSING:
            raise _unprocessable()

        if isinstance(here, list) and _INDEX.fullmatch(part):
            last = number + 1 == len(parts)
            part = str(_absolute_index(int(part), len(here) + (adding and last)))

        strict += f"/{part}"
        here = _child(here, jsonpointer.unescape(part))

    return strict, here


def _absolute_index(index: int, length: int) -> int:
    return index + length if -length <= index < 0 else index


def _child(parent: Any, key: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(key, _MISSING)

    if isinstance(parent, list) and key.isdecimal() and int(key) < len(parent):
        return parent[int(key)]

    return _MISSING


def _encode(value: Any) -> bytes:
    """Encode a value for comparison; 1, 1.0 and true differ."""
    known = None if value is _MISSING else value
    return json_codec.dumps(known, option=json_codec.OPT_SORT_KEYS)


def _unprocessable() -> ApiError:
    return statuses.of_code(422)


def _decoding_error(value: object, expected: str) -> ApiError:
    found = json_type(value)
    return statuses.bad_request(
        f"error decoding patch: json: cannot unmarshal {found} into {expected}"
    )
