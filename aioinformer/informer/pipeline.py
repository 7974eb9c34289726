"""The pipeline: from the reflector through the queue into the store, then to handlers.

Everything that changes the store of an informer is here, in synchronous steps. A step
first changes the store and then queues what changed for the listeners, without a wait
between them: so a handler never finds the store behind what it is told, and a handler
that is added between two steps has seen exactly what the store held then.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget, release
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.informer.machine import same_state
from aioinformer.informer.notifications import Added, Deleted, Notification, Updated
from aioinformer.informer.processor import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.informer.processor import Processor
    from aioinformer.model.objects import KubeObject

__all__ = ["Pipeline"]

# Between two looks at the budget; a change takes about two microseconds.
_CHANGES_BETWEEN_CHECKS = 8

# Notifications in one batch of what a relist changed. A listener keeps a batch until it
# has delivered all of it, and with it the objects that were replaced.
_BATCH = 512


class Pipeline:
    """Takes what a reflector learns, keeps the store, tells the processor.

    It is the reflector's store, and owns no task: `run()` is its whole life.

    Args:
        indexer: The informer's store; nobody else may write to it.
        processor: Who is told.
        on_applied: Called after each step that changed the store; must not wait.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        processor: Processor,
        on_applied: Callable[[], None] = lambda: None,
    ) -> None:
        self._indexer = indexer
        self._processor = processor
        self._on_applied = on_applied
        self._fifo: DeltaFIFO[KubeObject] = DeltaFIFO(key_func=attrgetter("key"))
        self._staged: Contents[KubeObject] | None = None
        # The newest complete list that waits in the queue.
        self._committed: Contents[KubeObject] | None = None
        self.synced = False
        """The first complete list is in the store and in the listeners' queues."""
        self.duplicates = 0
        """Changes that repeated what the store holds, and were told to nobody."""

    @property
    def waiting(self) -> int:
        """Entries that wait to be applied."""
        return len(self._fifo)

    # ------------------------------------------------------------ the reflector's side

    def known(self, key: str) -> KubeObject | None:
        """The newest state that this was given for `key`, applied or still queued.

        None if there is none, or if it was deleted.
        """
        waiting = self._fifo.newest(key)
        if waiting is not None:
            return None if waiting.type is DeltaType.DELETED else waiting.object

        contents = self._committed or self._indexer.contents
        return contents.objects.get(key)

    async def stage(self, objects: list[KubeObject], *, anew: bool = False) -> None:
        """Take some objects of the list under way.

        What is in the store already, with the same uid and version, is kept: then the
        new bytes are let go at once, and a relist needs no second copy of everything.

        Args:
            objects: As the server gave them.
            anew: The same version may be another state: keep only what is equal.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._begin_staging()
        current = self._indexer.contents
        budget = LoopBudget.current()
        await budget.start()
        for obj in objects:
            key = obj.key
            old = current.objects.get(key)
            if old is not None and same_state(old, obj) and (not anew or old == obj):
                staged.keep(key, old, current)
            else:
                staged.put(key, obj)

            if budget.over():
                await budget.start()

        budget.end()

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Of the list under way, objects that are there but cannot be read.

        What the store holds of them stays, rather than seeming deleted.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        staged = self._begin_staging()
        current = self._indexer.contents
        for key in keys:
            old = current.objects.get(key)
            if old is not None:
                staged.keep(key, old, current)

    async def discard(self) -> None:
        """The list under way failed: forget what was staged.

        Cancellation:
            Safe: it is forgotten.
        """
        staged, self._staged = self._staged, None
        if staged is not None:
            await release(list(staged.objects.values()))

    def _begin_staging(self) -> Contents[KubeObject]:
        if self._staged is None:
            self._staged = self._indexer.replacement()

        return self._staged

    async def commit(self, resource_version: str) -> None:
        """The list is complete: what was staged is everything there is.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        staged = self._begin_staging()
        self._staged = None
        self._committed = staged
        await self._fifo.feed_replacement(staged, resource_version)

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Take changes, and the version up to which they bring everything.

        Cancellation:
            Safe: all of them are queued, or none.
        """
        await self._fifo.feed(deltas, resource_version)

    # ------------------------------------------------------------ the store's side

    async def run(self) -> NoReturn:
        """Apply what is queued, for ever.

        Cancellation:
            The way to stop it; what is queued then is not applied.
        """
        budget = LoopBudget.current()
        while True:
            await self._fifo.wait_filled()
            await budget.start()
            replacement = self._apply_changes(budget)
            budget.end()
            if replacement is not None:
                await self._apply_replacement(replacement)

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
            entry = fifo.take()
            if isinstance(entry, Replacement):
                replacement = entry
                break

            if entry.older is None:
                self._apply(entry, contents, notifications)
                until_check -= 1
            else:
                for delta in entry.oldest_first():
                    self._apply(delta, contents, notifications)
                    until_check -= 1

            if until_check <= 0:
                if budget.over():
                    break

                until_check = _CHANGES_BETWEEN_CHECKS

        if notifications:
            self._processor.publish(notifications)

        if replacement is None and (version := fifo.applied()) is not None:
            self._indexer.applied(version)

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

        contents.put(key, obj)
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
        old, new = self._indexer.contents, replacement.contents
        first = not self.synced
        changes: list[Notification] = []
        if old.objects and self._processor.listeners:
            changes = await _difference(old, new, initial=first)

        # Perhaps a newer one: that of a bookmark which came behind the list.
        version = self._fifo.applied() or replacement.resource_version
        self._indexer.swap(new, version)
        if self._committed is new:
            self._committed = None

        if not old.objects:
            content = Snapshot(list(new.objects.values()), initial=first)
            self._processor.publish(content)

        # In batches that go as they are delivered.
        for start in range(0, len(changes), _BATCH):
            self._processor.publish(changes[start : start + _BATCH])

        if first:
            self.synced = True
            self._processor.mark_synced()

        self._on_applied()

        # The old maps themselves stay whole, as a reader in another thread may be just
        # about to look into them.
        replaced = list(old.objects.values())
        del old
        await release(changes)
        await release(replaced)


async def _difference(
    old: Contents[KubeObject], new: Contents[KubeObject], *, initial: bool
) -> list[Notification]:
    """What changed between two complete states: deletions first, then in list order."""
    changes: list[Notification] = []
    budget = LoopBudget.current()
    await budget.start()
    for key, before in old.objects.items():
        now = new.objects.get(key)
        if now is None or now.uid != before.uid:
            changes.append(Deleted(before, True))

        if budget.over():
            await budget.start()

    for key, now in new.objects.items():
        was = old.objects.get(key)
        if was is None or was.uid != now.uid:
            changes.append(Added(now, initial))
        elif was is not now and not (same_state(was, now) and was == now):
            changes.append(Updated(was, now))

        if budget.over():
            await budget.start()

    budget.end()
    return changes
