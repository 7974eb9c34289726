"""Coordinated leader election: `LeaseCandidate`, and electors with `coordinated=True`."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running
from leader_helpers import MemoryLease, MemoryLock, elector, forever, hang, lead, now

from aioinformer import LeaderElector, LeadershipLost, Manager
from aioinformer.controller import LeaseCandidate, LeaseLock, LeaseRecord
from aioinformer.controller.lease_candidate import LEASE_CANDIDATES
from aioinformer.controller.lease_record import (
    ObservedRecord,
    Step,
    next_coordinated_step,
)
from aioinformer.errors import NotFound
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES
from aioinformer.model.times import micro_time
from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import Client


# A kube-apiserver serves the kind with a feature gate, which is off by default.
DEFINITION: dict[str, Any] = {
    "metadata": {
        "name": "leasecandidates.coordination.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://example.org"},
    },
    "spec": {
        "group": "coordination.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "leasecandidates", "kind": "LeaseCandidate"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def micros() -> str:
    return micro_time(datetime.now(UTC))


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer() as server, server.client() as client:
        server.create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        yield server, client


class Coordinator:
    """The coordinator of a kube-apiserver: it pings candidates and elects the oldest."""

    def __init__(self, server: APIServer) -> None:
        self.server = server
        self.elected: list[str] = []
        self._seen: tuple[str, float] = ("", 0.0)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            best = self._best()
            if best is not None:
                await self._elect(best)

    def _best(self) -> dict[str, Any] | None:
        found = self.server.objects(LEASE_CANDIDATES)
        return min(found, key=lambda it: it["spec"]["binaryVersion"], default=None)

    async def _elect(self, best: dict[str, Any]) -> None:
        name = best["metadata"]["name"]
        try:
            lease = self.server.get(LEASES, "copier")
        except NotFound:
            lease = None

        spec = {} if lease is None else lease["spec"]
        seen = str(spec)
        if seen != self._seen[0]:
            self._seen = seen, now()

        holder = spec.get("holderIdentity")
        alive = now() - self._seen[1] < spec.get("leaseDurationSeconds", 0)
        if holder and alive:
            if holder != name and not spec.get("preferredHolder"):
                self.server.patch(LEASES, "copier", {"spec": {"preferredHolder": name}})

            return

        if not await self._answers(name):
            return

        self.elected.append(name)
        fresh = {
            "holderIdentity": name,
            "leaseDurationSeconds": 5,
            "renewTime": micros(),
            "strategy": best["spec"]["strategy"],
        }
        if lease is None:
            body = {"metadata": {"name": "copier", "namespace": "default"}}
            self.server.create(LEASES, body | {"spec": fresh})
        else:
            gone = {"preferredHolder": None, "acquireTime": None}
            self.server.patch(LEASES, "copier", {"spec": fresh | gone})

    async def _answers(self, name: str) -> bool:
        pinged = micros()
        self.server.patch(LEASE_CANDIDATES, name, {"spec": {"pingTime": pinged}})
        await asyncio.sleep(2)
        spec = self.server.get(LEASE_CANDIDATES, name)["spec"]
        return bool(spec["renewTime"] >= pinged)


def lock_of(client: Client, name: str) -> LeaseLock:
    return LeaseLock(client, "copier", namespace="default", identity=name)


def replica(server: APIServer, name: str, version: str, record: list[str]) -> Manager:
    client = server.client()
    lock = lock_of(client, name)
    one = LeaderElector(lock, coordinated=True, rng=random.Random(name))
    manager = Manager(client, elector=one)

    async def work() -> None:
        record.append(f"{name} begins")
        try:
            await forever()
        finally:
            record.append(f"{name} ends")

    manager.add(work)
    candidate = LeaseCandidate(client, lock, binary_version=version)
    manager.add(candidate, leader_only=False)
    return manager


async def test_coordinator_elects_and_moves_leadership() -> None:
    record: list[str] = []
    async with cluster() as (server, _):
        coordinator = Coordinator(server)
        async with running(coordinator.run()), replica(server, "new", "2.0", record):
            await asyncio.sleep(60)
            assert record == ["new begins"]
            spec = server.get(LEASES, "copier")["spec"]
            assert spec["holderIdentity"] == "new"
            assert spec["strategy"] == "OldestEmulationVersion"
            assert spec["leaseDurationSeconds"] == 15
            async with replica(server, "old", "1.0", record):
                await asyncio.sleep(120)
                assert record[1:] == ["new ends", "old begins"]

            assert record[3:] == ["old ends"]
            server.delete(LEASE_CANDIDATES, "old")
            await asyncio.sleep(60)
            assert record[4:] == ["new begins"]

        assert coordinator.elected == ["new", "old", "new"]


async def test_elector_neither_creates_nor_takes_a_coordinated_lease() -> None:
    lease = MemoryLease()
    lock = MemoryLock(lease, "a")
    async with running(lead(elector(lock, coordinated=True), forever)):
        await asyncio.sleep(60)
        assert lease.writes == []
        for holder in ("them", "", "a"):  # expired leases
            lease.write(LeaseRecord(holder, 5, "", "", 0))
            before = len(lease.writes)
            if holder == "a":
                lock.fault = hang

            await asyncio.sleep(60)
            assert len(lease.writes) == before


async def test_coordinated_leader_stops_when_another_replica_is_preferred() -> None:
    lease = MemoryLease()
    one = elector(MemoryLock(lease, "a"), coordinated=True)
    lease.write(LeaseRecord("a", 15, "then", "then", 3))

    async def work() -> None:
        await asyncio.sleep(30)
        assert one.is_leader
        assert lease.record is not None
        assert (lease.record.transitions, lease.record.acquired) == (3, "then")
        await prefer()
        await forever()

    async def prefer() -> None:
        assert lease.record is not None
        record = lease.record
        lease.write(LeaseRecord("a", 15, "then", record.renewed, 3, "b"))

    with pytest.raises(LeadershipLost, match="the coordinator prefers b"):
        await lead(one, work)

    assert lease.record is not None
    assert lease.record.holder == "a", "it expires"


@pytest.mark.parametrize(
    ("record", "now", "leading", "step"),
    [
        (None, 0, False, Step.WAIT),
        (None, 0, True, Step.WAIT),
        (LeaseRecord("us", 15), 14, False, Step.CLAIM),
        (LeaseRecord("us", 15), 14, True, Step.CLAIM),
        (LeaseRecord("us", 15), 15, False, Step.WAIT),
        (LeaseRecord("us", 15), 15, True, Step.WAIT),
        (LeaseRecord("us", 15, preferred="b"), 14, True, Step.YIELD),
        (LeaseRecord("us", 15, preferred="b"), 14, False, Step.WAIT),
        (LeaseRecord("b", 15), 14, True, Step.YIELD),
        (LeaseRecord("b", 15), 99, False, Step.WAIT),
        (LeaseRecord("", 1), 99, False, Step.WAIT),
    ],
)
def test_decisions_about_a_coordinated_lease(
    record: LeaseRecord | None, now: float, leading: bool, step: Step
) -> None:
    seen = None if record is None else ObservedRecord(record, 0)
    assert next_coordinated_step(seen, "us", now, leading=leading) is step


async def test_candidate_registers_and_renews_on_ping_and_every_five_minutes() -> None:
    async with cluster() as (server, client):
        candidate = LeaseCandidate(client, lock_of(client, "a"), binary_version="1.4.0")
        versions: list[str] = []

        def version() -> str:
            found: dict[str, Any] = server.get(LEASE_CANDIDATES, "a")
            return str(found["metadata"]["resourceVersion"])

        async with running(candidate.run()):
            await asyncio.sleep(10)
            spec = server.get(LEASE_CANDIDATES, "a")["spec"]
            assert spec | {"renewTime": ""} == {
                "leaseName": "copier",
                "binaryVersion": "1.4.0",
                "emulationVersion": "1.4.0",
                "strategy": "OldestEmulationVersion",
                "renewTime": "",
            }
            versions.append(version())
            await asyncio.sleep(280)
            assert version() == versions[-1]
            await asyncio.sleep(20)
            assert version() != versions[-1]
            pinged = micros()
            server.patch(LEASE_CANDIDATES, "a", {"spec": {"pingTime": pinged}})
            await asyncio.sleep(1)
            spec = server.get(LEASE_CANDIDATES, "a")["spec"]
            assert spec["renewTime"] > pinged
            assert spec["pingTime"] == pinged
            server.delete(LEASE_CANDIDATES, "a")
            await asyncio.sleep(1)
            assert version()


async def test_candidate_retries_failures() -> None:
    async with cluster() as (server, client):
        server.faults.add(faults.Refuse(status=503, verb="create", times=3))
        candidate = LeaseCandidate(client, lock_of(client, "a"), binary_version="1.4.0")
        async with running(candidate.run()):
            await asyncio.sleep(10)
            assert server.get(LEASE_CANDIDATES, "a")["spec"]["leaseName"] == "copier"
