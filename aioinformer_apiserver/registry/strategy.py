"""Strategy: changes that the server makes before it validates and stores. Pure.

These are defaults, server-owned metadata, managed fields, the values that a kind gets
on creation, and the addresses of services. Only uids and the current time are not pure.
Functions return new bodies and change none of their arguments.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError
from aioinformer.model import kube_time, resources
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, SERVICES
from aioinformer_apiserver.crds import status
from aioinformer_apiserver.patches.managed_fields import (
    reset_fields,
    update_managed_fields,
)
from aioinformer_apiserver.schema.creation_defaults import (
    restore_creation_defaults,
    with_creation_defaults,
)
from aioinformer_apiserver.schema.decoding import (
    decode,
    decode_loosely,
    decode_metadata,
)
from aioinformer_apiserver.schema.defaults import with_defaults
from aioinformer_apiserver.schema.service_allocation import with_addresses
from aioinformer_apiserver.storage.encoding import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.model import Resource
    from aioinformer_apiserver.requests.admission import Admission, Operation
    from aioinformer_apiserver.requests.options import Part, WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = [
    "SUBRESOURCES",
    "admit",
    "decode_mutated",
    "decode_stored",
    "is_unchanged",
    "mark_namespace_for_deletion",
    "merge_update",
    "prepare_for_create",
    "prepare_for_update",
    "time_of",
    "timestamp",
    "to_storage_version",
    "with_generation",
    "with_server_metadata",
]

# Subresource that writes each part.
SUBRESOURCES: dict[Part, str] = {
    "main": "",
    "status": "status",
    "finalize": "finalize",
    "all": "",
}
# Types of services that get node ports.
_NODE_PORT_TYPES = frozenset({"LoadBalancer", "NodePort"})


def prepare_for_create(
    kind: Kind,
    body: dict[str, Any],
    options: WriteOptions,
    *,
    name: str,
    namespace: str,
    others: Iterable[StoredObject],
    has_managed_fields: bool,
) -> dict[str, Any]:
    """Return a new object in the form in which it is stored.

    Args:
        kind: Kind of the object.
        body: Decoded body.
        options: Options of the write.
        name: Name of the object, generated if necessary.
        namespace: Namespace of the object; empty for cluster-scoped kinds.
        others: All objects of the kind.
        has_managed_fields: Whether the body already has its new managed fields.
    """
    arranged, now = options.part == "all", time_of(options)
    desired = (
        _apply_defaults_loosely(kind, body) if arranged else _apply_defaults(kind, body)
    )
    # Tests may arrange objects of any age.
    age = body["metadata"].get("creationTimestamp") if arranged else None
    new = with_server_metadata(
        kind,
        desired,
        name=name,
        namespace=namespace,
        uid=options.admission.uid if options.admission else str(uuid.uuid4()),
        now=age or now,
        keep_status=arranged or kind.resource == NODES,
    )
    new = _with_definition_status(kind, new, first=True)
    if arranged:
        return new

    if not has_managed_fields:
        new = _with_updated_managers(kind, None, desired, new, options)

    if kind.typed and kind.schema is not None:
        new = with_creation_defaults(kind.resource, kind.schema, new, now=now)

    if options.admission is not None:
        new = _with_mutations(kind, new, desired, options.admission)

    return _with_addresses(new, None, others) if kind.resource == SERVICES else new


def prepare_for_update(
    kind: Kind,
    old: dict[str, Any],
    body: dict[str, Any],
    options: WriteOptions,
    *,
    others: Iterable[StoredObject],
    has_managed_fields: bool,
) -> dict[str, Any]:
    """Return the next state of an object, without its new version and generation.

    Args:
        kind: Kind of the object.
        old: Stored object.
        body: Decoded body.
        options: Options of the write.
        others: All objects of the kind.
        has_managed_fields: Whether the body already has its new managed fields.
    """
    part = options.part
    desired = (
        _apply_defaults_loosely(kind, body)
        if part == "all"
        else _apply_defaults(kind, body)
    )
    new = merge_update(kind, old, desired, part)
    if part != "all" and kind.typed:
        new = _keep_empty_values(new, old)

    if has_managed_fields:
        new = _with_managed_fields(new, body["metadata"].get("managedFields"))
    elif part != "all":
        new = _with_updated_managers(kind, old, desired, new, options)

    if options.admission is not None:
        shown = {**desired, "metadata": new["metadata"]}
        shown = options.admission.mutate(
            kind, "UPDATE", shown, old, lambda it: decode_mutated(kind, it)
        )
        new = merge_update(kind, old, shown, part)
        new = _with_managed_fields(new, shown["metadata"].get("managedFields"))

    if part == "main" and kind.typed:
        new = restore_creation_defaults(kind.resource, old, new)

    if part == "main" and kind.resource == SERVICES:
        new = _with_addresses(new, old, others)

    return (
        _with_definition_status(kind, new, first=False)
        if part in {"main", "all"}
        else new
    )


def decode_stored(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return a stored object as the server decodes it.

    Without this, the next write of an arranged object would seem to change fields that
    decoding drops. Objects that were written over HTTP have managed fields and need no
    decoding.
    """
    schema = kind.schema
    if schema is None or body["metadata"].get("managedFields"):
        return body

    try:
        known = decode(schema, body, custom=not kind.typed).body
    except ApiError:
        return body  # Only an arranged object can have such values.

    if kind.typed:
        known = _keep_empty_values(known, body)

    return _apply_defaults(kind, known)


