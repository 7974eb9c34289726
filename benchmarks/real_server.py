"""From the first request to a handler that has seen every pod of a real kube-apiserver.

Server and etcd are those of `make e2e`, started by this script. They share the cores with
the client, so that their load affects all figures. The pods are created over HTTP, through
admission, and have the status of pods that no kubelet runs.

    python benchmarks/real_server.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from bench.contestant import (
    KUBE_RS_STREAMING,
    OURSELVES,
    PEERS,
    PLAIN_LIST,
    PROTOBUF,
    PROTOBUF_PLAIN_LIST,
    Failed,
    contest,
)
from bench.corpus import pods
from bench.digest import digest
from bench.figures import OURS, Figure
from bench.script import Options, run
from bench.turns import figures, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant, Report
    from bench.turns import Outcomes

BENCHMARK = "real_server"
UNIT = "pods/s"
WRITERS = 16
CLUSTER = Path(__file__).parents[1] / "tests" / "e2e" / "cluster.py"
URL, CA, TOKEN = (f"AIOINFORMER_E2E_{name}" for name in ("SERVER", "CA", "TOKEN"))

CONTESTANTS = (
    OURSELVES,
    *PEERS,
    PROTOBUF,
    PROTOBUF_PLAIN_LIST,
    PLAIN_LIST,
    KUBE_RS_STREAMING,
)


def measure(options: Options) -> Iterator[Figure]:
    count = 200 if options.quick else 10_000
    case = f"{count:,} pods of a kube-apiserver"
    if URL in os.environ:
        asyncio.run(fill(pods(count)))
        outcomes = in_turns(case, options.rounds)
        yield from figures(BENCHMARK, case, UNIT, outcomes, rate)
    elif shutil.which("go") is None:
        missing = "building the server requires Go, which is not installed"
        yield Figure(
            benchmark=BENCHMARK,
            case=case,
            contestant=OURS,
            unit=UNIT,
            value=None,
            note=missing,
        )
    else:
        yield from _beside_a_server(options)


def _beside_a_server(options: Options) -> Iterator[Figure]:
    """Run the measurement in another process, with the address of the server."""
    again = [sys.executable, __file__, "--json", "--rounds", str(options.rounds)]
    command = [sys.executable, str(CLUSTER), "run", "--", *again]
    if options.quick:
        command.append("--quick")

    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    yield from (msgspec.json.decode(line, type=Figure) for line in lines)


def rate(report: Report) -> float:
    return float(report["synced"]["objects"] / report["synced"]["seconds"])


# ---------------------------------------------------------------- the pods


async def fill(bodies: list[dict[str, Any]]) -> None:
    """Create the pods, and the objects they need."""
    context = ssl.create_default_context(cafile=os.environ[CA])
    connector = aiohttp.TCPConnector(ssl=context, limit=WRITERS)
    headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
    async with aiohttp.ClientSession(
        os.environ[URL], connector=connector, headers=headers
    ) as session:

        async def create(path: str, body: dict[str, Any]) -> None:
            async with session.post(path, json=body) as response:
                if response.status not in {201, 409}:
                    raise RuntimeError(f"{path}: {await response.text()}")

        for name in sorted({it["metadata"]["namespace"] for it in bodies}):
            await create("/api/v1/namespaces", {"metadata": {"name": name}})

        remaining = iter(bodies)

        async def write() -> None:
            for body in remaining:
                path = f"/api/v1/namespaces/{body['metadata']['namespace']}/pods"
                await create(path, creatable(body))

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(write())


def creatable(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as a user requests it, without fields set by the server.

    A real server validates volumes, so each container has an existing one.
    """
    given = {"uid", "resourceVersion", "creationTimestamp", "managedFields"}
    metadata = {key: it for key, it in pod["metadata"].items() if key not in given}
    mounts = [{"name": "data", "mountPath": "/data"}]
    containers = [{**it, "volumeMounts": mounts} for it in pod["spec"]["containers"]]
    spec = {key: it for key, it in pod["spec"].items() if key != "serviceAccountName"}
    spec |= {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]}
    return {"metadata": metadata, "spec": spec}


def listed_digest() -> str:
    """Return the digest of a fresh list."""
    context = ssl.create_default_context(cafile=os.environ[CA])
    request = urllib.request.Request(
        f"{os.environ[URL]}/api/v1/pods",
        headers={"Authorization": f"Bearer {os.environ[TOKEN]}"},
    )
    with urllib.request.urlopen(request, context=context) as response:
        items = json.load(response)["items"]

    return digest(msgspec.json.encode(item) for item in items)


# ---------------------------------------------------------------- the measurement


def in_turns(case: str, rounds: int) -> Outcomes:
    """Run as `bench.turns` does, against one persistent server."""
    expected = listed_digest()
    secrets = {"BENCH_TOKEN": os.environ[TOKEN], "BENCH_CA": os.environ[CA]}
    environment = {**os.environ, **secrets}

    def once(contestant: Contestant) -> Report:
        url = os.environ[URL]
        report = contest(contestant, url, environment=environment, compare=False)
        if report["end"]["digest"] != expected:
            raise Failed(f"{contestant.name} has another state than the server")

        return report

    return take_turns(case, CONTESTANTS, rounds, once)


if __name__ == "__main__":
    sys.exit(run(measure))
