"""The pipeline: from the reflector through the queue into the store, then to handlers.

Everything that changes the store of an informer is here, in synchronous steps. A step
first changes the store and then queues what changed for the listeners, without a wait
between them: so a handler never finds the store behind what it is told, and a handler
that is added between two steps has seen exactly what the store held then.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import Delta, DeltaType, Replacement
from aioinformer.informer.notifications import Added, Deleted, Notification, Updated
from aioinformer.informer.processor import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from aioinformer.cache.store import Contents, Indexer
    from aioinformer.informer.processor import Processor
    from aioinformer.model.objects import KubeObject

__all__ = ["Pipeline"]

# Between two looks at the budget; an entry takes about a microsecond.
_ENTRIES_BETWEEN_CHECKS = 8


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

    async def stage(self, objects: list[KubeObject]) -> None:
        """Take some objects of the list under way.

        What is in the store already, with the same uid and version, is kept: then the
        new bytes are let go at once, and a relist needs no second copy of everything.

        Cancellation:
            Leaves the list incomplete: `discard()` it.
        """
        if self._staged is None:
            self._staged = self._indexer.replacement()

        staged = self._staged
        current = self._indexer.contents
        budget = LoopBudget.current()
        await budget.start()
        for obj in objects:
            key = obj.key
            old = current.objects.get(key)
            if old is not None and _same_state(old, obj):
                staged.keep(key, old, current)
            else:
                staged.put(key, obj)

            if budget.over():
                await budget.start()

        budget.end()

    def discard(self) -> None:
        """The list under way failed: forget what was staged."""
        self._staged = None

    async def commit(self, resource_version: str) -> None:
        """The list is complete: what was staged is everything there is.

        Cancellation:
            Safe: it is queued, or it is not.
        """
        staged = self._staged or self._indexer.replacement()
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
                await self._apply_replacement(replacement, budget)

    def _apply_changes(self, budget: LoopBudget) -> Replacement[KubeObject] | None:
        """Apply entries until the slice is over, or up to a replacement.

        Atomic: store, listeners' queues and version change together.
        """
        notifications: list[Notification] = []
        replacement: Replacement[KubeObject] | None = None
        fifo = self._fifo
        contents = self._indexer.contents
        until_check = _ENTRIES_BETWEEN_CHECKS
        while len(fifo):
            entry = fifo.take()
            if isinstance(entry, Replacement):
                replacement = entry
                break

            if entry.older is None:
                _apply(entry, contents, notifications)
            else:
                for delta in entry.oldest_first():
                    _apply(delta, contents, notifications)

            until_check -= 1
            if not until_check:
                if budget.over():
                    break

                until_check = _ENTRIES_BETWEEN_CHECKS

        if notifications:
            self._processor.publish(notifications)

        if replacement is None and (version := fifo.applied()) is not None:
            self._indexer.applied(version)

        self._on_applied()
        return replacement

    async def _apply_replacement(
        self, replacement: Replacement[KubeObject], budget: LoopBudget
    ) -> None:
        """Put a complete list in place of everything, then tell what changed.

        The store changes in one step. Listeners added after it have seen the new
        content as their snapshot, so only those from before are told the difference.
        """
        targets = self._processor.listeners
        new = replacement.contents
        # Perhaps a newer one: that of a bookmark which came behind the list.
        version = self._fifo.applied() or replacement.resource_version
        old = self._indexer.swap(new, version)
        if self._committed is new:
            self._committed = None

        self._on_applied()

        first = not self.synced
        batch: list[Notification] | Snapshot
        if first and not old.objects:
            batch = Snapshot(list(new.objects.values()))
        else:
            batch = await _difference(old, new, budget, initial=first)

        self._processor.publish(batch, targets)
        if first:
            self.synced = True
            self._processor.mark_synced()

        self._on_applied()

        # Free what was replaced in slices: all at once it would be a stall of its own.
        # The old maps themselves stay whole, as a reader in another thread may be just
        # about to look into them.
        replaced = list(old.objects.values())
        del old, batch
        await budget.start()
        while replaced:
            replaced.pop()
            if budget.over():
                await budget.start()

        budget.end()


def _apply(
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

    contents.put(key, obj)
    if old is None:
        notifications.append(Added(obj))
    elif old.uid == obj.uid:
        notifications.append(Updated(old, obj))
    else:
        # Its end was not seen: another object of that name is there now.
        notifications.append(Deleted(old, True))
        notifications.append(Added(obj))


async def _difference(
    old: Contents[KubeObject],
    new: Contents[KubeObject],
    budget: LoopBudget,
    *,
    initial: bool,
) -> list[Notification]:
    """What changed between two complete states: deletions first, then in list order."""
    changes: list[Notification] = []
    await budget.start()
    for key, before in old.objects.items():
        now = new.objects.get(key)
        if now is None or now.uid != before.uid:
            changes.append(Deleted(before, True))

        if budget.over():
            await budget.start()

    for key, now in new.objects.items():
        before_or_none = old.objects.get(key)
        if before_or_none is None or before_or_none.uid != now.uid:
            changes.append(Added(now, initial))
        elif before_or_none is not now and not _same_state(before_or_none, now):
            changes.append(Updated(before_or_none, now))

        if budget.over():
            await budget.start()

    budget.end()
    return changes


def _same_state(one: KubeObject, other: KubeObject) -> bool:
    return (
        one.resource_version == other.resource_version
        and one.uid == other.uid
        and bool(one.resource_version)
    )
