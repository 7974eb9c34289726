"""Validation of built-in kinds: the rules that a real server enforces most often.

These are required fields, names, choices, ranges, selectors, and immutable fields. A
real server validates more: details of rarely used volumes, security contexts,
schedules. It rejects whatever is rejected here, in the same words, but appends a diff
to some of them.

`aioinformer_apiserver.registry.validation` validates the metadata.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.errors.field_errors import GoStruct, forbidden, format_value
from aioinformer_apiserver.schema import (
    core_validation,
    network_validation,
    storage_validation,
    webhook_validation,
    workload_validation,
)
from aioinformer_apiserver.schema.field_validation import (
    as_list,
    immutable_fields,
    is_changed,
)
from aioinformer_apiserver.schema.pod_validation import (
    validate_pod_spec,
    validate_token_projections,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.model import Resource
    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = ["validate_create", "validate_update"]

Object = dict[str, Any]


def validate_create(resource: Resource, body: Object) -> list[FieldError]:
    """Validate a new object of a built-in kind.

    Args:
        resource: Resource of the object; others have no errors.
        body: Object with its defaults, completed by `with_creation_defaults`.
    """
    found = _validate_object(resource, body)
    if resource == resources.PODS and (body.get("spec") or {}).get(
        "ephemeralContainers"
    ):
        why = "cannot be set on create"
        found.append(forbidden("spec.ephemeralContainers", why))

    return found


def validate_update(resource: Resource, old: Object, new: Object) -> list[FieldError]:
    """Validate an update of an object of a built-in kind.

    Args:
        resource: Resource of the object; others have no errors.
        old: Stored object.
        new: Next state with its defaults and with the server-owned fields of `old`.

    Returns:
        Errors; none if only metadata or status differ. So clients can label an
        arranged object, and write its status, even if its spec is invalid.
    """
    if _without_status_and_metadata(old) == _without_status_and_metadata(new):
        return []

    changes = _UPDATE_CHECKS.get(resource)
    found = _validate_object(resource, new)
    return [*found, *changes(old, new)] if changes is not None else found


# ---------------------------------------------------------------- updates


_POD_FIELDS = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
    "was previously negative)"
)

_SET_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _specs(old: Object, new: Object) -> tuple[Object, Object]:
    return old.get("spec") or {}, new.get("spec") or {}


# ---------------------------------------------------------------- pods


def _validate_pod_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of immutable pod fields."""
    before, after = _specs(old, new)
    for field in ("containers", "initContainers"):
        if len(as_list(before.get(field))) != len(as_list(after.get(field))):
            why = "pod updates may not add or remove containers"
            yield field_errors.forbidden(f"spec.{field}", why)
            return

    for field in ("containers", "initContainers"):
        for index, it in enumerate(as_list(after.get(field))):
            if not it.get("image"):
                yield field_errors.required(f"spec.{field}[{index}].image")

    late = _deadline_error(before, after)
    if late is not None:
        yield late
        if after.get("activeDeadlineSeconds") is not None:
            return

    yield from _validate_toleration_changes(before, after)
    yield from _validate_gate_changes(before, after)
    if is_changed(before, _with_allowed_changes(before, after)):
        why = f"pod updates may not change fields other than {_POD_FIELDS}"
        yield field_errors.forbidden("spec", why)


def _deadline_error(before: Object, after: Object) -> FieldError | None:
    path = "spec.activeDeadlineSeconds"
    old, new = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if new is None:
        why = "must not update from a positive integer to nil value"
        return field_errors.invalid(path, None, why) if old is not None else None

    if old is not None and old < new:
        why = "must be less than or equal to previous value"
        return field_errors.invalid(path, new, why)

    return None


def _validate_toleration_changes(before: Object, after: Object) -> Iterator[FieldError]:
    """Reject changes of tolerations, except for additions and other durations."""
    kept = {
        format_value(_without_seconds(it)) for it in as_list(after.get("tolerations"))
    }
    if any(
        format_value(_without_seconds(it)) not in kept
        for it in as_list(before.get("tolerations"))
    ):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield field_errors.forbidden("spec.tolerations", why)


def _without_seconds(toleration: Object) -> Object:
    return {k: it for k, it in toleration.items() if k != "tolerationSeconds"}


def _validate_gate_changes(before: Object, after: Object) -> Iterator[FieldError]:
    known = {it.get("name") for it in as_list(before.get("schedulingGates"))}
    for index, it in enumerate(as_list(after.get("schedulingGates"))):
        if it.get("name") not in known:
            why = "only deletion is allowed, but found new scheduling gate "
            path = f"spec.schedulingGates[{index}].name"
            yield field_errors.forbidden(path, f"{why}'{it.get('name')}'")


