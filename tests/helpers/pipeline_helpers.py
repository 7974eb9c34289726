"""A pipeline between a test and a handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contents_helpers import use_disk
from fake_source import states_of
from informer_helpers import Stage

from aioinformer.cache import Delta, DeltaType, Indexer, index_by
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.informer.store.transformer import Transformer
from aioinformer.informer.store.waiters import StoreWaiters

if TYPE_CHECKING:
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject
    from aioinformer.model.compression import Compression
    from aioinformer.model.transforms import Transform


class Rig:
    """A pipeline between a test and a handler."""

    def __init__(
        self,
        transform: Transform | None = None,
        compression: Compression | None = None,
        env: Environment | None = None,
    ) -> None:
        self.indexer: Indexer[KubeObject] = Indexer(
            {"node": index_by("spec.nodeName")}, key_func=lambda obj: obj.key
        )
        self._copies = env is not None
        if env is not None:
            use_disk(self.indexer, env)

        self.processor = Stage()
        self.events: list[Notification] = []
        self.steps = 0
        self.failures: list[HandlerError] = []
        self.transforming = Transformer(ErrorReporter("pods", self.failures.append))
        self.transforming.function = transform
        self.compressing = BodyCompressor(compression, "pods")
        self.waiters = StoreWaiters()
        self.pipeline = Pipeline(
            self.indexer,
            self.processor,
            waiters=self.waiters,
            transformer=self.transforming,
            compressor=self.compressing,
        )
        self.processor.listen(self.events.append)
        self._publish = self.processor.publish
        self.processor.publish = self._count  # type: ignore[method-assign]

    def _count(self, batch: Batch, arrived: float | None = None) -> None:
        self.steps += 1
        self._publish(batch, arrived)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.processor.run())
            group.create_task(self.pipeline.run())

    async def relist(self, *objects: KubeObject, version: int) -> None:
        """Pass a complete list to the pipeline, in pieces of two."""
        for start in range(0, len(objects), 2):
            await self.pipeline.stage([*objects[start : start + 2]])

        await self.pipeline.commit(str(version))

    async def change(self, *deltas: Delta[KubeObject], version: int | str = "") -> None:
        await self.pipeline.feed([*deltas], str(version))

    async def applied(self) -> None:
        """Wait until all changes are applied and delivered."""
        await asyncio.sleep(0.001)
        await self.processor.drained()

    def take(self) -> list[Notification]:
        """Return the notifications since the last call."""
        events = list(self.events)
        self.events.clear()
        return events

    def has(self, obj: KubeObject) -> bool:
        """Return True if an object is stored: itself, unless the store copies objects."""
        stored = self.indexer.get_by_key(obj.key)
        return stored is obj or (self._copies and stored == obj)

    @property
    def holds(self) -> list[str]:
        return states_of(self.indexer.list())


def add(obj: KubeObject) -> Delta[KubeObject]:
    return Delta(DeltaType.ADDED, obj)


def update(obj: KubeObject) -> Delta[KubeObject]:
    return Delta(DeltaType.UPDATED, obj)


def delete(obj: KubeObject) -> Delta[KubeObject]:
    return Delta(DeltaType.DELETED, obj)


class View:
    """A handler that tracks objects, and records contradictions in `broken`."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.broken: list[str] = []

    def __call__(self, event: Notification) -> None:
        match event:
            case Added(obj=obj):
                self._check(obj.key, None)
                self.objects[obj.key] = obj.resource_version
            case Updated(old=old, new=new):
                self._check(old.key, old.resource_version)
                self.objects[new.key] = new.resource_version
            case Deleted(obj=obj, final_state_unknown=unknown):
                if unknown or obj.key not in self.objects:
                    self._check(obj.key, obj.resource_version)

                self.objects.pop(obj.key, None)

    def _check(self, key: str, version: str | None) -> None:
        if self.objects.get(key) != version:
            self.broken.append(f"{key}: knew {self.objects.get(key)}, not {version}")
