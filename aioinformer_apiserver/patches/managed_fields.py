"""Managed fields: who set which field of an object, told in its metadata.

There is one entry for each manager, operation, API version and subresource. Applying
replaces what its manager owned; any other write adds to it, and takes what it changes
away from everybody else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.patches.comparison import compared
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

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioinformer_apiserver.patches.comparison import Comparison
    from aioinformer_apiserver.patches.entries import Entries
    from aioinformer_apiserver.schema.nodes import Schema
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "NEVER_OWNED",
    "manager_of",
    "reset_fields",
    "times_kept",
    "tracked",
    "unmanaged",
    "updated",
]

# Bytes; longer names are cut, or refused where they are asked for.
LONGEST_MANAGER = 128
_META = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
# What nobody owns, though it may lie on the way to something that is owned.
NEVER_OWNED = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *[("f:metadata", f"f:{field}") for field in _META],
)

_MAIN = FieldSet.of(("f:status",))
_STATUS = FieldSet.of(("f:spec",))
_STATUS_OF_CUSTOM = FieldSet.of(("f:spec",), ("f:metadata",))
# Kinds whose status subresource leaves alone more than the spec.
_STATUS_OF = {
    "apps/Deployment": FieldSet.of(("f:spec",), ("f:metadata", "f:labels")),
    "/Pod": FieldSet.of(
        ("f:spec",),
        ("f:metadata", "f:deletionTimestamp"),
        ("f:metadata", "f:ownerReferences"),
    ),
}


def tracked(
    schema: Schema | None,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: FieldSet = NOTHING,
    versions: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the managed fields of an object after a create, an update or a patch.

    It is to be called with what the client wants, completed with defaults, before the
    server itself changes anything in it (as in admission, or by giving out addresses):
    such changes are nobody's. The managed fields in `new` count if they say something:
    an empty list, or one with an empty entry, resets them; a missing or unreadable one
    means those of `old`. An object that has none (and existed before) stays so until
    something is applied to it.

    Args:
        schema: Of the kind; None if there is none.
        old: The stored object; None if it is created.
        new: What is to be stored.
        manager: Who writes; see `manager_of`.
        api_version: In which version.
        now: The time, as a timestamp.
        subresource: Through which one, such as `"status"`; empty for none.
        reset: What this way of writing leaves alone; see `reset_fields`.
        versions: Other versions of the kind with the same fields. Entries of versions
            unknown here are dropped.
    """
    entries = _claimed(old, new, subresource)
    if not entries and old is not None:
        return []

    entries = of_versions(entries, {api_version, *versions})
    whole = schema_of_object(schema)
    before = blank_of(whole) if old is None else unmanaged(old)
    try:
        change = compared(whole, before, unmanaged(new)).outside(reset)
    except ValueError:
        # A list with items that cannot be told apart: a real server gives up, too.
        return []

    mine = Entry(
        manager=manager or "unknown",
        operation="Update",
        api_version=api_version,
        subresource=subresource,
        time=now,
    )
    return encoded(capped(updated(entries, change, mine)))


def updated(entries: Entries, change: Comparison, mine: Entry) -> Entries:
    """Return the entries after an update.

    Args:
        entries: Those before.
        change: What the update changes.
        mine: Who updates, and when; without fields.
    """
    left = deprived(entries, change)
    fields = change.gained - NEVER_OWNED
    if fields:
        known = left.get(mine.key)
        left[mine.key] = replace(
            mine, fields=known.fields | fields if known else fields
        )

    return left


def manager_of(user_agent: str, field_manager: str = "") -> str:
    """Return the name under which a client manages fields.

    Args:
        user_agent: The header `User-Agent`; what precedes its first slash counts.
        field_manager: The query parameter `fieldManager`, which goes before.
    """
    if field_manager:
        return field_manager

    name = ""
    for letter in user_agent.partition("/")[0]:
        if not letter.isprintable():
            continue

        if len((name + letter).encode()) > LONGEST_MANAGER:
            break

        name += letter

    return name or "unknown"


def reset_fields(kind: Kind, subresource: str = "") -> FieldSet:
    """Return what a way of writing leaves alone, so that nobody comes to own it by it.

    Args:
        kind: Of which objects.
        subresource: Through which subresource; empty for none.
    """
    if subresource == "status":
        resource = kind.resource
        usual = _STATUS if kind.typed else _STATUS_OF_CUSTOM
        return _STATUS_OF.get(f"{resource.group}/{resource.kind}", usual)

    return _MAIN if kind.has_status else NOTHING


def times_kept(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its old times, if these are all that a write has changed.

    Without it, a write that changes nothing would make a new version of the object.

    Args:
        old: As it is stored.
        new: As it would be stored, complete; it is not changed.
    """
    before = old["metadata"].get("managedFields") or []
    after = new["metadata"].get("managedFields") or []
    if before == after or list(map(_timeless, before)) != list(map(_timeless, after)):
        return new

    if not is_same(unmanaged(old), unmanaged(new)):
        return new

    return {**new, "metadata": {**new["metadata"], "managedFields": before}}


def unmanaged(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without its managed fields."""
    metadata = body.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return dict(body)

    kept = {key: it for key, it in metadata.items() if key != "managedFields"}
    return {**body, "metadata": kept}


def _claimed(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], subresource: str
) -> Entries:
    """Return the entries before the write; the client may have sent others."""
    stored = ((old or {}).get("metadata") or {}).get("managedFields")
    sent = (new.get("metadata") or {}).get("managedFields")
    if subresource or sent is None:
        return _readable(stored)

    if sent in ([], [{}]):
        return {}

    return _readable(sent) or _readable(stored)


def _readable(managed: object) -> Entries:
    try:
        return decoded(managed)
    except ValueError:
        return {}


def _timeless(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in entry.items() if key != "time"}
