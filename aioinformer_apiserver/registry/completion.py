"""Completion: what the server adds to a body that it has understood. Pure.

Apart from a uid, the time, and the managed fields, that is what the kind says: defaults,
what an object is given once when it is created, and addresses.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError
from aioinformer.model.moments import kube_time
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, SERVICES
from aioinformer_apiserver.crds import states
from aioinformer_apiserver.patches.managed_fields import reset_fields, tracked
from aioinformer_apiserver.registry import rules
from aioinformer_apiserver.schema.addresses import with_addresses
from aioinformer_apiserver.schema.births import carried_over, completed
from aioinformer_apiserver.schema.conformity import conform, conform_sketch
from aioinformer_apiserver.schema.defaults import with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer_apiserver.requests.options import Part, WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Stored

__all__ = ["SUBRESOURCES", "kept", "newborn", "read", "revised", "timestamp"]

# Through which subresource each part is written.
SUBRESOURCES: dict[Part, str] = {
    "main": "",
    "status": "status",
    "finalize": "finalize",
    "all": "",
}
# The types of services that take ports of nodes.
_EXPOSED = frozenset({"LoadBalancer", "NodePort"})


def newborn(
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
    new = rules.created(
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
        new = completed(kind.resource, kind.schema, new, now=now)

    return _addressed(new, None, others) if kind.resource == SERVICES else new


def revised(
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
    new = rules.updated(kind, old, wanted, part)
    if part != "all" and kind.typed:
        new = _with_empties(new, old)

    if owned:
        new = _with_managed(new, body["metadata"].get("managedFields"))
    elif part != "all":
        new = _managed(kind, old, wanted, new, options)

    if part == "main" and kind.typed:
        new = carried_over(kind.resource, old, new)

    if part == "main" and kind.resource == SERVICES:
        new = _addressed(new, old, others)

    return _settled(kind, new, first=False) if part in {"main", "all"} else new


def read(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return a stored object as the server reads it, also if it was arranged.

    Otherwise the next write of an arranged object would seem to change the fields that
    decoding drops. An object that was written over HTTP has managed fields.
    """
    schema = kind.schema
    if schema is None or body["metadata"].get("managedFields"):
        return body

    try:
        known = conform(schema, body, custom=not kind.typed).body
    except ApiError:
        return body  # It holds what nobody could have sent.

    if kind.typed:
        known = _with_empties(known, body)

    return _defaulted(kind, known)


def kept(kind: Kind, body: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
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

    return with_defaults(schema, conform(schema, body, custom=True).body)


def timestamp() -> str:
    """Return the present time, as objects tell it."""
    return kube_time(datetime.now(tz=UTC))


def _defaulted(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Complete a body with the defaults of its kind."""
    schema = kind.schema
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        body = states.defaulted(body)

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
    known = conform_sketch(schema, sent)
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

    return states.with_status(states.defaulted(new), new=first)


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
    entries = tracked(
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
