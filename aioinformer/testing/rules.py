"""Rules: what a body becomes when it is written. Pure: bodies in, a new body out.

No function changes what it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from aioinformer.testing.encoding import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.kinds import Kind

__all__ = [
    "Part",
    "created",
    "is_same",
    "marked_for_deletion",
    "merge_patch",
    "stamped",
    "updated",
]

# What a write may change: a plain one leaves the status alone (where there is a status
# subresource), one of the subresource leaves everything else. "all" is for arranging.
Part = Literal["main", "status", "all"]

# What the server alone decides, once an object exists.
_OWNED_BY_SERVER = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def created(
    kind: Kind,
    body: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    uid: str,
    now: str,
    keep_status: bool,
) -> dict[str, Any]:
    """Complete the body of a new object.

    Args:
        kind: The kind.
        body: As it was sent, checked.
        name: Its name, generated if need be.
        namespace: Where it goes; empty for cluster-scoped kinds.
        uid: Its identity.
        now: Its creation, as a timestamp.
        keep_status: Store the `status` that was sent, as a real server does only for
            nodes and for kinds without a status subresource.
    """
    metadata = {**(body.get("metadata") or {}), "name": name, "uid": uid}
    metadata["creationTimestamp"] = now
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        metadata.pop(field, None)

    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)

    if kind.generation:
        metadata["generation"] = 1

    if kind.resource.plural == "namespaces":
        labels = metadata.get("labels") or {}
        metadata["labels"] = {**labels, "kubernetes.io/metadata.name": name}

    new = {**body, "metadata": metadata}
    if kind.has_status and not (keep_status and body.get("status")):
        _put(new, "status", kind.first_status)

    return new


def updated(
    kind: Kind, old: dict[str, Any], body: Mapping[str, Any], part: Part
) -> dict[str, Any]:
    """Return what an update makes of `old`, without a new version or generation."""
    if part == "status":
        new = dict(old)
        _put(new, "status", body.get("status"))
        return new

    given = body.get("metadata") or {}
    metadata = {k: v for k, v in given.items() if k not in _OWNED_BY_SERVER}
    for field in _OWNED_BY_SERVER:
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]

    new = {**body, "metadata": metadata}
    new["kind"], new["apiVersion"] = kind.resource.kind, kind.resource.api_version
    if kind.has_status and part == "main":
        _put(new, "status", old.get("status"))

    return new


def stamped(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Count the generation up, if what changed is what the user intends."""
    if not kind.generation or _intent(kind, old) == _intent(kind, new):
        return new

    return _with_metadata(new, generation=_generation(old) + 1)


def marked_for_deletion(kind: Kind, old: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the object as it waits for its finalizers."""
    new = _with_metadata(old, deletionTimestamp=now, deletionGracePeriodSeconds=0)
    if kind.generation:
        new = _with_metadata(new, generation=_generation(old) + 1)

    if kind.resource.plural == "namespaces":
        new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}

    return new


def merge_patch(target: object, patch: object) -> Any:
    """Apply a JSON merge patch (RFC 7386): null deletes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch

    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)

    return merged


def is_same(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Say whether storing `new` in place of `old` would change nothing."""
    return canonical(_comparable(kind, old)) == canonical(_comparable(kind, new))


def _comparable(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not stored: empty metadata, and a typed object's nulls."""
    metadata = {
        k: v for k, v in body["metadata"].items() if v not in ("", None, {}, [])
    }
    rest = {k: v for k, v in body.items() if v is not None or not kind.typed}
    return {**rest, "metadata": metadata}


def _intent(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Return the part of a body whose changes are counted by the generation."""
    if kind.generation == "all but metadata":
        parts = {k: v for k, v in body.items() if k not in {"metadata", "status"}}
        return canonical(parts)

    parts = {"spec": body.get("spec")}
    if kind.generation == "spec and annotations":
        parts["annotations"] = body["metadata"].get("annotations") or None

    return canonical(parts)


def _generation(body: Mapping[str, Any]) -> int:
    return int(body["metadata"].get("generation") or 0)


def _with_metadata(body: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **fields}}


def _put(body: dict[str, Any], field: str, value: object) -> None:
    if value is None:
        body.pop(field, None)
    else:
        body[field] = value
