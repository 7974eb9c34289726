"""Arrangement: what a test may do to a server's objects without asking it over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer_apiserver.arguments import (
    body_of,
    name_of,
    namespace_of,
    resource_of,
)
from aioinformer_apiserver.registration import register
from aioinformer_apiserver.requests.options import DeleteOptions, WriteOptions
from aioinformer_apiserver.schema.decoding import decode_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.storage.storage import Collection, Stored

__all__ = ["Arrangement"]

_ARRANGED = WriteOptions(part="all")
_REMOVED = DeleteOptions(grace_seconds=0, at_once=True)


class Arrangement:
    """Creates, changes and deletes objects by plain calls.

    They are effective at once and seen by all watches. They do what the whole cluster
    could do: they store a `status` with the rest, check no schema, delete a pod without
    waiting for its end, and put what names no namespace into `default`.

    Objects are stored as a server would write them: with the defaults of their kind, and
    with the fields that are written even if they are empty, so that typed clients can
    read the shortest sketch. A required list is then empty. Unknown fields are kept. A
    built-in object with a value of a wrong type is stored as given. Fields that admission
    and registries add, such as tolerations and cluster IPs, are left out.

    Errors of every method:
        OptionsError: If an argument is none of its kind, such as a body that JSON cannot
            hold, or if the resource is not served, or has no namespaces.
        WrongLoop: If the server runs in another thread.

    Args:
        registry: Where objects are read and written.
        check: Called by every method first. Raises if the caller must not call it.
    """

    def __init__(self, registry: Registry, *, check: Callable[[], None]) -> None:
        self._registry = registry
        self._storage = registry.storage
        self._check = check

    def register(self, resource: Resource) -> None:
        """Serve a custom resource from now on, with a status subresource.

        Its objects may hold anything. It gets a definition, as if somebody had created a
        CustomResourceDefinition; if there is one already, that gets one more version.

        Raises:
            OptionsError: If no definition can be made of it, as it names no kind, or its
                group is no domain.
        """
        self._check()
        register(self._registry, resource_of("what is registered", resource))

    def unregister(self, resource: Resource) -> None:
        """Delete all objects of a resource, end its watches, and answer 404 from now on.

        Its definition goes, and so do all versions. Finalizers hold up nothing.

        Raises:
            OptionsError: If it is not served.
        """
        self._collection(resource)
        self._registry.custom_resources.remove(resource)

    def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object; returns it as it is stored.

        Args:
            resource: Of which resource.
            body: `apiVersion` and `kind` may be missing; a `creationTimestamp` is kept,
                for what must be old.
            namespace: Where; otherwise the one in the body, or `default`.

        Raises:
            ApiError: As a client would get it, such as `AlreadyExists`.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        full = _typed(collection, body)
        place = _place(collection, namespace, full)
        made = self._registry.create(collection, place, full, _ARRANGED)
        return made.stored.body()

    def get(
        self, resource: Resource, name: str, *, namespace: str = ""
    ) -> dict[str, Any]:
        """Return an object, as a fresh dictionary.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        return self._find(collection, name, _place(collection, namespace)).body()

    def update(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object with its status; without a version, whatever it was.

        Raises:
            ApiError: As a client would get it, such as `Conflict`.
            OptionsError: If the resource is not served, or the body names nothing.
        """
        collection = self._collection(resource)
        full = _typed(collection, body)
        metadata = decode_metadata(full.get("metadata"))
        name = metadata.get("name")
        if not name:
            raise OptionsError("the body has no metadata.name: what should it replace?")

        place = _place(collection, "", full)
        stored = self._find(collection, name, place)
        metadata.setdefault("resourceVersion", str(stored.version))
        full["metadata"] = metadata
        written = self._registry.update(collection, place, name, full, _ARRANGED)
        return written.stored.body()

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str = "",
    ) -> dict[str, Any]:
        """Apply a JSON merge patch to an object and its status.

        Raises:
            ApiError: As a client would get it, such as `NotFound`.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        name, place = name_of(resource, name), _place(collection, namespace)
        change = body_of("a merge patch", patch)
        written = self._registry.patch(collection, place, name, change, _ARRANGED)
        return written.stored.body()

    def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object, or mark it for deletion while it has finalizers.

        Raises:
            NotFound: If it does not exist.
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        name, place = name_of(resource, name), _place(collection, namespace)
        self._registry.delete(collection, place, name, _REMOVED)

    def objects(
        self, resource: Resource, *, namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects of a resource, in the order of lists, as fresh dictionaries.

        Args:
            resource: Of which resource.
            namespace: Only those in there; empty for all.

        Raises:
            OptionsError: If the resource is not served.
        """
        collection = self._collection(resource)
        wanted = namespace_of(resource, namespace)
        found = collection.snapshot()
        return [it.body() for it in found if wanted in {"", it.namespace}]

    def _collection(self, resource: Resource) -> Collection:
        self._check()
        return self._storage.collection(resource_of("what is arranged", resource))

    def _find(self, collection: Collection, name: str, place: str) -> Stored:
        name = name_of(collection.kind.resource, name)
        return self._registry.require(collection, place, name)


def _place(
    collection: Collection, namespace: str, body: Mapping[str, Any] | None = None
) -> str:
    """Return the namespace that is meant; empty for cluster-scoped kinds.

    Raises:
        ApiError: 400, if the metadata of the body is none.
    """
    resource = collection.kind.resource
    given = namespace_of(resource, namespace)
    metadata = decode_metadata((body or {}).get("metadata"))
    if not resource.namespaced:
        return ""

    return given or metadata.get("namespace") or "default"


def _typed(collection: Collection, body: object) -> dict[str, Any]:
    resource = collection.kind.resource
    given = body_of("a body", body)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **given}
