"""Namespace lifecycle: admission into namespaces, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.model.resources import NAMESPACES
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage, StoredObject

__all__ = ["NamespaceLifecycle"]

_PROTECTED = frozenset({"default", "kube-system", "kube-public"})
_TERMINATING = "Terminating"
# Finalizer of the namespace controller.
_FINALIZER = "kubernetes"


class NamespaceLifecycle:
    """Lifecycle of the namespaces in a storage.

    It combines the admission plugin of this name and the namespace controller.

    Args:
        storage: Storage of the namespaces and their content.
    """

    def __init__(self, storage: Storage) -> None:
        self.collection: Collection = storage.collection(NAMESPACES)
        self._storage = storage

    def is_missing(self, name: str) -> bool:
        """Return whether a namespace does not exist; an empty name always exists."""
        return bool(name) and self.collection.get(name) is None

    def check_open(self, kind: Kind, name: str, namespace: str) -> None:
        """Check that a namespace accepts new content.

        Args:
            kind: Kind of the new object.
            name: Name of the new object; may be empty.
            namespace: Namespace of the new object; empty for cluster-scoped kinds.

        Raises:
            ApiError: 404 if the namespace does not exist, 403 if it is terminating.
        """
        if self.is_missing(namespace):
            raise statuses.not_found(NAMESPACES, namespace)

        stored = self.collection.get(namespace) if namespace else None
        if stored is not None and _is_terminating(stored):
            raise _terminating_error(kind, name, namespace)

    def check_deletable(self, name: str) -> None:
        """Check that a namespace can be deleted.

        Raises:
            ApiError: 403 if the namespace is a system namespace.
        """
        if name in _PROTECTED:
            why = "this namespace may not be deleted"
            raise statuses.forbidden(NAMESPACES, name, why)

    def content(self, namespace: str) -> Iterator[tuple[Collection, StoredObject]]:
        """Yield the content of a namespace, each object in one version only."""
        for owner in self._storage:
            if owner.siblings[0] is owner:
                for found in [it for it in owner if it.namespace == namespace]:
                    yield owner.readable(found.key)

    def remove_if_empty(self, name: str) -> None:
        """Remove a terminating namespace that has become empty."""
        stored = self.collection.get(name)
        if stored is None or not _is_terminating(stored):
            return

        body = stored.body()
        others = {*((body.get("spec") or {}).get("finalizers") or ())} - {_FINALIZER}
        waits = others or body["metadata"].get("finalizers")
        if not waits and next(self.content(name), None) is None:
            self._storage.drop(self.collection, stored)


def _is_terminating(stored: StoredObject) -> bool:
    return stored.fields["status.phase"] == _TERMINATING


def _terminating_error(kind: Kind, name: str, namespace: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being "
    error = statuses.forbidden(kind.resource, name, f"{why}terminated")
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {**error.details, "causes": [cause]}
    return statuses.failure(403, error.reason, error.message, details)
