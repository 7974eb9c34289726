"""A controller in small: each app's config map says how many of its pods run.

It is what the demo shows, and how the parts are meant to be put together: a controller of
config maps, which hears of pods as well, compares what is with what should be (both from
local memory), and writes only where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.controller import Controller, Manager
from aioinformer.informer import SharedInformerFactory
from aioinformer.model.resources import CONFIG_MAPS, PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client import Client
    from aioinformer.controller import Context, ReconcileRequest
    from aioinformer.errors import HandlerError
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = ["PodCounter", "app_of"]


class PodCounter:
    """Keeps `data.running` of each app's config map at the number of its running pods.

    `factory` and `manager` run it; who has entered the factory may look at the caches when
    the manager has ended.

    Args:
        client: Reads and writes.
    """

    def __init__(self, client: Client) -> None:
        self.factory = SharedInformerFactory(client)
        self.manager = Manager(client, factory=self.factory)
        self.pods = self.manager.informer(PODS, indexers={"app": app_of})
        self.maps = self.manager.informer(CONFIG_MAPS)
        self.controller = Controller(
            "apps",
            self.reconcile,
            for_=self.maps,
            watches=[(self.pods, app_of)],
            on_error=self._failed,
        )
        self.manager.add(self.controller)
        self.pod_events = 0
        self.map_events = 0
        self.reconciles = 0
        self.writes = 0
        self.retries = 0
        self.pods.on_event(self._pod_changed)
        self.maps.on_event(self._map_changed)

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        """Make one config map say what it should.

        Args:
            request: The name of the config map, which is that of the app.
            ctx: Writes.

        Raises:
            ApiError: The server refused the write.
            TransportError: The network failed.
        """
        config = self.maps.lister.get(request.key)
        if config is not None:
            running = self._running(request.key)
            if config.at("data.running") != running:
                await ctx.client.patch(
                    CONFIG_MAPS,
                    config.name,
                    {"data": {"running": running}},
                    namespace=config.namespace,
                )
                self.writes += 1

        self.reconciles += 1

    def wrong(self) -> list[str]:
        """The keys of the config maps that do not say what they should, sorted."""
        maps = self.maps.lister.list()
        wrong = (it for it in maps if it.at("data.running") != self._running(it.key))
        return sorted(config.key for config in wrong)

    def _running(self, key: str) -> str:
        pods = self.pods.lister.by_index("app", key)
        return str(sum(pod.at("status.phase") == "Running" for pod in pods))

    def _failed(self, failure: HandlerError) -> None:
        self.retries += 1

    def _pod_changed(self, event: Notification) -> None:
        self.pod_events += 1

    def _map_changed(self, event: Notification) -> None:
        self.map_events += 1


def app_of(pod: KubeObject) -> Iterable[str]:
    """Index function, and mapping: the key of the app that a pod belongs to."""
    app = pod.labels.get("app")
    return () if app is None else (f"{pod.namespace}/{app}",)
