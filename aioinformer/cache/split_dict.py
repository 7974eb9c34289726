"""`SplitDict`: a large dict in parts, none of which takes long to grow or to free.

A dict copies all of its entries when it grows. With 700,000 entries that takes 60 ms, in
one step that blocks the event loop, and freeing a dict of a million entries takes as
long. The parts of a `SplitDict` take a millisecond each.

Reading is as safe as for a dict: in another thread, one call such as
`list(objects.values())` reads a state between two writes, as it runs no Python code
between the first and the last object.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from itertools import chain, filterfalse, repeat, tee
from operator import and_, is_, methodcaller, rshift
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from aioinformer.budget import LoopBudget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "LARGE",
    "SplitDict",
    "divided",
    "entries_of",
    "is_large",
    "look_up",
    "parts_of",
    "release_maps",
]

T = TypeVar("T")
D = TypeVar("D")

LARGE = 2**15
"""Number of entries from which a dict is divided. Dividing it takes 3 ms."""

_PARTS: Final = 64

# The dicts themselves use the low bits of a hash.
_SHIFT: Final = 40

_MASK: Final = _PARTS - 1

_ITEMS: Final = methodcaller("items")

_IS_NONE: Final = partial(is_, None)


class SplitDict(MutableMapping[str, T]):
    """Dict of strings in 64 parts, by their hashes.

    Unlike those of a dict, `items()` and `values()` return iterators. Each entry takes
    0.1 us more to read or write.

    Args:
        entries: First entries.
    """

    __slots__ = ("items", "parts", "values")

    def __init__(self, entries: Mapping[str, T]) -> None:
        self.parts: tuple[dict[str, T], ...] = tuple({} for _ in range(_PARTS))
        """Parts, whose entries together are those of the mapping."""
        # Attributes, so that no Python code runs when another call in C uses them.
        views = tuple(part.items() for part in self.parts)
        self.items: Any = partial(chain.from_iterable, views)
        objects = tuple(part.values() for part in self.parts)
        self.values: Any = partial(chain.from_iterable, objects)
        parts = self.parts
        for key, value in entries.items():
            parts[hash(key) >> _SHIFT & _MASK][key] = value

    def __repr__(self) -> str:
        return f"<SplitDict {len(self)} entries>"

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)

    def __contains__(self, key: object) -> bool:
        return key in self.parts[hash(key) >> _SHIFT & _MASK]

    def __getitem__(self, key: str) -> T:
        return self.parts[hash(key) >> _SHIFT & _MASK][key]

    def __setitem__(self, key: str, value: T) -> None:
        self.parts[hash(key) >> _SHIFT & _MASK][key] = value

    def __delitem__(self, key: str) -> None:
        del self.parts[hash(key) >> _SHIFT & _MASK][key]

    @overload
    def get(self, key: str, default: None = None, /) -> T | None: ...
    @overload
    def get(self, key: str, default: T, /) -> T: ...
    @overload
    def get(self, key: str, default: D, /) -> T | D: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value for a key, or the default."""
        return self.parts[hash(key) >> _SHIFT & _MASK].get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, or the default if there is one.

        Raises:
            KeyError: If the key is missing, and there is no default.
        """
        return self.parts[hash(key) >> _SHIFT & _MASK].pop(key, *default)


def is_large(mapping: Mapping[str, T]) -> bool:
    """Return True for a mapping that is divided, or should be."""
    return type(mapping) is SplitDict or len(mapping) >= LARGE


def divided(mapping: MutableMapping[str, T]) -> MutableMapping[str, T]:
    """Return a mapping in parts if it is large, else the mapping itself."""
    if type(mapping) is SplitDict or len(mapping) < LARGE:
        return mapping

    return SplitDict(mapping)


def parts_of(mapping: MutableMapping[str, T]) -> list[MutableMapping[str, T]]:
    """Return the parts of a mapping, in a new list; the mapping itself if it has none."""
    return [*mapping.parts] if isinstance(mapping, SplitDict) else [mapping]


def look_up(mapping: Mapping[str, T], keys: Iterable[str]) -> Iterator[T | None]:
    """Return an iterator over the values for some keys, None where there is none.

    It runs no Python code, and begins to read when it is iterated over.
    """
    keys = chain.from_iterable((keys,))
    if not isinstance(mapping, SplitDict):
        return map(mapping.get, keys)

    keys, hashed = tee(keys)
    shifted = map(rshift, map(hash, hashed), repeat(_SHIFT))
    places = map(and_, shifted, repeat(_MASK))
    return map(dict.get, map(mapping.parts.__getitem__, places), keys)


def entries_of(
    buckets: Mapping[str, Mapping[str, T]], values: Iterable[str]
) -> dict[str, T]:
    """Return the entries of some buckets in a new dict.

    They are read in one call, including the search for the buckets: in another thread,
    no entry moves between two buckets meanwhile.
    """
    found = filterfalse(_IS_NONE, look_up(buckets, values))
    return dict(chain.from_iterable(map(_ITEMS, found)))


async def release_maps(maps: list[MutableMapping[str, Any]]) -> None:
    """Free maps, and what they hold, in slices of the loop's budget.

    Args:
        maps: Last references to the maps, see `parts_of`; empty afterwards.

    Cancellation:
        Safe: the rest is freed with the list.
    """
    budget = LoopBudget.current()
    await budget.start()
    while maps:
        values = list(maps.pop().values())
        while values:
            value = values.pop()
            if type(value) is SplitDict:
                maps += value.parts

            del value
            if budget.over():
                await budget.start()

    budget.end()
