"""Restarts of a program whose store stays: in memory, as if it were on disk."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from aioinformer.cache import Indexer
from aioinformer.client import ListWatch
from aioinformer.informer.handlers.processor import Processor
from aioinformer.informer.listwatch.interface import Resume
from aioinformer.informer.listwatch.reflector import Reflector
from aioinformer.informer.store.pipeline import Pipeline

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.list_watch import HTTPListPage
    from aioinformer.model import KubeObject
    from aioinformer.watch import ListOptions, StreamWatch, WatchOptions

__all__ = ["Program", "Recorded", "Store"]


class Store:
    """A store that outlives the programs that write it, like one on disk."""

    def __init__(self) -> None:
        self.indexer: Indexer[KubeObject] = Indexer(key_func=attrgetter("key"))
        self.cluster = ""
        self.listed = False

    @property
    def objects(self) -> dict[str, tuple[str, str]]:
        """Return uids and versions by key."""
        return {it.key: (it.uid, it.resource_version) for it in self.indexer.list()}


class Recorded(ListWatch):
    """A source that records its requests: `uid`, `list`, `check`, `watch`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.requests: list[str] = []

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[HTTPListPage]:
        self.requests.append("check" if options.limit == 1 else "list")
        return super().list(options)

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[StreamWatch]:
        self.requests.append("watch")
        return super().watch(options)

    async def cluster_uid(self) -> str:
        self.requests.append("uid")
        return await super().cluster_uid()


class Program:
    """One run of a reflector and its pipeline."""

    def __init__(self, store: Store, source: ListWatch) -> None:
        self.store = store
        self.pipeline = Pipeline(store.indexer, Processor(), self._synced)
        version = store.indexer.resource_version if store.listed else ""
        if version:
            self.pipeline.resume(version)

        resume = Resume(
            version=version,
            comparable=bool(version) or not store.listed,
            cluster=store.cluster,
            on_cluster=self._found,
            on_confirmed=self.pipeline.confirm,
        )
        self.reflector = Reflector(source, self.pipeline, resume=resume, name="pods")
        self.began = asyncio.get_running_loop().time()
        self.synced_after: float | None = None

    def _found(self, uid: str) -> None:
        store = self.store
        if uid and uid != store.cluster:
            # Until the list is complete, nothing may be resumed.
            store.indexer.applied("")

        store.cluster = uid

    def _synced(self) -> None:
        self.store.listed = True
        self.synced_after = asyncio.get_running_loop().time() - self.began

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pipeline.run())
            group.create_task(self.reflector.run())

    async def until_synced(self) -> None:
        async with asyncio.timeout(300):
            while self.synced_after is None:
                await asyncio.sleep(0.1)
