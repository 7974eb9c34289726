"""Plain functions as reconciles, and `Context.wait`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import controlled, informed, informer_of, managed, named
from informer_helpers import settle
from widget_helpers import Bench, bench

from aioinformer import Controller, KubeObject, ReconcileRequest, Result
from aioinformer.controller import Context, finalizer, with_object
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.controller.threads import Threads
from aioinformer.errors import LeadershipLost, NotFound, OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import Callable


class Term:
    """Elector that leads until it is over."""

    over = False

    def check(self) -> None:
        if self.over:
            raise LeadershipLost("over")


async def until(condition: Callable[[], object]) -> None:
    """Wait in virtual time for threads, which run in real time."""
    while not condition():
        await asyncio.sleep(0.001)


async def outcome_in_thread(act: Callable[[Context], Any], **options: Any) -> Any:
    """Call a function in a plain reconcile, and return its result or exception."""
    outcomes: list[Any] = []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        if not outcomes:
            try:
                outcomes.append(act(ctx))
            except BaseException as exc:
                outcomes.append(exc)
                raise

    async with controlled(reconcile, FakeListerWatcher(named("a")), **options):
        await until(lambda: outcomes)

    return outcomes[0]


# ---------------------------------------------------------------- the reconcile


async def test_plain_reconcile_runs_in_a_thread() -> None:
    seen: list[tuple[str, str, bool]] = []

    def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
        obj = ctx.lister.get(request.key)
        change = ctx.causes[0].change
        main = threading.current_thread() is threading.main_thread()
        seen.append((obj.name if obj else "", change, main))
        return Result(requeue_after=0.1) if len(seen) == 1 else None

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        await until(lambda: len(seen) == 2)

    assert seen == [("a", "initial", False), ("a", "requeue", False)]


async def test_exception_of_plain_reconcile_is_retried() -> None:
    attempts: list[int] = []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ValueError("boom")

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        await until(lambda: len(attempts) == 3)

    assert attempts == [1, 2, 3]


async def test_plain_reconcile_and_cleanup_work_with_decorators() -> None:
    steps: list[str] = []

    @with_object(KubeObject)
    def remove(obj: KubeObject, ctx: Context) -> None:
        steps.append(f"remove {obj.name} in {threading.current_thread().name}")

    @finalizer(CONFIG_MAPS, "example.com/record", cleanup=remove)
    @with_object(KubeObject)
    def reconcile(obj: KubeObject, ctx: Context) -> None:
        steps.append(f"reconcile {obj.name} {obj.finalizers}")

    def cleanup(request: ReconcileRequest, ctx: Context) -> None: ...

    finalizer(CONFIG_MAPS, "example.com/other", cleanup=cleanup)(reconcile)

    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("a"))
        async with managed(server, reconcile):
            await until(lambda: steps)
            server.delete(CONFIG_MAPS, "a")
            await until(lambda: len(steps) > 1)
            await asyncio.sleep(1)
            with pytest.raises(NotFound):
                server.get(CONFIG_MAPS, "a")

    assert steps[0] == "reconcile a ['example.com/record']"
    assert steps[-1].startswith("remove a in default/a ")


async def test_G10_timed_out_plain_reconcile_keeps_its_key() -> None:
    gate = threading.Event()
    running: list[int] = []
    most: list[int] = []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        running.append(1)
        most.append(len(running))
        assert gate.wait(60)
        running.pop()

    source = FakeListerWatcher(named("a"))
    async with controlled(reconcile, source, timeout=1) as (_, controller):
        await until(lambda: most)
        controller.queue.add(ReconcileRequest("default", "a"))
        await asyncio.sleep(5)
        assert most == [1]
        gate.set()
        await until(lambda: len(most) > 1)

    assert set(most) == {1}


async def test_coroutine_of_plain_function_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def late(request: ReconcileRequest, ctx: Context) -> None: ...

    wrong: Any = lambda request, ctx: late(request, ctx)  # noqa: E731
    async with controlled(wrong, FakeListerWatcher(named("a"))):
        await until(lambda: "async def" in caplog.text)

    assert "returned a coroutine: define it by `async def`" in caplog.text


# ---------------------------------------------------------------- waiting in threads


async def test_plain_reconcile_writes_by_wait() -> None:
    done: list[KubeObject] = []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        obj = ctx.lister.get(request.key)
        if obj is None or obj.labels.get("seen"):
            return

        patch = {"metadata": {"labels": {"seen": "yes"}}}
        write = ctx.client.patch(CONFIG_MAPS, obj.name, patch, namespace="default")
        changed = ctx.wait(write)
        ctx.wait(ctx.settled())
        shown = ctx.lister.get(request.key)
        assert shown is not None
        assert shown.resource_version == changed.resource_version
        done.append(changed)

    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("a"))
        async with managed(server, reconcile):
            await until(lambda: done)
            assert server.get(CONFIG_MAPS, "a")["metadata"]["labels"] == {"seen": "yes"}


async def test_plain_reconcile_applies_reports_and_records() -> None:
    def act(obj: KubeObject, ctx: Context) -> None:
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
        ctx.wait(ctx.apply(child))
        if ctx.set_condition("Ready", True, reason="Deployed"):
            ctx.event(obj, "Normal", "Deployed", "created web")

        ctx.set_status(ready=1)

    async def in_thread(_: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.run_in_thread(act, obj, ctx)

    async with bench(in_thread) as it:
        await until(lambda: it.server.objects(EVENTS))
        await until(lambda: it.widget().get("status"))
        assert it.map()["metadata"]["ownerReferences"]
        assert it.widget()["status"]["ready"] == 1
        assert it.widget()["status"]["conditions"][0]["type"] == "Ready"

    assert it.failures == []


async def test_timeout_of_one_thread_lets_later_ones_wait() -> None:
    outcomes: list[str] = []

    async def answer() -> str:
        return "later"

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await ctx.run_in_thread(ctx.wait, asyncio.sleep(10))

        outcomes.append(await ctx.run_in_thread(ctx.wait, answer()))

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        await until(lambda: outcomes)

    assert outcomes == ["later"]


async def test_wait_raises_error_of_coroutine() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("boom")

    outcome = await outcome_in_thread(lambda ctx: ctx.wait(fail()))

    assert isinstance(outcome, KeyError)


async def test_wait_works_in_other_threads_of_the_reconcile() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(1)
        return number * 2

    def act(ctx: Context) -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda n: ctx.wait(double(n)), range(8)))

    assert await outcome_in_thread(act) == [n * 2 for n in range(8)]


async def test_wait_in_thread_of_coroutine_reconcile() -> None:
    names: list[str] = []

    def name_of(ctx: Context) -> str:
        async def name() -> str:
            return ctx.request.name

        return ctx.wait(name())

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        names.append(await ctx.run_in_thread(name_of, ctx))

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        await until(lambda: names)

    assert names == ["a"]


async def test_timeout_cancels_waits_with_a_clear_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            record.append("coroutine ends")

    def act(ctx: Context) -> None:
        try:
            ctx.wait(hang())
        except Exception:  # noqa: BLE001 - a cancellation passes it
            record.append("swallowed")
        finally:
            with pytest.raises(asyncio.CancelledError):
                ctx.wait(hang())  # at once, and without a warning of Python

    outcome = await outcome_in_thread(act, timeout=5)

    assert isinstance(outcome, asyncio.CancelledError)
    assert "reconcile of default/a has ended, timed out" in str(outcome)
    assert record == ["coroutine ends"]
    assert "timed out after 5 s" in caplog.text


async def test_stop_cancels_waits_after_drain_timeout() -> None:
    begun, ended = threading.Event(), []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        begun.set()
        try:
            ctx.wait(asyncio.Event().wait())
        except asyncio.CancelledError:
            ended.append(request.name)
            raise

    source = FakeListerWatcher(named("a"))
    async with controlled(reconcile, source, drain_timeout=3):
        await until(begun.is_set)
        await settle()

    assert ended == ["a"]


async def test_G11_writes_of_a_thread_are_refused_after_leadership_is_lost() -> None:
    term, refused = Term(), []

    def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        term.over = True
        try:
            ctx.wait(ctx.client.delete(CONFIG_MAPS, "a", namespace="default"))
        except LeadershipLost as exc:
            refused.append(exc)

    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("a"))
        async with server.client() as client:
            maps = informer_of(server.list_watch(CONFIG_MAPS))
            controller = Controller(
                "maps", reconcile, for_=maps, client=client, elector=term
            )
            async with informed(maps), controller:
                await until(lambda: refused)

        assert server.get(CONFIG_MAPS, "a")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        pytest.param(lambda: 7, "takes a coroutine, such as .* not int", id="number"),
        pytest.param(lambda: print, "takes a coroutine", id="function"),
    ],
)
async def test_wait_refuses_other_than_awaitable(
    argument: Callable[[], Any], text: str
) -> None:
    outcome = await outcome_in_thread(lambda ctx: ctx.wait(argument()))

    with pytest.raises(OptionsError, match=text):
        raise outcome


async def test_wait_in_the_event_loop_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        ctx.wait(asyncio.sleep(1))

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        pass

    assert "use `await` in a coroutine" in caplog.text


async def test_wait_after_the_reconcile_is_cancelled() -> None:
    contexts: list[Context] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        contexts.append(ctx)

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        with pytest.raises(asyncio.CancelledError, match="has ended"):
            await asyncio.to_thread(contexts[0].wait, asyncio.sleep(1))


async def test_wait_is_refused_while_the_task_group_aborts() -> None:
    def refuse(coro: Any, **options: object) -> Any:
        coro.close()
        raise RuntimeError("TaskGroup is shutting down")

    threads = Threads(ReconcileRequest("a", "b"), print, refuse)

    with pytest.raises(asyncio.CancelledError, match="its controller stops"):
        await asyncio.to_thread(threads.wait, asyncio.sleep(1))


@pytest.mark.looptime(False)
def test_wait_after_the_loop_is_closed_is_cancelled() -> None:
    async def make() -> Threads:
        return Threads(ReconcileRequest("a", "b"), print, print)  # type: ignore[arg-type]

    threads = asyncio.run(make())

    with pytest.raises(asyncio.CancelledError, match="its controller stops"):
        threads.wait(asyncio.sleep(1))


async def test_thread_that_outlives_the_reconcile_is_woken() -> None:
    outcomes: list[BaseException] = []
    threads: list[threading.Thread] = []

    def outlive(ctx: Context) -> None:
        try:
            ctx.wait(asyncio.sleep(3600))
        except asyncio.CancelledError as exc:
            outcomes.append(exc)

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        thread = threading.Thread(target=functools.partial(outlive, ctx))
        thread.start()
        threads.append(thread)
        while not ctx._threads._waits:
            await asyncio.sleep(0.001)

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        await until(lambda: outcomes)

    threads[0].join(60)
    assert len(outcomes) == 1
