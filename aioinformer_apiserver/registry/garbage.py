"""`GarbageCollector`: deletes objects whose owners are gone, as in a cluster.

It follows the rules of the controller in kube-controller-manager: owners are found by
kind, name and uid, in the namespace of the dependent or cluster-wide.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError
from aioinformer.model.resources import EVENTS
from aioinformer_apiserver.registry.strategy import timestamp
from aioinformer_apiserver.requests.options import DeleteOptions, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import Propagation
    from aioinformer_apiserver.storage.storage import Change, Collection, StoredObject

__all__ = ["GarbageCollector"]

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_WRITE = WriteOptions(manager="kube-controller-manager")
_COMPONENT = "garbage-collector-controller"
# Number of objects that one turn of the loop checks at most.
_MOST_AT_ONCE = 100
# Fields without which an object has no effect on others.
_RELEVANT = (b'"ownerReferences"', b'"deletionTimestamp"')

Reference = dict[str, Any]


@dataclass(slots=True, eq=False)
class _Node:
    """Node of the graph of owners: one object."""

    collection: Collection
    key: str
    owners: tuple[Reference, ...] = ()
    deleted: bool = False
    """True if the object is marked for deletion."""

    finalizers: frozenset[str] = frozenset()

    @property
    def waits_for_dependents(self) -> bool:
        """True while it is deleted in the foreground."""
        return self.deleted and _FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """True while its dependents are made independent."""
        return self.deleted and _ORPHAN in self.finalizers

    @property
    def stored(self) -> StoredObject | None:
        """Current state; None if the object is gone."""
        return self.collection.get(self.key)


class GarbageCollector:
    """Collects garbage in the turns of the loop after each write, while it is started.

    It calls no webhooks.

    Args:
        registry: Registry of the objects.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._nodes: dict[str, _Node] = {}
        # Stands for each owner that does not exist.
        self._absent = _Node(registry.storage.collection(EVENTS), "")
        self._dependents: dict[str, dict[str, None]] = {}
        # Last change that was read of each collection.
        self._cursors: dict[Collection, Change] = {}
        self._generations: dict[Collection, int] = {}
        # Uids of objects to check, in order.
        self._pending: dict[str, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Handle | None = None
        self._unsubscribe = registry.storage.subscribe(self._schedule)

    def start(self) -> None:
        """Collect from now on, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        """Collect no more until the next start. Idempotent."""
        self._loop = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _schedule(self) -> None:
        if self._loop is not None and self._turn is None:
            self._turn = self._loop.call_soon(self._collect)

    def _collect(self) -> None:
        """Check the objects that the latest changes concern."""
        self._turn = None
        self._read_changes()
        for _ in range(_MOST_AT_ONCE):
            if not self._pending:
                return

            uid = next(iter(self._pending))
            del self._pending[uid]
            try:
                self._check(uid)
            except ApiError:
                # The next change of the object causes another attempt.
                continue
            finally:
                self._read_changes()

        self._schedule()

    # ---------------------------------------------------------------- graph

    def _read_changes(self) -> None:
        found = [it for it in self._registry.storage if it.siblings[0] is it]
        generations = {it: it.watch_generation for it in found}
        if generations != self._generations:
            self._rebuild(found)
            self._generations = generations

        for collection in found:
            while (change := self._cursors[collection].next) is not None:
                self._cursors[collection] = change
                self._apply(collection, change)

    def _rebuild(self, collections: Iterable[Collection]) -> None:
        """Read all objects, after a restart or a change of the served resources."""
        for known in (self._nodes, self._dependents, self._cursors, self._pending):
            known.clear()

        for collection in collections:
            self._cursors[collection] = collection.tail
            for stored in collection:
                self._put(collection, stored)

    def _apply(self, collection: Collection, change: Change) -> None:
        if change.new is not None:
            self._put(collection, change.new)
        elif change.old is not None:
            self._remove(change.old.uid)

    def _put(self, collection: Collection, stored: StoredObject) -> None:
        if collection.kind.stored == EVENTS:
            return

        before = self._nodes.get(stored.uid) or _Node(collection, stored.key)
        node = _Node(collection, stored.key)
        if any(it in stored.raw for it in _RELEVANT):
            metadata = stored.body()["metadata"]
            node.owners = tuple(metadata.get("ownerReferences") or ())
            node.deleted = bool(metadata.get("deletionTimestamp"))
            node.finalizers = frozenset(metadata.get("finalizers") or ())

        self._nodes[stored.uid] = node
        if node.owners != before.owners:
            self._update_owners(stored, before, node)

        if node.orphans_dependents or node.waits_for_dependents:
            self._pending[stored.uid] = None
            self._pending |= self._dependents.get(stored.uid, {})

    def _update_owners(self, stored: StoredObject, before: _Node, node: _Node) -> None:
        uid = stored.uid
        for reference in before.owners:
            self._dependents.get(reference["uid"], {}).pop(uid, None)

        for reference in node.owners:
            self._dependents.setdefault(reference["uid"], {})[uid] = None
            if reference not in before.owners:
                self._report_if_elsewhere(stored, node, reference)

        # An owner may wait for a reference that is gone, or blocks no more.
        for reference in before.owners:
            if reference.get("blockOwnerDeletion") and reference not in node.owners:
                self._pending[reference["uid"]] = None

        if node.owners:
            self._pending[uid] = None

    def _remove(self, uid: str) -> None:
        node = self._nodes.pop(uid, None)
        if node is None:
            return

        for reference in node.owners:
            self._dependents.get(reference["uid"], {}).pop(uid, None)
            self._pending[reference["uid"]] = None

        self._pending |= self._dependents.get(uid, {})

    # ---------------------------------------------------------------- decisions

    def _check(self, uid: str) -> None:
        """Delete an object, its references or its finalizer, if they are garbage.

        Raises:
            ApiError: If the change is rejected.
        """
        node = self._nodes.get(uid)
        stored = node.stored if node is not None else None
        if node is None or stored is None:
            return

        if node.orphans_dependents:
            self._orphan(uid, node)
        elif node.waits_for_dependents:
            self._finish_foreground(uid, node)
        elif not node.deleted and node.owners:
            self._collect_dependent(uid, node, stored)

    def _orphan(self, uid: str, node: _Node) -> None:
        for dependent in self._dependents_of(uid):
            self._drop_references(dependent, {uid})

        self._drop_finalizer(node, _ORPHAN)

    def _finish_foreground(self, uid: str, node: _Node) -> None:
        blocking = [
            it
            for it in self._dependents_of(uid)
            for reference in it.owners
            if reference["uid"] == uid and reference.get("blockOwnerDeletion")
        ]
        if not blocking:
            self._drop_finalizer(node, _FOREGROUND)

    def _collect_dependent(self, uid: str, node: _Node, stored: StoredObject) -> None:
        """Delete a dependent without owners, or drop its references to absent ones."""
        dangling, waiting, solid = set(), set(), False
        for reference in node.owners:
            owner = self._owner(stored, reference)
            if owner is None:
                return  # Unknown, so it may exist.

            if owner is self._absent:
                dangling.add(reference["uid"])
            elif owner.waits_for_dependents:
                waiting.add(reference["uid"])
            else:
                solid = True

        if solid:
            if dangling or waiting:
                self._drop_references(node, dangling | waiting)

            return

        dependents = self._dependents_of(uid)
        if waiting and dependents:
            if any(it.waits_for_dependents for it in dependents):
                self._unblock(node, stored)  # It may be a cycle.

            self._delete(node, stored, "Foreground")
            return

        policy: Propagation = "Background"
        if _ORPHAN in node.finalizers:
            policy = "Orphan"
        elif _FOREGROUND in node.finalizers:
            policy = "Foreground"

        self._delete(node, stored, policy)

    def _owner(self, stored: StoredObject, reference: Reference) -> _Node | None:
        """Return an owner, `_absent`, or None if its kind is unknown or impossible."""
        version, kind = reference.get("apiVersion"), reference.get("kind")
        collection = next(
            (
                it
                for it in self._registry.storage
                if (it.kind.resource.api_version, it.kind.resource.kind)
                == (version, kind)
            ),
            None,
        )
        if collection is None:
            return None

        namespaced = collection.kind.resource.namespaced
        if namespaced and not stored.namespace:
            return None

        name = reference.get("name", "")
        owner = collection.get(f"{stored.namespace}/{name}" if namespaced else name)
        if owner is None or owner.uid != reference["uid"]:
            return self._absent

        return self._nodes.get(owner.uid)

    def _dependents_of(self, uid: str) -> list[_Node]:
        found = (self._nodes.get(it) for it in self._dependents.get(uid, {}))
        return [it for it in found if it is not None]

    # ---------------------------------------------------------------- writes

    def _delete(
        self, node: _Node, stored: StoredObject, propagation: Propagation
    ) -> None:
        options = DeleteOptions(uid=stored.uid, propagation=propagation)
        collection, _ = node.collection.readable(node.key)
        self._registry.delete(collection, stored.namespace, stored.name, options)

    def _drop_references(self, node: _Node, owners: set[str]) -> None:
        kept = [it for it in node.owners if it["uid"] not in owners]
        self._patch(node, ownerReferences=kept or None)

    def _unblock(self, node: _Node, stored: StoredObject) -> None:
        if any(it.get("blockOwnerDeletion") for it in node.owners):
            references = [{**it, "blockOwnerDeletion": False} for it in node.owners]
            self._patch(node, ownerReferences=references)

    def _drop_finalizer(self, node: _Node, finalizer: str) -> None:
        stored = node.stored
        if stored is not None:
            given = stored.body()["metadata"].get("finalizers") or ()
            kept = [it for it in given if it != finalizer]
            self._patch(node, finalizers=kept or None)

    def _patch(self, node: _Node, **metadata: object) -> None:
        stored = node.stored
        if stored is not None:
            patch = {"metadata": {"uid": stored.uid, **metadata}}
            collection, _ = node.collection.readable(node.key)
            self._registry.patch(
                collection, stored.namespace, stored.name, patch, _WRITE
            )

    def _report_if_elsewhere(
        self, stored: StoredObject, node: _Node, reference: Reference
    ) -> None:
        """Record an Event if the owner is in another namespace, so that it counts not."""
        owner = self._nodes.get(reference["uid"])
        found = owner.stored if owner is not None else None
        if found is None or found.namespace in {"", stored.namespace}:
            return

        resource, namespace = node.collection.kind.resource, stored.namespace
        shown = (
            f"[{reference.get('apiVersion')}/{reference.get('kind')}, namespace: "
            f"{namespace}, name: {reference.get('name')}, uid: {reference['uid']}]"
        )
        now = timestamp()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{stored.name}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": resource.kind,
                "namespace": namespace,
                "name": stored.name,
                "uid": stored.uid,
                "apiVersion": resource.api_version,
            },
            "reason": "OwnerRefInvalidNamespace",
            "message": f'ownerRef {shown} does not exist in namespace "{namespace}"',
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
        }
        events = self._registry.storage.collection(EVENTS)
        with suppress(ApiError):  # such as in a namespace that is being deleted
            self._registry.create(events, namespace or "default", event, _WRITE)
