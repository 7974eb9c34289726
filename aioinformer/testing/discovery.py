"""Discovery: the documents that say what is served. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioinformer.testing.kinds import Kind
    from aioinformer.testing.storage import Storage

__all__ = ["VERSION", "document_at"]

VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-08-27T10:00:00Z",
    "goVersion": "go1.24.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}

_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


def document_at(storage: Storage, path: str) -> dict[str, Any] | None:
    """Return the document under a path; None if there is none."""
    kinds = [collection.kind for collection in storage]
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({kind.resource.group for kind in kinds} - {""})
            found = [_group(kinds, group) for group in groups]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        case ["apis", group] if any(kind.resource.group == group for kind in kinds):
            head = {"kind": "APIGroup", "apiVersion": "v1"}
            return {**head, **_group(kinds, group)}
        case ["api", version]:
            return _resources(kinds, version)
        case ["apis", group, version] if group:
            return _resources(kinds, f"{group}/{version}")
        case _:
            return None


def _group(kinds: list[Kind], group: str) -> dict[str, Any]:
    names = {kind.resource.version for kind in kinds if kind.resource.group == group}
    # The stable versions first, as clients take the first one as preferred.
    ordered = sorted(names, key=lambda it: ("alpha" in it, "beta" in it, it))
    versions = [{"groupVersion": f"{group}/{it}", "version": it} for it in ordered]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(kinds: list[Kind], api_version: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = []
    for kind in kinds:
        if kind.resource.api_version == api_version:
            found += _entries(kind)

    if not found:
        return None

    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": sorted(found, key=lambda entry: str(entry["name"])),
    }


def _entries(kind: Kind) -> list[dict[str, Any]]:
    resource = kind.resource
    common = {"namespaced": resource.namespaced, "kind": resource.kind}
    singular = {"name": resource.plural, "singularName": resource.kind.lower()}
    entry: dict[str, Any] = {**singular, **common, "verbs": list(_VERBS)}
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)

    if not kind.has_status:
        return [entry]

    status = {"name": f"{resource.plural}/status", "singularName": ""}
    return [entry, {**status, **common, "verbs": ["get", "patch", "update"]}]
