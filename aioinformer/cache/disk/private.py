"""Indexes that a reader of a store on disk keeps in memory, as keys only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioinformer._user_code import user_errors
from aioinformer.cache.disk.records import name_of
from aioinformer.cache.index import Index, pack_values
from aioinformer.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.index import IndexFunction, Packed
    from aioinformer.model.objects import KubeObject

    Functions = Mapping[str, IndexFunction[KubeObject]]

__all__ = [
    "PrivateBuilding",
    "PrivateIndexes",
    "Walk",
    "private_index",
    "put",
    "values_of",
]

_OBJECTS_IN_A_STEP: Final = 16


class PrivateIndexes:
    """Indexes whose functions the writer of a store does not have.

    Args:
        report: Function called with errors of index functions; must not raise.
    """

    def __init__(self, report: Callable[[HandlerError], None]) -> None:
        self._report = report
        self.complete: dict[str, Index[str]] = {}
        """Indexes by name."""
        self.walks: list[Walk] = []
        """Walks for what is being built."""

    @property
    def active(self) -> bool:
        """True if changes matter."""
        return bool(self.complete or self.walks)

    def follow(
        self,
        functions: Functions,
        changes: Iterable[tuple[KubeObject | None, KubeObject | None]],
    ) -> None:
        """Take changes of objects, by old and new states.

        Args:
            functions: Index functions by name.
            changes: Old and new states; None for no object.
        """
        for old, new in changes:
            changed = new or old
            if changed is not None:
                self._put(functions, changed.key, new)

    def _put(self, functions: Functions, key: str, new: KubeObject | None) -> None:
        for name, index in self.complete.items():
            put(name, functions[name], index, key, new, self._report)

        for walk in self.walks:
            walk.follow(key, new)

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop all other indexes: the writer keeps them now."""
        kept = set(names)
        for name in [it for it in self.complete if it not in kept]:
            del self.complete[name]

    def listed(self) -> None:
        """Begin again: a list came into the empty store."""
        self.complete.clear()
        for walk in self.walks:
            walk.begin()


class Walk:
    """Walk through the stored objects, that changes of the ones it has passed follow.

    Args:
        contents: Contents to read.
        walks: Walks that follow changes.
        put: Function that takes the key and state of each object, and of each later
            change; None for a deletion.
    """

    def __init__(
        self,
        contents: DiskContents,
        walks: list[Walk],
        put: Callable[[str, KubeObject | None], None],
    ) -> None:
        self._contents = contents
        self._walks = walks
        self._put = put
        walks.append(self)
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again: a list came into the empty store."""
        # Name of the last object that was put.
        self._after: bytes | None = None

    def steps(self) -> Iterator[None]:
        """Put a few objects in each step, until none is left."""
        contents = self._contents
        while found := contents.slice(self._after, _OBJECTS_IN_A_STEP):
            for name, record in found:
                self._put(*contents.decode(name, record))

            self._after = found[-1][0]
            yield

    def follow(self, key: str, new: KubeObject | None) -> None:
        """Take a change of an object that was put; others come later."""
        if self._after is not None and name_of(key) <= self._after:
            self._put(key, new)

    def end(self) -> None:
        """End it, complete or not."""
        self._walks.remove(self)


class PrivateBuilding:
    """Indexes that a reader builds in memory, as keys only.

    Args:
        contents: Contents to index.
        private: Indexes of that reader that follow changes.
        functions: Index functions by the names of their indexes.
    """

    def __init__(
        self,
        contents: DiskContents,
        private: PrivateIndexes,
        functions: Mapping[str, IndexFunction[KubeObject]],
    ) -> None:
        self._contents = contents
        self._functions = dict(functions)
        self._indexes: dict[str, Index[str]] = {
            name: private_index() for name in functions
        }
        self._walk = Walk(contents, private.walks, self._put)

    def steps(self) -> Iterator[None]:
        """Index a few objects in each step, until none is left."""
        return self._walk.steps()

    def _put(self, key: str, obj: KubeObject | None) -> None:
        for name, index in self._indexes.items():
            put(name, self._functions[name], index, key, obj, self._contents.report)

    def publish(self) -> None:
        """Make the complete indexes readable, except for names in use."""
        self._contents.publish_private(self._functions, self._indexes)

    def close(self) -> None:
        """End the building, complete or not."""
        self._walk.end()


def private_index() -> Index[str]:
    """Return an empty index of keys; its values are put by `put()`."""
    # Not the function itself: its values are kept even if calling it again is cheap.
    return Index(_never_called)


def _never_called(key: str) -> tuple[str, ...]:
    raise NotImplementedError


def put(
    name: str,
    function: IndexFunction[KubeObject],
    index: Index[str],
    key: str,
    obj: KubeObject | None,
    report: Callable[[HandlerError], None],
) -> None:
    """Index an object by its key, or remove it for None."""
    if obj is None:
        index.remove(key, key)
        return

    failures: list[HandlerError] = []
    packed = values_of(name, function, obj, obj, failures)
    index.put_values(key, key, packed, key)
    for failure in failures:
        report(failure)


def values_of(
    name: str,
    function: IndexFunction[KubeObject],
    read: KubeObject,
    obj: KubeObject,
    failures: list[HandlerError],
) -> Packed:
    """Return the index values of an object; None and an error if its function fails.

    Args:
        name: Name of the index.
        function: Index function.
        read: Object that is passed to it.
        obj: Object for the error.
        failures: List that gets the error.
    """
    try:
        packed = pack_values(function(read))
        if isinstance(packed, str):
            packed.encode()  # an invalid text is an error of the function
    except user_errors() as exc:  # reported
        failure = HandlerError("index function", name, obj)
        failure.__cause__ = exc
        failures.append(failure)
        return None

    return packed
