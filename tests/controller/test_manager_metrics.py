"""One metrics sink for all parts of a manager."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from controller_helpers import Notes, config_map
from leader_helpers import MemoryLease, MemoryLock, elector
from prometheus_client import REGISTRY, CollectorRegistry

from aioinformer import Controller, KubeObject, Manager, SharedInformerFactory
from aioinformer.controller import ReconcileRequest
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.webhooks import WebhookServer, validating
from aioinformer.workqueue import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Recorded:
    """A plain sink that records the names of its measurements, with their owners."""

    enabled = True

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()

    def _add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        owner = labels.get("controller") or labels.get("name") or labels.get("host", "")
        self.seen[name, owner] += 1

    count = gauge = observe = _add

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.seen}

    def of(self, name: str) -> dict[str, int]:
        return {owner: n for (it, owner), n in self.seen.items() if it == name}


PARTS = {
    "rest_client_requests_total",  # client
    "reflector_lists_total",  # factory
    "leader_election_master_status",  # elector
    "controller_runtime_reconcile_total",  # controller
    "workqueue_depth",  # queue
}


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, config_map("a"))
        yield server


async def run_for_a_while(manager: Manager) -> None:
    async with manager:
        await asyncio.sleep(5)


def an_elector(**options: Any) -> Any:
    return elector(MemoryLock(MemoryLease(), "a"), **options)


async def test_sink_of_a_manager_measures_all_parts(server: APIServer) -> None:
    sink = Recorded()
    manager = Manager(server.client(), elector=an_elector(), metrics=sink)
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", Notes(), for_=maps))
    await run_for_a_while(manager)

    assert sink.names >= PARTS


async def test_serve_measures_parts_that_were_made_before(server: APIServer) -> None:
    manager = Manager(server.client(), elector=an_elector())
    handled: list[str] = []
    maps = manager.informer(CONFIG_MAPS)
    maps.add_event_handler(on_add=lambda obj: handled.append(obj.name), name="early")
    controller = Controller("early-maps", Notes(), for_=maps)
    controller.queue.add(ReconcileRequest.of("default/a"))
    manager.add(controller)
    manager.serve(0, host="127.0.0.1")
    async with manager:
        await asyncio.sleep(5)
        found = {
            (sample.name, *sample.labels.values())
            for family in REGISTRY.collect()
            for sample in family.samples
            if "early-maps" in sample.labels.values()
        }
        age = REGISTRY.get_sample_value(
            "aioinformer_informer_age_seconds", {"name": maps.name}
        )

    names = {name for name, *_ in found}
    assert {"controller_runtime_reconcile_total", "workqueue_adds_total"} <= names
    assert age is not None, "the gauges of an informer that was made before"


async def test_running_client_is_measured(server: APIServer) -> None:
    sink = Recorded()
    async with server.client() as client:
        manager = Manager(client, metrics=sink)
        manager.informer(CONFIG_MAPS)
        await run_for_a_while(manager)

    assert "rest_client_requests_total" in sink.names


async def test_sink_of_a_part_wins(server: APIServer) -> None:
    sink, own = Recorded(), Recorded()
    client = server.client()
    manager = Manager(
        client,
        factory=SharedInformerFactory(client, metrics=own),
        elector=an_elector(metrics=own),
        metrics=sink,
    )
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", Notes(), for_=maps, metrics=own))
    await run_for_a_while(manager)

    assert own.names >= PARTS - {"rest_client_requests_total"}
    assert sink.names & PARTS == {"rest_client_requests_total"}


async def test_sink_that_is_passed_twice_counts_once(server: APIServer) -> None:
    once, twice = Recorded(), Recorded()
    own: Any
    for sink, own in ((once, {}), (twice, {"metrics": twice})):
        client = server.client()
        factory = SharedInformerFactory(client, **own)
        manager = Manager(
            client, factory=factory, elector=an_elector(**own), metrics=sink
        )
        maps = manager.informer(CONFIG_MAPS)
        manager.add(Controller("maps", Notes(), for_=maps, **own))
        await run_for_a_while(manager)

    for name in (
        "reflector_lists_total",
        "controller_runtime_reconcile_total",
        "workqueue_adds_total",
        "rest_client_requests_total",
    ):
        assert sum(once.of(name).values()) == sum(twice.of(name).values()) > 0, name


async def test_series_end_with_the_manager(server: APIServer) -> None:
    registry = CollectorRegistry()
    manager = Manager(server.client(), metrics=PrometheusSink(registry))
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", Notes(), for_=maps))
    await run_for_a_while(manager)

    left = {it.name for family in registry.collect() for it in family.samples}
    assert {it for it in left if not it.startswith("rest_client")} == set()


async def test_webhook_server_gets_the_sink_of_its_manager(server: APIServer) -> None:
    @validating(CONFIG_MAPS)
    def check(obj: KubeObject) -> None:
        return None

    sink = Recorded()
    webhooks = WebhookServer([check], port=0, host="127.0.0.1")
    manager = Manager(server.client(), metrics=sink)
    manager.add(webhooks, leader_only=False)
    async with manager, aiohttp.ClientSession() as http:
        await asyncio.sleep(1)
        url = f"http://127.0.0.1:{webhooks.port}{check.path}"
        async with http.post(url, data=b"{}") as answer:
            await answer.read()

    assert "aioinformer_webhook_requests_total" in sink.names


async def test_queue_measures_items_that_it_had_before() -> None:
    queue: PriorityQueue[str] = PriorityQueue("q")
    queue.add("waiting")
    queue.add("in work", 5)
    queue.add("again", 4)
    assert [await queue.get(), await queue.get()] == ["in work", "again"]
    queue.add("again")
    registry = CollectorRegistry()
    queue.set_metrics(PrometheusSink(registry))
    queue.set_metrics(PrometheusSink(CollectorRegistry()))  # no effect
    await asyncio.sleep(2)
    for item in ("in work", "again"):
        queue.done(item)

    assert {await queue.get(), await queue.get()} == {"waiting", "again"}

    def value(name: str) -> float | None:
        return registry.get_sample_value(name, {"name": "q"})

    assert value("workqueue_queue_duration_seconds_count") == 2
    assert value("workqueue_queue_duration_seconds_sum") == 4.0, "2 s for each of two"
    assert value("workqueue_work_duration_seconds_sum") == 4.0
    assert value("workqueue_adds_total") == 4
