"""Objects of the core group except pods, and their rows."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

from table_helpers import (
    AGE,
    DAYS_AGO,
    FINALIZERS,
    Row,
    ago,
    condition,
)

from aioinformer.model.resources import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)

_UNKNOWN = "<unknown>"
_NONE = "<none>"

PLAIN = [
    Row(CONFIG_MAPS, "empty", [0, AGE]),
    Row(
        CONFIG_MAPS,
        "three",
        [3, AGE],
        {"data": {"a": "1", "b": "2"}, "binaryData": {"c": "eA=="}},
    ),
    Row(SECRETS, "one", ["Opaque", 1, AGE], {"type": "Opaque", "data": {"a": "eA=="}}),
    Row(SECRETS, "typed", ["x.y/z", 0, AGE], {"type": "x.y/z"}),
    Row(SERVICE_ACCOUNTS, "one", [AGE]),
    Row(NAMESPACES, "one", ["Active", AGE], status={"phase": "Active"}),
    Row(
        RESOURCE_QUOTAS,
        "used",
        [
            "pods: 3/5, requests.cpu: 0/1",
            "limits.cpu: 500m/2, limits.memory: 0/1Gi",
            AGE,
        ],
        {"spec": {}},
        {
            "hard": {
                "pods": "5",
                "limits.cpu": "2",
                "requests.cpu": "1",
                "limits.memory": "1Gi",
            },
            "used": {"pods": "3", "limits.cpu": "500m"},
        },
    ),
    Row(RESOURCE_QUOTAS, "new", ["", "", AGE], {"spec": {"hard": {"count/x.y": "5"}}}),
]


# ---------------------------------------------------------------- events


def _micro(time: str) -> str:
    return time.replace("Z", ".000000Z")


def _about(namespace: str, **fields: str) -> dict[str, Any]:
    return {"involvedObject": {"namespace": namespace, **fields}}


def event_rows(namespace: str) -> list[Row]:
    """Make events about objects, in the namespace of these objects."""
    reported = {
        "eventTime": _micro(ago(days=9)),
        "reportingComponent": "x.y/z",
        "reportingInstance": "i-1",
        "action": "Act",
        "reason": "R",
        "type": "Normal",
    }
    about = _about(namespace, kind="Pod", name="p", fieldPath="spec.x")
    return [
        Row(
            EVENTS,
            "old",
            ["3d1h", "Warning", "Back", "pod/p", "spec.x", "k, n1", "text", "9d", 4],
            {
                **about,
                "firstTimestamp": ago(days=9),
                "lastTimestamp": DAYS_AGO,
                "count": 4,
                "type": "Warning",
                "reason": "Back",
                "message": "  text\n",
                "source": {"component": "k", "host": "n1"},
            },
        ),
        Row(
            EVENTS,
            "series",
            ["3d1h", "Normal", "R", "pod/p", "spec.x", "x.y/z, i-1", "", "9d", 7],
            {
                **about,
                **reported,
                "series": {"count": 7, "lastObservedTime": _micro(DAYS_AGO)},
            },
        ),
        Row(
            EVENTS,
            "single",
            ["9d", "Normal", "R", "pod/p", "spec.x", "x.y/z, i-1", "", "9d", 1],
            {**about, **reported},
        ),
        Row(
            EVENTS,
            "bare",
            [_UNKNOWN, "", "", "", "", "", "", _UNKNOWN, 1],
            _about(namespace),
        ),
    ]


# ---------------------------------------------------------------- nodes

_INFO = dict.fromkeys(
    (
        "kubeletVersion",
        "osImage",
        "kernelVersion",
        "containerRuntimeVersion",
        "architecture",
        "machineID",
        "systemUUID",
        "bootID",
        "kubeProxyVersion",
        "operatingSystem",
    ),
    "",
)
_NOTHING = [_NONE, _NONE, _UNKNOWN, _UNKNOWN, _UNKNOWN]


def _ready(status: str) -> dict[str, Any]:
    return {"conditions": [condition("Ready", status)]}


NODE_ROWS = [
    Row(
        NODES,
        "full",
        [
            "Ready,SchedulingDisabled",
            "control-plane,old,worker",
            AGE,
            "v1.36.0",
            "10.0.0.1",
            "1.2.3.4",
            "Linux",
            "6.1 (amd64)",
            "containerd://2",
        ],
        {"spec": {"unschedulable": True}},
        {
            **_ready("True"),
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "1.2.3.4"},
                {"type": "InternalIP", "address": "10.0.0.2"},
            ],
            "nodeInfo": {
                **_INFO,
                "kubeletVersion": "v1.36.0",
                "osImage": "Linux",
                "kernelVersion": "6.1",
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2",
            },
        },
        {
            "labels": {
                "node-role.kubernetes.io/worker": "",
                "node-role.kubernetes.io/control-plane": "true",
                "kubernetes.io/role": "old",
            }
        },
    ),
    Row(NODES, "new", ["Unknown", _NONE, AGE, "", *_NOTHING]),
    Row(NODES, "down", ["NotReady", _NONE, AGE, "", *_NOTHING], {}, _ready("False")),
    Row(NODES, "lost", ["NotReady", _NONE, AGE, "", *_NOTHING], {}, _ready("Unknown")),
    Row(
        NODES,
        "kernel",
        ["Unknown", _NONE, AGE, "", _NONE, _NONE, _UNKNOWN, "5", _UNKNOWN],
        {},
        {"nodeInfo": {**_INFO, "kernelVersion": "5"}},
    ),
    Row(
        NODES,
        "machine",
        [
            "Unknown",
            _NONE,
            AGE,
            "",
            _NONE,
            _NONE,
            _UNKNOWN,
            "<unknown> (arm)",
            _UNKNOWN,
        ],
        {},
        {"nodeInfo": {**_INFO, "architecture": "arm"}},
    ),
]


# ---------------------------------------------------------------- services


def _service(
    name: str,
    shown: list[Any],
    told_selector: str = _NONE,
    *,
    address: Any = ANY,
    balancer: list[dict[str, str]] | None = None,
    **spec: Any,
) -> Row:
    """Make a service; its cells are type, external addresses and ports."""
    kind, outside, shown_ports = shown
    body = {"type": kind, "ports": [{"port": 80, "protocol": "TCP"}], **spec}
    status = None if balancer is None else {"loadBalancer": {"ingress": balancer}}
    cells = [kind, address, outside, shown_ports, AGE, told_selector]
    return Row(SERVICES, name, cells, {"spec": body}, status)


_LONG = "a-very-long-name.of.a.balancer.example.com"

_PORTS = [
    {"name": "a", "port": 80, "protocol": "TCP"},
    {"name": "b", "port": 53, "protocol": "UDP"},
]

SERVICE_ROWS = [
    _service("plain", ["ClusterIP", _NONE, "80/TCP"]),
    _service(
        "ext",
        ["ClusterIP", "1.2.3.4,1.2.3.5", "80/TCP"],
        externalIPs=["1.2.3.4", "1.2.3.5"],
    ),
    _service(
        "headless", ["ClusterIP", _NONE, "80/TCP"], address="None", clusterIP="None"
    ),
    # The server assigns the node ports.
    _service("node", ["NodePort", _NONE, ANY]),
    _service(
        "two",
        ["ClusterIP", _NONE, "80/TCP,53/UDP"],
        "a=1,b=2",
        ports=_PORTS,
        selector={"b": "2", "a": "1"},
    ),
    _service("pending", ["LoadBalancer", "<pending>", ANY]),
    _service(
        "balanced",
        ["LoadBalancer", f"8.8.8.8,9.9.9.9,{_LONG}", ANY],
        balancer=[{"ip": "9.9.9.9"}, {"ip": "8.8.8.8"}, {"hostname": _LONG}],
    ),
    _service(
        "both",
        ["LoadBalancer", "9.9.9.9,1.2.3.4", ANY],
        balancer=[{"ip": "9.9.9.9"}],
        externalIPs=["1.2.3.4"],
    ),
    _service("given", ["LoadBalancer", "1.2.3.4", ANY], externalIPs=["1.2.3.4"]),
    Row(
        SERVICES,
        "name",
        ["ExternalName", _NONE, "a.example.com", _NONE, AGE, _NONE],
        {"spec": {"type": "ExternalName", "externalName": "a.example.com"}},
    ),
]


# ---------------------------------------------------------------- endpoints


def _subset(*addresses: str, ports: tuple[int, ...] = ()) -> dict[str, Any]:
    subset: dict[str, Any] = {"addresses": [{"ip": it} for it in addresses]}
    if ports:
        subset["ports"] = [{"name": f"p{port}", "port": port} for port in ports]

    return subset


def _endpoints(name: str, shown: str, *subsets: dict[str, Any]) -> Row:
    return Row(ENDPOINTS, name, [shown, AGE], {"subsets": list(subsets)})


_FOUR = [f"1.1.1.{number}" for number in range(1, 5)]

ENDPOINTS_ROWS = [
    _endpoints("none", _NONE),
    _endpoints("bare", "1.1.1.1,1.1.1.2,1.1.1.3 + 1 more...", _subset(*_FOUR)),
    _endpoints(
        "ports",
        "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more...",
        _subset(*_FOUR[:2], ports=(80, 81)),
    ),
    _endpoints(
        "subsets",
        "1.1.1.1:80,[fd00::1]:80",
        _subset("1.1.1.1", ports=(80,)),
        _subset("fd00::1", ports=(80,)),
    ),
    _endpoints(
        "three",
        "1.1.1.1:80,1.1.1.2:80,1.1.1.3:80",
        _subset(*_FOUR[:3], ports=(80,)),
    ),
]


# ---------------------------------------------------------------- volumes

_UNSET = "<unset>"


def _volume(name: str, shown: list[str], size: str, *modes: str, **more: Any) -> Row:
    spec = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/x"},
        "volumeMode": "Filesystem",
        **more.pop("spec", {}),
    }
    mode = spec["volumeMode"]
    cells = [size, shown[0], "Retain", *shown[1:4], _UNSET, shown[4], AGE, mode]
    return Row(PERSISTENT_VOLUMES, name, cells, {"spec": spec}, **more)


def _claim(name: str, shown: list[str], status: dict[str, Any], **more: Any) -> Row:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
        "volumeMode": "Filesystem",
        **more,
    }
    cells = [*shown, "fast", _UNSET, AGE, "Filesystem"]
    return Row(PERSISTENT_VOLUME_CLAIMS, name, cells, {"spec": spec}, status)


VOLUME_ROWS = [
    _volume(
        "failed",
        ["RWO,ROX,RWX", "Failed", "a/b", "fast", "Why"],
        "5Gi",
        "ReadWriteMany",
        "ReadWriteOnce",
        "ReadOnlyMany",
        spec={"storageClassName": "fast", "claimRef": {"namespace": "a", "name": "b"}},
        status={"phase": "Failed", "reason": "Why"},
    ),
    _volume(
        "old",
        ["RWOP", "Available", "", "old", ""],
        "1Gi",
        "ReadWriteOncePod",
        spec={"volumeMode": "Block"},
        status={"phase": "Available"},
        metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
    ),
    _volume(
        "deleted",
        ["RWO", "Terminating", "", "", ""],
        "1",
        "ReadWriteOnce",
        metadata=FINALIZERS,
        deleted=True,
    ),
    _claim("new", ["Pending", "", "", ""], {"phase": "Pending"}),
    _claim(
        "bound",
        ["Bound", "v", "2Gi", "RWO,ROX"],
        {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "capacity": {"storage": "2Gi"},
        },
        volumeName="v",
    ),
    _claim("lost", ["Lost", "v", "0", ""], {"phase": "Lost"}, volumeName="v"),
]

CORE_ROWS = [
    *PLAIN,
    *NODE_ROWS,
    *SERVICE_ROWS,
    *ENDPOINTS_ROWS,
    *VOLUME_ROWS,
]
