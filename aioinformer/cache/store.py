"""`Store` and `Indexer`: keyed objects in memory, with secondary indexes.

Objects may be of any type for which there is a key function. Writes are made in one
event loop and never wait. Reads may be made from any thread, and each reads one
snapshot.

A store holds its objects and indexes as `Contents`. A list is built as other contents,
in slices, and swapped in at once. Errors of index functions are reported after the
write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.budget import LoopBudget
from aioinformer.cache.index import Index, check_index_function
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator

    from aioinformer.cache.index import IndexFunction

__all__ = ["Contents", "Growing", "Indexer", "Store"]

T = TypeVar("T")

logger: Final = guarded_logger(__name__)

# Objects between two checks of the budget. One with an index into its body takes 5 us.
_OBJECTS_IN_A_STEP = 16


class Store(Generic[T]):
    """Objects by key.

    Reads (`get`, `get_by_key`, `list`, `list_keys`, `len`) may be made from any thread.
    They never raise `NotSynced`, as a store is a plain container. They return the
    stored objects: treat these as read-only.

    Args:
        key_func: Function that returns the key of an object; by default
            `"namespace/name"` of its metadata.

            on_error: Function called with errors of index functions; logged by default.
            Its own errors are logged and dropped.

    Raises:
        OptionsError: If `on_error` is not a plain function.
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
        # Errors of the current step.
        self.holding: bool = False
        self.held: builtins.list[HandlerError] = []

    def __len__(self) -> int:
        return len(self._contents.objects)

    def __contains__(self, key: object) -> bool:
        return key in self._contents.objects

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} objects>"

    @property
    def resource_version(self) -> str:
        """Version that the store has applied; empty before the first list."""
        return self._contents.resource_version

    # ------------------------------------------------------------ reads, any thread

    def get_by_key(self, key: str) -> T | None:
        """Return the object under `key`, or None."""
        return self._contents.objects.get(key)

    def get(self, obj: T) -> T | None:
        """Return the stored object with the key of `obj`, or None.

        Raises:
            NoKey: If `obj` has no key.
        """
        return self.get_by_key(key_of(obj, self.key_func))

    def list(self) -> builtins.list[T]:
        """Return all objects, in a new list."""
        return list(self._contents.objects.values())

    def list_keys(self) -> builtins.list[str]:
        """Return all keys, in a new list."""
        return list(self._contents.objects)

    # ------------------------------------------------------------ writes, one loop

    def add(self, obj: T) -> None:
        """Store an object, in place of one with the same key. The same as `update`.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        self._contents.put(key_of(obj, self.key_func), obj)

    update = add

    def delete(self, obj: T) -> None:
        """Remove the object with the key of `obj`, if there is one.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        self._contents.remove(key_of(obj, self.key_func))

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Replace all objects at once; of several objects with one key the last wins.

        That blocks the event loop for one to two microseconds per object, and per index
        of each object.

        Raises:
            NoKey: If an object has no key; nothing is written.
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
        """Do nothing: a store has no handlers."""

    # ------------------------------------------------------------ for the pipeline

    @property
    def contents(self) -> Contents[T]:
        """Objects and indexes now; only the owner of the store changes them."""
        return self._contents

    def replacement(self) -> Contents[T]:
        """Return empty contents with the same indexes, for `swap`."""
        return Contents(
            {name: index.empty_copy() for name, index in self._indexes().items()},
            self._report,
        )

    async def complete(self, replacement: Contents[T]) -> None:
        """Add the indexes that the store got since a replacement was created.

        It works in slices of the loop's budget. `swap` does the same, but blocks the
        event loop.

        Cancellation:
            Safe: call it again, or `swap`.
        """
        late = self._late(replacement)
        if late is not None:
            await _grow(late)

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """Replace the contents at once; return the old ones."""
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
        """Set the version that the store has applied."""
        self._contents.resource_version = resource_version

    def _late(self, replacement: Contents[T]) -> Growing[T] | None:
        """Return a build of the indexes that a replacement lacks, or None."""
        late = {
            name: index.function
            for name, index in self._indexes().items()
            if name not in replacement.indexes
        }
        return Growing(late, replacement, self._contents) if late else None

    def _indexes(self) -> Mapping[str, Index[T]]:
        return self._contents.indexes

    def hold_reports(self) -> None:
        """Begin a step of several writes: keep errors until `release_reports()`.

        `on_error` may read the store, write to it, or add a handler to its informer. In
        the middle of a step it would see and change an incomplete state.
        """
        self.holding = True

    def release_reports(self) -> None:
        """End the step, and report its errors."""
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


