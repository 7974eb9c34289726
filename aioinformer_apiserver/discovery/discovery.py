"""Discovery documents of groups, versions and resources, and health checks. Pure.

Documents are in the order of a real server, because clients use the first match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aioinformer_apiserver.auth.reviews import REVIEWS
from aioinformer_apiserver.discovery import openapi
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.serialization.encoders import encoder_of
from aioinformer_apiserver.serialization.negotiation import (
    check_document_route,
    negotiate_aggregated,
)
from aioinformer_apiserver.serialization.responses import (
    APIResponse,
    etag_of,
    indented_response,
    json_response,
    matches_etag,
    page_not_found,
    text_response,
)
from aioinformer_apiserver.storage.encoding import plain
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS, version_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.model import Resource
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.serialization.negotiation import Choice
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Storage

__all__ = ["VERSION", "document_at", "health_at"]

# Imitated release.
VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}

# Parameters in the media type of aggregated discovery.
_AGGREGATED = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

# Built-in groups by their priority in a real server. Groups of custom resources follow
# by name.
_GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Resource with its subresources in discovery."""

    resource: Resource
    verbs: tuple[str, ...]
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    typed: bool = True


def document_at(storage: Storage, request: APIRequest) -> APIResponse | None:
    """Return the response to a non-resource request.

    Args:
        storage: Storage with the served kinds.
        request: The request. Its body does not matter.

    Returns:
        Document or 404 page; None if the path is that of a resource in a served group.

    Raises:
        ApiError: 404 for an unknown version, 405 for another method than GET, 406 if
            the client accepts no supported format, 415 for a body of an unsupported
            type.
    """
    parts = unquote(request.path).strip("/").split("/")
    if parts[0] not in {"api", "apis"}:
        return _server_document(storage, request, parts)

    if _is_custom_and_missing(storage, parts):
        return page_not_found()

    if len(parts) > (2 if parts[0] == "api" else 3):
        return None

    entries = _entries_of(storage)
    if len(parts) == 1:
        return _groups_at(parts[0], entries, request)

    found = _document_in(parts, entries)
    if found is None:
        raise statuses.no_such_path()

    if parts[0] == "api" or (len(parts) > 2 and parts[1] in _GROUPS):
        _check_route(request)

    return json_response(found, request)


# -------------------------------------------------------------------- documents


def _server_document(
    storage: Storage, request: APIRequest, parts: list[str]
) -> APIResponse | None:
    match parts:
        case ["version"]:
            _check_route(request, json_only=True)
            return indented_response(VERSION)
        case [""]:
            return indented_response({"paths": _paths(storage)})
        case ["openapi", *_]:
            return openapi.document_at(_kinds_of(storage), request)
        case _:
            return health_at(request) or page_not_found()


def _groups_at(root: str, entries: list[_Entry], request: APIRequest) -> APIResponse:
    """Return the document at `/api` or `/apis`."""
    if root == "api":
        _check_route(request)

    inside = [it for it in entries if bool(it.resource.group) == (root == "apis")]
    choice = negotiate_aggregated(request.headers, request.query)
    if choice is not None:
        return _aggregated_document(inside, choice, request)

    if root == "apis":
        groups = [_group(inside, name) for name in _group_names(inside)]
        listed = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        return json_response(listed, request)

    address = {
        "clientCIDR": "0.0.0.0/0",
        "serverAddress": request.headers.get("Host", ""),
    }
    versions = {"kind": "APIVersions", "versions": ["v1"]}
    return json_response({**versions, "serverAddressByClientCIDRs": [address]}, request)


def _document_in(parts: list[str], entries: list[_Entry]) -> dict[str, Any] | None:
    match parts:
        case ["api", version]:
            return _resources(entries, version)
        case ["apis", group]:
            head = {"kind": "APIGroup", "apiVersion": "v1"}
            return {**head, **_group(entries, group)}
        case _:
            return _resources(entries, "/".join(parts[1:]))


def _check_route(request: APIRequest, *, json_only: bool = False) -> None:
    """Check a request as the router before these documents does.

    Raises:
        ApiError: 405 for another method than GET, 415 or 406 if a header names no media
            type of the document.
    """
    if request.method != "GET":
        raise statuses.method_not_allowed()

    check_document_route(request.headers, json_only=json_only)


