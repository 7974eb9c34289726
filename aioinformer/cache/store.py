"""`Store` and `Indexer`: keyed objects in memory, with secondary indexes.

Objects may be of any type for which there is a key function. Writes belong to one event
loop and never wait; reads may come from any thread, and each answers from one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.budget import LoopBudget
from aioinformer.cache.contents import Contents, Growing
from aioinformer.cache.index import check_index_function
from aioinformer.errors import OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.index import Index, IndexFunction
    from aioinformer.errors import HandlerError

__all__ = ["Contents", "Indexer", "Store"]

T = TypeVar("T")

logger = guarded_logger(__name__)


class Store(Generic[T]):
    """Objects by key.

    Reads (`get`, `get_by_key`, `list`, `list_keys`, `len`) may come from any thread and
    never raise for lack of a sync: a store is a bare container. Objects handed out are
    the stored ones: treat them as read-only.

    Args:
        key_func: The key of an object; `"namespace/name"` of its metadata if left out.
        on_error: Told of index functions that fail; logged if left out. What it raises
            is logged and dropped.

    Raises:
        OptionsError: `on_error` is no plain function.
    """

    def __init__(
        self,
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        if on_error is not None:
            check_plain(on_error, "on_error")

        self.key_func = key_func
        self._on_error = on_error or _log
        self._contents: Contents[T] = Contents({}, self._report)
        # While a step is under way, failures wait here.
        self.holding = False
        self.held: builtins.list[HandlerError] = []

    def __len__(self) -> int:
        return len(self._contents.objects)

    def __contains__(self, key: object) -> bool:
        return key in self._contents.objects

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} objects>"

    @property
    def resource_version(self) -> str:
        """The version up to which everything is applied; empty before the first list."""
        return self._contents.resource_version

    # ------------------------------------------------------------ reads, any thread

    def get_by_key(self, key: str) -> T | None:
        """The object under `key`, or None."""
        return self._contents.objects.get(key)

    def get(self, obj: T) -> T | None:
        """The stored object with the key of `obj`, or None.

        Raises:
            NoKey: `obj` has no key.
        """
        return self.get_by_key(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """All objects, in a fresh list."""
        return list(self._contents.objects.values())

    def list_keys(self) -> builtins.list[str]:
        """All keys, in a fresh list."""
        return list(self._contents.objects)

    # ------------------------------------------------------------ writes, one loop

    def add(self, obj: T) -> None:
        """Enter an object, or replace the one with its key; the same as `update`.

        Raises:
            NoKey: `obj` has no key; nothing is written.
        """
        self._contents.put(key_of(obj, self.key_func), obj)

    update = add

    def delete(self, obj: T) -> None:
        """Take out the object with the key of `obj`; no error if there is none.

        Raises:
            NoKey: `obj` has no key; nothing is written.
        """
        self._contents.remove(key_of(obj, self.key_func))

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Put `objects` in the place of everything; readers see all of it or nothing.

        Of several objects with one key the last wins. That takes one to two
        microseconds for each object, and for each of its indexes, in one go.

        Raises:
            NoKey: One of them has no key; nothing is written.
        """
        replacement = self.replacement()
        self.hold_reports()
        try:
            for obj in objects:
                replacement.put(key_of(obj, self.key_func), obj)

            self.swap(replacement, resource_version)
        finally:
            self.release_reports()

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

    async def complete(self, replacement: Contents[T]) -> None:
        """Give a replacement the indexes that were added since it was begun.

        In slices of the loop's budget. `swap` does it as well, but in one go.

        Cancellation:
            Safe: call it again, or `swap`.
        """
        late = self._late(replacement)
        if late is not None:
            await _grow(late)

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """Put the replacement in place, in one step; returns the old contents."""
        late = self._late(replacement)
        if late is not None:
            _grow_at_once(late)

        replacement.resource_version = resource_version
        old, self._contents = self._contents, replacement
        old.growing, growing = [], old.growing
        for it in growing:
            it.begin(replacement)

        return old

    def applied(self, resource_version: str) -> None:
        """Everything up to this version is in the store."""
        self._contents.resource_version = resource_version

    def _late(self, replacement: Contents[T]) -> Growing[T] | None:
        """The indexes that a replacement lacks; None if it lacks none."""
        late = {
            name: index.function
            for name, index in self._indexes().items()
            if name not in replacement.indexes
        }
        return Growing(late, replacement, self._contents) if late else None

    def _indexes(self) -> Mapping[str, Index[T]]:
        return self._contents.indexes

    def hold_reports(self) -> None:
        """Begin a step of several writes: keep failures until `release_reports()`.

        `on_error` may read the store, write to it, or add a handler to its informer. In
        the middle of a step it would see and change a half of it.
        """
        self.holding = True

    def release_reports(self) -> None:
        """End the step, and report what has failed in it."""
        self.holding = False
        if self.held:
            held, self.held = self.held, []
            for failure in held:
                self._report(failure)

    def _report(self, failure: HandlerError) -> None:
        if self.holding:
            self.held.append(failure)
            return

        try:
            self._on_error(failure)
        except user_errors():  # logged and dropped
            logger.exception("on_error failed")


def _grow_at_once(growing: Growing[T]) -> None:
    try:
        for _ in growing.steps():
            pass

        growing.publish()
    finally:
        growing.close()


async def _grow(growing: Growing[T]) -> None:
    budget = LoopBudget.current()
    try:
        await budget.start()
        for _ in growing.steps():
            if budget.over():
                await budget.start()

        growing.publish()  # no await behind the last step
        budget.end()
    finally:
        growing.close()


class Indexer(Store[T]):
    """A store with secondary indexes.

    Args:
        indexers: Index functions by the name of their index.
        key_func: As for `Store`.
        on_error: As for `Store`. An object for which an index function fails is stored,
            and absent from that index.

    Raises:
        OptionsError: As `Store`, and as `add_indexers`.
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

        That takes one to two microseconds for each object and index, in one go: with very
        many objects, add indexes before they come, or `await build_indexers`. Adding
        the same function under the same name again changes nothing.

        Raises:
            OptionsError: A name is taken by another function, or one is no plain
                function; nothing was added.
        """
        new = self._new(indexers)
        if new:
            _grow_at_once(Growing(new, self._contents))

    async def build_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """The same as `add_indexers`, in slices that leave time for everything else.

        The store may be written to and even replaced meanwhile. The indexes are there,
        all of them and complete, when this returns, and not before.

        Raises:
            OptionsError: As `add_indexers`.

        Cancellation:
            Safe: none of them is there.
        """
        new = self._new(indexers)
        if new:
            await _grow(Growing(new, self._contents))

    def _new(
        self, indexers: Mapping[str, IndexFunction[T]]
    ) -> dict[str, IndexFunction[T]]:
        """Those that are not there yet."""
        known = self.indexers
        taken = dict(known)
        for growing in self._contents.growing:
            taken |= {name: it.function for name, it in growing.indexes.items()}

        for name, function in indexers.items():
            check_index_function(name, function)
            if name in taken and taken[name] != function:
                raise OptionsError(f"there is another index named {name!r} already")

        return {name: it for name, it in indexers.items() if name not in known}

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
        """The objects that share a value with `obj` in the index `name`, each once.

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
