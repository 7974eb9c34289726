"""Owners of an object, and the objects that it owns, as far as informers have them."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioinformer.budget import LoopBudget
from aioinformer.cache.index import NAMESPACE_INDEX, index_by_owner
from aioinformer.errors import AioInformerError, DecodeError
from aioinformer.model.objects import KubeObject
from aioinformer.tables import pod_trouble
from aioinformer.tables.cells import text
from aioinformer.watch.interface import Selectors
from aioinformer.watch.kinds import type_of
from aioinformer.web.dashboard.object_events import MAX_SCANNED, is_of_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.informer.shared_informer import SharedInformer

    Informers: TypeAlias = Mapping[str, SharedInformer]
    Owned: TypeAlias = Callable[[str], list[KubeObject]]

__all__ = ["MAX_NODES", "kind_of", "owner_graph", "trouble_of"]

MAX_NODES: Final = 200
"""Maximum number of objects in a graph."""

_BY_OWNER: Final = index_by_owner()


async def owner_graph(
    obj: KubeObject, place: str, informers: Informers
) -> dict[str, Any]:
    """Return the JSON of the graph around an object.

    It has the owners of the object, their owners and so on, then the objects that it
    owns, and so on. Informers without an index by owner are scanned in slices, unless
    they have more than `MAX_SCANNED` objects that may be owned.

    Args:
        obj: The object.
        place: Id of its informer.
        informers: All informers by id.

    Cancellation:
        Safe.
    """
    graph = _Graph(dict(informers))
    graph.add(obj, place)
    budget = LoopBudget.current()
    await budget.start()
    waiting = deque([obj])
    while waiting:
        waiting.extend(graph.add_owners(waiting.popleft()))
        if budget.over():
            await budget.start()

    budget.end()
    lookups = await graph.lookups(obj)
    await budget.start()
    waiting.append(obj)
    while waiting:
        owner = waiting.popleft()
        for informer, owned in lookups.items():
            for found in _tried(owned, owner.uid):
                if graph.add_owned(owner, found, informer):
                    waiting.append(found)

                if budget.over():
                    await budget.start()

    budget.end()
    return graph.json()


def kind_of(informer: SharedInformer | None, obj: KubeObject | None) -> str:
    """Return the kind of an object, which may be unknown, of an informer."""
    resource = None if informer is None else informer.resource
    if resource is not None and resource.kind:
        return resource.kind

    try:
        return "" if obj is None else obj.kind
    except DecodeError:
        return ""


def trouble_of(obj: KubeObject) -> str:
    """Return what is wrong with a pod in one line; empty for other objects."""
    try:
        if type_of(obj.raw) == ("Pod", "v1"):
            return pod_trouble(obj) or ""
    except DecodeError:
        pass  # the page shows that it cannot be decoded

    return ""


class _Graph:
    """Graph that grows, up to a limit.

    Args:
        informers: All informers by id.
    """

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._nodes: dict[str, dict[str, Any]] = {}
        # Edges in their order, without repetitions.
        self._edges: dict[tuple[str, str], None] = {}
        self._cut = 0
        self._skipped: list[str] = []

    def json(self) -> dict[str, Any]:
        """Return the JSON of the graph."""
        return {
            "nodes": list(self._nodes.values()),
            "edges": [list(edge) for edge in self._edges],
            "cut": self._cut,
            "skipped": self._skipped,
        }

    def add(self, obj: KubeObject, place: str) -> bool:
        """Add an object. Return False if the graph is full."""
        return self._add(
            _id_of(obj),
            kind=kind_of(self._informers.get(place), obj),
            namespace=obj.namespace,
            name=obj.name,
            informer=place,
            trouble=trouble_of(obj),
        )

    def add_owners(self, obj: KubeObject) -> list[KubeObject]:
        """Add the owners of an object. Return those that are new and known."""
        new = []
        for reference in _references(obj):
            uid = text(reference, "uid")
            if uid in self._nodes:
                self._connect(uid, obj)
                continue

            place, owner, missing = self._find(reference, obj.namespace)
            if owner is not None:
                if self.add(owner, place):
                    new.append(owner)
            else:
                self._add(
                    uid,
                    kind=text(reference, "kind"),
                    name=text(reference, "name"),
                    missing=missing,
                )

            if uid in self._nodes:
                self._connect(uid, obj)

        return new

    def add_owned(self, owner: KubeObject, obj: KubeObject, place: str) -> bool:
        """Add an owned object. Return True if it is new."""
        known = _id_of(obj) in self._nodes
        if not known and not self.add(obj, place):
            return False

        self._connect(owner.uid, obj)
        return not known

    async def lookups(self, obj: KubeObject) -> dict[str, Owned]:
        """Return functions from a uid to the objects that it owns, by id of the informer.

        Args:
            obj: Object that owns all of them, directly or not. If it has a namespace,
                they are in the same.

        Cancellation:
            Safe.
        """
        found: dict[str, Owned] = {}
        for place, informer in self._informers.items():
            if is_of_events(informer):
                continue  # they own nothing, and are not owned

            with suppress(AioInformerError):
                owned = await self._lookup(informer, obj.namespace)
                if owned is None:
                    self._skipped.append(place)
                else:
                    found[place] = owned

        return found

    async def _lookup(self, informer: SharedInformer, namespace: str) -> Owned | None:
        indexer = informer.indexer
        for name, function in indexer.indexers.items():
            if function == _BY_OWNER:
                return lambda uid: indexer.by_index(name, uid)

        keys = (
            indexer.index_keys(NAMESPACE_INDEX, namespace)
            if namespace
            else indexer.list_keys()
        )
        if len(keys) > MAX_SCANNED:
            return None

        by_owner: dict[str, list[KubeObject]] = {}
        budget = LoopBudget.current()
        await budget.start()
        for key in keys:
            obj = indexer.get_by_key(key)
            # Much cheaper than decoding.
            if obj is not None and b'"ownerReferences"' in obj.raw:
                for uid in _owners(obj):
                    by_owner.setdefault(uid, []).append(obj)

            if budget.over():
                await budget.start()

        budget.end()
        return lambda uid: by_owner.get(uid, [])

    def _find(
        self, reference: dict[str, Any], namespace: str
    ) -> tuple[str, KubeObject | None, bool]:
        """Find an owner.

        Returns:
            Id of its informer, the owner, and True if an informer that has all objects
            of its kind does not have it.
        """
        group = text(reference, "apiVersion").rpartition("/")[0]
        kind, name = text(reference, "kind"), text(reference, "name")
        missing = False
        for place, informer in self._informers.items():
            resource = informer.resource
            if resource is None or (resource.group, resource.kind) != (group, kind):
                continue

            key = f"{namespace}/{name}" if resource.namespaced else name
            with suppress(AioInformerError):
                found = informer.indexer.get_by_key(key)
                if found is not None and found.uid == text(reference, "uid"):
                    return place, found, False

                missing = missing or _has_all(informer, key)

        return "", None, missing

    def _add(
        self,
        uid: str,
        *,
        kind: str,
        name: str,
        namespace: str = "",
        informer: str = "",
        missing: bool = False,
        trouble: str = "",
    ) -> bool:
        if len(self._nodes) >= MAX_NODES:
            self._cut += 1
            return False

        self._nodes[uid] = {
            "id": uid,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "informer": informer,
            "missing": missing,
            "trouble": trouble,
        }
        return True

    def _connect(self, owner: str, obj: KubeObject) -> None:
        self._edges[owner, _id_of(obj)] = None


def _id_of(obj: KubeObject) -> str:
    return obj.uid or obj.key


def _references(obj: KubeObject) -> list[dict[str, Any]]:
    """Return the owner references that have a uid."""
    try:
        found = obj.at("metadata.ownerReferences", ())
    except DecodeError:
        return []

    references = found if isinstance(found, list) else []
    return [it for it in references if isinstance(it, dict) and text(it, "uid")]


def _owners(obj: KubeObject) -> list[str]:
    return [text(it, "uid") for it in _references(obj)]


def _has_all(informer: SharedInformer, key: str) -> bool:
    """Return True if an informer has the object with a key, should it exist."""
    if not informer.has_synced or informer.transform is not None:
        return False

    namespace, _, name = key.rpartition("/")
    like = KubeObject.of({"metadata": {"namespace": namespace, "name": name}})
    return informer.selection == Selectors() and informer.selects(like)


def _tried(owned: Owned, uid: str) -> list[KubeObject]:
    try:
        return owned(uid) if uid else []
    except AioInformerError:  # an informer with its store on disk has ended
        return []
