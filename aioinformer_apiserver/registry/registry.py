"""Registry: creates, updates, patches and deletions, from the body to the storage.

Synchronous: each method either does all of its work, or raises an `ApiError` and
changes nothing. A write takes the path of a real server:

    decode -> default -> track managed fields -> prepare (strategy)
    -> validate -> compare -> store

Objects that a test arranges take a shorter path: they are decoded loosely, defaulted,
and stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds.custom_resources import CustomResources
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.names import generate_name
from aioinformer_apiserver.patches.managed_fields import (
    keep_unchanged_times,
    reset_fields,
)
from aioinformer_apiserver.patches.patch_types import (
    apply_patch,
    decode_applied,
    decode_patch,
    merge_patch,
)
from aioinformer_apiserver.patches.server_side_apply import apply
from aioinformer_apiserver.registry import preconditions, request_bodies
from aioinformer_apiserver.registry.deletion import (
    Deleter,
    should_remove_on_update,
    warn_of_deletion,
)
from aioinformer_apiserver.registry.namespaces import NamespaceLifecycle
from aioinformer_apiserver.registry.strategy import (
    SUBRESOURCES,
    decode_stored,
    is_unchanged,
    prepare_for_create,
    prepare_for_update,
    time_of,
    timestamp,
    to_storage_version,
    with_generation,
)
from aioinformer_apiserver.registry.validation import validate_create, validate_update
from aioinformer_apiserver.requests.options import (
    DeleteOptions,
    DeleteResult,
    WriteOptions,
    WriteResult,
)
from aioinformer_apiserver.storage.kinds import built_in_kinds
from aioinformer_apiserver.storage.storage import StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer_apiserver.patches.patch_types import PatchType
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["Registry"]

_SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_ARRANGED_WRITE = WriteOptions(part="all")
_MAIN_WRITE = WriteOptions()


class Registry:
    """Creates, updates and deletes objects like an API server.

    Args:
        storage: Storage of the objects; the registry serves the built-in kinds in it.
        auto_namespaces: True to create a missing namespace with its first object. A
            real server never does.
    """

    def __init__(self, storage: Storage, *, auto_namespaces: bool = False) -> None:
        self.storage = storage
        self._auto_namespaces = auto_namespaces
        for kind in built_in_kinds():
            sibling = storage.collection(kind.stored_as) if kind.stored_as else None
            storage.serve(kind, sibling=sibling)

        self._namespaces = NamespaceLifecycle(storage)
        self._deleter = Deleter(storage, self._namespaces, self._after_change)
        self.custom_resources: CustomResources = CustomResources(
            storage, delete=self._delete_custom_object, now=timestamp
        )
        for name in _SYSTEM_NAMESPACES:
            self._create_namespace(name, _ARRANGED_WRITE)

    # ---------------------------------------------------------------- for callers

    def require(
        self, collection: Collection, namespace: str, name: str
    ) -> StoredObject:
        """Return a stored object.

        Raises:
            ApiError: 404 if the object does not exist.
        """
        stored = collection.get(_key(namespace, name))
        if stored is None:
            raise statuses.not_found(collection.kind.resource, name)

        return stored

    def create(
        self,
        collection: Collection,
        namespace: str,
        body: object,
        options: WriteOptions,
    ) -> WriteResult:
        """Create an object.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            body: Object as JSON bytes or decoded.
            options: Options of the write.

        Raises:
            ApiError: 400 or 422 if the body is invalid; 403 if the namespace is
                terminating; 404 if the namespace does not exist; 409 if the name is
                taken; 500 if the body has a resource version.
        """
        got = _decode(collection.kind, body, options)
        return self._create(collection, namespace, got, options)

    def update(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        body: object,
        options: WriteOptions,
    ) -> WriteResult:
        """Replace an object or a part of it.

        An update without changes keeps the version. Kinds that allow it are created if
        the object does not exist.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            body: Object as JSON bytes or decoded.
            options: Options of the write.

        Raises:
            ApiError: 400 or 422 if the body is invalid; 404 if the object does not
                exist; 409 if its uid or version is not the stored one.
        """
        kind = collection.kind
        got = _decode(kind, body, options)
        metadata = got["metadata"]
        request_bodies.check_name(namespace, name, metadata)
        key = _key(namespace, name)
        stored = collection.get(key)
        if stored is None and kind.created_by_update and options.part == "main":
            preconditions.check_uid(kind, key, None, metadata)
            fresh = {**got, "metadata": {**metadata, "resourceVersion": ""}}
            return self._create(collection, namespace, fresh, options)

        stored = self.require(collection, namespace, name)
        preconditions.check_uid(kind, key, stored, metadata)
        preconditions.check_version(kind, stored, metadata)
        return self._replace(collection, stored, got, options)

    def patch(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        patch: object,
        options: WriteOptions,
        *,
        patch_type: PatchType = "merge",
    ) -> WriteResult:
        """Patch an object or a part of it.

        A patch with a `metadata.resourceVersion` applies to that version only. A
        server-side apply may also create the object.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            patch: Patch as JSON bytes or decoded.
            options: Options of the write.
            patch_type: Type of the patch.

        Raises:
            ApiError: 409 if an apply conflicts with other managers; 415 if the kind
                does not support this type of patch; the errors of `update()`.
        """
        kind = collection.kind
        if patch_type == "apply":
            return self._apply(collection, namespace, name, patch, options)

        stored = self.require(collection, namespace, name)
        old = stored.body()
        if isinstance(patch, bytes):
            patch = decode_patch(patch, patch_type)

        if options.part == "all":
            got = request_bodies.decode_arranged(kind, merge_patch(old, patch))
        else:
            new = apply_patch(kind.schema, old, patch, patch_type, typed=kind.typed)
            got = request_bodies.decode_patched(
                kind, new, options, patch=patch, patch_type=patch_type
            )

        metadata = got["metadata"]
        request_bodies.check_name(namespace, name, metadata)
        # A missing or null version means the stored one.
        if metadata.get("resourceVersion"):
            preconditions.check_version(kind, stored, metadata)

        return self._replace(collection, stored, got, options)

    def delete(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        options: DeleteOptions,
    ) -> DeleteResult:
        """Delete an object, or mark it for deletion.

        Dependents stay: they are the garbage collector's. A pod on a node is marked
        first. If it has no finalizers it is removed at once, as if its containers had
        stopped. Deleting a namespace deletes its content.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            options: Options of the deletion.

        Raises:
            ApiError: 404 if the object does not exist, 409 if a precondition fails.
        """
        warn_of_deletion(collection.kind, options)
        stored = self.require(collection, namespace, name)
        preconditions.check_deletion(collection.kind, stored, options)
        self._admit_deletion(collection, stored, options)
        return self._deleter.remove(collection, stored, options)

    def delete_collection(
        self,
        collection: Collection,
        found: Iterable[StoredObject],
        options: DeleteOptions,
    ) -> list[DeleteResult]:
        """Delete several objects of one resource, skipping those already removed.

        Args:
            collection: Collection of the resource.
            found: Objects to delete.
            options: Options of the deletion.

        Raises:
            ApiError: Error of the first deletion that fails; see `delete()`.
        """
        warn_of_deletion(collection.kind, options)
        found = list(found)
        for it in found:
            # All webhooks answer before the first object is deleted.
            self._admit_deletion(collection, it, options)

        return [
            self.delete(collection, it.namespace, it.name, options)
            for it in found
            if collection.get(it.key) is not None
        ]

    def commit(
        self,
        collection: Collection,
        stored: StoredObject,
        new: dict[str, Any],
        options: WriteOptions,
    ) -> WriteResult:
        """Validate the next state of an object, and store it if it differs.

        Args:
            collection: Collection of the resource.
            stored: Stored object.
            new: Next state, complete except for its generation.
            options: Options of the write.

        Raises:
            ApiError: 422 if the next state is invalid.
        """
        kind = collection.kind
        old = _state_of(kind, stored, options)
        if options.part in {"main", "all"}:
            new = with_generation(kind, old, new)

        validate_update(kind, old, new, options)
        if options.admission is not None:
            options.admission.validate(kind, "UPDATE", new, old)

        new = to_storage_version(kind, new, options)
        new = keep_unchanged_times(old, new)
        if is_unchanged(kind, old, new):
            return WriteResult(stored)

        if self._should_remove_on_update(collection, new):
            # The last finalizer was removed. As on a real server, the
            # last state is returned but never stored, so the DELETED
            # event still shows the finalizer.
            if not options.dry_run:
                self._deleter.drop(collection, stored)

            return WriteResult(StoredObject.of(kind, new, stored.version))

        return WriteResult(self._put(collection, new, options))

    # ---------------------------------------------------------------- steps

    def _create(
        self,
        collection: Collection,
        namespace: str,
        got: dict[str, Any],
        options: WriteOptions,
        *,
        applied: bool = False,
    ) -> WriteResult:
        kind, metadata = collection.kind, got["metadata"]
        request_bodies.check_namespace(namespace, metadata)
        name = metadata.get("name") or ""
        creates_namespace = self._auto_namespaces and self._namespaces.is_missing(
            namespace
        )
        if not creates_namespace:
            self._namespaces.check_open(kind, name, namespace)

        name = name or self._generate_name(collection, namespace, metadata, options)
        new = prepare_for_create(
            kind,
            got,
            options,
            name=name,
            namespace=namespace,
            others=collection,
            has_managed_fields=applied,
        )
        validate_create(kind, new, options)
        preconditions.check_served(kind, name)
        preconditions.check_new(metadata)
        if options.admission is not None:
            options.admission.validate(kind, "CREATE", new, None)

        if collection.get(_key(namespace, name)) is not None:
            raise statuses.already_exists(kind.resource, name)

        if creates_namespace:
            self._create_namespace(namespace, options)

        stored = self._put(collection, to_storage_version(kind, new, options), options)
        return WriteResult(stored, created=True)

    def _replace(
        self,
        collection: Collection,
        stored: StoredObject,
        got: dict[str, Any],
        options: WriteOptions,
        *,
        applied: bool = False,
    ) -> WriteResult:
        kind = collection.kind
        old = _state_of(kind, stored, options)
        new = prepare_for_update(
            kind, old, got, options, others=collection, has_managed_fields=applied
        )
        return self.commit(collection, stored, new, options)

    def _apply(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        applied: object,
        options: WriteOptions,
    ) -> WriteResult:
        kind, subresource = collection.kind, SUBRESOURCES[options.part]
        applied_body = decode_applied(applied)
        stored = collection.get(_key(namespace, name))
        if stored is None and subresource:
            raise statuses.not_found(kind.resource, name)

        preconditions.check_applied(kind, name, stored, applied_body)
        merged = apply(
            kind.schema,
            stored.body() if stored else None,
            applied_body,
            manager=options.manager,
            force=options.force,
            api_version=kind.resource.api_version,
            now=time_of(options),
            kind=kind.resource.kind,
            subresource=subresource,
            reset=reset_fields(kind, subresource),
            versions=kind.versions,
        )
        got = request_bodies.decode_body(kind, merged, options)
        request_bodies.check_name(namespace, name, got["metadata"])
        if stored is None:
            return self._create(collection, namespace, got, options, applied=True)

        return self._replace(collection, stored, got, options, applied=True)

    def _put(
        self, collection: Collection, body: dict[str, Any], options: WriteOptions
    ) -> StoredObject:
        if options.dry_run:
            version = int(body["metadata"].get("resourceVersion") or 0)
            return StoredObject.of(collection.kind, body, version)

        converted = _converted(collection, body, options)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        before = collection.get(_key(namespace or "", name))
        stored = self.storage.put(collection, body, converted=converted)
        self._after_change(collection, before, stored)
        if collection is self._namespaces.collection:
            self._namespaces.remove_if_empty(stored.name)

        return stored

    def _after_change(
        self, collection: Collection, old: StoredObject | None, new: StoredObject | None
    ) -> None:
        if collection.kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
            self.custom_resources.reconcile(old, new)
        elif new is None:
            self.custom_resources.finalize_if_empty(collection)

    def _should_remove_on_update(
        self, collection: Collection, new: Mapping[str, Any]
    ) -> bool:
        namespaces = self._namespaces.collection
        if collection is namespaces and (new.get("spec") or {}).get("finalizers"):
            return False

        return should_remove_on_update(new["metadata"])

    def _create_namespace(self, name: str, options: WriteOptions) -> None:
        body = {"metadata": {"name": name}}
        arranged = replace(_ARRANGED_WRITE, dry_run=options.dry_run)
        self.create(self._namespaces.collection, "", body, arranged)

    def _delete_custom_object(
        self, collection: Collection, stored: StoredObject
    ) -> None:
        self._deleter.remove(collection, stored, DeleteOptions())

    def _generate_name(
        self,
        collection: Collection,
        namespace: str,
        metadata: Mapping[str, Any],
        options: WriteOptions,
    ) -> str:
        """Return an unused name for `generateName`; empty without one."""
        start, admission = metadata.get("generateName") or "", options.admission
        name = str(admission.generated_name if admission else "")
        name = name or (start and generate_name(start))
        while name and collection.get(_key(namespace, name)) is not None:
            name = generate_name(start)

        if admission is not None:
            admission.generated_name = name

        return name

    def _admit_deletion(
        self, collection: Collection, stored: StoredObject, options: DeleteOptions
    ) -> None:
        if options.admission is not None:
            old = _state_of(collection.kind, stored, _MAIN_WRITE)
            options.admission.check_deletion(collection.kind, old)


def _decode(kind: Kind, body: object, options: WriteOptions) -> dict[str, Any]:
    if options.part == "all":
        return request_bodies.decode_arranged(kind, body)

    return request_bodies.decode_body(kind, body, options)


def _state_of(
    kind: Kind, stored: StoredObject, options: WriteOptions
) -> dict[str, Any]:
    """Return the stored object as the server decodes it."""
    body = stored.body()
    return body if options.part == "all" else decode_stored(kind, body)


def _converted(
    collection: Collection, body: dict[str, Any], options: WriteOptions
) -> dict[Collection, dict[str, Any]]:
    """Return a body in the storage version, if a webhook converts it.

    Other versions are converted when they are read.
    """
    kind, admission = collection.kind, options.admission
    if kind.conversion is None or admission is None:
        return {}

    return {
        it: admission.to_storage(kind, body)
        for it in collection.siblings
        if it is not collection and it.kind.resource.version == kind.storage_version
    }


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
