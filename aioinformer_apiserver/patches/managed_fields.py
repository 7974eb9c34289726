"""Managed fields: which manager set which fields of an object.

There is one entry for each manager, operation, API version and subresource. An apply
replaces the fields of its manager. Any other write adds to them, and removes changed
fields from all other entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from aioinformer import json_codec
from aioinformer.model import kube_time
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

# In bytes. Names from the user agent are cut, others are rejected.
MAX_MANAGER_BYTES = 128
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
# Fields that have no owner themselves; fields below them may.
NEVER_OWNED = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *[("f:metadata", f"f:{field}") for field in _META],
)
_MAIN = FieldSet.of(("f:status",))
_STATUS = FieldSet.of(("f:spec",))
_STATUS_OF_CUSTOM = FieldSet.of(("f:spec",), ("f:metadata",))
# Kinds whose status subresource ignores more than the spec.
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
    """Return the managed fields of an object after a create, update or patch.

    Call this with the object of the client with its defaults, before admission or
    allocation changes it: such changes have no manager.
    Managed fields in `new` replace the stored ones. An empty list, or a list with an
    empty entry, resets them. If they are missing or malformed, those of `old` count. An
    existing object without managed fields gets none until its first apply.

    Args:
        schema: Schema of the kind; None if there is none.
        old: Stored object; None if the object is created.
        new: Object to be stored.
        manager: Field manager of the write; see `manager_of`.
        api_version: API version of the write.
        now: Current time as a timestamp.
        subresource: Subresource of the write, such as `"status"`; empty for none.
        reset: Fields that this write ignores; see `reset_fields`.
        versions: Other versions of the kind with the same fields. Entries of unknown
            versions are dropped.
    """
    entries = _entries_before(old, new, subresource)
    if not entries and old is not None:
        return []

    entries = entries_in_versions(entries, {api_version, *versions})
    whole = schema_of_object(schema)
    before = empty_object_of(whole) if old is None else without_managed_fields(old)
    try:
        change = compare(whole, before, without_managed_fields(new)).outside(reset)
    except ValueError:
        # Like a real server, drop all entries if items have the same identity.
        return []

    own_entry = ManagedFieldsEntry(
        manager=manager or "unknown",
        operation="Update",
        api_version=api_version,
        subresource=subresource,
        time=now,
    )
    return encode_entries(cap_update_managers(with_update(entries, change, own_entry)))


def with_update(
    entries: Entries, change: Comparison, own_entry: ManagedFieldsEntry
) -> Entries:
    """Return the entries after an update.

    Args:
        entries: Entries before the update.
        change: Changes of the update.
        mine: Entry of the updating manager, without fields.
    """
    left = without_ownership(entries, change)
    fields = change.gained - NEVER_OWNED
    if fields:
        known = left.get(own_entry.key)
        left[own_entry.key] = replace(
            own_entry, fields=known.fields | fields if known else fields
        )

    return left


def manager_of(user_agent: str, field_manager: str = "") -> str:
    """Return the field manager of a client.

    Args:
        user_agent: Header `User-Agent`; only the part before its first slash counts.
        field_manager: Query parameter `fieldManager`, which has precedence.
    """
    if field_manager:
        return field_manager

    name = ""
    for letter in user_agent.partition("/")[0]:
        if not letter.isprintable():
            continue

        if len((name + letter).encode()) > MAX_MANAGER_BYTES:
            break

        name += letter

    return name or "unknown"


def reset_fields(kind: Kind, subresource: str = "") -> FieldSet:
    """Return the fields that a kind of write ignores, and so does not own.

    Args:
        kind: Kind of the object.
        subresource: Subresource of the write; empty for none.
    """
    if subresource == "status":
        resource = kind.resource
        usual = _STATUS if kind.typed else _STATUS_OF_CUSTOM
        return _STATUS_OF.get(f"{resource.group}/{resource.kind}", usual)

    return _MAIN if kind.has_status else EMPTY


def keep_unchanged_times(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Keep the old times of managed fields if nothing else has changed.

    Without this, a write without changes would make a new version of the object.

    Args:
        old: Stored object.
        new: Complete object to be stored; not changed.
    """
    before = old["metadata"].get("managedFields") or []
    after = new["metadata"].get("managedFields") or []
    if before == after or list(map(_without_time, before)) != list(
        map(_without_time, after)
    ):
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


def _entries_before(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], subresource: str
) -> Entries:
    """Return the entries before the write; the client may have sent others."""
    stored = ((old or {}).get("metadata") or {}).get("managedFields")
    sent = (new.get("metadata") or {}).get("managedFields")
    if subresource or sent is None:
        return _decode_or_empty(stored)

    if sent in ([], [{}]):
        return {}

    return _decode_or_empty(sent) or _decode_or_empty(stored)


def _decode_or_empty(managed: object) -> Entries:
    try:
        return decode_entries(managed)
    except ValueError:
        return {}


def _without_time(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in entry.items() if key != "time"}


# ------------------------------------------------------------------ entries


