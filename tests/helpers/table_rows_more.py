"""Objects of the smaller groups, and their rows."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

from table_helpers import AGE, SELECTOR, Row

from aioinformer.model.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)

_NONE = "<none>"
_UNSET = "<unset>"
_RBAC = "rbac.authorization.k8s.io"

# ---------------------------------------------------------------- access


def _subject(kind: str, name: str) -> dict[str, str]:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": "n"}

    return {"kind": kind, "name": name, "apiGroup": _RBAC}


_SUBJECTS = [
    _subject("User", "u1"),
    _subject("User", "u2"),
    _subject("Group", "g"),
    _subject("ServiceAccount", "sa"),
    _subject("ServiceAccount", "sb"),
]
_VIEW = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"}

ACCESS_ROWS = [
    Row(ROLES, "one", [ANY], {"rules": []}),
    Row(CLUSTER_ROLES, "one", [ANY], {"rules": []}),
    Row(
        ROLE_BINDINGS,
        "five",
        ["ClusterRole/view", AGE, "u1, u2", "g", "n/sa, n/sb"],
        {"roleRef": _VIEW, "subjects": _SUBJECTS},
    ),
    Row(
        CLUSTER_ROLE_BINDINGS,
        "none",
        ["ClusterRole/view", AGE, "", "", ""],
        {"roleRef": _VIEW},
    ),
]

# ---------------------------------------------------------------- networking


def _backend() -> dict[str, Any]:
    return {"service": {"name": "s", "port": {"number": 80}}}


def _rule(host: str) -> dict[str, Any]:
    path = {"path": "/", "pathType": "Prefix", "backend": _backend()}
    return {"http": {"paths": [path]}, **({"host": host} if host else {})}


def _ingress(name: str, shown: str, *hosts: str, **more: Any) -> Row:
    """Make an ingress of these hosts; an empty one means any."""
    kind, addresses = more.pop("kind", _NONE), more.pop("addresses", "")
    ports, status = more.pop("ports", "80"), more.pop("status", None)
    spec = {"rules": [_rule(host) for host in hosts], **more}
    if not hosts:
        spec = {"defaultBackend": _backend()}

    cells = [kind, shown, addresses, ports, AGE]
    return Row(INGRESSES, name, cells, {"spec": spec}, status)


INGRESS_ROWS = [
    _ingress("default", "*"),
    _ingress(
        "one",
        "a.b",
        "a.b",
        kind="nginx",
        addresses="1.1.1.1,x.y",
        ingressClassName="nginx",
        status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"hostname": "x.y"}]}},
    ),
    _ingress("tls", "a.b,c.d", "a.b", "c.d", ports="80, 443", tls=[{"hosts": ["a.b"]}]),
    _ingress("five", "a.b,b.b,c.b + 2 more...", "a.b", "b.b", "c.b", "d.b", "e.b"),
    _ingress("any-last", "a.b,b.b,c.b + 1 more...", "a.b", "b.b", "c.b", ""),
    _ingress("any-first", "a.b,b.b,c.b", "", "a.b", "b.b", "c.b"),
    _ingress("any", "*", ""),
    Row(
        INGRESS_CLASSES,
        "plain",
        ["x.y/z", _NONE, AGE],
        {"spec": {"controller": "x.y/z"}},
    ),
    Row(
        INGRESS_CLASSES,
        "grouped",
        ["x.y/z", "K.g.h/n", AGE],
        {
            "spec": {
                "controller": "x.y/z",
                "parameters": {
                    "kind": "K",
                    "name": "n",
                    "apiGroup": "g.h",
                    "scope": "Cluster",
                },
            }
        },
    ),
    Row(
        INGRESS_CLASSES,
        "core",
        ["x.y/z", "K/n", AGE],
        {
            "spec": {
                "controller": "x.y/z",
                "parameters": {"kind": "K", "name": "n", "scope": "Cluster"},
            }
        },
    ),
]


def _slice(name: str, shown: list[str], addresses: list[str], ports: list[Any]) -> Row:
    body = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": ports,
    }
    return Row(ENDPOINT_SLICES, name, ["IPv4", *shown, AGE], body)


_FOUR = [f"1.1.1.{number}" for number in range(1, 5)]

NETWORK_ROWS = [
    _slice("none", [_UNSET, _UNSET], [], []),
    _slice(
        "four",
        ["80,b,81 + 1 more...", "1.1.1.1,1.1.1.2,1.1.1.3 + 1 more..."],
        _FOUR,
        [
            {"name": "a", "port": 80},
            {"name": "b"},
            {"name": "c", "port": 81},
            {"name": "d", "port": 82},
        ],
    ),
    _slice("nameless", [_UNSET, "1.1.1.1"], _FOUR[:1], [{"name": ""}]),
    Row(NETWORK_POLICIES, "all", [_NONE, AGE], {"spec": {"podSelector": {}}}),
    Row(
        NETWORK_POLICIES,
        "some",
        ["a=1,b=2", AGE],
        {"spec": {"podSelector": {"matchLabels": {"b": "2", "a": "1"}}}},
    ),
]

# ---------------------------------------------------------------- the rest

_HEALTH = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

OTHER_ROWS = [
    Row(LEASES, "held", ["me", AGE], {"spec": {"holderIdentity": "me"}}),
    Row(LEASES, "free", ["", AGE], {"spec": {}}),
    Row(LIMIT_RANGES, "one", [ANY], {"spec": {"limits": []}}),
    Row(
        POD_DISRUPTION_BUDGETS,
        "least",
        ["1", "N/A", 2, AGE],
        {"spec": {"minAvailable": 1, "selector": SELECTOR}},
        {"disruptionsAllowed": 2, **_HEALTH},
    ),
    Row(
        POD_DISRUPTION_BUDGETS,
        "most",
        ["N/A", "30%", 0, AGE],
        {"spec": {"maxUnavailable": "30%", "selector": SELECTOR}},
    ),
    Row(
        PRIORITY_CLASSES,
        "low",
        [-7, False, AGE, "Never"],
        {"value": -7, "preemptionPolicy": "Never"},
    ),
    Row(MUTATING_WEBHOOK_CONFIGURATIONS, "none", [0, AGE], {}),
    Row(
        VALIDATING_WEBHOOK_CONFIGURATIONS,
        "one",
        [1, AGE],
        {
            "webhooks": [
                {
                    "name": "a.example.com",
                    "clientConfig": {"url": "https://example.com"},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                }
            ]
        },
    ),
    Row(
        STORAGE_CLASSES,
        "plain",
        ["x.y/z", "Delete", "Immediate", False, AGE],
        {
            "provisioner": "x.y/z",
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        },
    ),
    Row(
        STORAGE_CLASSES,
        "grows",
        ["x.y/z", "Retain", "WaitForFirstConsumer", True, AGE],
        {
            "provisioner": "x.y/z",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
    ),
]

MORE_ROWS = [*ACCESS_ROWS, *INGRESS_ROWS, *NETWORK_ROWS, *OTHER_ROWS]
