"""NamespaceLifecycle: whether they take new content, and when they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.model.resources import NAMESPACES
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage, Stored

__all__ = ["NamespaceLifecycle"]

_KEPT = frozenset({"default", "kube-system", "kube-public"})
_TERMINATING = "Terminating"
# The finalizer of the controller that is played here.
_OURS = "kubernetes"


class NamespaceLifecycle:
    """Looks after the namespaces of a storage, as their controller does.

    Args:
        storage: Holds them, and all that is in them.
    """

    def __init__(self, storage: Storage) -> None:
        self.collection = storage.collection(NAMESPACES)
        self._storage = storage

    def is_missing(self, name: str) -> bool:
        """Say whether there is no such namespace; there is one for what is in none."""
        return bool(name) and self.collection.get(name) is None

    def check_open(self, kind: Kind, name: str, namespace: str) -> None:
        """Check that a namespace takes new content.

        Args:
            kind: Of what is to be created.
            name: Of what is to be created; may be empty.
            namespace: Where; empty for cluster-scoped kinds.

        Raises:
            ApiError: 404 if it does not exist, 403 if it is being deleted.
        """
        if self.is_missing(namespace):
            raise statuses.not_found(NAMESPACES, namespace)

        stored = self.collection.get(namespace) if namespace else None
        if stored is not None and _is_terminating(stored):
            raise _refusal(kind, name, namespace)

    def check_deletable(self, name: str) -> None:
        """Check that a namespace can be deleted.

        Raises:
            ApiError: 403, if a cluster cannot do without it.
        """
        if name in _KEPT:
            why = "this namespace may not be deleted"
            raise statuses.forbidden(NAMESPACES, name, why)

    def content(self, namespace: str) -> Iterator[tuple[Collection, Stored]]:
        """Yield what is in a namespace, each object in one of its versions only."""
        for held in self._storage:
            if held.siblings[0] is held:
                for found in [it for it in held if it.namespace == namespace]:
                    yield held, found

    def sweep(self, name: str) -> None:
        """Remove a namespace that waited only for its content to go."""
        stored = self.collection.get(name)
        if stored is None or not _is_terminating(stored):
            return

        body = stored.body()
        others = {*((body.get("spec") or {}).get("finalizers") or ())} - {_OURS}
        waits = others or body["metadata"].get("finalizers")
        if not waits and next(self.content(name), None) is None:
            self._storage.drop(self.collection, stored)


def _is_terminating(stored: Stored) -> bool:
    return stored.fields["status.phase"] == _TERMINATING


def _refusal(kind: Kind, name: str, namespace: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being "
    error = statuses.forbidden(kind.resource, name, f"{why}terminated")
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {**error.details, "causes": [cause]}
    return statuses.failure(403, error.reason, error.message, details)
