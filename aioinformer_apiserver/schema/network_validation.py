"""Validation of services, endpoints, ingresses and network policies."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors
from aioinformer_apiserver.errors.field_errors import GoStruct
from aioinformer_apiserver.schema import field_validation as fields
from aioinformer_apiserver.schema.field_validation import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import FieldError

__all__ = [
    "validate_endpoint_slice",
    "validate_endpoints",
    "validate_ingress",
    "validate_ingress_class",
    "validate_network_policy",
    "validate_service",
]

Object = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_LONGEST_AFFINITY = 86400
_HEADLESS = "None"


def validate_service(body: Object) -> Iterator[FieldError]:
    """Validate a Service; addresses may be missing."""
    spec = body.get("spec") or {}
    kind, ports = spec.get("type", "ClusterIP"), as_list(spec.get("ports"))
    headless = spec.get("clusterIP") == _HEADLESS
    if not ports and not headless and kind != "ExternalName":
        yield field_errors.required("spec.ports")

    if kind == "LoadBalancer" and headless:
        why = "may not be set to 'None' for LoadBalancer services"
        yield field_errors.invalid("spec.clusterIPs[0]", _HEADLESS, why)

    if kind == "ExternalName":
        yield from _validate_external_name(spec)

    yield from _validate_service_ports(kind, ports)
    yield from fields.labels("spec.selector", spec.get("selector"))
    yield from _validate_affinity(spec)
    yield from fields.one_of("spec.type", kind, _TYPES)
    yield from _validate_service_address(spec, kind)
    yield from _validate_traffic(spec, kind)


def _validate_external_name(spec: Object) -> Iterator[FieldError]:
    if spec.get("clusterIP"):
        why = "may not be set for ExternalName services"
        yield field_errors.forbidden("spec.clusterIPs", why)

    name = spec.get("externalName", "")
    if not name:
        yield field_errors.required("spec.externalName")
    else:
        # A DNS name may end with a dot.
        yield from fields.subdomain("spec.externalName", name.removesuffix("."))


def _validate_service_ports(kind: str, ports: list[Object]) -> Iterator[FieldError]:
    seen: set[str] = set()
    pairs: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        where, name = f"spec.ports[{index}]", port.get("name", "")
        if name:
            yield from fields.dns_label(f"{where}.name", name)
            if name in seen:
                yield field_errors.duplicate(f"{where}.name", name)

            seen.add(name)
        elif len(ports) > 1:
            yield field_errors.required(f"{where}.name")

        yield from fields.port_number(f"{where}.port", port.get("port", 0))
        yield from fields.one_of(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)
        yield from fields.port(f"{where}.targetPort", port.get("targetPort"))
        if port.get("nodePort") and kind in {"ClusterIP", "ExternalName"}:
            why = f"may not be used when `type` is '{kind}'"
            yield field_errors.forbidden(f"{where}.nodePort", why)

        pair = (port.get("protocol"), port.get("port"))
        if pair in pairs:
            yield _duplicate_port(where, port)

        pairs.add(pair)


def _duplicate_port(path: str, port: Object) -> FieldError:
    shown = GoStruct(
        Name="",
        Protocol=port.get("protocol"),
        AppProtocol=None,
        Port=port.get("port"),
        TargetPort=0,
        NodePort=0,
    )
    return field_errors.duplicate(path, shown)


def _validate_affinity(spec: Object) -> Iterator[FieldError]:
    affinity = spec.get("sessionAffinity")
    yield from fields.one_of("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        seconds = client.get("timeoutSeconds", 1)
        if not 0 < seconds <= _LONGEST_AFFINITY:
            where = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            why = f"must be greater than 0 and less than {_LONGEST_AFFINITY}"
            yield field_errors.invalid(where, seconds, why)


def _validate_service_address(spec: Object, kind: str) -> Iterator[FieldError]:
    given = spec.get("clusterIPs") or [spec.get("clusterIP")]
    for index, it in enumerate(given):
        if it and it != _HEADLESS and kind != "ExternalName":
            where = f"spec.clusterIPs[{index}]"
            yield from fields.address(where, it)
            yield from _validate_ip_family(
                where, it, as_list(spec.get("ipFamilies")), index
            )

    for index, it in enumerate(as_list(spec.get("ipFamilies"))):
        yield from fields.one_of(f"spec.ipFamilies[{index}]", it, ("IPv4", "IPv6"))

    policy = spec.get("ipFamilyPolicy")
    if policy is not None:
        yield from fields.one_of("spec.ipFamilyPolicy", policy, _POLICIES)
        if policy == "RequireDualStack" and spec.get("clusterIP") != _HEADLESS:
            why = "this cluster is not configured for dual-stack services"
            yield field_errors.invalid("spec.ipFamilyPolicy", policy, why)

    for index, it in enumerate(as_list(spec.get("externalIPs"))):
        where = f"spec.externalIPs[{index}]"
        yield from fields.address(where, it)
        yield from _validate_special_address(where, it)


def _validate_ip_family(
    path: str, value: str, families: list[str], index: int
) -> Iterator[FieldError]:
    expected = families[index] if index < len(families) else ""
    if expected == ("IPv4" if ":" in value else "IPv6"):
        why = f"expected an {expected} value as indicated by `ipFamilies[{index}]`"
        yield field_errors.invalid(path, value, why)


def _validate_special_address(path: str, value: str) -> Iterator[FieldError]:
    """Reject unspecified, loopback and link-local addresses."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return

    if address.is_unspecified:
        yield field_errors.invalid(path, value, f"may not be unspecified ({value})")
    elif address.is_loopback:
        why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
        yield field_errors.invalid(path, value, why)
    elif address.is_link_local:
        why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        yield field_errors.invalid(path, value, why)


