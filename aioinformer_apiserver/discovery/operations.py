"""Operations: what can be done with a kind, path by path, as OpenAPI tells it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema.openapi_schema import schema_of
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["REFERENCE", "definition_name", "paths_of"]

# How definitions of the same document are referred to.
REFERENCE = "#/components/schemas/"

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_FORMATS = ("application/json", "application/yaml")
_STRATEGIC = ("application/strategic-merge-patch+json",)
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)

# The parameters of each action, by their types.
_BOOLEANS = frozenset(
    {"allowWatchBookmarks", "force", "orphanDependents", "sendInitialEvents", "watch"}
)
_INTEGERS = frozenset({"gracePeriodSeconds", "limit", "timeoutSeconds"})
_WRITING = ("dryRun", "fieldManager", "fieldValidation")
_DELETING = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_LISTING = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
_QUERIES: dict[str, tuple[str, ...]] = {
    "get": (),
    "list": ("allowWatchBookmarks", *_LISTING, "watch"),
    "post": _WRITING,
    "put": _WRITING,
    "patch": (*_WRITING, "force"),
    "delete": _DELETING,
    "deletecollection": tuple(sorted({*_DELETING, *_LISTING})),
}
# How operations are called, and how the HTTP method is.
_NAMES = {
    "get": "read",
    "list": "list",
    "post": "create",
    "put": "replace",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
_METHODS = {"list": "get", "deletecollection": "delete"}
_VERBS = {"create": "post", "update": "put"}


def definition_name(kind: Kind, *, listed: bool = False) -> str:
    """Return the name of the definition of a kind, or of its list."""
    if kind.typed:
        name = kind.schema.name if kind.schema is not None else ""
        return f"{name}List" if listed else name

    resource = kind.resource
    domain = ".".join(reversed(resource.group.split(".")))
    return f"{domain}.{resource.version}.{kind.list_kind if listed else resource.kind}"


def paths_of(kind: Kind) -> dict[str, Any]:
    """Return the paths under which a kind is served, with what can be done there."""
    resource = kind.resource
    everywhere = resource.path()
    collection = resource.path("{namespace}") if resource.namespaced else everywhere
    # Quoting would hide the braces of the parameters.
    collection = collection.replace("%7B", "{").replace("%7D", "}")
    actions = [_VERBS.get(verb, verb) for verb in kind.verbs if verb != "watch"]
    on_collection = [it for it in ("list", "post", "deletecollection") if it in actions]
    on_object = [it for it in ("get", "put", "delete", "patch") if it in actions]

    found: dict[str, Any] = {}
    if resource.namespaced:
        operation = _operation(kind, "list", suffix="ForAllNamespaces")
        found[everywhere] = {"get": operation, "parameters": _in_path(())}

    scope = ("namespace",) if resource.namespaced else ()
    found[collection] = _item(kind, on_collection, scope)
    found[collection + "/{name}"] = _item(kind, on_object, ("name", *scope))
    for name, verbs in kind.subresources.items():
        path = f"{collection}/{{name}}/{name}"
        actions = [_VERBS.get(verb, verb) for verb in verbs]
        on_part = [it for it in ("get", "put", "post", "patch") if it in actions]
        found[path] = _item(kind, on_part, ("name", *scope), name)

    return found


def _item(
    kind: Kind, actions: Iterable[str], scope: tuple[str, ...], subresource: str = ""
) -> dict[str, Any]:
    operations: dict[str, Any] = {
        _METHODS.get(action, action): _operation(kind, action, subresource=subresource)
        for action in actions
    }
    return {**operations, "parameters": _in_path(scope)}


def _operation(
    kind: Kind, action: str, *, subresource: str = "", suffix: str = ""
) -> dict[str, Any]:
    resource = kind.resource
    named = {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }
    sent = SUBRESOURCE_KINDS.get(subresource)
    if sent is not None and kind.typed:
        named = {"group": sent.group, "version": sent.version, "kind": sent.kind}

    found: dict[str, Any] = {
        "tags": [_tag(kind)],
        "operationId": _identifier(kind, action, subresource, suffix),
    }
    parameters = [_parameter(name) for name in _QUERIES[action]]
    if parameters:
        found["parameters"] = parameters

    body = _request(kind, action, _subject(kind, subresource))
    if body:
        found["requestBody"] = body

    return {
        **found,
        "responses": _responses(kind, action, subresource),
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": named,
    }


def _request(kind: Kind, action: str, subject: str) -> dict[str, Any]:
    if action in {"get", "list"}:
        return {}

    types: tuple[str, ...] = ("*/*",) if kind.typed else _FORMATS
    if action.startswith("delete"):
        if action == "deletecollection" and not kind.typed:
            return {}

        return {"content": {it: _refer(_META + "DeleteOptions") for it in types}}

    if action != "patch":
        return {"content": {it: _refer(subject) for it in types}, "required": True}

    # A patch is not described: what it may hold depends on its type.
    types = (*_PATCHES, *_STRATEGIC) if kind.typed else _PATCHES
    content = {name: {"schema": {"type": "object"}} for name in types}
    return {"content": content, "required": True}


def _responses(kind: Kind, action: str, subresource: str) -> dict[str, Any]:
    subject = _subject(kind, subresource)
    if action == "list":
        subject = definition_name(kind, listed=True)
    elif action.startswith("delete"):
        subject = _META + "Status"

    codes = {"post": ("200", "201", "202"), "put": ("200", "201")}.get(action, ("200",))
    content = {name: _refer(subject) for name in _FORMATS}
    words = {"200": "OK", "201": "Created", "202": "Accepted"}
    found = {code: {"description": words[code], "content": content} for code in codes}
    return {**found, "401": {"description": "Unauthorized"}}


def _subject(kind: Kind, subresource: str) -> str:
    sent = SUBRESOURCE_KINDS.get(subresource)
    schema = None if sent is None else schema_of(sent)
    return definition_name(kind) if schema is None else schema.name


def _refer(name: str) -> dict[str, Any]:
    return {"schema": {"$ref": REFERENCE + name}}


def _identifier(kind: Kind, action: str, subresource: str, suffix: str) -> str:
    resource = kind.resource
    where = "Namespaced" if resource.namespaced and not suffix else ""
    return "".join(
        [
            _NAMES[action],
            *_capitals(_short_group(kind)),
            resource.version.capitalize(),
            "Collection" if action == "deletecollection" else "",
            where,
            resource.kind,
            subresource.capitalize(),
            suffix,
        ]
    )


def _tag(kind: Kind) -> str:
    first, *rest = _capitals(_short_group(kind))
    return f"{first[:1].lower()}{first[1:]}{''.join(rest)}_{kind.resource.version}"


def _short_group(kind: Kind) -> str:
    return kind.resource.group.removesuffix(".k8s.io") or "core"


def _capitals(group: str) -> list[str]:
    return [part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]", group)]


def _in_path(scope: tuple[str, ...]) -> list[dict[str, Any]]:
    return list(_path_parameters(scope))


def _path_parameters(scope: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for name in scope:
        schema = {"type": "string", "uniqueItems": True}
        yield {"name": name, "in": "path", "required": True, "schema": schema}

    yield _parameter("pretty")


def _parameter(name: str) -> dict[str, Any]:
    kind = "boolean" if name in _BOOLEANS else "string"
    kind = "integer" if name in _INTEGERS else kind
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