def _with_allowed_changes(before: Object, after: Object) -> Object:
    """Revert the changes that are allowed."""
    found = dict(after)
    for field in ("containers", "initContainers"):
        pairs = zip(as_list(after.get(field)), as_list(before.get(field)), strict=True)
        if field in after:
            found[field] = [_with_image(new, old.get("image")) for new, old in pairs]

    undone = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    if before.get("schedulingGates"):
        # The pod is not scheduled yet, so its node selection may be narrowed.
        undone += ["nodeSelector", "affinity"]

    if before.get("terminationGracePeriodSeconds", 0) < 0:
        undone.append("terminationGracePeriodSeconds")

    for field in undone:
        found.pop(field, None)
        if field in before:
            found[field] = before[field]

    return found


def _with_image(container: Object, image: str | None) -> Object:
    return {**container, "image": image}


# ---------------------------------------------------------------- workloads


def _validate_selector_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of the selector."""
    yield from immutable_fields(old, new, "spec.selector")


def _validate_stateful_set_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of immutable StatefulSet fields."""
    kept = [
        {k: it for k, it in s.items() if k not in _SET_FIELDS} for s in _specs(old, new)
    ]
    if is_changed(*kept):
        *others, last = (f"'{it}'" for it in _SET_FIELDS)
        why = "updates to statefulset spec for fields other than "
        why += f"{', '.join(others)} and {last} are forbidden"
        yield field_errors.forbidden("spec", why)


def _validate_job_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of immutable Job fields."""
    before, after = _specs(old, new)
    elastic = (
        after.get("completionMode") == "Indexed"
        and after.get("completions") == after.get("parallelism")
        and before.get("completions") is not None
    )
    if not elastic:
        yield from immutable_fields(old, new, "spec.completions")

    yield from immutable_fields(old, new, "spec.selector")
    suspended = before.get("suspend") and not (old.get("status") or {}).get("startTime")
    if not suspended:
        yield from immutable_fields(old, new, "spec.template")

    yield from immutable_fields(
        old,
        new,
        "spec.completionMode",
        "spec.podFailurePolicy",
        "spec.backoffLimitPerIndex",
    )


# ---------------------------------------------------------------- other kinds


def _validate_service_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of the cluster IP."""
    before, after = _specs(old, new)
    if "ExternalName" in {before.get("type"), after.get("type")}:
        return

    had, has = as_list(before.get("clusterIPs")), as_list(after.get("clusterIPs"))
    if had and has and had[0] != has[0]:
        yield field_errors.invalid("spec.clusterIPs[0]", has, "may not change once set")


def _validate_data_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of immutable data."""
    if not old.get("immutable"):
        return

    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield field_errors.forbidden("immutable", why)

    for field in ("data", "binaryData"):
        if is_changed(old.get(field) or {}, new.get(field) or {}):
            yield field_errors.forbidden(field, why)


def _validate_claim_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of immutable PersistentVolumeClaim fields."""
    before, after = _specs(old, new)
    after = dict(after)
    if not before.get("volumeName"):
        after.pop("volumeName", None)

    if not before.get("storageClassName") and not before.get("volumeName"):
        # A default class may have been added since.
        after.pop("storageClassName", None)

    bound = (old.get("status") or {}).get("phase") == "Bound"
    if bound:
        for field in ("resources", "volumeAttributesClassName"):
            after.pop(field, None)
            if field in before:
                after[field] = before[field]

    if is_changed(before, after):
        why = "spec is immutable after creation except resources.requests and "
        why += "volumeAttributesClassName for bound claims"
        yield field_errors.forbidden("spec", why)

    if before.get("volumeMode") != after.get("volumeMode"):
        yield field_errors.immutable("volumeMode", after.get("volumeMode"))


def _validate_volume_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of a volume's source."""
    before, after = _specs(old, new)
    if is_changed(
        *({k: s.get(k) for k in _sources(before, after)} for s in (before, after))
    ):
        where = "spec.persistentvolumesource"
        yield field_errors.forbidden(where, f"{where} is immutable after creation")

    if before.get("volumeMode") != after.get("volumeMode"):
        yield field_errors.immutable("volumeMode", after.get("volumeMode"))


# Fields of a PersistentVolume's spec that are not its source.
_NO_SOURCES = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}


def _sources(before: Object, after: Object) -> list[str]:
    return sorted((before.keys() | after.keys()) - _NO_SOURCES)


def _validate_priority_class_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of the priority."""
    if old.get("value", 0) != new.get("value", 0):
        yield field_errors.forbidden("value", "may not be changed in an update.")

    yield from immutable_fields(old, new, "preemptionPolicy")


def _validate_binding_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of the role."""
    role = new.get("roleRef") or {}
    if is_changed(old.get("roleRef"), new.get("roleRef")):
        names = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
        quoted = GoStruct({title: role.get(field, "") for title, field in names})
        yield field_errors.invalid("roleRef", quoted, "cannot change roleRef")


def _validate_node_update(old: Object, new: Object) -> Iterator[FieldError]:
    """Reject changes of the pod network or provider, once they are set."""
    before, after = _specs(old, new)
    for field, name in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        if before.get(field) and before[field] != after.get(field):
            why = f'node updates may not change {name} except from "" to valid'
            yield field_errors.forbidden(f"spec.{field}", why)


