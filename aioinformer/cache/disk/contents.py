"""`DiskContents`: objects and indexes in LMDB, as `Contents` are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.index import IndexFunction
    from aioinformer.errors import HandlerError
    from aioinformer.model.objects import KubeObject

__all__ = ["DiskContents"]


class DiskContents:
    """One generation of objects in an environment, with indexes and label columns.

    Fulfils the protocol `Contents` (aioinformer/cache/interface.py). Every read is a
    transaction of its own, or joins that of `Environment.read()`.

    Args:
        env: Environment.
        records: Encoder and decoder of its records.
        functions: Index functions by name. For a reader, those whose print the header
            has are read from LMDB; it keeps the others in memory, as keys only.
        report: Function called with errors of index functions; must not raise.
        writer: True for the contents that the pipeline writes to.
    """

    def __init__(
        self,
        env: Environment,
        records: Records,
        functions: Mapping[str, IndexFunction[KubeObject]],
        report: Callable[[HandlerError], None],
        *,
        writer: bool = False,
    ) -> None:
        raise NotImplementedError

    @property
    def private(self) -> bool:
        """True if some indexes are kept in memory, so that `follow()` must be called."""
        raise NotImplementedError

    def after(self, key: str, limit: int) -> list[KubeObject]:
        """Return the next objects after a key, in the order of keys; "" for the first."""
        raise NotImplementedError

    def follow(
        self, changes: Iterable[tuple[KubeObject | None, KubeObject | None]]
    ) -> None:
        """Update the indexes that are kept in memory, by old and new states; for readers.

        The follower begins with `(None, obj)` for each stored object, in order of keys.
        Then come changes: `None` stands for no object. Indexes that are added later are
        built by `build()`.
        """
        raise NotImplementedError
