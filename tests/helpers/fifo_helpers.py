"""Helpers of the tests of queues of changes.

Changes are written as "+a1" (added), "~a2" (updated), "-a3" (deleted), "*a4"
(replaced), ".a5" (sync); "!a6" is a tombstone with the state a6, "!a?" one without.
"=7" is a whole list of version 7, and "@" a whole resync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.cache import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaType,
    Replacement,
    Requeue,
    ResyncAll,
    Store,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.cache import DeltaFIFO, OrderedFIFO
    from aioinformer.cache.interface import Contents

SIGNS = {
    DeltaType.ADDED: "+",
    DeltaType.UPDATED: "~",
    DeltaType.DELETED: "-",
    DeltaType.REPLACED: "*",
    DeltaType.SYNC: ".",
}


@dataclass(frozen=True)
class Thing:
    key: str
    version: int = 0


Fifo = Any  # DeltaFIFO[Thing] | OrderedFIFO[Thing], which differ in what they hand out


def things(text: str) -> list[Thing]:
    """Return the things of a text like "a1 b2"."""
    return [Thing(word[0], int(word[1:])) for word in text.split()]


def holding(text: str) -> Store[Thing]:
    """Return a store of the things of a text like "a1 b2"."""
    store = Store[Thing]()
    store.replace(things(text))
    return store


def listing(*listed: Thing) -> Contents[Thing]:
    contents = Store[Thing]().replacement()
    for thing in listed:
        contents.put(thing.key, thing)

    return contents


def put(fifo: DeltaFIFO[Thing] | OrderedFIFO[Thing], *changes: str) -> None:
    """Queue changes one by one; a whole list has a, b, and c in it."""
    for change in changes:
        if change[0] == "=":
            fifo.replace_all(listing(*map(Thing, "abc")), change[1:])
        elif change == "@":
            fifo.resync()
        elif change[0] == "!":
            fifo.delete(tombstone(change))
        else:
            method = {"+": fifo.add, "~": fifo.update, "-": fifo.delete}[change[0]]
            method(Thing(change[1], int(change[2:])))


def tombstone(text: str) -> DeletedFinalStateUnknown[Thing]:
    last = None if text[2:] == "?" else Thing(text[1], int(text[2:]))
    return DeletedFinalStateUnknown(text[1], last)


def text_of(entry: Iterable[Delta[Any]] | Replacement[Thing] | ResyncAll) -> str:
    if isinstance(entry, Replacement):
        return f"={entry.resource_version}"

    if isinstance(entry, ResyncAll):
        return "@"

    return " ".join(map(_text_of_delta, entry))


def _text_of_delta(delta: Delta[Any]) -> str:
    obj = delta.object
    if isinstance(obj, DeletedFinalStateUnknown):
        assert delta.type is DeltaType.DELETED
        assert obj.obj is None or obj.obj.key == obj.key
        return f"!{obj.key}{obj.obj.version if obj.obj else '?'}"

    return f"{SIGNS[delta.type]}{obj.key}{obj.version}"


def take_all(fifo: Fifo) -> list[str]:
    return [text_of(fifo.pop_nowait()) for _ in range(len(fifo))]


def deltas(*keys: str) -> list[Delta[Thing]]:
    return [Delta(DeltaType.UPDATED, Thing(key)) for key in keys]


def nothing(entry: object, initial: bool) -> None:
    """Consumer that does nothing."""


def again(entry: object, initial: bool) -> None:
    """Consumer that requeues every entry."""
    raise Requeue


class Record(list[str]):
    """Consumer that records the entries."""

    def __call__(self, entry: Any, initial: bool) -> None:
        self.append(text_of(entry))
