"""Responses: objects, errors, documents and plain texts. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.requests.request import APIRequest
from aioinformer_apiserver.serialization.encoders import encoder_of
from aioinformer_apiserver.serialization.formats import encode_document
from aioinformer_apiserver.serialization.negotiation import negotiate_document
from aioinformer_apiserver.storage.encoding import plain, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.requests.options import DeleteResult
    from aioinformer_apiserver.requests.routes import Target
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = [
    "APIResponse",
    "deletion_response",
    "document_response",
    "error_response",
    "etag_of",
    "indented_response",
    "json_response",
    "matches_etag",
    "object_response",
    "page_not_found",
    "text_response",
    "with_warnings",
]

# Maximum length of all warnings of a response, and of each one if there are more.
_MAX_WARNINGS_LENGTH = 4096
_MAX_WARNING_LENGTH = 256
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class APIResponse:
    """A response before any fault changes it."""

    status: int = 200
    body: Iterable[bytes] = ()
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """Warnings for the user; each becomes a `Warning` header."""


def document_response(
    content: dict[str, Any], request: APIRequest, *, status: int = 200
) -> APIResponse:
    """Return an object that is not stored, in the requested format."""
    media, body = encode_document(content, request.headers, request.query)
    return APIResponse(status=status, body=[body], content_type=media)


def error_response(error: ApiError, request: APIRequest | None = None) -> APIResponse:
    """Return an error, in the format of the request if that is known."""
    about = request or APIRequest(method="", path="")
    response = document_response(status_of(error), about, status=error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(int(error.retry_after))

    return response


def object_response(
    shown: Format, stored: StoredObject, *, status: int = 200
) -> APIResponse:
    """Return a stored object, in the requested format."""
    body = [shown.object(stored)]
    return APIResponse(status=status, body=body, content_type=shown.content_type)


def deletion_response(
    request: APIRequest, target: Target, shown: Format, deleted: DeleteResult
) -> APIResponse:
    """Return the object if it is still there after its deletion, otherwise a Status."""
    if deleted.returned:
        return object_response(shown, deleted.stored)

    return document_response(_success(target, deleted.stored.uid), request)


def text_response(text: str, *, status: int = 200) -> APIResponse:
    """Return a plain text, and forbid browsers to detect another type."""
    return APIResponse(
        body=[text.encode()],
        content_type=_TEXT,
        headers={"X-Content-Type-Options": "nosniff"},
        status=status,
    )


def indented_response(value: Mapping[str, Any]) -> APIResponse:
    """Return JSON that a real server always indents."""
    return APIResponse(body=[json_codec.dumps(value, option=json_codec.OPT_INDENT_2)])


def json_response(value: Mapping[str, Any], request: APIRequest) -> APIResponse:
    """Return a document in the format that the request accepts.

    Raises:
        ApiError: 406, if it accepts no supported format.
    """
    encoder = encoder_of(negotiate_document(request.headers, request.query))
    return APIResponse(
        body=[encoder.document(plain(value))], content_type=encoder.media
    )


def page_not_found() -> APIResponse:
    """Return the 404 for a path without any API group."""
    return text_response("404 page not found\n", status=404)


def etag_of(body: bytes) -> str:
    """Return the ETag of a document, without quotes."""
    return hashlib.sha512(body).hexdigest().upper()


def matches_etag(headers: Mapping[str, str], tag: str) -> bool:
    """Return whether a client already has the document with this ETag."""
    return f'"{tag}"' in headers.get("If-None-Match", "")


def with_warnings(response: APIResponse, warnings: Iterable[str]) -> APIResponse:
    """Add unique warnings to a response.

    Long warnings are truncated, and excess ones dropped, so that clients accept the
    size of the head.
    """
    texts = list(dict.fromkeys(warnings))
    if sum(map(len, texts)) > _MAX_WARNINGS_LENGTH:
        texts = _truncate(texts)

    return replace(response, warnings=tuple(texts)) if texts else response


def _truncate(warnings: Iterable[str]) -> list[str]:
    found: list[str] = []
    length = 0
    for text in warnings:
        if length < _MAX_WARNINGS_LENGTH:
            found.append(text[:_MAX_WARNING_LENGTH])
            length += len(found[-1])

    return found


def _success(target: Target, uid: str) -> dict[str, Any]:
    """Make the Status for a deleted object, which has no version."""
    resource = target.collection.kind.resource
    details = {
        "name": target.name,
        "group": resource.group,
        "kind": resource.plural,
        "uid": uid,
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
