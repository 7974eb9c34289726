"""Bindings: what a scheduler writes to say on which node a pod is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.registry import preconditions, validation
from aioinformer_apiserver.registry.completion import timestamp
from aioinformer_apiserver.registry.intake import received
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.errors.field_errors import Problem
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.storage import Collection

__all__ = ["bind"]

_BINDING = Kind(resource=SUBRESOURCE_KINDS["binding"])
# What a conflict is about.
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
    """Put a pod on a node, which need not exist.

    Args:
        registry: Of the pods.
        pods: Their collection.
        namespace: Of the pod.
        name: Of the pod; empty if only the body names it.
        body: The Binding: bytes of JSON, or decoded.
        options: How.

    Raises:
        ApiError: 400 if the body is no Binding of this pod, 500 if it names no node, 404
            if there is no such pod, 409 if it is on a node already, is being deleted, or
            is not to be scheduled yet, or is another one than is meant.
    """
    binding = received(_BINDING, body, options)
    metadata = binding["metadata"]
    given = metadata.get("name") or ""
    validation.check_namespace(namespace, metadata)
    if name and given != name:
        why = "name in URL does not match name in Binding object"
        raise statuses.bad_request(why)

    if not given:
        raise statuses.bad_request("Name parameter required.")

    _check_target(binding.get("target") or {})
    stored = registry.require(pods, namespace, given)
    preconditions.check_bound(pods.kind, stored, metadata)
    pod = stored.body()
    why = _obstacle(pod)
    if why:
        message = f'Operation cannot be fulfilled on {_SUBRESOURCE} "{given}": '
        message += f"pod {given} {why}"
        details = {"name": given, "kind": _SUBRESOURCE}
        raise statuses.failure(409, "Conflict", message, details)

    if not options.dry_run:
        # Past everything that updates go through: nobody owns it, and it is no new
        # generation.
        registry.storage.put(pods, _bound(pod, binding))


def _check_target(target: Mapping[str, Any]) -> None:
    problems = [*_wrong_target(target)]
    if problems:
        told = [f"{it.field}: {it.message}" for it in problems]
        message = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        raise statuses.failure(500, "", message)


def _wrong_target(target: Mapping[str, Any]) -> Iterator[Problem]:
    kind = target.get("kind", "")
    if kind not in {"", "Node"}:
        yield findings.not_supported("target.kind", kind, ("Node", "<empty>"))

    if not target.get("name"):
        yield findings.required("target.name")


def _obstacle(pod: Mapping[str, Any]) -> str:
    """Say why a pod cannot be put on a node; empty if it can."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"

    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'

    return "has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def _bound(pod: dict[str, Any], binding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as it is on its node, with what the binding says besides."""
    metadata = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        both = {**(metadata.get(field) or {}), **(binding["metadata"].get(field) or {})}
        if both:
            metadata[field] = both

    node = binding["target"]["name"]
    spec = {**(pod.get("spec") or {}), "nodeName": node}
    status = {**(pod.get("status") or {})}
    status["conditions"] = _scheduled(status.get("conditions") or [])
    return {**pod, "metadata": metadata, "spec": spec, "status": status}


def _scheduled(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    new = {
        "type": _SCHEDULED,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
    }
    others = [it for it in conditions if it.get("type") != _SCHEDULED]
    return [*others, new]
