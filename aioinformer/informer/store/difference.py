"""Changes of the stored objects by a complete list, and by another selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioinformer.budget import LoopBudget
from aioinformer.cache.interface import Comparable
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.informer.notifications import MOVED, Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

    _Steps = Iterator[tuple[str, KubeObject | None, KubeObject | None] | None]

__all__ = ["Difference", "difference_of", "unselected"]

# Number of notifications in a batch. A listener keeps a batch, and the replaced objects in
# it, until it has delivered all of it. All batches are queued in one step.
_BATCH = 256

# The same for objects on disk. A journal writes such a batch in a millisecond.
_BATCH_ON_DISK = 64

# Unchanged objects between two checks of the budget, at a tenth of a microsecond each.
_OBJECTS_IN_A_STEP = 64


class Difference(NamedTuple):
    """Numbers of the objects that a list has changed."""

    added: int
    updated: int
    deleted: int

    def __bool__(self) -> bool:
        return any(self)

    def __str__(self) -> str:
        return f"added={self.added} updated={self.updated} deleted={self.deleted}"


async def difference_of(
    old: Mapping[str, KubeObject],
    new: Mapping[str, KubeObject],
    take: Callable[[list[Notification]], None],
    *,
    initial: bool,
    selects: Callable[[KubeObject], bool] | None = None,
) -> Difference:
    """Compare the stored objects with a complete list, in slices.

    Objects in memory give deletions first, then the rest in list order.

    Args:
        old: Stored objects.
        new: Objects of the list.
        take: Function called with the changes, in batches.
        initial: True if new objects are initial ones.
        selects: Function of the selection of the list, if it is not that of the stored
            objects. Those that it does not select have moved.
    """
    added = updated = deleted = 0
    batch: list[Notification] = []
    steps: _Steps
    if isinstance(old, Comparable):
        steps, size = old.differences(new), _BATCH_ON_DISK
    else:
        steps, size = _differences(old, new), _BATCH

    budget = LoopBudget.current()
    await budget.start()
    for step in steps:
        if step is not None:
            _, was, now = step
            if was is not None and now is not None and was.uid == now.uid:
                if not (same_state(was, now) and was == now):
                    batch.append(Updated(was, now))
                    updated += 1
            else:
                if was is not None:
                    batch.append(_deletion(was, now, selects))
                    deleted += 1

                if now is not None:
                    batch.append(Added(now, initial))
                    added += 1

        if len(batch) >= size:
            take(batch)
            batch = []

        if budget.over():
            await budget.start()

    if batch:
        take(batch)

    budget.end()
    return Difference(added, updated, deleted)


async def unselected(
    objects: list[KubeObject], selects: Callable[[KubeObject], bool]
) -> list[KubeObject]:
    """Return the objects that a selection does not have, in slices."""
    budget = LoopBudget.current()
    await budget.start()
    found = []
    for obj in objects:
        if not selects(obj):
            found.append(obj)

        if budget.over():
            await budget.start()

    budget.end()
    return found


def _deletion(
    was: KubeObject,
    now: KubeObject | None,
    selects: Callable[[KubeObject], bool] | None,
) -> Deleted:
    if now is None and selects is not None and not selects(was):
        return Deleted(was, False, MOVED)

    return Deleted(was, True)


def _differences(
    old: Mapping[str, KubeObject], new: Mapping[str, KubeObject]
) -> _Steps:
    """Yield what `Comparable.differences` does, for objects in memory."""
    left = _OBJECTS_IN_A_STEP
    for key, was in old.items():
        now = new.get(key)
        if now is None or now.uid != was.uid:
            yield key, was, None

        left -= 1
        if not left:
            left = _OBJECTS_IN_A_STEP
            yield None

    for key, listed in new.items():
        known = old.get(key)
        if known is not listed:
            replaced = known is not None and known.uid != listed.uid
            yield key, None if replaced else known, listed

        left -= 1
        if not left:
            left = _OBJECTS_IN_A_STEP
            yield None
