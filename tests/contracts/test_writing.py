"""Writes of reconciles, on our server and on a real kube-apiserver."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from contract_servers import WIDGETS

from aioinformer import Controller, Manager
from aioinformer.client import create_or_patch
from aioinformer.controller import with_object
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, SERVICES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract_servers import ServerUnderTest

    from aioinformer import Client, SharedInformer
    from aioinformer.controller import Context


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }


class Operator:
    """Controller that applies a service for each widget, and sets its status."""

    def __init__(self, target: ServerUnderTest, client: Client) -> None:
        self.place: Any = {"namespace": target.namespace}
        self.key = f"{target.namespace}/web"
        self.client = client
        self.manager = Manager(client)
        self.widgets = self.manager.informer(WIDGETS, **self.place)
        self.services: SharedInformer = self.manager.informer(SERVICES, **self.place)
        self.shown: list[KubeObject] = []

        @with_object(KubeObject)
        async def reconcile(widget: KubeObject, ctx: Context) -> None:
            found = await ctx.apply(service(widget.name))
            self.shown.append(found)
            ctx.set_status(address=found.at("spec.clusterIP"))
            if ctx.set_condition("Ready", True, reason="Applied"):
                ctx.event(widget, "Normal", "Applied", "a service")

        self.manager.add(
            Controller("gadgets", reconcile, for_=self.widgets, owns=[self.services])
        )


@asynccontextmanager
async def operated(target: ServerUnderTest) -> AsyncIterator[Operator]:
    async with target.client() as client:
        it = Operator(target, client)
        async with it.manager:
            body = {"metadata": {"name": "web"}, "spec": {"size": 1}}
            await client.create(WIDGETS, body, **it.place)
            await it.widgets.wait_until(_is_ready, key=it.key, timeout=30)
            yield it


def _is_ready(widget: KubeObject | None) -> bool:
    return widget is not None and widget.at("status.address") is not None


async def test_reconcile_applies_child_writes_status_and_records_event(
    target: ServerUnderTest,
) -> None:
    async with operated(target) as it:
        child = await it.client.get(SERVICES, "web", **it.place)
        widget = await it.client.get(WIDGETS, "web", **it.place)

    (reference,) = child.owner_references
    assert (reference["uid"], reference["controller"]) == (widget.uid, True)
    assert widget.at("status.address") == child.at("spec.clusterIP")
    assert widget.at("status.conditions.0.observedGeneration") == widget.generation
    async with target.client() as client:
        (event,) = await client.list(EVENTS, **it.place)

    assert event.at("reportingController") == "gadgets"
    assert event.at("regarding.uid") == widget.uid


async def test_unchanged_child_is_read_from_the_cache(target: ServerUnderTest) -> None:
    async with operated(target) as it:
        change = {"spec": {"size": 2}}
        changed = await it.client.patch(WIDGETS, "web", change, **it.place)
        number = changed.generation
        path = "status.conditions.0.observedGeneration"
        await it.widgets.wait_until(
            lambda obj: obj is not None and obj.at(path) == number, key=it.key
        )
        assert it.shown[-1] is it.services.lister.get(it.key)


async def test_foreign_change_of_child_is_reverted(target: ServerUnderTest) -> None:
    async with operated(target) as it:
        # Another port would be one more, not a change of the first.
        foreign = {"spec": {"selector": {"app": "x"}}}
        changed = await it.client.patch(SERVICES, "web", foreign, **it.place)
        await it.services.wait_until(
            lambda obj: (
                obj is not None
                and int(obj.resource_version) > int(changed.resource_version)
                and obj.at("spec.selector.app") == "web"
            ),
            key=it.key,
            timeout=30,
        )
        await it.client.delete(SERVICES, "web", **it.place)
        await it.services.wait_until(
            lambda obj: obj is not None and obj.uid != it.shown[0].uid,
            key=it.key,
            timeout=30,
        )


async def test_concurrent_create_or_patch_lose_nothing(target: ServerUnderTest) -> None:
    place: Any = {"namespace": target.namespace}
    done: list[str] = []

    async def add(number: int) -> None:
        def change(settings: dict[str, Any]) -> None:
            settings.setdefault("data", {})[f"key-{number}"] = "x"

        done.append(
            (await create_or_patch(client, CONFIG_MAPS, "a", change, **place))[1]
        )

    async with target.client() as client, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(add(number))

    assert sorted(done) == ["created", "patched", "patched", "patched"]
