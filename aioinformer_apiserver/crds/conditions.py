"""Conditions: what a definition's status says about it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Condition", "approval_of", "holds", "with_conditions"]

APPROVAL = "api-approved.kubernetes.io"


class Condition(NamedTuple):
    """One condition, without the time of its last change."""

    type: str
    status: str
    reason: str
    message: str


def holds(body: Mapping[str, Any], name: str) -> bool:
    """Say whether a condition of a definition is true."""
    found = (body.get("status") or {}).get("conditions") or ()
    return any(it["type"] == name and it["status"] == "True" for it in found)


def with_conditions(
    status: Mapping[str, Any], conditions: Iterable[Condition], now: str
) -> dict[str, Any]:
    """Return a status with these conditions, each in its old place or else at the end.

    Args:
        status: Of a definition.
        conditions: Those that are known anew. The others stay.
        now: When they changed, if their status did.
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
    """Return the condition of a definition in a group that belongs to Kubernetes itself.

    Returns:
        One condition; none for every other group.
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
    """Say whether a group belongs to Kubernetes itself."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))
