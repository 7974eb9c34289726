"""Pod checks: what a real server asks of a Pod, or of the template of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.affinity_checks import affinity_problems
from aioinformer_apiserver.schema.container_checks import container_problems
from aioinformer_apiserver.schema.field_checks import listed
from aioinformer_apiserver.schema.volume_checks import volume_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["pod_problems", "template_problems", "token_problems"]

Object = dict[str, Any]

_LARGEST = 2**31 - 1
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def pod_problems(path: str, spec: Object) -> Iterator[Problem]:
    """Find what is wrong with the spec of a Pod.

    Args:
        path: Where it is, such as `"spec"` or `"spec.template.spec"`.
        spec: With its defaults.
    """
    volumes = listed(spec.get("volumes"))
    yield from volume_problems(f"{path}.volumes", volumes)
    yield from _containers_problems(path, spec, {it.get("name") for it in volumes})
    yield from _host_port_problems(path, spec)
    policies = ("Always", "OnFailure", "Never")
    yield from fields.one_of(
        f"{path}.restartPolicy", spec.get("restartPolicy"), policies
    )
    yield from fields.one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    yield from fields.labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from _security_problems(f"{path}.securityContext", spec)
    yield from affinity_problems(f"{path}.affinity", spec.get("affinity") or {})
    yield from _dns_problems(path, spec)
    yield from _gate_problems(path, spec)
    for index, it in enumerate(listed(spec.get("topologySpreadConstraints"))):
        yield from _spread_problems(f"{path}.topologySpreadConstraints[{index}]", it)

    yield from _name_problems(path, spec)
    for index, it in enumerate(listed(spec.get("tolerations"))):
        yield from _toleration_problems(f"{path}.tolerations[{index}]", it)

    for index, it in enumerate(listed(spec.get("hostAliases"))):
        yield from fields.address(f"{path}.hostAliases[{index}].ip", it.get("ip", ""))

    if spec.get("priorityClassName"):
        where = f"{path}.priorityClassName"
        yield from fields.subdomain(where, spec["priorityClassName"])


def token_problems(path: str, spec: Object) -> Iterator[Problem]:
    """Refuse a token of a service account to a Pod without one; templates may have it.

    Args:
        path: Where the spec is.
        spec: Of the Pod.
    """
    if spec.get("serviceAccountName"):
        return

    for index, volume in enumerate(listed(spec.get("volumes"))):
        sources = listed((volume.get("projected") or {}).get("sources"))
        for number, it in enumerate(sources):
            if "serviceAccountToken" in it:
                where = f"{path}.volumes[{index}].projected.sources[{number}]"
                why = "must not be specified when serviceAccountName is not set"
                yield findings.forbidden(f"{where}.serviceAccountToken", why)


def template_problems(path: str, template: Object) -> Iterator[Problem]:
    """Find what is wrong with a template of pods.

    Args:
        path: Where it is; labels are said to be directly in it, as the real server does.
        template: With its defaults.
    """
    metadata = template.get("metadata") or {}
    yield from fields.labels(f"{path}.labels", metadata.get("labels"))
    yield from pod_problems(f"{path}.spec", template.get("spec") or {})
    if (template.get("spec") or {}).get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        yield findings.forbidden(f"{path}.spec.ephemeralContainers", why)


# ---------------------------------------------------------------- containers


def _containers_problems(
    path: str, spec: Object, volumes: set[str]
) -> Iterator[Problem]:
    containers = listed(spec.get("containers"))
    if not containers:
        yield findings.required(f"{path}.containers")

    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, it in enumerate(listed(spec.get(field))):
            where, name = f"{path}.{field}[{index}]", it.get("name")
            first = field == "initContainers"
            yield from container_problems(where, it, volumes, of_init=first)
            if name in seen:
                yield findings.duplicate(f"{where}.name", name)
            elif name:
                seen.add(name)


def _host_port_problems(path: str, spec: Object) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, container in enumerate(listed(spec.get("containers"))):
        for number, port in enumerate(listed(container.get("ports"))):
            where = f"{path}.containers[{index}].ports[{number}].hostPort"
            given = port.get("hostPort")
            if not given:
                continue

            text = f"{port.get('protocol')}/{port.get('hostIP', '')}/{given}"
            if text in seen:
                yield findings.duplicate(where, text)

            seen.add(text)
            if spec.get("hostNetwork") and given != port.get("containerPort"):
                why = "must match `containerPort` when `hostNetwork` is true"
                yield findings.invalid(where, given, why)


# ---------------------------------------------------------------- the rest


def _security_problems(path: str, spec: Object) -> Iterator[Problem]:
    context = spec.get("securityContext") or {}
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        value = context.get(field, 0)
        if not 0 <= value <= _LARGEST:
            why = f"must be between 0 and {_LARGEST}, inclusive"
            yield findings.invalid(f"{path}.{field}", value, why)


def _dns_problems(path: str, spec: Object) -> Iterator[Problem]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        why = "when `dnsPolicy` is None"
        if config is None:
            why = f"must provide `dnsConfig` {why}"
            yield findings.required(f"{path}.dnsConfig", why)
        elif not config.get("nameservers"):
            why = f"must provide at least one DNS nameserver {why}"
            yield findings.required(f"{path}.dnsConfig.nameservers", why)

    for index, it in enumerate(listed((config or {}).get("nameservers"))):
        yield from fields.address(f"{path}.dnsConfig.nameservers[{index}]", it)


def _gate_problems(path: str, spec: Object) -> Iterator[Problem]:
    for index, it in enumerate(listed(spec.get("readinessGates"))):
        where = f"{path}.readinessGates[{index}].conditionType"
        yield from fields.qualified(where, it.get("conditionType", ""))

    seen: set[str] = set()
    for index, it in enumerate(listed(spec.get("schedulingGates"))):
        where, name = f"{path}.schedulingGates[{index}]", it.get("name", "")
        yield from fields.qualified(where, name)
        if name in seen:
            yield findings.duplicate(where, name)

        seen.add(name)


def _spread_problems(path: str, constraint: Object) -> Iterator[Problem]:
    skew = constraint.get("maxSkew", 0)
    if skew <= 0:
        yield findings.invalid(f"{path}.maxSkew", skew, "must be greater than zero")

    if not constraint.get("topologyKey"):
        yield findings.required(f"{path}.topologyKey", "can not be empty")

    unsatisfiable = constraint.get("whenUnsatisfiable", "")
    choices = ("DoNotSchedule", "ScheduleAnyway")
    yield from fields.one_of(f"{path}.whenUnsatisfiable", unsatisfiable, choices)
    yield from fields.selector(f"{path}.labelSelector", constraint.get("labelSelector"))


def _name_problems(path: str, spec: Object) -> Iterator[Problem]:
    for field in ("serviceAccountName", "nodeName"):
        if spec.get(field):
            yield from fields.subdomain(f"{path}.{field}", spec[field])

    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _LARGEST:
        why = f"must be between 1 and {_LARGEST}, inclusive"
        yield findings.invalid(f"{path}.activeDeadlineSeconds", deadline, why)

    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from fields.dns_label(f"{path}.{field}", spec[field])


def _toleration_problems(path: str, toleration: Object) -> Iterator[Problem]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    where = f"{path}.operator"
    if key:
        yield from fields.qualified(f"{path}.key", key)
    elif operator != "Exists":
        why = "operator must be Exists when `key` is empty, which means "
        yield findings.invalid(where, operator, f'{why}"match all values and all keys"')

    if "tolerationSeconds" in toleration and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield findings.invalid(f"{path}.effect", effect, why)

    if operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
        yield findings.invalid(where, value, why)
    elif operator not in {"", "Equal", "Exists"}:
        yield findings.not_supported(where, operator, ("Equal", "Exists"))

    if effect:
        yield from fields.one_of(f"{path}.effect", effect, _EFFECTS)
