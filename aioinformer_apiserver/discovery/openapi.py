"""OpenAPI: the documents that describe paths and schemas, for each group and version.

Made when they are asked for, from what is known about the kinds, and kept for as long as
those stay the same. There are no descriptions, and of version 2 there is only the head of
the document: clients go on without it where there is version 3.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aioinformer_apiserver.discovery.document import (
    Document,
    no_such_page,
    tag_of,
    unchanged,
)
from aioinformer_apiserver.discovery.operations import (
    REFERENCE,
    definition_name,
    paths_of,
)
from aioinformer_apiserver.schema.openapi_schema import definitions, schema_of
from aioinformer_apiserver.serialization.negotiation import accepted
from aioinformer_apiserver.storage.encoding import plain
from aioinformer_apiserver.storage.kinds import SUBRESOURCE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer_apiserver.requests.request import Call
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["document_at", "schemas_of"]

_ROOT = "openapi/v3"
_SECOND = "openapi/v2"
_INFO = {"title": "Kubernetes", "version": "1.36"}
_JSON = "application/json"
# The name that is written, and the old one, which is still asked for.
_PROTOBUF = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)
_VARIES = {"Vary": "Accept"}
_NOT_ACCEPTABLE = Document(body=b"", headers=_VARIES, status=406)
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
# What a real server lets clients keep for ever, as its address changes with it.
_KEPT = {"Cache-Control": "public, immutable"}


def document_at(kinds: Iterable[Kind], call: Call) -> Document:
    """Answer a request below `/openapi`.

    Args:
        kinds: All that are served.
        call: The request. A `hash` in its query that is not the current one leads to
            the document by a redirection.

    Returns:
        The index, the document of a group and version, or a page that says that there
        is none, or without a word (406) that it cannot be written as is accepted.
    """
    path = unquote(call.path).removeprefix("/")
    if path == _SECOND:
        return _second(call)

    if path != _ROOT and not path.startswith(_ROOT + "/"):
        return no_such_page()

    by_api = _by_api(kinds)
    if path == _ROOT:
        return _index(by_api)

    found = by_api.get(path.removeprefix(_ROOT + "/"))
    if found is None:
        return Document.text("", status=404)

    if accepted(call.headers, _JSON) is None:
        return _NOT_ACCEPTABLE

    return _addressed(_written(found), call)


def schemas_of(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """Return the schemas of some kinds, their lists, and all that these refer to.

    Returns:
        OpenAPI text by the names of the definitions, sorted.
    """
    found: dict[str, Any] = {}
    wanted = [_META + "DeleteOptions", _META + "Status", _META + "ObjectMeta"]
    wanted.append(_META + "ListMeta")
    for kind in kinds:
        for name in kind.subresources.keys() & SUBRESOURCE_KINDS.keys():
            sent = schema_of(SUBRESOURCE_KINDS[name])
            wanted += [] if sent is None else [sent.name]

        if kind.typed:
            wanted += [definition_name(kind), definition_name(kind, listed=True)]
        else:
            found.update(_custom_schemas(kind))
            wanted += _references(found[definition_name(kind)])

    while wanted:
        name = wanted.pop()
        text = definitions().get(name)
        if text is not None and name not in found:
            found[name] = text
            wanted += _references(text)

    return dict(sorted(found.items()))


def _second(call: Call) -> Document:
    """Make the document of version 2: a head without paths and definitions.

    kubectl asks it for the kinds that it does not find in version 3, and in the binary
    encoding. So it finds out that there is no such kind.
    """
    media = accepted(call.headers, _JSON, *_PROTOBUF)
    if media is None:
        return _NOT_ACCEPTABLE

    if media == _JSON:
        return Document(
            body=plain({"swagger": "2.0", "info": _INFO, "paths": {}}), headers=_VARIES
        )

    title, version = (text.encode() for text in _INFO.values())
    info = _field(1, title) + _field(2, version)
    body = _field(1, b"2.0") + _field(2, info) + _field(8, b"")
    return Document(body=body, content_type=_PROTOBUF[0], headers=_VARIES)


def _field(number: int, text: bytes) -> bytes:
    """Write a field of a message in the binary encoding, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(text)]) + text


def _addressed(document: tuple[bytes, str], call: Call) -> Document:
    """Answer with a document, or with where it is now, or that it has not changed."""
    body, tag = document
    headers = {"ETag": f'"{tag}"', "Vary": "Accept"}
    asked = call.query.get("hash", "")
    if asked not in {"", tag}:
        location = f"{call.path}?hash={tag}"
        headers = {**headers, "Location": location}
        return Document(body=b"", headers=headers, status=301)

    headers.update(_KEPT if asked else {"Cache-Control": "no-cache, private"})
    if unchanged(call.headers, tag):
        return Document(body=b"", headers=headers, status=304)

    return Document(body=body, headers=headers)


def _index(by_api: Mapping[str, tuple[Kind, ...]]) -> Document:
    paths = {
        api: {"serverRelativeURL": f"/{_ROOT}/{api}?hash={_written(kinds)[1]}"}
        for api, kinds in sorted(by_api.items())
    }
    # That is the type with which a real server writes this JSON.
    return Document(
        body=plain({"paths": paths}) + b"\n", content_type="text/plain; charset=utf-8"
    )


def _by_api(kinds: Iterable[Kind]) -> dict[str, tuple[Kind, ...]]:
    """Sort kinds by the path of their API, such as `"apis/apps/v1"`."""
    found: dict[str, tuple[Kind, ...]] = {}
    for kind in sorted(kinds, key=lambda it: it.resource.plural):
        resource = kind.resource
        api = f"{'apis' if resource.group else 'api'}/{resource.api_version}"
        found[api] = (*found.get(api, ()), kind)

    return found


# Kinds are told apart by identity, so a document is made anew if one of them was. The
# built-in ones are the same in all servers of a process.
@lru_cache(maxsize=64)
def _written(kinds: tuple[Kind, ...]) -> tuple[bytes, str]:
    """Write the document of the kinds of one group and version; return it with its tag."""
    document = {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {path: it for kind in kinds for path, it in paths_of(kind).items()},
        "components": {"schemas": schemas_of(kinds)},
    }
    body = plain(document)
    return body, tag_of(body)


def _custom_schemas(kind: Kind) -> dict[str, Any]:
    """Make the definitions of a custom resource and of its list."""
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
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(text, dict):
        reference = text.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(REFERENCE)

        for value in text.values():
            yield from _references(value)
    elif isinstance(text, list):
        for value in text:
            yield from _references(value)
