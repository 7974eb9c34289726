"""Service allocation: cluster IPs and node ports of services. Pure.

The caller passes the taken addresses. A Service always gets the same address if it is
free, so that tests are reproducible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["with_addresses"]

# Default range 10.96.0.0/16, without its first and last address.
_PREFIX = "10.96"
_ADDRESSES = 2**16 - 2
# Default range of node ports.
_FIRST_PORT = 30000
_PORTS = 2768

_HEADLESS = "None"
_NODE_PORT_TYPES = frozenset({"NodePort", "LoadBalancer"})
_ADDRESS_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def with_addresses(
    service: dict[str, Any],
    *,
    old: dict[str, Any] | None = None,
    taken: Container[str] = (),
    taken_ports: Container[int] = (),
) -> dict[str, Any]:
    """Allocate the cluster IPs, IP families and node ports of a Service.

    Values that the Service requests or had before are kept. Values that its type no
    longer needs are dropped, unless the update changes them.

    Args:
        service: Service with its defaults; not changed.
        old: Stored object, for updates.
        taken: Cluster IPs of other Services.
        taken_ports: Node ports of other Services.

    Raises:
        ValueError: If no address or port is free.
    """
    spec = dict(service.get("spec") or {})
    if old is not None:
        _inherit(spec, old.get("spec") or {})

    if spec.get("type") != "ExternalName":
        _allocate_address(spec, _seed(service), taken)
        _allocate_families(spec)

    if _needs_ports(spec):
        _allocate_ports(spec, _seed(service), taken_ports)

    return {**service, "spec": spec}


def _needs_ports(spec: dict[str, Any]) -> bool:
    balanced = spec.get("type") == "LoadBalancer"
    return spec.get("type") == "NodePort" or (
        balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _seed(service: dict[str, Any]) -> int:
    metadata = service.get("metadata") or {}
    return crc32(f"{metadata.get('namespace')}/{metadata.get('name')}".encode())


# ---------------------------------------------------------------- updates


def _inherit(spec: dict[str, Any], old: dict[str, Any]) -> None:
    """Keep values that an update omits, and drop those that the type does not need."""
    _drop_unused(spec, old)
    if "ExternalName" not in {spec.get("type"), old.get("type")}:
        moved = spec.get("clusterIP") not in {None, "", old.get("clusterIP")}
        if moved and spec.get("clusterIPs") == old.get("clusterIPs"):
            # Only one of these two equivalent fields was changed, so it
            # counts.
            spec["clusterIPs"] = [spec["clusterIP"]]

        for field in _ADDRESS_FIELDS:
            if not spec.get(field) and old.get(field):
                spec[field] = old[field]

    had = {_port_key(it): it.get("nodePort") for it in old.get("ports") or ()}
    if spec.get("ports"):
        spec["ports"] = [_inherit_port(spec, it, had) for it in spec["ports"]]


def _drop_unused(spec: dict[str, Any], old: dict[str, Any]) -> None:
    """Drop values that the new type does not need, unless they were changed, too."""
    useless: list[str] = []
    if spec.get("type") == "ExternalName":
        useless += (*_ADDRESS_FIELDS, "internalTrafficPolicy")

    if spec.get("type") != "LoadBalancer":
        useless += ("allocateLoadBalancerNodePorts", "loadBalancerClass")
        useless.append("healthCheckNodePort")

    if spec.get("type") not in _NODE_PORT_TYPES and not spec.get("externalIPs"):
        useless.append("externalTrafficPolicy")

    for field in useless:
        if spec.get("type") != old.get("type") and spec.get(field) == old.get(field):
            spec.pop(field, None)


def _inherit_port(
    spec: dict[str, Any], port: dict[str, Any], had: dict[Any, Any]
) -> dict[str, Any]:
    before = had.get(_port_key(port))
    if spec.get("type") in _NODE_PORT_TYPES:
        return (
            port
            if port.get("nodePort") or not before
            else _with_node_port(port, before)
        )

    if before and port.get("nodePort") == before:
        return {field: it for field, it in port.items() if field != "nodePort"}

    return port


def _port_key(port: dict[str, Any]) -> tuple[Any, Any]:
    return port.get("protocol", "TCP"), port.get("port")


def _with_node_port(port: dict[str, Any], number: int) -> dict[str, Any]:
    return {**port, "nodePort": number}


# ---------------------------------------------------------------- allocation


def _allocate_address(spec: dict[str, Any], seed: int, taken: Container[str]) -> None:
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(seed, taken)

    if not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _free_address(seed: int, taken: Container[str]) -> str:
    for step in range(_ADDRESSES):
        number = (seed + step) % _ADDRESSES + 1
        address = f"{_PREFIX}.{number >> 8}.{number & 255}"
        if address not in taken:
            return address

    raise ValueError("all cluster addresses are taken")


def _allocate_families(spec: dict[str, Any]) -> None:
    # A headless service without a selector has both IP families.
    both = spec["clusterIP"] == _HEADLESS and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = "RequireDualStack" if both else "SingleStack"

    if not spec.get("ipFamilies"):
        dual = both and spec["ipFamilyPolicy"] != "SingleStack"
        ours = "IPv6" if ":" in spec["clusterIP"] else "IPv4"
        spec["ipFamilies"] = ["IPv4", "IPv6"] if dual else [ours]


def _allocate_ports(spec: dict[str, Any], seed: int, taken: Container[int]) -> None:
    used = {it["nodePort"] for it in spec.get("ports") or () if it.get("nodePort")}
    ports = []
    for port in spec.get("ports") or ():
        number = port.get("nodePort") or _free_port(seed, taken, used)
        used.add(number)
        ports.append(_with_node_port(port, number))

    if ports:
        spec["ports"] = ports

    local = spec.get("externalTrafficPolicy") == "Local"
    if local and spec["type"] == "LoadBalancer":
        port = spec.get("healthCheckNodePort") or _free_port(seed, taken, used)
        spec["healthCheckNodePort"] = port


def _free_port(seed: int, taken: Container[int], used: set[int]) -> int:
    for step in range(_PORTS):
        number = _FIRST_PORT + (seed + step) % _PORTS
        if number not in taken and number not in used:
            return number

    raise ValueError("all node ports are taken")
