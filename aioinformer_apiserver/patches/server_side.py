"""Server-side apply: merging what a client wants into an object that others set, too.

Who applies owns what it applies. What it has applied before and does not any more is
removed, unless somebody else owns that as well; what others own with another value is a
conflict, unless they are to be overruled. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.patches.comparison import compared
from aioinformer_apiserver.patches.contents import fields_of
from aioinformer_apiserver.patches.elements import path_text
from aioinformer_apiserver.patches.entries import (
    Entry,
    capped,
    decoded,
    deprived,
    encoded,
    of_versions,
)
from aioinformer_apiserver.patches.fieldsets import NOTHING, FieldSet
from aioinformer_apiserver.patches.grains import blank_of, is_same, schema_of_object
from aioinformer_apiserver.patches.last_applied import (
    fields_last_applied,
    with_last_applied,
)
from aioinformer_apiserver.patches.managed_fields import (
    NEVER_OWNED,
    unmanaged,
    updated,
)
from aioinformer_apiserver.patches.mistakes import mistakes_in
from aioinformer_apiserver.patches.overlay import overlaid
from aioinformer_apiserver.patches.retraction import retracted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.patches.entries import Entries
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["apply"]

# Owns what was there before anything was applied, if nobody else does.
_BEFORE = "before-first-apply"
# This applier takes over without conflicts what client-side apply has set.
_KUBECTL = "kubectl"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What an apply would come to."""

    body: dict[str, Any]
    """The merged object, without managed fields."""

    entries: Entries

    conflicts: Mapping[str, FieldSet]
    """What would be taken from others, by the keys of their entries."""

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
    reset: FieldSet = NOTHING,
    versions: Collection[str] = (),
) -> dict[str, Any]:
    """Return an object with what is applied, and with its managed fields.

    It is still to be completed with defaults and checked. Nulls of what was applied
    stay in it, for built-in kinds to drop. Once it is complete, `times_kept` makes an
    apply that changes nothing keep the object as it is.

    Args:
        schema: Of the kind; None if there is none.
        live: The object as it is; None if it is created.
        applied: What the client wants.
        manager: Who applies.
        force: Take from others what they own with another value.
        api_version: The version of the path.
        now: The time, as a timestamp.
        kind: The kind of the path; empty if `applied` need not name it.
        subresource: Through which one, such as `"status"`; empty for none.
        reset: What this way of writing leaves alone; see `reset_fields`.
        versions: Other versions of the kind with the same fields. Entries of versions
            unknown here are dropped.

    Raises:
        ApiError: 409 if others own something with another value, 400 if `applied` is of
            another kind or tells managed fields, 500 if it does not fit the schema.
    """
    whole = schema_of_object(schema)
    _check(whole, applied, api_version, kind)
    mine = Entry(
        manager=manager,
        operation="Apply",
        api_version=api_version,
        subresource=subresource,
        time=now,
    )
    # Stored in another version of a custom kind, it differs by nothing else.
    bare = {**unmanaged(live), "apiVersion": api_version} if live else {}
    try:
        before = _entries_before(whole, live, mine, reset)
        known = of_versions(before, {api_version, *versions})
        outcome = _outcome(whole, bare, applied, mine, known, reset)
    except ValueError as exc:
        raise statuses.failure(500, "", str(exc)) from exc

    if not force:
        _check_conflicts(whole, bare, outcome, mine)

    body = outcome.body
    if manager == _KUBECTL:
        body = with_last_applied(body, applied)

    if outcome.entries:
        metadata = body.get("metadata") or {}
        managed = encoded(outcome.entries)
        body = {**body, "metadata": {**metadata, "managedFields": managed}}

    return body


