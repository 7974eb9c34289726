"""Liveness and readiness by the state of informers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Notes, elector_of, managed
from factory_helpers import Bug, FakeClient, break_requests
from informers import plain
from leader_helpers import MemoryLease, MemoryLock, failing

from aioinformer import Manager, SharedInformerFactory
from aioinformer.errors import Forbidden, OptionsError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.web.health import health_responders, livez, readyz
from aioinformer.web.responses import EndpointRequest
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.web.responses import HTTPResponse


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        yield server


def body_of(answer: HTTPResponse) -> dict[str, Any]:
    assert answer.content_type == "application/json"
    body: dict[str, Any] = json.loads(answer.body)
    return body


def troubles(answer: HTTPResponse) -> dict[str, str]:
    return {it["name"]: it["trouble"] for it in body_of(answer)["informers"]}


def reasons(answer: HTTPResponse) -> dict[str, str]:
    return {it["name"]: it["reason"] for it in body_of(answer)["informers"]}


async def test_healthy_app_reports_its_informers(server: APIServer) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        await asyncio.sleep(2.5)
        ready, live = readyz(factory, max_staleness=60), livez(factory)

    assert (ready.status, live.status) == (200, 200)
    assert ready.headers == {"Cache-Control": "no-store"}
    body = body_of(ready)
    (pods,) = body["informers"]
    assert body["status"] == "ok"
    assert 2 < pods.pop("age_seconds") < 5
    assert pods.pop("resource_version")
    assert pods == {
        "name": "pods",
        "ok": True,
        "trouble": "",
        "lasting": True,
        "phase": "watching",
        "synced": True,
        "objects": 1,
        "restarts": 0,
        "failures": 0,
        "degraded": 0,
        "history_resets": 0,
    }


async def test_outage_is_trouble_of_an_app_that_stays_ready(server: APIServer) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        server.faults.add(Refuse(verb="watch", status=503, times=1000))
        await server.restart()
        await asyncio.sleep(20)
        ready = readyz(factory)

    assert ready.status == 200
    assert troubles(ready) == {"pods": "refused"}
    (pods,) = body_of(ready)["informers"]
    assert pods["ok"]


async def test_unsynced_app_is_alive_and_not_ready() -> None:
    factory = SharedInformerFactory(FakeClient())  # never responds
    pods = factory.informer("v1", "pods")
    before = readyz(factory), livez(factory)
    async with factory:
        ready, live = readyz(factory, reasons=True), livez(pods, reasons=True)

    assert [it.status for it in before] == [503, 200]
    assert (ready.status, live.status) == (503, 200)
    assert troubles(ready) == {"pods": "not synced"}
    assert reasons(ready) == {"pods": "listing, no error so far"}
    assert troubles(live) == reasons(live) == {"pods": ""}


async def test_refused_list_is_reported_and_app_stays_alive(
    server: APIServer,
) -> None:
    server.faults.add(Refuse(verb="list", status=403, times=1000))
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await asyncio.sleep(30)
        ready, live = readyz(factory, reasons=True), livez(factory)

    assert (ready.status, live.status) == (503, 200)
    assert "403 Forbidden" in reasons(ready)["pods"]


async def test_health_responses_hide_error_messages(server: APIServer) -> None:
    """Probes need no password, and errors name servers, users, files and plugins."""
    secret = "s3cr3t-of-mine"
    server.faults.add(Refuse(verb="list", status=403, message=secret, times=1000))
    factory = SharedInformerFactory(server.client())
    informer = factory.informer("v1", "pods")
    async with factory:
        await asyncio.sleep(30)
        assert secret in informer.why_not_synced()
        bodies = [readyz(factory).body, livez(factory).body]

    assert not any(secret.encode() in body for body in bodies)
    assert "reason" not in str(bodies)


async def test_G8_failed_informer_makes_app_dead(server: APIServer) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    nodes = factory.informer("v1", "nodes")
    break_requests(factory._client, "pods", after=5.0, watches_only=True)

    await factory.start()
    await factory.wait_for_cache_sync(timeout=30)
    assert readyz(factory).status == 200
    await factory.failed()
    ready, live = readyz(factory), livez(factory, reasons=True)
    assert "Bug" not in str(livez(factory).body)
    assert (readyz(nodes).status, livez(nodes).status) == (200, 200)
    with pytest.raises(Bug):
        await factory.shutdown()

    assert (ready.status, live.status) == (503, 503)
    assert troubles(live)["pods"] == "stopped"
    assert "Bug" in reasons(live)["pods"]
    assert troubles(live)["nodes"] == ""


async def test_G8_stale_cache_is_not_ready_with_max_staleness(
    server: APIServer,
) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        await server.stop()
        await asyncio.sleep(200)
        bounded = readyz(factory, max_staleness=120, reasons=True)
        free = readyz(factory)
        live = livez(factory)
        await server.start()
        async with asyncio.timeout(100_000):
            while readyz(factory, max_staleness=120).status != 200:
                await asyncio.sleep(1)

    assert [it.status for it in (bounded, free, live)] == [503, 200, 200]
    assert troubles(bounded) == {"pods": "stale"}
    assert "s old, more than 120 s" in reasons(bounded)["pods"]
    assert troubles(free) == {"pods": "unreachable"}


async def test_temporary_informer_is_listed_and_does_not_count(
    server: APIServer,
) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        server.faults.add(Refuse(verb="list", status=503, times=1000))
        async with factory.use("v1", "nodes"):
            await asyncio.sleep(5)
            during = readyz(factory, reasons=True)

        after = readyz(factory)

    assert (during.status, after.status) == (200, 200)
    assert "503" in reasons(during)["nodes"]
    nodes = body_of(during)["informers"][1]
    assert (nodes["ok"], nodes["lasting"]) == (False, False)
    assert troubles(after) == {"pods": ""}


async def test_ended_factory_is_dead(server: APIServer) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)

    assert (readyz(factory).status, livez(factory).status) == (503, 503)
    assert troubles(readyz(factory)) == {"pods": "stopped"}


async def test_health_is_readable_in_other_thread(server: APIServer) -> None:
    factory = SharedInformerFactory(server.client())
    factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        answer = await asyncio.to_thread(readyz, factory, max_staleness=60)

    assert answer.status == 200


async def test_health_has_livez_and_readyz() -> None:
    factory = SharedInformerFactory(FakeClient())
    responders = health_responders(factory)

    assert {
        path: (await it(EndpointRequest())).status for path, it in responders.items()
    } == {
        "/livez": 200,
        "/readyz": 200,
    }, "nothing to be unready for"


def test_health_needs_sources_and_positive_staleness() -> None:
    with pytest.raises(OptionsError, match="health needs sources"):
        health_responders()

    with pytest.raises(OptionsError, match="must be positive"):
        health_responders(SharedInformerFactory(FakeClient()), max_staleness=0)


async def test_running_manager_is_ready_while_it_waits_to_lead(
    server: APIServer,
) -> None:
    lease = MemoryLease()
    async with elector_of(lease, "other").leading():
        manager = managed(server, Notes(), elector=elector_of(lease, "me"))
        assert readyz(manager).status == 503
        async with manager:
            await manager.wait_for_cache_sync(timeout=30)
            await asyncio.sleep(1)
            assert (readyz(manager).status, livez(manager).status) == (200, 200)
            assert json.loads(livez(manager).body)["trouble"] == ""

        assert (readyz(manager).status, livez(manager).status) == (503, 503)


async def test_manager_without_rights_on_the_lease_is_not_ready(
    server: APIServer,
) -> None:
    elector = elector_of(MemoryLease(), "me")
    lock = elector._lock
    assert isinstance(lock, MemoryLock)
    lock.fault = failing(Forbidden("leases is forbidden"))
    async with managed(server, Notes(), elector=elector) as manager:
        await manager.wait_for_cache_sync(timeout=30)
        await asyncio.sleep(60)
        answer = readyz(manager, reasons=True)
        assert (answer.status, livez(manager).status) == (503, 200)
        assert json.loads(answer.body)["trouble"] == "no election"
        assert "leases is forbidden" in json.loads(answer.body)["reason"]
        assert "leases is forbidden" in manager.not_ready()["manager"]

        lock.fault = None
        await asyncio.sleep(10)
        assert (readyz(manager).status, manager.not_ready()) == (200, {})

        # A leader, or a candidate in an outage, stays ready.
        lock.fault = failing(Forbidden("leases is forbidden"))
        await asyncio.sleep(5)
        assert readyz(manager).status == 200
        lock.fault = None


async def test_failed_manager_is_dead_while_its_informers_live(
    server: APIServer,
) -> None:
    async def fails() -> None:
        raise ValueError("boom")

    async with server.client() as client:
        factory = SharedInformerFactory(client)
        factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            manager = Manager(client, factory=factory)
            manager.add(fails)
            await manager.start()
            await asyncio.sleep(1)
            for answer in (livez(manager), readyz(manager)):
                assert answer.status == 503
                body = json.loads(answer.body)
                assert body["trouble"] == "manager failed"
                assert "boom" not in str(answer.body)
                assert body["informers"][0]["ok"]

            report = json.loads(livez(manager, reasons=True).body)
            assert report["reason"] == "failed: ValueError('boom')"
            assert livez(factory).status == 200
            with pytest.raises(ValueError, match="boom"):
                await manager.shutdown()
