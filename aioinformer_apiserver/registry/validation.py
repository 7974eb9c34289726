"""Validation of writes: metadata of all kinds, then the rules of each kind.

All errors are collected before one is raised, as on a real server. Pure, except
for warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import resources
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds.validation import validate_definition
from aioinformer_apiserver.errors import names
from aioinformer_apiserver.errors.field_errors import FieldError, invalid_error
from aioinformer_apiserver.errors.go_format import go_text, go_type
from aioinformer_apiserver.errors.names import STANDARD_FINALIZERS
from aioinformer_apiserver.registry.request_bodies import type_meta_of
from aioinformer_apiserver.schema import builtin_validation
from aioinformer_apiserver.schema.core_validation import validate_events_v1
from aioinformer_apiserver.schema.schema_validation import validate_custom_resource
from aioinformer_apiserver.storage.kinds import value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "validate_create",
    "validate_update",
]

_ANNOTATIONS_BYTES = 256 * 1024
# Kinds whose finalizers need no domain.
_ANY_FINALIZERS = frozenset(
    {resources.EVENTS, resources.LEASES, resources.POD_DISRUPTION_BUDGETS}
)
# Metadata that an update must not change.
_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


# ------------------------------------------------------------------ type


def _validate_type_meta(kind: Kind, body: Mapping[str, Any]) -> list[FieldError]:
    """Validate the API version and kind of a custom resource."""
    return [
        FieldError.invalid(field, body[field], f"must be {expected}")
        for field, expected in type_meta_of(kind).items()
        if body.get(field, expected) != expected
    ]


# ------------------------------------------------------------------ metadata


def _validate_metadata_creation(
    kind: Kind, metadata: Mapping[str, Any]
) -> list[FieldError]:
    """Validate the metadata of a new object.

    Args:
        kind: Kind of the object.
        metadata: Metadata with the name, generated if necessary.
    """
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    found = [
        FieldError.invalid("metadata.generateName", prefix, why)
        for why in names.validate_name(kind.stored, prefix, prefix=True)
        if prefix
    ]
    if name:
        found += [
            FieldError.invalid("metadata.name", name, why)
            for why in names.validate_name(kind.stored, name)
        ]
    else:
        why = "Required value: name or generateName is required"
        found.append(FieldError("metadata.name", why, "FieldValueRequired"))

    generation = metadata.get("generation") or 0
    if generation < 0:
        why = "must be greater than or equal to 0"
        found.append(FieldError.invalid("metadata.generation", generation, why))

    found += _validate_content(metadata) + _validate_finalizer(metadata)
    return found + _validate_qualified_finalizers(kind, metadata)


def _validate_metadata_update(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[FieldError]:
    """Validate the metadata of an update.

    Args:
        kind: Kind of the object.
        old: Stored metadata.
        new: New metadata.
    """
    content = _validate_content(new)
    changes = [*_validate_change(old, new), *content]
    # A real server runs the common checks for all kinds, and again for this one.
    found = [*content, *_validate_finalizer(new), *changes, *changes]
    return found + _validate_qualified_finalizers(kind, new)


def _validate_change(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[FieldError]:
    found = []
    had = old.get("finalizers") or ()
    added = [it for it in new.get("finalizers") or () if it not in had]
    if added and old.get("deletionTimestamp"):
        why = "no new finalizers can be added if the object is being deleted, found "
        shown = ", ".join(f'"{it}"' for it in added)
        why += f"new finalizers []string{{{shown}}}"
        found.append(FieldError.forbidden("metadata.finalizers", why))

    return found + [
        FieldError.invalid(f"metadata.{field}", new[field], "field is immutable")
        for field in _IMMUTABLE
        if new.get(field) not in (None, old.get(field))
    ]


def _validate_content(metadata: Mapping[str, Any]) -> list[FieldError]:
    return [
        *_validate_label(metadata.get("labels") or {}),
        *_validate_annotation(metadata.get("annotations") or {}),
        *_validate_owner(metadata.get("ownerReferences") or ()),
    ]


def _validate_label(labels: Mapping[str, str]) -> list[FieldError]:
    field, found = "metadata.labels", []
    for key, value in labels.items():
        for it, errors in (
            (key, names.validate_qualified_name(key)),
            (value, names.validate_label_value(value)),
        ):
            found += [FieldError.invalid(field, it, why) for why in errors]

    return found


def _validate_annotation(annotations: Mapping[str, str]) -> list[FieldError]:
    field, found = "metadata.annotations", []
    for key in annotations:
        # Annotation keys may have capital letters.
        errors = names.validate_qualified_name(key.lower())
        found += [FieldError.invalid(field, key, why) for why in errors]

    size = sum(len(it.encode()) for pair in annotations.items() for it in pair)
    if size > _ANNOTATIONS_BYTES:
        why = f"Too long: may not be more than {_ANNOTATIONS_BYTES} bytes"
        found.append(FieldError(field, why, "FieldValueTooLong"))

    return found


def _validate_owner(owners: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    field, found = "metadata.ownerReferences", []
    for owner in owners:
        for name, called in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(name):
                found.append(FieldError.invalid(f"{field}.{name}", "", called))

        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            found.append(FieldError.invalid(field, owner, why))

    controllers = [it for it in owners if it.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{it.get('kind')}/{it.get('name')}" for it in controllers[:2])
        why = 'Only one reference can have Controller set to true. Found "true" in '
        why += f"references for {first} and {second}"
        found.append(FieldError.invalid(field, owners, why))

    return found


def _validate_finalizer(metadata: Mapping[str, Any]) -> list[FieldError]:
    field, finalizers = "metadata.finalizers", metadata.get("finalizers") or ()
    found = [
        FieldError.invalid(field, it, why)
        for it in finalizers
        for why in names.validate_qualified_name(it)
    ]
    orphan, foreground = names.STANDARD_FINALIZERS[1:]
    if orphan in finalizers and foreground in finalizers:
        why = f"finalizer {orphan} and {foreground} cannot be both set"
        found.append(FieldError.invalid(field, finalizers, why))

    return found


def _validate_qualified_finalizers(
    kind: Kind, metadata: Mapping[str, Any]
) -> list[FieldError]:
    """Validate that the finalizers of a built-in kind are qualified."""
    if not kind.typed or kind.stored in _ANY_FINALIZERS:
        return []

    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        FieldError.invalid(f"metadata.finalizers[{index}]", it, why)
        for index, it in enumerate(metadata.get("finalizers") or ())
        if "/" not in it and it not in names.STANDARD_FINALIZERS
    ]


# ------------------------------------------------------------------ whole objects


_INT32_MAX = 2**31 - 1
_FINALIZER_WARNING = (
    'metadata.finalizers: "{}": prefer a domain-qualified finalizer name to avoid '
    "accidental conflicts with other finalizer writers"
)


def validate_create(kind: Kind, body: Mapping[str, Any], options: WriteOptions) -> None:
    """Validate a new object.

    Args:
        kind: Kind of the object.
        body: Complete object.
        options: Options of the write; arranged objects are not validated by their
            schema.

    Raises:
        ApiError: 422 if the object is invalid.
    """
    metadata = body["metadata"]
    found: list[FieldError] = [*_validate_metadata_creation(kind, metadata)]
    if options.part != "all":
        found += _validate_by_kind(kind, body, None)

    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        found += validate_definition(body)

    _raise_invalid(kind, body, found)
    _warn_of_finalizers(kind, {}, metadata, options)


def validate_update(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], options: WriteOptions
) -> None:
    """Validate the next state of an object.

    Args:
        kind: Kind of the object.
        old: Stored object.
        new: Next state, complete except for its version.
        options: Options of the write; arranged objects are not validated by their
            schema.

    Raises:
        ApiError: 422 if the next state is invalid.
    """
    found: list[FieldError] = [
        *_validate_metadata_update(kind, old["metadata"], new["metadata"])
    ]
    if options.part != "all":
        found += _validate_by_kind(kind, new, old)

    whole = options.part in {"main", "all"}
    if whole and kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        found += validate_definition(new, old)

    _raise_invalid(kind, new, found)
    _warn_of_finalizers(kind, old["metadata"], new["metadata"], options)


def _validate_by_kind(
    kind: Kind, body: Mapping[str, Any], old: Mapping[str, Any] | None
) -> list[FieldError]:
    """Validate an object by the rules of its kind.

    Args:
        kind: Kind of the object.
        body: Complete object.
        old: Stored object; None if the object is new.
    """
    new = dict(body)
    if kind.typed:
        before = None if old is None else kind.to_storage(dict(old))
        return _validate_builtin(kind, kind.to_storage(new), before)

    found: list[FieldError] = [*_validate_type_meta(kind, body)]
    if kind.schema is not None:
        found += validate_custom_resource(
            kind.schema, new, None if old is None else dict(old)
        )

    return [*found, *_validate_scale(kind, body)]


def _validate_scale(kind: Kind, body: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the replicas of a custom resource with a scale."""
    if kind.scale is None:
        return

    value = value_at(body, kind.scale.replicas)
    path = "." + ".".join(kind.scale.replicas)
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, int):
        why = f"{path} accessor error: {go_text(value)} is of the type "
        yield FieldError.invalid(path, 0, f"{why}{go_type(value)}, expected int64")
    elif value < 0:
        yield FieldError.invalid(path, value, "should be a non-negative integer")
    elif value > _INT32_MAX:
        why = f"should be less than or equal to {_INT32_MAX}"
        yield FieldError.invalid(path, value, why)


def _validate_builtin(
    kind: Kind, new: dict[str, Any], old: dict[str, Any] | None
) -> list[FieldError]:
    """Validate an object of a built-in kind in its storage version."""
    if old is None:
        found = [*builtin_validation.validate_create(kind.stored, new)]
    else:
        found = [*builtin_validation.validate_update(kind.stored, old, new)]

    is_newer_event = kind.stored.group != kind.resource.group
    return [*validate_events_v1(new, old)] if is_newer_event else found


def _warn_of_finalizers(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], options: WriteOptions
) -> None:
    """Warn about new finalizers of a custom resource without a domain."""
    if kind.typed:
        return

    known = {*STANDARD_FINALIZERS, *(old.get("finalizers") or ())}
    for finalizer in new.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in known:
            options.warn(_FINALIZER_WARNING.format(finalizer))


def _raise_invalid(
    kind: Kind, body: Mapping[str, Any], found: list[FieldError]
) -> None:
    if found:
        name = body["metadata"].get("name") or ""
        said = None if kind.typed else str(body.get("kind"))
        raise invalid_error(kind.stored, name, found, shown_kind=said)
