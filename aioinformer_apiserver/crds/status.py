"""Status of definitions: accepted names, conditions, and termination. Pure.

Controllers do this in a real server: they accept names, establish the resource, check
the approval of protected groups, and finalize deleted definitions. Two definitions of
one group cannot share a name. The first one keeps it, and the other is not served until
the name is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "CLEANUP_FINALIZER",
    "Condition",
    "accept_names",
    "approval_of",
    "is_condition_true",
    "is_terminating",
    "mark_for_deletion",
    "next_statuses",
    "with_conditions",
    "with_definition_defaults",
    "with_instances_deleted",
    "with_instances_deleting",
    "with_status",
]

# Finalizer that keeps a definition until its objects are deleted.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")


def with_definition_defaults(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with its defaults."""
    given = body.get("spec") or {}
    spec = {**given, "names": _names(given.get("names") or {})}
    spec.setdefault("conversion", {"strategy": "None"})
    return {**body, "spec": spec}


def with_status(body: Mapping[str, Any], *, new: bool) -> dict[str, Any]:
    """Return a definition with its status, including its stored versions.

    Args:
        body: Definition with its defaults.
        new: Whether the definition is created, and starts with an empty status.
    """
    status = {} if new else dict(body.get("status") or {})
    if not status.get("acceptedNames"):
        names = {"plural": "", "kind": ""}
        status = {"conditions": None, **status, "acceptedNames": names}

    versions = body["spec"].get("versions") or ()
    kept = [it.get("name") for it in versions if it.get("storage")]
    stored = list(status.get("storedVersions") or ())
    # A version stays listed while objects may be stored in it.
    stored += [name for name in kept[:1] if name not in stored]
    return {**body, "status": {**status, "storedVersions": stored}}


def next_statuses(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]], now: str
) -> Iterator[dict[str, Any]]:
    """Yield the next states of a definition until it is stable.

    Args:
        body: Stored definition.
        others: All other definitions of its group.
        now: Current time as a timestamp.

    Yields:
        Complete bodies; none if the definition is stable.
    """
    names, conditions = accept_names(body, others)
    accepted = conditions[0].status == "True"
    status = with_conditions(body["status"], conditions, now)
    new = {**body, "status": _sort_status({**status, "acceptedNames": names})}
    if new["status"] != body["status"]:
        yield new

    if accepted and not is_condition_true(new, "Established"):
        why = "the initial names have been accepted"
        condition = Condition("Established", "True", "InitialNamesAccepted", why)
        status = with_conditions(new["status"], [condition], now)
        new = {**new, "status": status}
        yield new

    status = with_conditions(new["status"], approval_of(new), now)
    if status != new["status"]:
        yield {**new, "status": status}


# -------------------------------------------------------------------- termination


def is_terminating(body: Mapping[str, Any]) -> bool:
    """Return whether a deleted definition waits for its objects."""
    metadata = body["metadata"]
    found = CLEANUP_FINALIZER in (metadata.get("finalizers") or ())
    return bool(metadata.get("deletionTimestamp")) and found


