"""Managed fields: who set which field of an object, told in its metadata.

There is one entry for each manager, operation, API version and subresource. Applying
replaces what its manager owned; any other write adds to it, and takes what it changes
away from everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from aioinformer.model.times import kube_time
from aioinformer_apiserver.patches.field_sets import EMPTY, FieldSet, field_element
from aioinformer_apiserver.patches.ownership import (
    empty_object_of,
    is_json_equal,
    schema_of_object,
)
from aioinformer_apiserver.patches.structured_merge_diff import compare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aioinformer_apiserver.patches.structured_merge_diff import Comparison
    from aioinformer_apiserver.schema.openapi_schema import Schema
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = [
    "NEVER_OWNED",
    "SCALE_VERSION",
    "Entries",
    "ManagedFieldsEntry",
    "cap_update_managers",
    "decode_entries",
    "encode_entries",
    "entries_in_versions",
    "from_scale",
    "keep_unchanged_times",
    "manager_of",
    "reset_fields",
    "to_scale",
    "update_managed_fields",
    "with_update",
    "without_managed_fields",
    "without_ownership",
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


def update_managed_fields(
    schema: Schema | None,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: FieldSet = EMPTY,
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

    entries = entries_in_versions(entries, {api_version, *versions})
    whole = schema_of_object(schema)
    before = empty_object_of(whole) if old is None else without_managed_fields(old)
    try:
        change = compare(whole, before, without_managed_fields(new)).outside(reset)
    except ValueError:
        # A list with items that cannot be told apart: a real server gives up, too.
        return []

    mine = ManagedFieldsEntry(
        manager=manager or "unknown",
        operation="Update",
        api_version=api_version,
        subresource=subresource,
        time=now,
    )
    return encode_entries(cap_update_managers(with_update(entries, change, mine)))


def with_update(
    entries: Entries, change: Comparison, mine: ManagedFieldsEntry
) -> Entries:
    """Return the entries after an update.

    Args:
        entries: Those before.
        change: What the update changes.
        mine: Who updates, and when; without fields.
    """
    left = without_ownership(entries, change)
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

    return _MAIN if kind.has_status else EMPTY


def keep_unchanged_times(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
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

    if not is_json_equal(without_managed_fields(old), without_managed_fields(new)):
        return new

    return {**new, "metadata": {**new["metadata"], "managedFields": before}}


def without_managed_fields(body: Mapping[str, Any]) -> dict[str, Any]:
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
        return decode_entries(managed)
    except ValueError:
        return {}


def _timeless(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in entry.items() if key != "time"}


Operation = Literal["Apply", "Update"]


# Entries of updates beyond these are thrown together, the oldest ones first.
MOST_UPDATERS = 10


_ANCIENT = "ancient-changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedFieldsEntry:
    """What one manager owns."""

    manager: str
    operation: Operation
    api_version: str
    subresource: str = ""
    time: str = ""
    """When it last changed something; empty if it never did."""

    fields: FieldSet = EMPTY

    @property
    def key(self) -> str:
        """What tells the entries of an object apart; sorted as a real server sorts.

        An applier is the same in each version of the API.
        """
        version = "" if self.operation == "Apply" else self.api_version
        names = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": version,
            "subresource": self.subresource,
        }
        return orjson.dumps({k: v for k, v in names.items() if v}).decode()


# The entries of an object, by their keys.
Entries = dict[str, ManagedFieldsEntry]


def decode_entries(managed: object) -> Entries:
    """Read `metadata.managedFields`.

    Raises:
        ValueError: If an entry is malformed.
    """
    if managed is None:
        return {}

    if not isinstance(managed, list):
        raise ValueError("expected a list of entries")

    entries = (_entry(given) for given in managed)
    return {entry.key: entry for entry in entries}


def encode_entries(entries: Entries) -> list[dict[str, Any]]:
    """Write `metadata.managedFields`: appliers first, then by time and name."""
    ordered = sorted(
        entries.values(),
        key=lambda it: (
            it.operation,
            it.time,
            it.manager,
            it.api_version,
            it.subresource,
        ),
    )
    return [_written(entry) for entry in ordered]


def without_ownership(
    entries: Entries, change: Comparison, *, spared: str = ""
) -> Entries:
    """Take from all entries what was changed or removed; those left empty go.

    Args:
        entries: Those before.
        change: What is changed.
        spared: The key of the one who does it, whose fields stay as they are.
    """
    lost = change.gained | change.removed
    left: Entries = {}
    for key, entry in entries.items():
        fields = entry.fields if key == spared else entry.fields - lost
        if fields:
            left[key] = (
                entry if fields is entry.fields else replace(entry, fields=fields)
            )

    return left


def entries_in_versions(entries: Entries, versions: Collection[str]) -> Entries:
    """Drop the entries of versions that are not known."""
    return {key: it for key, it in entries.items() if it.api_version in versions}


def cap_update_managers(entries: Entries) -> Entries:
    """Throw the oldest updates of each version together, if there are too many."""
    updates = [it for it in entries.values() if it.operation == "Update"]
    excess = len(updates) - MOST_UPDATERS
    if excess <= 0:
        return entries

    found = dict(entries)
    first: dict[str, ManagedFieldsEntry] = {}
    for entry in _oldest_first(updates):
        if excess <= 0:
            break

        oldest = first.setdefault(entry.api_version, entry)
        if oldest is not entry:
            _throw_together(found, oldest, entry)
            excess -= 1

    return found


def _entry(given: object) -> ManagedFieldsEntry:
    if not isinstance(given, dict):
        raise ValueError("expected an entry")

    operation, version = given.get("operation"), given.get("apiVersion")
    if operation not in {"Apply", "Update"}:
        raise ValueError("operation must be `Apply` or `Update`")

    if not version:
        raise ValueError("apiVersion must not be empty")

    if given.get("fieldsType") != "FieldsV1":
        raise ValueError(f"invalid fieldsType {given.get('fieldsType')!r}")

    return ManagedFieldsEntry(
        manager=str(given.get("manager") or ""),
        operation=operation,
        api_version=str(version),
        subresource=str(given.get("subresource") or ""),
        time=_utc(given.get("time") or ""),
        fields=FieldSet.parse(given.get("fieldsV1") or {}),
    )


def _utc(time: str) -> str:
    """Write a timestamp in UTC, in whole seconds."""
    if len(time) == len("2000-01-01T00:00:00Z") or not time:
        return time

    return kube_time(datetime.fromisoformat(time))


def _written(entry: ManagedFieldsEntry) -> dict[str, Any]:
    written = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_json(),
        "subresource": entry.subresource,
    }
    return {key: it for key, it in written.items() if it or key == "fieldsV1"}


def _oldest_first(entries: Iterable[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    return sorted(entries, key=lambda it: (it.time, it.key))


def _throw_together(
    entries: Entries, oldest: ManagedFieldsEntry, entry: ManagedFieldsEntry
) -> None:
    """Move an entry into the collective one of its version, which `oldest` begins."""
    ancient = ManagedFieldsEntry(
        manager=_ANCIENT,
        operation="Update",
        api_version=entry.api_version,
        time=entry.time,
    )
    begun = entries.get(ancient.key) or entries.pop(oldest.key)
    entries.pop(entry.key, None)
    entries[ancient.key] = replace(ancient, fields=begun.fields | entry.fields)


SCALE_VERSION = "autoscaling/v1"


_REPLICAS = FieldSet.of(("f:spec", "f:replicas"))


def to_scale(
    managed: object, replicas: Sequence[str], versions: Collection[str]
) -> list[dict[str, Any]]:
    """Return the managed fields that a Scale has.

    Args:
        managed: Those of its owner.
        replicas: The field that the Scale shows, such as `("spec", "replicas")`.
        versions: The versions of the owner's kind; entries of others do not count.

    Raises:
        ValueError: If an entry is malformed.
    """
    path = _path(replicas)
    entries = entries_in_versions(decode_entries(managed), versions)
    holders = {key: it for key, it in entries.items() if path in it.fields}
    return encode_entries(
        {
            key: replace(entry, api_version=SCALE_VERSION, fields=_REPLICAS)
            for key, entry in holders.items()
        }
    )


def from_scale(
    managed: object,
    scaled: object,
    replicas: Sequence[str],
    *,
    api_version: str,
    versions: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the managed fields of an object that was written through its scale.

    Args:
        managed: Those that it had.
        scaled: Those of the Scale, after the write.
        replicas: The field that the Scale shows, such as `("spec", "replicas")`.
        api_version: In which version of the object.
        versions: Other versions of its kind; entries of yet others are dropped.

    Raises:
        ValueError: If an entry is malformed.
    """
    path = _path(replicas)
    entries = entries_in_versions(decode_entries(managed), {api_version, *versions})
    mine = FieldSet.of(path)
    left = decode_entries(scaled)
    found: Entries = {}
    for key, entry in entries.items():
        if path not in entry.fields or left.pop(key, None) is not None:
            found[key] = entry
        elif entry.fields - mine:
            found[key] = replace(entry, fields=entry.fields - mine)

    for key, entry in left.items():
        if ("f:spec", "f:replicas") in entry.fields:
            time = entries[key].time if key in entries else ""
            found[key] = replace(entry, api_version=api_version, fields=mine, time=time)

    return encode_entries(found)


def _path(replicas: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(field_element, replicas))
