"""A source whose server may filter by shard, on each connection or on some."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioinformer.watch import EventType, Selectors, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.testing import FakeListerWatcher
    from aioinformer.watch import ListOptions, ListPage, WatchEvent, WatchOptions


@dataclass
class ShardingServer:
    """A server that filters the lists and watches of a `FakeListerWatcher` by shard."""

    fake: FakeListerWatcher
    honours: Callable[[], bool] = lambda: True
    """Function that returns True for a connection that is filtered."""

    list_seconds: Callable[[], float] = lambda: 0.0
    """Function that returns the duration of a list."""

    lags: Callable[[int, int], int] = lambda least, newest: newest
    """Function that returns the version of a list that may be of a server behind."""

    watch_seconds: float = 0.0
    """Time until a watch is accepted."""

    lists: list[tuple[Selectors, ListOptions]] = field(default_factory=list)
    watches: list[tuple[Selectors, WatchOptions]] = field(default_factory=list)

    def source(self, selectors: Selectors) -> ShardingSource:
        return ShardingSource(self, self.fake.with_selectors(selectors))


class ShardingSource:
    """A source of a `ShardingServer`."""

    def __init__(self, server: ShardingServer, part: FakeListerWatcher) -> None:
        self.server = server
        self._part = part

    @property
    def resource(self) -> Resource:
        return self._part.resource

    @property
    def selectors(self) -> Selectors:
        return self._part.selectors

    def with_selectors(self, selectors: Selectors) -> ShardingSource:
        return self.server.source(selectors)

    def selects(self, obj: KubeObject) -> bool:
        return self._part.selects(obj)

    def sends(self, obj: KubeObject) -> bool:
        shards = self.selectors.shards
        return shards is None or shards.selects(obj)

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[ShardedFakePage]:
        self.server.lists.append((self.selectors, options))
        sharded = self.server.honours()
        if options.resource_version_match == "NotOlderThan":
            least, newest = map(
                int, (options.resource_version, self.server.fake.resource_version)
            )
            if least <= newest:
                version = str(self.server.lags(least, newest))
                options = replace(
                    options, resource_version=version, resource_version_match="Exact"
                )

        async with self._part.list(options) as page:
            await asyncio.sleep(self.server.list_seconds())
            yield ShardedFakePage(page, self if sharded else None)

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[Watch]:
        self.server.watches.append((self.selectors, options))
        await asyncio.sleep(self.server.watch_seconds)
        async with self._part.watch(options) as watch:
            if not self.server.honours():
                yield watch
                return

            async with ShardedFakeWatch(watch, self) as filtered:
                yield filtered


class ShardedFakePage:
    """A page of a list, filtered unless the source is None."""

    def __init__(self, page: ListPage, source: ShardingSource | None) -> None:
        self._page = page
        self._source = source
        self.skipped = 0
        self.unreadable: list[str] = []

    @property
    def sharded(self) -> bool:
        return self._source is not None

    @property
    def resource_version(self) -> str:
        return self._page.resource_version

    @property
    def continue_token(self) -> str:
        return self._page.continue_token

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        source = self._source
        async for objects in self._page:
            yield [it for it in objects if source is None or source.sends(it)]


class ShardedFakeWatch(Watch):
    """A watch whose events of other shards are not sent."""

    def __init__(self, watch: Watch, source: ShardingSource) -> None:
        super().__init__()
        self._watch = watch
        self._source = source

    async def _fetch(self) -> list[WatchEvent]:
        while events := await self._watch.next_batch():
            unfiltered: Any = (EventType.BOOKMARK, EventType.ERROR)
            kept = [
                it
                for it in events
                if it.type in unfiltered or self._source.sends(it.object)
            ]
            if kept:
                return kept

        return []

    def _close(self) -> None:
        self._watch.stop()
