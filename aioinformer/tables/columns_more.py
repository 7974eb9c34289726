"""The tables of the smaller groups: networking, policy, access, scheduling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.tables.cells import (
    NONE,
    UNSET,
    age,
    at,
    mapping,
    maps,
    name,
    number,
    selector_cell,
    shortened,
    strings,
    text,
)
from aioinformer.tables.columns import (
    AGE,
    NAME,
    Column,
    Layout,
    integers,
    texts,
)
from aioinformer.tables.columns_core import balancer_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aioinformer.model.resource import Resource

__all__ = ["MORE_LAYOUTS"]


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
        balancer_addresses(body),
        "80, 443" if maps(spec, "tls") else "80",
        age(body, now),
    ]


def _hosts(rules: list[dict[str, Any]], limit: int = 3) -> str:
    """List the first hosts; what more there is counts rules, with a host or without."""
    told: list[str] = []
    is_cut = False
    for rule in rules:
        is_cut = is_cut or len(told) == limit
        host = text(rule, "host")
        if host and not is_cut:
            told.append(host)

    listed = ",".join(told) or "*"
    return f"{listed} + {len(rules) - limit} more..." if is_cut else listed


def _ingress_class_cells(body: Mapping[str, Any], now: datetime) -> list[Any]:
    parameters, told = mapping(body, "spec", "parameters"), NONE
    if parameters:
        group = at(parameters, "apiGroup")
        kind = text(parameters, "kind") + (f".{group}" if group is not None else "")
        told = f"{kind}/{text(parameters, 'name')}"

    return [name(body), text(body, "spec", "controller"), told, age(body, now)]


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

    # An empty name is one, which is all that can be told of a port without a number.
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

MORE_LAYOUTS: dict[Resource, Layout] = {
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
