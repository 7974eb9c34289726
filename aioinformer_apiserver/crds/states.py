"""States: how a definition looks from its creation to its end. Pure.

The server that serves custom resources does by itself what controllers do for other
kinds: it accepts the names, establishes the resource, and cleans up at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.crds.conditions import (
    Condition,
    approval_of,
    holds,
    with_conditions,
)
from aioinformer_apiserver.crds.names import judged_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "CLEANUP",
    "defaulted",
    "emptied",
    "is_terminating",
    "marked_for_deletion",
    "next_statuses",
    "removing",
    "with_status",
]

# Keeps a definition until its objects are gone.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"

_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")


def defaulted(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with its defaults."""
    given = body.get("spec") or {}
    spec = {**given, "names": _names(given.get("names") or {})}
    spec.setdefault("conversion", {"strategy": "None"})
    return {**body, "spec": spec}


def with_status(body: Mapping[str, Any], *, new: bool) -> dict[str, Any]:
    """Return a definition with its status, which lists all versions of objects.

    Args:
        body: The definition, with its defaults.
        new: It is created, and starts with nothing but that.
    """
    status = {} if new else dict(body.get("status") or {})
    if not status.get("acceptedNames"):
        names = {"plural": "", "kind": ""}
        status = {"conditions": None, **status, "acceptedNames": names}

    versions = body["spec"].get("versions") or ()
    kept = [it.get("name") for it in versions if it.get("storage")]
    stored = list(status.get("storedVersions") or ())
    # A version is listed for as long as there may be objects in it.
    stored += [name for name in kept[:1] if name not in stored]
    return {**body, "status": {**status, "storedVersions": stored}}


def next_statuses(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]], now: str
) -> Iterator[dict[str, Any]]:
    """Yield the states that a definition takes by itself, one after the other.

    Args:
        body: As it is stored.
        others: All other definitions of its group.
        now: The time, as a timestamp.

    Yields:
        Complete bodies; none if it stays as it is.
    """
    names, conditions = judged_names(body, others)
    accepted = conditions[0].status == "True"
    status = with_conditions(body["status"], conditions, now)
    new = {**body, "status": _status({**status, "acceptedNames": names})}
    if new["status"] != body["status"]:
        yield new

    if accepted and not holds(new, "Established"):
        why = "the initial names have been accepted"
        condition = Condition("Established", "True", "InitialNamesAccepted", why)
        status = with_conditions(new["status"], [condition], now)
        new = {**new, "status": status}
        yield new

    status = with_conditions(new["status"], approval_of(new), now)
    if status != new["status"]:
        yield {**new, "status": status}


# -------------------------------------------------------------------- the end


def is_terminating(body: Mapping[str, Any]) -> bool:
    """Say whether a definition waits for its objects to go."""
    metadata = body["metadata"]
    found = CLEANUP in (metadata.get("finalizers") or ())
    return bool(metadata.get("deletionTimestamp")) and found


def marked_for_deletion(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition as it waits for its objects and its finalizers."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return dict(body)

    finalizers = [it for it in metadata.get("finalizers") or () if it != CLEANUP]
    marks = {"deletionTimestamp": now, "finalizers": [*finalizers, CLEANUP]}
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will "
    why += "begin soon"
    return _with_end(
        {**body, "metadata": {**metadata, **marks}},
        Condition("Terminating", "True", "InstanceDeletionPending", why),
        now,
    )


def removing(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition whose objects are being deleted."""
    why = "CustomResource deletion is in progress"
    condition = Condition("Terminating", "True", "InstanceDeletionInProgress", why)
    return _with_end(body, condition, now)


def emptied(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition whose objects are gone, and which waits for others only."""
    metadata = body["metadata"]
    left = [it for it in metadata.get("finalizers") or () if it != CLEANUP]
    why = "removed all instances"
    return _with_end(
        {**body, "metadata": {**metadata, "finalizers": left}},
        Condition("Terminating", "False", "InstanceDeletionCompleted", why),
        now,
    )


def _with_end(body: Mapping[str, Any], end: Condition, now: str) -> dict[str, Any]:
    return {**body, "status": with_conditions(body.get("status") or {}, [end], now)}


def _names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete names, and put them into the order in which they are written."""
    names = dict(given)
    kind = names.get("kind") or ""
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"

    known = {field: names[field] for field in _NAMES if names.get(field)}
    return {**known, **{k: v for k, v in names.items() if k not in _NAMES}}


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    ordered = {
        "conditions": status.get("conditions"),
        "acceptedNames": status["acceptedNames"],
    }
    return {**ordered, **{k: v for k, v in status.items() if k not in ordered}}
