"""Rules: what a body becomes when it is written. Pure: bodies in, a new body out.

No function changes what it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer_apiserver.storage.encoding import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.requests.options import Part
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["created", "is_same", "stamped", "terminating", "updated"]

# What the server alone decides, once an object exists.
_OWNED_BY_SERVER = (
    "name",
    "namespace",
    "resourceVersion",
    "generation",
    "creationTimestamp",
)
# What only the server writes too, but a wish for it is refused where it is checked.
_OF_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")

# What the status subresource of a kind leaves alone in the metadata, which it writes
# else: kubelets once broke the owners, and controllers the labels.
_SPARED_BY_STATUS: dict[Resource, str] = {
    resources.PODS: "ownerReferences",
    resources.DEPLOYMENTS: "labels",
}


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
    for field in (*_OF_DELETION, "selfLink", "resourceVersion"):
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
    """Return what an update makes of `old`, without a new version or generation.

    Args:
        kind: The kind.
        old: As it is stored.
        body: As it was sent, checked.
        part: What of it counts.
    """
    if part == "status":
        return _with_status(kind, old, body)

    new = {**body, "metadata": _metadata(old, body)}
    if kind.has_status and part != "all":
        _put(new, "status", old.get("status"))

    return new


def stamped(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Count the generation up, if what changed is what the user intends."""
    if not kind.generation or _intent(kind, old) == _intent(kind, new):
        return new

    return _with_metadata(new, generation=_generation(old) + 1)


def terminating(old: dict[str, Any], now: str) -> dict[str, Any]:
    """Return a namespace as it waits for its content to go, with no period of grace."""
    new = _with_metadata(old, deletionTimestamp=now)
    return {**new, "status": {**(old.get("status") or {}), "phase": "Terminating"}}


def is_same(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Say whether storing `new` in place of `old` would change nothing."""
    return canonical(_comparable(kind, old)) == canonical(_comparable(kind, new))


def _with_status(
    kind: Kind, old: dict[str, Any], body: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `old` with the status of `body`, and of built-in kinds its metadata."""
    new, status = dict(old), body.get("status")
    if kind.typed:
        new["metadata"] = _metadata(old, body)
        spared = _SPARED_BY_STATUS.get(kind.resource)
        if spared is not None:
            _put(new["metadata"], spared, old["metadata"].get(spared))

    if kind.resource == resources.PODS:
        for field in _OF_DELETION:
            _put(new["metadata"], field, old["metadata"].get(field))

        quality = (old.get("status") or {}).get("qosClass")
        status = {**(status or {}), "qosClass": quality} if quality else status

    _put(new, "status", status)
    return new


def _metadata(old: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an update, with what the server alone decides."""
    before, given = old["metadata"], body.get("metadata") or {}
    metadata = {k: v for k, v in given.items() if k not in _OWNED_BY_SERVER}
    for field in _OWNED_BY_SERVER:
        if field in before:
            metadata[field] = before[field]

    metadata["uid"] = given.get("uid") or before["uid"]
    for field in _OF_DELETION:
        if field in before:
            metadata.setdefault(field, before[field])

    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]

    return metadata


def _comparable(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not stored: empty metadata, and a typed object's nulls."""
    metadata = {
        k: v for k, v in body["metadata"].items() if v not in ("", None, {}, [])
    }
    rest = {k: v for k, v in body.items() if v is not None or not kind.typed}
    return {**rest, "metadata": metadata}


def _intent(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Return the part of a body whose changes are counted by the generation."""
    rule, metadata = kind.generation, body["metadata"]
    parts = {} if rule == "once" else {"spec": body.get("spec")}
    if rule in {"all but metadata", "all and labels"}:
        ignored = {"metadata", "kind", "apiVersion"}
        if kind.has_status:
            ignored.add("status")  # Elsewhere it is a field as others are.

        parts = {k: v for k, v in body.items() if k not in ignored}

    if rule == "all and labels":
        parts["labels"] = metadata.get("labels") or None
    elif rule == "spec and annotations":
        parts["annotations"] = metadata.get("annotations") or None

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
