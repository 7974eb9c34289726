"""`Board`: which objects a table has room for, and which of them have just changed.

Pure: it is told what happened and what time it is. Invariants:

- a deleted object stays for as long as a change is marked, and no longer;
- of what has changed at most `KEPT` objects are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from aioinformer.cache import Store
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = ["Board", "Mark", "Shown"]

Mark = Literal["", "added", "modified", "deleted"]
"""What has just happened to an object; empty if nothing has."""

# For how long a change is marked: long enough to be seen from the corner of an eye.
MARKED_SECONDS = 2.0

# More than any terminal has lines.
KEPT = 500


@dataclass(frozen=True, slots=True)
class Shown:
    """One object of the table."""

    obj: KubeObject
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Change:
    obj: KubeObject
    mark: Mark
    time: float


class Board:
    """Chooses what is shown of a cache.

    Args:
        store: The objects there are.
    """

    def __init__(self, store: Store[KubeObject]) -> None:
        self._store = store
        self._changes: dict[str, _Change] = {}  # by key, the newest last
        self._order: list[str] = []  # of all objects, while `_ordered`
        self._ordered = False

        self.events = 0
        """Changes so far; what the first list brought is none."""

    def note(self, event: Notification, now: float) -> None:
        """Take note of a change, at a time in seconds."""
        match event:
            case Added(obj=obj, initial=initial):
                self._ordered = False
                if not initial:
                    self._add(_Change(obj, "added", now))
            case Updated(new=obj):
                self._add(_Change(obj, "modified", now))
            case Deleted(obj=obj):
                self._ordered = False
                self._add(_Change(obj, "deleted", now))

    def total(self, now: float) -> int:
        """How many objects `choose()` would return if there were room for all."""
        return len(self._store) + len(self._ghosts(now))

    def choose(self, room: int, now: float) -> list[Shown]:
        """Return what to show in `room` lines, top to bottom.

        All of it, by namespace and name, if it fits; else first what has changed last,
        and then the others by namespace and name.
        """
        ghosts = self._ghosts(now)
        if self.total(now) <= room:
            keys = sorted([*self._store.list_keys(), *ghosts], key=_namespace_and_name)
        else:
            keys = [key for key in reversed(self._changes) if self._is_there(key, now)]
            keys = keys[:room]
            keys += self._others(set(keys), room - len(keys))

        found = ((key, self._store.get_by_key(key) or ghosts.get(key)) for key in keys)
        return [
            Shown(obj, self._mark(key, now)) for key, obj in found if obj is not None
        ]

    def _add(self, change: _Change) -> None:
        self.events += 1
        key = change.obj.key
        self._changes.pop(key, None)
        self._changes[key] = change
        if len(self._changes) > KEPT:
            del self._changes[next(iter(self._changes))]

    def _mark(self, key: str, now: float) -> Mark:
        change = self._changes.get(key)
        return change.mark if change and now - change.time < MARKED_SECONDS else ""

    def _ghosts(self, now: float) -> dict[str, KubeObject]:
        """What has just been deleted."""
        return {
            key: it.obj
            for key, it in self._changes.items()
            if key not in self._store and self._mark(key, now) == "deleted"
        }

    def _is_there(self, key: str, now: float) -> bool:
        return key in self._store or self._mark(key, now) == "deleted"

    def _others(self, taken: set[str], room: int) -> list[str]:
        if room <= 0:
            return []

        if not self._ordered:
            self._order = sorted(self._store.list_keys(), key=_namespace_and_name)
            self._ordered = True

        keys = (key for key in self._order if key not in taken)
        return [key for key, _ in zip(keys, range(room), strict=False)]


def _namespace_and_name(key: str) -> list[str]:
    return key.split("/")
