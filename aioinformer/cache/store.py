"""`Store` and `Indexer`: keyed objects in memory, with secondary indexes.

Objects may be of any type for which there is a key function. Writes belong to one event
loop and never wait; reads may come from any thread, and each answers from one snapshot.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer.cache.index import Index
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.index import IndexFunction

__all__ = ["Contents", "Indexer", "Store"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Contents(Generic[T]):
    """Objects by key, with their indexes: what a store holds, or will hold.

    A replacement is built as `Contents` beside the old ones, in as many steps as it
    needs, and then put in their place at once.
    """

    __slots__ = ("_report", "indexes", "objects")

    def __init__(
        self,
        indexes: dict[str, Index[T]],
        report: Callable[[HandlerError], None],
    ) -> None:
        self.objects: dict[str, T] = {}
        self.indexes = indexes
        self._report = report

    def put(self, key: str, obj: T) -> None:
        """Enter or replace one object."""
        old = self.objects.get(key)
        self.objects[key] = obj
        for name, index in self.indexes.items():
            self.put_in_index(name, index, key, obj, old)

    def keep(self, key: str, obj: T, source: Contents[T]) -> None:
        """Take over an object of `source`, with the index values it has there."""
        old = self.objects.get(key)
        self.objects[key] = obj
        for name, index in self.indexes.items():
            there = source.indexes.get(name)
            if there is None:
                self.put_in_index(name, index, key, obj, old)
            else:
                index.put_values(key, obj, there.values_of(key, obj), old)

    def remove(self, key: str) -> T | None:
        """Take one object out; returns it, or None if there was none."""
        old = self.objects.pop(key, None)
        if old is not None:
            for index in self.indexes.values():
                index.remove(key, old)

        return old

    def put_in_index(
        self, name: str, index: Index[T], key: str, obj: T, old: T | None
    ) -> None:
        """Enter an object into one index; if its function fails, it is absent there."""
        try:
            index.put(key, obj, old)
        except Exception as exc:  # noqa: BLE001 - the user's code, reported
            if old is not None:
                index.remove(key, old)

            failure = HandlerError("index function", name, obj)
            failure.__cause__ = exc
            self._report(failure)


class Store(Generic[T]):
    """Objects by key.

    Reads (`get`, `get_by_key`, `list`, `list_keys`, `len`) may come from any thread and
    never raise for lack of a sync: a store is a bare container. Objects handed out are
    the stored ones: treat them as read-only.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        on_error: Told of index functions that fail; logged if left out. What it raises
            is logged and dropped.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        self.key_func = key_func
        self._on_error = on_error or _log
        self._contents: Contents[T] = Contents({}, self._report)
        self._resource_version = ""

    def __len__(self) -> int:
        return len(self._contents.objects)

    def __contains__(self, key: object) -> bool:
        return key in self._contents.objects

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} objects>"

    @property
    def resource_version(self) -> str:
        """The version up to which everything is applied; empty before the first list."""
        return self._resource_version

    # ------------------------------------------------------------ reads, any thread

    def get_by_key(self, key: str) -> T | None:
        """The object under `key`, or None."""
        return self._contents.objects.get(key)

    def get(self, obj: T) -> T | None:
        """The stored object with the key of `obj`, or None."""
        return self.get_by_key(self.key_func(obj))

    def list(self) -> builtins.list[T]:
        """All objects, in a fresh list."""
        return list(self._contents.objects.values())

    def list_keys(self) -> builtins.list[str]:
        """All keys, in a fresh list."""
        return list(self._contents.objects)

    # ------------------------------------------------------------ writes, one loop

    def add(self, obj: T) -> None:
        """Enter an object, or replace the one with its key; the same as `update`."""
        self._contents.put(self.key_func(obj), obj)

    update = add

    def delete(self, obj: T) -> None:
        """Take out the object with the key of `obj`; no error if there is none."""
        self._contents.remove(self.key_func(obj))

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Put `objects` in the place of everything; readers see all of it or nothing.

        Of several objects with one key the last wins.
        """
        replacement = self.replacement()
        for obj in objects:
            replacement.put(self.key_func(obj), obj)

        self.swap(replacement, resource_version)

    def resync(self) -> None:
        """Do nothing: there is nobody behind a store to be told again."""

    # ------------------------------------------------------------ for the pipeline

    @property
    def contents(self) -> Contents[T]:
        """What it holds now; only the owner of the store changes it."""
        return self._contents

    def replacement(self) -> Contents[T]:
        """Empty contents with the same indexes, to be filled and given to `swap`."""
        return Contents(
            {name: index.empty_copy() for name, index in self._indexes().items()},
            self._report,
        )

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """Put the replacement in place, in one step; returns the old contents."""
        for name, index in self._indexes().items():
            if name not in replacement.indexes:  # added while it was being filled
                late = replacement.indexes[name] = index.empty_copy()
                _fill(name, late, replacement)

        old, self._contents = self._contents, replacement
        self._resource_version = resource_version
        return old

    def applied(self, resource_version: str) -> None:
        """Everything up to this version is in the store."""
        self._resource_version = resource_version

    def _indexes(self) -> Mapping[str, Index[T]]:
        return self._contents.indexes

    def _report(self, failure: HandlerError) -> None:
        try:
            self._on_error(failure)
        except Exception:  # the user's error handler
            logger.exception("on_error failed")


def _fill(name: str, index: Index[T], contents: Contents[T]) -> None:
    for key, obj in contents.objects.items():
        contents.put_in_index(name, index, key, obj, None)


class Indexer(Store[T]):
    """A store with secondary indexes.

    Args:
        indexers: Index functions by the name of their index.
        key_func: As for `Store`.
        on_error: As for `Store`. An object for which an index function fails is stored,
            and absent from that index.
    """

    def __init__(
        self,
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        super().__init__(key_func=key_func, on_error=on_error)
        self.add_indexers(indexers or {})

    @property
    def indexers(self) -> dict[str, IndexFunction[T]]:
        """The index functions by name, in a fresh dict."""
        indexes = dict(self._indexes())
        return {name: index.function for name, index in indexes.items()}

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes; the objects that are there are entered before this returns.

        That takes about 2 microseconds for each object and index, in one go: with very
        many objects, add indexes before they come. Adding the same function under the same name again changes nothing.

        Raises:
            OptionsError: A name is taken by another function; nothing was added.
        """
        taken = self._indexes()
        for name, function in indexers.items():
            if name in taken and taken[name].function != function:
                raise OptionsError(f"there is another index named {name!r} already")

        for name, function in indexers.items():
            if name not in taken:
                index: Index[T] = Index(function)
                _fill(name, index, self._contents)
                self._contents.indexes[name] = index

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """The objects that have `value` in the index `name`, in a fresh list.

        Raises:
            OptionsError: There is no such index.
        """
        bucket = self._index(name).buckets.get(value)
        return [] if bucket is None else list(bucket.values())

    def index_keys(self, name: str, value: str) -> builtins.list[str]:
        """The keys of those objects, sorted.

        Raises:
            OptionsError: There is no such index.
        """
        return sorted(self._index(name).buckets.get(value, ()))

    def index(self, name: str, obj: T) -> builtins.list[T]:
        """The objects that share a value with `obj` in the index `name`.

        Raises:
            OptionsError: There is no such index.
            Exception: Whatever the index function raises for `obj`.
        """
        return self._index(name).find(obj)

    def list_index_func_values(self, name: str) -> builtins.list[str]:
        """All values of the index `name`.

        Raises:
            OptionsError: There is no such index.
        """
        return list(self._index(name).buckets)

    def _index(self, name: str) -> Index[T]:
        index = self._contents.indexes.get(name)
        if index is None:
            known = ", ".join(sorted(self._contents.indexes)) or "none"
            raise OptionsError(f"there is no index named {name!r} (there are: {known})")

        return index


def _log(failure: HandlerError) -> None:
    logger.error("%s", failure, exc_info=failure.__cause__)
