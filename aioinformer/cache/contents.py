"""`Contents`: objects by key, with their indexes; and indexes that are still growing.

Plain state: every change is one synchronous step. What a user's index function raises
never leaves a step half done; it is reported behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.index import Index
from aioinformer.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer.cache.index import IndexFunction

__all__ = ["Contents", "Growing"]

T = TypeVar("T")

# Between two looks at the budget; one with an index into its body takes 5 microseconds.
_OBJECTS_IN_A_STEP = 16


class Contents(Generic[T]):
    """Objects by key, with their indexes: what a store holds, or will hold.

    A replacement is built as `Contents` beside the old ones, in as many steps as it
    needs, and then put in their place at once.

    Args:
        indexes: By name, and empty.
        report: Told of index functions that fail; must not raise.
    """

    __slots__ = ("growing", "indexes", "objects", "report", "resource_version")

    def __init__(
        self,
        indexes: dict[str, Index[T]],
        report: Callable[[HandlerError], None],
    ) -> None:
        self.objects: dict[str, T] = {}
        self.indexes = indexes
        self.resource_version = ""
        self.report = report
        # Indexes that do not have all objects yet; empty nearly always.
        self.growing: list[Growing[T]] = []

    def put(self, key: str, obj: T, asked: T | None = None) -> None:
        """Enter or replace one object.

        Args:
            key: Of the object.
            obj: What is entered.
            asked: What index functions are asked about: the same object, if that costs
                less to read.
        """
        old = self.objects.get(key)
        self.objects[key] = obj
        failures: tuple[HandlerError, ...] = ()
        for name, index in self.indexes.items():
            try:
                index.put(key, obj, old, asked)
            except user_errors() as exc:  # reported
                failures += (_left_out(name, index, key, obj, old, exc),)

        if failures or self.growing:
            self._follow(key, old, failures)

    def keep(self, key: str, obj: T, source: Contents[T]) -> None:
        """Take over an object of `source`, with the index values it has there."""
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
        """Take one object out; returns it, or None if there was none."""
        old = self.objects.pop(key, None)
        if old is not None:
            for index in self.indexes.values():
                index.remove(key, old)

            for growing in self.growing:
                growing.forget(key, old)

        return old

    def _follow(
        self, key: str, old: T | None, failures: tuple[HandlerError, ...]
    ) -> None:
        """What comes behind a write: only then is anybody told, who may write again."""
        for growing in self.growing:
            growing.touch(key, old)

        for failure in failures:
            self.report(failure)


class Growing(Generic[T]):
    """Indexes that are being filled with what some contents hold, object by object.

    The contents may change, and even be replaced, between two steps. Nobody reads these
    indexes before they are complete.

    Args:
        functions: The index functions by the names of their indexes.
        contents: Whose objects are entered; `close()` when it is over.
        known: Contents that have these indexes: what is the same object there is
            entered without asking the index functions again.
    """

    __slots__ = ("_contents", "_entered", "_known", "_waiting", "indexes")

    def __init__(
        self,
        functions: Mapping[str, IndexFunction[T]],
        contents: Contents[T],
        known: Contents[T] | None = None,
    ) -> None:
        self.indexes = {name: Index(function) for name, function in functions.items()}
        self._known = known
        self.begin(contents)

    def begin(self, contents: Contents[T]) -> None:
        """Begin with these contents, whatever was there before."""
        for name, index in self.indexes.items():
            self.indexes[name] = index.empty_copy()

        contents.growing.append(self)
        self._contents = contents

        # Invariant: the key of each object is in one of these two. What else waits has
        # come twice, or is gone. The last is the next: so the order of the store stays.
        self._entered: set[str] = set()
        self._waiting = list(contents.objects)
        self._waiting.reverse()

    def steps(self) -> Iterator[None]:
        """Enter a few objects at a time, until all of them are in the indexes."""
        left = _OBJECTS_IN_A_STEP
        while self._waiting:
            self._enter(self._waiting.pop())
            left -= 1
            if not left:
                left = _OBJECTS_IN_A_STEP
                yield

    def publish(self) -> None:
        """Give the complete indexes to the contents, but for names that are taken."""
        for name, index in self.indexes.items():
            self._contents.indexes.setdefault(name, index)

    def close(self) -> None:
        """Follow the contents no longer."""
        self._contents.growing.remove(self)

    def touch(self, key: str, old: T | None) -> None:
        """Another object is under the key now, in the place of `old` if there was one."""
        if old is None:
            self._waiting.append(key)
        elif key in self._entered:
            self.forget(key, old)
            self._waiting.append(key)

    def forget(self, key: str, old: T) -> None:
        """The object is not under the key any more."""
        if key in self._entered:
            self._entered.remove(key)
            for index in self.indexes.values():
                index.remove(key, old)

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
    """Leave an object out of an index whose function failed for it."""
    if old is not None:
        index.remove(key, old)

    failure = HandlerError("index function", name, obj)
    failure.__cause__ = cause
    return failure