def mark_for_deletion(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition that is marked for deletion."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return dict(body)

    finalizers = [
        it for it in metadata.get("finalizers") or () if it != CLEANUP_FINALIZER
    ]
    marks = {"deletionTimestamp": now, "finalizers": [*finalizers, CLEANUP_FINALIZER]}
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will "
    why += "begin soon"
    return _with_terminating(
        {**body, "metadata": {**metadata, **marks}},
        Condition("Terminating", "True", "InstanceDeletionPending", why),
        now,
    )


def with_instances_deleting(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition whose objects are being deleted."""
    why = "CustomResource deletion is in progress"
    condition = Condition("Terminating", "True", "InstanceDeletionInProgress", why)
    return _with_terminating(body, condition, now)


def with_instances_deleted(body: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a definition whose objects have been deleted."""
    metadata = body["metadata"]
    left = [it for it in metadata.get("finalizers") or () if it != CLEANUP_FINALIZER]
    why = "removed all instances"
    return _with_terminating(
        {**body, "metadata": {**metadata, "finalizers": left}},
        Condition("Terminating", "False", "InstanceDeletionCompleted", why),
        now,
    )


def _with_terminating(
    body: Mapping[str, Any], end: Condition, now: str
) -> dict[str, Any]:
    return {**body, "status": with_conditions(body.get("status") or {}, [end], now)}


def _names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Default the names, and sort them as the server writes them."""
    names = dict(given)
    kind = names.get("kind") or ""
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"

    known = {field: names[field] for field in _NAMES if names.get(field)}
    return {**known, **{k: v for k, v in names.items() if k not in _NAMES}}


def _sort_status(status: Mapping[str, Any]) -> dict[str, Any]:
    ordered = {
        "conditions": status.get("conditions"),
        "acceptedNames": status["acceptedNames"],
    }
    return {**ordered, **{k: v for k, v in status.items() if k not in ordered}}


# ------------------------------------------------------------------ conditions


APPROVAL = "api-approved.kubernetes.io"


class Condition(NamedTuple):
    """Condition of a definition, without its transition time."""

    type: str
    status: str
    reason: str
    message: str


def is_condition_true(body: Mapping[str, Any], name: str) -> bool:
    """Return whether a condition of a definition is true."""
    found = (body.get("status") or {}).get("conditions") or ()
    return any(it["type"] == name and it["status"] == "True" for it in found)


def with_conditions(
    status: Mapping[str, Any], conditions: Iterable[Condition], now: str
) -> dict[str, Any]:
    """Return a status with updated conditions; new ones are appended.

    Args:
        status: Status of a definition.
        conditions: Updated conditions; all others stay.
        now: Transition time of conditions whose status changed.
    """
    found = {it["type"]: dict(it) for it in status.get("conditions") or ()}
    for condition in conditions:
        old = found.get(condition.type)
        same = old is not None and old["status"] == condition.status
        found[condition.type] = {
            "type": condition.type,
            "status": condition.status,
            "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
            "reason": condition.reason,
            "message": condition.message,
        }

    return {**status, "conditions": list(found.values())}


def approval_of(body: Mapping[str, Any]) -> list[Condition]:
    """Return the approval condition of a definition in a protected group.

    Returns:
        One condition; none for other groups.
    """
    given = (body["metadata"].get("annotations") or {}).get(APPROVAL, "")
    if not is_protected(body["spec"]["group"]):
        return []

    approved = "://" in given
    return [
        Condition(
            "KubernetesAPIApprovalPolicyConformant",
            "True" if approved else "False",
            "ApprovedAnnotation" if approved else "UnapprovedAnnotation",
            f"approved in {given}" if approved else f'not approved: "{given}"',
        )
    ]


def is_protected(group: str) -> bool:
    """Return whether a group is reserved for Kubernetes."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


# ------------------------------------------------------------------ names


# The last conflict in this order is the one that is reported.
_PLURAL, _SINGULAR, _SHORT = "Plural", "Singular", "ShortNames"
_KIND, _LIST_KIND = "Kind", "ListKind"


def accept_names(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[Condition]]:
    """Decide which names a definition gets.

    Args:
        body: Definition.
        others: All other definitions of its group.

    Returns:
        Accepted names, and the conditions `NamesAccepted` and `Established`. The latter
        becomes true only in the next step.
    """
    requested = body["spec"]["names"]
    got = dict((body.get("status") or {}).get("acceptedNames") or {})
    resources, kinds = _taken_names(others)
    conflict: Condition | None = None
    for field, label, taken in (
        ("plural", _PLURAL, resources),
        ("singular", _SINGULAR, resources),
        ("shortNames", _SHORT, resources),
        ("kind", _KIND, kinds),
        ("listKind", _LIST_KIND, kinds),
    ):
        problem = _name_conflict(requested.get(field), got.get(field), taken)
        if problem:
            conflict = Condition("NamesAccepted", "False", f"{label}Conflict", problem)
        else:
            got[field] = requested.get(field)

    got["categories"] = requested.get("categories")
    free = Condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
    accepted = conflict or free
    return _sort_names(got), [accepted, *_established_condition(body, accepted)]


def _established_condition(
    body: Mapping[str, Any], accepted: Condition
) -> list[Condition]:
    """Return the condition `Established`; nothing if it is already true."""
    if is_condition_true(body, "Established"):
        return []

    if accepted.status == "True":
        why = "the initial names have been accepted"
        return [Condition("Established", "False", "Installing", why)]

    why = "not all names are accepted"
    return [Condition("Established", "False", "NotAccepted", why)]


def _taken_names(others: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Return the accepted resource names, and kinds, of other definitions."""
    resources, kinds = set[str](), set[str]()
    for other in others:
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {names.get("plural") or "", names.get("singular") or ""}
        resources |= set(names.get("shortNames") or ())
        kinds |= {names.get("kind") or "", names.get("listKind") or ""}

    return resources - {""}, kinds - {""}


def _name_conflict(requested: Any, got: Any, taken: set[str]) -> str:
    """Return why a name or list of names is not available; empty if it is."""
    if requested == got:
        return ""

    if not isinstance(requested, list):
        return f'"{requested}" is already in use' if requested in taken else ""

    new = [name for name in requested if name not in (got or ()) and name in taken]
    messages = [f'"{name}" is already in use' for name in new]
    return (
        messages[0]
        if len(messages) == 1
        else f"[{', '.join(messages)}]"
        if messages
        else ""
    )


def _sort_names(names: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    kept = {field: names.get(field) for field in fields}
    # The server writes these two even if they are empty.
    always = {"plural": kept["plural"] or "", "kind": kept["kind"] or ""}
    return {
        key: value
        for key, value in {**kept, **always}.items()
        if value or key in always
    }
