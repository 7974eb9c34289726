"""`Controller(daemons=)`: coroutine functions that run for each object."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from contract_servers import WIDGETS
from controller_helpers import Notes, controlled, informed, informer_of, managed, named
from informer_helpers import running, settle
from widget_helpers import Bench, bench

from aioinformer import Controller, KubeObject, Manager, Result
from aioinformer.controller import Context, Daemon, with_object
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.controller.workers import MAX_DAEMON_WRITES
from aioinformer.errors import (
    HandlerError,
    LeadershipLost,
    OptionsError,
    TerminalError,
)
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer import ReconcileRequest


class Watcher:
    """Daemon that records its runs, and takes some seconds to end."""

    def __init__(self, *, end: float = 0.0) -> None:
        self.record: list[str] = []
        self.contexts: list[Context] = []
        self.now: set[str] = set()
        self.end = end

    async def __call__(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        assert request.key not in self.now, "two lives of one key at once"
        self.now.add(request.key)
        self.contexts.append(ctx)
        self.record.append(f"{request.name} begins")
        try:
            return await self.act(request, ctx)
        finally:
            if self.end:
                await asyncio.sleep(self.end)

            self.now.discard(request.key)
            self.record.append(f"{request.name} ends")

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        await asyncio.Event().wait()
        return None


class Spec(msgspec.Struct):
    number: int


class Numbered(msgspec.Struct):
    spec: Spec


def deleting(name: str) -> dict[str, Any]:
    return named(name, deletionTimestamp="2026-08-01T12:00:00Z", finalizers=["a.b/c"])


# ---------------------------------------------------------------- the life of an object


async def test_daemon_runs_from_addition_to_deletion() -> None:
    watcher = Watcher()
    source = FakeListerWatcher(named("a"))
    async with controlled(Notes(), source, daemons=[watcher]):
        assert watcher.record == ["a begins"]
        source.add(named("b"))
        source.modify(named("a", labels={"x": "y"}))
        await settle()
        source.delete(named("a"))
        await settle()
        assert watcher.record == ["a begins", "b begins", "a ends"]

    assert watcher.record[3:] == ["b ends"]


async def test_daemon_with_object_gets_cached_object() -> None:
    given: list[KubeObject] = []

    @with_object(KubeObject)
    async def watch(pod: KubeObject, ctx: Context) -> None:
        given.append(pod)
        assert ctx.request.key == pod.key
        assert ctx.lister.get(pod.key) is pod

    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[watch]):
        pass

    assert [pod.name for pod in given] == ["a"]


async def test_daemon_starts_after_caches_are_synced() -> None:
    watcher = Watcher()
    pods = informer_of(FakeListerWatcher(named("a")))
    other = informer_of(FakeListerWatcher(), "other")
    controller = Controller(
        "pods", Notes(), for_=pods, watches=[(other, str)], daemons=[watcher]
    )
    async with running(pods.run()), running(controller.run()):
        await asyncio.sleep(10)
        assert watcher.record == []
        async with running(other.run()):
            await settle()
            assert watcher.record == ["a begins"]
            await controller.shutdown()


async def test_many_daemons_start_in_slices_of_the_loop() -> None:
    turns: list[int] = [0]
    begun: list[int] = []

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        begun.append(turns[0])
        await asyncio.Event().wait()

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    source = FakeListerWatcher(*(named(f"pod-{n}") for n in range(1000)))
    async with running(count()), controlled(Notes(), source, daemons=[watch]):
        while len(begun) < 1000:
            await asyncio.sleep(0)

    assert begun[-1] - begun[0] > 5, "other tasks run in between"


@pytest.mark.parametrize("while_deleting", [False, True])
async def test_daemon_ends_when_the_deletion_is_requested(while_deleting: bool) -> None:
    watcher = Watcher()
    source = FakeListerWatcher(named("a"), deleting("b"))
    daemon = Daemon(watcher, while_deleting=while_deleting)
    async with controlled(Notes(), source, daemons=[daemon]):
        source.modify(deleting("a"))
        await settle()
        assert ("a ends" in watcher.record) is not while_deleting
        assert ("b begins" in watcher.record) is while_deleting
        source.delete(deleting("a"))
        await settle()
        assert "a ends" in watcher.record


async def test_G10_two_lives_of_a_key_never_overlap() -> None:
    watcher = Watcher(end=5)
    source = FakeListerWatcher(named("a", uid="1"))
    async with controlled(Notes(), source, daemons=[watcher]):
        for number in range(2, 5):
            source.delete(named("a"))
            source.add(named("a", uid=str(number)))
            await asyncio.sleep(1)

        await asyncio.sleep(30)
        assert watcher.record == ["a begins", "a ends", "a begins"]
        source.delete(named("a"))
        await asyncio.sleep(30)
        assert watcher.now == set()


async def test_daemon_that_returns_runs_again_for_the_next_object_only() -> None:
    class Short(Watcher):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None: ...

    short = Short()
    source = FakeListerWatcher(named("a", uid="1"))
    async with controlled(Notes(), source, daemons=[short]):
        source.modify(named("a", uid="1", labels={"x": "y"}))
        await asyncio.sleep(1000)
        assert short.record == ["a begins", "a ends"]
        source.delete(named("a"))
        source.add(named("a", uid="2"))
        await settle()

    assert short.record == ["a begins", "a ends"] * 2


async def test_daemon_that_is_called_again_at_once_backs_off() -> None:
    class Busy(Watcher):
        async def act(self, request: ReconcileRequest, ctx: Context) -> Result:
            return Result(requeue_after=-1)

    busy = Busy()
    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[busy]):
        await asyncio.sleep(100)

    assert 4 < len(busy.contexts) < 10


async def test_daemon_that_returns_a_result_is_called_again() -> None:
    class Regular(Watcher):
        async def act(self, request: ReconcileRequest, ctx: Context) -> Result:
            return Result(requeue_after=10)

    regular = Regular()
    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[regular]):
        await asyncio.sleep(95)

    assert len(regular.contexts) == 10
    assert {ctx.attempt for ctx in regular.contexts} == {1}


# ---------------------------------------------------------------- failures


class Failing(Watcher):
    """Daemon that raises, or cancels itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.times: list[float] = []

    async def act(self, request: ReconcileRequest, ctx: Context) -> None:
        self.times.append(asyncio.get_running_loop().time())
        raise self.error


