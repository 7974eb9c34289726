"""Container checks: what a real server asks of the containers of a Pod."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings
from aioinformer_apiserver.schema.field_checks import listed
from aioinformer_apiserver.schema.probe_checks import handler_problems, probe_problems
from aioinformer_apiserver.schema.quantities import is_multiple, quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["container_problems", "relative_path_problems"]

Object = dict[str, Any]

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


def container_problems(
    path: str, container: Object, volumes: Collection[str], *, of_init: bool = False
) -> Iterator[Problem]:
    """Find what is wrong with one container.

    Args:
        path: Where it is.
        container: With its defaults.
        volumes: The names of the Pod's volumes.
        of_init: It runs before the others.
    """
    name, image = container.get("name", ""), container.get("image", "")
    if not name:
        yield findings.required(f"{path}.name")
    else:
        yield from fields.dns_label(f"{path}.name", name)

    if not image:
        yield findings.required(f"{path}.image")
    elif image != image.strip():
        why = "must not have leading or trailing whitespace"
        yield findings.invalid(f"{path}.image", image, why)

    yield from _life_problems(path, container, of_init=of_init)
    for field, choices in _CHOICES.items():
        if field in container:
            yield from fields.one_of(f"{path}.{field}", container[field], choices)

    yield from _port_problems(f"{path}.ports", listed(container.get("ports")))
    yield from _environment_problems(path, container)
    yield from _mount_problems(
        f"{path}.volumeMounts", listed(container.get("volumeMounts")), volumes
    )
    yield from _resource_problems(f"{path}.resources", container.get("resources") or {})
    yield from _security_problems(
        f"{path}.securityContext", container.get("securityContext") or {}
    )


_CHOICES = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "restartPolicy": ("Always", "Never", "OnFailure"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
}


def _life_problems(path: str, container: Object, *, of_init: bool) -> Iterator[Problem]:
    """Check probes and hooks; what runs and ends before the others has none."""
    brief = of_init and container.get("restartPolicy") != "Always"
    for field in ("lifecycle", *_PROBES):
        if field not in container:
            continue

        if brief:
            why = "may not be set for init containers without restartPolicy=Always"
            yield findings.forbidden(f"{path}.{field}", why)
        elif field != "lifecycle":
            only_once = field != "readinessProbe"
            probe = container[field]
            yield from probe_problems(f"{path}.{field}", probe, only_once=only_once)
        else:
            for hook in ("postStart", "preStop"):
                if hook in container[field]:
                    where = f"{path}.{field}.{hook}"
                    yield from handler_problems(where, container[field][hook])


# ---------------------------------------------------------------- ports


def _port_problems(path: str, ports: list[Object]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name", "")
        if name:
            yield from fields.port_name(f"{where}.name", name)
            if name in seen:
                yield findings.duplicate(f"{where}.name", name)

            seen.add(name)

        number = port.get("containerPort", 0)
        if number:
            yield from fields.port_number(f"{where}.containerPort", number)
        else:
            yield findings.required(f"{where}.containerPort")

        if port.get("hostPort"):
            yield from fields.port_number(f"{where}.hostPort", port["hostPort"])

        protocols = ("SCTP", "TCP", "UDP")
        yield from fields.one_of(f"{where}.protocol", port.get("protocol"), protocols)


# ---------------------------------------------------------------- environment


def _environment_problems(path: str, container: Object) -> Iterator[Problem]:
    for index, variable in enumerate(listed(container.get("env"))):
        yield from _variable_problems(f"{path}.env[{index}]", variable)

    for index, source in enumerate(listed(container.get("envFrom"))):
        where = f"{path}.envFrom[{index}]"
        if source.get("prefix"):
            yield from _variable_name_problems(f"{where}.prefix", source["prefix"])

        found = [it for it in ("configMapRef", "secretRef") if it in source]
        if not found:
            why = "must specify one of: `configMapRef` or `secretRef`"
            yield findings.invalid(f"{path}.envFrom", "", why)
        elif len(found) > 1:
            why = "may not have more than one field specified at a time"
            yield findings.invalid(f"{path}.envFrom", "", why)

        for field in found:
            if not source[field].get("name"):
                yield findings.required(f"{where}.{field}.name")


def _variable_name_problems(path: str, name: str) -> Iterator[Problem]:
    if not re.fullmatch("[ -<>-~]+", name):
        why = "a valid environment variable name must consist only of printable ASCII "
        yield findings.invalid(path, name, f"{why}characters other than '='")


def _variable_problems(path: str, variable: Object) -> Iterator[Problem]:
    if not variable.get("name"):
        yield findings.required(f"{path}.name")
    else:
        yield from _variable_name_problems(f"{path}.name", variable["name"])

    source = variable.get("valueFrom")
    if source is None:
        return

    where = f"{path}.valueFrom"
    found = [it for it in _SOURCES if it in source]
    for field in found:
        yield from _source_problems(f"{where}.{field}", field, source[field])

    if not found:
        *others, last = (f"`{it}`" for it in _SOURCES)
        why = f"must specify one of: {', '.join(others)} or {last}"
        yield findings.invalid(where, "", why)
    elif variable.get("value"):
        why = "may not be specified when `value` is not empty"
        yield findings.invalid(where, "", why)
    elif len(found) > 1:
        why = "may not have more than one field specified at a time"
        yield findings.invalid(where, "", why)


def _source_problems(path: str, field: str, source: Object) -> Iterator[Problem]:
    if field == "fieldRef":
        name = source.get("fieldPath", "")
        if not name:
            yield findings.required(f"{path}.fieldPath")
        elif name not in _FIELD_PATHS and not _SUBSCRIPTED.fullmatch(name):
            why = f"error converting fieldPath: field label not supported: {name}"
            yield findings.invalid(f"{path}.fieldPath", name, why)
    elif field == "resourceFieldRef":
        name = source.get("resource", "")
        if not name:
            yield findings.required(f"{path}.resource")
        elif _HUGE not in name:
            yield from fields.one_of(f"{path}.resource", name, _RESOURCES)
    elif field in {"configMapKeyRef", "secretKeyRef"}:
        yield from fields.subdomain(f"{path}.name", source.get("name", ""))
        if not source.get("key"):
            yield findings.required(f"{path}.key")
        else:
            yield from fields.data_key(f"{path}.key", source["key"])


# ---------------------------------------------------------------- mounts


def _mount_problems(
    path: str, mounts: list[Object], volumes: Collection[str]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name = f"{path}[{index}]", mount.get("name", "")
        if not name:
            yield findings.required(f"{where}.name")

        if name not in volumes:
            yield fields.not_found(f"{where}.name", name)

        target = mount.get("mountPath", "")
        if not target:
            yield findings.required(f"{where}.mountPath")

        if target in seen:
            yield findings.invalid(f"{where}.mountPath", target, "must be unique")

        seen.add(target)
        # The real server forgets the index here.
        if mount.get("subPath"):
            yield from relative_path_problems(f"{path}.subPath", mount["subPath"])


def relative_path_problems(path: str, value: str) -> Iterator[Problem]:
    """Ask for a path that leads down from where it starts."""
    if value.startswith("/"):
        yield findings.invalid(path, value, "must be a relative path")

    if ".." in value.split("/"):
        yield findings.invalid(path, value, "must not contain '..'")


# ---------------------------------------------------------------- resources


def _resource_problems(path: str, resources: Object) -> Iterator[Problem]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount_problems(f"{path}.{part}[{name}]", name, amount)

    for name, amount in requests.items():
        limit = limits.get(name)
        fixed = name not in _STANDARD
        if limit is None:
            if fixed:
                why = "Limit must be set for non overcommitable resources"
                yield findings.required(f"{path}.limits", why)
        elif fixed and quantity(amount) != quantity(limit):
            why = f"must be equal to {name} limit of {limit}"
            yield findings.invalid(f"{path}.requests", amount, why)
        elif quantity(amount) > quantity(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield findings.invalid(f"{path}.requests", amount, why)

    huge = any(it.startswith(_HUGE) for it in limits)
    if huge and not {"cpu", "memory"} & {*limits, *requests}:
        yield findings.forbidden(path, "HugePages require cpu or memory")


def _amount_problems(path: str, name: str, amount: str) -> Iterator[Problem]:
    yield from fields.qualified(path, name)
    value = quantity(amount)
    if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE):
        if not list(fields.qualified(path, name)):
            why = "must be a standard resource type or fully qualified"
            yield findings.invalid(path, name, why)

        yield findings.invalid(path, name, "must be a standard resource for containers")
    elif value < 0:
        yield findings.invalid(path, amount, "must be greater than or equal to 0")
    elif "/" in name and not is_multiple(value):
        yield findings.invalid(path, amount, "must be an integer")
    elif name.startswith(_HUGE):
        step = quantity(name.removeprefix(_HUGE))
        if not value or not is_multiple(value, step):
            why = f"{amount} is not positive integer multiple of {name}"
            yield findings.invalid(path, amount, why)


def _security_problems(path: str, context: Object) -> Iterator[Problem]:
    for field in ("runAsUser", "runAsGroup"):
        value = context.get(field, 0)
        if not 0 <= value <= _LARGEST_ID:
            why = f"must be between 0 and {_LARGEST_ID}, inclusive"
            yield findings.invalid(f"{path}.{field}", value, why)
