"""Series of metrics are removed with their informers, handlers and controllers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from fake_source import Page, Stream, modified, thing
from informer_helpers import Recorder, Slow, keep_busy, pods_of, running, settle
from metrics_helpers import PlainSink
from prometheus_client import CollectorRegistry, generate_latest

from aioinformer import Controller, ReconcileRequest, SharedInformerFactory
from aioinformer.metrics import ForgettingSink, ScopedSink
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from aioinformer import Context
    from aioinformer.informer.notifications import Notification


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def series(registry: CollectorRegistry, text: str = "") -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#") and text in line]


def fails(_: object) -> None:
    raise ValueError


class FailingForget(PlainSink):
    """A sink whose `forget` raises."""

    def forget(self, name: str, /, **labels: str) -> None:
        raise ValueError("never")


class SlowSink(PlainSink):
    """A sink whose `gauge` waits before it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.steps: list[str] = []

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.entered.set()
        assert self.leave.wait(10)
        self.steps.append(f"set {name}")

    def forget(self, name: str, /, **labels: str) -> None:
        self.steps.append(f"forget {name}")


@pytest.mark.realtime
def test_series_that_is_set_in_a_thread_during_the_end_is_forgotten() -> None:
    sink = SlowSink()
    scope = ScopedSink(sink, "pods")
    reader = threading.Thread(target=scope.gauge, args=("synced", 1.0))
    reader.start()
    assert sink.entered.wait(10)
    threading.Timer(0.05, sink.leave.set).start()

    scope.end()
    reader.join(10)

    assert sink.steps == ["set synced", "forget synced"]


# ---------------------------------------------------------------- informers


async def test_factory_forgets_the_series_of_temporary_informers(
    registry: CollectorRegistry,
) -> None:
    async with APIServer() as server:
        server.create(PODS, {"metadata": {"name": "web"}, "spec": {"containers": []}})
        factory = SharedInformerFactory(
            server.client(), metrics=PrometheusSink(registry), transform=fails
        )
        factory.informer("v1", "configmaps")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await asyncio.sleep(1)
            series(registry)  # a registry shows new metrics from the next read on
            lasting = len(series(registry))
            for number in range(20):
                selector = f"app!=a{number}"
                async with factory.use("v1", "pods", label_selector=selector) as pods:
                    pods.add_event_handler(on_event=fails)
                    await pods.wait_synced(timeout=30)
                    await settle()
                    assert series(registry, 'at="handler"')
                    assert len(series(registry)) > lasting + 20

            assert len(series(registry)) == lasting
            assert series(registry, 'name="configmaps"')

    assert series(registry) == []


async def test_factory_keeps_the_series_of_the_next_informer_of_the_name(
    registry: CollectorRegistry,
) -> None:
    async with APIServer() as server:
        server.create(PODS, {"metadata": {"name": "web"}, "spec": {"containers": []}})
        async with SharedInformerFactory(
            server.client(), metrics=PrometheusSink(registry)
        ) as factory:

            async def use_and_drain() -> None:
                async with factory.use("v1", "pods") as pods:
                    pods.add_event_handler(on_event=Slow(3.0))
                    await pods.wait_synced(timeout=30)

            draining = asyncio.create_task(use_and_drain())
            await asyncio.sleep(1)
            async with factory.use("v1", "pods") as pods:
                await pods.wait_synced(timeout=30)
                await draining
                assert series(registry, 'reflector_lists_total{name="pods"}')

            assert series(registry, "reflector") == []


@pytest.mark.parametrize("sink", [PlainSink(), FailingForget()], ids=["not", "fails"])
async def test_informer_ends_cleanly_if_its_sink_cannot_forget(
    sink: PlainSink, caplog: pytest.LogCaptureFixture
) -> None:
    pods = pods_of(metrics=sink)
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)

    pods.forget_metrics()
    pods.forget_metrics()
    assert sink.counts["reflector_lists_total", ("pods",)] == 1
    assert ("pods: the metrics sink failed" in caplog.messages) == isinstance(
        sink, ForgettingSink
    )


async def test_informer_measures_the_time_to_apply_each_batch() -> None:
    sink = PlainSink()
    stream = Stream()
    pods = pods_of(
        Page([thing("a"), thing("b")], version=5), watches=(stream,), metrics=sink
    )
    latency = sink.observed["informer_processing_latency_seconds"]
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        assert len(latency) == 1
        for version in (6, 7):
            stream.send(modified(thing("a", version)), modified(thing("b", version)))
            await asyncio.sleep(1)

    assert len(latency) == 3
    assert all(0 < seconds < 5 for seconds in latency)
    assert sink.labels["informer_processing_latency_seconds"] == {("name", "pods")}


async def test_gauges_show_sync_age_and_objects_when_read(
    registry: CollectorRegistry,
) -> None:
    def gauges() -> dict[str, float]:
        lines = (line.split() for line in series(registry, "aioinformer_informer_"))
        return {
            name.split("{")[0].removeprefix("aioinformer_informer_"): float(value)
            for name, value in lines
        }

    page = Page([thing("a"), thing("b")], version=5)
    pods = pods_of(page, watches=(Stream(),), metrics=PrometheusSink(registry))
    assert gauges() == {
        "synced": 0,
        "objects": 0,
        "age_seconds": float("inf"),
        "held_bytes": 0,
        "json_bytes": 0,
    }

    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        await asyncio.sleep(20)
        found = gauges()

    assert (found["synced"], found["objects"]) == (1, 2)
    assert found["age_seconds"] == pytest.approx(20, abs=1)


# ---------------------------------------------------------------- handlers


async def test_removed_handler_forgets_its_series(
    registry: CollectorRegistry,
) -> None:
    def blocks(_: Notification) -> None:
        keep_busy(0.06)

    pods = pods_of(metrics=PrometheusSink(registry))
    alone = pods.add_event_handler(on_event=blocks, name="alone")
    shared = [pods.add_event_handler(on_event=blocks, name="same") for _ in range(2)]
    other = pods.add_event_handler(on_event=Recorder(), name="other")
    async with running(pods.run()):
        for registration in (alone, *shared, other):
            await registration.wait_synced(timeout=30)

        assert len(series(registry, "blocking_calls")) == 2
        await alone.aclose()
        await shared[0].aclose()
        await settle()
        (left,) = series(registry, "blocking_calls")
        assert "pods/same" in left
        await shared[1].aclose()
        await settle()
        assert series(registry, "blocking_calls") == []


# ---------------------------------------------------------------- controllers


async def test_ended_controller_forgets_its_series(
    registry: CollectorRegistry,
) -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        raise ValueError

    sink = PrometheusSink(registry)
    pods = pods_of()
    controller = Controller("web", reconcile, for_=pods, metrics=sink)
    async with running(pods.run()):
        with contextlib.suppress(asyncio.CancelledError):
            async with running(controller.run()):
                await asyncio.sleep(1)
                assert series(registry, 'controller="web"')
                assert series(registry, 'workqueue_adds_total{name="web"}')

    assert series(registry) == []
