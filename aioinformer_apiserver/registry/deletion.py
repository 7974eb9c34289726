"""Deletion: grace periods, finalizers, and what kubelet and controllers add.

An object waits for its finalizers, and a pod for its containers to stop. The server
acts as the kubelet, which stops a marked pod, and as the namespace controller, which
empties a namespace. Dependents are left to the garbage collector.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioinformer.model import kube_time, resources
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds import status
from aioinformer_apiserver.registry.strategy import (
    is_unchanged,
    mark_namespace_for_deletion,
    timestamp,
)
from aioinformer_apiserver.requests.options import DeleteOptions, DeleteResult
from aioinformer_apiserver.storage.storage import StoredObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer_apiserver.registry.namespaces import NamespaceLifecycle
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = [
    "Deleter",
    "DeletionOutcome",
    "decide_deletion",
    "returns_deleted_object",
    "should_remove_on_update",
    "warn_of_deletion",
    "with_deletion_finalizers",
]

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
# The server replaces a negative grace period by the shortest one.
_SHORTEST_GRACE = 1
# Kinds that orphan their dependents by default, for compatibility with servers without
# a garbage collector.
_ORPHANED_BY_DEFAULT = frozenset({resources.JOBS, resources.REPLICATION_CONTROLLERS})
# Kinds whose deletion returns the deleted object.
_RETURNED_KINDS = frozenset(
    {
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.NAMESPACES,
        resources.PERSISTENT_VOLUME_CLAIMS,
        resources.PERSISTENT_VOLUMES,
        resources.PODS,
        resources.POD_TEMPLATES,
        resources.RESOURCE_QUOTAS,
        resources.SERVICE_ACCOUNTS,
        resources.SERVICES,
        resources.STORAGE_CLASSES,
    }
)

_JOBS_WARNING = (
    "child pods are preserved by default when jobs are deleted; set "
    "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
    "suppress this warning"
)


@dataclass(frozen=True, slots=True)
class DeletionOutcome:
    """Result of a deletion.

    Attributes:
        body: Next state of the object; the given body if the object is unchanged.
        removed: Whether the object is removed after that change.
    """

    body: dict[str, Any]
    removed: bool


def decide_deletion(
    kind: Kind, body: dict[str, Any], options: DeleteOptions, now: datetime
) -> DeletionOutcome:
    """Decide what a deletion does to an object.

    Args:
        kind: Kind of the object.
        body: Stored object; not changed.
        options: Options of the deletion; its preconditions are already checked.
        now: Current time in UTC.
    """
    graceful = kind.resource == resources.PODS
    if graceful and not _shortens_grace_period(body, options):
        return DeletionOutcome(body, removed=False)

    waits = with_deletion_finalizers(kind, body, options)
    finalizers = waits["metadata"]["finalizers"]
    if graceful:
        marked = _terminating_pod(waits, options, now)
        ends_now = not marked["metadata"]["deletionGracePeriodSeconds"]
        return DeletionOutcome(marked, removed=ends_now and not finalizers)

    if not finalizers:
        return DeletionOutcome(body, removed=True)

    return DeletionOutcome(_with_deletion_mark(waits, now), removed=False)


def should_remove_on_update(metadata: Mapping[str, Any]) -> bool:
    """Return whether a deleted object has no finalizers and no grace period left."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def returns_deleted_object(kind: Kind) -> bool:
    """Return whether a deletion returns the deleted object."""
    return kind.resource in _RETURNED_KINDS


def warn_of_deletion(kind: Kind, options: DeleteOptions) -> None:
    """Warn the client about dependents that a deletion leaves behind."""
    if kind.resource == resources.JOBS and not options.propagation:
        options.warn(_JOBS_WARNING)


def with_deletion_finalizers(
    kind: Kind, body: dict[str, Any], options: DeleteOptions
) -> dict[str, Any]:
    """Return a body with the finalizers of the propagation policy."""
    given = list(body["metadata"].get("finalizers") or ())
    policy = options.propagation or _default_policy(kind, given)
    added = {"Orphan": [_ORPHAN], "Foreground": [_FOREGROUND]}.get(policy, [])
    if kind.stored == resources.EVENTS:
        added = []  # Events never have dependents.

    kept = [it for it in given if it not in {_ORPHAN, _FOREGROUND}]
    same = {*kept, *added} == set(given)
    return _with(body, finalizers=given if same else kept + added)


def _default_policy(kind: Kind, finalizers: list[str]) -> str:
    """Return the default propagation policy: the object's own, or the kind's."""
    for finalizer in finalizers:
        if finalizer == _ORPHAN:
            return "Orphan"

        if finalizer == _FOREGROUND:
            return "Foreground"

    return "Orphan" if kind.resource in _ORPHANED_BY_DEFAULT else "Background"


