"""Documents: what a server says about itself, and in which format. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from aioinformer.testing import statuses
from aioinformer.testing.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AGGREGATED",
    "Document",
    "negotiated",
    "no_such_page",
    "shown",
    "tag_of",
    "unchanged",
]

_JSON = "application/json"
_YAML = "application/yaml"
_TEXT = "text/plain; charset=utf-8"
_ANY = frozenset({"application/json", "application/*", "*/*"})
# Texts are not to be taken for anything else, whatever they look like.
_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}

# The media type of a list of all groups with all of their resources.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One answer that is not about a stored object."""

    body: bytes

    content_type: str = _JSON

    headers: Mapping[str, str] = field(default_factory=dict)
    """Besides the content type."""

    status: int = 200
    """Of HTTP."""

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> Document:
        """Make a document that people read."""
        return cls(
            body=text.encode(), content_type=_TEXT, headers=_NO_SNIFFING, status=status
        )

    @classmethod
    def indented(cls, value: Mapping[str, Any]) -> Document:
        """Make a document of JSON that a server always writes for people."""
        return cls(body=orjson.dumps(value, option=orjson.OPT_INDENT_2))


def no_such_page() -> Document:
    """Answer for a path of which not even the API group is known."""
    return Document.text("404 page not found\n", status=404)


def negotiated(headers: Mapping[str, str], *, aggregated: bool = False) -> str:
    """Choose the first media type that is accepted and can be written.

    Args:
        headers: Of the request; `Accept` decides.
        aggregated: `AGGREGATED` is among those that can be written.

    Raises:
        ApiError: 406, if there is none.
    """
    for item in (headers.get("Accept") or "*/*").split(","):
        media, *rest = [part.strip() for part in item.split(";")]
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        if "as" not in parameters and media in _ANY:
            return _JSON

        if "as" not in parameters and media == _YAML:
            return _YAML

        if aggregated and media == _JSON and _AGGREGATED.items() <= parameters.items():
            return AGGREGATED

    message = f"only the following media types are accepted: {_JSON}, {_YAML}"
    raise statuses.failure(406, "NotAcceptable", message)


def shown(value: Mapping[str, Any], media: str) -> Document:
    """Write a document in a format that was negotiated."""
    if media == _YAML:
        text = yaml.safe_dump(value, allow_unicode=True)
        return Document(body=text.encode(), content_type=_YAML)

    return Document(body=plain(value) + b"\n", content_type=media)


def tag_of(body: bytes) -> str:
    """Make the tag by which a client knows a document again, without quotes."""
    return hashlib.sha512(body).hexdigest().upper()


def unchanged(headers: Mapping[str, str], tag: str) -> bool:
    """Say whether a client has the document with this tag already."""
    return f'"{tag}"' in headers.get("If-None-Match", "")
