"""Defaults: values of fields that a client has left out.

Custom resources get the `default:` of their schema. Built-in kinds get the defaults of
their types wherever these occur: a probe in a Pod has the same defaults as one in the
template of a CronJob.

Rules have as keys the last three parts of a definition's name. A rule changes its
object, a shallow copy, in place. It must not change the values in it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from functools import cache, lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from aioinformer_apiserver.schema.openapi_schema import definition, go_fields
from aioinformer_apiserver.schema.quantities import canonical_quantity, quantity

if TYPE_CHECKING:
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["CONSTANTS", "RULES", "Rule", "pull_policy", "with_defaults"]


def with_defaults(schema: Schema, body: dict[str, Any]) -> dict[str, Any]:
    """Apply the defaults of a kind to an object. Idempotent.

    The requests of a whole Pod (`spec.resources`), which a real server sums up from its
    containers, are not implemented.

    Args:
        schema: Schema of the kind; for built-in kinds from `schema_of`.
        body: Object from `decode`; not changed.

    Returns:
        A new object that may share unchanged parts with the given one.
    """
    if schema.name:
        return _with_type_defaults(schema.name, body)

    found: dict[str, Any] = _with_schema_defaults(schema, body)
    return found


# ---------------------------------------------------------------- custom resources


def _with_schema_defaults(schema: Schema, value: Any) -> Any:
    """Apply the defaults of a schema, also within defaults."""
    if value.__class__ is list and schema.items is not None:
        items = schema.items
        return [_with_schema_defaults(items, it) for it in value]

    if value.__class__ is not dict:
        return value

    found = dict(value)
    for name in schema.fields:
        child = schema.field(name)
        if child is None:
            continue

        if name not in found and child.default is not msgspec.UNSET:
            found[name] = deepcopy(child.default)

        if name in found:
            found[name] = _with_schema_defaults(child, found[name])

    values = schema.values
    if values is not None:
        for name in found.keys() - set(schema.fields):
            found[name] = _with_schema_defaults(values, found[name])

    return found


# ---------------------------------------------------------------- built-in kinds


class _Reference(NamedTuple):
    """Field that leads to a definition with defaults."""

    name: str
    form: type | None
    """`list` or `dict` for several values, None for one."""

    target: str
    """Definition of the values."""


def _with_type_defaults(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Apply the rules of a definition, then those of the definitions in it."""
    constants, written, fresh, rule = _rules(name)
    found = {**constants, **value}
    for field in written:
        if found[field] is None or found[field] == "":
            found[field] = constants[field]

    for field, make in fresh:
        if field not in found:
            found[field] = make()

    if rule is not None:
        rule(found)

    for field, form, target in _references_with_rules(name):
        it = found.get(field)
        if it is None:
            continue

        if form is list:
            found[field] = [_with_type_defaults(target, one) for one in it]
        elif form is dict:
            found[field] = {
                key: _with_type_defaults(target, one) for key, one in it.items()
            }
        else:
            found[field] = _with_type_defaults(target, it)

    return found


class _Rules(NamedTuple):
    constants: dict[str, Any]

    written: tuple[str, ...]
    """Fields that Go always writes, as null or as an empty string."""

    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    """Mutable defaults by field, made for each object."""

    rule: Rule | None


@cache
def _rules(name: str) -> _Rules:
    short = ".".join(name.split(".")[-3:])
    values = {**_openapi_defaults(name), **CONSTANTS.get(short, {})}
    types = go_fields(name)
    changeable = {k: v for k, v in values.items() if isinstance(v, dict | list)}
    constants = {k: v for k, v in values.items() if k not in changeable}
    return _Rules(
        constants=constants,
        written=tuple(k for k in constants if types.get(k, "").endswith("!")),
        fresh=tuple((k, partial(deepcopy, v)) for k, v in changeable.items()),
        rule=RULES.get(short),
    )


def _openapi_defaults(name: str) -> dict[str, Any]:
    """Return the OpenAPI defaults of a definition.

    An empty default stands for null, unless the field is a pointer, which is never
    null.
    """
    schema, types, found = definition(name), go_fields(name), {}
    for field in schema.fields:
        child = schema.field(field)
        assert child is not None
        default = child.default
        pointer = types.get(field, "").rpartition("/")[2].startswith("*")
        if default not in (msgspec.UNSET, {}) and (default or pointer):
            found[field] = default

    return found


@cache
def _references_with_rules(name: str) -> tuple[_Reference, ...]:
    """Return the fields that lead, at any depth, to a definition with rules."""
    return tuple(
        reference
        for reference in _references(name)
        if any(map(_has_rules, _definitions_in(reference.target)))
    )


def _has_rules(name: str) -> bool:
    return any(_rules(name))


