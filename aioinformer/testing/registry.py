"""The registry: what an API server does with a write, from the body to the storage.

Synchronous: each method is one step, and either does all of it or raises an `ApiError`
and does nothing.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import NAMESPACES
from aioinformer.testing import rules, statuses, validation
from aioinformer.testing.changes import Stored
from aioinformer.testing.kinds import built_in_kinds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.rules import Part
    from aioinformer.testing.storage import Collection, Storage

__all__ = ["Registry"]

# The server's alphabet for generated names: no vowels, and nothing that looks alike.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Registry:
    """Creates, updates and deletes objects as an API server would.

    Args:
        storage: Where they are kept. The built-in kinds are opened in it.
        auto_namespaces: Create a missing namespace with its first object, which a
            real server never does.
    """

    def __init__(self, storage: Storage, *, auto_namespaces: bool = False) -> None:
        self.storage = storage
        self._auto_namespaces = auto_namespaces
        for kind in built_in_kinds():
            storage.serve(kind)

        self._namespaces = storage.collection(NAMESPACES)
        for name in sorted(_KEPT_NAMESPACES):
            self.create(self._namespaces, "", {"metadata": {"name": name}})

    def create(
        self,
        collection: Collection,
        namespace: str,
        body: object,
        *,
        keep_status: bool = False,
        dry_run: bool = False,
    ) -> Stored:
        """Create an object.

        Args:
            collection: Of which resource.
            namespace: Where; empty for cluster-scoped kinds.
            body: The decoded JSON.
            keep_status: Store the status that comes with it.
            dry_run: Check and complete it, but store nothing.

        Raises:
            ApiError: 400 or 422 if the body will not do, 404 if there is no such
                namespace, 403 if that is being deleted, 409 if the name is taken.
        """
        kind = collection.kind
        checked = validation.check_shape(kind, body)
        given = checked.get("metadata") or {}
        validation.check_namespace(namespace, given)
        name = given.get("name") or self._generated(collection, namespace, given)
        validation.check_new(kind, {**given, "name": name})
        self._check_namespace(namespace, name, collection, dry_run=dry_run)
        if collection.get(_key(namespace, name)) is not None:
            raise statuses.already_exists(kind.resource, name)

        new = rules.created(
            kind,
            checked,
            name=name,
            namespace=namespace,
            uid=str(uuid.uuid4()),
            now=_now(),
            keep_status=keep_status or kind.resource.plural == "nodes",
        )
        return self._put(collection, new, dry_run=dry_run)

    def update(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        body: object,
        /,
        *,
        part: Part = "main",
        dry_run: bool = False,
    ) -> Stored:
        """Replace an object, or its status; one that changes nothing keeps its version.

        Args:
            collection: Of which resource.
            namespace: Where; empty for cluster-scoped kinds.
            name: Which.
            body: The decoded JSON.
            part: What may change.
            dry_run: Answer as if, but store nothing.

        Raises:
            ApiError: 404 if it does not exist, 400 or 422 if the body will not do,
                409 if it states a uid or version that is not the stored one.
        """
        stored = self.require(collection, namespace, name)
        checked = validation.check_shape(collection.kind, body)
        return self._replace(collection, stored, checked, part, dry_run=dry_run)

    def patch(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        patch: object,
        /,
        *,
        part: Part = "main",
        dry_run: bool = False,
    ) -> Stored:
        """Apply a JSON merge patch; as `update()` otherwise.

        A patch with a `metadata.resourceVersion` applies to that version only.

        Raises:
            ApiError: As from `update()`; 400 if the patch is no JSON object.
        """
        if not isinstance(patch, dict):
            raise statuses.bad_request("the patch is not a JSON object")

        stored = self.require(collection, namespace, name)
        merged = rules.merge_patch(stored.body(), patch)
        if isinstance(merged.get("metadata"), dict):
            # A patch without a version means the stored one; so does its null.
            merged["metadata"].setdefault("resourceVersion", str(stored.version))

        checked = validation.check_shape(collection.kind, merged)
        return self._replace(collection, stored, checked, part, dry_run=dry_run)

    def delete(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> Stored | None:
        """Delete an object, or mark it for deletion while it has finalizers.

        There is no garbage collector and no kubelet: dependents stay, and pods go at
        once. A namespace takes its content with it.

        Args:
            collection: Of which resource.
            namespace: Where; empty for cluster-scoped kinds.
            name: Which.
            uid: Only if this is its uid.
            version: Only if this is its version.
            dry_run: Check, but delete nothing.

        Returns:
            The object if it waits for its finalizers, None if it is gone.

        Raises:
            ApiError: 404 if it does not exist, 409 if it is another one.
        """
        stored = self.require(collection, namespace, name)
        resource = collection.kind.resource
        for what, wanted, found in (
            ("UID", uid, stored.uid),
            ("ResourceVersion", version, str(stored.version)),
        ):
            if wanted not in {"", found}:
                why = f"Precondition failed: {what} in precondition: {wanted}, "
                why += f"{what} in object meta: {found}"
                raise statuses.conflict(resource, name, why)

        if collection is self._namespaces:
            return self._delete_namespace(stored, dry_run=dry_run)

        return self._delete(collection, stored, dry_run=dry_run)

    def require(self, collection: Collection, namespace: str, name: str) -> Stored:
        """Return an object.

        Raises:
            ApiError: 404, if it does not exist.
        """
        stored = collection.get(_key(namespace, name))
        if stored is None:
            raise statuses.not_found(collection.kind.resource, name)

        return stored

    def _replace(
        self,
        collection: Collection,
        stored: Stored,
        body: dict[str, Any],
        part: Part,
        *,
        dry_run: bool,
    ) -> Stored:
        kind, old = collection.kind, stored.body()
        validation.check_identity(kind, old["metadata"], body.get("metadata") or {})
        new = rules.updated(kind, old, body, part)
        if rules.is_same(kind, old, new):
            return stored

        validation.check_finalizers(kind, old["metadata"], new["metadata"])
        new = rules.stamped(kind, old, new)
        metadata = new["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return self._put(collection, new, dry_run=dry_run)

        # The last finalizer is gone. As on a real server the emptied state is answered
        # but never stored, so the DELETED event still shows the finalizer.
        if not dry_run:
            self._drop(collection, stored)

        return Stored.of(kind, new, self.storage.version)

    def _put(
        self, collection: Collection, body: dict[str, Any], *, dry_run: bool
    ) -> Stored:
        if not dry_run:
            return self.storage.put(collection, body)

        version = int(body["metadata"].get("resourceVersion") or 0)
        return Stored.of(collection.kind, body, version)

    def _delete(
        self, collection: Collection, stored: Stored, *, dry_run: bool = False
    ) -> Stored | None:
        old = stored.body()
        if old["metadata"].get("finalizers"):
            if old["metadata"].get("deletionTimestamp"):
                return stored

            marked = rules.marked_for_deletion(collection.kind, old, _now())
            return self._put(collection, marked, dry_run=dry_run)

        if not dry_run:
            self._drop(collection, stored)

        return None

    def _drop(self, collection: Collection, stored: Stored) -> None:
        self.storage.drop(collection, stored)
        if stored.namespace:
            self._sweep(stored.namespace)

    def _delete_namespace(self, stored: Stored, *, dry_run: bool) -> Stored | None:
        if stored.name in _KEPT_NAMESPACES:
            why = "this namespace may not be deleted"
            raise statuses.forbidden(NAMESPACES, stored.name, why)

        old = stored.body()
        if not dry_run and not old["metadata"].get("deletionTimestamp"):
            marked = rules.marked_for_deletion(self._namespaces.kind, old, _now())
            self.storage.put(self._namespaces, marked)
            for collection in self.storage:
                for found in [it for it in collection if it.namespace == stored.name]:
                    self._delete(collection, found)

            self._sweep(stored.name)

        return self._namespaces.get(stored.name)

    def _sweep(self, namespace: str) -> None:
        """Remove a namespace that waited only for its content to go."""
        stored = self._namespaces.get(namespace)
        if stored is None or stored.fields["status.phase"] != "Terminating":
            return

        metadata = stored.body()["metadata"]
        if metadata.get("finalizers"):
            return

        if not any(it.namespace == namespace for held in self.storage for it in held):
            self.storage.drop(self._namespaces, stored)

    def _check_namespace(
        self, namespace: str, name: str, collection: Collection, *, dry_run: bool
    ) -> None:
        if not namespace:
            return

        stored = self._namespaces.get(namespace)
        if stored is None and self._auto_namespaces:
            body = {"metadata": {"name": namespace}}
            self.create(self._namespaces, "", body, dry_run=dry_run)
        elif stored is None:
            raise statuses.not_found(NAMESPACES, namespace)
        elif stored.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {namespace} "
            why += "because it is being terminated"
            raise statuses.forbidden(collection.kind.resource, name, why)

    def _generated(
        self, collection: Collection, namespace: str, metadata: Mapping[str, Any]
    ) -> str:
        """Make a name from `generateName`; empty without one."""
        start = metadata.get("generateName") or ""
        name = start and start + _suffix()
        while name and collection.get(_key(namespace, name)) is not None:
            name = start + _suffix()

        return str(name)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _suffix() -> str:
    return "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))


def _now() -> str:
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