def _with_deletion_mark(body: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return an object that is marked for deletion."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return _with(body, deletionGracePeriodSeconds=0)

    return _with(
        _with_next_generation(body),
        deletionTimestamp=kube_time(now),
        deletionGracePeriodSeconds=0,
    )


def _shortens_grace_period(body: Mapping[str, Any], options: DeleteOptions) -> bool:
    """Return whether a pod deletion is the first, or shortens the grace period."""
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp"):
        return True

    left = metadata.get("deletionGracePeriodSeconds") or 0
    return options.grace_seconds is not None and options.grace_seconds < left


def _terminating_pod(
    body: dict[str, Any], options: DeleteOptions, now: datetime
) -> dict[str, Any]:
    """Return a pod that is marked for deletion."""
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp"):
        grace = _grace_seconds(body, options)
        ends = now + timedelta(seconds=grace)
        marked = _with_next_generation(body)
    else:
        # The new period starts when the first one started.
        grace = max(options.grace_seconds or 0, 0)
        left = timedelta(seconds=metadata["deletionGracePeriodSeconds"] - grace)
        ends = datetime.fromisoformat(metadata["deletionTimestamp"]) - left
        marked = body

    return _with(
        marked,
        deletionTimestamp=kube_time(ends),
        deletionGracePeriodSeconds=grace,
    )


def _grace_seconds(pod: Mapping[str, Any], options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds; 0 if none of its containers runs."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0

    requested = options.grace_seconds
    grace = (
        spec.get("terminationGracePeriodSeconds") or 0
        if requested is None
        else requested
    )
    return int(grace) if grace >= 0 else _SHORTEST_GRACE


def _with_next_generation(body: dict[str, Any]) -> dict[str, Any]:
    """Increment the generation of an object that has one."""
    generation = body["metadata"].get("generation") or 0
    return _with(body, generation=generation + 1) if generation else body


def _with(body: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **fields}}


# ------------------------------------------------------------------ storage


class Deleter:
    """Deletes objects from a storage.

    Args:
        storage: Storage of the objects.
        namespaces: Lifecycle of the namespaces in the storage.
        changed: Callback after each change, with the states before and after.
    """

    def __init__(
        self,
        storage: Storage,
        namespaces: NamespaceLifecycle,
        changed: Callable[[Collection, StoredObject, StoredObject | None], None],
    ) -> None:
        self._storage = storage
        self._namespaces = namespaces
        self._changed = changed

    def remove(
        self, collection: Collection, stored: StoredObject, options: DeleteOptions
    ) -> DeleteResult:
        """Delete an object, or mark it for deletion.

        Raises:
            ApiError: 403 if the object is a protected namespace.
        """
        if collection is self._namespaces.collection:
            return self._remove_namespace(stored, options)

        if collection.kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
            body = stored.body()
            if not body["metadata"].get("deletionTimestamp"):
                marked = status.mark_for_deletion(body, timestamp())
                return self._mark(collection, stored, marked, options)

        return self._remove(collection, stored, options)

    def drop(self, collection: Collection, stored: StoredObject) -> None:
        """Remove an object, and its namespace if that is terminating and now empty."""
        self._storage.drop(collection, stored)
        self._changed(collection, stored, None)
        if stored.namespace:
            self._namespaces.remove_if_empty(stored.namespace)

    def _remove(
        self, collection: Collection, stored: StoredObject, options: DeleteOptions
    ) -> DeleteResult:
        kind, old = collection.kind, stored.body()
        outcome = decide_deletion(kind, old, options, datetime.now(tz=UTC))
        returned = returns_deleted_object(kind) or not outcome.removed
        if options.dry_run:
            after = StoredObject.of(kind, outcome.body, stored.version)
            return DeleteResult(after, returned, removed=outcome.removed)

        unmarked = outcome.removed and options.immediate
        marks = not unmarked and not is_unchanged(kind, old, outcome.body)
        after = self._put(collection, stored, outcome.body) if marks else stored
        if outcome.removed:
            self.drop(collection, after)
            last = StoredObject.of(kind, outcome.body, self._storage.version)
            return DeleteResult(last, returned, removed=True)

        if marks and outcome.body["metadata"]["deletionGracePeriodSeconds"]:
            # Like a kubelet, report that the containers have stopped.
            self._remove(collection, after, DeleteOptions(grace_seconds=0))

        return DeleteResult(after, returned)

    def _remove_namespace(
        self, stored: StoredObject, options: DeleteOptions
    ) -> DeleteResult:
        """Mark a namespace, then remove its content and the namespace itself."""
        self._namespaces.check_deletable(stored.name)
        collection, old = self._namespaces.collection, stored.body()
        if old["metadata"].get("deletionTimestamp"):
            return DeleteResult(stored, returned=True)

        waits = with_deletion_finalizers(collection.kind, old, options)
        marked = mark_namespace_for_deletion(waits, timestamp())
        deleted = self._mark(collection, stored, marked, options)
        if options.dry_run:
            return deleted

        content = DeleteOptions(propagation="Background", immediate=True)
        for owner, found in list(self._namespaces.content(stored.name)):
            if owner.get(found.key) is found:
                self.remove(owner, found, content)

        self._namespaces.remove_if_empty(stored.name)
        return deleted

    def _mark(
        self,
        collection: Collection,
        stored: StoredObject,
        marked: dict[str, Any],
        options: DeleteOptions,
    ) -> DeleteResult:
        """Store an object that is marked for deletion, and return it as the result."""
        if options.dry_run:
            after = StoredObject.of(collection.kind, marked, stored.version)
        else:
            after = self._put(collection, stored, marked)

        return DeleteResult(after, returned=True)

    def _put(
        self, collection: Collection, old: StoredObject, body: dict[str, Any]
    ) -> StoredObject:
        stored = self._storage.put(collection, body)
        self._changed(collection, old, stored)
        return stored
