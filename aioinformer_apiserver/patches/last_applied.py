"""Last applied: how kubectl's server-side apply takes over from client-side. Pure.

Client-side apply has left what it applied in an annotation. What that says and still
holds is no conflict for kubectl; the annotation is kept up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.patches.comparison import compared
from aioinformer_apiserver.patches.contents import fields_of
from aioinformer_apiserver.patches.fieldsets import NOTHING
from aioinformer_apiserver.patches.mistakes import mistakes_in
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.patches.fieldsets import FieldSet
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["LAST_APPLIED", "fields_last_applied", "with_last_applied"]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# All annotations of an object together, keys and values.
_MOST_BYTES = 256 * 1024


def fields_last_applied(
    schema: Schema, live: Mapping[str, Any], api_version: str
) -> FieldSet:
    """Return the fields that client-side apply has set, and that still are so.

    Args:
        schema: Of whole objects.
        live: The object as it is.
        api_version: Of which version its annotation must be.
    """
    text = _annotations(live).get(LAST_APPLIED)
    try:
        last = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return NOTHING

    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        return NOTHING

    if mistakes_in(schema, last):
        return NOTHING

    change = compared(schema, last, live)
    return fields_of(schema, last) - change.gained - change.removed


def with_last_applied(
    body: dict[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    """Bring the annotation up to date, if there is one; drop it if it gets too long.

    Args:
        body: The merged object; it is not changed.
        applied: What was applied to it.
    """
    annotations = _annotations(body)
    if not annotations.get(LAST_APPLIED):
        return body

    text = plain(_without_annotation(applied), sort=True).decode() + "\n"
    found = {**annotations, LAST_APPLIED: text}
    if sum(len(f"{key}{value}".encode()) for key, value in found.items()) > _MOST_BYTES:
        del found[LAST_APPLIED]

    return {**body, "metadata": {**body["metadata"], "annotations": found}}


def _annotations(body: Mapping[str, Any]) -> dict[str, Any]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _without_annotation(applied: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(applied.get("metadata") or {})
    rest = {k: v for k, v in _annotations(applied).items() if k != LAST_APPLIED}
    metadata.pop("annotations", None)
    if rest:
        metadata["annotations"] = rest

    return {**applied, "metadata": metadata}