@pytest.mark.parametrize("error", [ValueError("boom"), asyncio.CancelledError()])
async def test_G12_failing_daemon_is_reported_and_called_again_with_backoff(
    error: BaseException,
) -> None:
    failures: list[HandlerError] = []
    failing, healthy = Failing(error), Watcher()
    notes = Notes()
    options = {"daemons": [failing, healthy], "on_error": failures.append}
    source = FakeListerWatcher(named("a"))
    async with controlled(notes, source, **options):
        await asyncio.sleep(1000)
        source.modify(named("a", labels={"x": "y"}))
        await settle()

    gaps = [b - a for a, b in pairwise(failing.times)]
    assert 0.8 <= gaps[0] < 1.6
    assert all(30 <= gap < 60 for gap in gaps[-5:])
    assert [ctx.attempt for ctx in failing.contexts[:3]] == [1, 2, 3]
    assert len(failures) == len(failing.times)
    assert failures[0].where == "daemon"
    assert healthy.record == ["a begins", "a ends"], "others are not affected"
    assert notes.names == ["a", "a"]


async def test_daemon_that_cancels_its_task_is_called_again() -> None:
    class Suicidal(Watcher):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    daemon = Suicidal()
    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[daemon]):
        await asyncio.sleep(100)

    assert 4 < len(daemon.contexts) < 10


async def test_terminal_error_ends_a_daemon(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(TerminalError("no"))
    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[failing]):
        await asyncio.sleep(1000)

    assert len(failing.times) == 1
    assert "daemon Failing failed" in caplog.text


