"""Metrics of informers and their handlers: bytes, version, queues, latencies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import Page, Stream, added, bookmark, deleted, modified, thing
from informer_helpers import Slow, pods_of, running, settle
from metrics_helpers import PlainSink
from prometheus_client import CollectorRegistry

from aioinformer import SharedInformerFactory
from aioinformer.budget import LoopBudget
from aioinformer.informer.store.store_metrics import StoreMetrics
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.compression import SAMPLES
from aioinformer.model.resources import CONFIG_MAPS, NAMESPACES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from aioinformer import SharedInformer
    from aioinformer.model.objects import KubeObject


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def stored_bytes(pods: SharedInformer) -> dict[str, float]:
    objects = pods.indexer.list()
    return {
        "held": sum(len(it.body) for it in objects),
        "json": sum(len(it.raw) for it in objects),
    }


def shown_bytes(
    registry: CollectorRegistry, name: str = "pods"
) -> dict[str, float | None]:
    return {
        kind: registry.get_sample_value(
            f"aioinformer_informer_{kind}_bytes", {"name": name}
        )
        for kind in ("held", "json")
    }


def wide(name: str, version: int, text: str = "x") -> KubeObject:
    return thing(name, version, spec={"nodeName": f"{name} {version} {text * 500}"})


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_bytes_follow_every_kind_of_change(
    registry: CollectorRegistry, compression: str | None
) -> None:
    stream, after = Stream(), Stream()
    listed = [wide(f"p{number}", 5) for number in range(SAMPLES + 5)]
    pods = pods_of(
        Page(listed, version=5),
        Page([wide("p1", 12), wide("z", 11)], version=12),
        watches=(stream, after),
        metrics=PrometheusSink(registry),
        compression=compression,
    )
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await settle()
        assert shown_bytes(registry) == stored_bytes(pods)
        if compression:
            held, json = stored_bytes(pods).values()
            assert held < json / 2

        stream.send(added(wide("new", 6)))
        stream.send(modified(wide("p0", 7, "yz")), modified(wide("p0", 8, "k")))
        # The event of a deletion has another state than the store.
        stream.send(deleted(wide("p1", 9, "last")))
        # Another object has the name now, and its deletion was missed.
        stream.send(added(thing("p2", 10, uid="other")))
        await asyncio.sleep(1)
        assert pods.indexer.get_by_key("default/new") is not None
        assert shown_bytes(registry) == stored_bytes(pods)


async def test_bytes_are_never_negative_within_a_step() -> None:
    seen: list[int] = []

    def note(_: KubeObject) -> list[str]:
        (pipeline,) = pods._sources.pipelines_in_memory
        if pipeline.bytes is not None:
            seen.append(pipeline.bytes.held)
            seen.append(pipeline.bytes.json)

        return []

    stream = Stream()
    page = Page([thing("keep", 5)], version=5)
    pods = pods_of(page, watches=(stream,), metrics=PlainSink())
    pods.add_indexers({"note": note})
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await settle()
        large = wide("a", 6, "x" * 10)
        stream.send(added(large), deleted(large), added(thing("b", 7)))
        await asyncio.sleep(1)

    assert len(seen) > 4
    assert min(seen) >= 0


@pytest.mark.parametrize("namespaces", [1, 2])
async def test_sink_of_a_running_informer_gets_the_bytes(
    registry: CollectorRegistry, namespaces: int
) -> None:
    async with APIServer(auto_namespaces=True) as server:
        for namespace in ("a", "b"):
            server.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace=namespace)

        async with SharedInformerFactory(server.client()) as factory:
            maps = factory.informer(CONFIG_MAPS, namespace=["a", "b"][:namespaces])
            await maps.wait_synced(timeout=30)
            await asyncio.sleep(1)

            factory.set_metrics(PrometheusSink(registry))
            for _ in range(2):  # a registry shows new metrics from the next read on
                assert shown_bytes(registry, maps.name) == {"held": None, "json": None}

            await settle()
            shown_bytes(registry, maps.name)
            assert shown_bytes(registry, maps.name) == stored_bytes(maps)
            assert len(maps.indexer) == namespaces

            server.create(CONFIG_MAPS, {"metadata": {"name": "y"}}, namespace="a")
            server.delete(CONFIG_MAPS, "x", namespace="a")
            await asyncio.sleep(1)
            assert shown_bytes(registry, maps.name) == stored_bytes(maps)


async def test_sink_that_is_set_before_the_first_list_gets_the_bytes(
    registry: CollectorRegistry,
) -> None:
    pods = pods_of(Page([wide("a", 5)], version=5, head=10.0))
    async with running(pods.run()):
        await asyncio.sleep(5)
        pods.set_metrics(PrometheusSink(registry))
        await pods.wait_synced(timeout=30)
        await settle()
        assert shown_bytes(registry) == stored_bytes(pods)


async def test_bytes_of_several_namespaces_are_added(
    registry: CollectorRegistry,
) -> None:
    async with APIServer() as server:
        for namespace in ("a", "b", "c"):
            server.create(NAMESPACES, {"metadata": {"name": namespace}})
            server.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace=namespace)

        async with SharedInformerFactory(
            server.client(), metrics=PrometheusSink(registry)
        ) as factory:
            maps = factory.informer(CONFIG_MAPS, namespace=["a", "b"])
            await maps.wait_synced(timeout=30)
            await settle()
            shown = registry.get_sample_value(
                "aioinformer_informer_json_bytes", {"name": maps.name}
            )

    assert len(maps.indexer) == 2
    assert shown == stored_bytes(maps)["json"]


async def test_version_of_the_store_has_its_last_15_digits(
    registry: CollectorRegistry,
) -> None:
    def version() -> float | None:
        name = "informer_store_resource_version"
        return registry.get_sample_value(name, {"name": "pods"})

    stream = Stream()
    first = 7_123_456_789_012_345_678
    pods = pods_of(
        Page([thing("a", first)], version=first),
        watches=(stream,),
        metrics=PrometheusSink(registry),
    )
    assert version() == 0
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        assert version() == 456_789_012_345_678
        stream.send(modified(thing("a", first + 5)))
        await asyncio.sleep(1)
        assert version() == 456_789_012_345_683


async def test_latencies_reach_from_the_arrival_to_the_store_and_the_handler() -> None:
    sink, stream = PlainSink(), Stream()
    pods = pods_of(Page([], version=5), watches=(stream,), metrics=sink)
    pods.add_event_handler(on_event=Slow(3.0), name="slow")
    pods.add_event_handler(on_event=Slow(1.0), name="merging", coalesce=True)
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        stream.send(added(thing("a", 6)), added(thing("b", 7)))
        await asyncio.sleep(30)
        stream.send(bookmark(8))
        await asyncio.sleep(30)

    stored = sink.observed["aioinformer_informer_latency_seconds"]
    assert stored == [pytest.approx(0, abs=0.1)]  # not for the bookmark
    assert sink.labels["aioinformer_informer_latency_seconds"] == {("name", "pods")}
    handled = sink.observed["aioinformer_handler_latency_seconds"]
    assert handled == [pytest.approx(2, abs=0.1), pytest.approx(6, abs=0.1)]
    assert sink.labels["aioinformer_handler_latency_seconds"] == {
        ("handler", "pods/slow"),
        ("handler", "pods/merging"),
    }


async def test_latency_of_a_batch_ends_with_its_last_entry() -> None:
    sink = PlainSink()
    metrics = StoreMetrics(sink)
    measured = sink.observed["aioinformer_informer_latency_seconds"]
    now = asyncio.get_running_loop().time
    metrics.arrived(now(), 2)
    await asyncio.sleep(1)
    metrics.arrived(now(), 3)
    metrics.applied(1)
    assert measured == []
    assert metrics.oldest == pytest.approx(now() - 1)

    await asyncio.sleep(1)
    metrics.applied(1)
    assert measured == [pytest.approx(2)]
    metrics.applied(1)
    assert measured == [pytest.approx(2), pytest.approx(1)]
    assert metrics.oldest is None


async def test_queued_notifications_of_handlers_with_one_name_are_added(
    registry: CollectorRegistry,
) -> None:
    def queued() -> float | None:
        name = "aioinformer_handler_queued_items"
        return registry.get_sample_value(name, {"handler": "pods/same"})

    pods = pods_of(metrics=PrometheusSink(registry))
    first, second = (
        pods.add_event_handler(on_event=Slow(10.0), name="same") for _ in range(2)
    )
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await asyncio.sleep(1)
        queued()  # a registry shows new metrics from the next read on
        assert queued() == 4
        await asyncio.sleep(10)
        assert queued() == 2
        await first.aclose()
        await settle()
        await asyncio.sleep(1)
        assert queued() == 0
        await second.aclose()
        await settle()
        assert queued() is None


# ---------------------------------------------------------------- applying


async def test_processing_is_measured_without_bookmarks() -> None:
    class Noting(PlainSink):
        def observe(self, name: str, value: float, /, **labels: str) -> None:
            super().observe(name, value, **labels)
            if name == "informer_processing_latency_seconds":
                measured.append(value)

    measured: list[float] = []
    stream = Stream()
    sink = Noting()
    pods = pods_of(Page([thing("a", 5)], version=5), watches=(stream,), metrics=sink)
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        for version in range(6, 9):
            stream.send(bookmark(version))
            await asyncio.sleep(1)

        assert len(measured) == 1
        stream.send(modified(thing("a", 10)))
        await asyncio.sleep(1)

    assert len(measured) == 2


# ---------------------------------------------------------------- end of an informer


async def test_stopped_informer_has_no_gauges(registry: CollectorRegistry) -> None:
    def gauges() -> set[str]:
        return {
            sample.name
            for family in registry.collect()
            for sample in family.samples
            if family.type == "gauge" and sample.name.startswith("aioinformer")
        }

    pods = pods_of(metrics=PrometheusSink(registry))
    pods.add_event_handler(on_event=Slow(1e6), name="stuck")
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        gauges()  # a registry shows new metrics from the next read on
        assert gauges() >= {
            "aioinformer_informer_age_seconds",
            "aioinformer_handler_queued_items",
            "aioinformer_loop_slices",
        }

    await asyncio.sleep(1000)
    assert gauges() == set()
    listed = registry.get_sample_value("reflector_lists_total", {"name": "pods"})
    assert listed == 1


async def test_abandoned_informer_has_no_gauges(registry: CollectorRegistry) -> None:
    pods = pods_of(metrics=PrometheusSink(registry))
    name = "aioinformer_informer_synced"
    assert registry.get_sample_value(name, {"name": "pods"}) == 0
    pods.abandon()
    assert registry.get_sample_value(name, {"name": "pods"}) is None


async def test_informer_that_died_becomes_stale(registry: CollectorRegistry) -> None:
    def age() -> float | None:
        name = "aioinformer_informer_age_seconds"
        return registry.get_sample_value(name, {"name": "pods"})

    pods = pods_of(metrics=PrometheusSink(registry))
    pods.set_death_handler(lambda _: None, why_ending=lambda: ValueError("a bug"))
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)

    await asyncio.sleep(1000)
    assert age() == pytest.approx(1000, abs=1)
    pods.forget_metrics()
    assert age() is None


async def test_informer_that_has_not_run_leaves_the_gauges_of_the_loop(
    registry: CollectorRegistry,
) -> None:
    sink = PrometheusSink(registry)
    running_one, idle = pods_of(metrics=sink), pods_of(metrics=sink)
    async with running(running_one.run()):
        await running_one.wait_synced(timeout=30)
        name = "aioinformer_loop_longest_slice_seconds"
        registry.get_sample_value(name)
        LoopBudget.current()._longest = 7.0
        assert registry.get_sample_value(name) == 7
        assert not idle.has_synced
