"""HTTP requests for the verbs of the API. Pure: nothing here waits or sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec

from aioinformer import json_codec
from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject, json_default
from aioinformer.model.resources import check_resource
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = [
    "Body",
    "PatchType",
    "Propagation",
    "Request",
    "apply",
    "create",
    "delete",
    "patch",
    "plain",
    "selection",
    "type_of",
    "update",
]

Body: TypeAlias = Any
"""A dict, `KubeObject`, `msgspec.Struct`, object with Pydantic's `model_dump`, or model
of kubernetes_asyncio; also nested in dicts."""

PatchType: TypeAlias = Literal["merge", "json", "strategic", "apply"]

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

_PATCHES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    # The server reads it as YAML, of which JSON is a part.
    "apply": "application/apply-patch+yaml",
}

# Subresources whose bodies are of the resource's own kind. A scale is not.
_WHOLE = frozenset({"", "status"})


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request, without the settings that all requests of a client share."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    gzip: bool | None = None
    accept: str = ""
    etag: str = ""
    """`ETag` of a known version. If it is current, the response is an empty 304."""
    fence: Callable[[], None] | None = field(default=None, repr=False)
    """Function called right before each sending. If it raises, nothing is sent."""
    urgent: bool = False
    """True to bypass the client's `qps`, so that it does not queue after other requests."""
    repeated: bool = True
    """False if the caller itself waits for a `Retry-After`, and tries again."""

    @property
    def target(self) -> str:
        """Escaped path and query, without empty parameters."""
        query = urlencode({key: text for key, text in self.params.items() if text})
        return f"{self.path}?{query}" if query else self.path


