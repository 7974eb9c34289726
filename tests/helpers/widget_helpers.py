"""A server with a widget, and a controller of widgets that owns config maps."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from contract_servers import WIDGETS

from aioinformer import Controller, Manager
from aioinformer.controller import with_object
from aioinformer.model import drop
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer import Resource
    from aioinformer.controller import Context

    Act = Callable[["Bench", KubeObject, Context], Awaitable[Any]]


class Bench:
    """A running controller, whose reconcile is `act`.

    Args:
        server: Server with the widget `default/web`.
        act: The reconcile.
        informer: Options of the informer of widgets.
        owned: Resource of the objects that widgets own.
        hidden: Path that the informer of these objects drops.
        label_selector: Selector of these objects.
        options: Options of the controller.
    """

    def __init__(
        self,
        server: APIServer,
        act: Act,
        *,
        informer: dict[str, Any] | None = None,
        owned: Resource = CONFIG_MAPS,
        hidden: str = "",
        label_selector: str = "",
        **options: Any,
    ) -> None:
        self.server = server
        self.act = act
        self.failures: list[BaseException | None] = []
        self.reconciles = 0
        self.manager = Manager(server.client())
        self.widgets = self.manager.informer(WIDGETS, **(informer or {}))
        transform = drop(hidden) if hidden else None
        self.maps = self.manager.informer(
            owned, transform=transform, label_selector=label_selector
        )

        @with_object(KubeObject)
        async def reconcile(widget: KubeObject, ctx: Context) -> None:
            self.reconciles += 1
            await self.act(self, widget, ctx)

        self.controller = Controller(
            "gadgets",
            reconcile,
            for_=self.widgets,
            owns=[self.maps],
            on_error=lambda exc: self.failures.append(exc.__cause__),
            **options,
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
async def bench(
    act: Act, *, status: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Bench]:
    """Run a controller on a server with the widget `default/web`, and settle.

    Args:
        act: The reconcile.
        status: Status of the widget.
        options: Options of `Bench`.
    """
    async with APIServer(resources=[WIDGETS]) as server:
        server.create(WIDGETS, widget(status=status or {}))
        it = Bench(server, act, **options)
        async with it.manager:
            await asyncio.sleep(5)
            yield it
