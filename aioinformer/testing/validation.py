"""Validation: what any object must be, whatever its kind.

What a kind asks of its spec is not looked at here; its schema knows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer.model.resource import Resource
from aioinformer.testing import names, statuses
from aioinformer.testing.json_mistakes import json_mistake
from aioinformer.testing.patching.go_words import json_type
from aioinformer.testing.problems import Problem
from aioinformer.testing.schema.builtin import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.errors import ApiError
    from aioinformer.testing.kinds import Kind

__all__ = [
    "STANDARD_FINALIZERS",
    "VERSION_STRUCT",
    "check_arranged",
    "check_name",
    "check_namespace",
    "check_type",
    "creation_problems",
    "opened",
    "type_problems",
    "update_problems",
]

_ANNOTATIONS_BYTES = 256 * 1024
# Finalizers without a domain that built-in kinds may have.
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
# What a write that exists may say only as it is.
_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
# How much of a body that is not understood is shown.
_SHOWN_BYTES = 30
# What Go reads from a body first of all.
VERSION_STRUCT = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)


# ---------------------------------------------------------------- what was sent


def opened(kind: Kind, body: object) -> dict[str, Any]:
    """Check that a body is an object of its kind; returns it, its type filled in.

    Args:
        kind: Which kind is expected.
        body: The body of a request: decoded, or bytes of JSON.

    Raises:
        ApiError: 400, if it is something else.
    """
    if isinstance(body, bytes):
        body = _decoded(kind, body)

    sent = {} if body is None and kind.typed else body
    if not isinstance(sent, dict):
        why = "couldn't get version/kind; json parse error: json: cannot unmarshal "
        why += f"{json_type(body)} into Go value of type {VERSION_STRUCT}"
        raise _unrecognized(kind, body, why)

    check_type(kind, sent)
    return {**sent, **{k: sent.get(k) or v for k, v in _type_of(kind).items()}}


def check_type(kind: Kind, body: Mapping[str, Any]) -> None:
    """Check that a body says to be of its kind, as far as it must say so.

    Raises:
        ApiError: 400, if it does not.
    """
    expected, found = _type_of(kind), body.get("apiVersion") or ""
    if kind.typed:
        problem = _foreign(kind, found or expected["apiVersion"], body.get("kind"))
        if problem is not None:
            raise problem

        return

    for field, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        if not body.get(field):
            text = orjson.dumps(body).decode()
            raise _unrecognized(kind, body, f"Object '{called}' is missing in '{text}'")

    if found != expected["apiVersion"]:
        raise _wrong_version(found, expected["apiVersion"])


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


def check_arranged(metadata: object) -> None:
    """Check the metadata of an object that no schema has seen.

    Raises:
        ApiError: 400, if they are not what metadata can be.
    """
    if not isinstance(metadata, dict | None):
        raise statuses.bad_request("metadata is not a JSON object")

    for field in ("labels", "annotations"):
        value = (metadata or {}).get(field) or {}
        texts = value.values() if isinstance(value, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise statuses.bad_request(f"metadata.{field} is not a map of strings")

    for field in ("finalizers", "ownerReferences"):
        if not isinstance((metadata or {}).get(field), list | None):
            raise statuses.bad_request(f"metadata.{field} is not a list")


def _decoded(kind: Kind, raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        mistake = json_mistake(raw) or str(exc)
        why = f"couldn't get version/kind; json parse error: {mistake}"
        raise _unrecognized(kind, raw, why) from exc


def _type_of(kind: Kind) -> dict[str, str]:
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}


def _foreign(kind: Kind, version: str, said: object) -> ApiError | None:
    """Refuse what says to be of another kind than the built-in one that is expected."""
    expected = kind.resource
    name = said if said and isinstance(said, str) else expected.kind
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


def _unrecognized(kind: Kind, body: object, why: str) -> ApiError:
    return statuses.bad_request(
        "the object provided is unrecognized (must be of type "
        f"{kind.resource.kind}): {why} ({_shown(body)})"
    )


def _shown(body: object) -> str:
    """Show the beginning of a body: as text if it might be one, else in hexadecimal."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    if not raw:
        return "<empty>"

    start, more = raw[:_SHOWN_BYTES], " ..." if len(raw) > _SHOWN_BYTES else ""
    told = start.decode(errors="replace") if raw.startswith(b"{") else start.hex()
    return told + more


def _wrong_version(found: str, expected: str) -> ApiError:
    return statuses.bad_request(
        f"the API version in the data ({found}) does not match "
        f"the expected API version ({expected})"
    )


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
    found, name = _prefix_problems(kind, metadata), metadata.get("name") or ""
    if name:
        found += [
            Problem.invalid("metadata.name", name, why)
            for why in names.name_problems(kind.resource, name)
        ]
    else:
        why = "Required value: name or generateName is required"
        found.append(Problem("metadata.name", why, "FieldValueRequired"))

    generation = metadata.get("generation") or 0
    if generation < 0:
        why = "must be greater than or equal to 0"
        found.append(Problem.invalid("metadata.generation", generation, why))

    return found + _common_problems(kind, metadata)


def update_problems(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[Problem]:
    """Say what is wrong with the metadata of an update.

    Args:
        kind: Of the object.
        old: The metadata as they are stored.
        new: As they are to be stored.
    """
    found = [
        Problem.invalid(f"metadata.{field}", new[field], "field is immutable")
        for field in _IMMUTABLE
        if new.get(field) not in (None, old.get(field))
    ]
    added = [
        it
        for it in new.get("finalizers") or ()
        if it not in (old.get("finalizers") or ())
    ]
    if added and old.get("deletionTimestamp"):
        why = (
            "no new finalizers can be added if the object is being deleted, found new "
        )
        shown = ", ".join(f'"{it}"' for it in added)
        why += f"finalizers []string{{{shown}}}"
        found.append(Problem.forbidden("metadata.finalizers", why))

    found += _prefix_problems(kind, new) + _common_problems(kind, new)
    # A real server checks metadata both for every kind and for this one.
    return found * 2


def _prefix_problems(kind: Kind, metadata: Mapping[str, Any]) -> list[Problem]:
    prefix = metadata.get("generateName") or ""
    found = names.name_problems(kind.resource, prefix, prefix=True) if prefix else []
    return [Problem.invalid("metadata.generateName", prefix, why) for why in found]


def _common_problems(kind: Kind, metadata: Mapping[str, Any]) -> list[Problem]:
    return [
        *_label_problems(metadata.get("labels") or {}),
        *_annotation_problems(metadata.get("annotations") or {}),
        *_owner_problems(metadata.get("ownerReferences") or ()),
        *_finalizer_problems(kind, metadata.get("finalizers") or ()),
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


def _finalizer_problems(kind: Kind, finalizers: Sequence[str]) -> list[Problem]:
    field = "metadata.finalizers"
    found = [
        Problem.invalid(field, it, why)
        for it in finalizers
        for why in names.qualified_name_problems(it)
    ]
    orphan, foreground = STANDARD_FINALIZERS[1:]
    if orphan in finalizers and foreground in finalizers:
        why = f"finalizer {orphan} and {foreground} cannot be both set"
        found.append(Problem.invalid(field, finalizers, why))

    if kind.typed:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        found += [
            Problem.invalid(f"{field}[{index}]", it, why)
            for index, it in enumerate(finalizers)
            if "/" not in it and it not in STANDARD_FINALIZERS
        ]

    return found
