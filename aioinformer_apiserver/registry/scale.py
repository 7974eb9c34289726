"""Subresource `scale`: reads and writes of an object's replicas.

It looks the same for all kinds: an autoscaling/v1 Scale shows three fields of its owner
and writes one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.field_errors import FieldError, invalid_error
from aioinformer_apiserver.patches.managed_fields import (
    SCALE_VERSION,
    from_scale,
    to_scale,
    update_managed_fields,
)
from aioinformer_apiserver.patches.patch_types import (
    apply_patch,
    decode_applied,
    decode_patch,
)
from aioinformer_apiserver.patches.server_side_apply import apply
from aioinformer_apiserver.registry import preconditions
from aioinformer_apiserver.registry.request_bodies import (
    check_name,
    decode_body,
    decode_patched,
)
from aioinformer_apiserver.registry.strategy import admit, time_of
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, Kind, value_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer_apiserver.patches.patch_types import PatchType
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.kinds import ScalePaths
    from aioinformer_apiserver.storage.storage import Collection

__all__ = ["SCALE", "Scales", "scale_of", "selector_text"]

SCALE = Kind(resource=SUBRESOURCE_KINDS["scale"])

# Fields of the owner's metadata that a Scale shows.
_METADATA_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scales:
    """Reader and writer of the scales of objects.

    Args:
        registry: Registry of the objects.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, collection: Collection, namespace: str, name: str) -> dict[str, Any]:
        """Return the Scale of an object.

        Raises:
            ApiError: 404 if the object does not exist, 500 if a custom resource has no
                replicas field.
        """
        kind = collection.kind
        owner = self._registry.require(collection, namespace, name).body()
        path = _paths(kind).replicas
        if not kind.typed and value_at(owner, path) is None:
            why = f'the spec replicas field "{_format_path(path)}" does not exist'
            causes = {"causes": [{"message": why}]}
            message = f"Internal error occurred: {why}"
            raise statuses.failure(500, "InternalError", message, causes)

        return scale_of(kind, owner)

    def update(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        body: object,
        options: WriteOptions,
    ) -> dict[str, Any]:
        """Update the replicas of an object, and return its Scale.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            body: Scale as JSON bytes or decoded.
            options: Options of the write.

        Raises:
            ApiError: 404 if the object does not exist; 400, 409 or 422 as for an update
                of the object.
        """
        got = decode_body(SCALE, body, options)
        check_name(namespace, name, got["metadata"])
        stored = self._registry.require(collection, namespace, name)
        preconditions.check_uid(collection.kind, stored.key, stored, got["metadata"])
        return self._write(
            collection, namespace, name, got, options, has_managed_fields=False
        )

    def patch(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        patch: object,
        options: WriteOptions,
        *,
        patch_type: PatchType,
    ) -> dict[str, Any]:
        """Patch the Scale of an object, and return the new Scale.

        Args:
            collection: Collection of the resource.
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            patch: Patch as JSON bytes or decoded.
            options: Options of the write.
            patch_type: Type of the patch.

        Raises:
            ApiError: 409 if an apply conflicts with other managers; the errors of
                `update()`.
        """
        owner = self._registry.require(collection, namespace, name).body()
        if isinstance(patch, bytes):
            patch = decode_patch(patch, patch_type)

        old = _with_managed_fields(collection.kind, owner)
        applies = patch_type == "apply"
        if applies:
            got = decode_body(SCALE, _apply_patch(old, patch, options), options)
        else:
            new = apply_patch(SCALE.schema, old, patch, patch_type)
            got = decode_patched(
                SCALE, new, options, patch=patch, patch_type=patch_type
            )

        check_name(namespace, name, got["metadata"])
        return self._write(
            collection, namespace, name, got, options, has_managed_fields=applies
        )

    def _write(
        self,
        collection: Collection,
        namespace: str,
        name: str,
        got: dict[str, Any],
        options: WriteOptions,
        *,
        has_managed_fields: bool,
    ) -> dict[str, Any]:
        """Write the owner of a Scale.

        Args:
            collection: Collection of the owner.
            namespace: Namespace of the owner.
            name: Name of the owner.
            got: New Scale.
            options: Options of the write.
            has_managed_fields: Whether the Scale already has its new managed fields.
        """
        stored = self._registry.require(collection, namespace, name)
        kind, owner, metadata = collection.kind, stored.body(), got["metadata"]
        if metadata.get("resourceVersion"):
            preconditions.check_version(kind, stored, metadata)

        got = admit(SCALE, got, scale_of(kind, owner), options)
        replicas = (got.get("spec") or {}).get("replicas") or 0
        _check_replicas(kind, name, replicas)
        new = _put_at(owner, _paths(kind).replicas, replicas)
        managed = metadata.get("managedFields") if has_managed_fields else None
        if not has_managed_fields:
            managed = _update_managed_fields(
                _with_managed_fields(kind, owner), got, options
            )

        fields = from_scale(
            owner["metadata"].get("managedFields"),
            managed,
            _paths(kind).replicas,
            api_version=kind.resource.api_version,
            versions=kind.versions,
        )
        new["metadata"] = {**new["metadata"], "managedFields": fields}
        # Webhooks have seen the scale, not its owner.
        unseen = replace(options, admission=None)
        written = self._registry.commit(collection, stored, new, unseen)
        return scale_of(kind, written.stored.body())


