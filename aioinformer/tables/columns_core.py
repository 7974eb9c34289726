"""The tables of the core group, but for pods and volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    NONE,
    UNKNOWN,
    age,
    at,
    labels_text,
    mapping,
    maps,
    name,
    number,
    quantity,
    shortened,
    since,
    strings,
    text,
)
from aioinformer.tables.columns import AGE, NAME, Layout, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["CORE_LAYOUTS", "balancer_addresses"]

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _config_map_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    size = len(mapping(body, "data")) + len(mapping(body, "binaryData"))
    return [name(body), size, age(body, now)]


def _secret_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    size = len(mapping(body, "data"))
    return [name(body), text(body, "type"), size, age(body, now)]


def _named_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), age(body, now)]


def _namespace_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), text(body, "status", "phase"), age(body, now)]


# ------------------------------------------------------------------------ events


def _event_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    first = since(at(body, "firstTimestamp") or at(body, "eventTime"), now)
    last_time, count = at(body, "lastTimestamp"), number(body, "count") or 1
    last = since(last_time, now) if last_time else first
    if isinstance(at(body, "series"), dict):
        last = since(at(body, "series", "lastObservedTime"), now)
        count = number(body, "series", "count")

    return [
        last,
        text(body, "type"),
        text(body, "reason"),
        _about(mapping(body, "involvedObject")),
        text(body, "involvedObject", "fieldPath"),
        _source(body),
        text(body, "message").strip(),
        first,
        count,
        name(body),
    ]


def _about(reference: object) -> str:
    kind, object_name = text(reference, "kind").lower(), text(reference, "name")
    return f"{kind}/{object_name}" if object_name else kind


def _source(body: object) -> str:
    component = text(body, "source", "component") or text(body, "reportingComponent")
    instance = text(body, "source", "host") or text(body, "reportingInstance")
    return f"{component}, {instance}" if instance else component


# ------------------------------------------------------------------------ nodes


def _node_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    info = mapping(body, "status", "nodeInfo")
    return [
        name(body),
        _node_status(body),
        ",".join(_roles(mapping(body, "metadata", "labels"))) or NONE,
        age(body, now),
        text(info, "kubeletVersion"),
        _node_address(body, "InternalIP"),
        _node_address(body, "ExternalIP"),
        text(info, "osImage") or UNKNOWN,
        _kernel(info),
        text(info, "containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(body: object) -> str:
    told = "Unknown"
    for condition in maps(body, "status", "conditions"):
        if text(condition, "type") == "Ready":
            told = "Ready" if text(condition, "status") == "True" else "NotReady"

    cordoned = at(body, "spec", "unschedulable") is True
    return f"{told},SchedulingDisabled" if cordoned else told


def _kernel(info: object) -> str:
    version, machine = text(info, "kernelVersion"), text(info, "architecture")
    return (version or UNKNOWN) + (f" ({machine})" if machine else "")


def _roles(labels: Mapping[str, Any]) -> list[str]:
    """Read the roles that labels give, in the newer way or in the older one."""
    prefixed = {
        key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)
    }
    return sorted((prefixed | {text(labels, _ROLE_LABEL)}) - {""})


def _node_address(body: object, kind: str) -> str:
    for address in maps(body, "status", "addresses"):
        if text(address, "type") == kind:
            return text(address, "address")

    return NONE


# ------------------------------------------------------------------------ services


def _service_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec = mapping(body, "spec")
    addresses = strings(spec, "clusterIPs") or [text(spec, "clusterIP")]
    ports = ",".join(_service_port(port) for port in maps(spec, "ports"))
    return [
        name(body),
        _service_type(spec),
        addresses[0] or NONE,
        _external_address(body),
        ports or NONE,
        age(body, now),
        labels_text(mapping(spec, "selector")),
    ]


def _service_type(spec: Mapping[str, Any]) -> str:
    """Return the type of a service: the usual one if it has none, but none of nothing."""
    return text(spec, "type") or ("ClusterIP" if spec else "")


def _service_port(port: object) -> str:
    outside = number(port, "nodePort")
    told = str(number(port, "port")) + (f":{outside}" if outside else "")
    return f"{told}/{text(port, 'protocol') or 'TCP'}"


def _external_address(body: object) -> str:
    spec = mapping(body, "spec")
    given = strings(spec, "externalIPs")
    match _service_type(spec):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            balancer = balancer_addresses(body)
            return ",".join([balancer, *given] if balancer else given) or "<pending>"
        case "ExternalName":
            return text(spec, "externalName")
        case _:
            return UNKNOWN


def balancer_addresses(body: object) -> str:
    """List the addresses that a load balancer has given, each once."""
    points = maps(body, "status", "loadBalancer", "ingress")
    found = {text(it, "ip") or text(it, "hostname") for it in points}
    return ",".join(sorted(found - {""}))


# ------------------------------------------------------------------------ endpoints


def _endpoints_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), _endpoints(maps(body, "subsets")), age(body, now)]


def _endpoints(subsets: list[dict[str, Any]]) -> str:
    if not subsets:
        return NONE

    found: list[str] = []
    for subset in subsets:
        addresses = [text(it, "ip") for it in maps(subset, "addresses")]
        ports = [number(it, "port") for it in maps(subset, "ports")]
        if not ports:
            found += addresses

        found += [_host_port(ip, port) for port in ports for ip in addresses]

    return shortened(found)


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ------------------------------------------------------------------------ quotas


def _quota_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    requests: list[str] = []
    limits: list[str] = []
    hard, used = mapping(body, "status", "hard"), mapping(body, "status", "used")
    for resource in sorted(hard):
        told = f"{resource}: {quantity(used, resource)}/{quantity(hard, resource)}"
        (limits if resource.startswith("limits.") else requests).append(told)

    return [name(body), ", ".join(requests), ", ".join(limits), age(body, now)]


CORE_LAYOUTS: dict[Resource, Layout] = {
    resources.CONFIG_MAPS: Layout((NAME, *texts("Data"), AGE), _config_map_cells),
    resources.SECRETS: Layout((NAME, *texts("Type", "Data"), AGE), _secret_cells),
    resources.SERVICE_ACCOUNTS: Layout((NAME, AGE), _named_cells),
    resources.NAMESPACES: Layout((NAME, *texts("Status"), AGE), _namespace_cells),
    resources.ENDPOINTS: Layout((NAME, *texts("Endpoints"), AGE), _endpoints_cells),
    resources.RESOURCE_QUOTAS: Layout(
        (NAME, *texts("Request", "Limit"), AGE), _quota_cells
    ),
    resources.EVENTS: Layout(
        (
            *texts("Last Seen", "Type", "Reason", "Object"),
            *texts("Subobject", "Source", wide=True),
            *texts("Message"),
            *texts("First Seen", "Count", wide=True),
            replace(NAME, priority=1),
        ),
        _event_cells,
    ),
    resources.NODES: Layout(
        (
            NAME,
            *texts("Status", "Roles"),
            AGE,
            *texts("Version"),
            *texts("Internal-IP", "External-IP", wide=True),
            *texts("OS-Image", "Kernel-Version", "Container-Runtime", wide=True),
        ),
        _node_cells,
    ),
    resources.SERVICES: Layout(
        (
            NAME,
            *texts("Type", "Cluster-IP", "External-IP", "Port(s)"),
            AGE,
            *texts("Selector", wide=True),
        ),
        _service_cells,
    ),
}
