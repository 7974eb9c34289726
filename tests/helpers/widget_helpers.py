"""A server with a widget, and a controller of widgets that owns config maps."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from contract_servers import WIDGETS

from aioinformer import Controller, Manager, SharedInformerFactory
from aioinformer.controller import with_object
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer.controller import Context

    Act = Callable[[KubeObject, Context], Awaitable[Any]]


class Bench:
    """A running controller, whose reconcile is `act`."""

    def __init__(self, server: APIServer, act: Act, **options: Any) -> None:
        self.server = server
        self.act = act
        self.failures: list[BaseException | None] = []
        self.reconciles = 0
        client = server.client()
        factory = SharedInformerFactory(client, **options)
        self.manager = Manager(client, factory=factory)
        self.widgets = self.manager.informer(WIDGETS)
        self.maps = self.manager.informer(CONFIG_MAPS)

        @with_object(KubeObject)
        async def reconcile(widget: KubeObject, ctx: Context) -> None:
            self.reconciles += 1
            await self.act(widget, ctx)

        self.controller = Controller(
            "gadgets",
            reconcile,
            for_=self.widgets,
            owns=[self.maps],
            on_error=lambda exc: self.failures.append(exc.__cause__),
        )
        self.manager.add(self.controller)

    def widget(self, name: str = "web") -> dict[str, Any]:
        return dict(self.server.get(WIDGETS, name, namespace="default"))

    def map(self, name: str = "web") -> dict[str, Any]:
        return dict(self.server.get(CONFIG_MAPS, name, namespace="default"))

    def writes(self, *resources: str) -> list[str]:
        """Return the writes to resources, as verbs."""
        return [
            it.verb
            for it in self.server.requests
            if it.verb in {"create", "update", "patch", "delete"}
            and any(f"/{resource}" in it.path for resource in resources)
        ]

    async def again(self) -> None:
        """Change the spec of the widget, and wait for its reconcile."""
        change = {"spec": {"number": self.reconciles}}
        self.server.patch(WIDGETS, "web", change, namespace="default")
        await asyncio.sleep(5)


def widget(name: str = "web", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {}} | more


@asynccontextmanager
async def bench(act: Act, **options: Any) -> AsyncIterator[Bench]:
    """Run a controller on a server with the widget `default/web`, and settle."""
    async with APIServer(resources=[WIDGETS]) as server:
        server.create(WIDGETS, widget())
        it = Bench(server, act, **options)
        async with it.manager:
            await asyncio.sleep(5)
            yield it
