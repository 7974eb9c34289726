"""Content negotiation: the format of a response by the headers of its request. Pure.

As in a real server, two parsers of `Accept` follow each other. The router requires the
exact name of a media type of the route, so that it rejects `application/*`. It does not
apply to custom resources. After it, wildcards, weights and parameters count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioinformer.errors import ApiError

__all__ = [
    "Choice",
    "Transform",
    "check_document_route",
    "check_route",
    "first_accepted",
    "negotiate",
    "negotiate_aggregated",
    "negotiate_document",
    "negotiate_plain",
]

JSON = "application/json"
YAML = "application/yaml"

Transform = Literal[
    "",
    "Table",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
    "APIGroupDiscoveryList",
]
"""Conversion of an object or a discovery document before it is encoded."""

_TRANSFORMS: dict[str, Transform] = {
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadataList",
}
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = frozenset({"v1", "v1beta1"})
_AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}

_MANAGED_FIELDS = "metadata.managedFields"

# Media types of a real server. This server does not write the last one. Most clients
# that accept it accept JSON too; others get the error of a real server.
_TYPES = (JSON, YAML, "application/vnd.kubernetes.protobuf")
_STREAM_TYPES = (
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
)

# User agents that get indented JSON.
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")

# Spelling of Go.
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Negotiated format."""

    media: str = JSON
    """`application/json` or `application/yaml`."""

    transform: Transform = ""
    """Conversion; empty for whole objects."""

    version: str = "v1"
    """Version of the converted object."""

    pretty: bool = False
    """True for indented JSON."""

    drops_managed_fields: bool = False
    """True to leave out the managed fields of all objects."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """One alternative of `Accept`."""

    type: str
    subtype: str
    weight: float
    parameters: Mapping[str, str]

    def matches(self, media: str) -> bool:
        type_, _, subtype = media.partition("/")
        if self.type == "*" and self.subtype == "*":
            return True

        return self.type == type_ and self.subtype in {subtype, "*"}


def check_route(accept: str, *, streams: bool) -> None:
    """Check `Accept` as the router of the built-in kinds does.

    Args:
        accept: Value of the header; empty if it is missing.
        streams: True if the path supports watches.

    Raises:
        ApiError: 406, if the header names no media type of the route.
    """
    _check_named_types(accept, (*_TYPES, *_STREAM_TYPES) if streams else _TYPES)


def check_document_route(headers: Mapping[str, str], *, json_only: bool) -> None:
    """Check headers as the router of most discovery documents does.

    It checks the media type of the body even if there is no body.

    Args:
        headers: Headers of the request: `Content-Type` and `Accept`.
        json_only: True if the document is available in JSON only.

    Raises:
        ApiError: 415 for an unsupported type of the body, 406 if `Accept` names no type
            of the document.
    """
    types = (JSON,) if json_only else _TYPES
    sent = headers.get("Content-Type") or ""
    if sent and _named_types(sent).isdisjoint(types):
        raise statuses.unsupported_by_route()

    _check_named_types(headers.get("Accept") or "", types)


def _check_named_types(accept: str, types: tuple[str, ...]) -> None:
    if _named_types(accept or "*/*").isdisjoint({"*/*", *types}):
        offer = ", ".join(types)
        message = f"406: Not Acceptable\n\nAvailable representations: {offer}"
        raise statuses.failure(406, "NotAcceptable", message)


def _named_types(header: str) -> set[str]:
    return {item.partition(";")[0].strip(" ") for item in header.split(",")}


def negotiate(
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    watch: bool = False,
    may_drop: bool = False,
) -> Choice:
    """Choose the first format that the client accepts and the server supports.

    Args:
        headers: Headers of the request: `Accept`, and `User-Agent` for `pretty`.
        query: Query of the request: `pretty`.
        watch: True to choose a streaming format.
        may_drop: True to support `drop=metadata.managedFields`; False to ignore it, and
            any other `drop`.

    Raises:
        ApiError: 406, if there is none.
    """
    found = _choice(headers, query, _transform, may_drop=may_drop)
    if found is None:
        raise _not_acceptable(*_TYPES)

    if watch and found.media != JSON:
        raise _not_acceptable(*_STREAM_TYPES)

    return found


def negotiate_plain(
    headers: Mapping[str, str], query: Mapping[str, str]
) -> Choice | None:
    """Choose a format for an object without conversions, such as a Status.

    Returns:
        Format; None if there is none, so that the server uses its default.
    """
    return _choice(headers, query, _no_transform)


def negotiate_document(headers: Mapping[str, str], query: Mapping[str, str]) -> Choice:
    """Choose a format for a discovery document.

    Raises:
        ApiError: 406, if there is none.
    """
    found = _choice(headers, query, _no_transform)
    if found is None:
        raise _not_acceptable(*_TYPES)

    return found


def negotiate_aggregated(
    headers: Mapping[str, str], query: Mapping[str, str]
) -> Choice | None:
    """Choose a format for aggregated discovery.

    Returns:
        Format; None if the client does not accept aggregated discovery. A client that
        accepts it gets it, even if it prefers another format.
    """
    return _choice(headers, query, _aggregated_transform)


def first_accepted(headers: Mapping[str, str], *offers: str) -> str | None:
    """Return the first accepted media type of some offers; None if there is none."""
    for clause in _clauses(headers.get("Accept") or "*/*"):
        for media in offers:
            if clause.matches(media):
                return media

    return None


def _choice(
    headers: Mapping[str, str],
    query: Mapping[str, str],
    read: Callable[[Mapping[str, str]], Transform | None],
    *,
    may_drop: bool = False,
) -> Choice | None:
    """Choose the first clause with a supported conversion."""
    for clause in _clauses(headers.get("Accept") or "*/*"):
        media = next((it for it in (JSON, YAML) if clause.matches(it)), None)
        transform = read(clause.parameters)
        if media is None or transform is None or not _streams(clause, media):
            continue

        dropped = clause.parameters.get("drop", "") if may_drop else ""
        if dropped not in {"", _MANAGED_FIELDS}:
            continue

        return Choice(
            media=media,
            transform=transform,
            version=clause.parameters.get("v", "v1") if transform else "v1",
            pretty=_is_pretty(clause.parameters, headers, query),
            drops_managed_fields=bool(dropped),
        )

    return None


def _clauses(accept: str) -> list[_Clause]:
    """Parse the alternatives by descending weight, then in the given order."""
    clauses = list(_parse_clauses(accept))
    clauses.sort(key=lambda it: (-it.weight, it.type == "*", it.subtype == "*"))
    return clauses


def _parse_clauses(accept: str) -> Iterator[_Clause]:
    for item in accept.split(","):
        media, *rest = [part.strip() for part in item.split(";")]
        type_, slash, subtype = media.partition("/")
        if not slash and type_ != "*":
            continue

        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip() for key, _, value in pairs}
        weight = _weight(parameters.pop("q", "1"))
        yield _Clause(type_, subtype if slash else "*", weight, parameters)


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _transform(parameters: Mapping[str, str]) -> Transform | None:
    """Return the requested conversion; None if it is not supported."""
    if not any(parameters.get(key) for key in ("as", "g", "v")):
        return ""

    if parameters.get("g") != _META_GROUP or parameters.get("v") not in _META_VERSIONS:
        return None

    return _TRANSFORMS.get(parameters.get("as", ""))


def _no_transform(parameters: Mapping[str, str]) -> Transform | None:
    return "" if _transform(parameters) == "" else None


def _aggregated_transform(parameters: Mapping[str, str]) -> Transform | None:
    is_requested = _AGGREGATED.items() <= parameters.items()
    return "APIGroupDiscoveryList" if is_requested else None


def _streams(clause: _Clause, media: str) -> bool:
    """Return whether the requested stream schema, if any, is supported."""
    schema = clause.parameters.get("stream", "")
    return not schema or (schema == "watch" and media == JSON)


def _is_pretty(
    parameters: Mapping[str, str], headers: Mapping[str, str], query: Mapping[str, str]
) -> bool:
    if parameters.get("pretty") == "1":
        return True

    if requested := query.get("pretty"):
        return requested in _TRUE

    return headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)


def _not_acceptable(*types: str) -> ApiError:
    message = f"only the following media types are accepted: {', '.join(types)}"
    return statuses.failure(406, "NotAcceptable", message)