def selection(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of selectors.

    Raises:
        SelectorSyntaxError: If one of them cannot be parsed.
    """
    LabelSelector.parse(label_selector)
    FieldSelector.parse(field_selector)
    return {"labelSelector": label_selector, "fieldSelector": field_selector}


def create(
    resource: Resource,
    body: Body,
    *,
    namespace: str | None = None,
    dry_run: bool = False,
    field_manager: str | None = None,
) -> Request:
    """Build the request to create an object; fill in a missing type.

    Raises:
        OptionsError: If the namespace is missing or the body cannot be sent.
    """
    check_resource(resource)
    content = _typed(resource, encode(body))
    namespace = namespace or _identity(content).namespace or None
    if resource.namespaced and not namespace:
        raise OptionsError(
            f"{resource} is namespaced: pass a namespace, in the body or by namespace="
        )

    params = _writing(dry_run, field_manager)
    return Request("POST", resource.path(namespace), params, content)


def update(
    resource: Resource,
    body: Body,
    *,
    namespace: str | None = None,
    subresource: str = "",
    dry_run: bool = False,
    field_manager: str | None = None,
) -> Request:
    """Build the request to replace the object that the body names.

    A missing type is filled in.

    Raises:
        OptionsError: If name or namespace are missing or the body cannot be sent.
    """
    check_resource(resource)
    content = encode(body)
    if subresource in _WHOLE:
        content = _typed(resource, content)

    identity = _identity(content)
    if not identity.name:
        raise OptionsError("the body of an update needs metadata.name")

    namespace = namespace or identity.namespace or None
    path = resource.path(namespace, identity.name, subresource)
    return Request("PUT", path, _writing(dry_run, field_manager), content)


def patch(
    resource: Resource,
    name: str,
    body: Body,
    *,
    namespace: str | None = None,
    type: PatchType = "merge",  # noqa: A002 - the API's own word
    subresource: str | None = None,
    dry_run: bool = False,
    field_manager: str | None = None,
    force: bool = False,
) -> Request:
    """Build the request to change parts of an object.

    A missing type, name and namespace are filled in for an apply patch.

    Raises:
        OptionsError: If the options contradict each other or the body cannot be sent.
    """
    if type not in _PATCHES:
        raise OptionsError(f"type must be one of {', '.join(_PATCHES)}, not {type!r}")

    if isinstance(body, list | tuple) and type != "json":
        raise OptionsError(
            f'a list of operations needs type="json": a {type} patch is a part of the object'
        )

    if type == "json" and not isinstance(body, Sequence):
        raise OptionsError(
            "a JSON patch is a list of operations, such as "
            '[{"op": "replace", "path": "/spec/replicas", "value": 3}]: omit type="json" '
            "to send a part of the object"
        )

    if type == "apply" and not field_manager:
        raise OptionsError(
            "an apply patch needs field_manager=, the owner of its fields"
        )

    if force and type != "apply":
        raise OptionsError(f"force=True works only for an apply patch, not for {type}")

    if subresource == "status" and type != "json" and not _has_status(body):
        raise OptionsError(
            'a patch of the status has the key "status": write {"status": {...}}'
        )

    named(resource, name)
    params = _writing(dry_run, field_manager) | ({"force": "true"} if force else {})
    path = resource.path(namespace, name, subresource or "")
    content = encode(body)
    if type == "apply" and (subresource or "") in _WHOLE:
        content = _named_body(_typed(resource, content), name, namespace)

    return Request("PATCH", path, params, content, _PATCHES[type])


def apply(
    resource: Resource,
    body: Body,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
    dry_run: bool = False,
    field_manager: str,
    force: bool = False,
) -> Request:
    """Build the request to apply the object that the body names.

    Raises:
        OptionsError: If name or namespace are missing or the body cannot be sent.
    """
    identity = _identity(encode(body))
    if not identity.name:
        raise OptionsError("the body of an apply needs metadata.name")

    return patch(
        resource,
        identity.name,
        body,
        namespace=namespace or identity.namespace or None,
        type="apply",
        subresource=subresource,
        dry_run=dry_run,
        field_manager=field_manager,
        force=force,
    )


def delete(
    resource: Resource,
    name: str = "",
    *,
    namespace: str | None = None,
    uid: str | None = None,
    propagation: Propagation | None = None,
    grace_seconds: int | None = None,
    dry_run: bool = False,
    params: Mapping[str, str] | None = None,
) -> Request:
    """Build the request to delete one object, or without a name the selected ones.

    Raises:
        OptionsError: If the namespace is missing or an option is unknown.
    """
    if propagation not in {None, "Background", "Foreground", "Orphan"}:
        raise OptionsError(
            f"propagation must be Background, Foreground or Orphan, not {propagation!r}"
        )

    options: dict[str, Any] = {
        "preconditions": {"uid": uid} if uid else None,
        "propagationPolicy": propagation,
        "gracePeriodSeconds": grace_seconds,
        "dryRun": ["All"] if dry_run else None,
    }
    options = {key: value for key, value in options.items() if value is not None}
    envelope = {"apiVersion": "v1", "kind": "DeleteOptions"}
    content = json_codec.dumps(envelope | options) if options else None
    # Repeated in the query: a server that reads a body ignores the query, and one that
    # lost the body must not execute a dry run.
    params = {**(params or {}), **_writing(dry_run, None)}
    return Request("DELETE", resource.path(namespace, name), params, content)


def _has_status(body: Body) -> bool:
    """Tell whether a body is a part of an object: metadata may change with the status."""
    return not isinstance(body, Mapping) or not body.keys().isdisjoint(
        ("status", "metadata")
    )


def named(resource: Resource, name: str) -> str:
    """Return the name.

    Raises:
        OptionsError: If it is empty: the request would address all objects.
    """
    check_resource(resource)
    if not name:
        raise OptionsError(f"the name of an object of {resource} must not be empty")

    if not isinstance(name, str):
        raise OptionsError(
            f"the name of an object of {resource} must be a string, not {shown(name)}: pass "
            "obj.name and namespace=obj.namespace"
        )

    if "/" in name and resource.namespaced:
        namespace, _, rest = name.partition("/")
        raise OptionsError(
            f"invalid name {name!r} for {resource}: pass {rest!r}, namespace={namespace!r}"
        )

    return name


def encode(body: Body) -> bytes:
    """Encode a body as JSON.

    Raises:
        OptionsError: If it is, or contains, a value of an unsupported type.
    """
    try:
        if isinstance(body, KubeObject):
            return body.raw

        if isinstance(body, msgspec.Struct):
            return msgspec.json.encode(body)

        if hasattr(body, "model_dump") or hasattr(body, "openapi_types"):
            body = json_default(body)

        if isinstance(body, Mapping | Sequence) and not isinstance(body, str | bytes):
            return json_codec.dumps(body, default=json_default)

    except (TypeError, ValueError) as exc:
        raise OptionsError(f"the body cannot be encoded as JSON: {exc}") from exc

    raise OptionsError(
        "a body must be a dict, KubeObject, msgspec Struct, Pydantic or kubernetes_asyncio "
        f"model, not {type(body).__name__}"
    )


def plain(body: Body) -> dict[str, Any]:
    """Return a new dict of a body.

    Raises:
        OptionsError: If it is no object, or contains a value of an unsupported type.
    """
    decoded = json_codec.loads(encode(body))
    if not isinstance(decoded, dict):
        raise OptionsError(f"the body is not a Kubernetes object: {shown(decoded)}")

    return decoded


def type_of(body: Body) -> tuple[str, str]:
    """Return the `apiVersion` and the kind of a body.

    Raises:
        OptionsError: If one of them is missing.
    """
    given = _read(encode(body))
    for key, text in (("apiVersion", given.apiVersion), ("kind", given.kind)):
        if not text or not isinstance(text, str):
            raise OptionsError(f"the body has no {key}: add it, or pass resource=")

    return given.apiVersion, given.kind


class _Metadata(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None


class _Named(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    # Of any type: the server reports wrong ones.
    apiVersion: Any = None  # noqa: N815 - the name in JSON
    kind: Any = None


def _typed(resource: Resource, content: bytes) -> bytes:
    """Fill in a missing apiVersion and kind, if the resource knows them.

    Servers know the type of built-in kinds, but not of custom resources, and items of
    their lists do not contain it.

    Raises:
        OptionsError: If it is not an object.
    """
    given = _read(content)
    known = {"apiVersion": resource.api_version, "kind": resource.kind}
    missing = {
        key: text
        for key, text in known.items()
        if text and getattr(given, key) in (None, "")
    }
    if not missing:
        return content

    # First, where a reader expects them.
    return json_codec.dumps(missing | json_codec.loads(content) | missing)


def _named_body(content: bytes, name: str, namespace: str | None) -> bytes:
    """Fill in a missing name and namespace, which the server requires in an apply."""
    given = _identity(content)
    missing = {"name": name} if not given.name else {}
    if namespace and not given.namespace:
        missing["namespace"] = namespace

    if not missing:
        return content

    body = json_codec.loads(content)
    body["metadata"] = {**(body.get("metadata") or {}), **missing}
    return json_codec.dumps(body)


def _identity(content: bytes) -> _Metadata:
    return _read(content).metadata


def _read(content: bytes) -> _Named:
    try:
        return msgspec.json.decode(content, type=_Named)
    except msgspec.DecodeError as exc:
        raise OptionsError(f"the body is not a Kubernetes object: {exc}") from exc


def _writing(dry_run: bool, field_manager: str | None) -> dict[str, str]:
    return {"dryRun": "All" if dry_run else "", "fieldManager": field_manager or ""}