async def test_change_of_spec_calls_a_daemon_again_after_a_terminal_error() -> None:
    numbers: list[int] = []
    calls = 0

    async def daemon(request: ReconcileRequest, ctx: Context) -> Result | None:
        nonlocal calls
        calls += 1
        ctx.set_status(calls=calls)  # a change that must not call it again
        return await typed(request, ctx)

    @with_object(Numbered)
    async def typed(widget: Numbered, ctx: Context) -> None:
        numbers.append(widget.spec.number)
        await asyncio.Event().wait()

    async def act(it: Bench, widget: KubeObject, ctx: Context) -> None: ...

    async with bench(act, daemons=[daemon]) as it:  # the spec is empty
        assert calls == 1
        it.server.patch(WIDGETS, "web", {"spec": {"number": 1}}, namespace="default")
        await asyncio.sleep(5)
        it.server.patch(WIDGETS, "web", {"spec": {"number": 2}}, namespace="default")
        await asyncio.sleep(5)

    assert (calls, numbers) == (2, [1]), "it still runs"


async def test_change_while_a_daemon_runs_calls_it_again_after_a_terminal_error() -> (
    None
):
    numbers: list[int] = []

    @with_object(KubeObject)
    async def daemon(widget: KubeObject, ctx: Context) -> None:
        numbers.append(widget.at("spec.number", 0))
        ctx.set_status(calls=len(numbers))  # a change that must not call it again
        await asyncio.sleep(3)
        raise TerminalError("no")

    async def act(it: Bench, widget: KubeObject, ctx: Context) -> None: ...

    async with bench(act, daemons=[daemon]) as it:
        it.server.patch(WIDGETS, "web", {"spec": {"number": 1}}, namespace="default")
        await asyncio.sleep(60)

    assert numbers == [0, 1]


async def test_deletion_ends_the_wait_for_the_next_call() -> None:
    failing = Failing(ValueError("boom"))
    source = FakeListerWatcher(named("a"))
    async with controlled(Notes(), source, daemons=[failing]):
        source.delete(named("a"))
        await asyncio.sleep(100)

    assert len(failing.times) == 1


async def test_invalid_result_of_daemon_is_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wrong(request: ReconcileRequest, ctx: Context) -> Any:
        return 7

    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[wrong]):
        pass

    assert "must return a Result or None, not int" in caplog.text


# ---------------------------------------------------------------- the end


async def test_G9_daemons_end_within_drain_timeout() -> None:
    watcher = Watcher(end=3)
    loop = asyncio.get_running_loop()
    source = FakeListerWatcher(named("a"), named("b"))
    async with controlled(Notes(), source, daemons=[watcher], drain_timeout=10):
        began = loop.time()

    assert watcher.now == set()
    assert loop.time() - began == pytest.approx(3)


async def test_daemon_that_does_not_end_is_cancelled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stubborn(Watcher):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(3600)

    loop = asyncio.get_running_loop()
    source = FakeListerWatcher(named("a"))
    async with controlled(Notes(), source, daemons=[Stubborn()], drain_timeout=10):
        began = loop.time()

    assert loop.time() - began == pytest.approx(10)
    assert "1 daemons and sources have not ended 10 s after their" in caplog.text
    assert caplog.text.count("daemon Stubborn default/a") == 1


async def test_G11_daemon_is_cancelled_and_fenced_when_leadership_is_lost() -> None:
    class Term:
        over = False

        def check(self) -> None:
            if self.over:
                raise LeadershipLost("over")

    refused: list[BaseException] = []
    term, loop = Term(), asyncio.get_running_loop()

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(LeadershipLost) as caught:
                await ctx.client.delete(CONFIG_MAPS, "a", namespace="default")

            refused.append(caught.value)

    async with APIServer() as server, server.client() as client:
        server.create(CONFIG_MAPS, named("a"))
        maps = informer_of(server.list_watch(CONFIG_MAPS))
        controller = Controller(
            "maps", Notes(), for_=maps, daemons=[watch], client=client, elector=term
        )
        async with informed(maps):
            async with controller:
                await asyncio.sleep(1)
                term.over, began = True, loop.time()

            assert loop.time() - began < 0.1

    assert len(refused) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_daemon_can_stop_its_controller(late: bool) -> None:
    stopped: list[str] = []

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        await controller.shutdown()  # would wait for itself
        stopped.append(request.name)

    source = FakeListerWatcher(*([] if late else [named("a")]))
    pods = informer_of(source)
    controller = Controller("pods", Notes(), for_=pods, daemons=[watch])
    async with informed(pods), controller:
        await settle()
        if late:
            source.add(named("a"))

        await asyncio.sleep(1)
        assert stopped == ["a"]


