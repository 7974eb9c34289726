"""OpenAPI documents of paths and schemas for each group and version.

They are made on request, and cached while the kinds stay the same. They have no
descriptions. OpenAPI v2 has no paths and definitions, because clients use v3 instead.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aioinformer_apiserver.schema.openapi_schema import definitions, schema_of
from aioinformer_apiserver.serialization.negotiation import first_accepted
from aioinformer_apiserver.serialization.responses import (
    APIResponse,
    etag_of,
    matches_etag,
    page_not_found,
    text_response,
)
from aioinformer_apiserver.storage.encoding import plain
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["REFERENCE", "definition_name", "document_at", "paths_of", "schemas_of"]

_ROOT = "openapi/v3"
_SECOND = "openapi/v2"
_INFO = {"title": "Kubernetes", "version": "1.36"}
_JSON = "application/json"

# Media type of the response, and the old one, which clients still send.
_PROTOBUF = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)

_VARIES = {"Vary": "Accept"}
_NOT_ACCEPTABLE = APIResponse(body=[b""], headers=_VARIES, status=406)
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
# Clients may cache documents with a hash in their URL forever.
_CACHEABLE = {"Cache-Control": "public, immutable"}


def document_at(kinds: Iterable[Kind], request: APIRequest) -> APIResponse:
    """Answer a request below `/openapi`.

    Args:
        kinds: Served kinds.
        request: The request. An outdated `hash` in its query is redirected.

    Returns:
        Index, document of a group and version, 404 page, or an empty 406 if the client
        accepts no supported format.
    """
    path = unquote(request.path).removeprefix("/")
    if path == _SECOND:
        return _openapi_v2(request)

    if path != _ROOT and not path.startswith(_ROOT + "/"):
        return page_not_found()

    by_api = _by_api(kinds)
    if path == _ROOT:
        return _index(by_api)

    found = by_api.get(path.removeprefix(_ROOT + "/"))
    if found is None:
        return text_response("", status=404)

    if first_accepted(request.headers, _JSON) is None:
        return _NOT_ACCEPTABLE

    return _hashed_response(_document_of(found), request)


def schemas_of(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """Return the schemas of kinds, their lists, and everything that they refer to.

    Returns:
        OpenAPI schemas by name, sorted.
    """
    found: dict[str, Any] = {}
    pending = [_META + "DeleteOptions", _META + "Status", _META + "ObjectMeta"]
    pending.append(_META + "ListMeta")
    for kind in kinds:
        for name in kind.subresources.keys() & SUBRESOURCE_KINDS.keys():
            sent = schema_of(SUBRESOURCE_KINDS[name])
            pending += [] if sent is None else [sent.name]

        if kind.typed:
            pending += [definition_name(kind), definition_name(kind, listed=True)]
        else:
            found.update(_custom_schemas(kind))
            pending += _references(found[definition_name(kind)])

    while pending:
        name = pending.pop()
        text = definitions().get(name)
        if text is not None and name not in found:
            found[name] = text
            pending += _references(text)

    return dict(sorted(found.items()))


def _openapi_v2(request: APIRequest) -> APIResponse:
    """Return the document of OpenAPI v2, without paths and definitions.

    kubectl requests it, in Protocol Buffers, for kinds that it does not find in v3. So
    it finds that there is no such kind.
    """
    media = first_accepted(request.headers, _JSON, *_PROTOBUF)
    if media is None:
        return _NOT_ACCEPTABLE

    if media == _JSON:
        return APIResponse(
            body=[plain({"swagger": "2.0", "info": _INFO, "paths": {}})],
            headers=_VARIES,
        )

    title, version = (text.encode() for text in _INFO.values())
    info = _field(1, title) + _field(2, version)
    body = _field(1, b"2.0") + _field(2, info) + _field(8, b"")
    return APIResponse(body=[body], content_type=_PROTOBUF[0], headers=_VARIES)


def _field(number: int, text: bytes) -> bytes:
    """Encode a field of less than 128 bytes in Protocol Buffers."""
    return bytes([number << 3 | 2, len(text)]) + text


def _hashed_response(document: tuple[bytes, str], request: APIRequest) -> APIResponse:
    """Return a document, a redirect to its current URL, or 304 if it is unchanged."""
    body, tag = document
    headers = {"ETag": f'"{tag}"', "Vary": "Accept"}
    requested_hash = request.query.get("hash", "")
    if requested_hash not in {"", tag}:
        location = f"{request.path}?hash={tag}"
        headers = {**headers, "Location": location}
        return APIResponse(body=[b""], headers=headers, status=301)

    headers.update(
        _CACHEABLE if requested_hash else {"Cache-Control": "no-cache, private"}
    )
    if matches_etag(request.headers, tag):
        return APIResponse(body=[b""], headers=headers, status=304)

    return APIResponse(body=[body], headers=headers)


def _index(by_api: Mapping[str, tuple[Kind, ...]]) -> APIResponse:
    paths = {
        api: {"serverRelativeURL": f"/{_ROOT}/{api}?hash={_document_of(kinds)[1]}"}
        for api, kinds in sorted(by_api.items())
    }
    # A real server sends this JSON with this type.
    return APIResponse(
        body=[plain({"paths": paths}) + b"\n"], content_type="text/plain; charset=utf-8"
    )


def _by_api(kinds: Iterable[Kind]) -> dict[str, tuple[Kind, ...]]:
    """Group kinds by the path of their API, such as `"apis/apps/v1"`."""
    found: dict[str, tuple[Kind, ...]] = {}
    for kind in sorted(kinds, key=lambda it: it.resource.plural):
        resource = kind.resource
        api = f"{'apis' if resource.group else 'api'}/{resource.api_version}"
        found[api] = (*found.get(api, ()), kind)

    return found


# Kinds are compared by identity, so a new kind means a new document. Built-in kinds are
# the same in all servers of a process.
@lru_cache(maxsize=64)
def _document_of(kinds: tuple[Kind, ...]) -> tuple[bytes, str]:
    """Return the document of a group and version, with its ETag."""
    document = {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {path: it for kind in kinds for path, it in paths_of(kind).items()},
        "components": {"schemas": schemas_of(kinds)},
    }
    body = plain(document)
    return body, etag_of(body)


def _custom_schemas(kind: Kind) -> dict[str, Any]:
    """Return the definitions of a custom resource and its list."""
    text = dict(kind.custom_schema.text) if kind.custom_schema else {}
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": f"{REFERENCE}{_META}ObjectMeta"}]},
    }
    given = text.get("properties") or {}
    whole = {
        **text,
        "type": "object",
        "properties": {**given, **properties},
        **_extensions(kind, kind.resource.kind),
    }
    listed = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {
                "type": "array",
                "items": {"$ref": REFERENCE + definition_name(kind)},
            },
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"{REFERENCE}{_META}ListMeta"}]},
        },
        **_extensions(kind, kind.list_kind),
    }
    return {
        definition_name(kind): whole,
        definition_name(kind, listed=True): listed,
    }


def _extensions(kind: Kind, name: str) -> dict[str, Any]:
    resource = kind.resource
    named = {"group": resource.group, "kind": name, "version": resource.version}
    found: dict[str, Any] = {"x-kubernetes-group-version-kind": [named]}
    if kind.fields:
        paths = [{"fieldPath": path} for path in kind.fields]
        found["x-kubernetes-selectable-fields"] = paths

    return found


def _references(text: object) -> Iterator[str]:
    """Yield the names of the definitions that a schema references."""
    if isinstance(text, dict):
        reference = text.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(REFERENCE)

        for value in text.values():
            yield from _references(value)
    elif isinstance(text, list):
        for value in text:
            yield from _references(value)


# Prefix of references to definitions in the same document.
REFERENCE = "#/components/schemas/"
_FORMATS = ("application/json", "application/yaml")
_STRATEGIC = ("application/strategic-merge-patch+json",)

_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)

# Parameters of each action, with their types.
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

# Names of operations, with their HTTP methods.
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
    """Return the paths of a kind, with their operations."""
    resource = kind.resource
    everywhere = resource.path()
    collection = resource.path("{namespace}") if resource.namespaced else everywhere
    # Not quoted, to keep the braces of the parameters.
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

        return {"content": {it: _reference_to(_META + "DeleteOptions") for it in types}}

    if action != "patch":
        return {
            "content": {it: _reference_to(subject) for it in types},
            "required": True,
        }

    # A patch has no schema, because its content depends on its type.
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
    content = {name: _reference_to(subject) for name in _FORMATS}
    words = {"200": "OK", "201": "Created", "202": "Accepted"}
    found = {code: {"description": words[code], "content": content} for code in codes}
    return {**found, "401": {"description": "Unauthorized"}}


def _subject(kind: Kind, subresource: str) -> str:
    sent = SUBRESOURCE_KINDS.get(subresource)
    schema = None if sent is None else schema_of(sent)
    return definition_name(kind) if schema is None else schema.name


def _reference_to(name: str) -> dict[str, Any]:
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
