"""Leader election over HTTP."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import Client, LeaderElector, LeadershipLost
from aioinformer.controller import LeaseLock, ReconcileClient
from aioinformer.controller.pending_writes import PendingWrites
from aioinformer.model.resources import CONFIG_MAPS, LEASES
from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Lease written by an elector of client-go that was killed.
THEIRS: dict[str, Any] = {
    "metadata": {"name": "copier", "namespace": "default"},
    "spec": {
        "holderIdentity": "host-7_5c9d6a51-6a0e-4d0c-9f3c-8a1f7f3c1d11",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-07-31T09:00:00.000000Z",
        "renewTime": "2026-07-31T09:12:34.567890Z",
        "leaseTransitions": 6,
    },
}


def now() -> float:
    return asyncio.get_running_loop().time()


def elector(client: Client, identity: str, **options: Any) -> LeaderElector:
    lock = LeaseLock(client, "copier", namespace="default", identity=identity)
    return LeaderElector(lock, rng=random.Random(identity), **options)


def spec(server: APIServer) -> dict[str, Any]:
    lease: dict[str, Any] = server.get(LEASES, "copier")
    return lease["spec"]  # type: ignore[no-any-return]


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer() as server, server.client() as client:
        yield server, client


async def test_elector_takes_over_expired_lease_of_client_go() -> None:
    async with cluster() as (server, client):
        server.create(LEASES, THEIRS)
        start, received = now(), list[str]()
        async with elector(client, "us", on_new_leader=received.append).leading():
            assert 15 <= now() - start < 20
            taken = spec(server)
            assert taken["holderIdentity"] == "us"
            assert taken["leaseDurationSeconds"] == 15
            assert taken["leaseTransitions"] == 7
            assert taken["acquireTime"] == taken["renewTime"]
            await asyncio.sleep(3)
            assert spec(server)["acquireTime"] == taken["acquireTime"]
            assert spec(server)["renewTime"] >= taken["renewTime"]

        assert spec(server) == spec(server) | {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "leaseTransitions": 7,
        }
        assert received == [THEIRS["spec"]["holderIdentity"], "us", ""]


async def test_three_replicas_take_turns_and_no_two_lead_at_once() -> None:
    async with cluster() as (server, client):
        leads: list[str] = []
        turns: list[str] = []

        async def replica(name: str) -> None:
            one = elector(client, name)
            while True:
                async with one.leading():
                    leads.append(name)
                    turns.append(name)
                    assert leads == [name]
                    await asyncio.sleep(30)
                    leads.remove(name)

                # Otherwise it would acquire the lease again before the others look.
                await asyncio.sleep(10)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(replica(name)) for name in "abc"]
            await asyncio.sleep(600)
            for task in tasks:
                task.cancel()

        assert set(turns) == set("abc")
        assert len(turns) > 12
        assert spec(server)["leaseTransitions"] == len(turns) - 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults.Stall(verb="update", times=None), id="hung"),
        pytest.param(
            faults.Refuse(status=503, verb="update", times=None), id="refused"
        ),
        pytest.param(faults.Cut(head=False, verb="update", times=None), id="cut"),
    ],
)
async def test_G11_failed_renewals_end_the_work_and_fence_its_writes(
    fault: faults.Fault,
) -> None:
    async with cluster() as (server, client):
        one = elector(client, "a")
        fenced = ReconcileClient(client, PendingWrites([]), one)
        written = 0

        async def work() -> None:
            nonlocal written
            start = now()
            server.faults.add(fault)
            try:
                while True:
                    body = {"metadata": {"name": f"m{written}"}}
                    await fenced.create(CONFIG_MAPS, body, namespace="default")
                    written += 1
                    await asyncio.sleep(1)
            finally:
                assert now() - start == pytest.approx(10, abs=0.5)
                body = {"metadata": {"name": "late"}}
                with pytest.raises(LeadershipLost):
                    await fenced.create(CONFIG_MAPS, body, namespace="default")

        with pytest.raises(LeadershipLost):
            await one.run(work)

        assert len(server.objects(CONFIG_MAPS)) == written


@pytest.mark.parametrize(
    ("seconds", "leads"),
    [
        pytest.param(0.5, True, id="0.5s"),
        pytest.param(2.6, True, id="2.6s"),
        pytest.param(4.9, True, id="4.9s"),
        # Two such requests in a row exceed the deadline of 10 s.
        pytest.param(9, False, id="9s"),
    ],
)
async def test_replica_leads_if_its_renewals_fit_into_the_deadline(
    seconds: float, leads: bool
) -> None:
    async with cluster() as (server, client):
        slow = faults.Delay(resource="leases", seconds=seconds, times=None)
        server.faults.add(slow)
        one, lost = elector(client, "a"), 0

        async def replica() -> None:
            nonlocal lost
            while True:
                try:
                    await one.run(asyncio.Event().wait)
                except LeadershipLost:
                    lost += 1

        async with asyncio.TaskGroup() as group:
            task = group.create_task(replica())
            await asyncio.sleep(3 * seconds)
            for _ in range(300):
                assert one.is_leader is leads
                await asyncio.sleep(0.5)

            assert lost == 0
            holders = {it["spec"]["holderIdentity"] for it in server.objects(LEASES)}
            assert holders == ({"a"} if leads else set())
            server.faults.clear()
            task.cancel()


@pytest.mark.parametrize(
    ("seconds", "answers"),
    [
        pytest.param(0.5, True, id="late-responses-0.5s"),
        pytest.param(2.6, False, id="late-requests-2.6s"),
        pytest.param(4.9, True, id="late-responses-4.9s"),
        pytest.param(9, False, id="late-requests-9s"),
        pytest.param(9, True, id="late-responses-9s"),
    ],
)
async def test_holder_leads_or_another_replica_takes_the_expired_lease(
    seconds: float, answers: bool
) -> None:
    async with cluster() as (server, client):
        for verb in ("get", "create", "update"):
            late = faults.Stall(
                verb=verb, resource="leases", head=False, seconds=seconds, times=None
            )
            slow = faults.Delay(
                verb=verb, resource="leases", seconds=seconds, times=None
            )
            server.faults.add(late if answers and verb != "get" else slow)

        electors = {name: elector(client, name) for name in "ab"}

        async def replica(one: LeaderElector) -> None:
            while True:
                try:
                    await one.run(asyncio.Event().wait)
                except LeadershipLost:
                    await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(replica(one)) for one in electors.values()]
            holder, idle = "", 0.0
            for _ in range(600):
                await asyncio.sleep(0.5)
                leaders = [name for name, one in electors.items() if one.is_leader]
                assert len(leaders) <= 1
                specs = [it["spec"] for it in server.objects(LEASES)]
                before, holder = holder, specs[0]["holderIdentity"] if specs else ""
                stays = holder and holder == before and holder not in leaders
                idle = idle + 0.5 if stays else 0.0
                # A claim, another one to take over, and the lease of that.
                assert idle < 10 + 4.4 + 10 + 15 + 4 * 4.4

            server.faults.clear()
            for task in tasks:
                task.cancel()


async def test_renewals_do_not_wait_for_rate_limited_requests() -> None:
    async with (
        APIServer() as server,
        Client.from_url(server.url, token=server.token, qps=1, burst=1) as client,
    ):
        one = elector(client, "a")
        async with asyncio.TaskGroup() as group, one.leading():
            reads = [group.create_task(client.list(CONFIG_MAPS)) for _ in range(100)]
            await asyncio.sleep(60)
            assert one.is_leader
            assert one.deadline is not None
            assert one.deadline - now() > 7
            # The reads keep the rate limit.
            assert 58 <= sum(read.done() for read in reads) <= 62
            for read in reads:
                read.cancel()


async def test_replica_waits_for_a_restarting_server() -> None:
    async with cluster() as (server, client):
        one = elector(client, "a")
        async with one.leading():
            await server.stop()
            await asyncio.sleep(4)
            await server.start()
            await asyncio.sleep(30)
            assert one.is_leader
