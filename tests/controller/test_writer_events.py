"""`Context.event`: events without setup, written until the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import controlled, informed, informer_of, named
from informer_helpers import running
from widget_helpers import Bench, bench

from aioinformer import Controller, ReconcileRequest
from aioinformer.controller import with_object
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.errors import NotFound, OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer.controller import Context


def events(server: APIServer) -> list[dict[str, Any]]:
    return [dict(it) for it in server.objects(EVENTS)]


async def test_event_is_written_with_name_of_controller() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        ctx.event(obj, "Normal", "Deployed", "created web")

    async with bench(act) as it:
        (event,) = events(it.server)
        uid = it.widget()["metadata"]["uid"]

    assert event["reportingController"] == "gadgets"
    assert (event["type"], event["reason"]) == ("Normal", "Deployed")
    assert event["note"] == "created web"
    assert event["regarding"]["uid"] == uid


async def test_reconcile_of_typed_objects_writes_events_of_its_object() -> None:
    @with_object(dict)
    async def reconcile(body: dict[str, Any], ctx: Context) -> None:
        assert body["metadata"]["uid"] == ctx.object.uid
        ctx.event(ctx.object, "Normal", "Deployed", "created web")

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await reconcile(ctx.request, ctx)

    async with bench(act) as it:
        (event,) = events(it.server)
        assert event["regarding"]["uid"] == it.widget()["metadata"]["uid"]


async def test_object_that_did_not_exist_when_the_reconcile_began_is_not_found() -> (
    None
):
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        with pytest.raises(NotFound, match="no object default/x was in the cache"):
            _ = ctx.object

        asked.append(request.name)

    asked: list[str] = []
    async with controlled(reconcile, FakeListerWatcher()) as (_, controller):
        controller.queue.add(ReconcileRequest("default", "x"))
        await asyncio.sleep(1)

    assert asked == ["x"]


async def test_event_of_last_reconcile_is_written_at_the_end() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if obj.generation == 1:
            return

        try:
            await asyncio.sleep(3600)
        finally:
            ctx.event(obj, "Warning", "Stopped", "cancelled")

    async with bench(act) as it:
        await it.again()
        assert events(it.server) == []

    assert [event["reason"] for event in events(it.server)] == ["Stopped"]


async def test_controller_without_manager_writes_events() -> None:
    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        ctx.event(pod, "Normal", "Seen", "a pod")

    async with APIServer() as server, server.client() as client:
        server.create(PODS, named("web"))
        pods = informer_of(server.list_watch(PODS))
        controller = Controller("my pods!", reconcile, for_=pods, client=client)
        async with informed(pods), running(controller.run()):
            await asyncio.sleep(1)

        (event,) = events(server)
        assert event["reportingController"] == "my-pods"


async def test_event_without_client_is_refused() -> None:
    refused: list[str] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        with pytest.raises(OptionsError) as caught:
            ctx.event({}, "Normal", "Seen", "a pod")

        refused.append(str(caught.value))

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        pass

    assert refused == ["this controller has no client: pass Controller(client=...)"]
