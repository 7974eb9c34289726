"""Subresources `binding` and `eviction` of pods.

A disruption budget allows as many evictions as its status says. The server counts no
healthy pods: a test or a controller writes that status.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model import LabelSelector
from aioinformer.model.resources import POD_DISRUPTION_BUDGETS
from aioinformer_apiserver.errors import field_errors, statuses
from aioinformer_apiserver.registry import preconditions
from aioinformer_apiserver.registry.request_bodies import check_namespace, decode_body
from aioinformer_apiserver.registry.strategy import admit, timestamp
from aioinformer_apiserver.requests.options import WriteOptions
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.errors.field_errors import FieldError
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import DeleteOptions
    from aioinformer_apiserver.storage.storage import Collection, StoredObject

__all__ = ["bind", "evict", "eviction_of"]

_BINDING = Kind(resource=SUBRESOURCE_KINDS["binding"])
# Resource that conflict messages name.
_SUBRESOURCE = "pods/binding"
_SCHEDULED = "PodScheduled"


def bind(
    registry: Registry,
    pods: Collection,
    namespace: str,
    name: str,
    body: object,
    options: WriteOptions,
) -> None:
    """Bind a pod to a node, which need not exist.

    Args:
        registry: Registry of the pods.
        pods: Collection of the pods.
        namespace: Namespace of the pod.
        name: Name of the pod; empty if only the body names it.
        body: Binding as JSON bytes or decoded.
        options: Options of the write.

    Raises:
        ApiError: 400 if the body is not a Binding of this pod; 404 if the pod does not
            exist; 409 if the pod is bound, terminating or gated, or if a precondition
            fails; 500 if the Binding names no node.
    """
    binding = decode_body(_BINDING, body, options)
    metadata = binding["metadata"]
    given = metadata.get("name") or ""
    check_namespace(namespace, metadata)
    if name and given != name:
        why = "name in URL does not match name in Binding object"
        raise statuses.bad_request(why)

    if not given:
        raise statuses.bad_request("Name parameter required.")

    binding = admit(_BINDING, binding, None, options)
    _check_target(binding.get("target") or {})
    stored = registry.require(pods, namespace, given)
    preconditions.check_bound(pods.kind, stored, metadata)
    pod = stored.body()
    why = _binding_error(pod)
    if why:
        message = f'Operation cannot be fulfilled on {_SUBRESOURCE} "{given}": '
        message += f"pod {given} {why}"
        details = {"name": given, "kind": _SUBRESOURCE}
        raise statuses.failure(409, "Conflict", message, details)

    if not options.dry_run:
        # A binding bypasses the update path: it changes neither managed fields
        # nor the generation.
        registry.storage.put(pods, _with_node(pod, binding))


def _check_target(target: Mapping[str, Any]) -> None:
    errors = [*_validate_binding_target(target)]
    if errors:
        messages = [f"{it.field}: {it.message}" for it in errors]
        message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        raise statuses.failure(500, "", message)


def _validate_binding_target(target: Mapping[str, Any]) -> Iterator[FieldError]:
    kind = target.get("kind", "")
    if kind not in {"", "Node"}:
        yield field_errors.not_supported("target.kind", kind, ("Node", "<empty>"))

    if not target.get("name"):
        yield field_errors.required("target.name")


def _binding_error(pod: Mapping[str, Any]) -> str:
    """Return why a pod cannot be bound; empty if it can."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"

    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'

    return "has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def _with_node(pod: dict[str, Any], binding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod with its node, and with the labels and annotations of the binding."""
    metadata = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        both = {**(metadata.get(field) or {}), **(binding["metadata"].get(field) or {})}
        if both:
            metadata[field] = both

    node = binding["target"]["name"]
    spec = {**(pod.get("spec") or {}), "nodeName": node}
    status = {**(pod.get("status") or {})}
    status["conditions"] = _with_scheduled_condition(status.get("conditions") or [])
    return {**pod, "metadata": metadata, "spec": spec, "status": status}


