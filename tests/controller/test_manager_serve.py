"""Health, metrics and debug page of a manager, by `Manager.serve()`."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from controller_helpers import Acts, Notes, Slow, config_map, elector_of, managed, named
from leader_helpers import MemoryLease, MemoryLock, elector, hang
from prometheus_client import CollectorRegistry

from aioinformer import (
    Controller,
    EventRecorder,
    Manager,
    Result,
    Shards,
    SharedInformerFactory,
)
from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import serve
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map("a"))
        yield server


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number: int = found.getsockname()[1]
        return number


async def read(port: int, path: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get(path, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def tables(port: int) -> dict[str, list[dict[str, Any]]]:
    status, text = await read(port, "/debug/?format=json")
    assert status == 200
    shown: dict[str, list[dict[str, Any]]] = json.loads(text)
    return shown


# -------------------------------------------------------------------- endpoints


async def test_manager_serves_health_metrics_and_debug_page(
    server: APIServer, port: int
) -> None:
    manager = managed(server, Notes(), metrics=PrometheusSink(CollectorRegistry()))
    manager.serve(port, host="127.0.0.1")
    async with manager:
        await manager.wait_for_cache_sync(timeout=10)
        await asyncio.sleep(1)
        pages = {
            path: await read(port, path)
            for path in (
                "/",
                "/livez",
                "/readyz",
                "/metrics",
                "/debug",
                "/debug/",
                "/x",
            )
        }

    assert pages["/"][1] == "/debug\n/livez\n/metrics\n/readyz\n"
    assert {path: status for path, (status, _) in pages.items()} == {
        "/": 200,
        "/livez": 200,
        "/readyz": 200,
        "/metrics": 200,
        "/debug": 200,
        "/debug/": 200,
        "/x": 404,
    }
    assert (
        'controller_runtime_reconcile_total{controller="maps"' in pages["/metrics"][1]
    )
    assert "<h2>informers</h2>" in pages["/debug"][1]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("[", 403),
        ("localhost:80", 200),
        ("[::1]:80", 200),
        ("10.0.0.7:80", 200),  # a pod, by a proxy in it
    ],
)
async def test_manager_on_a_loopback_address_refuses_names_of_other_sites(
    server: APIServer, port: int, host: str, status: int
) -> None:
    manager = managed(server, Notes(), metrics=PrometheusSink(CollectorRegistry()))
    manager.serve(port, host="127.0.0.1", dashboard={"actions": True})
    headers = {"Host": host, "X-Aioinformer": "1"}
    requeue = "/debug/api/requeue?controller=maps&key=default/a"
    async with manager, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        await manager.wait_for_cache_sync(timeout=10)
        for path in ("/livez", "/metrics", "/debug/", "/debug/tables"):
            assert (await read(port, path, Host=host))[0] == status

        async with http.post(requeue, headers=headers) as answer:
            assert (answer.status == 403) is (status == 403)


async def test_replica_that_cannot_join_its_shards_is_not_ready(
    server: APIServer, port: int
) -> None:
    refusal = Refuse(verb="create", resource="leases", status=403, times=None)
    server.faults.add(refusal)
    async with server.client() as client:
        manager = Manager(client)
        shards = Shards("sites", client, ranges=8, namespace="default")
        maps = manager.informer(CONFIG_MAPS)
        manager.add(Controller("sites", Notes(), for_=maps, shards=shards))
        manager.serve(port=port, reasons=True)
        async with manager:
            await asyncio.sleep(5)
            status, body = await read(port, "/readyz")
            answer = json.loads(body)
            assert (status, answer["trouble"]) == (503, "ranges not worked on")
            assert answer["reason"].startswith(
                "shards sites: has not joined the group yet: 403 Forbidden"
            )
            status, body = await read(port, "/readyz?verbose")
            assert (status, "[-]manager failed: shards sites: " in body) == (503, True)
            assert (await read(port, "/livez"))[0] == 200

            server.faults.clear()
            await asyncio.sleep(30)
            assert (await read(port, "/readyz"))[0] == 200


async def test_endpoints_answer_before_the_caches_and_while_reconciles_drain(
    server: APIServer, port: int
) -> None:
    slow = Slow()
    manager = managed(server, slow)
    manager.serve(port, host="127.0.0.1")
    server.faults.add(Refuse(verb="list", status=503, times=None))
    await manager.start()
    assert (await read(port, "/livez"))[0] == 200
    assert (await read(port, "/readyz"))[0] == 503, "nothing is listed"

    server.faults.clear()
    await slow.begun.wait()
    stopping = asyncio.ensure_future(manager.shutdown())
    await asyncio.sleep(5)
    assert not stopping.done(), "the reconcile drains"
    assert (await read(port, "/livez"))[0] == 200
    await stopping
    with pytest.raises(aiohttp.ClientConnectionError):
        await read(port, "/livez")


async def test_candidate_serves_while_another_replica_leads(
    server: APIServer, port: int
) -> None:
    lease = MemoryLease()
    notes = Notes()
    waiting = managed(server, notes, elector=elector_of(lease, "waiting"))
    waiting.serve(port, host="127.0.0.1")
    async with managed(server, Notes(), elector=elector_of(lease, "leading")):
        await asyncio.sleep(5)
        async with waiting:
            await asyncio.sleep(5)
            (row,) = (await tables(port))["manager"]
            status, _ = await read(port, "/readyz")

    assert status == 200
    assert (row["leads"], row["identity"], row["leader"]) == (
        False,
        "waiting",
        "leading",
    )
    assert notes.names == []


async def test_endpoints_answer_while_the_manager_waits_to_lead_again(
    server: APIServer, port: int
) -> None:
    lock = MemoryLock(MemoryLease(), "me")
    sink = PrometheusSink(CollectorRegistry())
    manager = managed(server, Notes(), elector=elector(lock), metrics=sink)
    manager.serve(port, host="127.0.0.1")
    async with manager:
        for fault in (None, hang, None):
            lock.fault = fault
            await asyncio.sleep(60)
            assert (await read(port, "/livez"))[0] == 200
            (row,) = (await tables(port))["manager"]
            assert row["leads"] is (fault is None)

        _, page = await read(port, "/metrics")

    assert 'workqueue_adds_total{name="maps"} 1.0' in page, "of the second run"
    assert 'leader_election_master_status{name="lease"} 1.0' in page


async def test_port_in_use_ends_the_manager_at_its_start(server: APIServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        manager = managed(server, Notes())
        manager.serve(port, host="127.0.0.1")
        with pytest.raises(
            OSError, match=rf"cannot listen on 127.0.0.1, port {port}: .*in use"
        ):
            await manager.run()

    assert not manager.running


async def test_second_manager_on_the_same_port_fails(
    server: APIServer, port: int
) -> None:
    first, second = Manager(server.client()), Manager(server.client())
    for manager in (first, second):
        manager.serve(port)

    async with first:
        with pytest.raises(OSError, match=f"all addresses, port {port}"):
            await second.start()


async def test_free_port_is_logged(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    manager = Manager(server.client())
    manager.serve(0, host="127.0.0.1")
    with caplog.at_level("INFO", logger="aioinformer.controller.serving"):
        async with manager:
            (line,) = (it for it in caplog.messages if "serving health" in it)
            port = int(line.partition("port=")[2].rstrip(")"))
            assert (await read(port, "/livez"))[0] == 200


@pytest.mark.parametrize("port", [99999, -1, "8080", None, 1.5, True])
async def test_invalid_port_is_refused(server: APIServer, port: Any) -> None:
    match = "a port must be a number from 0 to 65535, not"
    with pytest.raises(OptionsError, match=match):
        Manager(server.client()).serve(port)
    with pytest.raises(OptionsError, match=match):
        await serve([], port=port)


async def test_manager_serves_once_and_before_its_start(
    server: APIServer, port: int
) -> None:
    manager = Manager(server.client())
    manager.serve(port, host="127.0.0.1")
    with pytest.raises(OptionsError, match=f"already serves port {port}"):
        manager.serve(port)

    late = Manager(server.client())
    async with late:
        with pytest.raises(OptionsError, match="before the manager starts"):
            late.serve(port)


# -------------------------------------------------------------------- checks


async def test_failed_check_makes_the_replica_unready_but_not_dead(
    server: APIServer, port: int
) -> None:
    trouble = ["cannot reach db-7"]

    async def database() -> str:
        return trouble[0]

    manager = managed(server, Notes())
    manager.serve(port, host="127.0.0.1", checks={"database": database})
    async with manager:
        await manager.wait_for_cache_sync(timeout=10)
        await asyncio.sleep(1)
        unready, text = await read(port, "/readyz")
        alone = await read(port, "/readyz/database")
        without = await read(port, "/readyz?exclude=database")
        verbose = await read(port, "/readyz?verbose")
        live = await read(port, "/livez")
        trouble[0] = ""
        ready = await read(port, "/readyz")

    assert (unready, alone[0], without[0], live[0], ready[0]) == (
        503,
        503,
        200,
        200,
        200,
    )
    assert json.loads(text)["checks"] == [
        {"name": "database", "ok": False, "trouble": "failed"}
    ]
    assert "db-7" not in text, "only with reasons=True"
    assert verbose == (
        503,
        "[-]database failed\n[+]configmaps ok\ncheck failed\n",
    )


# -------------------------------------------------------------------- metrics


async def test_metrics_page_explains_a_missing_library(
    server: APIServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    manager = Manager(server.client())
    manager.serve(port, host="127.0.0.1")
    async with manager:
        status, text = await read(port, "/metrics")

    assert status == 501
    assert "pip install 'aioinformer[metrics]'" in text


async def test_metrics_page_explains_a_sink_without_registry(
    server: APIServer, port: int
) -> None:
    manager = Manager(server.client(), metrics=NULL_SINK)
    manager.serve(port, host="127.0.0.1")
    async with manager:
        status, text = await read(port, "/metrics")

    assert status == 501
    assert "has no registry" in text


# -------------------------------------------------------------------- debug page


async def test_debug_page_shows_what_runs_and_what_fails(
    server: APIServer, port: int
) -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        if request.name == "a":
            await asyncio.sleep(1000)

        raise ValueError("bad value")

    server.create(CONFIG_MAPS, config_map("b"))
    manager = managed(server, Acts(act))
    recorder = EventRecorder(server.client(), "maps-operator", instance="maps-1")
    manager.add(recorder, leader_only=False)
    manager.serve(port, host="127.0.0.1", reasons=True)
    async with manager:
        await asyncio.sleep(10.5)
        shown = await tables(port)

    (running,) = shown["running reconciles"]
    assert running["key"] == "default/a"
    assert running["causes"] == ["initial ConfigMap default/a"]
    assert 10 <= running["seconds"] <= 11
    (failing,) = shown["failing requests"]
    assert failing["key"] == "default/b"
    assert failing["attempts"] > 5
    assert (failing["error"], failing["reason"]) == ("ValueError", "bad value")
    assert 0 < failing["retry_in"] < 20
    (maps,) = shown["controllers"]
    assert (maps["running"], maps["failing"], maps["delayed"]) == (1, 1, 1)
    (informer,) = shown["informers"]
    assert (informer["phase"], informer["objects"]) == ("watching", 2)
    assert shown["event recorders"] == [
        {"name": "maps-operator", "instance": "maps-1", "waiting": 0, "dropped": 0}
    ]
    assert shown["event loop"][0]["stalls"] >= 0


@pytest.mark.parametrize("reasons", [False, True])
async def test_debug_page_shows_neither_secrets_nor_markup(
    server: APIServer, port: int, reasons: bool
) -> None:
    server.create(SECRETS, named("key") | {"data": {"password": "aHVudGVyMg=="}})
    server.create(CONFIG_MAPS, config_map("b"))

    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        raise RuntimeError(
            "<script>alert(1)</script> https://bob:hunter2@db?key=hunter3 "
            "Authorization: Bearer hunter4 token=hunter5"
        )

    manager = managed(server, Acts(act))
    manager.informer(SECRETS)
    manager.serve(port, host="127.0.0.1", reasons=reasons)
    async with manager:
        await asyncio.sleep(5)
        _, page = await read(port, "/debug/")
        _, data = await read(port, "/debug/", Accept="application/json")

    for text in (page, data):
        assert "hunter" not in text
        assert "aHVudGVyMg" not in text
        assert "default/b" in text

    assert "<script" not in page
    assert ("&lt;script&gt;" in page) is reasons


@pytest.mark.parametrize("reasons", [False, True])
async def test_dashboard_shows_error_messages_only_with_reasons(
    server: APIServer, port: int, reasons: bool
) -> None:
    server.create(CONFIG_MAPS, config_map("b"))

    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        raise RuntimeError("no route to db.internal")

    manager = managed(server, Acts(act))
    manager.serve(port, host="127.0.0.1", reasons=reasons, dashboard=True)
    url = f"http://127.0.0.1:{port}/debug/api/controller?name=maps"
    async with manager:
        await asyncio.sleep(5)
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            page = (await answer.content.readuntil(b"\n\n")).decode()

    assert "RuntimeError" in page
    assert ("db.internal" in page) is reasons


async def test_manager_with_an_unreadable_failure_is_dead(
    server: APIServer, port: int
) -> None:
    class Unreadable(Exception):
        def __repr__(self) -> str:
            raise ValueError("no text")

    async def part() -> None:
        raise Unreadable

    slow = Slow()
    manager = managed(server, slow)
    manager.serve(port, host="127.0.0.1", reasons=True)
    await manager.start()
    await slow.begun.wait()
    manager.add(part, leader_only=False)
    await asyncio.sleep(1)
    answers = {path: await read(port, path) for path in ("/livez", "/readyz", "/debug")}
    assert [status for status, _ in answers.values()] == [503, 503, 200]
    assert "failed: Unreadable" in answers["/livez"][1]
    with pytest.raises(Unreadable):
        await manager.shutdown()


async def test_failed_manager_is_dead_and_its_secret_stays_hidden(
    server: APIServer, port: int
) -> None:
    async def part() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("login failed: password=hunter2")

    slow = Slow()
    manager = managed(server, slow)
    manager.add(part, leader_only=False)
    manager.serve(port, host="127.0.0.1", reasons=True)
    await manager.start()
    await asyncio.sleep(3)
    status, text = await read(port, "/livez")
    _, page = await read(port, "/debug")
    with pytest.raises(RuntimeError):
        await manager.shutdown()

    assert status == 503
    assert "login failed: password=..." in text
    assert "hunter2" not in text + page


async def test_informers_of_other_factories_count_for_readiness(
    server: APIServer, port: int
) -> None:
    elsewhere = SharedInformerFactory(server.client())
    manager = Manager(server.client())
    maps = elsewhere.informer(CONFIG_MAPS)
    manager.add(Controller("maps", Notes(), for_=maps))
    manager.serve(port, host="127.0.0.1")
    async with manager:
        before, _ = await read(port, "/readyz")
        async with elsewhere:
            await maps.wait_synced(timeout=10)
            after, _ = await read(port, "/readyz")
            shown = await tables(port)
            await manager.shutdown()

    assert (before, after) == (503, 200)
    assert [it["name"] for it in shown["informers"]] == ["configmaps"]


async def test_recorders_of_controllers_are_shown(server: APIServer, port: int) -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        ctx.event(ctx.lister.get(request.key) or {}, "Normal", "Checked", "all is well")
        return None

    server.faults.add(Refuse(resource="events", status=500, times=None))
    manager = managed(server, Acts(act))
    manager.serve(port, host="127.0.0.1")
    async with manager:
        await asyncio.sleep(3)
        (row,) = (await tables(port))["event recorders"]

    assert (row["name"], row["waiting"]) == ("maps", 1)


async def test_debug_page_can_be_left_out(server: APIServer, port: int) -> None:
    manager = Manager(server.client())
    manager.serve(port, host="127.0.0.1", debug=False)
    async with manager:
        assert (await read(port, "/debug/"))[0] == 404


async def test_dashboard_is_at_debug_and_the_tables_beside_it(
    server: APIServer, port: int
) -> None:
    manager = managed(server, Notes())
    manager.serve(port, host="127.0.0.1", dashboard={"title": "shop"})
    async with manager:
        await manager.wait_for_cache_sync(timeout=10)
        page = await read(port, "/debug")  # redirected
        shown = await read(port, "/debug/")
        tables_status, text = await read(port, "/debug/tables?format=json")
        ready, _ = await read(port, "/readyz")

    assert page == shown
    assert "static/app.js" in shown[1]
    assert (tables_status, ready) == (200, 200)
    assert json.loads(text)["controllers"]


async def test_dashboard_is_off_by_default(server: APIServer, port: int) -> None:
    manager = managed(server, Notes())
    manager.serve(port, host="127.0.0.1")
    async with manager:
        assert (await read(port, "/debug/api/overview"))[0] == 404


def test_options_of_the_dashboard_are_checked_at_once(server: APIServer) -> None:
    manager = managed(server, Notes())
    with pytest.raises(OptionsError, match="max_readers"):
        manager.serve(0, dashboard={"max_readers": 0})
