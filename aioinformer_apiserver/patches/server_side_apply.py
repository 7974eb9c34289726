"""Server-side apply: merges an applied object into the stored one. Pure.

An applier owns the fields that it applies. Fields that it no longer applies are
removed, unless they have another owner. Fields that others own with another value are a
conflict, unless the apply is forced. kubectl's server-side apply takes over fields from
client-side apply, which has left its configuration in an annotation. The annotation is
kept up to date.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.patches.field_sets import EMPTY, FieldSet, path_text
from aioinformer_apiserver.patches.managed_fields import (
    NEVER_OWNED,
    ManagedFieldsEntry,
    cap_update_managers,
    decode_entries,
    encode_entries,
    entries_in_versions,
    with_update,
    without_managed_fields,
    without_ownership,
)
from aioinformer_apiserver.patches.ownership import (
    empty_object_of,
    is_json_equal,
    schema_of_object,
)
from aioinformer_apiserver.patches.structured_merge_diff import (
    apply_errors,
    compare,
    field_set_of,
    merge_applied,
    prune_dropped,
)
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.patches.managed_fields import Entries
    from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["LAST_APPLIED", "apply", "fields_last_applied", "with_last_applied"]

# Manager of fields that existed before the first apply.
_BEFORE_FIRST_APPLY = "before-first-apply"
# This manager takes over fields from client-side apply without conflicts.
_KUBECTL = "kubectl"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of an apply."""

    body: dict[str, Any]
    """Merged object without managed fields."""

    entries: Entries

    conflicts: Mapping[str, FieldSet]
    """Fields that others would lose, by the keys of their entries."""

    before: Entries


def apply(
    schema: Schema | None,
    live: Mapping[str, Any] | None,
    applied: Mapping[str, Any],
    *,
    manager: str,
    force: bool,
    api_version: str,
    now: str,
    kind: str = "",
    subresource: str = "",
    reset: FieldSet = EMPTY,
    versions: Collection[str] = (),
) -> dict[str, Any]:
    """Return an object with the applied fields and its managed fields.

    The result is neither defaulted nor validated. It keeps the nulls of the applied
    object, which decoding drops. Use `keep_unchanged_times` on the complete object, so
    that an apply without changes makes no new version.

    Args:
        schema: Schema of the kind; None if there is none.
        live: Stored object; None if the object is created.
        applied: Object that the client applies.
        manager: Field manager of the client.
        force: Whether to take over fields that others own with another value.
        api_version: API version in the URL.
        now: Current time as a timestamp.
        kind: Kind in the URL; empty if `applied` need not have one.
        subresource: Subresource of the write, such as `"status"`; empty for none.
        reset: Fields that this write ignores; see `reset_fields`.
        versions: Other versions of the kind with the same fields. Entries of unknown
            versions are dropped.

    Raises:
        ApiError: 400 if `applied` is of another kind or has managed fields; 409 for
            conflicts; 500 if `applied` does not fit the schema.
    """
    whole = schema_of_object(schema)
    _check_applied(whole, applied, api_version, kind)
    own_entry = ManagedFieldsEntry(
        manager=manager,
        operation="Apply",
        api_version=api_version,
        subresource=subresource,
        time=now,
    )
    # Versions of a custom kind differ by nothing else.
    bare = {**without_managed_fields(live), "apiVersion": api_version} if live else {}
    try:
        before = _entries_before(whole, live, own_entry, reset)
        known = entries_in_versions(before, {api_version, *versions})
        outcome = _merge(whole, bare, applied, own_entry, known, reset)
    except ValueError as exc:
        raise statuses.failure(500, "", str(exc)) from exc

    if not force:
        _check_conflicts(whole, bare, outcome, own_entry)

    body = outcome.body
    if manager == _KUBECTL:
        body = with_last_applied(body, applied)

    if outcome.entries:
        metadata = body.get("metadata") or {}
        managed = encode_entries(outcome.entries)
        body = {**body, "metadata": {**metadata, "managedFields": managed}}

    return body


def _merge(
    schema: Schema,
    live: dict[str, Any],
    applied: Mapping[str, Any],
    own_entry: ManagedFieldsEntry,
    entries: Entries,
    reset: FieldSet,
) -> _Outcome:
    """Merge the objects and their ownership."""
    last = entries.get(own_entry.key)
    own_entry = replace(own_entry, fields=field_set_of(schema, applied).outside(reset))
    after = {**entries, own_entry.key: own_entry}
    body = merge_applied(schema, live, applied)
    if last is not None:
        body = prune_dropped(schema, body, last.fields, _all_fields(after))

    change = compare(schema, live, body).outside(reset)
    others = {key: it for key, it in entries.items() if key != own_entry.key}
    conflicts = {key: it.fields & change.gained for key, it in others.items()}
    after = without_ownership(after, change, exempt=own_entry.key)
    if is_json_equal(live, body):
        own_entry = replace(own_entry, time=last.time if last else "")

    after[own_entry.key] = replace(own_entry, fields=own_entry.fields - NEVER_OWNED)
    return _Outcome(
        body,
        {key: it for key, it in after.items() if it.fields},
        {key: fields for key, fields in conflicts.items() if fields},
        entries,
    )


