"""Evictions: deleting a pod, unless a disruption budget would not have it.

Nobody counts healthy pods here: a budget allows as many disruptions as its status says,
which a test (or a controller) writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import POD_DISRUPTION_BUDGETS
from aioinformer.model.selectors import LabelSelector
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.registry import preconditions, validation
from aioinformer_apiserver.registry.completion import timestamp
from aioinformer_apiserver.registry.intake import received
from aioinformer_apiserver.requests.options import WriteOptions
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import DeleteOptions
    from aioinformer_apiserver.storage.storage import Collection, Stored

__all__ = ["evict", "eviction_of"]

_EVICTION = Kind(resource=SUBRESOURCE_KINDS["eviction"])
# Pods that nobody would miss.
_IDLE = frozenset({"Failed", "Pending", "Succeeded"})
_ALLOWED = "DisruptionAllowed"
_RETRY_SECONDS = 10
_BY_SERVER = WriteOptions(part="status", manager="kube-apiserver")


def eviction_of(
    namespace: str, name: str, body: object, options: WriteOptions
) -> dict[str, Any]:
    """Understand an Eviction.

    Raises:
        ApiError: 400, if the body is none, or one of another pod.
    """
    eviction = received(_EVICTION, body, options)
    validation.check_namespace(namespace, eviction["metadata"])
    if eviction["metadata"].get("name") != name:
        why = "name in URL does not match name in Eviction object"
        raise statuses.bad_request(why)

    return eviction


def evict(
    registry: Registry,
    pods: Collection,
    namespace: str,
    name: str,
    options: DeleteOptions,
) -> None:
    """Delete a pod, if the budget that it belongs to allows it.

    Args:
        registry: Of the pods and budgets.
        pods: The collection of the pods.
        namespace: Of the pod.
        name: Of the pod.
        options: How it is to be deleted.

    Raises:
        ApiError: 404 if there is no such pod, 429 if its budget allows no disruption, 500
            if it belongs to several, 409 if it is another one than is meant.
    """
    stored = registry.require(pods, namespace, name)
    pod = stored.body()
    budgets = registry.storage.collection(POD_DISRUPTION_BUDGETS)
    if not _is_missed_by_none(pod):
        found = [it for it in budgets if _selects(it, stored)]
        if len(found) > 1:
            raise statuses.failure(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction "
                "subresource does not support.",
            )

        if found and not _may_go_anyway(pod, found[0].body()):
            less = _with_one_less(found[0].body(), name)
            preconditions.check_deletion(pods.kind, stored, options)
            of_status = replace(_BY_SERVER, dry_run=options.dry_run)
            registry.update(budgets, namespace, found[0].name, less, of_status)

    registry.delete(pods, namespace, name, options)


def _is_missed_by_none(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in _IDLE or bool(pod["metadata"].get("deletionTimestamp"))


def _selects(budget: Stored, pod: Stored) -> bool:
    selector = (budget.body().get("spec") or {}).get("selector")
    if selector is None or budget.namespace != pod.namespace:
        return False

    return LabelSelector.of(selector).matches(pod.labels)


def _may_go_anyway(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """Say whether a pod is not ready, so that the budget need not care."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(
        it.get("type") == "Ready" and it.get("status") == "True" for it in conditions
    ):
        return False

    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True

    desired = status.get("desiredHealthy") or 0
    return bool(desired > 0 and (status.get("currentHealthy") or 0) >= desired)


def _with_one_less(budget: dict[str, Any], pod: str) -> dict[str, Any]:
    """Return a budget with one disruption less: that of a pod of this name.

    Raises:
        ApiError: 429, if there is none left.
    """
    status, metadata = budget.get("status") or {}, budget["metadata"]
    name, generation = metadata["name"], metadata.get("generation") or 0
    if (status.get("observedGeneration") or 0) < generation:
        why = "is still being processed by the server."
        raise _too_many(name, why, retry_after=_RETRY_SECONDS)

    left = status.get("disruptionsAllowed") or 0
    if not left:
        raise _too_many(name, _shortage(status))

    new = {
        **status,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod: timestamp()},
        "disruptionsAllowed": left - 1,
    }
    if left == 1:
        new["conditions"] = _with_none_left(status.get("conditions") or [], generation)

    return {**budget, "status": new}


def _shortage(status: Mapping[str, Any]) -> str:
    """Say why a budget allows no disruption."""
    for it in status.get("conditions") or ():
        if it.get("type") == _ALLOWED and it.get("reason") == "SyncFailed":
            why = "does not allow evicting pods currently because it failed sync: "
            return f"{why}{it.get('message') or ''}"

    desired, healthy = status.get("desiredHealthy"), status.get("currentHealthy")
    return f"needs {desired or 0} healthy pods and has {healthy or 0} currently"


def _too_many(budget: str, why: str, *, retry_after: int | None = None) -> ApiError:
    message = f"The disruption budget {budget} {why}"
    details: dict[str, Any] = {
        "causes": [{"reason": "DisruptionBudget", "message": message}]
    }
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after

    said = "Cannot evict pod as it would violate the pod's disruption budget."
    return statuses.failure(429, "TooManyRequests", said, details)


def _with_none_left(
    conditions: list[dict[str, Any]], generation: int
) -> list[dict[str, Any]]:
    old = next((it for it in conditions if it.get("type") == _ALLOWED), {})
    is_news = old.get("status") != "False"
    new = {
        "type": _ALLOWED,
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": timestamp() if is_news else old["lastTransitionTime"],
        "reason": "InsufficientPods",
        "message": "",
    }
    return [*(it for it in conditions if it.get("type") != _ALLOWED), new]
