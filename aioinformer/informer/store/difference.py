"""`difference_of()`: the changes that a complete list makes to the stored objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioinformer.budget import LoopBudget
from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.informer.notifications import Added, Deleted, Notification, Updated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.objects import KubeObject

__all__ = ["Difference", "difference_of"]


class Difference(NamedTuple):
    """Changes made by a list: deletions, then the rest in list order."""

    changes: list[Notification]
    added: int
    deleted: int

    @property
    def updated(self) -> int:
        """Number of changed objects."""
        return len(self.changes) - self.added - self.deleted


async def difference_of(
    old: Mapping[str, KubeObject], new: Mapping[str, KubeObject], *, initial: bool
) -> Difference:
    """Compare the stored objects with a complete list, in slices."""
    changes: list[Notification] = []
    added = 0
    budget = LoopBudget.current()
    await budget.start()
    for key, before in old.items():
        now = new.get(key)
        if now is None or now.uid != before.uid:
            changes.append(Deleted(before, True))

        if budget.over():
            await budget.start()

    deleted = len(changes)
    for key, now in new.items():
        was = old.get(key)
        if was is None or was.uid != now.uid:
            changes.append(Added(now, initial))
            added += 1
        elif was is not now and not (same_state(was, now) and was == now):
            changes.append(Updated(was, now))

        if budget.over():
            await budget.start()

    budget.end()
    return Difference(changes, added, deleted)
