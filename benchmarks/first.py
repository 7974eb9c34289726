"""The first measurement: a list and a watch through the whole pipeline.

A canned server on loopback, in a process of its own, sends bytes that were made ahead:
10,000 pods of about 7 KB, then 20,000 changes of them. What is measured is the client:
from the first request to a handler that has seen everything.

    python benchmarks/first.py [--pods N] [--events N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from aioinformer import Client, KubeObject, SharedInformerFactory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

EVENTS_A_CHUNK = 16
TIMEOUT_SECONDS = 120.0


# ---------------------------------------------------------------- the canned server


def hexadecimal(rng: random.Random, digits: int) -> str:
    return f"{rng.getrandbits(digits * 4):0{digits}x}"


def pod(rng: random.Random, number: int, version: int) -> dict[str, Any]:
    """A pod as a server writes it: managedFields, probes, conditions, random ids."""
    app = f"app-{number // 12}"
    name = f"{app}-{hexadecimal(rng, 8)}-{hexadecimal(rng, 5)}"
    image = f"registry.example.com/{app}@sha256:{hexadecimal(rng, 64)}"
    containers = [
        {
            "name": f"{app}-{part}",
            "image": image,
            "ports": [{"containerPort": 8080 + i, "protocol": "TCP"} for i in range(2)],
            "env": [
                {"name": f"SETTING_{i}", "value": hexadecimal(rng, 16)}
                for i in range(rng.randint(4, 12))
            ],
            "resources": {
                "limits": {"cpu": "500m", "memory": "512Mi"},
                "requests": {"cpu": "100m", "memory": "128Mi"},
            },
            "livenessProbe": {
                "httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
            },
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "IfNotPresent",
        }
        for part in range(rng.randint(1, 3))
    ]
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                f"f:{area}": {
                    f'k:{{"name":"{field}-{i}"}}': {".": {}, f"f:{field}": {}}
                    for i in range(20)
                }
            },
        }
        for manager, area, field in (
            ("kube-controller-manager", "spec", "containers"),
            ("kubelet", "status", "conditions"),
        )
    ]
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app}-",
            "namespace": f"ns-{number % 40}",
            "uid": f"{hexadecimal(rng, 8)}-{hexadecimal(rng, 4)}-{number:012x}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app": app,
                "tier": f"t{number // 12 % 5}",
                "pod-template-hash": app,
            },
            "annotations": {"example.com/checksum": hexadecimal(rng, 64)},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": app,
                    "uid": hexadecimal(rng, 32),
                    "controller": True,
                }
            ],
            "managedFields": managed,
        },
        "spec": {
            "nodeName": f"node-{number % 100}",
            "containers": containers,
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": f"node.kubernetes.io/{why}", "operator": "Exists"}
                for why in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "ready": True,
                    "restartCount": 0,
                    "image": image,
                    "imageID": image,
                    "containerID": f"containerd://{hexadecimal(rng, 64)}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
                for container in containers
            ],
        },
    }


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def event_chunks(pods: list[dict[str, Any]], events: int) -> Iterator[bytes]:
    """Changes of random pods with growing versions, some events in each HTTP chunk."""
    rng = random.Random(2)
    version = 2_000_000
    for start in range(0, events, EVENTS_A_CHUNK):
        lines = []
        for _ in range(start, min(start + EVENTS_A_CHUNK, events)):
            version += 1
            changed = rng.choice(pods)
            changed["metadata"]["resourceVersion"] = str(version)
            body = {"kind": "Pod", "apiVersion": "v1", **changed}
            lines.append(compact({"type": "MODIFIED", "object": body}) + b"\n")

        text = b"".join(lines)
        yield b"%x\r\n%s\r\n" % (len(text), text)


def serve(listener: socket.socket, pods_wanted: int, events: int, ready: Event) -> None:
    """Answer lists with one body and watches with one stream; then stay silent."""
    rng = random.Random(1)
    pods = [pod(rng, number, 1_000_000 + number) for number in range(pods_wanted)]
    head = {"resourceVersion": "2000000"}
    body = compact({"kind": "PodList", "apiVersion": "v1", "metadata": head})[:-1]
    body += b',"items":[' + b",".join(map(compact, pods)) + b"]}\n"
    stream = list(event_chunks(pods, events))
    begin = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    waiting = []
    ready.set()
    while True:
        connection, _ = listener.accept()
        request = connection.recv(65536)
        if b"watch=true" not in request:
            length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(begin + length)
            connection.sendall(body)
            connection.close()
            continue

        connection.sendall(begin + b"Transfer-Encoding: chunked\r\n\r\n")
        # The watch is measured alone: it begins when the client says so.
        gate, _ = listener.accept()
        for chunk in stream:
            connection.sendall(chunk)

        waiting += [connection, gate]


# ---------------------------------------------------------------- the measurement


def resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


async def measure(port: int, pods_wanted: int, events: int) -> dict[str, float]:
    """List and watch once, with one async handler; check the result."""
    seen: dict[str, int] = {"add": 0, "update": 0}
    done = asyncio.Event()

    async def on_add(obj: KubeObject) -> None:
        seen["add"] += 1

    async def on_update(old: KubeObject, new: KubeObject) -> None:
        seen["update"] += 1
        if seen["update"] == events:
            done.set()

    factory = SharedInformerFactory(Client.from_url(f"http://127.0.0.1:{port}"))
    informer = factory.informer("v1", "pods")
    handler = informer.add_event_handler(on_add, on_update)
    before = resident_kib()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        started = time.perf_counter()
        async with factory:
            await handler.wait_synced()
            listed = time.perf_counter() - started
            grown = resident_kib() - before

            gate = socket.create_connection(("127.0.0.1", port))
            started = time.perf_counter()
            await done.wait()
            watched = time.perf_counter() - started
            gate.close()

            # Deduplicated only by key: a slow handler may have skipped nothing here.
            assert seen == {"add": pods_wanted, "update": events}, seen
            assert len(informer.store) == pods_wanted
            newest = max(int(obj.resource_version) for obj in informer.store.list())
            assert newest == 2_000_000 + events, newest

    return {
        "pods_per_second": pods_wanted / listed,
        "events_per_second": events / watched,
        "kib_per_pod": grown / pods_wanted,
        "bytes_of_json_per_pod": sum(len(o.raw) for o in informer.store.list())
        / pods_wanted,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        server = context.Process(
            target=serve,
            args=(listener, arguments.pods, arguments.events, ready),
            daemon=True,
        )
        server.start()
        try:
            ready.wait()
            figures = asyncio.run(measure(port, arguments.pods, arguments.events))
        finally:
            server.kill()
            server.join()

    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:12,.1f}")

    return 0


if __name__ == "__main__":
    sys.exit(main())
