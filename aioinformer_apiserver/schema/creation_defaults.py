"""Creation defaults: values that a new object gets once. Pure.

Registries and admission plugins of a real server add them: tolerations and a phase to a
Pod, a selector to a Job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer_apiserver.schema.go_types import struct_decoder
from aioinformer_apiserver.schema.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from decimal import Decimal

    from aioinformer.model import Resource
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["qos_class", "restore_creation_defaults", "with_creation_defaults"]

_STATUS = "status"
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS = 300
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"

# Priority classes of every cluster.
_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def with_creation_defaults(
    resource: Resource, schema: Schema, body: dict[str, Any], *, now: str
) -> dict[str, Any]:
    """Add the creation defaults of a built-in kind to a new object.

    The initial status of the kind replaces the given `status`, except for nodes. Not
    implemented are defaults from other objects: limit ranges, service accounts, and
    classes of priority, storage and ingress. See `with_addresses` for services.

    Args:
        resource: Resource of the object.
        schema: Schema of the kind.
        body: Object with its defaults, name and uid; not changed.
        now: Current time as a timestamp.
    """
    found = {**body, "metadata": {**body.get("metadata", {})}}
    if _STATUS in schema.fields and resource != resources.NODES:
        found[_STATUS] = first_status(schema)

    complete = _DEFAULTS.get(resource)
    if complete is not None:
        complete(found, now)

    return found


def restore_creation_defaults(
    resource: Resource, old: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    """Restore creation defaults that an update lacks.

    These are the template generation of a DaemonSet, the finalizers of a Namespace, and
    the fields that admission added to a Pod.

    Args:
        resource: Resource of the object.
        old: Stored object.
        new: Complete update; not changed.
    """
    if resource == resources.NAMESPACES:
        kept = (old.get("spec") or {}).get("finalizers")
        spec = {**(new.get("spec") or {}), "finalizers": kept}
        return {**new, "spec": {k: it for k, it in spec.items() if it}}

    if resource == resources.PODS:
        return _keep_admitted_fields(old, new)

    return (
        _with_template_generation(old, new)
        if resource == resources.DAEMON_SETS
        else new
    )


def _keep_admitted_fields(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    before, spec = old.get("spec") or {}, dict(new.get("spec") or {})
    had = [
        key
        for key in _TAINTS
        if any(_tolerates(it, key) for it in _tolerations_of(before))
    ]
    _add_tolerations(spec, had)
    given = {k: before[k] for k in ("priority", "preemptionPolicy") if k in before}
    return {**new, "spec": {**given, **spec}}


def _with_template_generation(
    old: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    metadata = new["metadata"]
    annotations = old["metadata"].get("annotations") or {}
    count = int(annotations.get(_TEMPLATE_GENERATION) or 0)
    changed = _template(old) != _template(new)
    count_now = {_TEMPLATE_GENERATION: str(count + changed)}
    merged = {**(metadata.get("annotations") or {}), **count_now}
    return {**new, "metadata": {**metadata, "annotations": merged}}


def _template(body: dict[str, Any]) -> Any:
    return (body.get("spec") or {}).get("template")


def first_status(schema: Schema) -> dict[str, Any]:
    """Return the initial status of a new object from its schema."""
    status = schema.field(_STATUS)
    return struct_decoder(status.name)({}, None, []) if status is not None else {}


def qos_class(spec: dict[str, Any]) -> str:
    """Return the quality of service class of a Pod.

    It is `"Guaranteed"` if the limits of all containers equal their requests of CPU and
    memory, `"BestEffort"` if no container has requests or limits, else `"Burstable"`.

    Args:
        spec: Spec of the Pod with its defaults.
    """
    names = ("initContainers", "containers")
    containers = [it for name in names for it in spec.get(name) or ()]
    limited = requested = False
    guaranteed = True
    for container in containers:
        given = container.get("resources") or {}
        limits, requests = _amounts(given, "limits"), _amounts(given, "requests")
        limited, requested = limited or bool(limits), requested or bool(requests)
        guaranteed = guaranteed and len(limits) == 2 and requests == limits

    if not limited and not requested:
        return "BestEffort"

    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(given: dict[str, Any], field: str) -> dict[str, Decimal]:
    amounts = given.get(field) or {}
    found = {it: quantity(amounts[it]) for it in ("cpu", "memory") if it in amounts}
    return {name: it for name, it in found.items() if it}


def _add_tolerations(spec: dict[str, Any], taints: Iterable[str]) -> None:
    """Add the default tolerations of unreachable nodes."""
    tolerations = _tolerations_of(spec)
    missing = [
        key for key in taints if not any(_tolerates(it, key) for it in tolerations)
    ]
    if missing:
        spec["tolerations"] = [*tolerations, *map(_default_toleration, missing)]


def _default_toleration(taint: str) -> dict[str, Any]:
    return {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _EVICTION_SECONDS,
    }


def _tolerations_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("tolerations") or ())


# ---------------------------------------------------------------- by kind


def _pod(pod: dict[str, Any], now: str) -> None:
    spec = pod["spec"] = dict(pod.get("spec") or {})
    _add_tolerations(spec, _TAINTS)
    spec.setdefault("priority", _PRIORITIES.get(spec.get("priorityClassName", ""), 0))
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        # A negative period means "at once"; the server now stores one second.
        spec["terminationGracePeriodSeconds"] = 1

    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    status: dict[str, Any]
    status = pod[_STATUS] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": now}]


def _tolerates(toleration: dict[str, Any], taint: str) -> bool:
    """Return whether a toleration matches an eviction taint, for any duration."""
    return toleration.get("key", taint) in {taint, ""} and (
        toleration.get("effect", "NoExecute") in {"NoExecute", ""}
    )


def _job(job: dict[str, Any], now: str) -> None:
    """Add a selector by uid, and matching labels, to a Job."""
    spec = job["spec"] = dict(job.get("spec") or {})
    metadata = job["metadata"]
    if spec.get("manualSelector"):
        return

    uid, name = metadata["uid"], metadata["name"]
    unique = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = dict(spec.get("template") or {})
    inner = dict(template.get("metadata") or {})
    shared = metadata.get("labels") == inner.get("labels")
    inner["labels"] = {**inner.get("labels", {}), **unique}
    if shared:
        # A Job without labels gets those of its template.
        metadata["labels"] = inner["labels"]

    spec["template"] = {**template, "metadata": inner}
    selector = dict(spec.get("selector") or {})
    key = "batch.kubernetes.io/controller-uid"
    selector["matchLabels"] = {**selector.get("matchLabels", {}), key: uid}
    spec["selector"] = selector


def _daemon_set(daemon_set: dict[str, Any], now: str) -> None:
    metadata = daemon_set["metadata"]
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {**annotations, _TEMPLATE_GENERATION: "1"}


def _namespace(namespace: dict[str, Any], now: str) -> None:
    spec = namespace["spec"] = dict(namespace.get("spec") or {})
    finalizers = list(spec.get("finalizers") or ())
    if "kubernetes" not in finalizers:
        spec["finalizers"] = [*finalizers, "kubernetes"]

    namespace[_STATUS] = {"phase": "Active"}


def _node(node: dict[str, Any], now: str) -> None:
    spec = node["spec"] = dict(node.get("spec") or {})
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = list(spec.get("taints") or ())
    if not any(it.get("key") == taint["key"] for it in taints):
        spec["taints"] = [*taints, taint]


def _volume(volume: dict[str, Any], now: str) -> None:
    _add_finalizer(volume, "kubernetes.io/pv-protection")
    volume[_STATUS] = {"phase": "Pending", "lastPhaseTransitionTime": now}


def _claim(claim: dict[str, Any], now: str) -> None:
    _add_finalizer(claim, "kubernetes.io/pvc-protection")
    claim[_STATUS] = {"phase": "Pending"}


def _add_finalizer(body: dict[str, Any], finalizer: str) -> None:
    finalizers = list(body["metadata"].get("finalizers") or ())
    if finalizer not in finalizers:
        body["metadata"]["finalizers"] = [*finalizers, finalizer]


def _definition(definition: dict[str, Any], now: str) -> None:
    versions = (definition.get("spec") or {}).get("versions") or ()
    stored = [it.get("name", "") for it in versions if it.get("storage")]
    definition[_STATUS]["storedVersions"] = stored[:1]


_DEFAULTS: dict[Resource, Callable[[dict[str, Any], str], None]] = {
    resources.CUSTOM_RESOURCE_DEFINITIONS: _definition,
    resources.DAEMON_SETS: _daemon_set,
    resources.JOBS: _job,
    resources.NAMESPACES: _namespace,
    resources.NODES: _node,
    resources.PERSISTENT_VOLUMES: _volume,
    resources.PERSISTENT_VOLUME_CLAIMS: _claim,
    resources.PODS: _pod,
}
