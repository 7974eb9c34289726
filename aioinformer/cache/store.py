"""`Store` and `Indexer`: keyed objects, with secondary indexes.

Objects may be of any type for which there is a key function. Writes are made in one
event loop and never wait. Reads may be made from any thread, and each reads one
snapshot.

A store reads and writes `Contents`, which hold its objects and indexes: in memory,
unless it is given others. A list is built as other contents, in slices, and swapped in
at once. Errors of index functions are reported after the write.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.budget import LoopBudget
from aioinformer.cache.index import check_index_function
from aioinformer.cache.memory import MemoryContents
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import key_of, meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator

    from aioinformer.cache.index import IndexFunction
    from aioinformer.cache.interface import Building, Contents, IndexReads

__all__ = ["Indexer", "Store"]

T = TypeVar("T")

logger: Final = guarded_logger(__name__)


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
        self._contents: Contents[T] = MemoryContents({}, self.report)
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
        contents = self._contents
        with contents.reading():
            return list(contents.objects.values())

    def list_keys(self) -> builtins.list[str]:
        """Return all keys, in a new list."""
        contents = self._contents
        with contents.reading():
            return list(contents.objects)

    # ------------------------------------------------------------ writes, one loop

    def add(self, obj: T) -> None:
        """Store an object, in place of one with the same key. The same as `update`.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        key = key_of(obj, self.key_func)
        with self.step():
            self._contents.put(key, obj)

    update = add

    def delete(self, obj: T) -> None:
        """Remove the object with the key of `obj`, if there is one.

        Raises:
            NoKey: If `obj` has no key; nothing is written.
        """
        key = key_of(obj, self.key_func)
        with self.step():
            self._contents.remove(key)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Replace all objects at once; of several objects with one key the last wins.

        That blocks the event loop for one to two microseconds per object, and per index
        of each object.

        Raises:
            NoKey: If an object has no key; nothing is written.
        """
        with self.step():
            replacement = self.replacement()
            for obj in objects:
                replacement.put(key_of(obj, self.key_func), obj)

            self.swap(replacement, resource_version)

    def resync(self) -> None:
        """Do nothing: a store has no handlers."""

    # ------------------------------------------------------------ for the pipeline

    @property
    def contents(self) -> Contents[T]:
        """Objects and indexes now; only the owner of the store changes them."""
        return self._contents

    def use(self, contents: Contents[T]) -> Contents[T]:
        """Read and write other contents from now on; return the old ones.

        Args:
            contents: Contents with the indexes of the store, which report errors of
                index functions to its `report`.
        """
        old, self._contents = self._contents, contents
        return old

    def replacement(self) -> Contents[T]:
        """Return empty contents with the same indexes, for `swap`."""
        return self._contents.replacement()

    async def complete(self, replacement: Contents[T]) -> None:
        """Add the indexes that the store got since a replacement was created.

        It works in slices of the loop's budget. `swap` does the same, but blocks the
        event loop.

        Cancellation:
            Safe: call it again, or `swap`.
        """
        late = self._late(replacement)
        if late is not None:
            await _build(late)

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """Replace the contents at once; return the old ones."""
        late = self._late(replacement)
        if late is not None:
            _build_at_once(late)

        old = self._contents
        self._contents = old.replace_with(replacement, resource_version)
        return old

    def applied(self, resource_version: str) -> None:
        """Set the version that the store has applied."""
        self._contents.resource_version = resource_version

    def _late(self, replacement: Contents[T]) -> Building | None:
        """Return a build of the indexes that a replacement lacks, or None."""
        late = {
            name: index.function
            for name, index in self._contents.indexes.items()
            if name not in replacement.indexes
        }
        return replacement.build(late, self._contents) if late else None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the writes in a block one step, and then report errors of index functions.

        `on_error` may read the store, write to it, or add a handler to its informer. In
        the middle of a step it would see and change an incomplete state.
        """
        self.holding = True
        contents = self._contents
        try:
            with contents.step():
                yield
        except BaseException:
            self._contents = contents  # nothing was written
            raise
        finally:
            self.holding = False
            if self.held:
                self.report_held()

    def report_held(self) -> None:
        """Report the errors of a step that has ended."""
        held, self.held = self.held, []
        for failure in held:
            self.report(failure)

    def report(self, failure: HandlerError) -> None:
        """Report an error of an index function, at the end of the current step."""
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
        # Indexes that are being built, to refuse others of the same names.
        self._coming: builtins.list[Mapping[str, IndexFunction[T]]] = []
        self.add_indexers(indexers or {})

    @property
    def indexers(self) -> dict[str, IndexFunction[T]]:
        """Index functions by name, in a new dict."""
        indexes = dict(self._contents.indexes)
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
            _build_at_once(self._contents.build(new))

    async def build_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes in slices that leave time for other tasks.

        The store may be written to and even replaced meanwhile. All indexes appear
        together, and complete, when this returns.

        Raises:
            OptionsError: If an index is invalid, see `add_indexers`.

        Cancellation:
            Safe: none of them was added.
        """
        coming = new = self._new(indexers)
        self._coming.append(coming)
        try:
            while new:
                await _build(self._contents.build(new))
                new = self._new(coming)  # not empty after `use()`
        finally:
            self._coming.remove(coming)

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
        for coming in self._coming:
            taken |= coming

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
        index = self._contents.indexes.get(name)
        if index is None:
            raise self._no_index(name)

        return index.objects_of(value)

    def index_keys(self, name: str, value: str) -> builtins.list[str]:
        """Return the keys of the objects that have `value` in the index `name`, sorted.

        Raises:
            OptionsError: If there is no such index.
        """
        with self._contents.reading():
            return sorted(self._index(name).keys_of(value))

    def index(self, name: str, obj: T) -> builtins.list[T]:
        """Return the objects that share a value with `obj` in an index, each once.

        Args:
            name: Name of the index.
            obj: Object to compare with; need not be stored.

        Raises:
            OptionsError: If there is no such index.
            Exception: Error of the index function for `obj`.
        """
        with self._contents.reading():
            return self._index(name).find(obj)

    def list_index_func_values(self, name: str) -> builtins.list[str]:
        """Return all values of the index `name`.

        Raises:
            OptionsError: If there is no such index.
        """
        with self._contents.reading():
            return self._index(name).values()

    def _index(self, name: str) -> IndexReads[T]:
        index = self._contents.indexes.get(name)
        if index is None:
            raise self._no_index(name)

        return index

    def _no_index(self, name: str) -> OptionsError:
        known = ", ".join(sorted(self._contents.indexes)) or "none"
        return OptionsError(f"no index named {name!r} (indexes: {known})")


def _log(failure: HandlerError) -> None:
    logger.error("%s", failure, exc_info=failure.__cause__)


def _build_at_once(building: Building) -> None:
    try:
        for _ in building.steps():
            pass

        building.publish()
    finally:
        building.close()


async def _build(building: Building) -> None:
    budget = LoopBudget.current()
    try:
        await budget.start()
        for _ in building.steps():
            if budget.over():
                await budget.start()

        building.publish()  # no await after the last step
        budget.end()
    finally:
        building.close()
