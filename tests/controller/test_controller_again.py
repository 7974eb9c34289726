"""`Controller`: runs again after it has ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, Notes, Slow, informed, informer_of, named
from informer_helpers import running, settle
from metrics_helpers import PlainSink
from prometheus_client import CollectorRegistry

from aioinformer import Controller, ReconcileRequest, Result
from aioinformer.errors import OptionsError, QueueShutDown
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.testing import FakeListerWatcher
from aioinformer.workqueue import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.controller import Context


async def test_controller_reconciles_all_objects_in_each_run() -> None:
    source = FakeListerWatcher(named("a"))
    pods, notes = informer_of(source), Notes()
    controller = Controller("pods", notes, for_=pods)
    queue = controller.queue
    async with informed(pods):
        async with running(controller.run()):
            await settle()
            assert controller.has_synced

        source.add(named("b"))  # while it does not run
        await settle()
        assert notes.names == ["a"]
        for _ in range(3):
            notes.names.clear()
            async with running(controller.run()):
                await settle()
                source.modify(named("a", labels={"a": "b"}))
                await settle()
                queue.add(ReconcileRequest("default", "by hand"))
                await settle()

            assert notes.names == ["a", "b", "a", "by hand"]

    assert controller.queue is queue


async def test_timers_daemons_and_sources_start_again_in_each_run() -> None:
    begun: list[str] = []

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        begun.append(f"daemon {request.name}")
        await asyncio.Event().wait()

    async def events() -> AsyncIterator[str]:
        begun.append("source")
        yield "default/c"
        await asyncio.Event().wait()

    source = FakeListerWatcher(named("a"), named("b"))
    pods, notes = informer_of(source), Notes()
    parts: Any = {"every": 60, "daemons": [watch], "sources": {"events": events}}
    controller = Controller("pods", notes, for_=pods, **parts)
    async with informed(pods):
        for number in range(3):
            begun.clear()
            notes.contexts.clear()
            async with running(controller.run()):
                await asyncio.sleep(119)

            assert Counter(begun) == {"source": 1, "daemon a": 1} | (
                {} if number else {"daemon b": 1}
            )
            changes = Counter(it.change for ctx in notes.contexts for it in ctx.causes)
            assert changes["source"] == 1
            assert changes["timer"] in ({1, 2} if number else {2, 3, 4})
            if not number:
                source.delete(named("b"))  # while it does not run

            await asyncio.sleep(1000)


async def test_controller_cannot_run_twice_at_once() -> None:
    pods = informer_of(FakeListerWatcher(named("a")))
    controller = Controller("pods", Notes(), for_=pods)
    async with informed(pods), running(controller.run()):
        await settle()
        with pytest.raises(OptionsError, match="controller pods is already running"):
            await controller.run()


async def test_controller_starts_again_after_shutdown() -> None:
    pods, notes = informer_of(FakeListerWatcher(named("a"))), Notes()
    controller = Controller("pods", notes, for_=pods)
    async with informed(pods):
        for _ in range(2):
            async with controller:
                await settle()

    assert notes.names == ["a", "a"]


async def test_another_run_forgets_requests_delays_and_failures() -> None:
    calls = Counter[str]()
    seen: list[tuple[str, int]] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
        seen.append((request.name, ctx.attempt))
        calls[request.name] += 1
        if request.name == "later" and calls["later"] == 1:
            return Result(requeue_after=50)

        if request.name == "fails" and calls["fails"] == 1:
            raise ValueError("boom")

        if request.name == "stuck" and calls["stuck"] == 1:
            await asyncio.Event().wait()

        return None

    source = FakeListerWatcher(named("later"), named("fails"), named("stuck"))
    pods = informer_of(source)
    controller = Controller(
        "pods", reconcile, for_=pods, concurrency=1, drain_timeout=0
    )
    async with informed(pods):
        async with running(controller.run()):
            await settle()
            # Queued behind the request that blocks the only worker.
            controller.queue.add(ReconcileRequest("default", "queued"))
            await asyncio.sleep(1)

        assert [name for name, _ in seen] == ["fails", "later", "stuck"]
        controller.queue.add(ReconcileRequest("default", "between"))
        assert len(controller.queue) == 2, "a controller that has ended takes none"
        seen.clear()
        async with running(controller.run()):
            await asyncio.sleep(100)

    assert seen == [("fails", 1), ("later", 1), ("stuck", 1)]


async def test_stop_of_another_run_drains_again() -> None:
    slow, pods = Slow(5.0), informer_of(FakeListerWatcher(named("a")))
    controller = Controller("pods", slow, for_=pods, drain_timeout=30)
    async with informed(pods):
        async with running(controller.run()):
            await slow.begun.wait()
            controller.hurry()

        slow.begun.clear()
        async with running(controller.run()):
            await slow.begun.wait()

    assert slow.record == ["cancelled", "done"]


async def test_controller_runs_again_with_its_own_queue_after_it_was_shut_down() -> (
    None
):
    pods, notes = informer_of(FakeListerWatcher(named("a"))), Notes()
    queue = PriorityQueue[ReconcileRequest]("own")
    controller = Controller("pods", notes, for_=pods, queue=queue)
    async with informed(pods):
        async with asyncio.timeout(10):
            task = asyncio.create_task(controller.run())
            await settle()
            queue.shut_down()
            with pytest.raises(QueueShutDown):
                await task

        async with running(controller.run()):
            await settle()

    assert notes.names == ["a", "a"]


async def test_metrics_of_another_run_begin_at_zero() -> None:
    registry = CollectorRegistry()
    pods = informer_of(FakeListerWatcher(named("a"), named("b")))
    controller = Controller(
        "pods", Notes(), for_=pods, metrics=PrometheusSink(registry)
    )

    def value(metric: str, **labels: str) -> float | None:
        return registry.get_sample_value(metric, labels)

    def values() -> list[float | None]:
        total = "controller_runtime_reconcile_total"
        return [
            value(total, controller="pods", result="success"),
            value("workqueue_adds_total", name="pods"),
            value("workqueue_work_duration_seconds_count", name="pods"),
            value("workqueue_depth", name="pods", priority="0"),
        ]

    async with informed(pods):
        for _ in range(2):
            async with running(controller.run()):
                await settle()
                assert values() == [2, 2, 2, 0]

            assert values() == [None] * 4


async def test_sink_that_forgets_nothing_counts_all_runs() -> None:
    sink = PlainSink()
    pods = informer_of(FakeListerWatcher(named("a")))

    async def act(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)

    controller = Controller("pods", Acts(act), for_=pods, metrics=sink)
    async with informed(pods):
        for _ in range(3):
            async with running(controller.run()):
                await asyncio.sleep(5)

    assert sink.counts["workqueue_adds_total", ("pods",)] == 3
    assert sink.counts["controller_runtime_reconcile_total", ("pods", "success")] == 3
    assert sink.gauges["workqueue_unfinished_work_seconds", ("pods",)] == 0
