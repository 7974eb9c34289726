"""Validation: what any object must be, whatever its kind.

What a kind asks of its spec is not looked at here; its schema knows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer_apiserver.errors import names, statuses
from aioinformer_apiserver.errors.field_errors import Problem
from aioinformer_apiserver.errors.go_format import VERSION_STRUCT, json_type
from aioinformer_apiserver.errors.json_errors import json_mistake
from aioinformer_apiserver.schema.builtin import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "check_name",
    "check_namespace",
    "creation_problems",
    "opened",
    "type_mistake",
    "type_problems",
    "update_problems",
]

_ANNOTATIONS_BYTES = 256 * 1024
# The kinds whose finalizers need no domain.
_ANY_FINALIZERS = frozenset(
    {resources.EVENTS, resources.LEASES, resources.POD_DISRUPTION_BUDGETS}
)
# What a write that exists may say only as it is.
_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
# How much of a body that is not understood is shown.
_SHOWN_BYTES = 30


# ---------------------------------------------------------------- what was sent


def opened(kind: Kind, body: object) -> dict[str, Any]:
    """Check that a body is an object of its kind; returns it, its type filled in.

    Args:
        kind: Which kind is expected.
        body: The body of a request: decoded, or bytes of JSON.

    Raises:
        ApiError: 400, if it is something else.
    """
    sent = _decoded(kind, body) if isinstance(body, bytes) else body
    if sent is None and kind.typed:
        sent = {}

    mistake = type_mistake(sent)
    if mistake:
        raise _unrecognized(kind, body, mistake)

    assert isinstance(sent, dict)
    problem = _foreign(kind, sent) if kind.typed else _misfit(kind, sent, body)
    if problem is not None:
        raise problem

    return {**sent, **{k: sent.get(k) or v for k, v in _type_of(kind).items()}}


def type_mistake(body: object) -> str:
    """Say why nobody can read of which kind a body is; empty if it can be read."""
    why = "couldn't get version/kind; json parse error: json: cannot unmarshal "
    if not isinstance(body, dict):
        return f"{why}{json_type(body)} into Go value of type {VERSION_STRUCT}"

    for field, value in body.items():
        if field in {"apiVersion", "kind"} and not isinstance(value, str | None):
            found = json_type(value)
            return f"{why}{found} into Go struct field .{field} of type string"

    return ""


def check_name(namespace: str, name: str, metadata: Mapping[str, Any], /) -> None:
    """Check that the body of an update belongs where its URL says.

    Raises:
        ApiError: 400, if it names no object, or another one.
    """
    given = metadata.get("name") or ""
    if not given:
        raise statuses.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )

    if given != name:
        raise statuses.bad_request(
            f"the name of the object ({given}) does not match "
            f"the name on the URL ({name})"
        )

    check_namespace(namespace, metadata)


def check_namespace(namespace: str, metadata: Mapping[str, Any]) -> None:
    """Check that a body belongs into the namespace of its URL.

    Raises:
        ApiError: 400, if it names another namespace.
    """
    if (metadata.get("namespace") or namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match "
            "the namespace sent on the request"
        )


def _decoded(kind: Kind, raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        mistake = json_mistake(raw) or str(exc)
        why = f"couldn't get version/kind; json parse error: {mistake}"
        raise _unrecognized(kind, raw, why) from exc


def _type_of(kind: Kind) -> dict[str, str]:
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}


def _foreign(kind: Kind, body: Mapping[str, Any]) -> ApiError | None:
    """Refuse what says to be of another kind than the built-in one that is expected."""
    expected = kind.resource
    version = body.get("apiVersion") or expected.api_version
    name = body.get("kind") or expected.kind
    if (version, name) == (expected.api_version, expected.kind):
        return None

    scheme = f'no kind "{name}" is registered for version "{version}" in scheme '
    why = f'{scheme}"pkg/runtime/scheme.go:111"'
    group, _, short = version.rpartition("/")
    if short and schema_of(Resource(group, short, "kinds", name)) is not None:
        internal = expected.group.partition(".")[0] or "core"
        why = f"converting ({short}.{name}) to ({internal}.{expected.kind}): "
        why += "unknown conversion"

    return statuses.bad_request(
        f'{name} in version "{short}" cannot be handled as a {expected.kind}: {why}'
    )


def _misfit(kind: Kind, body: Mapping[str, Any], sent: object) -> ApiError | None:
    """Refuse a custom resource that does not say what it is, or is of another version.

    Args:
        kind: Which kind is expected.
        body: The object.
        sent: The same as it was sent, perhaps in bytes.
    """
    for field, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        if not body.get(field):
            text = _bytes_of(sent).decode(errors="replace")
            return _unrecognized(
                kind, sent, f"Object '{called}' is missing in '{text}'"
            )

    found, expected = body["apiVersion"], kind.resource.api_version
    if found == expected:
        return None

    return statuses.bad_request(
        f"the API version in the data ({found}) does not match "
        f"the expected API version ({expected})"
    )


def _unrecognized(kind: Kind, body: object, why: str) -> ApiError:
    return statuses.bad_request(
        "the object provided is unrecognized (must be of type "
        f"{kind.resource.kind}): {why} ({_shown(body)})"
    )


def _shown(body: object) -> str:
    """Show the beginning of a body: as text if it might be one, else in hexadecimal."""
    raw = _bytes_of(body)
    if not raw:
        return "<empty>"

    start, more = raw[:_SHOWN_BYTES], " ..." if len(raw) > _SHOWN_BYTES else ""
    told = start.decode(errors="replace") if raw.startswith(b"{") else start.hex()
    return told + more


def _bytes_of(body: object) -> bytes:
    return body if isinstance(body, bytes) else orjson.dumps(body)


# ---------------------------------------------------------------- what is to be stored


def type_problems(kind: Kind, body: Mapping[str, Any]) -> list[Problem]:
    """Say what is wrong with what a custom resource says to be."""
    return [
        Problem.invalid(field, body[field], f"must be {expected}")
        for field, expected in _type_of(kind).items()
        if body.get(field, expected) != expected
    ]


def creation_problems(kind: Kind, metadata: Mapping[str, Any]) -> list[Problem]:
    """Say what is wrong with the metadata of an object that is to be created.

    Args:
        kind: Of the object.
        metadata: With the name, generated if need be.
    """
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    found = [
        Problem.invalid("metadata.generateName", prefix, why)
        for why in names.name_problems(kind.stored, prefix, prefix=True)
        if prefix
    ]
    if name:
        found += [
            Problem.invalid("metadata.name", name, why)
            for why in names.name_problems(kind.stored, name)
        ]
    else:
        why = "Required value: name or generateName is required"
        found.append(Problem("metadata.name", why, "FieldValueRequired"))

    generation = metadata.get("generation") or 0
    if generation < 0:
        why = "must be greater than or equal to 0"
        found.append(Problem.invalid("metadata.generation", generation, why))

    found += _content_problems(metadata) + _finalizer_problems(metadata)
    return found + _unknown_finalizers(kind, metadata)


def update_problems(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[Problem]:
    """Say what is wrong with the metadata of an update.

    Args:
        kind: Of the object.
        old: The metadata as they are stored.
        new: As they are to be stored.
    """
    content = _content_problems(new)
    changes = [*_change_problems(old, new), *content]
    # A real server checks what all kinds share for every kind and again for this one.
    found = [*content, *_finalizer_problems(new), *changes, *changes]
    return found + _unknown_finalizers(kind, new)


def _change_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Problem]:
    found = []
    had = old.get("finalizers") or ()
    added = [it for it in new.get("finalizers") or () if it not in had]
    if added and old.get("deletionTimestamp"):
        why = "no new finalizers can be added if the object is being deleted, found "
        shown = ", ".join(f'"{it}"' for it in added)
        why += f"new finalizers []string{{{shown}}}"
        found.append(Problem.forbidden("metadata.finalizers", why))

    return found + [
        Problem.invalid(f"metadata.{field}", new[field], "field is immutable")
        for field in _IMMUTABLE
        if new.get(field) not in (None, old.get(field))
    ]


def _content_problems(metadata: Mapping[str, Any]) -> list[Problem]:
    return [
        *_label_problems(metadata.get("labels") or {}),
        *_annotation_problems(metadata.get("annotations") or {}),
        *_owner_problems(metadata.get("ownerReferences") or ()),
    ]


def _label_problems(labels: Mapping[str, str]) -> list[Problem]:
    field, found = "metadata.labels", []
    for key, value in labels.items():
        for it, problems in (
            (key, names.qualified_name_problems(key)),
            (value, names.label_value_problems(value)),
        ):
            found += [Problem.invalid(field, it, why) for why in problems]

    return found


def _annotation_problems(annotations: Mapping[str, str]) -> list[Problem]:
    field, found = "metadata.annotations", []
    for key in annotations:
        # Their keys may be written in capitals.
        problems = names.qualified_name_problems(key.lower())
        found += [Problem.invalid(field, key, why) for why in problems]

    size = sum(len(it.encode()) for pair in annotations.items() for it in pair)
    if size > _ANNOTATIONS_BYTES:
        why = f"Too long: may not be more than {_ANNOTATIONS_BYTES} bytes"
        found.append(Problem(field, why, "FieldValueTooLong"))

    return found


def _owner_problems(owners: Sequence[Mapping[str, Any]]) -> list[Problem]:
    field, found = "metadata.ownerReferences", []
    for owner in owners:
        for name, called in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(name):
                found.append(Problem.invalid(f"{field}.{name}", "", called))

        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            found.append(Problem.invalid(field, owner, why))

    controllers = [it for it in owners if it.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{it.get('kind')}/{it.get('name')}" for it in controllers[:2])
        why = 'Only one reference can have Controller set to true. Found "true" in '
        why += f"references for {first} and {second}"
        found.append(Problem.invalid(field, owners, why))

    return found


def _finalizer_problems(metadata: Mapping[str, Any]) -> list[Problem]:
    field, finalizers = "metadata.finalizers", metadata.get("finalizers") or ()
    found = [
        Problem.invalid(field, it, why)
        for it in finalizers
        for why in names.qualified_name_problems(it)
    ]
    orphan, foreground = names.STANDARD_FINALIZERS[1:]
    if orphan in finalizers and foreground in finalizers:
        why = f"finalizer {orphan} and {foreground} cannot be both set"
        found.append(Problem.invalid(field, finalizers, why))

    return found


def _unknown_finalizers(kind: Kind, metadata: Mapping[str, Any]) -> list[Problem]:
    """Say which finalizers of a built-in kind should have a domain."""
    if not kind.typed or kind.stored in _ANY_FINALIZERS:
        return []

    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        Problem.invalid(f"metadata.finalizers[{index}]", it, why)
        for index, it in enumerate(metadata.get("finalizers") or ())
        if "/" not in it and it not in names.STANDARD_FINALIZERS
    ]
