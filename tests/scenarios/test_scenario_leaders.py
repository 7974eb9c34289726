"""Replicas of aioinformer and of client-go elect a leader with one Lease."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from children import in_background
from disclosures import note
from scenes import client_of, create, until

from aioinformer import LeaderElector, Manager
from aioinformer.controller import LeaseCandidate, LeaseLock

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

    from aioinformer import Client

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

LEASE = "writer"
PAUSE_SECONDS = 0.05


def kubeconfig(server: ServerUnderTest) -> str:
    cluster = {"server": server.url, "certificate-authority": server.ca}
    context = {"cluster": "e2e", "user": "e2e"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": server.token}}],
            "contexts": [{"name": "e2e", "context": context}],
            "current-context": "e2e",
        }
    )


async def lease(server: ServerUnderTest, http: aiohttp.ClientSession) -> dict[str, Any]:
    """Return the spec of the Lease."""
    path = server.path("leases", "apis/coordination.k8s.io/v1")
    async with http.get(f"{path}/{LEASE}") as answer:
        spec: dict[str, Any] = (await answer.json())["spec"]
        return spec


def at(time: str) -> datetime:
    return datetime.fromisoformat(time)


@contextmanager
def theirs(
    server: ServerUnderTest, folder: Path, identity: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of client-go that writes while it leads."""
    config = folder / "kubeconfig"
    config.write_text(kubeconfig(server))
    command = [os.environ["AIOINFORMER_E2E_ELECTOR"], server.namespace, LEASE, identity]
    environment = {**os.environ, "KUBECONFIG": str(config)}
    with (
        (folder / f"{identity}.log").open("wb") as log,
        in_background(command, output=log, environment=environment) as child,
    ):
        yield child


class Ours:
    """The same program with aioinformer."""

    def __init__(self, server: ServerUnderTest, client: Client, identity: str) -> None:
        lock = LeaseLock(client, LEASE, namespace=server.namespace, identity=identity)
        self.elector = LeaderElector(lock)
        self.over = asyncio.Event()
        self._path = server.path("configmaps")

    async def run(self, http: aiohttp.ClientSession) -> None:
        async with self.elector.leading():
            while not self.over.is_set():
                self.elector.check()
                data = {"leader": self.elector.identity}
                body = {"metadata": {"generateName": "turn-"}, "data": data}
                await create(http, self._path, [body])
                await asyncio.sleep(PAUSE_SECONDS)

        note(self.elector)


class Turns:
    """Return the writers in order."""

    def __init__(self, server: ServerUnderTest, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._path = server.path("configmaps")

    async def leaders(self) -> list[str]:
        """Return the leaders in order of their writes; a returning one appears twice."""
        async with self._http.get(self._path) as answer:
            turns = (await answer.json())["items"]

        turns.sort(key=lambda it: int(it["metadata"]["resourceVersion"]))
        return [
            leader
            for leader, _ in itertools.groupby(it["data"]["leader"] for it in turns)
        ]

    async def reach(self, leader: str) -> None:
        """Wait until a replica writes."""
        while leader not in await self.leaders():
            await asyncio.sleep(0.1)


@pytest.mark.timeout(300)
async def test_electors_of_aioinformer_and_client_go_take_turns(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
    tmp_path: Path,
) -> None:
    turns = Turns(server, http)
    async with client_of(server) as client, asyncio.TaskGroup() as group:
        first, second = Ours(server, client, "ours-1"), Ours(server, client, "ours-2")
        with theirs(server, tmp_path, "go-1") as go:
            await turns.reach("go-1")
            group.create_task(first.run(http))
            await until(lambda: first.elector.leader == "go-1")
            go.send_signal(signal.SIGTERM)
            async with recovery("leader ends"):
                await turns.reach("ours-1")

        with theirs(server, tmp_path, "go-2") as go:
            # Until it waits: its program starts, and looks for the first time.
            await asyncio.sleep(2)
            first.over.set()
            async with recovery("leader ends"):
                await turns.reach("go-2")

            group.create_task(second.run(http))
            await until(lambda: second.elector.leader == "go-2")
            go.kill()
            go.wait()
            left = await lease(server, http)
            async with recovery("leader dies"):
                await turns.reach("ours-2")

        taken = await lease(server, http)
        second.over.set()

    # The Lease of a dead leader was taken after it had expired, and not before.
    assert (left["holderIdentity"], taken["holderIdentity"]) == ("go-2", "ours-2")
    duration = timedelta(seconds=left["leaseDurationSeconds"])
    assert at(taken["acquireTime"]) - at(left["renewTime"]) >= duration
    # Nobody wrote while another one led.
    assert await turns.leaders() == ["go-1", "ours-1", "go-2", "ours-2"]


async def test_kube_apiserver_elects_the_oldest_candidate(
    coordinating: ServerUnderTest,
) -> None:
    server, record = coordinating, list[str]()

    def replica(name: str, version: str) -> Manager:
        client = client_of(server)
        lock = LeaseLock(client, LEASE, namespace=server.namespace, identity=name)
        manager = Manager(client, elector=LeaderElector(lock, coordinated=True))

        async def work() -> None:
            record.append(f"{name} begins")
            try:
                await asyncio.Event().wait()
            finally:
                record.append(f"{name} ends")

        manager.add(work)
        candidate = LeaseCandidate(client, lock, binary_version=version)
        manager.add(candidate, leader_only=False)
        return manager

    async with asyncio.timeout(120), replica("new", "1.36.0"):
        await until(lambda: record == ["new begins"])
        async with replica("old", "1.35.0"):
            moved = ["new begins", "new ends", "old begins"]
            await until(lambda: record == moved)