class Indexer(Store[T]):
    """Store with secondary indexes.

    Args:
        indexers: Index functions by the name of their index. An object whose index
            function fails is stored, and absent from that index.
        key_func: Key function, see `Store`.
        on_error: Function called with errors, see `Store`.

    Raises:
        OptionsError: If an index is invalid, see `add_indexers`, or `on_error` is not a
            plain function.
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
        """Index functions by name, in a new dict."""
        indexes = dict(self._indexes())
        return {name: index.function for name, index in indexes.items()}

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes, and index all stored objects.

        That blocks the event loop for one to two microseconds per object and index.
        With very many objects, add indexes before these are stored, or `await
        build_indexers`. Adding the same function under the same name again changes
        nothing.

        Raises:
            OptionsError: If a name is used by another function, or a function is not
                plain; nothing was added.
        """
        new = self._new(indexers)
        if new:
            _grow_at_once(Growing(new, self._contents))

    async def build_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes in slices that leave time for other tasks.

        The store may be written to and even replaced meanwhile. All indexes appear
        together, and complete, when this returns.

        Raises:
            OptionsError: If an index is invalid, see `add_indexers`.

        Cancellation:
            Safe: none of them was added.
        """
        new = self._new(indexers)
        if new:
            await _grow(Growing(new, self._contents))

    def _new(
        self, indexers: Mapping[str, IndexFunction[T]]
    ) -> dict[str, IndexFunction[T]]:
        """Return the index functions that the store lacks."""
        if not isinstance(indexers, Mapping):
            raise OptionsError(
                "indexers must be a dict of functions by name, such as "
                f'{{"node": index_by("spec.nodeName")}}, not {indexers!r}'
            )

        known = self.indexers
        taken = dict(known)
        for growing in self._contents.growing:
            taken |= {name: it.function for name, it in growing.indexes.items()}

        for name, function in indexers.items():
            check_index_function(name, function)
            if name in taken and taken[name] != function:
                raise OptionsError(f"index {name!r} already exists")

        return {name: it for name, it in indexers.items() if name not in known}

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """Return the objects that have `value` in the index `name`, in a new list.

        Raises:
            OptionsError: If there is no such index.
        """
        bucket = self._index(name).buckets.get(value)
        return [] if bucket is None else list(bucket.values())

    def index_keys(self, name: str, value: str) -> builtins.list[str]:
        """Return the keys of the objects that have `value` in the index `name`, sorted.

        Raises:
            OptionsError: If there is no such index.
        """
        return sorted(self._index(name).buckets.get(value, ()))

    def index(self, name: str, obj: T) -> builtins.list[T]:
        """Return the objects that share a value with `obj` in an index, each once.

        Args:
            name: Name of the index.
            obj: Object to compare with; need not be stored.

        Raises:
            OptionsError: If there is no such index.
            Exception: Error of the index function for `obj`.
        """
        return self._index(name).find(obj)

    def list_index_func_values(self, name: str) -> builtins.list[str]:
        """Return all values of the index `name`.

        Raises:
            OptionsError: If there is no such index.
        """
        return list(self._index(name).buckets)

    def _index(self, name: str) -> Index[T]:
        index = self._contents.indexes.get(name)
        if index is None:
            known = ", ".join(sorted(self._contents.indexes)) or "none"
            raise OptionsError(f"no index named {name!r} (indexes: {known})")

        return index


def _log(failure: HandlerError) -> None:
    logger.error("%s", failure, exc_info=failure.__cause__)


class Contents(Generic[T]):
    """Objects by key, with their indexes.

    A replacement is built beside the contents of a store, in as many steps as it needs,
    and then swapped in.

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
        self.objects: dict[str, T] = {}
        self.indexes: dict[str, Index[T]] = indexes
        self.resource_version: str = ""
        self.report: Callable[[HandlerError], None] = report
        # Indexes that do not have all objects yet; nearly always empty.
        self.growing: list[Growing[T]] = []

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
        contents: Contents[T],
        known: Contents[T] | None = None,
    ) -> None:
        self.indexes: dict[str, Index[T]] = {
            name: Index(function) for name, function in functions.items()
        }
        self._known = known
        self.begin(contents)

    def begin(self, contents: Contents[T]) -> None:
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
            self._enter(self._waiting.pop())
            left -= 1
            if not left:
                left = _OBJECTS_IN_A_STEP
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

        growing.publish()  # no await after the last step
        budget.end()
    finally:
        growing.close()


def _left_out(
    name: str, index: Index[T], key: str, obj: T, old: T | None, cause: BaseException
) -> HandlerError:
    """Remove an object from an index whose function failed for it; return the error."""
    if old is not None:
        index.remove(key, old)

    failure = HandlerError("index function", name, obj)
    failure.__cause__ = cause
    return failure