Operation = Literal["Apply", "Update"]
# Maximum number of update entries; older ones are combined.
MAX_UPDATE_MANAGERS = 10
_COMBINED_MANAGER = "ancient-changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedFieldsEntry:
    """Fields that one manager owns."""

    manager: str
    operation: Operation
    api_version: str
    subresource: str = ""
    time: str = ""
    """Time of the last change; empty if there was none."""

    fields: FieldSet = EMPTY

    @property
    def key(self) -> str:
        """Key of the entry; entries are sorted by it as on a real server.

        The key of an applier does not depend on the API version.
        """
        version = "" if self.operation == "Apply" else self.api_version
        names = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": version,
            "subresource": self.subresource,
        }
        return json_codec.dumps({k: v for k, v in names.items() if v}).decode()


# Entries of an object by their keys.
Entries = dict[str, ManagedFieldsEntry]


def decode_entries(managed: object) -> Entries:
    """Decode `metadata.managedFields`.

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
    """Encode `metadata.managedFields`: appliers first, then by time and name."""
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
    return [_encode(entry) for entry in ordered]


def without_ownership(
    entries: Entries, change: Comparison, *, exempt: str = ""
) -> Entries:
    """Remove changed and removed fields from all entries; drop empty entries.

    Args:
        entries: Entries before the change.
        change: Changed fields.
        spared: Key of the entry that made the change, which keeps its fields.
    """
    lost = change.gained | change.removed
    left: Entries = {}
    for key, entry in entries.items():
        fields = entry.fields if key == exempt else entry.fields - lost
        if fields:
            left[key] = (
                entry if fields is entry.fields else replace(entry, fields=fields)
            )

    return left


def entries_in_versions(entries: Entries, versions: Collection[str]) -> Entries:
    """Drop the entries of unknown versions."""
    return {key: it for key, it in entries.items() if it.api_version in versions}


def cap_update_managers(entries: Entries) -> Entries:
    """Combine the oldest updates of each version if there are too many."""
    updates = [it for it in entries.values() if it.operation == "Update"]
    excess = len(updates) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return entries

    found = dict(entries)
    first: dict[str, ManagedFieldsEntry] = {}
    for entry in _by_age(updates):
        if excess <= 0:
            break

        oldest = first.setdefault(entry.api_version, entry)
        if oldest is not entry:
            _combine(found, oldest, entry)
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
    """Format a timestamp in UTC and whole seconds."""
    if len(time) == len("2000-01-01T00:00:00Z") or not time:
        return time

    return kube_time(datetime.fromisoformat(time))


def _encode(entry: ManagedFieldsEntry) -> dict[str, Any]:
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


def _by_age(entries: Iterable[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    return sorted(entries, key=lambda it: (it.time, it.key))


def _combine(
    entries: Entries, oldest: ManagedFieldsEntry, entry: ManagedFieldsEntry
) -> None:
    """Move an entry into the combined one of its version."""
    ancient = ManagedFieldsEntry(
        manager=_COMBINED_MANAGER,
        operation="Update",
        api_version=entry.api_version,
        time=entry.time,
    )
    begun = entries.get(ancient.key) or entries.pop(oldest.key)
    entries.pop(entry.key, None)
    entries[ancient.key] = replace(ancient, fields=begun.fields | entry.fields)


# ------------------------------------------------------------------ scales


SCALE_VERSION = "autoscaling/v1"
_REPLICAS = FieldSet.of(("f:spec", "f:replicas"))


def to_scale(
    managed: object, replicas: Sequence[str], versions: Collection[str]
) -> list[dict[str, Any]]:
    """Return the managed fields of a Scale.

    Args:
        managed: Managed fields of its owner.
        replicas: Path of the field that the Scale shows, such as `("spec",
            "replicas")`.
        versions: Versions of the owner's kind; entries of other versions are dropped.

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
    """Return the managed fields of an object after a write of its scale.

    A real server translates the entries to the Scale and back, and loses something: an
    entry that comes from the Scale has no time.

    Args:
        managed: Managed fields before the write.
        scaled: Managed fields of the Scale after the write.
        replicas: Path of the field that the Scale shows, such as `("spec",
            "replicas")`.
        api_version: API version of the object.
        versions: Other versions of its kind; entries of unknown versions are dropped.

    Raises:
        ValueError: If an entry is malformed.
    """
    path = _path(replicas)
    entries = entries_in_versions(decode_entries(managed), {api_version, *versions})
    own_entry = FieldSet.of(path)
    left = decode_entries(scaled)
    found: Entries = {}
    for key, entry in entries.items():
        if path not in entry.fields or left.pop(key, None) is not None:
            found[key] = entry
        elif entry.fields - own_entry:
            found[key] = replace(entry, fields=entry.fields - own_entry)

    for key, entry in left.items():
        if ("f:spec", "f:replicas") in entry.fields:
            time = entries[key].time if key in entries else ""
            found[key] = replace(
                entry, api_version=api_version, fields=own_entry, time=time
            )

    return encode_entries(found)


def _path(replicas: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(field_element, replicas))
