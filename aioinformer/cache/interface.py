"""`Contents`: what a store holds, in memory or on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from aioinformer.cache.index import IndexFunction, Packed
    from aioinformer.model.selectors import LabelSelector

__all__ = ["Building", "Comparable", "Contents", "IndexReads"]

T = TypeVar("T")


class IndexReads(Protocol[T]):
    """One index of some contents."""

    @property
    def function(self) -> IndexFunction[T]:
        """Index function."""

    def values(self) -> builtins.list[str]:
        """Return all values, in a new list."""

    def keys_of(self, value: str) -> builtins.list[str]:
        """Return the keys of the objects that have a value, in a new list."""

    def objects_of(self, value: str) -> builtins.list[T]:
        """Return the objects that have a value, in a new list, from one snapshot."""

    def values_of(self, key: str, obj: T) -> Packed:
        """Return the values of an indexed object; None if its index function failed."""

    def find(self, obj: T) -> builtins.list[T]:
        """Return the objects that share a value with `obj`, each once."""


class Building(Protocol):
    """Indexes that are being built in steps."""

    def steps(self) -> Iterator[None]:
        """Index a few objects in each step, until none is left."""

    def publish(self) -> None:
        """Make the complete indexes readable."""

    def close(self) -> None:
        """End the building, complete or not."""


class Contents(Protocol[T]):
    """Objects by key, with indexes and the version that they have reached.

    Reads may be made from any thread. Writes are made in one event loop. Those to the
    contents of a store are made within `step()`, those to a replacement are not.
    """

    resource_version: str
    """Version that they have reached; empty before the first list."""

    @property
    def objects(self) -> Mapping[str, T]:
        """Objects by key."""

    @property
    def indexes(self) -> Mapping[str, IndexReads[T]]:
        """Indexes by name."""

    def select(
        self, selector: LabelSelector, namespace: str | None, limit: int | None
    ) -> builtins.list[T]:
        """Return the objects of a namespace, or all for None, whose labels match.

        At most `limit` of them; all for None.
        """

    def by_index(self, name: str, value: str, namespace: str) -> builtins.list[T]:
        """Return the objects of a namespace that have a value in an index."""

    def reading(self) -> AbstractContextManager[object]:
        """Make the reads in a block one snapshot, in the thread of the block."""

    def step(self) -> AbstractContextManager[object]:
        """Make the writes in a block one step: readers see all of them, or none."""

    def put(self, key: str, obj: T, equal: T | None = None) -> None:
        """Add or replace one object; `equal` is cheaper to read for index functions."""

    def keep(self, key: str, obj: T, source: Contents[T]) -> None:
        """Take an object from `source`, with its index values there.

        The object may be stored in another form than there: compressed. `source` may be
        these contents themselves.
        """

    def remove(self, key: str) -> T | None:
        """Remove one object; return it, or None if there was none."""

    def replacement(self) -> Contents[T]:
        """Return empty contents with the same indexes, to replace these in one step.

        There is one at a time: the next one is requested after `release()` of the old
        contents, or of a replacement that was given up.
        """

    def replace_with(
        self, replacement: Contents[T], resource_version: str
    ) -> Contents[T]:
        """Return the contents to read from now on; called in a step.

        These contents are still readable until `release()`.
        """

    def build(
        self,
        functions: Mapping[str, IndexFunction[T]],
        known: Contents[T] | None = None,
    ) -> Building:
        """Begin to build indexes of the current objects.

        Args:
            functions: Index functions by the names of their indexes.
            known: Contents that have these indexes, and perhaps some of the objects.
        """

    async def release(self) -> None:
        """Free contents that were replaced or given up, in slices of the loop's budget.

        They are not read any more. The caller must not keep a reference to them.
        """


@runtime_checkable
class Comparable(Protocol[T]):
    """Objects that can be compared faster than one by one; those on disk."""

    def differences(
        self, other: Mapping[str, T]
    ) -> Iterator[tuple[str, T | None, T | None] | None]:
        """Yield key, object here and object there for each key that differs.

        The objects need not differ: their stored forms do. None is yielded now and then
        in between, to check the loop's budget.
        """
