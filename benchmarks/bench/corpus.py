"""Pods as a server encodes them: several shapes, random ids, digests and addresses.

They are generated from a seed, so that each run of each benchmark gets the same bytes.
Identical pods would favour clients that share or compress. These pods share as much as
the replicas of one application, and no more.
"""

from __future__ import annotations

import random
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FIRST_VERSION", "NODES", "PHASES", "encoded_pods", "pods"]

JSON = dict[str, Any]

FIRST_VERSION = 1_000_000
NODES = 100
PHASES = ("Running", "Running", "Running", "Running", "Pending", "Succeeded")
NAMESPACES = 40
REPLICAS = 12
"""Pods per application, which share labels, images and settings."""

WORDS = [
    "cache",
    "queue",
    "index",
    "store",
    "topic",
    "broker",
    "region",
    "tenant",
    "budget",
    "ledger",
    "invoice",
    "order",
    "cart",
    "search",
    "image",
    "audio",
    "video",
    "thumb",
    "export",
    "import",
    "report",
    "metric",
    "trace",
    "alert",
    "session",
    "token",
    "cookie",
    "limit",
    "quota",
    "batch",
    "stream",
    "window",
    "shard",
    "replica",
    "leader",
    "follower",
    "snapshot",
    "backup",
    "restore",
    "archive",
    "policy",
    "filter",
    "router",
    "proxy",
    "gateway",
    "worker",
    "sender",
    "reader",
]


def hexadecimal(rng: random.Random, digits: int) -> str:
    """Return random hexadecimal digits."""
    return f"{rng.getrandbits(digits * 4):0{digits}x}"


def uid(rng: random.Random) -> str:
    """Return a uid as a server creates it."""
    return "-".join(hexadecimal(rng, digits) for digits in (8, 4, 4, 4, 12))


def moment(rng: random.Random) -> str:
    """Return a time of some day in 2026."""
    day, second = rng.randint(1, 28), rng.randrange(86_400)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"2026-{rng.randint(1, 12):02}-{day:02}T{clock}Z"