async def test_threads_of_a_daemon_end_before_it() -> None:
    gate, begun, ended = threading.Event(), threading.Event(), []

    def block() -> None:
        begun.set()
        assert gate.wait(60)
        ended.append("thread")

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        await ctx.run_in_thread(block)

    async with controlled(Notes(), FakeListerWatcher(named("a")), daemons=[watch]):
        while not begun.is_set():
            await asyncio.sleep(0.001)

        asyncio.get_running_loop().call_later(1, gate.set)

    assert ended == ["thread"]


async def test_writes_of_a_daemon_are_settled() -> None:
    shown: list[str] = []

    async def watch(request: ReconcileRequest, ctx: Context) -> None:
        body = {"metadata": {"labels": {"seen": "yes"}}}
        await ctx.client.patch(CONFIG_MAPS, request.name, body, namespace="default")
        await ctx.settled()
        cached = ctx.lister.get(request.key)
        shown.append(cached.labels["seen"] if cached else "")

    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("a"))
        manager = managed(server, Notes())
        maps = manager.informer(CONFIG_MAPS)
        manager.add(Controller("watch", Notes(), for_=maps, daemons=[watch]))
        async with manager:
            await asyncio.sleep(5)

    assert shown == ["yes"]


async def test_daemon_writes_status_and_children() -> None:
    async def idle(it: Bench, obj: KubeObject, ctx: Context) -> None: ...

    @with_object(KubeObject)
    async def watch(obj: KubeObject, ctx: Context) -> None:
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
        await ctx.apply(child)
        ctx.set_status(ready=1)
        await ctx.write_status()
        await ctx.settled()
        ctx.event(obj, "Normal", "Watched", "once")
        ctx.set_status(ready=2)  # written at the end of the call

    async with bench(idle) as it:
        manager = Manager(it.server.client())
        widgets, maps = manager.informer(WIDGETS), manager.informer(CONFIG_MAPS)
        controller = Controller(
            "watch", Notes(), for_=widgets, owns=[maps], daemons=[watch]
        )
        manager.add(controller)
        async with manager:
            await asyncio.sleep(10)

        assert it.widget()["status"] == {"ready": 2}
        assert it.map()["metadata"]["ownerReferences"]
        assert [dict(event)["reason"] for event in it.server.objects(EVENTS)] == [
            "Watched"
        ]


async def test_daemon_remembers_its_latest_children_only() -> None:
    contexts: list[Context] = []

    async def daemon(request: ReconcileRequest, ctx: Context) -> None:
        contexts.append(ctx)
        for number in range(MAX_DAEMON_WRITES + 3):
            metadata = {"name": f"web-{number}"}
            await ctx.apply({"metadata": metadata}, resource=CONFIG_MAPS)

        await asyncio.Event().wait()

    async def act(it: Bench, widget: KubeObject, ctx: Context) -> None: ...

    async with bench(act, daemons=[daemon]) as it:
        writer = contexts[0]._writer
        assert len(it.server.objects(CONFIG_MAPS)) == MAX_DAEMON_WRITES + 3
        assert len(writer._shared.children) == len(writer._used) == MAX_DAEMON_WRITES


@pytest.mark.parametrize(
    ("daemons", "text"),
    [
        (Watcher(), "daemons= takes a list"),
        (None, "daemons= takes a list"),
        ([print], "a daemon must be a coroutine function"),
        ([lambda request, ctx: None], "a daemon must be a coroutine function"),
        ([None], "a daemon must be a coroutine function"),
    ],
    ids=["one", "none", "builtin", "lambda", "nothing"],
)
def test_invalid_daemon_is_refused(daemons: Any, text: str) -> None:
    pods = informer_of(FakeListerWatcher())

    with pytest.raises(OptionsError, match=text):
        Controller("pods", Notes(), for_=pods, daemons=daemons)
