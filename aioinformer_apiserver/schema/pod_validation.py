"""Validation of pods and pod templates: affinity, containers, probes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import (
    as_list,
    validate_relative_path,
)
from aioinformer_apiserver.schema.quantities import is_multiple, quantity
from aioinformer_apiserver.schema.storage_validation import validate_volumes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = [
    "validate_affinity",
    "validate_container",
    "validate_handler",
    "validate_pod_spec",
    "validate_pod_template",
    "validate_probe",
    "validate_token_projections",
]

Object = dict[str, Any]

_LARGEST = 2**31 - 1
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def validate_pod_spec(path: str, spec: Object) -> Iterator[FieldError]:
    """Validate the spec of a Pod.

    Args:
        path: Path of the spec, such as `"spec"` or `"spec.template.spec"`.
        spec: Spec with its defaults.
    """
    volumes = as_list(spec.get("volumes"))
    yield from validate_volumes(f"{path}.volumes", volumes)
    yield from _validate_containers(path, spec, {it.get("name") for it in volumes})
    yield from _validate_host_port(path, spec)
    policies = ("Always", "OnFailure", "Never")
    yield from fields.one_of(
        f"{path}.restartPolicy", spec.get("restartPolicy"), policies
    )
    yield from fields.one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    yield from fields.labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    yield from _validate_security_context(f"{path}.securityContext", spec)
    yield from validate_affinity(f"{path}.affinity", spec.get("affinity") or {})
    yield from _validate_dns(path, spec)
    yield from _validate_gate(path, spec)
    for index, it in enumerate(as_list(spec.get("topologySpreadConstraints"))):
        yield from _validate_topology_spread(
            f"{path}.topologySpreadConstraints[{index}]", it
        )

    yield from _validate_name(path, spec)
    for index, it in enumerate(as_list(spec.get("tolerations"))):
        yield from _validate_toleration(f"{path}.tolerations[{index}]", it)

    for index, it in enumerate(as_list(spec.get("hostAliases"))):
        yield from fields.address(f"{path}.hostAliases[{index}].ip", it.get("ip", ""))

    if spec.get("priorityClassName"):
        where = f"{path}.priorityClassName"
        yield from fields.subdomain(where, spec["priorityClassName"])


def validate_token_projections(path: str, spec: Object) -> Iterator[FieldError]:
    """Reject projected service account tokens in a Pod without an account.

    Templates of pods may have them.

    Args:
        path: Path of the spec.
        spec: Spec of the Pod.
    """
    if spec.get("serviceAccountName"):
        return

    for index, volume in enumerate(as_list(spec.get("volumes"))):
        sources = as_list((volume.get("projected") or {}).get("sources"))
        for number, it in enumerate(sources):
            if "serviceAccountToken" in it:
                where = f"{path}.volumes[{index}].projected.sources[{number}]"
                why = "must not be specified when serviceAccountName is not set"
                yield field_errors.forbidden(f"{where}.serviceAccountToken", why)


def validate_pod_template(path: str, template: Object) -> Iterator[FieldError]:
    """Validate a pod template.

    Args:
        path: Path of the template. Errors of labels have this path, as on a real
            server.
        template: Template with its defaults.
    """
    metadata = template.get("metadata") or {}
    yield from fields.labels(f"{path}.labels", metadata.get("labels"))
    yield from validate_pod_spec(f"{path}.spec", template.get("spec") or {})
    if (template.get("spec") or {}).get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        yield field_errors.forbidden(f"{path}.spec.ephemeralContainers", why)


# ---------------------------------------------------------------- containers


def _validate_containers(
    path: str, spec: Object, volumes: set[str]
) -> Iterator[FieldError]:
    containers = as_list(spec.get("containers"))
    if not containers:
        yield field_errors.required(f"{path}.containers")

    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, it in enumerate(as_list(spec.get(field))):
            where, name = f"{path}.{field}[{index}]", it.get("name")
            first = field == "initContainers"
            yield from validate_container(where, it, volumes, of_init=first)
            if name in seen:
                yield field_errors.duplicate(f"{where}.name", name)
            elif name:
                seen.add(name)


def _validate_host_port(path: str, spec: Object) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, container in enumerate(as_list(spec.get("containers"))):
        for number, port in enumerate(as_list(container.get("ports"))):
            where = f"{path}.containers[{index}].ports[{number}].hostPort"
            given = port.get("hostPort")
            if not given:
                continue

            text = f"{port.get('protocol')}/{port.get('hostIP', '')}/{given}"
            if text in seen:
                yield field_errors.duplicate(where, text)

            seen.add(text)
            if spec.get("hostNetwork") and given != port.get("containerPort"):
                why = "must match `containerPort` when `hostNetwork` is true"
                yield field_errors.invalid(where, given, why)


# ---------------------------------------------------------------- other fields


def _validate_security_context(path: str, spec: Object) -> Iterator[FieldError]:
    context = spec.get("securityContext") or {}
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        value = context.get(field, 0)
        if not 0 <= value <= _LARGEST:
            why = f"must be between 0 and {_LARGEST}, inclusive"
            yield field_errors.invalid(f"{path}.{field}", value, why)


def _validate_dns(path: str, spec: Object) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        why = "when `dnsPolicy` is None"
        if config is None:
            why = f"must provide `dnsConfig` {why}"
            yield field_errors.required(f"{path}.dnsConfig", why)
        elif not config.get("nameservers"):
            why = f"must provide at least one DNS nameserver {why}"
            yield field_errors.required(f"{path}.dnsConfig.nameservers", why)

    for index, it in enumerate(as_list((config or {}).get("nameservers"))):
        yield from fields.address(f"{path}.dnsConfig.nameservers[{index}]", it)


def _validate_gate(path: str, spec: Object) -> Iterator[FieldError]:
    for index, it in enumerate(as_list(spec.get("readinessGates"))):
        where = f"{path}.readinessGates[{index}].conditionType"
        yield from fields.qualified(where, it.get("conditionType", ""))

    seen: set[str] = set()
    for index, it in enumerate(as_list(spec.get("schedulingGates"))):
        where, name = f"{path}.schedulingGates[{index}]", it.get("name", "")
        yield from fields.qualified(where, name)
        if name in seen:
            yield field_errors.duplicate(where, name)

        seen.add(name)


def _validate_topology_spread(path: str, constraint: Object) -> Iterator[FieldError]:
    skew = constraint.get("maxSkew", 0)
    if skew <= 0:
        yield field_errors.invalid(f"{path}.maxSkew", skew, "must be greater than zero")

    if not constraint.get("topologyKey"):
        yield field_errors.required(f"{path}.topologyKey", "can not be empty")

    unsatisfiable = constraint.get("whenUnsatisfiable", "")
    choices = ("DoNotSchedule", "ScheduleAnyway")
    yield from fields.one_of(f"{path}.whenUnsatisfiable", unsatisfiable, choices)
    yield from fields.selector(f"{path}.labelSelector", constraint.get("labelSelector"))


def _validate_name(path: str, spec: Object) -> Iterator[FieldError]:
    for field in ("serviceAccountName", "nodeName"):
        if spec.get(field):
            yield from fields.subdomain(f"{path}.{field}", spec[field])

    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _LARGEST:
        why = f"must be between 1 and {_LARGEST}, inclusive"
        yield field_errors.invalid(f"{path}.activeDeadlineSeconds", deadline, why)

    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from fields.dns_label(f"{path}.{field}", spec[field])


def _validate_toleration(path: str, toleration: Object) -> Iterator[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    where = f"{path}.operator"
    if key:
        yield from fields.qualified(f"{path}.key", key)
    elif operator != "Exists":
        why = "operator must be Exists when `key` is empty, which means "
        yield field_errors.invalid(
            where, operator, f'{why}"match all values and all keys"'
        )

    if "tolerationSeconds" in toleration and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield field_errors.invalid(f"{path}.effect", effect, why)

    if operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
        yield field_errors.invalid(where, value, why)
    elif operator not in {"", "Equal", "Exists"}:
        yield field_errors.not_supported(where, operator, ("Equal", "Exists"))

    if effect:
        yield from fields.one_of(f"{path}.effect", effect, _EFFECTS)


# ------------------------------------------------------------------ affinity


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def validate_affinity(path: str, affinity: Object) -> Iterator[FieldError]:
    """Validate the affinity of a Pod."""
    yield from _validate_node_affinity(
        f"{path}.nodeAffinity", affinity.get("nodeAffinity") or {}
    )
    for field in ("podAffinity", "podAntiAffinity"):
        yield from _validate_pod_affinity(f"{path}.{field}", affinity.get(field) or {})


def _validate_node_affinity(path: str, affinity: Object) -> Iterator[FieldError]:
    required = affinity.get(_REQUIRED)
    if required is not None:
        where = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = as_list(required.get("nodeSelectorTerms"))
        if not terms:
            why = "must have at least one node selector term"
            yield field_errors.required(where, why)

        for index, term in enumerate(terms):
            yield from _validate_node_selector_term(f"{where}[{index}]", term)

    for index, it in enumerate(as_list(affinity.get(_PREFERRED))):
        where = f"{path}.{_PREFERRED}[{index}]"
        yield from _validate_weight(where, it)
        preference = it.get("preference") or {}
        yield from _validate_node_selector_term(f"{where}.preference", preference)


def _validate_node_selector_term(path: str, term: Object) -> Iterator[FieldError]:
    for index, it in enumerate(as_list(term.get("matchExpressions"))):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = it.get("operator", ""), it.get("values")
        if operator not in _OPERATORS:
            why = "not a valid selector operator"
            yield field_errors.invalid(f"{where}.operator", operator, why)
        elif operator in {"In", "NotIn"} and not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            yield field_errors.required(f"{where}.values", why)
        elif operator in {"Exists", "DoesNotExist"} and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield field_errors.forbidden(f"{where}.values", why)
        elif operator in {"Gt", "Lt"} and len(values or ()) != 1:
            why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield field_errors.required(f"{where}.values", why)

        yield from fields.qualified(f"{where}.key", it.get("key", ""))


def _validate_pod_affinity(path: str, affinity: Object) -> Iterator[FieldError]:
    for index, it in enumerate(as_list(affinity.get(_REQUIRED))):
        yield from _validate_pod_affinity_term(f"{path}.{_REQUIRED}[{index}]", it)

    for index, it in enumerate(as_list(affinity.get(_PREFERRED))):
        where = f"{path}.{_PREFERRED}[{index}]"
        yield from _validate_weight(where, it)
        term = it.get("podAffinityTerm") or {}
        yield from _validate_pod_affinity_term(f"{where}.podAffinityTerm", term)


def _validate_weight(path: str, preference: Object) -> Iterator[FieldError]:
    weight = preference.get("weight", 0)
    if not 1 <= weight <= 100:
        yield field_errors.invalid(
            f"{path}.weight", weight, "must be in the range 1-100"
        )


def _validate_pod_affinity_term(path: str, term: Object) -> Iterator[FieldError]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from fields.selector(f"{path}.{field}", term.get(field))

    if not term.get("topologyKey"):
        yield field_errors.required(f"{path}.topologyKey", "can not be empty")

    yield from fields.qualified(f"{path}.topologyKey", term.get("topologyKey", ""))


# ------------------------------------------------------------------ containers


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE = "hugepages-"
_SOURCES = (
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
)

_FIELD_PATHS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
_SUBSCRIPTED = re.compile(r"metadata\.(?:annotations|labels)\['.*'\]")
_RESOURCES = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_LARGEST_ID = 2**31 - 1


def validate_container(
    path: str, container: Object, volumes: Collection[str], *, of_init: bool = False
) -> Iterator[FieldError]:
    """Validate one container.

    Args:
        path: Path of the container.
        container: Container with its defaults.
        volumes: Names of the Pod's volumes.
        of_init: Whether it is an init container.
    """
    name, image = container.get("name", ""), container.get("image", "")
    if not name:
        yield field_errors.required(f"{path}.name")
    else:
        yield from fields.dns_label(f"{path}.name", name)

    if not image:
        yield field_errors.required(f"{path}.image")
    elif image != image.strip():
        why = "must not have leading or trailing whitespace"
        yield field_errors.invalid(f"{path}.image", image, why)

    yield from _validate_probes_and_hooks(path, container, of_init=of_init)
    for field, choices in _CHOICES.items():
        if field in container:
            yield from fields.one_of(f"{path}.{field}", container[field], choices)

    yield from _validate_container_ports(
        f"{path}.ports", as_list(container.get("ports"))
    )
    yield from _validate_environment(path, container)
    yield from _validate_volume_mounts(
        f"{path}.volumeMounts", as_list(container.get("volumeMounts")), volumes
    )
    yield from _validate_resource(f"{path}.resources", container.get("resources") or {})
    yield from _validate_container_security(
        f"{path}.securityContext", container.get("securityContext") or {}
    )


_CHOICES = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "restartPolicy": ("Always", "Never", "OnFailure"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
}


def _validate_probes_and_hooks(
    path: str, container: Object, *, of_init: bool
) -> Iterator[FieldError]:
    """Validate probes and hooks; plain init containers must have none."""
    brief = of_init and container.get("restartPolicy") != "Always"
    for field in ("lifecycle", *_PROBES):
        if field not in container:
            continue

        if brief:
            why = "may not be set for init containers without restartPolicy=Always"
            yield field_errors.forbidden(f"{path}.{field}", why)
        elif field != "lifecycle":
            only_once = field != "readinessProbe"
            probe = container[field]
            yield from validate_probe(f"{path}.{field}", probe, only_once=only_once)
        else:
            for hook in ("postStart", "preStop"):
                if hook in container[field]:
                    where = f"{path}.{field}.{hook}"
                    yield from validate_handler(where, container[field][hook])


# ---------------------------------------------------------------- ports


def _validate_container_ports(path: str, ports: list[Object]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name", "")
        if name:
            yield from fields.port_name(f"{where}.name", name)
            if name in seen:
                yield field_errors.duplicate(f"{where}.name", name)

            seen.add(name)

        number = port.get("containerPort", 0)
        if number:
            yield from fields.port_number(f"{where}.containerPort", number)
        else:
            yield field_errors.required(f"{where}.containerPort")

        if port.get("hostPort"):
            yield from fields.port_number(f"{where}.hostPort", port["hostPort"])

        protocols = ("SCTP", "TCP", "UDP")
        yield from fields.one_of(f"{where}.protocol", port.get("protocol"), protocols)


# ---------------------------------------------------------------- environment


def _validate_environment(path: str, container: Object) -> Iterator[FieldError]:
    for index, variable in enumerate(as_list(container.get("env"))):
        yield from _validate_env_variable(f"{path}.env[{index}]", variable)

    for index, source in enumerate(as_list(container.get("envFrom"))):
        where = f"{path}.envFrom[{index}]"
        if source.get("prefix"):
            yield from _validate_env_name(f"{where}.prefix", source["prefix"])

        found = [it for it in ("configMapRef", "secretRef") if it in source]
        if not found:
            why = "must specify one of: `configMapRef` or `secretRef`"
            yield field_errors.invalid(f"{path}.envFrom", "", why)
        elif len(found) > 1:
            why = "may not have more than one field specified at a time"
            yield field_errors.invalid(f"{path}.envFrom", "", why)

        for field in found:
            if not source[field].get("name"):
                yield field_errors.required(f"{where}.{field}.name")


def _validate_env_name(path: str, name: str) -> Iterator[FieldError]:
    if not re.fullmatch("[ -<>-~]+", name):
        why = "a valid environment variable name must consist only of printable ASCII "
        yield field_errors.invalid(path, name, f"{why}characters other than '='")


def _validate_env_variable(path: str, variable: Object) -> Iterator[FieldError]:
    if not variable.get("name"):
        yield field_errors.required(f"{path}.name")
    else:
        yield from _validate_env_name(f"{path}.name", variable["name"])

    source = variable.get("valueFrom")
    if source is None:
        return

    where = f"{path}.valueFrom"
    found = [it for it in _SOURCES if it in source]
    for field in found:
        yield from _validate_env_source(f"{where}.{field}", field, source[field])

    if not found:
        *others, last = (f"`{it}`" for it in _SOURCES)
        why = f"must specify one of: {', '.join(others)} or {last}"
        yield field_errors.invalid(where, "", why)
    elif variable.get("value"):
        why = "may not be specified when `value` is not empty"
        yield field_errors.invalid(where, "", why)
    elif len(found) > 1:
        why = "may not have more than one field specified at a time"
        yield field_errors.invalid(where, "", why)


def _validate_env_source(path: str, field: str, source: Object) -> Iterator[FieldError]:
    if field == "fieldRef":
        name = source.get("fieldPath", "")
        if not name:
            yield field_errors.required(f"{path}.fieldPath")
        elif name not in _FIELD_PATHS and not _SUBSCRIPTED.fullmatch(name):
            why = f"error converting fieldPath: field label not supported: {name}"
            yield field_errors.invalid(f"{path}.fieldPath", name, why)
    elif field == "resourceFieldRef":
        name = source.get("resource", "")
        if not name:
            yield field_errors.required(f"{path}.resource")
        elif _HUGE not in name:
            yield from fields.one_of(f"{path}.resource", name, _RESOURCES)
    elif field in {"configMapKeyRef", "secretKeyRef"}:
        yield from fields.subdomain(f"{path}.name", source.get("name", ""))
        if not source.get("key"):
            yield field_errors.required(f"{path}.key")
        else:
            yield from fields.data_key(f"{path}.key", source["key"])


# ---------------------------------------------------------------- mounts


def _validate_volume_mounts(
    path: str, mounts: list[Object], volumes: Collection[str]
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name = f"{path}[{index}]", mount.get("name", "")
        if not name:
            yield field_errors.required(f"{where}.name")

        if name not in volumes:
            yield fields.not_found(f"{where}.name", name)

        target = mount.get("mountPath", "")
        if not target:
            yield field_errors.required(f"{where}.mountPath")

        if target in seen:
            yield field_errors.invalid(f"{where}.mountPath", target, "must be unique")

        seen.add(target)
        # The real server omits the index here.
        if mount.get("subPath"):
            yield from validate_relative_path(f"{path}.subPath", mount["subPath"])


# ---------------------------------------------------------------- resources


def _validate_resource(path: str, resources: Object) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _validate_amount(f"{path}.{part}[{name}]", name, amount)

    for name, amount in requests.items():
        limit = limits.get(name)
        fixed = name not in _STANDARD
        if limit is None:
            if fixed:
                why = "Limit must be set for non overcommitable resources"
                yield field_errors.required(f"{path}.limits", why)
        elif fixed and quantity(amount) != quantity(limit):
            why = f"must be equal to {name} limit of {limit}"
            yield field_errors.invalid(f"{path}.requests", amount, why)
        elif quantity(amount) > quantity(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield field_errors.invalid(f"{path}.requests", amount, why)

    huge = any(it.startswith(_HUGE) for it in limits)
    if huge and not {"cpu", "memory"} & {*limits, *requests}:
        yield field_errors.forbidden(path, "HugePages require cpu or memory")


def _validate_amount(path: str, name: str, amount: str) -> Iterator[FieldError]:
    yield from fields.qualified(path, name)
    value = quantity(amount)
    if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE):
        if not list(fields.qualified(path, name)):
            why = "must be a standard resource type or fully qualified"
            yield field_errors.invalid(path, name, why)

        yield field_errors.invalid(
            path, name, "must be a standard resource for containers"
        )
    elif value < 0:
        yield field_errors.invalid(path, amount, "must be greater than or equal to 0")
    elif "/" in name and not is_multiple(value):
        yield field_errors.invalid(path, amount, "must be an integer")
    elif name.startswith(_HUGE):
        step = quantity(name.removeprefix(_HUGE))
        if not value or not is_multiple(value, step):
            why = f"{amount} is not positive integer multiple of {name}"
            yield field_errors.invalid(path, amount, why)


def _validate_container_security(path: str, context: Object) -> Iterator[FieldError]:
    for field in ("runAsUser", "runAsGroup"):
        value = context.get(field, 0)
        if not 0 <= value <= _LARGEST_ID:
            why = f"must be between 0 and {_LARGEST_ID}, inclusive"
            yield field_errors.invalid(f"{path}.{field}", value, why)


# ------------------------------------------------------------------ probes


_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def validate_probe(
    path: str, probe: dict[str, Any], *, only_once: bool
) -> Iterator[FieldError]:
    """Validate a probe.

    Args:
        path: Path of the probe.
        probe: Probe with its defaults.
        only_once: Whether its success threshold must be 1.
    """
    yield from validate_handler(path, probe)
    for field in _NUMBERS:
        yield from fields.at_least(f"{path}.{field}", probe.get(field))

    threshold = probe.get("successThreshold", 1)
    if only_once and threshold != 1:
        yield field_errors.invalid(f"{path}.successThreshold", threshold, "must be 1")


def validate_handler(path: str, handler: dict[str, Any]) -> Iterator[FieldError]:
    """Validate the handler of a probe or hook.

    Args:
        path: Path of the handler.
        handler: Handler, which must have exactly one action.
    """
    found = [it for it in _HANDLERS if it in handler]
    if not found:
        yield field_errors.required(path, "must specify a handler type")

    for index, field in enumerate(found):
        where = f"{path}.{field}"
        if index:
            why = "may not specify more than 1 handler type"
            yield field_errors.forbidden(where, why)
        else:
            yield from _validate_action(where, field, handler[field])


def _validate_action(
    path: str, field: str, action: dict[str, Any]
) -> Iterator[FieldError]:
    match field:
        case "exec":
            if not action.get("command"):
                yield field_errors.required(f"{path}.command")
        case "httpGet":
            if not action.get("path"):
                yield field_errors.required(f"{path}.path")

            yield from fields.port(f"{path}.port", action.get("port"))
            schemes = ("HTTP", "HTTPS")
            yield from fields.one_of(f"{path}.scheme", action.get("scheme"), schemes)
        case "tcpSocket" | "grpc":
            yield from fields.port(f"{path}.port", action.get("port"))
        case _:
            pass
