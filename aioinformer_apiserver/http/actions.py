"""Actions: what a request does to stored objects. Synchronous: each is one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer_apiserver.reads.lists import page_of
from aioinformer_apiserver.registry.pod_subresources import bind, evict, eviction_of
from aioinformer_apiserver.registry.scale import SCALE, Scales
from aioinformer_apiserver.requests.options import (
    delete_options_from,
    delete_options_of,
    patch_type_of,
    write_options_of,
)
from aioinformer_apiserver.requests.queries import ListQuery, scope_of
from aioinformer_apiserver.serialization.answers import (
    Answer,
    deletion,
    document,
    showing,
)
from aioinformer_apiserver.storage.storage import Stored

if TYPE_CHECKING:
    from typing import Any

    from aioinformer_apiserver.auth.service_tokens import ServiceTokens
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import Part, Written
    from aioinformer_apiserver.requests.request import Call
    from aioinformer_apiserver.requests.routes import Target
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["Actions", "shown_kind"]

_CREATED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
# What a write through a subresource may change.
_PARTS: dict[str, Part] = {"": "main", "finalize": "finalize", "status": "status"}


def shown_kind(target: Target) -> Kind:
    """Return the kind of what is answered, which for a scale is not its owner's."""
    return SCALE if target.subresource == "scale" else target.collection.kind


class Actions:
    """Performs every verb but `list` and `watch`.

    Args:
        registry: Where objects are read and written.
        tokens: Of service accounts.
    """

    def __init__(self, registry: Registry, tokens: ServiceTokens) -> None:
        self._registry = registry
        self._tokens = tokens
        self._scales = Scales(registry)

    def perform(self, call: Call, target: Target, shown: Format) -> Answer:
        """Do what is asked.

        Raises:
            ApiError: If it is refused; then nothing is done.
        """
        collection, namespace, name = target.collection, target.namespace, target.name
        scales = target.subresource == "scale"
        match target.verb:
            case "get" if scales:
                return _scale(shown, self._scales.get(collection, namespace, name))
            case "get":
                stored = self._registry.require(collection, namespace, name)
                return showing(shown, stored)
            case "update" | "patch" if scales:
                return self._write_scale(call, target, shown)
            case "create" if target.subresource:
                return self._errand(call, target)
            case "create" | "update" | "patch":
                written = self._write(call, target)
                code = 201 if written.created else 200
                return showing(shown, written.stored, status=code)
            case "delete":
                options = delete_options_of(call)
                deleted = self._registry.delete(collection, namespace, name, options)
                return deletion(call, target, shown, deleted)
            case _:
                return self._delete_all(call, target, shown)

    def _write(self, call: Call, target: Target) -> Written:
        collection, namespace, name = target.collection, target.namespace, target.name
        part = _PARTS[target.subresource]
        registry = self._registry
        if target.verb != "patch":
            options = write_options_of(call, part)
            if target.verb == "create":
                return registry.create(collection, namespace, call.content(), options)

            return registry.update(collection, namespace, name, call.content(), options)

        patch_type = patch_type_of(call, collection.kind)
        options = write_options_of(call, part, patch_type=patch_type)
        return registry.patch(
            collection, namespace, name, call.patch(), options, patch_type=patch_type
        )

    def _errand(self, call: Call, target: Target) -> Answer:
        """Do what is asked by creating what nobody stores."""
        collection, namespace, name = target.collection, target.namespace, target.name
        options, body = write_options_of(call, "main"), call.content()
        match target.subresource:
            case "token":
                got = self._tokens.answer_to(namespace, name, body, options)
                return document(got, call, status=201)
            case "binding":
                bind(self._registry, collection, namespace, name, body, options)
            case _:
                eviction = eviction_of(namespace, name, body, options)
                how = delete_options_from(eviction.get("deleteOptions") or {}, call)
                evict(self._registry, collection, namespace, name, how)

        return document(_CREATED, call, status=201)

    def _delete_all(self, call: Call, target: Target, shown: Format) -> Answer:
        """Delete the objects on one page of a list, and answer with that page."""
        collection = target.collection
        scope = scope_of(collection.kind, target.namespace, call.query)
        query = ListQuery.parse(call.query, cached=collection.cached)
        options = delete_options_of(call)
        page = page_of(collection, self._registry.storage.version, query, scope)
        self._registry.delete_collection(collection, page.objects, options)
        pieces = shown.list(page.metadata, page.objects)
        return Answer(body=pieces, content_type=shown.content_type)

    def _write_scale(self, call: Call, target: Target, shown: Format) -> Answer:
        collection, namespace, name = target.collection, target.namespace, target.name
        if target.verb == "update":
            options = write_options_of(call, "main")
            scale = self._scales.update(
                collection, namespace, name, call.content(), options
            )
        else:
            patch_type = patch_type_of(call, collection.kind)
            options = write_options_of(call, "main", patch_type=patch_type)
            scale = self._scales.patch(
                collection,
                namespace,
                name,
                call.patch(),
                options,
                patch_type=patch_type,
            )

        return _scale(shown, scale)


def _scale(shown: Format, scale: dict[str, Any]) -> Answer:
    version = int(scale["metadata"].get("resourceVersion") or 0)
    return showing(shown, Stored.of(SCALE, scale, version))