def _entries_before(
    schema: Schema,
    live: Mapping[str, Any] | None,
    own_entry: ManagedFieldsEntry,
    reset: FieldSet,
) -> Entries:
    """Return the entries before the apply.

    If there are none, the manager `before-first-apply` gets the existing fields.
    """
    if live is None:
        return {}

    entries = decode_entries((live.get("metadata") or {}).get("managedFields"))
    if entries:
        return entries

    first = replace(own_entry, manager=_BEFORE_FIRST_APPLY, operation="Update")
    change = compare(
        schema, empty_object_of(schema), without_managed_fields(live)
    ).outside(reset)
    return cap_update_managers(with_update({}, change, first))


def _all_fields(entries: Entries) -> FieldSet:
    found = EMPTY
    for entry in entries.values():
        found |= entry.fields

    return found


# -------------------------------------------------------------------- errors


def _check_applied(
    schema: Schema, applied: Mapping[str, Any], api_version: str, kind: str
) -> None:
    """Reject objects that cannot be applied."""
    if kind and (applied.get("apiVersion"), applied.get("kind")) != (api_version, kind):
        raise statuses.bad_request(f"invalid object type: {_type_of(applied)}")

    given = applied.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    mistakes = apply_errors(schema, applied)
    if mistakes:
        found = mistakes[0]
        if len(mistakes) > 1:
            found = "\n  ".join(["errors:", *mistakes])

        where = (
            f"{_string_field(metadata, 'namespace')}/{_string_field(metadata, 'name')}"
        )
        what = f"failed to create typed patch object ({where}; {_type_of(applied)})"
        raise statuses.failure(500, "", f"{what}: {found}")

    if metadata.get("managedFields") is not None:
        raise statuses.bad_request("metadata.managedFields must be nil")


def _type_of(body: Mapping[str, Any]) -> str:
    """Format the type of an object as Go does: `/v1, Kind=Pod`."""
    group, _, version = _string_field(body, "apiVersion").rpartition("/")
    return f"{group}/{version}, Kind={_string_field(body, 'kind')}"


def _string_field(body: Mapping[str, Any], field: str) -> str:
    """Return a string field of an unvalidated body; empty if it is not a string."""
    value = body.get(field)
    return value if isinstance(value, str) else ""


def _check_conflicts(
    schema: Schema,
    live: dict[str, Any],
    outcome: _Outcome,
    own_entry: ManagedFieldsEntry,
) -> None:
    """Reject changes of fields that others own with another value."""
    conflicts = outcome.conflicts
    if conflicts and own_entry.manager == _KUBECTL:
        allowed = fields_last_applied(schema, live, own_entry.api_version)
        left = {key: fields - allowed for key, fields in conflicts.items()}
        conflicts = {key: fields for key, fields in left.items() if fields}

    if conflicts:
        raise _conflict(conflicts, outcome.before)


def _conflict(conflicts: Mapping[str, FieldSet], entries: Entries) -> ApiError:
    causes, blocks = [], []
    for key in sorted(conflicts):
        owner = _owner_text(entries[key])
        paths = [path_text(path) for path in conflicts[key].paths()]
        blocks.append("\n- ".join([f"conflicts with {owner}:", *paths]))
        causes += [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {owner}",
                "field": path,
            }
            for path in paths
        ]

    message = f"Apply failed with {len(causes)} conflicts: {chr(10).join(blocks)}"
    if len(causes) == 1:
        (cause,) = causes
        message = "Apply failed with 1 conflict: "
        message += f"{cause['message']}: {cause['field']}"

    return statuses.failure(409, "Conflict", message, {"causes": causes})


def _owner_text(entry: ManagedFieldsEntry) -> str:
    """Format an owner for messages."""
    owner = f'"{entry.manager}"'
    if entry.subresource:
        owner += f' with subresource "{entry.subresource}"'

    return owner if entry.operation == "Apply" else f"{owner} using {entry.api_version}"


# ------------------------------------------------------------------ client-side apply


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Limit for the keys and values of all annotations.
_MAX_ANNOTATION_BYTES = 256 * 1024


def fields_last_applied(
    schema: Schema, live: Mapping[str, Any], api_version: str
) -> FieldSet:
    """Return the fields that client-side apply has set and that are unchanged.

    Args:
        schema: Schema of whole objects.
        live: Stored object.
        api_version: API version that the annotation must have.
    """
    text = _annotations(live).get(LAST_APPLIED)
    try:
        last = json_codec.loads(text or "null")
    except json_codec.JSONDecodeError:
        return EMPTY

    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        return EMPTY

    if apply_errors(schema, last):
        return EMPTY

    change = compare(schema, last, live)
    return field_set_of(schema, last) - change.gained - change.removed


def with_last_applied(
    body: dict[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    """Update the annotation of client-side apply, if it exists.

    It is dropped if the annotations become too long.

    Args:
        body: Merged object; not changed.
        applied: Applied object.
    """
    annotations = _annotations(body)
    if not annotations.get(LAST_APPLIED):
        return body

    text = plain(_without_annotation(applied), sort=True).decode() + "\n"
    found = {**annotations, LAST_APPLIED: text}
    if (
        sum(len(f"{key}{value}".encode()) for key, value in found.items())
        > _MAX_ANNOTATION_BYTES
    ):
        del found[LAST_APPLIED]

    return {**body, "metadata": {**body["metadata"], "annotations": found}}


def _annotations(body: Mapping[str, Any]) -> dict[str, Any]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _without_annotation(applied: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(applied.get("metadata") or {})
    rest = {k: v for k, v in _annotations(applied).items() if k != LAST_APPLIED}
    metadata.pop("annotations", None)
    if rest:
        metadata["annotations"] = rest

    return {**applied, "metadata": metadata}
