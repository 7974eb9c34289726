"""`Context.event`: events without setup, written until the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import controlled, informed, informer_of, named
from informer_helpers import running
from widget_helpers import Bench, bench

from aioinformer import Controller
from aioinformer.controller import with_object
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer import ReconcileRequest
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