def to_storage_version(
    kind: Kind, body: dict[str, Any], options: WriteOptions
) -> dict[str, Any]:
    """Convert an object to the storage version and back.

    Args:
        kind: Kind of the object, in the version of the write.
        body: Valid object.
        options: Options of the write; arranged objects keep unknown fields.
    """
    if kind.stored_as is not None:
        return kind.from_storage(kind.to_storage(body))

    schema = kind.storage_schema
    if schema is None or options.part == "all":
        return body

    return with_defaults(schema, decode(schema, body, custom=True).body)


def timestamp() -> str:
    """Return the current time as a Kubernetes timestamp."""
    return kube_time(datetime.now(tz=UTC))


def decode_mutated(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return an object that a webhook has patched, pruned and with defaults.

    Raises:
        ApiError: 400 if it has values of wrong types.
    """
    body = {**body, "metadata": decode_metadata(body.get("metadata"))}
    schema = kind.schema
    if schema is None:
        return body

    return _apply_defaults(kind, decode(schema, body, custom=not kind.typed).body)


def admit(
    kind: Kind, body: dict[str, Any], old: dict[str, Any] | None, options: WriteOptions
) -> dict[str, Any]:
    """Return the body of a subresource as all webhooks admit it.

    Args:
        kind: Kind of the body.
        body: Decoded body.
        old: Stored object of that kind; None for a subresource that is only created.
        options: Options of the write.

    Raises:
        ApiError: If a webhook rejects it, or fails.
        CallsNeeded: If webhooks must be called first.
    """
    if options.admission is None:
        return body

    operation: Operation = "CREATE" if old is None else "UPDATE"
    got = options.admission.mutate(
        kind, operation, body, old, lambda it: decode_mutated(kind, it)
    )
    options.admission.validate(kind, operation, got, old)
    return got


def _with_mutations(
    kind: Kind, new: dict[str, Any], desired: Mapping[str, Any], admission: Admission
) -> dict[str, Any]:
    """Return a new object as the mutating webhooks leave it.

    They see neither a generated name nor what the server sets just before it stores the
    object.
    """
    kept = {it: new["metadata"][it] for it in _SET_ON_CREATE if it in new["metadata"]}
    shown = {it: value for it, value in new.items() if it != "status"}
    if "status" in desired:
        shown["status"] = desired["status"]

    hidden = set(kept) if desired["metadata"].get("name") else {*kept, "name"}
    metadata = {k: v for k, v in new["metadata"].items() if k not in hidden}
    got = admission.mutate(
        kind,
        "CREATE",
        {**shown, "metadata": metadata},
        None,
        lambda it: decode_mutated(kind, it),
    )
    own = {
        it: new["metadata"][it] for it in ("name", "namespace") if it in new["metadata"]
    }
    mutated = {**got, "metadata": {**got["metadata"], **own, **kept}}
    if kind.has_status:
        _put(mutated, "status", new.get("status"))

    return mutated


def time_of(options: WriteOptions) -> str:
    """Return the time of a write, which is the same when it runs again."""
    return options.admission.now if options.admission else timestamp()


def _apply_defaults(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Apply the defaults of a kind to a body."""
    schema = kind.schema
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        body = status.with_definition_defaults(body)

    return body if schema is None else with_defaults(schema, body)


def _apply_defaults_loosely(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Apply defaults to an arranged body, and keep its unknown fields.

    A body of a built-in kind with a value of a wrong type is returned unchanged.
    """
    schema = kind.schema
    if schema is None or kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        return body

    if not kind.typed:
        return with_defaults(schema, body)

    metadata = body["metadata"]  # already decoded
    sent = {name: it for name, it in body.items() if name != "metadata"}
    known = decode_loosely(schema, sent)
    if known is sent:
        return body

    return with_defaults(schema, {**known, "metadata": metadata})


def _keep_empty_values(new: Any, old: Any) -> Any:
    """Keep the empty values of an arranged object that decoding makes null."""
    if new is None:
        return old if old in ([], {}) else None

    if new.__class__ is dict and old.__class__ is dict:
        return {name: _keep_empty_values(it, old.get(name)) for name, it in new.items()}

    if new.__class__ is list and old.__class__ is list and len(new) == len(old):
        return [_keep_empty_values(*pair) for pair in zip(new, old, strict=True)]

    return new


def _with_definition_status(
    kind: Kind, new: dict[str, Any], *, first: bool
) -> dict[str, Any]:
    """Set the status of a CustomResourceDefinition."""
    if kind.resource != CUSTOM_RESOURCE_DEFINITIONS:
        return new

    return status.with_status(status.with_definition_defaults(new), new=first)


def _with_addresses(
    new: dict[str, Any], old: dict[str, Any] | None, services: Iterable[StoredObject]
) -> dict[str, Any]:
    """Allocate addresses and ports that no other service has."""
    uid = new["metadata"]["uid"]
    others = [it for it in services if it.uid != uid]
    bodies = (it.body() for it in others if it.fields["spec.type"] in _NODE_PORT_TYPES)
    ports = (port for body in bodies for port in body["spec"].get("ports") or ())
    return with_addresses(
        new,
        old=old,
        taken={it.fields["spec.clusterIP"] for it in others},
        taken_ports={it["nodePort"] for it in ports if it.get("nodePort")},
    )


def _with_updated_managers(
    kind: Kind,
    old: Mapping[str, Any] | None,
    desired: Mapping[str, Any],
    new: dict[str, Any],
    options: WriteOptions,
) -> dict[str, Any]:
    """Update the managed fields of an object.

    Args:
        kind: Kind of the object.
        old: Stored object; None if the object is created.
        wanted: Object of the client with its defaults.
        new: Object to be stored.
        options: Options of the write.
    """
    subresource = SUBRESOURCES[options.part]
    entries = update_managed_fields(
        kind.schema,
        old,
        desired,
        manager=options.manager,
        api_version=kind.resource.api_version,
        now=time_of(options),
        subresource=subresource,
        reset=reset_fields(kind, subresource),
        versions=kind.versions,
    )
    return _with_managed_fields(new, entries)


def _with_managed_fields(body: dict[str, Any], entries: object) -> dict[str, Any]:
    """Return a body with the given managed fields, or without any."""
    metadata = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    if entries:
        metadata["managedFields"] = entries

    return {**body, "metadata": metadata}


# Metadata that the server sets on creation, after the webhooks have seen the object.
_SET_ON_CREATE = ("uid", "creationTimestamp", "generation")
# Metadata that only the server sets once the object exists.
_SERVER_OWNED = (
    "name",
    "namespace",
    "resourceVersion",
    "generation",
    "creationTimestamp",
)
# Metadata that only the server sets, too, but validation rejects changes of it.
_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")
# Metadata that the status subresource of a kind ignores. It is for old kubelets that
# broke owners, and for controllers that broke labels.
_IGNORED_BY_STATUS: dict[Resource, str] = {
    resources.PODS: "ownerReferences",
    resources.DEPLOYMENTS: "labels",
}


# ------------------------------------------------------------------ metadata and status


def with_server_metadata(
    kind: Kind,
    body: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    uid: str,
    now: str,
    keep_status: bool,
) -> dict[str, Any]:
    """Return a new object with the metadata that the server sets.

    Args:
        kind: Kind of the object.
        body: Decoded body.
        name: Name of the object, generated if necessary.
        namespace: Namespace of the object; empty for cluster-scoped kinds.
        uid: Uid of the object.
        now: Timestamp of its creation.
        keep_status: Whether to store the `status` of the body. A real server does so
            only for nodes and for kinds without a status subresource.
    """
    metadata = {**(body.get("metadata") or {}), "name": name, "uid": uid}
    metadata["creationTimestamp"] = now
    for field in (*_DELETION_FIELDS, "selfLink", "resourceVersion"):
        metadata.pop(field, None)

    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)

    if kind.generation:
        metadata["generation"] = 1

    if kind.resource.plural == "namespaces":
        labels = metadata.get("labels") or {}
        metadata["labels"] = {**labels, "kubernetes.io/metadata.name": name}

    new = {**body, "metadata": metadata}
    if kind.has_status and not (keep_status and body.get("status")):
        _put(new, "status", kind.first_status)

    return new


def merge_update(
    kind: Kind, old: dict[str, Any], body: Mapping[str, Any], part: Part
) -> dict[str, Any]:
    """Merge an update into the stored object, without a new version or generation.

    Args:
        kind: Kind of the object.
        old: Stored object.
        body: Decoded body.
        part: Part of the body that the request writes.
    """
    if part == "status":
        return _with_status(kind, old, body)

    new = {**body, "metadata": _metadata(old, body)}
    if kind.has_status and part != "all":
        _put(new, "status", old.get("status"))

    return new


def with_generation(
    kind: Kind, old: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    """Increment the generation if the desired state has changed."""
    if not kind.generation or _desired_state(kind, old) == _desired_state(kind, new):
        return new

    return _with_metadata(new, generation=_generation(old) + 1)


def mark_namespace_for_deletion(old: dict[str, Any], now: str) -> dict[str, Any]:
    """Return a namespace that is marked for deletion, without a grace period."""
    new = _with_metadata(old, deletionTimestamp=now)
    return {**new, "status": {**(old.get("status") or {}), "phase": "Terminating"}}


def is_unchanged(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether storing `new` in place of `old` would change nothing."""
    return canonical(_stored_form(kind, old)) == canonical(_stored_form(kind, new))


def _with_status(
    kind: Kind, old: dict[str, Any], body: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `old` with the status of `body`; built-in kinds also get its metadata."""
    new, status = dict(old), body.get("status")
    if kind.typed:
        new["metadata"] = _metadata(old, body)
        kept_field = _IGNORED_BY_STATUS.get(kind.resource)
        if kept_field is not None:
            _put(new["metadata"], kept_field, old["metadata"].get(kept_field))

    if kind.resource == resources.PODS:
        for field in _DELETION_FIELDS:
            _put(new["metadata"], field, old["metadata"].get(field))

        quality = (old.get("status") or {}).get("qosClass")
        status = {**(status or {}), "qosClass": quality} if quality else status

    _put(new, "status", status)
    return new


def _metadata(old: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an update, with the stored server-owned fields."""
    before, given = old["metadata"], body.get("metadata") or {}
    metadata = {k: v for k, v in given.items() if k not in _SERVER_OWNED}
    for field in _SERVER_OWNED:
        if field in before:
            metadata[field] = before[field]

    metadata["uid"] = given.get("uid") or before["uid"]
    for field in _DELETION_FIELDS:
        if field in before:
            metadata.setdefault(field, before[field])

    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]

    return metadata


def _stored_form(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without values that are not stored.

    These are empty metadata, and nulls of built-in kinds.
    """
    metadata = {
        k: v for k, v in body["metadata"].items() if v not in ("", None, {}, [])
    }
    rest = {k: v for k, v in body.items() if v is not None or not kind.typed}
    return {**rest, "metadata": metadata}


def _desired_state(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Return the part of a body that the generation counts."""
    rule, metadata = kind.generation, body["metadata"]
    parts = {} if rule == "once" else {"spec": body.get("spec")}
    if rule in {"all but metadata", "all and labels"}:
        ignored = {"metadata", "kind", "apiVersion"}
        if kind.has_status:
            ignored.add(
                "status"
            )  # Without a status subresource it is an ordinary field.

        parts = {k: v for k, v in body.items() if k not in ignored}

    if rule == "all and labels":
        parts["labels"] = metadata.get("labels") or None
    elif rule == "spec and annotations":
        parts["annotations"] = metadata.get("annotations") or None

    return canonical(parts)


def _generation(body: Mapping[str, Any]) -> int:
    return int(body["metadata"].get("generation") or 0)


def _with_metadata(body: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **fields}}


def _put(body: dict[str, Any], field: str, value: object) -> None:
    if value is None:
        body.pop(field, None)
    else:
        body[field] = value