def _validate_traffic(spec: Object, kind: str) -> Iterator[FieldError]:
    external = kind in {"NodePort", "LoadBalancer"} or spec.get("externalIPs")
    for field in ("externalTrafficPolicy", "internalTrafficPolicy"):
        policy = spec.get(field)
        if not policy:
            continue

        if field == "externalTrafficPolicy" and not external:
            why = "may only be set for externally-accessible services"
            yield field_errors.invalid(f"spec.{field}", policy, why)
        else:
            yield from fields.one_of(f"spec.{field}", policy, ("Cluster", "Local"))

    ranges = as_list(spec.get("loadBalancerSourceRanges"))
    where = "spec.LoadBalancerSourceRanges"
    if ranges and kind != "LoadBalancer":
        why = "may only be used when `type` is 'LoadBalancer'"
        yield field_errors.forbidden(where, why)

    for index, it in enumerate(ranges):
        yield from fields.network(f"{where}[{index}]", it.strip())


# ---------------------------------------------------------------- endpoints


def validate_endpoints(body: Object) -> Iterator[FieldError]:
    """Validate Endpoints."""
    for index, subset in enumerate(as_list(body.get("subsets"))):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            why = "must specify `addresses` or `notReadyAddresses`"
            yield field_errors.required(path, why)

        for field in ("addresses", "notReadyAddresses"):
            for number, it in enumerate(as_list(subset.get(field))):
                where, value = f"{path}.{field}[{number}].ip", it.get("ip", "")
                yield from _validate_endpoint_address(where, value)

        ports = as_list(subset.get("ports"))
        for number, it in enumerate(ports):
            where = f"{path}.ports[{number}]"
            if it.get("name"):
                yield from fields.dns_label(f"{where}.name", it["name"])
            elif len(ports) > 1:
                yield field_errors.required(f"{where}.name")

            yield from fields.port_number(f"{where}.port", it.get("port", 0))
            yield from fields.one_of(
                f"{where}.protocol", it.get("protocol"), _PROTOCOLS
            )


def _validate_endpoint_address(path: str, value: str) -> Iterator[FieldError]:
    wrong = list(fields.address(path, value))
    yield from wrong
    if wrong:
        # Two checks of the real server report this.
        yield field_errors.invalid(path, value, "must be a valid IP address")

    yield from _validate_special_address(path, value)


def validate_endpoint_slice(body: Object) -> Iterator[FieldError]:
    """Validate an EndpointSlice."""
    kind = body.get("addressType", "")
    if not kind:
        yield field_errors.required("addressType")
    else:
        yield from fields.one_of("addressType", kind, ("FQDN", "IPv4", "IPv6"))

    for index, it in enumerate(as_list(body.get("ports"))):
        path = f"ports[{index}]"
        if it.get("name"):
            yield from fields.dns_label(f"{path}.name", it["name"])

        yield from fields.one_of(f"{path}.protocol", it.get("protocol"), _PROTOCOLS)

    for index, it in enumerate(as_list(body.get("endpoints"))):
        path, addresses = f"endpoints[{index}].addresses", as_list(it.get("addresses"))
        if not addresses:
            yield field_errors.required(path, "must contain at least 1 address")

        for number, address in enumerate(addresses):
            if kind in {"IPv4", "IPv6"}:
                yield from fields.address(f"{path}[{number}]", address)
                yield from _validate_special_address(f"{path}[{number}]", address)


# ---------------------------------------------------------------- ingresses


def validate_ingress(body: Object) -> Iterator[FieldError]:
    """Validate an Ingress."""
    spec = body.get("spec") or {}
    for index, it in enumerate(as_list(spec.get("tls"))):
        for number, host in enumerate(as_list(it.get("hosts"))):
            yield from _validate_host(f"spec.tls[{index}].hosts[{number}]", host)

    if not spec.get("rules") and "defaultBackend" not in spec:
        why = "either `defaultBackend` or `rules` must be specified"
        yield field_errors.invalid("spec", None, why)

    if "defaultBackend" in spec:
        yield from _validate_backend("spec.defaultBackend", spec["defaultBackend"])

    for index, rule in enumerate(as_list(spec.get("rules"))):
        yield from _validate_rule(f"spec.rules[{index}]", rule)

    if spec.get("ingressClassName"):
        yield from fields.subdomain("spec.ingressClassName", spec["ingressClassName"])


