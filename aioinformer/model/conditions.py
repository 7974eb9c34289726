"""Conditions: entries of `status.conditions`, as in `metav1.Condition`. Pure.

`condition`, `is_ready` and `rolled_out` read the status of an object. The other
functions work on a list of conditions. They are those of apimachinery
(`pkg/api/meta/conditions.go`), with three differences: they return a new list, as
cached objects are read-only; they fill in a missing transition time; and they refuse
what the server would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.times import kube_time
from aioinformer.model.validation import qualified_name_problem, shown

__all__ = [
    "condition",
    "find_status_condition",
    "is_ready",
    "is_status_condition_true",
    "rolled_out",
    "set_status_condition",
]

M = TypeVar("M", bound=Mapping[str, Any])

_STATUSES: Final = ("True", "False", "Unknown")
_TYPE_LENGTH: Final = 316
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_LENGTH: Final = 1024
_MESSAGE_LENGTH: Final = 32_768


def condition(
    obj: Mapping[str, Any] | None,
    type: str,  # noqa: A002 - the API's own word
) -> Mapping[str, Any] | None:
    """Return the condition of an object, or None if it has none of this type.

    ::

        available = condition(deployment, "Available")
        if available is not None and available["status"] != "True":
            print(available["message"])

    Args:
        obj: Object, as a `KubeObject` or a dict; None is an object without conditions.
        type: Type of the condition, such as `"Ready"`.
    """
    if isinstance(obj, KubeObject):
        conditions = obj.at("status.conditions")
    else:
        status = (obj or {}).get("status")
        conditions = status.get("conditions") if isinstance(status, Mapping) else None

    return find_status_condition(conditions, type)


def is_ready(obj: Mapping[str, Any] | None) -> bool:
    """Return whether the condition `Ready` of an object is true.

    Pods, nodes and most custom resources have it. (Deployments do not: see
    `rolled_out`.) It also fits as a predicate or filter::

        await pods.wait_until(is_ready, key="shop/web-0", timeout=30)
        pods.add_event_handler(on_add=..., filter=is_ready)

    Args:
        obj: Object, as a `KubeObject` or a dict; None, for an absent one, is not ready.
    """
    return _is_true(condition(obj, "Ready"))


def rolled_out(deployment: Mapping[str, Any] | None) -> bool:
    """Return whether a Deployment runs its current template, as `kubectl rollout status`.

    All replicas are updated and available, and none of an old template is left.

    Args:
        deployment: Deployment, as a `KubeObject` or a dict; None, for an absent one, is
            not rolled out.
    """
    if not deployment:
        return False

    metadata, spec, status = (
        deployment.get(key) or {} for key in ("metadata", "spec", "status")
    )
    wanted = spec.get("replicas", 1)  # the default of the server
    total, updated, available = (
        status.get(key, 0)
        for key in ("replicas", "updatedReplicas", "availableReplicas")
    )
    observed = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    return bool(observed and updated >= wanted and total <= updated <= available)


def set_status_condition(
    conditions: Iterable[Mapping[str, Any]] | None,
    type: str,  # noqa: A002 - the API's own word
    status: bool | Literal["True", "False", "Unknown"],
    *,
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
    now: datetime | None = None,
) -> list[dict[str, Any]]:
    """Return conditions in which this one replaces that of its type, or is appended.

    ::

        conditions = set_status_condition(
            site.at("status.conditions"),
            "Ready",
            ready == desired,
            reason="Deployed" if ready == desired else "Deploying",
            observed_generation=site.generation,
        )
        if conditions != site.at("status.conditions"):
            ...  # write it

    An unchanged condition compares equal, so that a controller can skip the write. If
    several writers share the conditions of an object, send `metadata.resourceVersion`
    with them. Otherwise one writer overwrites the conditions of another.

    Args:
        conditions: Existing conditions, whose order is kept, or None. Of duplicates,
            the first is replaced.
        type: Type of the condition, such as `"Ready"` or `"example.com/Paid"`.
        status: Status of the condition.
        reason: Reason as one CamelCase word, such as `"MinimumReplicasAvailable"`.
        message: Explanation for people.
        observed_generation: Generation of the object that was observed, or None.
        now: Time of the change, with a timezone; None for the current time. It is
            written, in seconds, only if the status changes.

    Returns:
        New list of new dicts.

    Raises:
        OptionsError: If the server would refuse the condition: an invalid status, type
            or reason, a text that is too long, or a negative generation.
    """
    _check(type, status, reason, message, observed_generation)
    new = {"type": type, "status": str(status)}
    kept = [dict(it) for it in _entries(conditions)]
    old = find_status_condition(kept, type)
    if old is None:
        old = {}
        kept.append(old)

    if old.get("status") != new["status"] or not old.get("lastTransitionTime"):
        new["lastTransitionTime"] = kube_time(now or datetime.now(UTC))

    old.update(new, reason=reason, message=message)
    old.pop("observedGeneration", None)
    if observed_generation is not None:
        old["observedGeneration"] = observed_generation

    return kept


def find_status_condition(
    conditions: Iterable[M] | None,
    type: str,  # noqa: A002 - the API's own word
) -> M | None:
    """Return the first condition of a type, or None.

    Example:
        >>> find_status_condition([{"type": "Ready", "status": "False"}], "Ready")
        {'type': 'Ready', 'status': 'False'}
    """
    return next((it for it in _entries(conditions) if it.get("type") == type), None)


def is_status_condition_true(
    conditions: Iterable[Mapping[str, Any]] | None,
    type: str,  # noqa: A002 - the API's own word
) -> bool:
    """Return True if there is a condition of this type, and its status is `"True"`.

    Example:
        >>> is_status_condition_true([{"type": "Ready", "status": "False"}], "Ready")
        False
    """
    return _is_true(find_status_condition(conditions, type))


def _is_true(found: Mapping[str, Any] | None) -> bool:
    return found is not None and found.get("status") == "True"


def _entries(conditions: Iterable[M] | None) -> list[M]:
    """Return the entries of a list that a server may have sent malformed."""
    given = conditions if isinstance(conditions, Iterable) else ()
    return [it for it in given if isinstance(it, Mapping)]


def _check(
    kind: str,
    status: object,
    reason: str,
    message: str,
    observed_generation: int | None,
) -> None:
    if problem := qualified_name_problem(kind, "the type of a condition"):
        raise OptionsError(problem)

    problem = (
        _text_problem("type", kind, _TYPE_LENGTH)
        or _text_problem("reason", reason, _REASON_LENGTH)
        or _text_problem("message", message, _MESSAGE_LENGTH)
    )
    if problem:
        raise OptionsError(f"condition {kind!r}: {problem}")

    if not isinstance(status, bool) and status not in _STATUSES:
        raise OptionsError(
            f"condition {kind!r}: status must be a bool, 'True', 'False' or 'Unknown',"
            f" not {status!r}"
        )

    if not _REASON.fullmatch(reason):
        raise OptionsError(
            f"condition {kind!r}: reason must be one word of letters, digits, '_', ','"
            f" and ':', not {reason!r}"
        )

    if observed_generation is not None and observed_generation < 0:
        raise OptionsError(
            f"condition {kind!r}: observed_generation must not be negative, not "
            f"{observed_generation}"
        )


def _text_problem(what: str, given: object, most: int) -> str:
    if not isinstance(given, str):
        return f"{what} must be a string, not {shown(given)}"

    if len(given) > most:
        return f"{what} must have at most {most:,} characters, not {len(given):,}"

    return ""
