"""`Context.set_status` and `set_condition`: one write at the end of a reconcile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from contract_servers import WIDGETS
from controller_helpers import Lagging, informed, informer_of
from informer_helpers import running
from widget_helpers import Bench, bench, widget

from aioinformer import Controller, Manager, ReconcileRequest, Result
from aioinformer.controller import finalizer, with_object
from aioinformer.errors import (
    Conflict,
    LeadershipLost,
    NotFound,
    OptionsError,
    ServerError,
    TerminalError,
)
from aioinformer.model import drop
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Cut, Delay, Refuse

if TYPE_CHECKING:
    from aioinformer.controller import Context

PAID = {"type": "Paid", "status": "True", "reason": "Card"}


class Term:
    """Elector that leads until it is over."""

    over = False

    def check(self) -> None:
        if self.over:
            raise LeadershipLost("another replica leads")


def kinds_of(it: Bench) -> list[str]:
    return [entry["type"] for entry in it.widget()["status"]["conditions"]]


def refuse(it: Bench, status: int, times: int | None = 1) -> None:
    """Refuse writes of widgets."""
    it.server.faults.add(
        Refuse(status=status, verb="patch", resource="widgets", times=times)
    )


async def test_status_is_written_once_at_the_end() -> None:
    results: list[bool] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        results.append(ctx.set_status(ready=1))
        results.append(ctx.set_status({"ready": 2, "url": "http://web"}))
        results.append(ctx.set_condition("Ready", True, reason="Deployed"))

    async with bench(act) as it:
        assert it.writes("widgets") == ["patch"]
        status = it.widget()["status"]
        assert it.reconciles == 2, "the write of the status is an update, too"

    (condition,) = status.pop("conditions")
    assert status == {"ready": 2, "url": "http://web"}
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "Ready",
        "status": "True",
        "reason": "Deployed",
        "message": "",
        "observedGeneration": 1,
    }
    assert results == [True, True, True, True, True, False]


async def test_status_is_written_after_failure() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_condition("Ready", False, reason="Failed", message="no")
        raise TerminalError("no")

    async with bench(act) as it:
        assert it.widget()["status"]["conditions"][0]["message"] == "no"
        assert [str(exc) for exc in it.failures] == ["no", "no"]


async def test_unchanged_status_is_not_written() -> None:
    results: list[bool] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        nested = {"x": 1, "y": None}  # as models have it for optional fields
        results.append(ctx.set_status(ready=1, old=None, nested=nested))
        results.append(ctx.set_condition("Ready", True, reason="Deployed"))

    async with bench(act) as it:
        before = it.widget()["metadata"]["resourceVersion"]
        await it.again()
        assert it.widget()["status"]["conditions"][0]["observedGeneration"] == 2
        assert it.widget()["metadata"]["resourceVersion"] != before
        assert results[2:] == [False] * (len(results) - 2)
        writes = len(it.writes("widgets"))
        it.controller.queue.add(ReconcileRequest("default", "web"))
        await asyncio.sleep(5)
        assert len(it.writes("widgets")) == writes


async def test_status_removes_fields_and_replaces_objects() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if obj.generation == 1:
            ctx.set_status(a={"x": 1, "y": 2}, b=[1], c="kept")
        else:
            ctx.set_status({"a": {"y": 3}}, b=None)

    async with bench(act) as it:
        await it.again()
        assert it.widget()["status"] == {"a": {"y": 3}, "c": "kept"}


async def test_condition_of_another_writer_is_kept_despite_conflict() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles == 1:
            foreign = {"status": {"conditions": [PAID], "seen": 1}}
            it.server.patch(WIDGETS, "web", foreign, namespace="default")

        ctx.set_condition("Ready", True, reason="Deployed")

    async with bench(act) as it:
        assert kinds_of(it) == ["Paid", "Ready"]
        assert it.widget()["status"]["seen"] == 1
        assert it.failures == []
        assert it.writes("widgets") == ["patch", "patch"], "the first one conflicts"


async def test_status_fails_after_five_conflicts() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        if it.reconciles == 1:
            refuse(it, 409, times=5)

    async with bench(act) as it:
        assert [type(exc) for exc in it.failures] == [Conflict]
        assert it.writes("widgets") == ["patch"] * 6
        assert it.widget()["status"] == {"ready": 1}


async def test_status_of_deleted_object_is_not_written() -> None:
    results: list[bool] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        it.server.delete(WIDGETS, "web", namespace="default")
        await asyncio.sleep(1)
        results.append(ctx.set_status(ready=2))
        results.append(ctx.set_condition("Ready", True, reason="Deployed"))

    async with bench(act) as it:
        assert results == [False, False]
        assert it.failures == []
        assert it.writes("widgets") == []


async def test_status_of_object_deleted_unnoticed_is_dropped() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        it.server.delete(WIDGETS, "web", namespace="default")

    async with bench(act) as it:
        assert it.failures == []
        assert it.writes("widgets") == ["patch"]


@pytest.mark.parametrize("pause", [0, 1], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("early", [True, False], ids=["set before", "set after"])
async def test_status_of_recreated_object_is_not_written(
    pause: int, early: bool
) -> None:
    results: list[bool] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles > 1:
            return

        if early:
            ctx.set_status(ready=1)

        it.server.delete(WIDGETS, "web", namespace="default")
        it.server.create(WIDGETS, widget())
        await asyncio.sleep(pause)
        results.append(ctx.set_status(ready=2))
        results.append(ctx.set_condition("Ready", True, reason="Deployed"))
        assert await ctx.write_status() is None

    async with bench(act) as it:
        assert it.failures == []
        assert results == [not pause, not pause]
        assert "status" not in it.widget()


async def test_status_is_not_written_to_object_created_meanwhile() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        if ctx.lister.get(request.key) is None:
            server.create(WIDGETS, widget())
            await asyncio.sleep(1)
            results.append(ctx.set_status(phase="Gone"))

    results: list[bool] = []
    async with APIServer(resources=[WIDGETS]) as server:
        manager = Manager(server.client())
        widgets = manager.informer(WIDGETS)
        controller = Controller("gadgets", reconcile, for_=widgets)
        manager.add(controller)
        async with manager:
            controller.queue.add(ReconcileRequest("default", "web"))
            await asyncio.sleep(5)

        assert results == [False]
        assert "status" not in server.get(WIDGETS, "web", namespace="default")


async def test_condition_is_about_the_generation_that_the_reconcile_began_with() -> (
    None
):
    seen: list[int | None] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles == 1:
            change: dict[str, Any] = {"spec": {"number": 2}}
            it.server.patch(WIDGETS, "web", change, namespace="default")
            await asyncio.sleep(1)
            cached = ctx.lister.get(obj.key)
            assert cached is not None
            assert cached.generation == 2

        ctx.set_condition("Ready", True, reason="Deployed")
        if (written := await ctx.write_status()) is not None:
            seen.append(written.at("status.conditions")[0]["observedGeneration"])

    async with bench(act) as it:
        assert it.failures == []
        assert seen == [1, 2]


async def test_condition_of_daemon_is_about_the_cached_generation() -> None:
    async def daemon(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(8)
        ctx.set_condition("Watched", True, reason="Seen")

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        pass

    async with bench(act, daemons=[daemon]) as it:
        await it.again()
        (condition,) = it.widget()["status"]["conditions"]
        assert condition["observedGeneration"] == 2


async def test_condition_is_about_the_object_that_was_passed() -> None:
    """A finalizer takes a while to be written, before the reconcile begins."""

    @with_object(KubeObject)
    async def nothing(obj: KubeObject, ctx: Context) -> None:
        pass

    @finalizer(WIDGETS, "example.com/it", cleanup=nothing)
    @with_object(KubeObject)
    async def reconcile(obj: KubeObject, ctx: Context) -> None:
        message = str(obj.generation)
        ctx.set_condition("Ready", True, reason="Deployed", message=message)
        if (written := await ctx.write_status()) is not None:
            seen.append(written.at("status.conditions")[0])

    seen: list[dict[str, Any]] = []
    async with APIServer(resources=[WIDGETS]) as server:
        manager = Manager(server.client())
        widgets = manager.informer(WIDGETS)
        manager.add(Controller("gadgets", reconcile, for_=widgets))
        server.faults.add(Delay(seconds=0.5, verb="patch", resource="widgets", times=1))
        async with manager:
            server.create(WIDGETS, widget())
            await asyncio.sleep(0.1)
            change: dict[str, Any] = {"spec": {"number": 2}}
            server.patch(WIDGETS, "web", change, namespace="default")
            await asyncio.sleep(5)

    assert [it["message"] for it in seen] == ["2"]
    assert seen[0]["observedGeneration"] == 2


async def test_status_of_the_first_object_is_not_that_of_the_next_one_passed() -> None:
    first = ""

    @with_object(KubeObject)
    async def inner(obj: KubeObject, ctx: Context) -> None:
        assert obj.uid != first

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        nonlocal first
        cached = ctx.lister.get(request.key)
        if cached is None or first:
            return

        first = cached.uid
        ctx.set_status(phase="of the first")
        server.delete(WIDGETS, "web", namespace="default")
        server.create(WIDGETS, widget())
        await asyncio.sleep(1)
        await inner(request, ctx)

    async with APIServer(resources=[WIDGETS]) as server:
        server.create(WIDGETS, widget())
        manager = Manager(server.client())
        widgets = manager.informer(WIDGETS)
        manager.add(Controller("gadgets", reconcile, for_=widgets))
        async with manager:
            await asyncio.sleep(5)

        assert first
        assert "status" not in server.get(WIDGETS, "web", namespace="default")


async def test_failed_write_of_status_fails_the_reconcile() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        if it.reconciles == 1:
            refuse(it, 500)

    async with bench(act) as it:
        assert isinstance(it.failures[0], ServerError)
        assert it.widget()["status"] == {"ready": 1}


async def test_terminal_error_is_retried_if_its_status_was_not_written() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        if it.reconciles == 1:
            refuse(it, 500)

        raise TerminalError("no")

    async with bench(act) as it:
        group = it.failures[0]
        assert isinstance(group, ExceptionGroup)
        assert [type(exc) for exc in group.exceptions] == [TerminalError, ServerError]
        assert group.message.startswith(
            "TerminalError: no, and the write of the status failed: ServerError: 500 "
        )
        assert it.widget()["status"] == {"ready": 1}


async def test_failure_without_text_does_not_hide_the_one_of_the_status() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        if it.reconciles == 1:
            refuse(it, 500)
            raise Mute

    async with bench(act) as it:
        (group,) = it.failures
        assert isinstance(group, ExceptionGroup)
        assert group.message.startswith("Mute, and the write of the status failed: ")
        assert it.widget()["status"] == {"ready": 1}


async def test_status_is_written_after_timeout() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        await asyncio.sleep(3600)

    async with bench(act, timeout=2) as it:
        assert it.widget()["status"] == {"ready": 1}
        assert isinstance(it.failures[0], TimeoutError)


async def test_status_is_not_written_after_cancellation() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        await asyncio.sleep(3600)

    async with bench(act) as it:
        pass

    assert it.reconciles == 1
    assert "status" not in it.widget()


async def test_status_is_not_written_after_leadership_is_lost() -> None:
    term = Term()

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        term.over = True
        if it.reconciles > 1:
            await ctx.client.patch(WIDGETS, "web", {}, namespace="default")

    async with bench(act, elector=term) as it:
        assert {type(exc) for exc in it.failures} == {LeadershipLost}

    assert "status" not in it.widget()


async def test_status_is_written_early() -> None:
    written: list[KubeObject | None] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles > 1:
            return

        ctx.set_status(phase="Working")
        written.append(await ctx.write_status())
        assert it.widget()["status"] == {"phase": "Working"}
        written.append(await ctx.write_status())
        assert ctx.set_status(phase="Done")

    async with bench(act) as it:
        assert it.widget()["status"] == {"phase": "Done"}
        assert it.failures == []
        assert it.writes("widgets") == ["patch", "patch"]

    assert written[0] is not None
    assert written[1] is None


async def test_status_that_failed_early_is_written_at_the_end() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles > 1:
            return

        ctx.set_status(ready=1, url="a")
        refuse(it, 500)
        with pytest.raises(ServerError):
            await ctx.write_status()

        ctx.set_status(ready=2)

    async with bench(act) as it:
        assert it.widget()["status"] == {"ready": 2, "url": "a"}


async def test_reconcile_that_raises_leadership_lost_writes_no_status() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        raise LeadershipLost("another replica leads")

    async with bench(act) as it:
        assert "status" not in it.widget()


async def test_missing_status_subresource_is_explained() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=1)
        name = "widgets.example.com"
        found = it.server.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        del found["spec"]["versions"][0]["subresources"]
        it.server.update(CUSTOM_RESOURCE_DEFINITIONS, found)
        await asyncio.sleep(2)

    async with bench(act) as it:
        assert isinstance(it.failures[0], NotFound)
        assert str(it.failures[0]).count("have `subresources: {status: {}}`?") == 1


@pytest.mark.parametrize(
    "options", [{"metadata_only": True}, {"transform": drop("status")}], ids=str
)
async def test_informer_without_status_keeps_conditions_of_others(
    options: dict[str, Any],
) -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.set_condition("Ready", True, reason="Deployed")

    async with bench(act, informer=options, status={"conditions": [PAID]}) as it:
        assert kinds_of(it) == ["Paid", "Ready"]
        assert it.writes("widgets") == ["patch"]


async def test_stale_reconcile_reads_before_it_skips_a_write() -> None:
    numbers = [2, 1]
    stale: list[bool] = []

    @with_object(KubeObject)
    async def reconcile(obj: KubeObject, ctx: Context) -> Result | None:
        stale.append(ctx.stale)
        ctx.set_status(ready=numbers.pop(0))
        return Result(requeue_after=1) if numbers else None

    async with APIServer(resources=[WIDGETS]) as server, server.client() as client:
        server.create(WIDGETS, widget(status={"ready": 1}))
        widgets = informer_of(Lagging(server.list_watch(WIDGETS), 60))
        controller = Controller("gadgets", reconcile, for_=widgets, client=client)
        async with informed(widgets), running(controller.run()):
            await asyncio.sleep(15)
            found = server.get(WIDGETS, "web", namespace="default")

    assert stale == [False, True]
    assert found["status"] == {"ready": 1}


async def test_status_is_read_after_write_without_response() -> None:
    numbers = [2, 1]

    @with_object(KubeObject)
    async def reconcile(obj: KubeObject, ctx: Context) -> None:
        ctx.set_status(ready=numbers.pop(0))

    async with APIServer(resources=[WIDGETS]) as server, server.client() as client:
        server.create(WIDGETS, widget(status={"ready": 1}))
        widgets = informer_of(Lagging(server.list_watch(WIDGETS), 60))
        controller = Controller("gadgets", reconcile, for_=widgets, client=client)
        server.faults.add(Cut(verb="patch", after_bytes=0))
        async with informed(widgets), running(controller.run()):
            await asyncio.sleep(15)
            found = server.get(WIDGETS, "web", namespace="default")

    assert numbers == [], "the first write failed, and was retried"
    assert found["status"] == {"ready": 1}


async def test_status_is_refused_after_the_end_of_the_reconcile() -> None:
    tasks: list[asyncio.Task[bool]] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        async def set_later() -> bool:
            await asyncio.sleep(1)
            return ctx.set_status(ready=1)

        tasks.append(asyncio.create_task(set_later()))

    async with bench(act):
        with pytest.raises(OptionsError, match="its reconcile has ended"):
            await tasks[0]


async def test_invalid_status_is_refused_at_the_call() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        with pytest.raises(OptionsError, match="cannot be encoded as JSON"):
            ctx.set_status(ready={1, 2})

        with pytest.raises(OptionsError, match="reason must be one word"):
            ctx.set_condition("Ready", True, reason="")

    async with bench(act) as it:
        assert it.failures == []
