"""Completion: what the server adds to a body that it has understood. Pure.

Apart from a uid, the time, and the managed fields, that is what the kind says: defaults,
what an object is given once when it is created, and addresses.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError
from aioinformer.model import resources
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, SERVICES
from aioinformer.model.times import kube_time
from aioinformer_apiserver.crds import status
from aioinformer_apiserver.patches.managed_fields import (
    reset_fields,
    update_managed_fields,
)
from aioinformer_apiserver.schema.creation_defaults import (
    preserved_on_update,
    with_creation_defaults,
)
from aioinformer_apiserver.schema.decoding import decode, decode_loosely
from aioinformer_apiserver.schema.defaults import with_defaults
from aioinformer_apiserver.schema.service_allocation import with_addresses
from aioinformer_apiserver.storage.encoding import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.requests.options import Part, WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Stored

__all__ = [
    "SUBRESOURCES",
    "as_decoded",
    "as_terminating_namespace",
    "is_unchanged",
    "merge_update",
    "prepare_for_create",
    "prepare_for_update",
    "timestamp",
    "to_storage_version",
    "with_generation",
    "with_server_metadata",
]


# Through which subresource each part is written.
SUBRESOURCES: dict[Part, str] = {
    "main": "",
    "status": "status",
    "finalize": "finalize",
    "all": "",
}


# The types of services that take ports of nodes.
_EXPOSED = frozenset({"LoadBalancer", "NodePort"})


def prepare_for_create(
    kind: Kind,
    body: dict[str, Any],
    options: WriteOptions,
    *,
    name: str,
    namespace: str,
    others: Iterable[Stored],
    owned: bool,
) -> dict[str, Any]:
    """Return a new object as it is stored.

    Args:
        kind: Of the object.
        body: As it was understood.
        options: Of the write.
        name: Its name, generated if need be.
        namespace: Where it goes; empty for cluster-scoped kinds.
        others: All objects of the kind.
        owned: The managed fields are known, and in the body.
    """
    arranged, now = options.part == "all", timestamp()
    wanted = _sketched(kind, body) if arranged else _defaulted(kind, body)
    # What is arranged may be as old as a test needs it.
    age = body["metadata"].get("creationTimestamp") if arranged else None
    new = with_server_metadata(
        kind,
        wanted,
        name=name,
        namespace=namespace,
        uid=str(uuid.uuid4()),
        now=age or now,
        keep_status=arranged or kind.resource == NODES,
    )
    new = _settled(kind, new, first=True)
    if arranged:
        return new

    if not owned:
        new = _managed(kind, None, wanted, new, options)

    if kind.typed and kind.schema is not None:
        new = with_creation_defaults(kind.resource, kind.schema, new, now=now)

    return _addressed(new, None, others) if kind.resource == SERVICES else new


def prepare_for_update(
    kind: Kind,
    old: dict[str, Any],
    body: dict[str, Any],
    options: WriteOptions,
    *,
    others: Iterable[Stored],
    owned: bool,
) -> dict[str, Any]:
    """Return the next state of an object, complete but for version and generation.

    Args:
        kind: Of the object.
        old: As it is stored.
        body: As it was understood.
        options: Of the write.
        others: All objects of the kind.
        owned: The managed fields are known, and in the body.
    """
    part = options.part
    wanted = _sketched(kind, body) if part == "all" else _defaulted(kind, body)
    new = merge_update(kind, old, wanted, part)
    if part != "all" and kind.typed:
        new = _with_empties(new, old)

    if owned:
        new = _with_managed(new, body["metadata"].get("managedFields"))
    elif part != "all":
        new = _managed(kind, old, wanted, new, options)

    if part == "main" and kind.typed:
        new = preserved_on_update(kind.resource, old, new)

    if part == "main" and kind.resource == SERVICES:
        new = _addressed(new, old, others)

    return _settled(kind, new, first=False) if part in {"main", "all"} else new


def as_decoded(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return a stored object as the server reads it, also if it was arranged.

    Otherwise the next write of an arranged object would seem to change the fields that
    decoding drops. An object that was written over HTTP has managed fields.
    """
    schema = kind.schema
    if schema is None or body["metadata"].get("managedFields"):
        return body

    try:
        known = decode(schema, body, custom=not kind.typed).body
    except ApiError:
        return body  # It holds what nobody could have sent.

    if kind.typed:
        known = _with_empties(known, body)

    return _defaulted(kind, known)


