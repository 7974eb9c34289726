"""`Controller`: sources, start, stop and failures."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import (
    Acts,
    Notes,
    controlled,
    informed,
    informer_of,
    named,
    owned,
)
from informer_helpers import running, settle

from aioinformer import (
    Controller,
    Forbidden,
    InformerStopped,
    KubeObject,
    NotSynced,
    QueueShutDown,
    ReconcileRequest,
    Result,
    SharedInformerFactory,
)
from aioinformer.controller import Context, generation_changed, matches_labels
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from controller_helpers import Reconcile


# ---------------------------------------------------------------- what leads to what


async def test_controller_reconciles_initial_and_changed_objects() -> None:
    notes = Notes()
    async with controlled(notes, FakeListerWatcher(named("a"))) as (source, _):
        source.add(named("b"))
        await settle()
        source.modify(named("b", labels={"x": "y"}))
        await settle()
        source.delete(named("a"))
        await settle()

    assert notes.names == ["a", "b", "b", "a"]
    assert [ctx.causes[0].change for ctx in notes.contexts] == [
        "initial",
        "added",
        "updated",
        "deleted",
    ]


async def test_repeated_changes_of_queued_object_reconcile_once() -> None:
    async def slowly(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)

    notes = Acts(slowly)
    async with controlled(notes, FakeListerWatcher(named("a"))) as (source, _):
        for number in range(100):
            source.modify(named("a", labels={"n": str(number)}))
            await settle()

        await asyncio.sleep(5)

    assert notes.names == ["a", "a"]


async def test_change_of_owned_object_reconciles_owner() -> None:
    pods, maps = FakeListerWatcher(), FakeListerWatcher(resource=CONFIG_MAPS)
    notes = Notes()
    informers = informer_of(pods), informer_of(maps, "configmaps")
    controller = Controller("owners", notes, for_=informers[0], owns=[informers[1]])
    async with informed(*informers), running(controller.run()):
        maps.add(owned("cfg", "web", controller=True))
        maps.add(owned("other", "db"))
        await settle()

    assert notes.names == ["web"]
    (cause,) = notes.contexts[0].causes
    assert (cause.change, cause.kind, cause.key) == (
        "added",
        "ConfigMap",
        "default/cfg",
    )


async def test_change_of_watched_object_reconciles_mapped_requests() -> None:
    def all_pods(config: KubeObject) -> list[str]:
        return [pod.key for pod in pods.lister.list()]

    pods = informer_of(FakeListerWatcher(named("a"), named("b")))
    source = FakeListerWatcher(resource=CONFIG_MAPS)
    maps = informer_of(source, "configmaps")
    notes = Notes()
    controller = Controller(
        "all", notes, for_=pods, watches=[(maps, all_pods, generation_changed)]
    )
    async with informed(pods, maps), running(controller.run()):
        await settle()
        notes.names.clear()
        source.add(named("cfg", generation=1))
        await settle()
        source.modify(named("cfg", generation=1, labels={"a": "b"}))
        await settle()

    assert notes.names == ["a", "b"]


async def test_predicates_filter_changes_of_owned_objects() -> None:
    source = FakeListerWatcher(resource=CONFIG_MAPS)
    pods, maps = informer_of(FakeListerWatcher()), informer_of(source, "configmaps")
    filters = matches_labels("tier=web"), ~matches_labels("skip=yes")
    notes = Notes()
    controller = Controller("owners", notes, for_=pods, owns=[(maps, *filters)])
    async with informed(pods, maps), running(controller.run()):
        for name, labels in {
            "a": {"tier": "web"},
            "b": {"tier": "db"},
            "c": {"tier": "web", "skip": "yes"},
        }.items():
            child = owned(name, name, controller=True)
            child["metadata"]["labels"] = labels
            source.add(child)

        await settle()

    assert notes.names == ["a"]


async def test_predicates_filter_changes_of_for_objects() -> None:
    source = FakeListerWatcher(named("a", generation=1))
    notes = Notes()
    async with controlled(notes, source, predicates=[generation_changed]):
        source.modify(named("a", generation=1, labels={"a": "b"}))
        await settle()
        source.modify(named("a", generation=2))
        await settle()

    assert notes.names == ["a", "a"]


async def test_initial_objects_have_lower_priority_than_changes() -> None:
    async def slowly(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)

    source = FakeListerWatcher(*(named(f"old-{n}") for n in range(10)))
    notes = Acts(slowly)
    async with controlled(notes, source, concurrency=1):
        source.add(named("new"))
        await asyncio.sleep(5)

    assert notes.names[:3] == ["old-0", "new", "old-1"]


async def test_request_added_to_queue_is_reconciled() -> None:
    notes = Notes()
    async with controlled(notes) as (_, controller):
        controller.queue.add(ReconcileRequest("shop", "web"))
        await settle()

    assert notes.names == ["web"]
    assert notes.contexts[0].causes == ()


# ---------------------------------------------------------------- beginning


async def test_reconciles_begin_after_handlers_have_synced() -> None:
    source = FakeListerWatcher(named("a"))
    pods = informer_of(source)
    notes = Notes()
    controller = Controller("pods", notes, for_=pods)
    async with controller:
        await asyncio.sleep(1)
        synced = [controller.has_synced]
        async with running(pods.run()):
            await settle()
            synced.append(controller.has_synced)
            await controller.shutdown()

    assert synced == [False, True]
    assert notes.names == ["a"]


async def test_controller_fails_after_cache_sync_timeout() -> None:
    source = FakeListerWatcher()
    source.refuse(Forbidden("no", status=403), times=100)
    pods = informer_of(source)
    controller = Controller("pods", Notes(), for_=pods)
    async with running(pods.run()):
        with pytest.raises(NotSynced, match=r"informer pods .* 120 s: .*403") as caught:
            await controller.run()

        assert asyncio.get_running_loop().time() == pytest.approx(120)
        assert list(caught.value.results) == ["pods"]


async def test_controller_whose_informer_nobody_runs_says_so() -> None:
    pods = informer_of(FakeListerWatcher())
    controller = Controller("pods", Notes(), for_=pods)
    with pytest.raises(
        NotSynced, match=r"idle, not started yet\. Nobody runs it: take"
    ):
        await controller.run()


async def test_controller_without_cache_sync_timeout_waits_for_its_informers() -> None:
    source = FakeListerWatcher(named("a"))
    source.refuse(Forbidden("no", status=403), times=20)
    pods, notes = informer_of(source), Notes()
    controller = Controller("pods", notes, for_=pods, cache_sync_timeout=None)
    async with running(pods.run()), running(controller.run()):
        await asyncio.sleep(2000)

    assert notes.names == ["a"]


async def test_controller_logs_informers_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    source = FakeListerWatcher()
    source.refuse(Forbidden("no", status=403), times=100)
    pods = informer_of(source)
    controller = Controller("pods", Notes(), for_=pods)
    async with running(pods.run()), running(controller.run()):
        await asyncio.sleep(100)

    ours = [it for it in caplog.records if it.name.startswith("aioinformer.controller")]
    assert len(ours) == 3
    assert "controller pods: waiting for informer pods" in caplog.text
    assert "403" in caplog.text


async def test_controller_accepts_synced_informers() -> None:
    source = FakeListerWatcher(named("a"))
    pods = informer_of(source)
    notes = Notes()
    async with informed(pods):
        source.add(named("b"))
        await asyncio.sleep(60)
        async with Controller("pods", notes, for_=pods):
            await settle()

    assert sorted(notes.names) == ["a", "b"]


async def test_controller_can_be_entered_and_left_in_different_tasks() -> None:
    pods = informer_of(FakeListerWatcher(named("a")))
    notes = Notes()
    controller = Controller("pods", notes, for_=pods)
    async with informed(pods):
        await asyncio.create_task(controller.start())
        await settle()
        await asyncio.create_task(controller.shutdown())
        await controller.shutdown()

    assert notes.names == ["a"]


# ---------------------------------------------------------------- end


async def take(seconds: float, log: list[str]) -> None:
    try:
        await asyncio.sleep(seconds)
        log.append("done")
    except asyncio.CancelledError:
        log.append("cancelled")
        raise


def taking(seconds: float, log: list[str]) -> Reconcile:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        await take(seconds, log)

    return reconcile


async def test_stop_waits_for_running_reconciles() -> None:
    log: list[str] = []
    source = FakeListerWatcher(named("a"), named("b"))
    began = asyncio.get_running_loop().time()
    async with controlled(taking(7, log), source, concurrency=1):
        pass

    assert log == ["done"]  # and no new reconcile begins
    assert asyncio.get_running_loop().time() - began == pytest.approx(7, abs=0.1)


async def test_running_reconcile_is_cancelled_after_drain_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: list[str] = []
    source = FakeListerWatcher(named("a"))
    began = asyncio.get_running_loop().time()
    async with controlled(taking(1000, log), source, drain_timeout=3):
        pass

    assert log == ["cancelled"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)
    assert "cancelling running reconciles: default/a" in caplog.text


async def test_failure_during_stop_is_not_logged_as_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail_late(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)
        raise ValueError("boom")

    async with controlled(fail_late, FakeListerWatcher(named("a"))):
        pass

    assert "attempt=1, not retried: the controller is stopping)" in caplog.text


async def test_second_cancellation_of_controller_skips_drain() -> None:
    log: list[str] = []
    pods = informer_of(FakeListerWatcher(named("a")))
    controller = Controller("pods", taking(1000, log), for_=pods)
    async with informed(pods):
        task = asyncio.create_task(controller.run())
        await settle()
        task.cancel()
        await asyncio.sleep(1)
        assert log == []

        task.cancel()
        await asyncio.wait({task}, timeout=0.001)
        assert task.cancelled()

    assert log == ["cancelled"]


async def test_controller_leaves_no_tasks() -> None:
    async def later(request: ReconcileRequest, ctx: Context) -> Result:
        return Result(requeue_after=1000)

    before = asyncio.all_tasks()
    pods = informer_of(FakeListerWatcher(named("a"), named("b")))
    async with informed(pods):
        tasks = asyncio.all_tasks()
        async with Controller("pods", Acts(later), for_=pods) as controller:
            await settle()

        await settle()
        assert asyncio.all_tasks() == tasks
        assert not pods._processor.listeners
        assert "delayed=0" in repr(controller.queue)

    assert asyncio.all_tasks() == before


async def test_controller_leaves_no_tasks_when_cancelled_in_any_turn() -> None:
    async def briefly(request: ReconcileRequest, ctx: Context) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    for turn in range(30):
        pods = informer_of(FakeListerWatcher(named("a"), named("b")))
        controller = Controller("pods", briefly, for_=pods)
        async with informed(pods):
            before = asyncio.all_tasks()
            task = asyncio.create_task(controller.run())
            for _ in range(turn):
                await asyncio.sleep(0)

            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert asyncio.all_tasks() <= before
            assert not pods._processor.listeners
            assert "working=0" in repr(controller.queue)


async def test_stop_drops_queued_requests() -> None:
    notes = Notes()
    async with controlled(notes) as (_, controller):
        controller.queue.add_after(ReconcileRequest("", "a"), 5)

    await asyncio.sleep(60)
    assert notes.names == []


async def test_controller_fails_when_its_informer_ends() -> None:
    pods = informer_of(FakeListerWatcher())
    controller = Controller("pods", Notes(), for_=pods)
    async with informed(pods):
        task = asyncio.create_task(controller.run())
        await settle()

    with pytest.raises(InformerStopped, match=r"informer of handler .* has stopped"):
        await task


async def test_controller_raises_one_error_when_all_informers_end() -> None:
    pods = informer_of(FakeListerWatcher())
    maps = informer_of(FakeListerWatcher(resource=CONFIG_MAPS), "configmaps")
    controller = Controller("pods", Notes(), for_=pods, owns=[maps])
    async with informed(pods, maps):
        task = asyncio.create_task(controller.run())
        await settle()

    with pytest.raises(InformerStopped):
        await task


async def test_controller_fails_when_unsynced_informer_ends() -> None:
    pods = informer_of(FakeListerWatcher())
    task = asyncio.create_task(Controller("pods", Notes(), for_=pods).run())
    await settle()
    pods.abandon()

    with pytest.raises(InformerStopped):
        await task


async def test_ended_informer_is_refused() -> None:
    pods, ended = (informer_of(FakeListerWatcher()) for _ in range(2))
    ended.abandon()

    with pytest.raises(InformerStopped):
        await Controller("pods", Notes(), for_=pods, owns=[ended]).start()

    assert not pods._processor.listeners


async def broken(error: Exception | None = None) -> None:
    """Run a controller, and shut its queue down."""
    pods = informer_of(FakeListerWatcher())
    async with informed(pods):
        controller = Controller("pods", Notes(), for_=pods)
        await controller.start()
        await settle()
        controller.queue.shut_down()
        await settle()
        await controller.__aexit__(None, error, None)


async def test_controller_failure_is_raised_on_exit() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await broken()

    assert caught.group_contains(QueueShutDown)


async def test_exception_of_block_precedes_controller_failure() -> None:
    reason = ValueError("mine")
    await broken(reason)

    assert "controller pods also failed" in reason.__notes__[0]


async def test_reconcile_can_stop_its_controller() -> None:
    async def stop(request: ReconcileRequest, ctx: Context) -> None:
        await controller.shutdown()

    pods = informer_of(FakeListerWatcher(named("a")))
    controller = Controller("pods", stop, for_=pods)
    async with informed(pods), controller:
        await asyncio.sleep(1)
        assert controller.queue.shutting_down


# ---------------------------------------------------------------- all of it


async def test_minimal_controller_works_with_server() -> None:
    phases: dict[str, Any] = {}

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        pod = ctx.lister.get(request.key)
        phases[request.key] = None if pod is None else pod.at("status.phase")

    async with APIServer() as server:
        server.create(PODS, {**named("web"), "status": {"phase": "Running"}})
        factory = SharedInformerFactory(server.client())
        async with factory:
            pods = factory.informer("v1", "pods")
            async with Controller("phases", reconcile, for_=pods):
                await server.until(lambda: phases == {"default/web": "Running"})
                server.delete(PODS, "web")
                await server.until(lambda: phases == {"default/web": None})
