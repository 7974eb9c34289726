"""Entries of managed fields: read, written, and what a write does to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from aioinformer.model.moments import kube_time
from aioinformer_apiserver.patches.fieldsets import NOTHING, FieldSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aioinformer_apiserver.patches.comparison import Comparison

__all__ = [
    "Entries",
    "Entry",
    "capped",
    "decoded",
    "deprived",
    "encoded",
    "of_versions",
]

Operation = Literal["Apply", "Update"]

# Entries of updates beyond these are thrown together, the oldest ones first.
MOST_UPDATERS = 10
_ANCIENT = "ancient-changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one manager owns."""

    manager: str
    operation: Operation
    api_version: str
    subresource: str = ""
    time: str = ""
    """When it last changed something; empty if it never did."""

    fields: FieldSet = NOTHING

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
Entries = dict[str, Entry]


def decoded(managed: object) -> Entries:
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


def encoded(entries: Entries) -> list[dict[str, Any]]:
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


def deprived(entries: Entries, change: Comparison, *, spared: str = "") -> Entries:
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


def of_versions(entries: Entries, versions: Collection[str]) -> Entries:
    """Drop the entries of versions that are not known."""
    return {key: it for key, it in entries.items() if it.api_version in versions}


def capped(entries: Entries) -> Entries:
    """Throw the oldest updates of each version together, if there are too many."""
    updates = [it for it in entries.values() if it.operation == "Update"]
    excess = len(updates) - MOST_UPDATERS
    if excess <= 0:
        return entries

    found = dict(entries)
    first: dict[str, Entry] = {}
    for entry in _oldest_first(updates):
        if excess <= 0:
            break

        oldest = first.setdefault(entry.api_version, entry)
        if oldest is not entry:
            _throw_together(found, oldest, entry)
            excess -= 1

    return found


def _entry(given: object) -> Entry:
    if not isinstance(given, dict):
        raise ValueError("expected an entry")

    operation, version = given.get("operation"), given.get("apiVersion")
    if operation not in {"Apply", "Update"}:
        raise ValueError("operation must be `Apply` or `Update`")

    if not version:
        raise ValueError("apiVersion must not be empty")

    if given.get("fieldsType") != "FieldsV1":
        raise ValueError(f"invalid fieldsType {given.get('fieldsType')!r}")

    return Entry(
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


def _written(entry: Entry) -> dict[str, Any]:
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


def _oldest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda it: (it.time, it.key))


def _throw_together(entries: Entries, oldest: Entry, entry: Entry) -> None:
    """Move an entry into the collective one of its version, which `oldest` begins."""
    ancient = Entry(
        manager=_ANCIENT,
        operation="Update",
        api_version=entry.api_version,
        time=entry.time,
    )
    begun = entries.get(ancient.key) or entries.pop(oldest.key)
    entries.pop(entry.key, None)
    entries[ancient.key] = replace(ancient, fields=begun.fields | entry.fields)
