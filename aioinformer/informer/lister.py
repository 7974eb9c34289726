"""`Lister`: reads from an informer's cache, plain calls from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aioinformer.cache.index import NAMESPACE_INDEX
from aioinformer.model.selectors import LabelSelector

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable

    from aioinformer.cache.store import Indexer
    from aioinformer.model.objects import KubeObject

__all__ = ["Lister"]


class Lister:
    """Reads the objects of one informer, or of one namespace of it.

    Every read answers from one snapshot and returns at once: it is memory. The cache
    follows the server at some distance; what is read may be a little old.

    All reads raise `NotSynced` before the first complete list is there and
    `InformerStopped` after the informer has ended, because a dead cache looks just like
    a live one; `allow_unsynced=True` answers with what there is.

    Args:
        indexer: The informer's cache.
        check: Raises if the cache is not to be trusted.
        namespace: Restricts it to one namespace.
    """

    def __init__(
        self,
        indexer: Indexer[KubeObject],
        check: Callable[[], None],
        namespace: str | None = None,
    ) -> None:
        self._indexer = indexer
        self._check = check
        self._namespace = namespace

    def __repr__(self) -> str:
        where = "all namespaces" if self._namespace is None else self._namespace
        return f"<Lister of {where}>"

    def namespace(self, namespace: str) -> Lister:
        """The same for one namespace."""
        return Lister(self._indexer, self._check, namespace)

    def get(self, key: str, *, allow_unsynced: bool = False) -> KubeObject | None:
        """One object, or None if there is none.

        Args:
            key: `"namespace/name"`; the bare name in a namespace's lister, and for
                cluster-scoped kinds.
            allow_unsynced: Answer although the cache is not to be trusted.

        Raises:
            NotSynced: The first complete list is not here yet.
            InformerStopped: The informer has ended.
        """
        self._trust(allow_unsynced=allow_unsynced)
        if self._namespace and "/" not in key:
            key = f"{self._namespace}/{key}"

        found = self._indexer.get_by_key(key)
        if found is None or self._namespace is None:
            return found

        return found if found.namespace == self._namespace else None

    def list(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[KubeObject]:
        """The objects whose labels match, in no particular order, in a fresh list.

        Args:
            selector: A label selector as kubectl takes it, such as
                `"app=web,tier in (a,b)"`; empty for all.
            limit: At most so many; None for all.
            allow_unsynced: Answer although the cache is not to be trusted.

        Raises:
            SelectorSyntaxError: The selector cannot be parsed.
            NotSynced: The first complete list is not here yet.
            InformerStopped: The informer has ended.
        """
        if isinstance(selector, str):
            selector = LabelSelector.parse(selector)

        self._trust(allow_unsynced=allow_unsynced)
        found = self._all()
        if not selector.empty:
            found = selector.select(found)

        return found if limit is None else found[:limit]

    def by_index(
        self, name: str, value: str, *, allow_unsynced: bool = False
    ) -> builtins.list[KubeObject]:
        """The objects that have `value` in the index `name`, in a fresh list.

        Raises:
            OptionsError: The informer has no such index.
            NotSynced: The first complete list is not here yet.
            InformerStopped: The informer has ended.
        """
        self._trust(allow_unsynced=allow_unsynced)
        found = self._indexer.by_index(name, value)
        if self._namespace is None:
            return found

        return [obj for obj in found if obj.namespace == self._namespace]

    def json(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        allow_unsynced: bool = False,
    ) -> bytes:
        """The same as `list`, as a Kubernetes `List` in JSON.

        The stored bodies are joined, not decoded. The list's version is that of the
        cache, so that a client can go on from it.

        Raises:
            SelectorSyntaxError: The selector cannot be parsed.
            NotSynced: The first complete list is not here yet.
            InformerStopped: The informer has ended.
        """
        version = self._indexer.resource_version
        objects = self.list(selector, limit=limit, allow_unsynced=allow_unsynced)
        return b"".join(
            (
                b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":',
                msgspec.json.encode(version),
                b'},"items":[',
                b",".join([obj.raw for obj in objects]),
                b"]}",
            )
        )

    def _all(self) -> builtins.list[KubeObject]:
        if self._namespace is None:
            return self._indexer.list()

        return self._indexer.by_index(NAMESPACE_INDEX, self._namespace)

    def _trust(self, *, allow_unsynced: bool) -> None:
        if not allow_unsynced:
            self._check()
