"""`StoredBuilding`: indexes on disk that are being built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.cache.disk.contents import DiskContents
    from aioinformer.cache.index import IndexFunction
    from aioinformer.model.objects import KubeObject

__all__ = ["StoredBuilding"]


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

    def publish(self) -> None:
        """Make the complete indexes readable, except for names in use."""
        self._contents.publish_stored(self._functions)

    def close(self) -> None:
        """End the building, complete or not."""
        self._contents.growing.remove(self)
