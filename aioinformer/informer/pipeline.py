"""The pipeline: from the reflector through the queue into the store, then to handlers.

Everything that changes the store of an informer is here, in synchronous steps. A step
first changes the store and then queues what changed for the listeners, without a wait
between them: so a handler never finds the store behind what it is told, and a handler
that is added between two steps has seen exactly what the store held then. Index functions
that fail are reported when the step is over, as `on_error` may add such a handler.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aioinformer.budget import LoopBudget, release
from aioinformer.cache.deltas import DeltaType, Replacement
from aioinformer.informer.inbox import Snapshot
from aioinformer.informer.intake import Intake
from aioinformer.informer.notifications import (
    Added,
    Deleted,
    Notification,
    Updated,
    object_of,
)
from aioinformer.informer.sifting import same_state
from aioinformer.informer.waiting import Waiting
from aioinformer.metrics import NULL_SINK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from aioinformer.cache.deltas import Delta
    from aioinformer.cache.queue import Queue
    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.informer.compressing import Compressing
    from aioinformer.informer.processor import Processor
    from aioinformer.informer.transforming import Transforming
    from aioinformer.metrics import MetricsSink
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.views import DecodedBodies

__all__ = ["Pipeline"]

SWEEP_SECONDS = 0.5
"""So long after a change, decoded bodies are looked through for those of gone objects:
for each change alone that would take 5 microseconds."""

# Between two looks at the budget; a change takes about two microseconds.
_CHANGES_BETWEEN_CHECKS = 8

# Notifications in one batch of what a relist changed. A listener keeps a batch until it
# has delivered all of it, and with it the objects that were replaced.
_BATCH = 512


class Pipeline(Intake):
    """Takes what a reflector learns, keeps the store, tells the processor.

    It is the reflector's store, and owns no task: `run()` is its whole life.

    Args:
        indexer: The informer's store; nobody else may write to it.
        processor: Who is told.
        on_applied: Called after each step that changed the store; must not wait.
        transforming: The user's transform, which may be set later, before `run()`.
        queue: What is between the reflector and the store; a `DeltaFIFO` if left out.
        waiting: Who waits for what the store shows; told in the step that changes it.
        compressing: What makes the objects smaller that are stored.
        metrics: Takes `informer_processing_latency_seconds`: the time from taking a
            batch of changes, or a list, until it is applied.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        processor: Processor,
        on_applied: Callable[[], None] = lambda: None,
        transforming: Transforming | None = None,
        queue: Queue[KubeObject] | None = None,
        waiting: Waiting | None = None,
        compressing: Compressing | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        super().__init__(indexer, transforming, queue, compressing)
        self._metrics = metrics
        self._processor = processor
        self._on_applied = on_applied
        self._waiting = Waiting() if waiting is None else waiting
        # Those of the objects of the last list; None before there is any object.
        self._decoded: DecodedBodies | None = None
        # Set while unused bodies may be in there.
        self._sweep: asyncio.TimerHandle | None = None
        self.synced = False
        """The first complete list is in the store and in the listeners' queues."""

    @property
    def version(self) -> str:
        """The version up to which everything it was given is applied."""
        return self._indexer.resource_version

    async def run(self) -> NoReturn:
        """Apply what is queued, for ever.

        Cancellation:
            The way to stop it; what is queued then is not applied.
        """
        budget = LoopBudget.current()
        apply = self._apply_timed if self._metrics.enabled else self._apply_waiting
        try:
            while True:
                await self._fifo.wait_filled()
                await apply(budget)
        finally:
            if self._sweep is not None:
                self._sweep.cancel()
                self._sweep = None

    async def _apply_timed(self, budget: LoopBudget) -> None:
        """Apply a part of what is queued, and measure how long that took."""
        began = perf_counter()
        await self._apply_waiting(budget)
        name = "informer_processing_latency_seconds"
        self._metrics.observe(name, perf_counter() - began)

    async def _apply_waiting(self, budget: LoopBudget) -> None:
        """Apply a part of what is queued: some changes, or up to one complete list."""
        await budget.start()
        indexer = self._indexer
        indexer.holding = True  # see `hold_reports()`; this is once for each change
        try:
            replacement = self._apply_changes(budget)
        finally:
            indexer.holding = False
            if indexer.held:
                indexer.release_reports()

        budget.end()
        if replacement is not None:
            await self._apply_replacement(replacement)
            del replacement

        decoded = self._decoded
        if decoded is not None and decoded.bodies and self._sweep is None:
            self._sweep_later()

    def _note_decoded(self, obj: KubeObject) -> None:
        """Know the cache of decoded bodies of an object, and of those like it."""
        self._decoded = obj.context.decoded_bodies

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._drop_decoded)

    def _drop_decoded(self) -> None:
        """Drop the decoded bodies of objects that are gone, when nobody has them."""
        self._sweep = None
        if self._decoded is not None:
            self._decoded.drop_unused()

        # A handler that compares two states reads the older one, too.
        if any(listener.depth for listener in self._processor.listeners):
            self._sweep_later()

    def _apply_changes(self, budget: LoopBudget) -> Replacement[KubeObject] | None:
        """Apply entries until the slice is over, or up to a replacement.

        Atomic: store, listeners' queues and version change together.
        """
        notifications: list[Notification] = []
        replacement: Replacement[KubeObject] | None = None
        fifo = self._fifo
        contents = self._indexer.contents
        until_check = _CHANGES_BETWEEN_CHECKS
        while len(fifo):
            entry: Any = fifo.pop_nowait()  # `feed()` queues no tombstones
            if type(entry) is not list:
                if isinstance(entry, Replacement):
                    replacement = entry
                    break

                continue  # a resync: each handler has its own, by its own timer

            for delta in entry:
                self._apply(delta, contents, notifications)
                until_check -= 1

            if until_check <= 0:
                if budget.over():
                    break

                until_check = _CHANGES_BETWEEN_CHECKS

        if notifications:
            if self._decoded is None:
                self._note_decoded(object_of(notifications[0]))

            self._processor.publish(notifications)
            self._waiting.changed(notifications)

        if replacement is None and (version := fifo.applied()) is not None:
            self._indexer.applied(self._reached(version))

        self._on_applied()
        return replacement

    def _apply(
        self,
        delta: Delta[KubeObject],
        contents: Contents[KubeObject],
        notifications: list[Notification],
    ) -> None:
        """Change the store by one change, and note what is to be told."""
        obj = delta.object
        key = obj.key
        old = contents.objects.get(key)
        if delta.type is DeltaType.DELETED:
            if old is not None:
                contents.remove(key)
                seen = old.uid == obj.uid
                notifications.append(Deleted(obj if seen else old, not seen))

            return

        if old is not None and same_state(old, obj):
            # As when the page of a list is newer than the version of the list.
            self.duplicates += 1
            return

        taken, obj = obj, self._compressing(obj)
        contents.put(key, obj, taken)
        if old is None:
            notifications.append(Added(obj))
        elif old.uid == obj.uid:
            notifications.append(Updated(old, obj))
        else:
            # Its end was not seen: another object of that name is there now.
            notifications.append(Deleted(old, True))
            notifications.append(Added(obj))

    async def _apply_replacement(self, replacement: Replacement[KubeObject]) -> None:
        """Put a complete list in place of everything, and tell what changed.

        What takes time comes first. Then store and listeners' queues change in one step,
        so that whoever leaves the informer once the store shows a list has its handlers
        told of all of it.
        """
        new = replacement.contents
        now = await self._completed(new)
        before = self._mine(self._indexer.contents)
        first = not self.synced
        changes: list[Notification] = []
        if before and self._processor.listeners:
            changes = await _difference(before, now, initial=first)

        # Perhaps a newer one: that of a bookmark which came behind the list.
        version = self._fifo.applied() or replacement.resource_version
        self._indexer.hold_reports()
        try:
            self._indexer.swap(new, self._reached(version))
            if self._committed is new:
                self._committed = None

            if not before:
                self._processor.publish(Snapshot(list(now.values()), initial=first))

            # In batches that go as they are delivered.
            for start in range(0, len(changes), _BATCH):
                self._processor.publish(changes[start : start + _BATCH])

            for obj in now.values():
                self._note_decoded(obj)
                break

            self._waiting.replaced(before, now)
            if first:
                self.synced = True
                self._mark_synced()

            self._on_applied()
        finally:
            self._indexer.release_reports()

        # The old maps themselves stay whole, as a reader in another thread may be just
        # about to look into them.
        replaced = list(before.values())
        del before
        await release(changes)
        await release(replaced)

    # ------------------------------------------------------------ a part of a store

    # Here a pipeline fills all of its store. What follows differs where each of several
    # pipelines fills a part.

    def _mine(self, contents: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        """The objects that a list of ours takes the place of."""
        return contents.objects

    async def _completed(self, new: Contents[KubeObject]) -> Mapping[str, KubeObject]:
        """Make of a list what the store is to hold; returns the objects of the list."""
        await self._indexer.complete(new)
        return new.objects

    def _reached(self, version: str) -> str:
        """All of ours is applied up to a version; returns the version of the store."""
        return version

    def _mark_synced(self) -> None:
        """Our first list is in the store and in the listeners' queues."""
        self._processor.mark_synced()


async def _difference(
    old: Mapping[str, KubeObject], new: Mapping[str, KubeObject], *, initial: bool
) -> list[Notification]:
    """What changed between two complete states: deletions first, then in list order."""
    changes: list[Notification] = []
    budget = LoopBudget.current()
    await budget.start()
    for key, before in old.items():
        now = new.get(key)
        if now is None or now.uid != before.uid:
            changes.append(Deleted(before, True))

        if budget.over():
            await budget.start()

    for key, now in new.items():
        was = old.get(key)
        if was is None or was.uid != now.uid:
            changes.append(Added(now, initial))
        elif was is not now and not (same_state(was, now) and was == now):
            changes.append(Updated(was, now))

        if budget.over():
            await budget.start()

    budget.end()
    return changes