@cache
def _definitions_in(name: str) -> frozenset[str]:
    """Return a definition and those it contains, at any depth."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        it = waiting.pop()
        if it not in found:
            found.add(it)
            waiting += [reference.target for reference in _references(it)]

    return frozenset(found)


@cache
def _references(name: str) -> tuple[_Reference, ...]:
    schema, found = definition(name), []
    for field in schema.fields:
        child = schema.field(field)
        assert child is not None
        if child.name:
            found.append(_Reference(field, None, child.name))
        elif child.items is not None and child.items.name:
            found.append(_Reference(field, list, child.items.name))
        elif child.values is not None and child.values.name:
            found.append(_Reference(field, dict, child.values.name))

    return tuple(found)


Object: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Object], None]
_RBAC = "rbac.authorization.k8s.io"
# File modes are decimal in JSON.
_READABLE = 0o644
_WEBHOOK: Object = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}

CONSTANTS: dict[str, Object] = {
    "admissionregistration.v1.MutatingWebhook": {
        **_WEBHOOK,
        "reinvocationPolicy": "Never",
    },
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "apiextensions.v1.ServiceReference": {"port": 443},
    "apps.v1.DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    },
    "apps.v1.StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "apiextensions.v1.CustomResourceDefinitionSpec": {
        "conversion": {"strategy": "None"}
    },
    "autoscaling.v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {
        "minReplicas": 1,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 80},
                },
            }
        ],
    },
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "core.v1.ConfigMapVolumeSource": {"defaultMode": _READABLE},
    "core.v1.Container": {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": _READABLE},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "core.v1.EphemeralContainer": {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.PersistentVolumeSpec": {
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    },
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    "core.v1.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "core.v1.Probe": {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "core.v1.ProjectedVolumeSource": {"defaultMode": _READABLE},
    "core.v1.SecretVolumeSource": {"defaultMode": _READABLE},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.ServiceSpec": {"type": "ClusterIP", "sessionAffinity": "None"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "storage.v1.StorageClass": {
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    },
}


# ---------------------------------------------------------------- pods


def _pod(pod: Object) -> None:
    """Apply the defaults of pods that pod templates do not have."""
    spec = pod["spec"] = {"enableServiceLinks": True, **pod.get("spec", {})}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [_with_requests(it) for it in spec[field]]

            if spec.get("hostNetwork"):
                spec[field] = [_with_host_ports(it) for it in spec[field]]


def _pod_spec(spec: Object) -> None:
    """Copy the service account to its deprecated field."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _with_requests(container: Object) -> Object:
    """Default the requests to the limits."""
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if not limits:
        return container

    requests = {**limits, **resources.get("requests", {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _with_host_ports(container: Object) -> Object:
    ports = container.get("ports")
    if not ports:
        return container

    ports = [{"hostPort": it.get("containerPort", 0), **it} for it in ports]
    return {**container, "ports": ports}


def _container(container: Object) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))


def _resources(resources: Object) -> None:
    """Round quantities up to thousandths."""
    for field in ("limits", "requests"):
        given = resources.get(field)
        if given and any(it[-1:] in {"n", "u"} for it in given.values()):
            resources[field] = {key: _round_up(it) for key, it in given.items()}


def _round_up(text: str) -> str:
    if text[-1:] not in {"n", "u"}:
        return text

    return canonical_quantity(f"{ceil(quantity(text) * 1000)}m")


def _volume(volume: Object) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}


def _image_volume(source: Object) -> None:
    if "pullPolicy" not in source:
        source["pullPolicy"] = pull_policy(source.get("reference", ""))


# ---------------------------------------------------------------- workloads


def _deployment_strategy(strategy: Object) -> None:
    _rolling(strategy, maxUnavailable="25%", maxSurge="25%")


def _daemon_set_strategy(strategy: Object) -> None:
    _rolling(strategy, maxUnavailable=1, maxSurge=0)


def _rolling(strategy: Object, **defaults: object) -> None:
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**defaults, **strategy.get("rollingUpdate", {})}


def _stateful_set_strategy(strategy: Object) -> None:
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})

    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"] = {"partition": 0, **strategy["rollingUpdate"]}


def _stateful_set(spec: Object) -> None:
    kind = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    claims = spec.get("volumeClaimTemplates")
    if claims:
        spec["volumeClaimTemplates"] = [{**it, **kind} for it in claims]


def _replication_controller(controller: Object) -> None:
    spec = controller.get("spec") or {}
    labels = _labels(spec.get("template") or {})
    if not labels:
        return

    if not spec.get("selector"):
        controller["spec"] = {**spec, "selector": labels}

    _adopt_labels(controller, labels)


