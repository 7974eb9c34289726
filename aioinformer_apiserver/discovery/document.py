"""Documents: what a server says about itself, and in which format. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.serialization.negotiation import chosen_for_document
from aioinformer_apiserver.serialization.writers import writer_of
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.requests.request import Call

__all__ = [
    "Document",
    "no_such_page",
    "shown",
    "tag_of",
    "unchanged",
]

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
# Texts are not to be taken for anything else, whatever they look like.
_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}


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


def shown(value: Mapping[str, Any], call: Call) -> Document:
    """Write a document as the request would have it.

    Raises:
        ApiError: 406, if it accepts nothing that can be written.
    """
    writer = writer_of(chosen_for_document(call.headers, call.query))
    return Document(body=writer.document(plain(value)), content_type=writer.media)


def tag_of(body: bytes) -> str:
    """Make the tag by which a client knows a document again, without quotes."""
    return hashlib.sha512(body).hexdigest().upper()


def unchanged(headers: Mapping[str, str], tag: str) -> bool:
    """Say whether a client has the document with this tag already."""
    return f'"{tag}"' in headers.get("If-None-Match", "")