def _group(entries: list[_Entry], group: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group}/{name}", "version": name}
        for name in _version_names(entries, group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(entries: list[_Entry], api_version: str) -> dict[str, Any] | None:
    inside = [it for it in entries if it.resource.api_version == api_version]
    if not inside:
        return None

    head: dict[str, Any] = {"kind": "APIResourceList"}
    if "/" in api_version:
        # The core group never had this field.
        head["apiVersion"] = "v1"

    found = [line for entry in inside for line in _resource_entries(entry)]
    return {**head, "groupVersion": api_version, "resources": found}


def _resource_entries(entry: _Entry) -> Iterable[dict[str, Any]]:
    """Yield a resource and its subresources for the document of a version."""
    resource = entry.resource
    yield _without_empty(
        {
            "name": resource.plural,
            "singularName": entry.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(entry.verbs),
            "shortNames": list(entry.short_names),
            "categories": list(entry.categories),
        }
    )
    for name, verbs in entry.subresources.items():
        yield {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **_subresource_kind(entry, name),
            "verbs": list(verbs),
        }


def _subresource_kind(entry: _Entry, subresource: str) -> dict[str, str]:
    """Return the kind of a subresource, with its version if that differs."""
    sent = SUBRESOURCE_KINDS.get(subresource, entry.resource)
    if sent.api_version == entry.resource.api_version:
        return {"kind": sent.kind}

    return {"group": sent.group, "version": sent.version, "kind": sent.kind}


def _aggregated_document(
    entries: list[_Entry], choice: Choice, request: APIRequest
) -> APIResponse:
    items = []
    for group in _group_names(entries):
        versions = [
            {
                "version": name,
                "resources": [
                    _aggregated_resource(it)
                    for it in entries
                    if (it.resource.group, it.resource.version) == (group, name)
                ],
                "freshness": "Current",
            }
            for name in _version_names(entries, group)
        ]
        metadata = {"name": group} if group else {}
        items.append({"metadata": metadata, "versions": versions})

    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    raw, encoder = plain({**head, "metadata": {}, "items": items}), encoder_of(choice)
    media, tag = encoder.media + _AGGREGATED, etag_of(raw)
    kept = {"ETag": f'"{tag}"', "Cache-Control": "public", "Vary": "Accept"}
    if matches_etag(request.headers, tag):
        return APIResponse(body=[b""], content_type=media, headers=kept, status=304)

    return APIResponse(body=[encoder.document(raw)], content_type=media, headers=kept)


def _aggregated_resource(entry: _Entry) -> dict[str, Any]:
    """Return a resource with its subresources for aggregated discovery."""
    resource = entry.resource
    kind = _kind_of(entry)
    subresources = [
        {
            "subresource": name,
            "responseKind": {**kind, **_subresource_kind(entry, name)},
            "verbs": list(verbs),
        }
        for name, verbs in entry.subresources.items()
    ]
    return _without_empty(
        {
            "resource": resource.plural,
            "responseKind": kind,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": entry.singular,
            "verbs": list(entry.verbs),
            "shortNames": list(entry.short_names),
            "categories": list(entry.categories),
            "subresources": subresources,
        }
    )


def _kind_of(entry: _Entry) -> dict[str, str]:
    """Return the kind; for built-in kinds, a real server omits the group and version."""
    resource = entry.resource
    if entry.typed:
        return {"group": "", "version": "", "kind": resource.kind}

    group, version = resource.group, resource.version
    return {"group": group, "version": version, "kind": resource.kind}


# -------------------------------------------------------------------- served kinds


def _entries_of(storage: Storage) -> list[_Entry]:
    entries = [
        _Entry(
            resource=kind.resource,
            verbs=kind.verbs,
            singular=kind.singular,
            short_names=kind.short_names,
            categories=kind.categories,
            subresources=kind.subresources,
            typed=kind.typed,
        )
        for kind in _kinds_of(storage)
    ]
    entries += [
        _Entry(resource=it, verbs=("create",), singular=it.kind.lower())
        for it in (*REVIEWS, SUBRESOURCE_KINDS["binding"])
    ]
    return sorted(entries, key=lambda it: it.resource.plural)


def _kinds_of(storage: Storage) -> list[Kind]:
    return [collection.kind for collection in storage if collection.kind.served]


def _group_names(entries: list[_Entry]) -> list[str]:
    def order(name: str) -> tuple[int, str]:
        built_in = name in _GROUPS
        return (_GROUPS.index(name), "") if built_in else (len(_GROUPS), name)

    return sorted({it.resource.group for it in entries}, key=order)


def _version_names(entries: list[_Entry], group: str) -> list[str]:
    names = {it.resource.version for it in entries if it.resource.group == group}
    return sorted(names, key=version_order)


def _is_custom_and_missing(storage: Storage, parts: list[str]) -> bool:
    """Return whether a path is in a custom group that is not served."""
    if parts[0] == "api" or len(parts) < 2 or parts[1] in _GROUPS:
        return False

    if parts[3:4] == ["watch"]:
        parts = [*parts[:3], *parts[4:]]  # The deprecated path of a watch.

    if parts[3:4] == ["namespaces"] and len(parts) > 5:
        parts = [*parts[:3], *parts[5:]]

    group, version, plural = (*parts[1:], "", "")[:3]
    return not any(
        it.group == group and version in {"", it.version} and plural in {"", it.plural}
        for it in (kind.resource for kind in _kinds_of(storage))
    )


def _paths(storage: Storage) -> list[str]:
    paths = {"/api", "/api/v1", "/apis", "/apis/", "/openapi/v3", "/version"}
    paths |= {"/healthz", "/healthz/ping", "/livez", "/livez/ping"}
    paths |= {"/readyz", "/readyz/ping"}
    for entry in _entries_of(storage):
        if entry.resource.group:
            paths.add(f"/apis/{entry.resource.group}")
            paths.add(f"/apis/{entry.resource.api_version}")

    return sorted(paths)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value or value is False}


# -------------------------------------------------------------------- health checks

_HEALTH_ROOTS = frozenset({"healthz", "livez", "readyz"})
# The server has no external storage or other component that could fail.
_HEALTH_CHECKS = ("ping",)


def health_at(request: APIRequest) -> APIResponse | None:
    """Return the response to a health check; None for other paths."""
    root, *checks = request.path.removeprefix("/").split("/")
    if (
        root not in _HEALTH_ROOTS
        or len(checks) > 1
        or not set(checks) <= set(_HEALTH_CHECKS)
    ):
        return None

    if checks:
        return APIResponse(body=[b"ok"], content_type="text/plain; charset=utf-8")

    if "verbose" not in request.query:
        return text_response("ok")

    excluded = request.query.get("exclude", "")
    lines = [
        f"[+]{name} excluded: ok" if name == excluded else f"[+]{name} ok"
        for name in _HEALTH_CHECKS
    ]
    return text_response("\n".join([*lines, f"{root} check passed\n"]))