def _job(job: Object) -> None:
    labels = _labels((job.get("spec") or {}).get("template") or {})
    if labels:
        _adopt_labels(job, labels)

    spec = job["spec"] = dict(job.get("spec") or {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1

    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)


def _labels(template: Object) -> Object:
    return (template.get("metadata") or {}).get("labels") or {}


def _adopt_labels(body: Object, labels: Object) -> None:
    metadata = body.get("metadata") or {}
    if not metadata.get("labels"):
        body["metadata"] = {**metadata, "labels": labels}


def _autoscaler_behavior(behavior: Object) -> None:
    defaults: dict[str, Object] = {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "selectPolicy": "Max",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    }
    for field, rules in defaults.items():
        behavior[field] = {**rules, **behavior.get(field, {})}


# ---------------------------------------------------------------- other kinds


def _service(spec: Object) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    else:
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        config = {"clientIP": {"timeoutSeconds": 10800, **client}}
        spec["sessionAffinityConfig"] = config

    if spec.get("ports"):
        spec["ports"] = [_with_target(it) for it in spec["ports"]]

    balanced = spec["type"] == "LoadBalancer"
    external = spec["type"] == "ClusterIP" and spec.get("externalIPs")
    if balanced or external or spec["type"] == "NodePort":
        spec.setdefault("externalTrafficPolicy", "Cluster")

    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")

    if balanced:
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _with_target(port: Object) -> Object:
    return port if port.get("targetPort") else {**port, "targetPort": port.get("port")}


def _secret(secret: Object) -> None:
    """Move string data to data."""
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {key: b64encode(it.encode()).decode() for key, it in texts.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _namespace(namespace: Object) -> None:
    metadata = namespace.get("metadata") or {}
    name = metadata.get("name")
    if name:
        labels = {
            **metadata.get("labels", {}),
            "kubernetes.io/metadata.name": name,
        }
        namespace["metadata"] = {**metadata, "labels": labels}


def _node_status(status: Object) -> None:
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))


def _node(spec: Object) -> None:
    _mirror_list(spec, "podCIDR", "podCIDRs")


def _pod_status(status: Object) -> None:
    address = status.get("podIP")
    if address and not status.get("podIPs"):
        status["podIPs"] = [{"ip": address}]


def _mirror_list(body: Object, one: str, many: str) -> None:
    """Write a field and the list that replaced it."""
    if body.get(one) and not body.get(many):
        body[many] = [body[one]]
    elif body.get(many) and not body.get(one):
        body[one] = body[many][0]


def _limit_range_item(item: Object) -> None:
    if item.get("type") != "Container":
        return

    limits = {**item.get("max", {}), **item.get("default", {})}
    requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
    for field, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[field] = amounts


def _network_policy(spec: Object) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _role_reference(reference: Object) -> None:
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC


def _subject(subject: Object) -> None:
    if subject.get("kind") in {"User", "Group"} and not subject.get("apiGroup"):
        subject["apiGroup"] = _RBAC


def _custom_names(names: Object) -> None:
    kind = names.get("kind", "")
    if not names.get("singular"):
        names["singular"] = kind.lower()

    if kind and not names.get("listKind"):
        names["listKind"] = f"{kind}List"


RULES: dict[str, Rule] = {
    "apiextensions.v1.CustomResourceDefinitionNames": _custom_names,
    "apps.v1.DaemonSetUpdateStrategy": _daemon_set_strategy,
    "apps.v1.DeploymentStrategy": _deployment_strategy,
    "apps.v1.StatefulSetSpec": _stateful_set,
    "apps.v1.StatefulSetUpdateStrategy": _stateful_set_strategy,
    "autoscaling.v2.HorizontalPodAutoscalerBehavior": _autoscaler_behavior,
    "batch.v1.Job": _job,
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.ImageVolumeSource": _image_volume,
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeSpec": _node,
    "core.v1.NodeStatus": _node_status,
    "core.v1.Pod": _pod,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.PodStatus": _pod_status,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ResourceRequirements": _resources,
    "core.v1.Secret": _secret,
    "core.v1.ServiceSpec": _service,
    "core.v1.Volume": _volume,
    "networking.v1.NetworkPolicySpec": _network_policy,
    "rbac.v1.RoleRef": _role_reference,
    "rbac.v1.Subject": _subject,
}
# ------------------------------------------------------------------ images


_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


@lru_cache(maxsize=4096)
def pull_policy(image: str) -> str:
    """Return the default pull policy of an image.

    It is `"Always"` for the tag `latest`, also if that is implied because there is
    neither tag nor digest. Otherwise, and for malformed names, it is `"IfNotPresent"`.
    """
    found = _NAME.fullmatch(image)
    if not found:
        return "IfNotPresent"

    tag = found["tag"] or ("" if found["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"