def _validate_host(path: str, host: str) -> Iterator[FieldError]:
    yield from fields.subdomain(path, host.removeprefix("*."))


def _validate_rule(path: str, rule: Object) -> Iterator[FieldError]:
    host, http = rule.get("host", ""), rule.get("http")
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        why = "must be a DNS name, not an IP address"
        yield field_errors.invalid(f"{path}.host", host, why)
    elif host:
        yield from _validate_host(f"{path}.host", host)

    if http is None:
        return

    if not http.get("paths"):
        yield field_errors.required(f"{path}.http.paths")

    for index, it in enumerate(as_list(http.get("paths"))):
        yield from _validate_path(f"{path}.http.paths[{index}]", it)


def _validate_path(path: str, value: Object) -> Iterator[FieldError]:
    kind, target = value.get("pathType"), value.get("path", "")
    if kind is None:
        yield field_errors.required(f"{path}.pathType", "pathType must be specified")
        return

    if kind in {"Exact", "Prefix"}:
        if not target.startswith("/"):
            why = "must be an absolute path"
            yield field_errors.invalid(f"{path}.path", target, why)
    elif kind == "ImplementationSpecific":
        if target and not target.startswith("/"):
            why = "must be an absolute path"
            yield field_errors.invalid(f"{path}.path", target, why)
    else:
        choices = ("Exact", "ImplementationSpecific", "Prefix")
        yield field_errors.not_supported(f"{path}.pathType", kind, choices)

    yield from _validate_backend(f"{path}.backend", value.get("backend") or {})


def _validate_backend(path: str, backend: Object) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        yield field_errors.invalid(path, "", "resource or service backend is required")

    if service is not None and resource is not None:
        why = "cannot set both resource and service backends"
        yield field_errors.invalid(path, "", why)
    elif service is not None:
        yield from _validate_backend_service(path, service)


def _validate_backend_service(path: str, service: Object) -> Iterator[FieldError]:
    name, port = service.get("name", ""), service.get("port") or {}
    if not name:
        yield field_errors.required(f"{path}.service.name")
    else:
        yield from fields.dns_label(f"{path}.service.name", name)

    named, number = port.get("name", ""), port.get("number", 0)
    if named and number:
        why = "cannot set both port name & port number"
        yield field_errors.invalid(path, "", why)
    elif named:
        yield from fields.port_name(f"{path}.service.port.name", named)
    elif number:
        yield from fields.port_number(f"{path}.service.port.number", number)
    else:
        yield field_errors.required(path, "port name or number is required")


def validate_ingress_class(body: Object) -> Iterator[FieldError]:
    """Validate an IngressClass."""
    spec = body.get("spec") or {}
    controller = spec.get("controller", "")
    if not controller:
        yield field_errors.required("spec.controller")
    elif "/" not in controller.strip("/"):
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield field_errors.invalid("spec.controller", controller, why)

    parameters = spec.get("parameters")
    if parameters is not None:
        for field in ("kind", "name"):
            if not parameters.get(field):
                yield field_errors.required(f"spec.parameters.{field}")


# ---------------------------------------------------------------- policies


def validate_network_policy(body: Object) -> Iterator[FieldError]:
    """Validate a NetworkPolicy."""
    spec = body.get("spec") or {}
    yield from fields.selector("spec.podSelector", spec.get("podSelector"))
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(as_list(spec.get(field))):
            path = f"spec.{field}[{index}]"
            for number, it in enumerate(as_list(rule.get("ports"))):
                yield from _validate_policy_port(f"{path}.ports[{number}]", it)

            for number, it in enumerate(as_list(rule.get(peers))):
                yield from _validate_policy_peer(f"{path}.{peers}[{number}]", it)

    for index, it in enumerate(as_list(spec.get("policyTypes"))):
        yield from fields.one_of(
            f"spec.policyTypes[{index}]", it, ("Ingress", "Egress")
        )


def _validate_policy_port(path: str, value: Object) -> Iterator[FieldError]:
    protocols = ("TCP", "UDP", "SCTP")
    yield from fields.one_of(f"{path}.protocol", value.get("protocol"), protocols)
    if "port" in value:
        yield from fields.port(f"{path}.port", value["port"])
        last = value.get("endPort")
        if last is not None and isinstance(value["port"], int) and last < value["port"]:
            # The real server shows the first port here, not the last one.
            why = "must be greater than or equal to `port`"
            yield field_errors.invalid(f"{path}.endPort", value["port"], why)


def _validate_policy_peer(path: str, peer: Object) -> Iterator[FieldError]:
    if not peer:
        yield field_errors.required(path, "must specify a peer")

    for field in ("podSelector", "namespaceSelector"):
        yield from fields.selector(f"{path}.{field}", peer.get(field))

    block = peer.get("ipBlock")
    if block is not None:
        yield from fields.network(f"{path}.ipBlock.cidr", block.get("cidr", ""))
        if "podSelector" in peer or "namespaceSelector" in peer:
            why = "may not specify both ipBlock and another peer"
            yield field_errors.forbidden(path, why)
