"""`MemoryContents`: what a store holds in memory.

A replacement is built beside the contents of a store, in as many steps as it needs, and
then swapped in. Old contents are never changed, as another thread may be reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.index import NAMESPACE_INDEX, Index, index_by_label
from aioinformer.cache.split_dict import (
    divided,
    entries_of,
    is_large,
    look_up,
    parts_of,
    release_maps,
)
from aioinformer.errors import HandlerError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.interface import Contents
    from aioinformer.model.selectors import LabelSelector

__all__ = ["MemoryContents"]

T = TypeVar("T")

# Objects between two checks of the budget. One with an index into its body takes 5 us.
_OBJECTS_IN_A_STEP = 16

_NOTHING_TO_DO: Final = nullcontext()


class MemoryContents(Generic[T]):
    """Objects by key, with their indexes: `Contents` in memory.

    Args:
        indexes: Empty indexes by name.
        report: Function called with errors of index functions; must not raise.
    """

    __slots__ = ("growing", "indexes", "objects", "report", "resource_version")

    def __init__(
        self,
        indexes: dict[str, Index[T]],
        report: Callable[[HandlerError], None],
    ) -> None:
        self.objects: MutableMapping[str, T] = {}
        self.indexes: dict[str, Index[T]] = indexes
        self.resource_version: str = ""
        self.report: Callable[[HandlerError], None] = report
        # Indexes that do not have all objects yet; nearly always empty.
        self.growing: list[Growing[T]] = []

    # ------------------------------------------------------------ reads, any thread

    def reading(self) -> AbstractContextManager[None]:
        """Do nothing: each read is one call in C, and a swap changes no contents."""
        return _NOTHING_TO_DO

    def select(
        self, selector: LabelSelector, namespace: str | None, limit: int | None
    ) -> builtins.list[T]:
        """Return the objects of a namespace, or all for None, whose labels match."""
        found: builtins.list[Any] = self._candidates(selector, namespace)
        if not selector.empty:
            found = selector.select(found)

        return found if limit is None else found[:limit]

    def by_index(self, name: str, value: str, namespace: str) -> builtins.list[T]:
        """Return the objects of a namespace that have a value in an index."""
        found: Mapping[str, Any] = self.indexes[name].buckets.get(value, _NOTHING)
        here = self.indexes[NAMESPACE_INDEX].buckets.get(namespace, _NOTHING)
        if len(found) <= len(here):
            return [it for it in list(found.values()) if it.namespace == namespace]

        # One C call, so that no change by another thread is made between two objects.
        both = list(look_up(found, here))
        return [obj for obj in both if obj is not None]

    def _candidates(
        self, selector: LabelSelector, namespace: str | None
    ) -> builtins.list[Any]:
        """Return the objects of the smallest index buckets that may match."""
        places = list(self._labelled(selector))
        if namespace is not None:
            here = self.indexes[NAMESPACE_INDEX].buckets
            places.insert(0, (here, (namespace,)))

        if not places:
            return list(self.objects.values())

        best = min(places, key=_size_of)
        found = _read(*best)
        if namespace is None or best is places[0]:
            return found

        return [obj for obj in found if obj.namespace == namespace]

    def _labelled(self, selector: LabelSelector) -> Iterator[_Place]:
        """Yield the buckets of each required label that has an index."""
        for it in selector.requirements:
            if it.operator in ("=", "in"):
                function = index_by_label(it.key)
                for index in list(self.indexes.values()):
                    if index.function == function:
                        yield index.buckets, it.values

    # ------------------------------------------------------------ writes, one loop

    def step(self) -> AbstractContextManager[None]:
        """Do nothing: no other code of the loop runs before the end of a block."""
        return _NOTHING_TO_DO

    def put(self, key: str, obj: T, equal: T | None = None) -> None:
        """Add or replace one object.

        Args:
            key: Key of the object.
            obj: Object to store.
            equal: Equal object that is cheaper to read, for index functions; None for
                `obj`.
        """
        old = self.objects.get(key)
        self.objects[key] = obj
        failures: tuple[HandlerError, ...] = ()
        for name, index in self.indexes.items():
            try:
                index.put(key, obj, old, equal)
            except user_errors() as exc:  # reported
                failures += (_left_out(name, index, key, obj, old, exc),)

        if failures or self.growing:
            self._follow(key, old, failures)

    def keep(self, key: str, obj: T, source: Contents[T]) -> None:
        """Take an object from `source`, with its index values there."""
        old = self.objects.get(key)
        self.objects[key] = obj
        failures: tuple[HandlerError, ...] = ()
        for name, index in self.indexes.items():
            there = source.indexes.get(name)
            if there is not None:
                index.put_values(key, obj, there.values_of(key, obj), old)
                continue

            try:
                index.put(key, obj, old)
            except user_errors() as exc:  # reported
                failures += (_left_out(name, index, key, obj, old, exc),)

        if failures or self.growing:
            self._follow(key, old, failures)

    def remove(self, key: str) -> T | None:
        """Remove one object; return it, or None if there was none."""
        old = self.objects.pop(key, None)
        if old is not None:
            for index in self.indexes.values():
                index.remove(key, old)

            for growing in self.growing:
                growing.forget(key, old)

        return old

    # ------------------------------------------------------------ other contents

    def replacement(self) -> MemoryContents[T]:
        """Return empty contents with the same indexes."""
        return MemoryContents(
            {name: index.empty_copy() for name, index in self.indexes.items()},
            self.report,
        )

    def replace_with(
        self, replacement: Contents[T], resource_version: str
    ) -> Contents[T]:
        """Return the replacement. Indexes that are being built are built for it."""
        assert isinstance(replacement, MemoryContents)
        replacement.resource_version = resource_version
        self.growing, growing = [], self.growing
        for it in growing:
            it.begin(replacement)

        return replacement

    def build(
        self,
        functions: Mapping[str, IndexFunction[T]],
        known: Contents[T] | None = None,
    ) -> Growing[T]:
        """Begin to build indexes of the current objects."""
        return Growing(functions, self, known)

    def divide(self, key: str) -> None:
        """Divide a map that has become large, see `SplitDict`: one in each call.

        Call it now and then, where no code keeps a reference to `objects`.

        Args:
            key: Key of an object that was put lately. The maps of its index values are
                looked at; there are too many others.
        """
        objects = self.objects
        if not is_large(objects):
            return

        self.objects = divided(objects)
        if self.objects is objects and (obj := objects.get(key)) is not None:
            for index in self.indexes.values():
                if index.divide(key, obj):
                    break

    async def release(self) -> None:
        """Free the maps and objects, in slices, if the caller has no reference to them.

        Another thread may still be reading the maps, so they are not emptied.
        """
        maps: builtins.list[MutableMapping[str, Any]] = [*parts_of(self.objects)]
        # Nothing else may keep a reference to an index.
        maps += chain.from_iterable(it.maps() for it in self.indexes.values())
        del self
        await release_maps(maps)

    def _follow(
        self, key: str, old: T | None, failures: tuple[HandlerError, ...]
    ) -> None:
        """Finish a write. Errors are reported last: `on_error` may write again."""
        for growing in self.growing:
            growing.touch(key, old)

        for failure in failures:
            self.report(failure)


class Growing(Generic[T]):
    """Indexes that are being built, object by object.

    The contents may change, and even be replaced, between two steps. The indexes are
    not readable before they are complete.

    Args:
        functions: Index functions by the names of their indexes.
        contents: Contents to index; `close()` at the end.
        known: Contents that have these indexes. Values of the same objects are taken
            from there.
    """

    __slots__ = ("_contents", "_entered", "_known", "_waiting", "indexes")

    def __init__(
        self,
        functions: Mapping[str, IndexFunction[T]],
        contents: MemoryContents[T],
        known: Contents[T] | None = None,
    ) -> None:
        self.indexes: dict[str, Index[T]] = {
            name: Index(function) for name, function in functions.items()
        }
        self._known = known
        self.begin(contents)

    def begin(self, contents: MemoryContents[T]) -> None:
        """Begin with these contents, and drop objects indexed before."""
        for name, index in self.indexes.items():
            self.indexes[name] = index.empty_copy()

        contents.growing.append(self)
        self._contents = contents

        # Invariant: the key of each object is in one of these two. Other waiting keys
        # are duplicates, or their objects were removed. The last key is taken next,
        # which keeps the order of the store.
        self._entered: set[str] = set()
        self._waiting = list(contents.objects)
        self._waiting.reverse()

    def steps(self) -> Iterator[None]:
        """Index a few objects in each step, until none is left."""
        left = _OBJECTS_IN_A_STEP
        while self._waiting:
            key = self._waiting.pop()
            self._enter(key)
            left -= 1
            if not left:
                left = _OBJECTS_IN_A_STEP
                self._divide(key)
                yield

    def publish(self) -> None:
        """Add the complete indexes to the contents, except for names in use."""
        for name, index in self.indexes.items():
            self._contents.indexes.setdefault(name, index)

    def close(self) -> None:
        """Stop following the contents."""
        self._contents.growing.remove(self)

    def touch(self, key: str, old: T | None) -> None:
        """Record that a key has another object, in place of `old` if there was one."""
        if old is None:
            self._waiting.append(key)
        elif key in self._entered:
            self.forget(key, old)
            self._waiting.append(key)

    def forget(self, key: str, old: T) -> None:
        """Record that a key has no object any more."""
        if key in self._entered:
            self._entered.remove(key)
            for index in self.indexes.values():
                index.remove(key, old)

    def _divide(self, key: str) -> None:
        """Divide the maps that have become large; `key` was entered lately."""
        objects = self._contents.objects
        if is_large(objects) and (obj := objects.get(key)) is not None:
            for index in self.indexes.values():
                index.divide(key, obj)

    def _enter(self, key: str) -> None:
        obj = self._contents.objects.get(key)
        if obj is None or key in self._entered:
            return

        self._entered.add(key)
        known = self._known
        failures: tuple[HandlerError, ...] = ()
        for name, index in self.indexes.items():
            if known is not None and known.objects.get(key) is obj:
                values = known.indexes[name].values_of(key, obj)
                index.put_values(key, obj, values, None)
                continue

            try:
                index.put(key, obj, None)
            except user_errors() as exc:  # reported
                failures += (_left_out(name, index, key, obj, None, exc),)

        for failure in failures:
            self._contents.report(failure)


def _left_out(
    name: str, index: Index[T], key: str, obj: T, old: T | None, cause: BaseException
) -> HandlerError:
    """Remove an object from an index whose function failed for it; return the error."""
    if old is not None:
        index.remove(key, old)

    failure = HandlerError("index function", name, obj)
    failure.__cause__ = cause
    return failure


_Buckets = Mapping[str, Mapping[str, Any]]


_Place = tuple[_Buckets, Sequence[str]]
"""Buckets of an index, and the values whose objects may match."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _size_of(place: _Place) -> int:
    buckets, values = place
    return sum(len(buckets.get(value, _NOTHING)) for value in values)


def _read(buckets: _Buckets, values: Sequence[str]) -> list[Any]:
    """Return the objects of some buckets, each once."""
    if len(values) == 1:
        return list(buckets.get(values[0], _NOTHING).values())

    return list(entries_of(buckets, values).values())
