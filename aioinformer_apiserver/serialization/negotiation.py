"""Negotiation: which of the formats that a client accepts it is answered in. Pure.

Two readers of `Accept` stand one behind the other, as in a real server. The router
refuses what names no type of the route to the letter, so that even `application/*` is
not understood, and it knows nothing of custom resources. Behind it, wildcards, weights
and parameters count.
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
    "accepted",
    "check_document_route",
    "check_route",
    "chosen",
    "chosen_aggregated",
    "chosen_for_document",
    "chosen_plainly",
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
"""What an object, or a document of discovery, is turned into before it is shown."""

_TRANSFORMS: dict[str, Transform] = {
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadataList",
}
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = frozenset({"v1", "v1beta1"})
_AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}

# What a real server writes. The last one is not written here; those who accept it accept
# JSON as well, and whoever does not is told the same as by a real server.
_TYPES = (JSON, YAML, "application/vnd.kubernetes.protobuf")
_STREAM_TYPES = (
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
)

# User agents of people, who want to read the answer.
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")

# How Go spells it.
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a client and this server agree upon."""

    media: str = JSON
    """`application/json` or `application/yaml`."""

    transform: Transform = ""
    """Empty: none, objects are shown whole."""

    version: str = "v1"
    """Of what the object is turned into."""

    pretty: bool = False
    """JSON is indented."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """One of the alternatives of `Accept`."""

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
    """Refuse what the router of the built-in kinds does not understand.

    Args:
        accept: The header; empty if there is none.
        streams: The path is that of a collection that is read, so it may be watched.

    Raises:
        ApiError: 406, if no type of the route is named.
    """
    _check_named(accept, (*_TYPES, *_STREAM_TYPES) if streams else _TYPES)


def check_document_route(headers: Mapping[str, str], *, json_only: bool) -> None:
    """Refuse what the router does not understand before most documents of discovery.

    It looks at the type of a body even where there is none.

    Args:
        headers: Of the request: `Content-Type` and `Accept`.
        json_only: The document has no other format.

    Raises:
        ApiError: 415, if another type is named for the body; 406, if no type of the
            document is named.
    """
    types = (JSON,) if json_only else _TYPES
    sent = headers.get("Content-Type") or ""
    if sent and _named(sent).isdisjoint(types):
        raise statuses.unsupported_by_route()

    _check_named(headers.get("Accept") or "", types)


def _check_named(accept: str, types: tuple[str, ...]) -> None:
    if _named(accept or "*/*").isdisjoint({"*/*", *types}):
        offer = ", ".join(types)
        message = f"406: Not Acceptable\n\nAvailable representations: {offer}"
        raise statuses.failure(406, "NotAcceptable", message)


def _named(header: str) -> set[str]:
    return {item.partition(";")[0].strip(" ") for item in header.split(",")}


def chosen(
    headers: Mapping[str, str], query: Mapping[str, str], *, watch: bool = False
) -> Choice:
    """Choose the first format that is accepted and can be written.

    Args:
        headers: Of the request: `Accept`, and `User-Agent` for `pretty`.
        query: Of the request: `pretty`.
        watch: It has to be a format that streams.

    Raises:
        ApiError: 406, if there is none.
    """
    found = _choice(headers, query, _transform)
    if found is None:
        raise _not_acceptable(*_TYPES)

    if watch and found.media != JSON:
        raise _not_acceptable(*_STREAM_TYPES)

    return found


def chosen_plainly(
    headers: Mapping[str, str], query: Mapping[str, str]
) -> Choice | None:
    """Choose a format for what cannot be transformed, such as a Status.

    Returns:
        None if there is none: a real server then writes it in its own way.
    """
    return _choice(headers, query, _plain)


def chosen_for_document(headers: Mapping[str, str], query: Mapping[str, str]) -> Choice:
    """Choose a format for a document of discovery.

    Raises:
        ApiError: 406, if there is none.
    """
    found = _choice(headers, query, _plain)
    if found is None:
        raise _not_acceptable(*_TYPES)

    return found


def chosen_aggregated(
    headers: Mapping[str, str], query: Mapping[str, str]
) -> Choice | None:
    """Choose a format for the aggregated document of discovery.

    Returns:
        None for those who do not know that document. Whoever does gets it, even if
        another one is preferred.
    """
    return _choice(headers, query, _aggregated)


def accepted(headers: Mapping[str, str], *offers: str) -> str | None:
    """Choose the first of some media types that is accepted; None if there is none."""
    for clause in _clauses(headers.get("Accept") or "*/*"):
        for media in offers:
            if clause.matches(media):
                return media

    return None


def _choice(
    headers: Mapping[str, str],
    query: Mapping[str, str],
    read: Callable[[Mapping[str, str]], Transform | None],
) -> Choice | None:
    """Choose the first clause whose transform can be read from its parameters."""
    for clause in _clauses(headers.get("Accept") or "*/*"):
        media = next((it for it in (JSON, YAML) if clause.matches(it)), None)
        transform = read(clause.parameters)
        if media is None or transform is None or not _streams(clause, media):
            continue

        return Choice(
            media=media,
            transform=transform,
            version=clause.parameters.get("v", "v1") if transform else "v1",
            pretty=_is_pretty(clause.parameters, headers, query),
        )

    return None


def _clauses(accept: str) -> list[_Clause]:
    """Read the alternatives, the weightiest first, then in the order given."""
    clauses = list(_parsed(accept))
    clauses.sort(key=lambda it: (-it.weight, it.type == "*", it.subtype == "*"))
    return clauses


def _parsed(accept: str) -> Iterator[_Clause]:
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
    """Return what is asked for; None if there is no such thing."""
    if not any(parameters.get(key) for key in ("as", "g", "v")):
        return ""

    if parameters.get("g") != _META_GROUP or parameters.get("v") not in _META_VERSIONS:
        return None

    return _TRANSFORMS.get(parameters.get("as", ""))


def _plain(parameters: Mapping[str, str]) -> Transform | None:
    return "" if _transform(parameters) == "" else None


def _aggregated(parameters: Mapping[str, str]) -> Transform | None:
    is_asked = _AGGREGATED.items() <= parameters.items()
    return "APIGroupDiscoveryList" if is_asked else None


def _streams(clause: _Clause, media: str) -> bool:
    """Say whether the schema of streams that is asked for, if any, is known."""
    schema = clause.parameters.get("stream", "")
    return not schema or (schema == "watch" and media == JSON)


def _is_pretty(
    parameters: Mapping[str, str], headers: Mapping[str, str], query: Mapping[str, str]
) -> bool:
    if parameters.get("pretty") == "1":
        return True

    if asked := query.get("pretty"):
        return asked in _TRUE

    return headers.get("User-Agent", "").startswith(_PEOPLE)


def _not_acceptable(*types: str) -> ApiError:
    message = f"only the following media types are accepted: {', '.join(types)}"
    return statuses.failure(406, "NotAcceptable", message)