def scale_of(kind: Kind, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Scale of an object.

    Args:
        kind: Kind of the object, which must have a scale.
        owner: Object.
    """
    paths, metadata = _paths(kind), owner["metadata"]
    replicas = value_at(owner, paths.replicas)
    status: dict[str, Any] = {"replicas": value_at(owner, paths.current) or 0}
    selector = value_at(owner, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector_text(selector)

    return {
        "kind": "Scale",
        "apiVersion": SCALE_VERSION,
        "metadata": {
            key: metadata[key] for key in _METADATA_FIELDS if metadata.get(key)
        },
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def selector_text(selector: object) -> str:
    """Format a selector as in list requests, such as `"a=b,c in (d,e)"`.

    Args:
        selector: LabelSelector, map of labels, or selector text.
    """
    if not isinstance(selector, dict):
        return str(selector)

    known = selector.keys() & {"matchLabels", "matchExpressions"}
    found = selector if known else {"matchLabels": selector}
    labels = found.get("matchLabels") or {}
    terms = [(key, f"{key}={value}") for key, value in labels.items()]
    expressions = found.get("matchExpressions") or ()
    terms += [(it.get("key", ""), _requirement_text(it)) for it in expressions]
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def _requirement_text(requirement: Mapping[str, Any]) -> str:
    key, values = requirement.get("key", ""), requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return f"{key} in ({','.join(sorted(values))})"
        case "NotIn":
            return f"{key} notin ({','.join(sorted(values))})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return str(key)


def _check_replicas(kind: Kind, name: str, replicas: int) -> None:
    """Reject replicas that no built-in kind allows.

    Custom objects are validated as a whole.
    """
    if replicas < 0 and kind.typed:
        why = "must be greater than or equal to 0"
        raise invalid_error(
            SCALE.stored, name, [FieldError.invalid("spec.replicas", replicas, why)]
        )


def _with_managed_fields(kind: Kind, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Scale of an object with its managed fields."""
    scale, given = scale_of(kind, owner), owner["metadata"].get("managedFields")
    versions = {kind.resource.api_version, *kind.versions}
    fields = to_scale(given, _paths(kind).replicas, versions)
    metadata = {**scale["metadata"], "managedFields": fields}
    return {**scale, "metadata": metadata} if fields else scale


def _update_managed_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], options: WriteOptions
) -> list[dict[str, Any]]:
    return update_managed_fields(
        SCALE.schema,
        old,
        new,
        manager=options.manager,
        api_version=SCALE_VERSION,
        now=time_of(options),
        subresource="scale",
    )


def _apply_patch(
    old: Mapping[str, Any], patch: object, options: WriteOptions
) -> dict[str, Any]:
    return apply(
        SCALE.schema,
        old,
        decode_applied(patch),
        manager=options.manager,
        force=options.force,
        api_version=SCALE_VERSION,
        now=time_of(options),
        kind="Scale",
        subresource="scale",
    )


def _paths(kind: Kind) -> ScalePaths:
    assert kind.scale is not None, f"{kind.resource} has no scale subresource"
    return kind.scale


def _format_path(path: Sequence[str]) -> str:
    return "".join(f".{part}" for part in path)


def _put_at(
    body: Mapping[str, Any], path: Sequence[str], value: object
) -> dict[str, Any]:
    """Return a body with a value at a path, creating missing parents."""
    first, *rest = path
    if not rest:
        return {**body, first: value}

    return {**body, first: _put_at(body.get(first) or {}, rest, value)}
