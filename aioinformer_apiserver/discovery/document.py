"""Helpers for responses about the server itself, and its health checks. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.serialization.encoders import encoder_of
from aioinformer_apiserver.serialization.negotiation import negotiate_document
from aioinformer_apiserver.serialization.responses import APIResponse
from aioinformer_apiserver.storage.encoding import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.requests.request import APIRequest

__all__ = [
    "etag_of",
    "health_at",
    "indented_document",
    "is_unchanged",
    "json_document",
    "no_such_page",
    "text_document",
]

_TEXT = "text/plain; charset=utf-8"
_HEALTH_ROOTS = frozenset({"healthz", "livez", "readyz"})
# The server has no external storage or other component that could fail.
_HEALTH_CHECKS = ("ping",)


def text_document(text: str, *, status: int = 200) -> APIResponse:
    """Return a plain text, which browsers must not take for anything else."""
    return APIResponse(
        body=[text.encode()],
        content_type=_TEXT,
        headers={"X-Content-Type-Options": "nosniff"},
        status=status,
    )


def indented_document(value: Mapping[str, Any]) -> APIResponse:
    """Return JSON that a real server always indents."""
    return APIResponse(body=[orjson.dumps(value, option=orjson.OPT_INDENT_2)])


def json_document(value: Mapping[str, Any], request: APIRequest) -> APIResponse:
    """Return a document in the format that the request accepts.

    Raises:
        ApiError: 406, if it accepts no supported format.
    """
    encoder = encoder_of(negotiate_document(request.headers, request.query))
    return APIResponse(
        body=[encoder.document(plain(value))], content_type=encoder.media
    )


def no_such_page() -> APIResponse:
    """Return the 404 for a path without any API group."""
    return text_document("404 page not found\n", status=404)


def etag_of(body: bytes) -> str:
    """Return the ETag of a document, without quotes."""
    return hashlib.sha512(body).hexdigest().upper()


def is_unchanged(headers: Mapping[str, str], tag: str) -> bool:
    """Return whether a client already has the document with this ETag."""
    return f'"{tag}"' in headers.get("If-None-Match", "")


def health_at(request: APIRequest) -> APIResponse | None:
    """Return the response to a health check; None for other paths."""
    root, *checks = request.path.removeprefix("/").split("/")
    if (
        root not in _HEALTH_ROOTS
        or len(checks) > 1
        or not set(checks) <= set(_HEALTH_CHECKS)
    ):
        return None

    if checks:
        return APIResponse(body=[b"ok"], content_type=_TEXT)

    if "verbose" not in request.query:
        return text_document("ok")

    excluded = request.query.get("exclude", "")
    lines = [
        f"[+]{name} excluded: ok" if name == excluded else f"[+]{name} ok"
        for name in _HEALTH_CHECKS
    ]
    return text_document("\n".join([*lines, f"{root} check passed\n"]))
