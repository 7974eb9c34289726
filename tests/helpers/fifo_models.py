"""Plain model of the queues of changes: a list of entries, with numbered inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aioinformer.cache import DeletedFinalStateUnknown, DeltaType

ADDED, UPDATED, DELETED = DeltaType.ADDED, DeltaType.UPDATED, DeltaType.DELETED


@dataclass(frozen=True)
class Thing:
    key: str
    number: int
    passes: int = 0
    """Number of times that it passed the transformer."""


Change = tuple[DeltaType, Any]
"""The object is a thing or a tombstone."""


@dataclass
class Entry:
    """Changes that are popped together, and the inputs done with them."""

    key: str | None = None
    changes: list[Change] = field(default_factory=list)
    listed: dict[str, Thing] | None = None
    """Of a whole list, what is in it; None of a whole resync."""
    inputs: set[int] = field(default_factory=set)


class Model:
    """Plain model of a queue of changes.

    Args:
        ordered: Whether each change is an entry, instead of each key.
        known: Known objects; None if there are none.
        emit_replaced: Whether listed objects are REPLACED instead of SYNC.
    """

    def __init__(
        self, *, ordered: bool, known: dict[str, Thing] | None, emit_replaced: bool
    ) -> None:
        self.ordered = ordered
        self.known = known
        self.in_list = DeltaType.REPLACED if emit_replaced else DeltaType.SYNC
        self.line: list[Entry] = []
        self.inputs = 0
        self.taken: set[int] = set()
        self.versions: list[tuple[int, str]] = []
        self.first: set[int] | None = None
        """The inputs that it has synced after; None while it was not filled."""

    # ------------------------------------------------------------ what it knows

    @property
    def synced(self) -> bool:
        return self.first is not None and self.first <= self.taken

    def segment(self) -> list[Entry]:
        """The entries behind the last whole list."""
        ends = [n for n, it in enumerate(self.line) if it.listed is not None]
        return self.line[ends[-1] + 1 if ends else 0 :]

    def queued(self) -> dict[str, Change]:
        """The newest change of each key since the last whole list."""
        found: dict[str, Change] = {}
        for entry in self.segment():
            if entry.key is not None:
                found[entry.key] = entry.changes[-1]

        return found

    def known_now(self) -> dict[str, Thing]:
        """Return the objects that the consumer knows when it pops the last segment."""
        lists = [it.listed for it in self.line if it.listed is not None]
        return lists[-1] if lists else self.known or {}

    # ------------------------------------------------------------ inputs

    def change(self, kind: DeltaType, key: str, obj: Any) -> None:
        self.first = set() if self.first is None else self.first
        if kind is not DELETED or not self.leaves_out(key):
            self.put(kind, key, obj)

    def leaves_out(self, key: str) -> bool:
        """Whether a deletion is of what nobody knows, and so nobody is told of."""
        there = {*self.queued(), *self.known_now()}
        return not self.ordered and key not in there

    def put(self, kind: DeltaType, key: str, obj: Any) -> None:
        self.inputs += 1
        waiting = [it for it in self.segment() if it.key == key and not self.ordered]
        entry = waiting[0] if waiting else Entry(key)
        if not waiting:
            self.line.append(entry)

        entry.inputs.add(self.inputs)
        if entry.changes and entry.changes[-1][0] is kind is DELETED:
            entry.changes[-1] = (kind, better_end(entry.changes[-1][1], obj))
        else:
            entry.changes.append((kind, obj))

    def replace_all(self, listed: dict[str, Thing], version: str) -> None:
        self.whole(listed)
        self.mark(version)
        self.list_is_in()

    def replace(self, objects: list[Thing], version: str) -> None:
        if self.ordered and self.known is None:
            self.replace_all({obj.key: obj for obj in objects}, version)
            return

        queued, keys = self.queued(), {obj.key for obj in objects}
        ends = [
            (key, obj)
            for key, (kind, obj) in queued.items()
            if key not in keys and kind is not DELETED
        ]
        ends += [
            (key, obj)
            for key, obj in self.known_now().items()
            if key not in keys and key not in queued
        ]
        listed = [(self.in_list, obj.key, obj) for obj in objects]
        gone = [(DELETED, key, DeletedFinalStateUnknown(key, obj)) for key, obj in ends]
        for change in (*gone, *listed) if self.ordered else (*listed, *gone):
            self.put(*change)

        self.mark(version)
        self.list_is_in()

    def resync(self) -> None:
        if self.ordered and self.known is None:
            self.whole(None)
            return

        queued = self.queued()
        if self.known is None and not any(it.listed is not None for it in self.line):
            return

        for key, obj in self.known_now().items():
            if key not in queued:
                self.put(DeltaType.SYNC, key, obj)

    def whole(self, listed: dict[str, Thing] | None) -> None:
        self.inputs += 1
        self.line.append(Entry(listed=listed, inputs={self.inputs}))

    def mark(self, version: str) -> None:
        if version:
            self.versions.append((self.inputs, version))

    def list_is_in(self) -> None:
        if self.first is None:
            self.first = self.up_to_now()

    def up_to_now(self) -> set[int]:
        return set(range(1, self.inputs + 1))

    # ------------------------------------------------------------ outputs

    def pop(self) -> Entry:
        entry = self.line.pop(0)
        self.taken |= entry.inputs
        return entry

    def batch(self, limit: int) -> list[Entry]:
        """What comes at once; not taken yet."""
        first = self.first if self.first is not None and not self.synced else None
        batch: list[Entry] = []
        for entry in self.line[:limit]:
            keys = {it.key for it in batch}
            if batch and (entry.key is None or entry.key in keys or None in keys):
                break

            if batch and first is not None and not entry.inputs & first:
                break

            batch.append(entry)

        return batch

    def put_back(self, entries: list[Entry]) -> None:
        """Entries that are not in the line, and not taken, come again."""
        if self.ordered or entries[0].key is None:
            self.line[:0] = entries
            return

        done, synced = self.passed(), self.synced
        for entry in entries:
            whole = any(it.listed is not None for it in self.line)
            if whole or any(it.key == entry.key for it in self.line):
                self.taken |= entry.inputs
            else:
                self.line.append(entry)

        # Whatever waited for them now waits for the whole line; so also for what has
        # overtaken them.
        waiting = self.versions[len(done) :]
        self.versions = done + [(self.inputs, v) for _, v in waiting[-1:]]
        if not synced and self.first is not None:
            self.first = self.up_to_now()

    def passed(self) -> list[tuple[int, str]]:
        """The versions all of whose inputs, and the earlier ones, were taken."""
        return [
            (inputs, version)
            for inputs, version in self.versions
            if self.taken >= set(range(1, inputs + 1))
        ]

    def applied(self) -> str | None:
        done = self.passed()
        self.versions = self.versions[len(done) :]
        return done[-1][1] if done else None


def better_end(one: Any, other: Any) -> Any:
    """Of two deletions in a row the one that knows more, and of two alike the newer."""
    if not isinstance(one, DeletedFinalStateUnknown):
        return one

    unknown = isinstance(other, DeletedFinalStateUnknown) and other.obj is None
    return one if unknown else other
