"""The errors of an API server, with its codes, reasons and messages.

They are the `ApiError`s that a client raises. So methods that arrange objects without
HTTP raise the same errors as a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer.errors import ApiError, ResourceExpired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.model import Resource

__all__ = [
    "ExpiredToken",
    "StatusCause",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "expired_token",
    "failure",
    "forbidden",
    "internal_error",
    "invalid",
    "invalid_options",
    "method_not_allowed",
    "no_such_path",
    "not_found",
    "of_code",
    "quote",
    "too_large_version",
    "unauthorized",
    "unsupported_by_route",
    "unsupported_media_type",
]

# Default reason and message of each code.
_BY_CODE: dict[int, tuple[str, str]] = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: (
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    ),
    409: ("Conflict", "the server reported a conflict"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    413: ("RequestEntityTooLarge", "the request is too large"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "Internal error occurred"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the request did not complete within the allotted time"),
}

# Control characters for which Go has an escape letter.
_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


class StatusCause(NamedTuple):
    """Cause of an error in one field.

    Attributes:
        field: Path such as `"metadata.name"`.
        reason: Machine-readable reason, such as `"FieldValueRequired"`.
        message: Human-readable message.
    """

    field: str
    reason: str
    message: str


class ExpiredToken(ResourceExpired):
    """410 for a continue token of a compacted version.

    Attributes:
        token: Token for the rest of the list at the newest version, which may be
            inconsistent with the previous pages.
    """

    token = ""


def failure(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> ApiError:
    """Make an error of the class for `code` and `reason`."""
    status = {"code": code, "reason": reason, "message": message, "details": details}
    return ApiError.from_status(status)


def of_code(
    code: int,
    *,
    reason: str = "",
    message: str = "",
    retry_after: int | None = None,
) -> ApiError:
    """Make an error with the defaults of an HTTP status code."""
    usual = _BY_CODE.get(code, ("", f"the server answered {code}"))
    details = None if retry_after is None else {"retryAfterSeconds": retry_after}
    return failure(code, reason or usual[0], message or usual[1], details)


def not_found(resource: Resource, name: str) -> ApiError:
    """Make the error for a missing object."""
    message = f"{resource} {quote(name)} not found"
    return failure(404, "NotFound", message, _details(resource, name))


def no_such_path() -> ApiError:
    """Make the error for a path where nothing is served."""
    return of_code(404)


def method_not_allowed() -> ApiError:
    """Make the error for a path that does not support the method."""
    return of_code(405)


def unauthorized() -> ApiError:
    """Make the error for an unknown token."""
    return of_code(401)


def unsupported_media_type(*accepted: str) -> ApiError:
    """Make the error for a body of an unsupported media type."""
    message = "the body of the request was in an unknown format - accepted media "
    message += f"types include: {', '.join(accepted)}"
    return failure(415, "UnsupportedMediaType", message)


def unsupported_by_route() -> ApiError:
    """Make the router's error for a body of an unsupported media type."""
    return failure(415, "UnsupportedMediaType", "415: Unsupported Media Type")


def already_exists(resource: Resource, name: str) -> ApiError:
    """Make the error for a create with a name in use."""
    message = f'{resource} "{name}" already exists'
    return failure(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    """Make the error for an object in another state than the request expects."""
    why = why or (
        "the object has been modified; please apply your changes to the latest "
        "version and try again"
    )
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return failure(409, "Conflict", message, _details(resource, name))


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """Make the error for a write that the state of the object forbids."""
    message = f'{resource} "{name}" is forbidden: {why}'
    return failure(403, "Forbidden", message, _details(resource, name))


def bad_request(message: str) -> ApiError:
    """Make the error for a malformed request."""
    return failure(400, "BadRequest", message)


def internal_error(message: str) -> ApiError:
    """Make the error for a failure that is not the client's."""
    causes = {"causes": [{"message": message}]}
    text = f"Internal error occurred: {message}"
    return failure(500, "InternalError", text, causes)


def invalid(
    kind: str, group: str, name: str, *, field: str, reason: str, problem: str
) -> ApiError:
    """Make the error for one invalid field of an object or of options.

    Args:
        kind: Kind of the object, such as `"Pod"`.
        group: API group; empty for the core group.
        name: Name of the object; may be empty.
        field: Path of the field, such as `"metadata.name"`.
        reason: Machine-readable reason, such as `"FieldValueRequired"`.
        problem: Human-readable message.
    """
    title = f"{kind}.{group}" if group else kind
    cause = {"reason": reason, "message": problem, "field": field}
    details = {"name": name, "group": group, "kind": kind, "causes": [cause]}
    message = f'{title} "{name}" is invalid: {field}: {problem}'
    kept = {key: value for key, value in details.items() if value}
    return failure(422, "Invalid", message, kept)


def invalid_options(
    causes: Sequence[StatusCause], kind: str = "ListOptions"
) -> ApiError:
    """Make the error for invalid or contradictory options of a request.

    Args:
        causes: One or more causes.
        kind: Kind of the options, such as `"PatchOptions"`.
    """
    texts = [f"{it.field}: {it.message}" for it in causes]
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [
            {"reason": it.reason, "message": it.message, "field": it.field}
            for it in causes
        ],
    }
    message = f'{kind}.meta.k8s.io "" is invalid: {why}'
    return failure(422, "Invalid", message, details)


def expired(message: str) -> ApiError:
    """Make the error for a version that is older than the history."""
    return failure(410, "Expired", message)


def expired_token(token: str) -> ApiError:
    """Make the error for a continue token of a compacted version.

    Args:
        token: Token for the rest of the list at the newest version.
    """
    error = ExpiredToken(
        "The provided continue parameter is too old to display a consistent list "
        "result. You can start a new list without the continue parameter, or use the "
        "continue token in this response to retrieve the remainder of the results. "
        "Continuing with the provided token results in an inconsistent list - objects "
        "that were created, modified, or deleted between the time the first chunk was "
        "returned and now may show up in the list.",
        status=410,
        reason="Expired",
    )
    error.token = token
    return error


def too_large_version(
    version: int, current: int, *, retry_after: int | None = 1
) -> ApiError:
    """Make the error for a future version that was not reached in time.

    Args:
        version: Requested version.
        current: Newest version.
        retry_after: Suggested delay in seconds; None for no suggestion.
    """
    cause = {
        "reason": "ResourceVersionTooLarge",
        "message": "Too large resource version",
    }
    details: dict[str, Any] = {"causes": [cause]}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after

    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return failure(504, "Timeout", message, details)


def quote(text: str) -> str:
    """Return a text in double quotes, escaped as in Go."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    if not shown.isprintable():
        shown = "".join(it if it.isprintable() else _escape(it) for it in shown)

    return f'"{shown}"'


def _escape(letter: str) -> str:
    code = ord(letter)
    if letter in _ESCAPES:
        return _ESCAPES[letter]

    if code < 0x80:
        return f"\\x{code:02x}"

    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
