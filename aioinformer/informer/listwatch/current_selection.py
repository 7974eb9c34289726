"""Selections of a reflector: which objects they have, and how one becomes another.

Pure and synchronous, like the machine.

A server may ignore a selector by shard, or begin to ignore it. So objects are always
checked here as well, in lists and in watches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from aioinformer.informer.listwatch.watch_events import same_state
from aioinformer.model.shards import ShardSelector, hash_of, ranges_of
from aioinformer.watch.interface import ManagedFieldsOptOut, Reselectable, Selectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import ListerWatcher

__all__ = [
    "Change",
    "CurrentSelection",
    "ListAgain",
    "Narrow",
    "Widen",
    "next_change",
    "reselected",
    "selectors_of",
]


class CurrentSelection:
    """Selection that a reflector lists or watches.

    While a watch catches up with a list of more shards, it repeats changes that the
    store already has: see `widen`.

    Args:
        source: Source with these selectors.
        known: Function that returns the newest known state for a key.

    Attributes:
        source: Source with these selectors.
        selectors: Selectors of the source.
        stored: True once the store has no other objects, so that a known uid needs no
            hash: that takes as long as a third of all other work on an event.
        caught_up: True if the watch repeats nothing.
        has_all: True if the source sends nothing but objects to store, and changes
            that it does not have.
    """

    def __init__(
        self, source: ListerWatcher, known: Callable[[str], KubeObject | None]
    ) -> None:
        self.source: ListerWatcher = source
        self.selectors: Selectors = selectors_of(source)
        self.stored: bool = False
        self._known = known
        self._in_namespace: dict[str, bool] = {}
        # Versions up to which the store has the objects of some shards, the newest list
        # first, and those of all others. The watch repeats older changes.
        self._floors: list[tuple[ShardSelector, int]] = []
        self._floor = -1
        self.caught_up: bool = True
        self.has_all: bool = True
        self._note_changes()

    def __repr__(self) -> str:
        return f"<CurrentSelection {self.selectors}>"

    def has(self, obj: KubeObject) -> bool:
        """Return True if a shard of the selection has an object."""
        shards = self.selectors.shards
        if shards is None or shards.whole:
            return True

        if self.stored:
            known = self._known(obj.key)
            if known is not None and known.uid == obj.uid:
                return True

        if shards.field == "uid":
            return shards.selects(obj)

        found = self._in_namespace.get(obj.namespace)
        if found is None:
            found = self._in_namespace[obj.namespace] = shards.selects(obj)

        return found

    def may_have(self, key: str) -> bool:
        """Return True unless the known object of a key is of another shard."""
        known = self._known(key)
        return known is None or self.has(known)

    def leaves_out(self, obj: KubeObject, version: int) -> bool:
        """Return True if the store does not get an event: of other shards, or repeated.

        Args:
            obj: Object of the event.
            version: Version of the event.
        """
        return not self.has(obj) or (not self.caught_up and self._repeats(obj, version))

    # ------------------------------------------------------------ changes

    def drop_managed_fields(self) -> None:
        """Request objects without managed fields, if the source can."""
        if isinstance(self.source, ManagedFieldsOptOut):
            self.source = self.source.without_managed_fields()

    def listed(self) -> None:
        """Record that a complete list of the selection replaces the stored objects."""
        self.stored = True
        self._floors, self._floor = [], -1
        self._note_changes()

    def becomes(self, selectors: Selectors) -> None:
        """Take other selectors, as the store has exactly their objects."""
        if selectors != self.selectors:
            self.source = reselected(self.source, selectors)
            self.selectors = selectors
            self._in_namespace.clear()
            self._note_changes()

    def widen(
        self, selectors: Selectors, added: ShardSelector, *, watched: int, listed: int
    ) -> None:
        """Take further shards, whose objects were listed beside the watch.

        The next watch begins at the lower of the two versions. It repeats changes that
        the store has, up to the floor of their shard. Deletions are no exception: their
        objects would come back by the repetition of earlier states.

        Args:
            selectors: Selectors with the further shards.
            added: The further shards.
            watched: Version of the last watch.
            listed: Version of the list.
        """
        self.becomes(selectors)
        floors = [(shards, max(floor, watched)) for shards, floor in self._floors]
        self._floors = [(added, listed), *floors]
        self._floor = max(self._floor, watched)
        self._note_changes()
        self.reached(min(watched, listed))

    def reached(self, version: int) -> None:
        """Record the version of the watch: a floor ends where a version passes it."""
        if self._floors and version >= self.newest_floor:
            self._floors, self._floor = [], -1
            self._note_changes()

    def _note_changes(self) -> None:
        """Update the attributes that are read for each batch of events."""
        shards = self.selectors.shards
        self.caught_up = not self._floors
        self.has_all = (shards is None or shards.whole) and self.caught_up

    @property
    def newest_floor(self) -> int:
        """Version up to which the watch repeats changes."""
        return max([self._floor, *(floor for _, floor in self._floors)])

    def _repeats(self, obj: KubeObject, version: int) -> bool:
        if not 0 <= version <= self._floor_of(obj):
            return False

        # Some servers send deletions with the last version of the object. If that is
        # still known, it has not been deleted before.
        known = self._known(obj.key)
        return known is None or not same_state(known, obj)

    def _floor_of(self, obj: KubeObject) -> int:
        value = None
        for shards, floor in self._floors:
            if value is None:
                value = hash_of(obj.uid if shards.field == "uid" else obj.namespace)

            if shards.has_hash(value):
                return floor

        return self._floor


def selectors_of(source: ListerWatcher) -> Selectors:
    """Return the selectors of a source; empty ones if it does not know them."""
    return source.selectors if isinstance(source, Reselectable) else Selectors()


def reselected(source: ListerWatcher, selectors: Selectors) -> ListerWatcher:
    """Return a source with other selectors."""
    assert isinstance(source, Reselectable)
    return source.with_selectors(selectors)


# ---------------------------------------------------------------- decisions


@dataclass(frozen=True, slots=True)
class ListAgain:
    """Change that needs a list of the whole new selection."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Change that only removes shards.

    Attributes:
        selectors: Selectors after it.
    """

    selectors: Selectors


@dataclass(frozen=True, slots=True)
class Widen:
    """Change that only adds shards.

    Attributes:
        selectors: Selectors after it.
        added: Added shards.
    """

    selectors: Selectors
    added: ShardSelector

    def has_some(self, shards: ShardSelector) -> bool:
        """Return True if it adds a part of some shards at least."""
        rest = shards.without(self.added)
        return shards.field == self.added.field and rest != shards

    def part(self, active: Selectors, shards: ShardSelector) -> Selectors:
        """Return the selectors after some of its shards were added."""
        if shards == self.added:
            return self.selectors

        before = () if active.shards is None else active.shards.ranges
        both = ShardSelector(before + shards.ranges, shards.field)
        return replace(active, shards=both)


Change: TypeAlias = ListAgain | Narrow | Widen


def next_change(active: Selectors, wanted: Selectors) -> Change | None:
    """Return the next step from one selection to another; None if they are equal.

    Shards are removed before others are added.
    """
    if active == wanted:
        return None

    if replace(active, shards=wanted.shards) != wanted:
        return ListAgain()

    before, after = active.shards, wanted.shards
    field = (before or after or _EVERYTHING).field
    before = before or ShardSelector(ranges_of(1), field)
    after = after or ShardSelector(ranges_of(1), field)
    if before.field != after.field:
        return ListAgain()

    gone = before.without(after)
    if gone.ranges:
        return Narrow(replace(wanted, shards=before.without(gone)))

    added = after.without(before)
    return Widen(wanted, added) if added.ranges else Narrow(wanted)


_EVERYTHING = ShardSelector(ranges_of(1))
