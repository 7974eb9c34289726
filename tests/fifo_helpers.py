"""What the tests of `DeltaFIFO` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.cache import Store
from aioinformer.cache.deltas import Delta, DeltaType, Replacement

if TYPE_CHECKING:
    from aioinformer.cache import DeltaFIFO
    from aioinformer.cache.store import Contents


@dataclass(frozen=True)
class Thing:
    key: str
    version: int = 0


def listing(*things: Thing) -> Contents[Thing]:
    contents = Store[Thing]().replacement()
    for thing in things:
        contents.put(thing.key, thing)

    return contents


def put(fifo: DeltaFIFO[Thing], *changes: str) -> None:
    """Queue changes written as "+a1 ~a2 -a2", or "=3" for a replacement."""
    for change in changes:
        if change[0] == "=":
            fifo.replace(listing(), change[1:])
            continue

        method = {"+": fifo.add, "~": fifo.update, "-": fifo.delete}[change[0]]
        method(Thing(change[1], int(change[2:])))


def text_of(entry: list[Delta[Thing]] | Replacement[Thing]) -> str:
    if isinstance(entry, Replacement):
        return f"={entry.resource_version}"

    signs = {DeltaType.ADDED: "+", DeltaType.UPDATED: "~", DeltaType.DELETED: "-"}
    return " ".join(
        f"{signs[it.type]}{it.object.key}{it.object.version}" for it in entry
    )


def take_all(fifo: DeltaFIFO[Thing]) -> list[str]:
    return [text_of(fifo.pop_nowait()) for _ in range(len(fifo))]


def deltas(*keys: str) -> list[Delta[Thing]]:
    return [Delta(DeltaType.UPDATED, Thing(key)) for key in keys]
