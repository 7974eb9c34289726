"""Indexes of a `DiskContents` that are being built, on disk or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioinformer._user_code import user_errors
from aioinformer.cache.disk.records import name_of
from aioinformer.cache.index import Index, pack_values
from aioinformer.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.index import IndexFunction
    from aioinformer.model.objects import KubeObject

__all__ = [
    "PrivateBuilding",
    "StoredBuilding",
    "failure_of",
    "private_index",
    "put_private",
]

_OBJECTS_IN_A_STEP: Final = 16


class StoredBuilding:
    """Indexes that a writer builds, in small transactions.

    Objects that are written meanwhile are indexed when they are written.

    Args:
        contents: Contents to index; `close()` at the end.
        functions: Index functions by the names of their indexes.
    """

    def __init__(
        self,
        contents: DiskContents,
        functions: Mapping[str, IndexFunction[KubeObject]],
    ) -> None:
        self._functions = dict(functions)
        self.begin(contents)

    def begin(self, contents: DiskContents) -> None:
        """Begin with these contents."""
        contents.begin_indexes(self._functions)
        contents.growing.append(self)
        self._contents = contents
        self._after: bytes | None = None

    def steps(self) -> Iterator[None]:
        """Index a few objects in each step, until none is left."""
        while self._contents.sweep():
            yield

        while names := [it for it in self._functions if self._lacks(it)]:
            contents = self._contents
            last = contents.index_some(self._after, names)
            if contents is self._contents:
                if last is None:
                    return

                self._after = last

            yield

    def _lacks(self, name: str) -> bool:
        return not self._contents.is_complete(name)

    def follow(self, key: str, new: KubeObject | None) -> None:
        """Do nothing: what is written is indexed."""

    def publish(self) -> None:
        """Make the complete indexes readable, except for names in use."""
        self._contents.publish_stored(self._functions)

    def close(self) -> None:
        """End the building, complete or not."""
        self._contents.growing.remove(self)


class PrivateBuilding:
    """Indexes that a reader builds in memory, as keys only.

    Args:
        contents: Contents to index; `close()` at the end.
        functions: Index functions by the names of their indexes.
    """

    def __init__(
        self,
        contents: DiskContents,
        functions: Mapping[str, IndexFunction[KubeObject]],
    ) -> None:
        self._functions = dict(functions)
        self._contents = contents
        contents.growing.append(self)
        self.begin(contents)

    def begin(self, contents: DiskContents) -> None:
        """Begin again, as the objects were replaced."""
        self.indexes = {name: private_index() for name in self._functions}
        # Name of the last object that was indexed.
        self._after: bytes | None = None

    def steps(self) -> Iterator[None]:
        """Index a few objects in each step, until none is left."""
        contents = self._contents
        while found := contents.slice(self._after, _OBJECTS_IN_A_STEP):
            for name, record in found:
                self._put(*contents.decode(name, record))

            self._after = found[-1][0]
            yield

    def follow(self, key: str, new: KubeObject | None) -> None:
        """Take a change of an object that was indexed; others come later."""
        if self._after is not None and name_of(key) <= self._after:
            self._put(key, new)

    def _put(self, key: str, obj: KubeObject | None) -> None:
        for name, index in self.indexes.items():
            failure = put_private(name, self._functions[name], index, key, obj)
            if failure is not None:
                self._contents.report(failure)

    def publish(self) -> None:
        """Make the complete indexes readable, except for names in use."""
        self._contents.publish_private(self._functions, self.indexes)

    def close(self) -> None:
        """End the building, complete or not."""
        self._contents.growing.remove(self)


def private_index() -> Index[str]:
    """Return an empty index of keys; its values are put by `put_private`."""
    # Not the function itself: its values are kept even if calling it again is cheap.
    return Index(_never_called)


def _never_called(key: str) -> tuple[str, ...]:
    raise NotImplementedError


def put_private(
    name: str,
    function: IndexFunction[KubeObject],
    index: Index[str],
    key: str,
    obj: KubeObject | None,
) -> HandlerError | None:
    """Index an object by its key, or remove it for None; return an error, or None."""
    if obj is None:
        index.remove(key, key)
        return None

    try:
        packed = pack_values(function(obj))
    except user_errors() as exc:  # reported
        index.remove(key, key)
        return failure_of(name, obj, exc)

    index.put_values(key, key, packed, key)
    return None


def failure_of(name: str, obj: KubeObject, cause: BaseException) -> HandlerError:
    """Return the error of an index function that failed for an object."""
    failure = HandlerError("index function", name, obj)
    failure.__cause__ = cause
    return failure
