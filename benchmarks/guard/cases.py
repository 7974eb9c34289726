"""Cases: the cost of one event on its way through the whole library.

Each case runs in two sizes. The difference of the counts is divided by the number of
additional events, so that the start does not count.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Protocol

from bench.queue_work import ReadSink, add_and_work, keys_of

from aioinformer.cache.index import index_by
from aioinformer.client.list_watch import ListWatch
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.resources import PODS
from aioinformer.workqueue.priority import PriorityQueue
from aioinformer.workqueue.queue import WorkQueue
from guard.feed import Feed
from guard.material import WATCHED_PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractContextManager

    from aioinformer.model.objects import KubeObject
    from guard.material import Material

__all__ = ["CASES", "Case", "Work"]

EVENTS_A_CHUNK = 16
EVENTS_OF_LISTENERS = 128
READ_AT_ONCE = 100
ADDS_A_TURN = 100
PRIORITIES = 4


class Work(Protocol):
    """Work of a case, with a part that counts."""

    def __call__(
        self, material: Material, size: int, counting: AbstractContextManager[object], /
    ) -> Coroutine[object, object, None]:
        """Do it in some size. Only the part inside of `counting` counts."""
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """Case to be counted.

    Attributes:
        name: Name of one event.
        sizes: Smaller and larger size.
        work: Work to be counted.
        events_of_one: Events per unit of size.
    """

    name: str
    sizes: tuple[int, int]
    work: Work
    events_of_one: int = 1

    @property
    def further_events(self) -> int:
        """Number of additional events in the larger size."""
        small, large = self.sizes
        return (large - small) * self.events_of_one


# ---------------------------------------------------------------- an informer


class Watcher:
    """Async handler that reports when it has seen enough changes.

    Args:
        enough: Number of changes.
        reads: True to read the body of each object.
        after_each: Called after each change.
    """

    def __init__(
        self,
        enough: int = 0,
        *,
        reads: bool = False,
        after_each: Callable[[], None] | None = None,
    ) -> None:
        self.added = 0
        self.changed = 0
        self.done = asyncio.Event()
        self._enough = enough
        self._reads = reads
        self._after_each = after_each

    async def on_add(self, obj: KubeObject) -> None:
        self.added += 1
        if self._reads:
            obj.at("status.phase")

    async def on_update(self, old: KubeObject, new: KubeObject) -> None:
        self.changed += 1
        if self.changed == self._enough:
            self.done.set()
        elif self._after_each is not None:
            self._after_each()


def informer_of(feed: Feed, *, indexed: bool = False) -> SharedInformer:
    indexers = {"node": index_by("spec.nodeName")} if indexed else None
    return SharedInformer(
        ListWatch(feed, PODS), name="pods", indexers=indexers, rng=random.Random(1)
    )


def chunked(events: list[bytes]) -> list[bytes]:
    return [
        b"".join(events[start : start + EVENTS_A_CHUNK])
        for start in range(0, len(events), EVENTS_A_CHUNK)
    ]


@asynccontextmanager
async def running(informer: SharedInformer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def at_rest() -> None:
    """Let all running tasks reach their next wait, so that nothing is in progress."""
    for _ in range(5):
        await asyncio.sleep(0)


async def a_list(
    material: Material,
    size: int,
    counting: AbstractContextManager[object],
    *,
    reads: bool,
) -> None:
    """Run a list of pods until the handler has seen them all."""
    feed = Feed(material.pods[:size])
    informer = informer_of(feed, indexed=reads)
    watcher = Watcher(reads=reads)
    handler = informer.add_event_handler(watcher.on_add, watcher.on_update)
    with counting:
        task = asyncio.create_task(informer.run())
        await handler.wait_synced()

    task.cancel()
    await asyncio.wait({task})
    assert watcher.added == len(informer.store) == size


async def a_watch(
    material: Material,
    size: int,
    counting: AbstractContextManager[object],
    *,
    alone: bool = False,
) -> None:
    """Run changes: 16 in each chunk, or each alone after the previous one was handled."""
    events = material.events[:size]
    chunks = events if alone else chunked(events)
    feed = Feed(material.pods[:WATCHED_PODS], chunks, alone=alone)
    informer = informer_of(feed)
    watcher = Watcher(size, after_each=feed.go if alone else None)
    handler = informer.add_event_handler(watcher.on_add, watcher.on_update)
    async with running(informer):
        await handler.wait_synced()
        await feed.watched.wait()
        with counting:
            feed.go()
            await watcher.done.wait()
            await at_rest()


async def listeners(
    material: Material, size: int, counting: AbstractContextManager[object]
) -> None:
    """Run changes for a number of handlers, besides the one that reports the end."""
    events = material.events[:EVENTS_OF_LISTENERS]
    feed = Feed(material.pods[:WATCHED_PODS], chunked(events))
    informer = informer_of(feed)
    seen = 0

    async def on_update(old: KubeObject, new: KubeObject) -> None:
        nonlocal seen
        seen += 1

    further = [informer.add_event_handler(on_update=on_update) for _ in range(size)]
    # The handler that is called last.
    watcher = Watcher(len(events))
    last = informer.add_event_handler(watcher.on_add, watcher.on_update)
    async with running(informer):
        await last.wait_synced()
        for each in further:
            await each.wait_synced()

        await feed.watched.wait()
        with counting:
            feed.go()
            await watcher.done.wait()

    assert seen == size * len(events)


async def reads_by_index(
    material: Material, size: int, counting: AbstractContextManager[object]
) -> None:
    """Run reads of 100 objects by an index, through a lister."""
    informer = informer_of(Feed(material.pods))
    numbers = (number // READ_AT_ONCE for number in range(len(material.pods)))
    informer.add_indexers({"hundred": lambda _: [str(next(numbers))]})
    async with running(informer):
        await informer.wait_synced()
        by_index = informer.lister.by_index
        assert len(by_index("hundred", "0")) == READ_AT_ONCE
        with counting:
            for _ in range(size):
                by_index("hundred", "0")


# ---------------------------------------------------------------- queues


async def a_queue(
    material: Material,
    size: int,
    counting: AbstractContextManager[object],
    *,
    make: Callable[[], Adding],
) -> None:
    """Run keys through a queue: some added in each turn of the loop, and one worker."""
    queue, add = make()
    keys = keys_of(size)

    async def work() -> None:
        for _ in keys:
            queue.done(await queue.get())

    with counting:
        await add_and_work(keys, add, work, adds_a_turn=ADDS_A_TURN)

    assert await queue.shut_down_with_drain() == frozenset()


Adding = tuple[WorkQueue[str], "Callable[[str], object]"]
"""Queue, and the function that adds a key."""


def plain_queue() -> Adding:
    queue = WorkQueue[str]("guard")
    return queue, queue.add


def measured_queue() -> Adding:
    queue = WorkQueue[str]("guard", metrics=ReadSink())
    return queue, queue.add


def priority_queue() -> Adding:
    queue = PriorityQueue[str]("guard")
    priorities = cycle(range(PRIORITIES))
    return queue, lambda key: queue.add(key, next(priorities))


# ---------------------------------------------------------------- all of it

# Small, because a counted instruction takes as long as fifty others.
A_LIST = (48, 96)
A_LIST_READ = (32, 64)
A_WATCH = (64, 128)
ALONE = (16, 32)
LISTENERS = (2, 4)
READS = (20, 40)
A_QUEUE = (200, 400)

CASES = [
    Case(
        name="a listed pod",
        sizes=A_LIST,
        work=partial(a_list, reads=False),
    ),
    Case(
        name="a listed pod, index and handler read its body",
        sizes=A_LIST_READ,
        work=partial(a_list, reads=True),
    ),
    Case(name="an event, 16 in a chunk", sizes=A_WATCH, work=a_watch),
    Case(
        name="an event, alone in its chunk",
        sizes=ALONE,
        work=partial(a_watch, alone=True),
    ),
    Case(
        name="an event for one more listener",
        sizes=LISTENERS,
        work=listeners,
        events_of_one=EVENTS_OF_LISTENERS,
    ),
    Case(
        name="WorkQueue: add, get, done",
        sizes=A_QUEUE,
        work=partial(a_queue, make=plain_queue),
    ),
    Case(
        name="WorkQueue with metrics: add, get, done",
        sizes=A_QUEUE,
        work=partial(a_queue, make=measured_queue),
    ),
    Case(
        name="PriorityQueue: add, get, done",
        sizes=A_QUEUE,
        work=partial(a_queue, make=priority_queue),
    ),
    Case(name="a read of 100 by index", sizes=READS, work=reads_by_index),
]
