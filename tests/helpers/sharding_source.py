"""A source whose server may filter by shard, on each connection or on some."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from aioinformer.watch import EventType, Selectors, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.testing import FakeListerWatcher
    from aioinformer.watch import ListOptions, ListPage, WatchEvent, WatchOptions


class ShardingSource:
    """A `FakeListerWatcher` in front of which a server filters by shard.

    Args:
        fake: Source of the objects.
        honours: Function that returns True for a connection that is filtered.
        list_seconds: Function that returns the duration of a list.
    """

    def __init__(
        self,
        fake: FakeListerWatcher,
        honours: Callable[[], bool] = lambda: True,
        list_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.fake = fake
        self.honours = honours
        self.list_seconds = list_seconds
        self.lists: list[tuple[Selectors, ListOptions]] = []
        self.watches: list[tuple[Selectors, WatchOptions]] = []
        self._part = fake.with_selectors(Selectors())

    @property
    def resource(self) -> Resource:
        return self.fake.resource

    @property
    def selectors(self) -> Selectors:
        return self._part.selectors

    def with_selectors(self, selectors: Selectors) -> Self:
        other = copy(self)
        other._part = self.fake.with_selectors(selectors)
        return other

    def selects(self, obj: KubeObject) -> bool:
        return self._part.selects(obj)

    def sends(self, obj: KubeObject) -> bool:
        shards = self.selectors.shards
        return shards is None or shards.selects(obj)

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[ShardedFakePage]:
        self.lists.append((self.selectors, options))
        sharded = self.honours()
        async with self._part.list(options) as page:
            await asyncio.sleep(self.list_seconds())
            yield ShardedFakePage(page, self if sharded else None)

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[Watch]:
        self.watches.append((self.selectors, options))
        async with self._part.watch(options) as watch:
            if not self.honours():
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