def _outcome(
    schema: Schema,
    live: dict[str, Any],
    applied: Mapping[str, Any],
    mine: Entry,
    entries: Entries,
    reset: FieldSet,
) -> _Outcome:
    """Merge, and find out who owns what afterwards."""
    last = entries.get(mine.key)
    mine = replace(mine, fields=fields_of(schema, applied).outside(reset))
    after = {**entries, mine.key: mine}
    body = overlaid(schema, live, applied)
    if last is not None:
        body = retracted(schema, body, last.fields, _all_fields(after))

    change = compared(schema, live, body).outside(reset)
    others = {key: it for key, it in entries.items() if key != mine.key}
    conflicts = {key: it.fields & change.gained for key, it in others.items()}
    after = deprived(after, change, spared=mine.key)
    if is_same(live, body):
        mine = replace(mine, time=last.time if last else "")

    after[mine.key] = replace(mine, fields=mine.fields - NEVER_OWNED)
    return _Outcome(
        body,
        {key: it for key, it in after.items() if it.fields},
        {key: fields for key, fields in conflicts.items() if fields},
        entries,
    )


def _entries_before(
    schema: Schema, live: Mapping[str, Any] | None, mine: Entry, reset: FieldSet
) -> Entries:
    """Return who owns what; if nobody does, what is there gets an owner first."""
    if live is None:
        return {}

    entries = decoded((live.get("metadata") or {}).get("managedFields"))
    if entries:
        return entries

    first = replace(mine, manager=_BEFORE, operation="Update")
    change = compared(schema, blank_of(schema), unmanaged(live)).outside(reset)
    return capped(updated({}, change, first))


def _all_fields(entries: Entries) -> FieldSet:
    found = NOTHING
    for entry in entries.values():
        found |= entry.fields

    return found


# -------------------------------------------------------------------- refusals


def _check(
    schema: Schema, applied: Mapping[str, Any], api_version: str, kind: str
) -> None:
    """Refuse what cannot be applied, whatever is there."""
    if kind and (applied.get("apiVersion"), applied.get("kind")) != (api_version, kind):
        raise statuses.bad_request(f"invalid object type: {_type_of(applied)}")

    given = applied.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    mistakes = mistakes_in(schema, applied)
    if mistakes:
        found = mistakes[0]
        if len(mistakes) > 1:
            found = "\n  ".join(["errors:", *mistakes])

        where = f"{_text_in(metadata, 'namespace')}/{_text_in(metadata, 'name')}"
        what = f"failed to create typed patch object ({where}; {_type_of(applied)})"
        raise statuses.failure(500, "", f"{what}: {found}")

    if metadata.get("managedFields") is not None:
        raise statuses.bad_request("metadata.managedFields must be nil")


def _type_of(body: Mapping[str, Any]) -> str:
    """Write the type of an object as Go does: `/v1, Kind=Pod`."""
    group, _, version = _text_in(body, "apiVersion").rpartition("/")
    return f"{group}/{version}, Kind={_text_in(body, 'kind')}"


def _text_in(body: Mapping[str, Any], field: str) -> str:
    """Return a text of a body that nobody has checked; empty if it is none."""
    value = body.get(field)
    return value if isinstance(value, str) else ""


def _check_conflicts(
    schema: Schema, live: dict[str, Any], outcome: _Outcome, mine: Entry
) -> None:
    """Refuse to take from others what they own with another value."""
    conflicts = outcome.conflicts
    if conflicts and mine.manager == _KUBECTL:
        allowed = fields_last_applied(schema, live, mine.api_version)
        left = {key: fields - allowed for key, fields in conflicts.items()}
        conflicts = {key: fields for key, fields in left.items() if fields}

    if conflicts:
        raise _conflict(conflicts, outcome.before)


def _conflict(conflicts: Mapping[str, FieldSet], entries: Entries) -> ApiError:
    causes, blocks = [], []
    for key in sorted(conflicts):
        owner = _owner(entries[key])
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


def _owner(entry: Entry) -> str:
    """Write who owns something, for people."""
    owner = f'"{entry.manager}"'
    if entry.subresource:
        owner += f' with subresource "{entry.subresource}"'

    return owner if entry.operation == "Apply" else f"{owner} using {entry.api_version}"
