"""Informers with a history of states, and readers of the dashboard's feeds."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from informer_helpers import Even, running

from aioinformer import KubeObject, SharedInformer
from aioinformer.testing import FakeListerWatcher
from aioinformer.web.dashboard.states import MAX_BYTES, StateHistory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer import Resource

    Feed = Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]

__all__ = ["FeedReader", "Followed", "fill", "followed", "named", "unreadable"]


def named(name: str, **more: Any) -> dict[str, Any]:
    """Make an object of the namespace `shop`."""
    metadata = {"name": name, "namespace": "shop"} | more.pop("metadata", {})
    return {"metadata": metadata, **more}


def fill(informer: SharedInformer, count: int) -> None:
    """Put this many further objects into the store of an informer."""
    names = (f"filler-{number}" for number in range(count))
    objects = [KubeObject.of(named(it)) for it in names]
    informer.indexer.replace([*informer.indexer.list(), *objects])


def unreadable(name: str) -> KubeObject:
    """Make an object of the namespace `shop` as an informer stores it, but broken."""
    like = KubeObject.of(named(name))
    text = '{"ownerReferences":"u1","broken'
    return KubeObject(text.encode(), like.key, name, "1", {}, like.context)


class Followed:
    """Informer of a fake source, whose states are kept."""

    def __init__(
        self, source: FakeListerWatcher, history: StateHistory, **options: Any
    ) -> None:
        self.source = source
        self.history = history
        self.informer = SharedInformer(source, name="pods", rng=Even(), **options)

    async def settled(self) -> None:
        """Wait until the informer has all changes, and the history, too."""
        await self.informer.wait_for_version(self.source.resource_version, timeout=300)
        await asyncio.sleep(0.01)

    def changes(self, name: str) -> list[str]:
        """Return the changes of an object by number, with forgotten ones first."""
        timeline = self.history.timeline(self.informer, f"shop/{name}")
        shown = [f"{it.number} {it.change}" for it in timeline.states]
        return ["..."] * (timeline.forgotten + timeline.earlier) + shown


@asynccontextmanager
async def followed(
    *objects: dict[str, Any],
    resource: Resource | None = None,
    max_bytes: int = MAX_BYTES,
    **options: Any,
) -> AsyncIterator[Followed]:
    """Run an informer of these objects with a history."""
    chosen = {} if resource is None else {"resource": resource}
    source = FakeListerWatcher(*objects, **chosen)
    one = Followed(source, StateHistory(max_bytes), **options)
    one.history.follow(one.informer)
    async with running(one.informer.run()):
        await one.informer.wait_synced(timeout=30)
        yield one
        one.history.close()


class FeedReader:
    """Reader of a feed, with the events that it was sent and their times."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.events: list[Any] = []
        self.times: list[float] = []
        self.chunks: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()

    @property
    def last(self) -> Any:
        return self.events[-1]

    async def send(self, chunk: bytes) -> None:
        await self.open.wait()
        name, data, *rest = chunk.decode().split("\n")
        assert rest == ["", ""]
        assert name == "event: object"
        self.chunks.append(chunk)
        self.times.append(asyncio.get_running_loop().time())
        self.events.append(json.loads(data.removeprefix("data: ")))

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[FeedReader]:
        """Read until the end of the block, from the first event on."""
        feed: Any = self._feed(self.send)
        async with running(feed):
            async with asyncio.timeout(30):
                while not self.events:
                    await asyncio.sleep(0.01)

            yield self
