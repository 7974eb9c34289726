"""Built-in checks: what a real server refuses of its own kinds most often.

Required fields, names, choices, numbers out of range, selectors that select nothing, and
changes of what cannot be changed. A real server checks more: the details of rarely used
volumes, of security contexts, of schedules. What is refused here, it refuses as well, and
in these words, except that it shows the difference after some of them.

Metadata is looked at elsewhere (`aioinformer_apiserver.registry.validation`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer_apiserver.schema import (
    network_checks,
    other_checks,
    storage_checks,
    update_checks,
    workload_checks,
)
from aioinformer_apiserver.schema.findings import forbidden
from aioinformer_apiserver.schema.pod_checks import pod_problems, token_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["check_created", "check_updated"]

Object = dict[str, Any]


def check_created(resource: Resource, body: Object) -> list[Problem]:
    """Find what is wrong with a new object of a built-in kind.

    Args:
        resource: What it is; of other kinds nothing is found.
        body: With its defaults, and completed (`births.completed`).
    """
    found = _state_problems(resource, body)
    if resource == resources.PODS and (body.get("spec") or {}).get(
        "ephemeralContainers"
    ):
        why = "cannot be set on create"
        found.append(forbidden("spec.ephemeralContainers", why))

    return found


def check_updated(resource: Resource, old: Object, new: Object) -> list[Problem]:
    """Find what is wrong with an update of an object of a built-in kind.

    Args:
        resource: What it is; of other kinds nothing is found.
        old: As it is stored.
        new: With its defaults; what the server alone sets is as in `old`.

    Returns:
        The problems; none if only metadata or status differ, so that an object that was
        stored without being checked can still be labelled and reported on.
    """
    if _essence(old) == _essence(new):
        return []

    changes = _CHANGES.get(resource)
    found = _state_problems(resource, new)
    return [*found, *changes(old, new)] if changes is not None else found


def _essence(body: Object) -> Object:
    return {k: it for k, it in body.items() if k not in _UNCHECKED}


_UNCHECKED = frozenset({"apiVersion", "kind", "metadata", "status"})


def _state_problems(resource: Resource, body: Object) -> list[Problem]:
    check = _STATES.get(resource)
    return list(check(body)) if check is not None else []


def _pod(body: Object) -> Iterator[Problem]:
    spec = body.get("spec") or {}
    return chain(pod_problems("spec", spec), token_problems("spec", spec))


def _immutable(*fields: str) -> Callable[[Object, Object], Iterator[Problem]]:
    return lambda old, new: update_checks.immutable_fields(old, new, *fields)


def _secret_changes(old: Object, new: Object) -> Iterator[Problem]:
    return chain(
        update_checks.immutable_fields(old, new, "type"),
        update_checks.data_changes(old, new),
    )


_STATES: dict[Resource, Callable[[Object], Iterator[Problem]]] = {
    resources.CLUSTER_ROLES: other_checks.role_problems,
    resources.CLUSTER_ROLE_BINDINGS: other_checks.binding_problems,
    resources.CONFIG_MAPS: other_checks.config_map_problems,
    resources.CRON_JOBS: workload_checks.cron_job_problems,
    resources.DAEMON_SETS: workload_checks.daemon_set_problems,
    resources.DEPLOYMENTS: workload_checks.deployment_problems,
    resources.ENDPOINTS: network_checks.endpoints_problems,
    resources.ENDPOINT_SLICES: network_checks.endpoint_slice_problems,
    resources.EVENTS: other_checks.event_problems,
    resources.HORIZONTAL_POD_AUTOSCALERS: workload_checks.autoscaler_problems,
    resources.INGRESSES: network_checks.ingress_problems,
    resources.INGRESS_CLASSES: network_checks.ingress_class_problems,
    resources.JOBS: workload_checks.job_problems,
    resources.LEASES: other_checks.lease_problems,
    resources.LIMIT_RANGES: other_checks.limit_range_problems,
    resources.NAMESPACES: other_checks.namespace_problems,
    resources.NETWORK_POLICIES: network_checks.network_policy_problems,
    resources.NODES: other_checks.node_problems,
    resources.PERSISTENT_VOLUMES: storage_checks.volume_problems,
    resources.PERSISTENT_VOLUME_CLAIMS: storage_checks.claim_problems,
    resources.PODS: _pod,
    resources.POD_DISRUPTION_BUDGETS: workload_checks.disruption_problems,
    resources.POD_TEMPLATES: workload_checks.template_object_problems,
    resources.PRIORITY_CLASSES: other_checks.priority_class_problems,
    resources.REPLICATION_CONTROLLERS: workload_checks.controller_problems,
    resources.REPLICA_SETS: workload_checks.replica_set_problems,
    resources.RESOURCE_QUOTAS: other_checks.quota_problems,
    resources.ROLES: other_checks.role_problems,
    resources.ROLE_BINDINGS: other_checks.binding_problems,
    resources.SECRETS: other_checks.secret_problems,
    resources.SERVICES: network_checks.service_problems,
    resources.STATEFUL_SETS: workload_checks.stateful_set_problems,
    resources.STORAGE_CLASSES: storage_checks.storage_class_problems,
}

_CHANGES: dict[Resource, Callable[[Object, Object], Iterator[Problem]]] = {
    resources.CLUSTER_ROLE_BINDINGS: update_checks.binding_changes,
    resources.CONFIG_MAPS: update_checks.data_changes,
    resources.DAEMON_SETS: update_checks.selector_changes,
    resources.DEPLOYMENTS: update_checks.selector_changes,
    resources.ENDPOINT_SLICES: _immutable("addressType"),
    resources.INGRESS_CLASSES: _immutable("spec.controller"),
    resources.JOBS: update_checks.job_changes,
    resources.NODES: update_checks.node_changes,
    resources.PERSISTENT_VOLUMES: update_checks.volume_changes,
    resources.PERSISTENT_VOLUME_CLAIMS: update_checks.claim_changes,
    resources.PODS: update_checks.pod_changes,
    resources.PRIORITY_CLASSES: update_checks.priority_class_changes,
    resources.REPLICA_SETS: update_checks.selector_changes,
    resources.ROLE_BINDINGS: update_checks.binding_changes,
    resources.SECRETS: _secret_changes,
    resources.SERVICES: update_checks.service_changes,
    resources.STATEFUL_SETS: update_checks.stateful_set_changes,
    resources.STORAGE_CLASSES: _immutable(
        "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"
    ),
}