# ---------------------------------------------------------------- by kind


def _without_status_and_metadata(body: Object) -> Object:
    return {k: it for k, it in body.items() if k not in _IGNORED_FIELDS}


_IGNORED_FIELDS = frozenset({"apiVersion", "kind", "metadata", "status"})


def _validate_object(resource: Resource, body: Object) -> list[FieldError]:
    check = _OBJECT_CHECKS.get(resource)
    return list(check(body)) if check is not None else []


def _pod(body: Object) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    return chain(
        validate_pod_spec("spec", spec), validate_token_projections("spec", spec)
    )


def _immutable(*fields: str) -> Callable[[Object, Object], Iterator[FieldError]]:
    return lambda old, new: immutable_fields(old, new, *fields)


def _validate_secret_update(old: Object, new: Object) -> Iterator[FieldError]:
    return chain(
        immutable_fields(old, new, "type"),
        _validate_data_update(old, new),
    )


_OBJECT_CHECKS: dict[Resource, Callable[[Object], Iterator[FieldError]]] = {
    resources.CLUSTER_ROLES: core_validation.validate_role,
    resources.CLUSTER_ROLE_BINDINGS: core_validation.validate_role_binding,
    resources.CONFIG_MAPS: core_validation.validate_config_map,
    resources.CRON_JOBS: workload_validation.validate_cron_job,
    resources.DAEMON_SETS: workload_validation.validate_daemon_set,
    resources.DEPLOYMENTS: workload_validation.validate_deployment,
    resources.ENDPOINTS: network_validation.validate_endpoints,
    resources.ENDPOINT_SLICES: network_validation.validate_endpoint_slice,
    resources.EVENTS: core_validation.validate_event,
    resources.HORIZONTAL_POD_AUTOSCALERS: workload_validation.validate_autoscaler,
    resources.INGRESSES: network_validation.validate_ingress,
    resources.INGRESS_CLASSES: network_validation.validate_ingress_class,
    resources.JOBS: workload_validation.validate_job,
    resources.LEASES: core_validation.validate_lease,
    resources.LIMIT_RANGES: core_validation.validate_limit_range,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS: webhook_validation.validate_mutating_webhooks,
    resources.NAMESPACES: core_validation.validate_namespace,
    resources.NETWORK_POLICIES: network_validation.validate_network_policy,
    resources.NODES: core_validation.validate_node,
    resources.PERSISTENT_VOLUMES: storage_validation.validate_persistent_volume,
    resources.PERSISTENT_VOLUME_CLAIMS: storage_validation.validate_persistent_volume_claim,
    resources.PODS: _pod,
    resources.POD_DISRUPTION_BUDGETS: workload_validation.validate_disruption_budget,
    resources.POD_TEMPLATES: workload_validation.validate_pod_template_object,
    resources.PRIORITY_CLASSES: core_validation.validate_priority_class,
    resources.REPLICATION_CONTROLLERS: workload_validation.validate_replication_controller,
    resources.REPLICA_SETS: workload_validation.validate_replica_set,
    resources.RESOURCE_QUOTAS: core_validation.validate_resource_quota,
    resources.ROLES: core_validation.validate_role,
    resources.ROLE_BINDINGS: core_validation.validate_role_binding,
    resources.SECRETS: core_validation.validate_secret,
    resources.SERVICES: network_validation.validate_service,
    resources.STATEFUL_SETS: workload_validation.validate_stateful_set,
    resources.STORAGE_CLASSES: storage_validation.validate_storage_class,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS: webhook_validation.validate_validating_webhooks,
}

_UPDATE_CHECKS: dict[Resource, Callable[[Object, Object], Iterator[FieldError]]] = {
    resources.CLUSTER_ROLE_BINDINGS: _validate_binding_update,
    resources.CONFIG_MAPS: _validate_data_update,
    resources.DAEMON_SETS: _validate_selector_update,
    resources.DEPLOYMENTS: _validate_selector_update,
    resources.ENDPOINT_SLICES: _immutable("addressType"),
    resources.INGRESS_CLASSES: _immutable("spec.controller"),
    resources.JOBS: _validate_job_update,
    resources.NODES: _validate_node_update,
    resources.PERSISTENT_VOLUMES: _validate_volume_update,
    resources.PERSISTENT_VOLUME_CLAIMS: _validate_claim_update,
    resources.PODS: _validate_pod_update,
    resources.PRIORITY_CLASSES: _validate_priority_class_update,
    resources.REPLICA_SETS: _validate_selector_update,
    resources.ROLE_BINDINGS: _validate_binding_update,
    resources.SECRETS: _validate_secret_update,
    resources.SERVICES: _validate_service_update,
    resources.STATEFUL_SETS: _validate_stateful_set_update,
    resources.STORAGE_CLASSES: _immutable(
        "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"
    ),
}
