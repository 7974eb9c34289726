"""Removal: deleting objects, and what the cluster does about it at once.

The server plays the kubelet, which ends a pod that is marked, and the namespace
controller, which empties a namespace. It plays no garbage collector: dependents stay,
and what waits for them waits until somebody takes its finalizer away.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds import states
from aioinformer_apiserver.registry import rules
from aioinformer_apiserver.registry.completion import timestamp
from aioinformer_apiserver.registry.deletion import (
    shows_deleted,
    verdict_on,
    with_finalizers,
)
from aioinformer_apiserver.requests.options import Deleted, DeleteOptions
from aioinformer_apiserver.storage.storage import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.registry.namespaces import Namespaces
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["Removal"]


class Removal:
    """Deletes objects from a storage.

    Args:
        storage: Where they are.
        namespaces: Those in the storage.
        changed: Called after each change with the states before and after.
    """

    def __init__(
        self,
        storage: Storage,
        namespaces: Namespaces,
        changed: Callable[[Collection, Stored, Stored | None], None],
    ) -> None:
        self._storage = storage
        self._namespaces = namespaces
        self._changed = changed

    def remove(
        self, collection: Collection, stored: Stored, options: DeleteOptions
    ) -> Deleted:
        """Delete an object, or mark it while it waits for something.

        Raises:
            ApiError: 403, if it is a namespace that cannot be deleted.
        """
        if collection is self._namespaces.collection:
            return self._remove_namespace(stored, options)

        if collection.kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
            body = stored.body()
            if not body["metadata"].get("deletionTimestamp"):
                marked = states.marked_for_deletion(body, timestamp())
                return self._mark(collection, stored, marked, options)

        return self._remove(collection, stored, options)

    def drop(self, collection: Collection, stored: Stored) -> None:
        """Remove an object for good, and a namespace that waited for nothing else."""
        self._storage.drop(collection, stored)
        self._changed(collection, stored, None)
        if stored.namespace:
            self._namespaces.sweep(stored.namespace)

    def _remove(
        self, collection: Collection, stored: Stored, options: DeleteOptions
    ) -> Deleted:
        kind, old = collection.kind, stored.body()
        verdict = verdict_on(kind, old, options, datetime.now(tz=UTC))
        shown = shows_deleted(kind) or not verdict.gone
        if options.dry_run:
            after = Stored.of(kind, verdict.body, stored.version)
            return Deleted(after, shown, gone=verdict.gone)

        quiet = verdict.gone and options.at_once
        marks = not quiet and not rules.is_same(kind, old, verdict.body)
        after = self._put(collection, stored, verdict.body) if marks else stored
        if verdict.gone:
            self.drop(collection, after)
            last = Stored.of(kind, verdict.body, self._storage.version)
            return Deleted(last, shown, gone=True)

        if marks and verdict.body["metadata"]["deletionGracePeriodSeconds"]:
            # The kubelet says that the containers have ended.
            self._remove(collection, after, DeleteOptions(grace_seconds=0))

        return Deleted(after, shown)

    def _remove_namespace(self, stored: Stored, options: DeleteOptions) -> Deleted:
        """Mark a namespace, and remove its content and then itself, as far as it goes."""
        self._namespaces.check_deletable(stored.name)
        collection, old = self._namespaces.collection, stored.body()
        if old["metadata"].get("deletionTimestamp"):
            return Deleted(stored, shown=True)

        waits = with_finalizers(collection.kind, old, options)
        marked = rules.terminating(waits, timestamp())
        deleted = self._mark(collection, stored, marked, options)
        if options.dry_run:
            return deleted

        content = DeleteOptions(propagation="Background", at_once=True)
        for held, found in list(self._namespaces.content(stored.name)):
            if held.get(found.key) is found:
                self.remove(held, found, content)

        self._namespaces.sweep(stored.name)
        return deleted

    def _mark(
        self,
        collection: Collection,
        stored: Stored,
        marked: dict[str, Any],
        options: DeleteOptions,
    ) -> Deleted:
        """Store an object that is emptied before it goes; it is the answer."""
        if options.dry_run:
            after = Stored.of(collection.kind, marked, stored.version)
        else:
            after = self._put(collection, stored, marked)

        return Deleted(after, shown=True)

    def _put(self, collection: Collection, old: Stored, body: dict[str, Any]) -> Stored:
        stored = self._storage.put(collection, body)
        self._changed(collection, old, stored)
        return stored
