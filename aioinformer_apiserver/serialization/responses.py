"""Answers: what is sent back, made of what has been done. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.requests.request import Request
from aioinformer_apiserver.serialization.formats import shown_plainly
from aioinformer_apiserver.storage.encoding import status_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.requests.options import Deleted
    from aioinformer_apiserver.requests.routes import Target
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.storage import Stored

__all__ = [
    "Response",
    "deletion_response",
    "document_response",
    "error_response",
    "object_response",
    "with_warnings",
]

# How many characters of warnings an answer carries; if there are more, also how many of
# one of them.
_MOST_WARNED = 4096
_MOST_OF_ONE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is answered, if no fault intervenes."""

    status: int = 200
    body: Iterable[bytes] = ()
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """For the user to read; each becomes a header `Warning`."""


def document_response(
    content: dict[str, Any], request: Request, *, status: int = 200
) -> Response:
    """Answer with what is no stored object, in the format that was asked for."""
    media, body = shown_plainly(content, request.headers, request.query)
    return Response(status=status, body=[body], content_type=media)


def error_response(error: ApiError, request: Request | None = None) -> Response:
    """Answer with an error, as the call would have it written; if it is known."""
    asked = request or Request(method="", path="")
    response = document_response(status_of(error), asked, status=error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(int(error.retry_after))

    return response


def object_response(shown: Format, stored: Stored, *, status: int = 200) -> Response:
    """Answer with one object, in the format that was asked for."""
    body = [shown.object(stored)]
    return Response(status=status, body=body, content_type=shown.content_type)


def deletion_response(
    request: Request, target: Target, shown: Format, deleted: Deleted
) -> Response:
    """Answer a deletion: with the object if it waits, with a Status if it is gone."""
    if deleted.shown:
        return object_response(shown, deleted.stored)

    return document_response(_success(target, deleted.stored.uid), request)


def with_warnings(response: Response, warnings: Iterable[str]) -> Response:
    """Add warnings for the user to an answer, each once.

    If they are too long in all they are cut, and what is still too much is left out: the
    head of an answer is of a size that clients accept.
    """
    texts = list(dict.fromkeys(warnings))
    if sum(map(len, texts)) > _MOST_WARNED:
        texts = _shortened(texts)

    return replace(response, warnings=tuple(texts)) if texts else response


def _shortened(warnings: Iterable[str]) -> list[str]:
    found: list[str] = []
    length = 0
    for text in warnings:
        if length < _MOST_WARNED:
            found.append(text[:_MOST_OF_ONE])
            length += len(found[-1])

    return found


def _success(target: Target, uid: str) -> dict[str, Any]:
    """Make the Status that says that an object is gone; it names no version."""
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
