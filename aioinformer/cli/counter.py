"""A controller in small: each app's config map says how many of its pods run.

It is what the demo shows, and how the parts are meant to be put together: handlers put
keys into a queue, workers take them, compare what is with what should be (both from
local memory), and write only where they differ.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer.errors import ApiError, QueueShutDown, TransportError
from aioinformer.informer import SharedInformerFactory, Updated
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.workqueue import RateLimitingQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client import Client
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = ["PodCounter", "app_of"]

WORKERS = 2


class PodCounter:
    """Keeps `data.running` of each app's config map at the number of its running pods.

    Args:
        client: Reads and writes; must be entered before the factory is.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.factory = SharedInformerFactory(client)
        self.pods = self.factory.informer(PODS, indexers={"app": app_of})
        self.maps = self.factory.informer(CONFIG_MAPS)
        self.queue: RateLimitingQueue[str] = RateLimitingQueue("apps")
        self.pod_events = 0
        self.map_events = 0
        self.reconciles = 0
        self.writes = 0
        self.retries = 0
        self.pods.on_event(self._pod_changed)
        self.maps.on_event(self._map_changed)

    async def run(self) -> None:
        """Work on the queue, until it is shut down and empty.

        Cancellation:
            Safe: what was in work is simply not finished.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"worker {number}")

    async def reconcile(self, key: str) -> None:
        """Make one config map say what it should.

        Args:
            key: `namespace/name` of the config map, which are those of the app.

        Raises:
            ApiError: The server refused the write.
            TransportError: The network failed.
        """
        config = self.maps.lister.get(key)
        if config is None:
            return

        running = self._running(key)
        if config.at("data.running") == running:
            return

        await self._client.patch(
            CONFIG_MAPS,
            config.name,
            {"data": {"running": running}},
            namespace=config.namespace,
        )
        self.writes += 1

    def wrong(self) -> list[str]:
        """The keys of the config maps that do not say what they should, sorted."""
        maps = self.maps.lister.list()
        wrong = (it for it in maps if it.at("data.running") != self._running(it.key))
        return sorted(config.key for config in wrong)

    def _running(self, key: str) -> str:
        pods = self.pods.lister.by_index("app", key)
        return str(sum(pod.at("status.phase") == "Running" for pod in pods))

    async def _work(self) -> None:
        while True:
            try:
                async with self.queue.item() as key:
                    await self._attempt(key)
            except QueueShutDown:
                return

    async def _attempt(self, key: str) -> None:
        try:
            await self.reconcile(key)
        except (ApiError, TransportError):
            self.retries += 1
            self.queue.add_rate_limited(key)
        else:
            self.reconciles += 1
            self.queue.forget(key)

    def _pod_changed(self, event: Notification) -> None:
        self.pod_events += 1
        obj = event.new if isinstance(event, Updated) else event.obj
        for app in app_of(obj):
            self.queue.add(app)

    def _map_changed(self, event: Notification) -> None:
        self.map_events += 1
        obj = event.new if isinstance(event, Updated) else event.obj
        self.queue.add(obj.key)


def app_of(pod: KubeObject) -> Iterable[str]:
    """Index function: the key of the app that a pod belongs to."""
    app = pod.labels.get("app")
    return () if app is None else (f"{pod.namespace}/{app}",)
