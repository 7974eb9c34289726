"""Plain and slow model of the notifications of a handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.notifications import object_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

Store = dict[str, "KubeObject"]


@dataclass
class Item:
    """A queued notification, numbered in the order of `put`."""

    number: int
    since: float
    event: Notification | None
    is_resync: bool = False
    last_of_resync: bool = False

    @property
    def key(self) -> str:
        return object_of(self.event).key if self.event is not None else ""


class HandlerModel:
    """Model of one handler: its queue, and its notifications.

    Args:
        store: Stored objects.
        accepts: Filter, or None.
        coalesce: True to merge queued notifications.
        crowded: Number of notifications that are merged at once.
    """

    def __init__(
        self,
        store: Store,
        accepts: Callable[[KubeObject], bool] | None,
        *,
        coalesce: bool,
        crowded: int,
    ) -> None:
        self.store = store
        self.accepts = accepts
        self.coalesce = coalesce
        self.crowded = crowded
        self.put_so_far = 0
        self.raw: list[Item] = []
        self.waiting: list[Item] = []
        self.in_work: Item | None = None
        self.received: list[Notification] = []
        self.removed = False
        self.in_sync_at = 0
        # Notifications that were queued when the pending resync began.
        self.skipped: set[str] | None = None

    # ------------------------------------------------------------ inputs

    def put(self, now: float, *events: Notification) -> None:
        if not self.removed:
            self._append([Item(0, now, event) for event in events])

    def resync(self, now: float) -> None:
        if self.removed or self.skipped is not None or not self.store:
            return

        waiting = {item.key for item in (*self.waiting, *self.raw)}
        events = [Updated(it, it, True) for it in self.store.values()]
        items = [Item(0, now, event, True) for event in events]
        items[-1].last_of_resync = True
        self.skipped = waiting
        self._append(items)

    def _append(self, items: list[Item]) -> None:
        for item in items:
            item.number = self.put_so_far
            self.put_so_far += 1
            self.raw.append(item)

        if not self.coalesce:
            self.waiting += self.raw
            self.raw = []
        elif len(self.raw) >= self.crowded:
            self.merge()

    def merge(self) -> None:
        for item in self.raw:
            if item.is_resync and self._cancels_out(item):
                item.event = None

            if item.event is not None:
                self._merge_in(item)

            self._end_resync(item)

        self.raw = []

    def _cancels_out(self, item: Item) -> bool:
        assert self.skipped is not None
        assert item.event is not None
        changed = self.store.get(item.key) is not object_of(item.event)
        return changed or item.key in self.skipped

    def _end_resync(self, item: Item) -> None:
        if item.last_of_resync:
            self.skipped = None

    def _merge_in(self, item: Item) -> None:
        of_key = [it for it in self.waiting if it.key == item.key]
        if not of_key:
            self.waiting.append(item)
            return

        first = of_key[-1]
        match first.event, item.event:
            case Added(), Deleted():
                self.waiting.remove(first)
            case Added(_, initial), Updated(_, new):
                first.event = Added(new, initial)
            case Updated(), Updated(_, _, True):
                pass
            case Updated(old, _), Updated(_, new):
                first.event = Updated(old, new)
            case Updated(), Deleted() as end:
                first.event = end
            case _:
                self.waiting.append(item)

    # ------------------------------------------------------------ outputs

    def take(self) -> Notification | None:
        """Begin the next call; return its notification, or None."""
        assert self.in_work is None
        while not self.removed:
            self.merge()
            if not self.waiting:
                break

            item = self.waiting.pop(0)
            received = self._event_of(item)
            if received is not None:
                self.in_work = item
                self.received.append(received)
                return received

        return None

    def finish(self) -> None:
        self.in_work = None

    def remove(self) -> None:
        self.removed = True
        self.raw, self.waiting = [], []

    def _event_of(self, item: Item) -> Notification | None:
        if item.is_resync and not self.coalesce and self._cancels_out(item):
            item.event = None

        if not self.coalesce:
            self._end_resync(item)

        return None if item.event is None else self._filtered(item.event)

    def _filtered(self, event: Notification) -> Notification | None:
        if self.accepts is None:
            return event

        known = self.known()
        match event:
            case Added(obj):
                return event if self.accepts(obj) else None
            case Updated(old, new):
                match old.key in known, self.accepts(new):
                    case True, True:
                        return event
                    case True, False:
                        return Deleted(old)
                    case False, True:
                        return Added(new)
                    case _:
                        return None
            case Deleted(obj):
                return event if obj.key in known else None

    # ------------------------------------------------------------ state

    def known(self) -> Store:
        """Return the objects that the handler knows; assert that nothing contradicts."""
        known: Store = {}
        for event in self.received:
            match event:
                case Added(obj):
                    assert obj.key not in known, event
                    known[obj.key] = obj
                case Updated(old, new):
                    assert known[old.key] == old, event
                    known[new.key] = new
                case Deleted(obj):
                    del known[obj.key]

        return known

    @property
    def depth(self) -> int:
        return 0 if self.removed else len(self.undone)

    @property
    def undone(self) -> list[Item]:
        in_work = [] if self.in_work is None else [self.in_work]
        return [*in_work, *self.waiting, *self.raw]

    def age(self, now: float) -> float:
        if self.removed:
            return 0.0

        return max((now - item.since for item in self.undone), default=0.0)

    @property
    def synced(self) -> bool:
        return all(item.number >= self.in_sync_at for item in self.undone)