def _with_scheduled_condition(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    new = {
        "type": _SCHEDULED,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
    }
    others = [it for it in conditions if it.get("type") != _SCHEDULED]
    return [*others, new]


# ------------------------------------------------------------------ evictions


_EVICTION = Kind(resource=SUBRESOURCE_KINDS["eviction"])
# Phases of pods that no budget protects.
_UNPROTECTED_PHASES = frozenset({"Failed", "Pending", "Succeeded"})
_ALLOWED = "DisruptionAllowed"
_RETRY_SECONDS = 10
_STATUS_WRITE = WriteOptions(part="status", manager="kube-apiserver")


def eviction_of(
    namespace: str, name: str, body: object, options: WriteOptions
) -> dict[str, Any]:
    """Decode an Eviction.

    Raises:
        ApiError: 400 if the body is not an Eviction of this pod.
    """
    eviction = decode_body(_EVICTION, body, options)
    check_namespace(namespace, eviction["metadata"])
    if eviction["metadata"].get("name") != name:
        why = "name in URL does not match name in Eviction object"
        raise statuses.bad_request(why)

    return admit(_EVICTION, eviction, None, options)


def evict(
    registry: Registry,
    pods: Collection,
    namespace: str,
    name: str,
    options: DeleteOptions,
) -> None:
    """Delete a pod if its disruption budget allows it.

    Args:
        registry: Registry of the pods and budgets.
        pods: Collection of the pods.
        namespace: Namespace of the pod.
        name: Name of the pod.
        options: Options of the deletion.

    Raises:
        ApiError: 404 if the pod does not exist; 409 if a precondition fails; 429 if its
            budget allows no disruption; 500 if several budgets select the pod.
    """
    stored = registry.require(pods, namespace, name)
    pod = stored.body()
    budgets = registry.storage.collection(POD_DISRUPTION_BUDGETS)
    if not _ignores_budget(pod):
        found = [it for it in budgets if _selects(it, stored)]
        if len(found) > 1:
            raise statuses.failure(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction "
                "subresource does not support.",
            )

        if found and not _is_unready(pod, found[0].body()):
            less = _with_disruption(found[0].body(), name)
            preconditions.check_deletion(pods.kind, stored, options)
            of_status = replace(_STATUS_WRITE, dry_run=options.dry_run)
            registry.update(budgets, namespace, found[0].name, less, of_status)

    registry.delete(pods, namespace, name, options)


def _ignores_budget(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in _UNPROTECTED_PHASES or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _selects(budget: StoredObject, pod: StoredObject) -> bool:
    selector = (budget.body().get("spec") or {}).get("selector")
    if selector is None or budget.namespace != pod.namespace:
        return False

    return LabelSelector.of(selector).matches(pod.labels)


def _is_unready(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """Return whether an unhealthy pod may be evicted regardless of its budget."""
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


def _with_disruption(budget: dict[str, Any], pod: str) -> dict[str, Any]:
    """Return a budget with one allowed disruption less.

    Raises:
        ApiError: 429 if the budget allows none.
    """
    status, metadata = budget.get("status") or {}, budget["metadata"]
    name, generation = metadata["name"], metadata.get("generation") or 0
    if (status.get("observedGeneration") or 0) < generation:
        why = "is still being processed by the server."
        raise _too_many_requests(name, why, retry_after=_RETRY_SECONDS)

    left = status.get("disruptionsAllowed") or 0
    if not left:
        raise _too_many_requests(name, _why_no_disruption(status))

    new = {
        **status,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod: timestamp()},
        "disruptionsAllowed": left - 1,
    }
    if left == 1:
        new["conditions"] = _with_disruptions_exhausted(
            status.get("conditions") or [], generation
        )

    return {**budget, "status": new}


def _why_no_disruption(status: Mapping[str, Any]) -> str:
    """Return why a budget allows no disruption."""
    for it in status.get("conditions") or ():
        if it.get("type") == _ALLOWED and it.get("reason") == "SyncFailed":
            why = "does not allow evicting pods currently because it failed sync: "
            return f"{why}{it.get('message') or ''}"

    desired, healthy = status.get("desiredHealthy"), status.get("currentHealthy")
    return f"needs {desired or 0} healthy pods and has {healthy or 0} currently"


def _too_many_requests(
    budget: str, why: str, *, retry_after: int | None = None
) -> ApiError:
    message = f"The disruption budget {budget} {why}"
    details: dict[str, Any] = {
        "causes": [{"reason": "DisruptionBudget", "message": message}]
    }
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after

    said = "Cannot evict pod as it would violate the pod's disruption budget."
    return statuses.failure(429, "TooManyRequests", said, details)


def _with_disruptions_exhausted(
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
