"""Tables of cluster and core resources: nodes, services, volumes, events, roles etc."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    access_modes,
    age,
    at,
    labels_text,
    mapping,
    maps,
    name,
    number,
    quantity,
    selector_cell,
    shortened,
    since,
    strings,
    text,
)
from aioinformer.tables.layout import AGE, NAME, Column, Layout, integers, texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["CLUSTER_LAYOUTS"]


_ROLE_PREFIX = "node-role.kubernetes.io/"


_ROLE_LABEL = "kubernetes.io/role"

# Fields of an events.k8s.io/v1 Event, and their names in the core version.
_CORE_EVENT_FIELDS = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}


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


def _event_v1_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    """Return the cells of an events.k8s.io/v1 Event, which names fields differently."""
    core = {_CORE_EVENT_FIELDS.get(field, field): it for field, it in body.items()}
    return _event_cells(core, now)


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
    shown = "Unknown"
    for condition in maps(body, "status", "conditions"):
        if text(condition, "type") == "Ready":
            shown = "Ready" if text(condition, "status") == "True" else "NotReady"

    cordoned = at(body, "spec", "unschedulable") is True
    return f"{shown},SchedulingDisabled" if cordoned else shown


def _kernel(info: object) -> str:
    version, machine = text(info, "kernelVersion"), text(info, "architecture")
    return (version or UNKNOWN) + (f" ({machine})" if machine else "")


def _roles(labels: Mapping[str, Any]) -> list[str]:
    """Return the roles in the labels of a node, in the newer or the older form."""
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
    """Return the type of a service: the default if unset, empty without a spec."""
    return text(spec, "type") or ("ClusterIP" if spec else "")


def _service_port(port: object) -> str:
    outside = number(port, "nodePort")
    shown = str(number(port, "port")) + (f":{outside}" if outside else "")
    return f"{shown}/{text(port, 'protocol') or 'TCP'}"


def _external_address(body: object) -> str:
    spec = mapping(body, "spec")
    given = strings(spec, "externalIPs")
    match _service_type(spec):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            balancer = _balancer_addresses(body)
            return ",".join([balancer, *given] if balancer else given) or "<pending>"
        case "ExternalName":
            return text(spec, "externalName")
        case _:
            return UNKNOWN


def _balancer_addresses(body: object) -> str:
    """Return the addresses assigned by a load balancer, without duplicates."""
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
        shown = f"{resource}: {quantity(used, resource)}/{quantity(hard, resource)}"
        (limits if resource.startswith("limits.") else requests).append(shown)

    return [name(body), ", ".join(requests), ", ".join(limits), age(body, now)]


_OLD_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


_DEFAULT_CLASS_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _volume_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    claim = mapping(spec, "claimRef")
    return [
        name(body),
        quantity(spec, "capacity", "storage"),
        access_modes(strings(spec, "accessModes")),
        text(spec, "persistentVolumeReclaimPolicy"),
        _volume_phase(body),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        _storage_class(body),
        text(spec, "volumeAttributesClassName") or UNSET,
        text(status, "reason"),
        age(body, now),
        text(spec, "volumeMode") or UNSET,
    ]


def _claim_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    volume = text(spec, "volumeName")
    return [
        name(body),
        _volume_phase(body),
        volume,
        quantity(status, "capacity", "storage") if volume else "",
        access_modes(strings(status, "accessModes")) if volume else "",
        _storage_class(body),
        text(spec, "volumeAttributesClassName") or UNSET,
        age(body, now),
        text(spec, "volumeMode") or UNSET,
    ]


def _volume_phase(body: object) -> str:
    if text(body, "metadata", "deletionTimestamp"):
        return "Terminating"

    return text(body, "status", "phase")


def _storage_class(body: object) -> str:
    old = text(body, "metadata", "annotations", _OLD_CLASS_ANNOTATION)
    return old or text(body, "spec", "storageClassName")


def _class_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    annotations = mapping(body, "metadata", "annotations")
    is_default = any(annotations.get(it) == "true" for it in _DEFAULT_CLASS_ANNOTATIONS)
    return [
        name(body) + (" (default)" if is_default else ""),
        text(body, "provisioner"),
        text(body, "reclaimPolicy") or "Delete",
        text(body, "volumeBindingMode") or "Immediate",
        at(body, "allowVolumeExpansion") is True,
        age(body, now),
    ]


_VOLUME_MODE = texts("VolumeMode", wide=True)


def _lease_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [name(body), text(body, "spec", "holderIdentity"), age(body, now)]


def _binding_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    role = mapping(body, "roleRef")
    subjects = maps(body, "subjects")
    return [
        name(body),
        f"{text(role, 'kind')}/{text(role, 'name')}",
        age(body, now),
        _subjects(subjects, "User"),
        _subjects(subjects, "Group"),
        _subjects(subjects, "ServiceAccount"),
    ]


def _subjects(subjects: list[dict[str, Any]], kind: str) -> str:
    found = [it for it in subjects if text(it, "kind") == kind]
    if kind != "ServiceAccount":
        return ", ".join(text(it, "name") for it in found)

    return ", ".join(f"{text(it, 'namespace')}/{text(it, 'name')}" for it in found)


# ------------------------------------------------------------------------ networking


def _ingress_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    spec = mapping(body, "spec")
    return [
        name(body),
        text(spec, "ingressClassName") or NONE,
        _hosts(maps(spec, "rules")),
        _balancer_addresses(body),
        "80, 443" if maps(spec, "tls") else "80",
        age(body, now),
    ]


def _hosts(rules: list[dict[str, Any]], limit: int = 3) -> str:
    """Join the first hosts, and add the number of other rules."""
    shown: list[str] = []
    is_cut = False
    for rule in rules:
        is_cut = is_cut or len(shown) == limit
        host = text(rule, "host")
        if host and not is_cut:
            shown.append(host)

    listed = ",".join(shown) or "*"
    return f"{listed} + {len(rules) - limit} more..." if is_cut else listed


def _webhook_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    webhooks = at(body, "webhooks")
    count = len(webhooks) if isinstance(webhooks, list) else 0
    return [name(body), count, age(body, now)]


def _ingress_class_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    parameters, shown = mapping(body, "spec", "parameters"), NONE
    if parameters:
        group = at(parameters, "apiGroup")
        kind = text(parameters, "kind") + (f".{group}" if group is not None else "")
        shown = f"{kind}/{text(parameters, 'name')}"

    return [name(body), text(body, "spec", "controller"), shown, age(body, now)]


def _network_policy_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    selector = selector_cell(at(body, "spec", "podSelector"))
    return [name(body), selector, age(body, now)]


def _endpoint_slice_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    ports = [_slice_port(it) for it in maps(body, "ports")]
    addresses = [
        address
        for endpoint in maps(body, "endpoints")
        for address in strings(endpoint, "addresses")
    ]
    return [
        name(body),
        text(body, "addressType"),
        shortened(ports) or UNSET,
        shortened(addresses) or UNSET,
        age(body, now),
    ]


def _slice_port(port: object) -> str:
    found, port_name = number(port, "port"), at(port, "name")
    if found:
        return str(found)

    # An empty name is shown, as a port without a number has nothing else.
    return "*" if port_name is None else str(port_name)


# ------------------------------------------------------------------------ the rest


def _disruption_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [
        name(body),
        _int_or_text(body, "minAvailable"),
        _int_or_text(body, "maxUnavailable"),
        number(body, "status", "disruptionsAllowed"),
        age(body, now),
    ]


def _int_or_text(body: object, key: str) -> str:
    value = at(body, "spec", key)
    return "N/A" if value is None else str(value)


def _priority_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    return [
        name(body),
        number(body, "value"),
        at(body, "globalDefault") is True,
        age(body, now),
        text(body, "preemptionPolicy"),
    ]


_ROLE_COLUMNS = (
    NAME,
    *texts("Role"),
    AGE,
    *texts("Users", "Groups", "ServiceAccounts", wide=True),
)


_EVENT_COLUMNS = (
    *texts("Last Seen", "Type", "Reason", "Object"),
    *texts("Subobject", "Source", wide=True),
    *texts("Message"),
    *texts("First Seen", "Count", wide=True),
    replace(NAME, priority=1),
)

CLUSTER_LAYOUTS: dict[Resource, Layout] = {
    resources.CONFIG_MAPS: Layout((NAME, *texts("Data"), AGE), _config_map_cells),
    resources.SECRETS: Layout((NAME, *texts("Type", "Data"), AGE), _secret_cells),
    resources.SERVICE_ACCOUNTS: Layout((NAME, AGE), _named_cells),
    resources.NAMESPACES: Layout((NAME, *texts("Status"), AGE), _namespace_cells),
    resources.ENDPOINTS: Layout((NAME, *texts("Endpoints"), AGE), _endpoints_cells),
    resources.RESOURCE_QUOTAS: Layout(
        (NAME, *texts("Request", "Limit"), AGE), _quota_cells
    ),
    resources.EVENTS: Layout(_EVENT_COLUMNS, _event_cells),
    resources.EVENTS_V1: Layout(_EVENT_COLUMNS, _event_v1_cells),
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
    resources.PERSISTENT_VOLUMES: Layout(
        (
            NAME,
            *texts("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim"),
            *texts("StorageClass", "VolumeAttributesClass", "Reason"),
            AGE,
            *_VOLUME_MODE,
        ),
        _volume_cells,
    ),
    resources.PERSISTENT_VOLUME_CLAIMS: Layout(
        (
            NAME,
            *texts("Status", "Volume", "Capacity", "Access Modes"),
            *texts("StorageClass", "VolumeAttributesClass"),
            AGE,
            *_VOLUME_MODE,
        ),
        _claim_cells,
    ),
    resources.STORAGE_CLASSES: Layout(
        (
            NAME,
            *texts(
                "Provisioner",
                "ReclaimPolicy",
                "VolumeBindingMode",
                "AllowVolumeExpansion",
            ),
            AGE,
        ),
        _class_cells,
    ),
    resources.MUTATING_WEBHOOK_CONFIGURATIONS: Layout(
        (NAME, *integers("Webhooks"), AGE), _webhook_cells
    ),
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS: Layout(
        (NAME, *integers("Webhooks"), AGE), _webhook_cells
    ),
    resources.LEASES: Layout((NAME, *texts("Holder"), AGE), _lease_cells),
    resources.ROLE_BINDINGS: Layout(_ROLE_COLUMNS, _binding_cells),
    resources.CLUSTER_ROLE_BINDINGS: Layout(_ROLE_COLUMNS, _binding_cells),
    resources.INGRESSES: Layout(
        (NAME, *texts("Class", "Hosts", "Address", "Ports"), AGE), _ingress_cells
    ),
    resources.INGRESS_CLASSES: Layout(
        (NAME, *texts("Controller", "Parameters"), AGE), _ingress_class_cells
    ),
    resources.NETWORK_POLICIES: Layout(
        (NAME, *texts("Pod-Selector"), AGE), _network_policy_cells
    ),
    resources.ENDPOINT_SLICES: Layout(
        (NAME, *texts("AddressType", "Ports", "Endpoints"), AGE), _endpoint_slice_cells
    ),
    resources.POD_DISRUPTION_BUDGETS: Layout(
        (
            NAME,
            *texts("Min Available", "Max Unavailable"),
            *integers("Allowed Disruptions"),
            AGE,
        ),
        _disruption_cells,
    ),
    resources.PRIORITY_CLASSES: Layout(
        (
            NAME,
            *integers("Value"),
            Column(name="Global-Default", type="boolean"),
            AGE,
            *texts("PreemptionPolicy"),
        ),
        _priority_cells,
    ),
}