def probe(rng: random.Random, port: int) -> JSON:
    """Return a health probe of a container."""
    if rng.random() < 0.3:
        how: JSON = {"exec": {"command": ["/bin/check", "--port", str(port)]}}
    else:
        path = f"/{rng.choice(WORDS)}/health"
        how = {"httpGet": {"path": path, "port": port, "scheme": "HTTP"}}

    return {
        **how,
        "initialDelaySeconds": rng.choice([5, 10, 30]),
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def container(rng: random.Random, name: str) -> JSON:
    """Return a container of an application; its settings differ between applications."""
    port = rng.choice([8080, 8443, 9090, 9000])
    made: JSON = {
        "name": name,
        "image": f"registry.example.com/{name}@sha256:{hexadecimal(rng, 64)}",
        "args": [f"--{rng.choice(WORDS)}={rng.choice(WORDS)}" for _ in range(4)],
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "env": [
            {"name": f"{rng.choice(WORDS)}_{i}".upper(), "value": hexadecimal(rng, 12)}
            for i in range(rng.randint(2, 8))
        ],
        "resources": {
            "limits": {"cpu": f"{rng.randint(1, 8)}00m", "memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": f"{rng.randint(1, 4) * 64}Mi"},
        },
        "volumeMounts": [
            {"name": f"{rng.choice(WORDS)}-data", "mountPath": "/data"},
            {
                "name": "kube-api-access",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    if rng.random() < 0.7:
        made["livenessProbe"] = probe(rng, port)
        made["readinessProbe"] = probe(rng, port)

    return made


OWNERS = ("ReplicaSet", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


def application(rng: random.Random, number: int) -> JSON:
    """Return the fields that the replicas of one application share."""
    name = f"{rng.choice(WORDS)}-{rng.choice(WORDS)}-{number}"
    template = hexadecimal(rng, 10)
    containers = [container(rng, name)]
    sidecars = rng.choice([0, 0, 0, 1, 1, 2])
    containers += [container(rng, f"{rng.choice(WORDS)}-{i}") for i in range(sidecars)]

    labels = {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": rng.choice(WORDS),
        "pod-template-hash": template,
        "tier": f"t{number % 5}",
    }
    return {
        "name": name,
        "namespace": f"{rng.choice(WORDS)}-{number % NAMESPACES}",
        "template": template,
        "labels": labels,
        "fields": {
            "f:metadata": {"f:labels": fields_of(labels), "f:generateName": {}},
            "f:spec": fields_of({"containers": containers, "dnsPolicy": ""}),
        },
        "owner": {
            "apiVersion": "apps/v1",
            "kind": rng.choice(OWNERS),
            "name": f"{name}-{template}",
            "uid": uid(rng),
            "controller": True,
            "blockOwnerDeletion": True,
        },
        "containers": containers,
    }


def fields_of(value: Any) -> JSON:
    """Return the tree of field names that a server stores for a manager."""
    match value:
        case dict():
            return {f"f:{key}": fields_of(inner) for key, inner in value.items()}
        case [dict(), *_] if "name" in value[0]:
            return {
                f'k:{{"name":"{item["name"]}"}}': {".": {}, **fields_of(item)}
                for item in value
            }
        case [dict(), *_] if "type" in value[0]:
            return {
                f'k:{{"type":"{item["type"]}"}}': {".": {}, **fields_of(item)}
                for item in value
            }
        case _:
            return {}


def managed(manager: str, fields: JSON, when: str, part: str = "") -> JSON:
    """Return an entry of `metadata.managedFields`."""
    entry: JSON = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": when,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": part} if part else entry


def pod(rng: random.Random, app: JSON, version: int) -> JSON:
    """Return one replica."""
    created = moment(rng)
    address = f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
    spec = {
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {
                "name": "kube-api-access",
                "projected": {
                    "sources": [
                        {
                            "serviceAccountToken": {
                                "expirationSeconds": 3607,
                                "path": "token",
                            }
                        },
                        {"configMap": {"name": "kube-root-ca.crt"}},
                    ],
                    "defaultMode": 420,
                },
            },
        ],
        "containers": app["containers"],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app["name"],
        "nodeName": f"node-{rng.randrange(NODES)}",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{why}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for why in ("not-ready", "unreachable")
        ],
    }
    status = {
        "phase": rng.choice(PHASES),
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": created,
            }
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "hostIP": f"192.168.{rng.randrange(256)}.{rng.randrange(256)}",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": created,
        "containerStatuses": [
            {
                "name": one["name"],
                "state": {"running": {"startedAt": created}},
                "lastState": {},
                "ready": True,
                "restartCount": rng.choice([0, 0, 0, 1, 7]),
                "image": one["image"].replace("@sha256:", ":"),
                "imageID": one["image"],
                "containerID": f"containerd://{hexadecimal(rng, 64)}",
                "started": True,
            }
            for one in app["containers"]
        ],
        "qosClass": "Burstable",
    }
    return {
        "metadata": {
            "name": f"{app['name']}-{app['template']}-{hexadecimal(rng, 3)}{version % 256:02x}",
            "generateName": f"{app['name']}-{app['template']}-",
            "namespace": app["namespace"],
            "uid": uid(rng),
            "resourceVersion": str(version),
            "creationTimestamp": created,
            "labels": app["labels"],
            "annotations": {
                "checksum/config": hexadecimal(rng, 64),
                "cni.example.com/network": f'{{"ips":["{address}"]}}',
            },
            "ownerReferences": [app["owner"]],
            "managedFields": [
                managed("kube-controller-manager", app["fields"], created),
                managed("kubelet", {"f:status": fields_of(status)}, created, "status"),
            ],
        },
        "spec": spec,
        "status": status,
    }


def pods(count: int, *, seed: int = 1) -> list[JSON]:
    """Return pods ordered by namespace and name, as a server lists them."""
    return sorted(unordered_pods(count, seed), key=order)


def unordered_pods(count: int, seed: int) -> Iterator[JSON]:
    """Yield the same pods, one application after the other."""
    rng = random.Random(seed)
    for first in range(0, count, REPLICAS):
        app = application(rng, first // REPLICAS)
        for number in range(first, min(first + REPLICAS, count)):
            yield pod(rng, app, FIRST_VERSION + number)


def order(one: JSON) -> tuple[str, str]:
    """Return the sort key of a server."""
    return (one["metadata"]["namespace"], one["metadata"]["name"])


def encoded_pods(count: int, *, seed: int = 1, small: bool = False) -> list[bytes]:
    """Return the same pods, each as JSON.

    Args:
        count: Number of pods.
        seed: Seed of everything random.
        small: True for objects of 1.5 KB: without containers and managed fields.
    """
    encode = msgspec.json.Encoder().encode
    made = []
    for one in unordered_pods(count, seed):
        if small:
            del one["metadata"]["managedFields"], one["status"]["containerStatuses"]
            one["spec"] = {"nodeName": one["spec"]["nodeName"]}

        made.append((order(one), encode(one)))

    made.sort(key=itemgetter(0))
    return [encoded for _, encoded in made]
