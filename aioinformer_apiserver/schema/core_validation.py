"""Validation of data, events, leases, namespaces, nodes, limits and RBAC."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors, names
from aioinformer_apiserver.errors.field_errors import GoStruct
from aioinformer_apiserver.errors.names import STANDARD_FINALIZERS
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import as_list, immutable_fields
from aioinformer_apiserver.schema.quantities import is_multiple, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = [
    "validate_config_map",
    "validate_event",
    "validate_lease",
    "validate_limit_range",
    "validate_namespace",
    "validate_node",
    "validate_priority_class",
    "validate_resource_quota",
    "validate_role",
    "validate_role_binding",
    "validate_secret",
]

Object = dict[str, Any]

_LARGEST_DATA = 1024 * 1024
# in bytes, despite the message
_EVENT_TEXTS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-cluster-critical", "system-node-critical"}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RBAC = "rbac.authorization.k8s.io"


# ---------------------------------------------------------------- data


def validate_config_map(body: Object) -> Iterator[FieldError]:
    """Validate a ConfigMap."""
    texts, octets = body.get("data") or {}, body.get("binaryData") or {}
    size = 0
    for key, text in texts.items():
        yield from fields.data_key(f"data[{key}]", key)
        if key in octets:
            why = "duplicate of key present in binaryData"
            yield field_errors.invalid(f"data[{key}]", key, why)

        size += len(text.encode())

    for key, text in octets.items():
        yield from fields.data_key(f"binaryData[{key}]", key)
        size += len(b64decode(text))

    if size > _LARGEST_DATA:
        # The real server reports no path.
        yield field_errors.too_long("[]", _LARGEST_DATA)


# Required keys of Secrets by type.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def validate_secret(body: Object) -> Iterator[FieldError]:
    """Validate a Secret whose string data is already moved to its data."""
    data, kind = body.get("data") or {}, body.get("type", "")
    for key in data:
        yield from fields.data_key(f"data[{key}]", key)

    if sum(len(b64decode(it)) for it in data.values()) > _LARGEST_DATA:
        yield field_errors.too_long("data", _LARGEST_DATA)

    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield field_errors.required(f"data[{key}]")
        elif key.startswith("."):
            yield from _validate_json(key, data[key])

    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & {*data}:
        for key in ("username", "password"):
            yield field_errors.required(f"data[{key}]")

    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        annotations = (body.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(name):
            yield field_errors.required(f"metadata.annotations[{name}]")


def _validate_json(key: str, data: str) -> Iterator[FieldError]:
    text = b64decode(data).decode(errors="replace")
    try:
        json.loads(text)
    except ValueError:
        shown = "<secret contents redacted>"
        first = text.lstrip()[:1]
        why = f"invalid character '{first}' looking for beginning of value"
        why = why if first else "unexpected end of JSON input"
        yield field_errors.invalid(f"data[{key}]", shown, why)


# ---------------------------------------------------------------- the cluster


def validate_event(body: Object) -> Iterator[FieldError]:
    """Validate an Event."""
    namespace = (body.get("metadata") or {}).get("namespace", "")
    involved = (body.get("involvedObject") or {}).get("namespace", "")
    # Events about cluster-scoped objects may be in "default".
    if namespace != involved and (involved or namespace != "default"):
        why = "does not match event.namespace"
        yield field_errors.invalid("involvedObject.namespace", involved, why)

    if not body.get("eventTime"):
        return

    # Only events of the newer API are validated further.
    reporter = body.get("reportingComponent", "")
    if not reporter:
        yield field_errors.required("reportingComponent")

    yield from fields.qualified("reportingComponent", reporter)
    for field in ("reportingInstance", "action", "reason"):
        if not body.get(field):
            yield field_errors.required(field)

    for field, most in _EVENT_TEXTS.items():
        if len((body.get(field) or "").encode()) > most:
            why = f"can have at most {most} characters"
            yield field_errors.invalid(field, "", why)


def validate_lease(body: Object) -> Iterator[FieldError]:
    """Validate a Lease."""
    spec = body.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        why = "must be greater than 0"
        yield field_errors.invalid("spec.leaseDurationSeconds", seconds, why)

    yield from fields.at_least("spec.leaseTransitions", spec.get("leaseTransitions"))


def validate_namespace(body: Object) -> Iterator[FieldError]:
    """Validate a Namespace."""
    for it in as_list((body.get("spec") or {}).get("finalizers")):
        yield from fields.qualified("spec.finalizers", it)
        if "/" not in it and it not in STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield field_errors.invalid("spec.finalizers", it, why)


def validate_node(body: Object) -> Iterator[FieldError]:
    """Validate a Node."""
    spec = body.get("spec") or {}
    seen: set[tuple[Any, Any]] = set()
    for index, it in enumerate(as_list(spec.get("taints"))):
        # The real server reports them as metadata.
        path, key, effect = f"metadata.taints[{index}]", it.get("key"), it.get("effect")
        yield from fields.qualified(f"{path}.key", key or "")
        yield from fields.one_of(f"{path}.effect", effect or "", _EFFECTS)
        if (key, effect) in seen:
            shown = GoStruct(
                Key=key,
                Value=it.get("value", ""),
                Effect=effect,
                TimeAdded=it.get("timeAdded"),
            )
            why = "taints must be unique by key and effect pair"
            yield field_errors.duplicate(path, shown, why)

        seen.add((key, effect))

    for index, it in enumerate(as_list(spec.get("podCIDRs"))):
        yield from fields.network(f"spec.podCIDRs[{index}]", it)


def validate_priority_class(body: Object) -> Iterator[FieldError]:
    """Validate a PriorityClass."""
    name = (body.get("metadata") or {}).get("name", "")
    if name.startswith("system-"):
        if name not in _SYSTEM_PRIORITIES:
            why = "priority class names with 'system-' prefix are reserved for system "
            why += f"use only. error: {name} is not a known system priority class"
            yield field_errors.forbidden("metadata.name", why)
    elif body.get("value", 0) > _HIGHEST_PRIORITY:
        why = "maximum allowed value of a user defined priority is "
        yield field_errors.forbidden("value", f"{why}{_HIGHEST_PRIORITY}")

    policy = body.get("preemptionPolicy")
    if policy is not None:
        choices = ("PreemptLowerPriority", "Never")
        yield from fields.one_of("preemptionPolicy", policy, choices)


# ---------------------------------------------------------------- limits


def validate_resource_quota(body: Object) -> Iterator[FieldError]:
    """Validate a ResourceQuota."""
    spec = body.get("spec") or {}
    for name, amount in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        yield from fields.qualified(path, name)
        if "/" not in name and name not in _QUOTAS and not name.startswith(_HUGE):
            why = "must be a standard resource type or fully qualified"
            yield field_errors.invalid(path, name, why)
            yield field_errors.invalid(
                path, name, "must be a standard resource for quota"
            )
        elif quantity(amount) < 0:
            why = "must be greater than or equal to 0"
            yield field_errors.invalid(path, amount, why)
        elif _counts(name) and not is_multiple(quantity(amount)):
            yield field_errors.invalid(path, amount, "must be an integer")

    scopes = as_list(spec.get("scopes"))
    if any(it not in _SCOPES for it in scopes):
        yield field_errors.invalid("spec.scopes", scopes, "unsupported scope")


def _counts(name: str) -> bool:
    return name in _COUNTED or name.startswith("count/")


_HUGE = ("hugepages-", "requests.hugepages-", "limits.hugepages-")
_COUNTED = {
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
}
_AMOUNTS = {"cpu", "memory", "ephemeral-storage"}
_QUOTAS = {
    *_COUNTED,
    *_AMOUNTS,
    *(f"{part}.{it}" for part in ("requests", "limits") for it in _AMOUNTS),
    "requests.storage",
}

_SCOPES = {
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
}


def validate_limit_range(body: Object) -> Iterator[FieldError]:
    """Validate a LimitRange."""
    seen: set[str] = set()
    for index, it in enumerate(as_list((body.get("spec") or {}).get("limits"))):
        path, kind = f"spec.limits[{index}]", it.get("type", "")
        yield from fields.qualified(f"{path}.type", kind)
        if kind in seen:
            yield field_errors.duplicate(f"{path}.type", kind)

        seen.add(kind)
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if field in it:
                    why = "may not be specified when `type` is 'Pod'"
                    yield field_errors.forbidden(f"{path}.{field}", why)

        yield from _validate_bounds(path, it)


# Pairs of bounds in which the first must not exceed the second, the field of the
# problem, and the names of both bounds.
_ORDERS = (
    ("min", "max", "min", "min", "max"),
    ("min", "defaultRequest", "defaultRequest", "min", "default request"),
    ("defaultRequest", "max", "defaultRequest", "default request", "max"),
    ("min", "default", "default", "min", "default"),
    ("default", "max", "default", "default", "max"),
    ("defaultRequest", "default", "defaultRequest", "default request", "default"),
)


def _validate_bounds(path: str, item: Object) -> Iterator[FieldError]:
    for low, high, place, low_name, high_name in _ORDERS:
        lows, highs = item.get(low) or {}, item.get(high) or {}
        for name in lows.keys() & highs.keys():
            small, large = lows[name], highs[name]
            if quantity(small) > quantity(large):
                # For a default that is too small the real server shows
                # the minimum, except if the default is a request.
                shown = large if place == "defaultRequest" == high else small
                why = f"{low_name} value {small} is greater than {high_name} value {large}"
                yield field_errors.invalid(f"{path}.{place}[{name}]", shown, why)


# ---------------------------------------------------------------- roles


def validate_role(body: Object) -> Iterator[FieldError]:
    """Validate a Role or ClusterRole."""
    namespaced = body.get("kind") == "Role"
    for index, rule in enumerate(as_list(body.get("rules"))):
        path, urls = f"rules[{index}]", as_list(rule.get("nonResourceURLs"))
        if not rule.get("verbs"):
            why = "verbs must contain at least one value"
            yield field_errors.required(f"{path}.verbs", why)

        if urls and namespaced:
            why = "namespaced rules cannot apply to non-resource URLs"
            yield field_errors.invalid(f"{path}.nonResourceURLs", urls, why)
        elif urls:
            if rule.get("apiGroups") or rule.get("resources"):
                why = "rules cannot apply to both regular resources and "
                why += "non-resource URLs"
                yield field_errors.invalid(f"{path}.nonResourceURLs", urls, why)
        else:
            for field, word in (("apiGroups", "api group"), ("resources", "resource")):
                if not rule.get(field):
                    why = f"resource rules must supply at least one {word}"
                    yield field_errors.required(f"{path}.{field}", why)


def validate_role_binding(body: Object) -> Iterator[FieldError]:
    """Validate a RoleBinding or ClusterRoleBinding."""
    namespaced = body.get("kind") == "RoleBinding"
    role = body.get("roleRef") or {}
    yield from fields.one_of("roleRef.apiGroup", role.get("apiGroup"), (_RBAC,))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    yield from fields.one_of("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield field_errors.required("roleRef.name")

    for index, it in enumerate(as_list(body.get("subjects"))):
        yield from _validate_subject(f"subjects[{index}]", it, namespaced=namespaced)


def _validate_subject(
    path: str, subject: Object, *, namespaced: bool
) -> Iterator[FieldError]:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    group, expected = subject.get("apiGroup", ""), _RBAC
    if not name:
        yield field_errors.required(f"{path}.name")

    if kind == "ServiceAccount":
        expected = ""
        if name:
            yield from fields.subdomain(f"{path}.name", name)

        if not namespaced and not subject.get("namespace"):
            yield field_errors.required(f"{path}.namespace")
    elif kind not in {"User", "Group"}:
        choices = ("ServiceAccount", "User", "Group")
        yield field_errors.not_supported(f"{path}.kind", kind, choices)
        return

    if group != expected:
        yield field_errors.not_supported(f"{path}.apiGroup", group, (expected,))


# ------------------------------------------------------------------ events.k8s.io


_UNSET = ("firstTimestamp", "lastTimestamp", "count")
_IMMUTABLE = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
)
_FEWEST = 2


def validate_events_v1(new: Object, old: Object | None) -> Iterator[FieldError]:
    """Validate an event that is written as events.k8s.io/v1.

    Args:
        new: Next state, in the version of the core group.
        old: Stored object, in the same version; None if the event is new.
    """
    if old is not None:
        if new.get("series") != old.get("series"):
            yield from _validate_series(new.get("series"))

        yield from immutable_fields(
            _rename_fields(old), _rename_fields(new), *_IMMUTABLE
        )
        return

    for it in validate_event(new):
        named = it.field.replace("reportingComponent", "reportingController")
        yield replace(it, field=named)

    name = new["metadata"]["name"]
    for why in names.validate_subdomain(name):
        yield field_errors.invalid("metadata.name", name, why)

    yield from _validate_series(new.get("series"))
    if not new.get("eventTime"):
        yield field_errors.required("eventTime")

    given = new.get("type", "")
    if given not in {"Normal", "Warning"}:
        yield field_errors.invalid("type", "", f"has invalid value: {given}")

    for field in _UNSET:
        if new.get(field):
            yield field_errors.invalid(field, "", "needs to be unset")

    if any((new.get("source") or {}).values()):
        yield field_errors.invalid("source", "", "needs to be unset")


def _validate_series(series: Object | None) -> Iterator[FieldError]:
    if series is None:
        return

    if series.get("count", 0) < _FEWEST:
        yield field_errors.invalid("series.count", "", f"should be at least {_FEWEST}")

    if not series.get("lastObservedTime"):
        yield field_errors.required("series.lastObservedTime")


def _rename_fields(body: Object) -> Object:
    return {**body, "reportingController": body.get("reportingComponent", "")}
