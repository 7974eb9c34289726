"""Versions: the kinds that follow from a definition, one for each version. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer.model.resource import Resource
from aioinformer_apiserver.crds.conditions import holds
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.storage.kinds import ScalePaths, custom_kind, version_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.storage.kinds import FieldRule, Kind

__all__ = ["definition_of", "kinds_of", "name_of", "with_version"]

_API_VERSION = "apiextensions.k8s.io/v1"


def kinds_of(body: Mapping[str, Any]) -> list[Kind]:
    """Return the kinds that a definition asks for: none until it is established.

    Returns:
        One for each version that is served, in the order of the definition, and one for
        that in which objects are kept.
    """
    if not holds(body, "Established"):
        return []

    versions = body["spec"]["versions"]
    storage = next(it for it in versions if it.get("storage"))
    return [
        _kind(body, version, storage)
        for version in versions
        if version.get("served") or version is storage
    ]


def name_of(resource: Resource) -> str:
    """Return the name that the definition of a custom resource has."""
    return f"{resource.plural}.{resource.group}"


def definition_of(resource: Resource) -> dict[str, Any]:
    """Return a definition of a resource with a status, whose objects hold anything."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name_of(resource)},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_open_version(resource.version, storage=True)],
        },
    }


def with_version(body: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """Return a definition that serves a resource in one version more."""
    spec = body["spec"]
    versions = [it for it in spec["versions"] if it["name"] != resource.version]
    new = _open_version(resource.version, storage=not versions)
    return {**body, "spec": {**spec, "versions": [*versions, new]}}


def _open_version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


def _kind(
    body: Mapping[str, Any], version: Mapping[str, Any], storage: Mapping[str, Any]
) -> Kind:
    spec, names = body["spec"], body["status"]["acceptedNames"]
    subresources = version.get("subresources") or {}
    resource = Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        spec["scope"] == "Namespaced",
    )
    return replace(
        custom_kind(resource),
        definition=(spec, names),
        versions=tuple(f"{spec['group']}/{it['name']}" for it in spec["versions"]),
        served=bool(version.get("served")),
        has_status=subresources.get("status") is not None,
        fields=dict(_field(it) for it in version.get("selectableFields") or ()),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        singular=names.get("singular") or "",
        list_kind=names.get("listKind") or "",
        scale=_scale(subresources.get("scale")),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        custom_schema=_schema(version),
        storage_schema=None if version is storage else _schema(storage),
        warning=_warning(body, version),
        terminating=holds(body, "Terminating"),
    )


def _schema(version: Mapping[str, Any]) -> Schema:
    return Schema((version.get("schema") or {}).get("openAPIV3Schema") or {})


def _field(selectable: Mapping[str, Any]) -> tuple[str, FieldRule]:
    path = _path(selectable["jsonPath"])
    return ".".join(path), (path, "")


def _scale(given: Mapping[str, Any] | None) -> ScalePaths | None:
    if given is None:
        return None

    return ScalePaths(
        replicas=_path(given["specReplicasPath"]),
        current=_path(given["statusReplicasPath"]),
        selector=_path(given.get("labelSelectorPath") or ""),
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _warning(body: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return what everyone is told who uses this version; empty if it is fine."""
    if not version.get("deprecated"):
        return ""

    given = version.get("deprecationWarning")
    if given is not None:
        return str(given)

    spec, kind = body["spec"], body["status"]["acceptedNames"]["kind"]
    told = f"{spec['group']}/{version['name']} {kind} is deprecated"
    better = _better(spec["versions"], version["name"])
    return f"{told}; use {spec['group']}/{better} {kind}" if better else told


def _better(versions: list[Mapping[str, Any]], name: str) -> str:
    """Return the version to be used instead: the best one that is newer, if any is."""
    fine = [
        it["name"] for it in versions if it.get("served") and not it.get("deprecated")
    ]
    newer = [it for it in fine if version_order(it) < version_order(name)]
    return min(newer, key=version_order, default="")