def to_storage_version(
    kind: Kind, body: dict[str, Any], options: WriteOptions
) -> dict[str, Any]:
    """Return what can be kept of an object, if that is done in another version.

    Args:
        kind: Of the object, in the version in which it was written.
        body: As it was found to be valid.
        options: Of the write; what is arranged is kept whole, if it has the same fields.
    """
    if kind.stored_as is not None:
        return kind.from_storage(kind.to_storage(body))

    schema = kind.storage_schema
    if schema is None or options.part == "all":
        return body

    return with_defaults(schema, decode(schema, body, custom=True).body)


def timestamp() -> str:
    """Return the present time, as objects tell it."""
    return kube_time(datetime.now(tz=UTC))


def _defaulted(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Complete a body with the defaults of its kind."""
    schema = kind.schema
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        body = status.with_definition_defaults(body)

    return body if schema is None else with_defaults(schema, body)


def _sketched(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Complete an arranged body as one that was sent, and keep its unknown fields.

    A body of a built-in kind that holds a value of a wrong type stays as it is.
    """
    schema = kind.schema
    if schema is None or kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        return body

    if not kind.typed:
        return with_defaults(schema, body)

    metadata = body["metadata"]  # It fits already.
    sent = {name: it for name, it in body.items() if name != "metadata"}
    known = decode_loosely(schema, sent)
    if known is sent:
        return body

    return with_defaults(schema, {**known, "metadata": metadata})


def _with_empties(new: Any, old: Any) -> Any:
    """Keep the empty values of a sketch where decoding and encoding makes them null."""
    if new is None:
        return old if old in ([], {}) else None

    if new.__class__ is dict and old.__class__ is dict:
        return {name: _with_empties(it, old.get(name)) for name, it in new.items()}

    if new.__class__ is list and old.__class__ is list and len(new) == len(old):
        return [_with_empties(*pair) for pair in zip(new, old, strict=True)]

    return new


def _settled(kind: Kind, new: dict[str, Any], *, first: bool) -> dict[str, Any]:
    """Complete what only the server can say about a definition of custom resources."""
    if kind.resource != CUSTOM_RESOURCE_DEFINITIONS:
        return new

    return status.with_status(status.with_definition_defaults(new), new=first)


def _addressed(
    new: dict[str, Any], old: dict[str, Any] | None, services: Iterable[Stored]
) -> dict[str, Any]:
    """Give a service addresses and ports that no other one has."""
    uid = new["metadata"]["uid"]
    others = [it for it in services if it.uid != uid]
    bodies = (it.body() for it in others if it.fields["spec.type"] in _EXPOSED)
    ports = (port for body in bodies for port in body["spec"].get("ports") or ())
    return with_addresses(
        new,
        old=old,
        taken={it.fields["spec.clusterIP"] for it in others},
        taken_ports={it["nodePort"] for it in ports if it.get("nodePort")},
    )


def _managed(
    kind: Kind,
    old: Mapping[str, Any] | None,
    wanted: Mapping[str, Any],
    new: dict[str, Any],
    options: WriteOptions,
) -> dict[str, Any]:
    """Say in an object who set what of it.

    Args:
        kind: Of the object.
        old: As it is stored; None if it is created.
        wanted: As the client wants it, with its defaults.
        new: As it is to be stored.
        options: Of the write.
    """
    subresource = SUBRESOURCES[options.part]
    entries = update_managed_fields(
        kind.schema,
        old,
        wanted,
        manager=options.manager,
        api_version=kind.resource.api_version,
        now=timestamp(),
        subresource=subresource,
        reset=reset_fields(kind, subresource),
        versions=kind.versions,
    )
    return _with_managed(new, entries)


def _with_managed(body: dict[str, Any], entries: object) -> dict[str, Any]:
    """Return a body with these managed fields; without any, if there are none."""
    metadata = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    if entries:
        metadata["managedFields"] = entries

    return {**body, "metadata": metadata}


# What the server alone decides, once an object exists.
_OWNED_BY_SERVER = (
    "name",
    "namespace",
    "resourceVersion",
    "generation",
    "creationTimestamp",
)


# What only the server writes too, but a wish for it is refused where it is checked.
_OF_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


# What the status subresource of a kind leaves alone in the metadata, which it writes
# else: kubelets once broke the owners, and controllers the labels.
_SPARED_BY_STATUS: dict[Resource, str] = {
    resources.PODS: "ownerReferences",
    resources.DEPLOYMENTS: "labels",
}


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
    """Complete the body of a new object.

    Args:
        kind: The kind.
        body: As it was sent, checked.
        name: Its name, generated if need be.
        namespace: Where it goes; empty for cluster-scoped kinds.
        uid: Its identity.
        now: Its creation, as a timestamp.
        keep_status: Store the `status` that was sent, as a real server does only for
            nodes and for kinds without a status subresource.
    """
    metadata = {**(body.get("metadata") or {}), "name": name, "uid": uid}
    metadata["creationTimestamp"] = now
    for field in (*_OF_DELETION, "selfLink", "resourceVersion"):
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
    """Return what an update makes of `old`, without a new version or generation.

    Args:
        kind: The kind.
        old: As it is stored.
        body: As it was sent, checked.
        part: What of it counts.
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
    """Count the generation up, if what changed is what the user intends."""
    if not kind.generation or _intent(kind, old) == _intent(kind, new):
        return new

    return _with_metadata(new, generation=_generation(old) + 1)


def as_terminating_namespace(old: dict[str, Any], now: str) -> dict[str, Any]:
    """Return a namespace as it waits for its content to go, with no period of grace."""
    new = _with_metadata(old, deletionTimestamp=now)
    return {**new, "status": {**(old.get("status") or {}), "phase": "Terminating"}}


def is_unchanged(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Say whether storing `new` in place of `old` would change nothing."""
    return canonical(_comparable(kind, old)) == canonical(_comparable(kind, new))


def _with_status(
    kind: Kind, old: dict[str, Any], body: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `old` with the status of `body`, and of built-in kinds its metadata."""
    new, status = dict(old), body.get("status")
    if kind.typed:
        new["metadata"] = _metadata(old, body)
        spared = _SPARED_BY_STATUS.get(kind.resource)
        if spared is not None:
            _put(new["metadata"], spared, old["metadata"].get(spared))

    if kind.resource == resources.PODS:
        for field in _OF_DELETION:
            _put(new["metadata"], field, old["metadata"].get(field))

        quality = (old.get("status") or {}).get("qosClass")
        status = {**(status or {}), "qosClass": quality} if quality else status

    _put(new, "status", status)
    return new


def _metadata(old: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an update, with what the server alone decides."""
    before, given = old["metadata"], body.get("metadata") or {}
    metadata = {k: v for k, v in given.items() if k not in _OWNED_BY_SERVER}
    for field in _OWNED_BY_SERVER:
        if field in before:
            metadata[field] = before[field]

    metadata["uid"] = given.get("uid") or before["uid"]
    for field in _OF_DELETION:
        if field in before:
            metadata.setdefault(field, before[field])

    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]

    return metadata


def _comparable(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not stored: empty metadata, and a typed object's nulls."""
    metadata = {
        k: v for k, v in body["metadata"].items() if v not in ("", None, {}, [])
    }
    rest = {k: v for k, v in body.items() if v is not None or not kind.typed}
    return {**rest, "metadata": metadata}


def _intent(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """Return the part of a body whose changes are counted by the generation."""
    rule, metadata = kind.generation, body["metadata"]
    parts = {} if rule == "once" else {"spec": body.get("spec")}
    if rule in {"all but metadata", "all and labels"}:
        ignored = {"metadata", "kind", "apiVersion"}
        if kind.has_status:
            ignored.add("status")  # Elsewhere it is a field as others are.

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
