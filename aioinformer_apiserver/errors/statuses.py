"""Refusals: the errors of an API server, in its own words, reasons and codes.

They are the `ApiError`s that a client raises for them, so that arranging a test without
HTTP fails in the same way as a client would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aioinformer.errors import ApiError, ResourceExpired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.model.resource import Resource

__all__ = [
    "Cause",
    "ExpiredToken",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "expired_token",
    "failure",
    "forbidden",
    "invalid",
    "invalid_options",
    "method_not_allowed",
    "no_such_path",
    "not_found",
    "of_code",
    "quoted",
    "too_large_version",
    "unauthorized",
    "unsupported_by_route",
    "unsupported_media_type",
]

# Reason and message for a code about which nothing else is known.
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

# How Go writes what cannot be seen, where it has a letter for it.
_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


class Cause(NamedTuple):
    """What is wrong with one field.

    Attributes:
        field: Its path, such as `"metadata.name"`.
        reason: For machines, such as `"FieldValueRequired"`.
        problem: For people.
    """

    field: str
    reason: str
    problem: str


class ExpiredToken(ResourceExpired):
    """A continue token is of a version that is forgotten: 410.

    Attributes:
        token: Lists the rest as it is now, which may not fit to the pages before.
    """

    token = ""


def failure(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> ApiError:
    """Make an error of the class that belongs to `code` and `reason`."""
    status = {"code": code, "reason": reason, "message": message, "details": details}
    return ApiError.from_status(status)


def of_code(
    code: int,
    *,
    reason: str = "",
    message: str = "",
    retry_after: int | None = None,
) -> ApiError:
    """Make the error that a server answers with a bare HTTP status code."""
    usual = _BY_CODE.get(code, ("", f"the server answered {code}"))
    details = None if retry_after is None else {"retryAfterSeconds": retry_after}
    return failure(code, reason or usual[0], message or usual[1], details)


def not_found(resource: Resource, name: str) -> ApiError:
    """No object of this name."""
    message = f"{resource} {quoted(name)} not found"
    return failure(404, "NotFound", message, _details(resource, name))


def no_such_path() -> ApiError:
    """Nothing is served under this path."""
    return of_code(404)


def method_not_allowed() -> ApiError:
    """The path exists, but not for this method."""
    return of_code(405)


def unauthorized() -> ApiError:
    """The request lacks the right token."""
    return of_code(401)


def unsupported_media_type(*accepted: str) -> ApiError:
    """The body is of a type that is not read here."""
    message = "the body of the request was in an unknown format - accepted media "
    message += f"types include: {', '.join(accepted)}"
    return failure(415, "UnsupportedMediaType", message)


def unsupported_by_route() -> ApiError:
    """The body is of a type with which nobody asks for this; the router says so."""
    return failure(415, "UnsupportedMediaType", "415: Unsupported Media Type")


def already_exists(resource: Resource, name: str) -> ApiError:
    """Create, but the name is taken."""
    message = f'{resource} "{name}" already exists'
    return failure(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    """The object is not in the state that the request asks for."""
    why = why or (
        "the object has been modified; please apply your changes to the latest "
        "version and try again"
    )
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return failure(409, "Conflict", message, _details(resource, name))


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """Not a matter of permissions, but of the object's own state."""
    message = f'{resource} "{name}" is forbidden: {why}'
    return failure(403, "Forbidden", message, _details(resource, name))


def bad_request(message: str) -> ApiError:
    """The request makes no sense, whatever is stored."""
    return failure(400, "BadRequest", message)


def invalid(
    kind: str, group: str, name: str, *, field: str, reason: str, problem: str
) -> ApiError:
    """One field of the object (or of the options) is not acceptable.

    Args:
        kind: The kind of what was sent, such as `"Pod"`.
        group: Its group, empty for the core group.
        name: Its name; may be empty.
        field: The path of the field, such as `"metadata.name"`.
        reason: For machines, such as `"FieldValueRequired"`.
        problem: For people.
    """
    title = f"{kind}.{group}" if group else kind
    cause = {"reason": reason, "message": problem, "field": field}
    details = {"name": name, "group": group, "kind": kind, "causes": [cause]}
    message = f'{title} "{name}" is invalid: {field}: {problem}'
    kept = {key: value for key, value in details.items() if value}
    return failure(422, "Invalid", message, kept)


def invalid_options(causes: Sequence[Cause], kind: str = "ListOptions") -> ApiError:
    """The options of a request contradict each other, or cannot have such values.

    Args:
        causes: What is wrong, one or more.
        kind: Which options, such as `"PatchOptions"`.
    """
    told = [f"{it.field}: {it.problem}" for it in causes]
    why = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [
            {"reason": it.reason, "message": it.problem, "field": it.field}
            for it in causes
        ],
    }
    message = f'{kind}.meta.k8s.io "" is invalid: {why}'
    return failure(422, "Invalid", message, details)


def expired(message: str) -> ApiError:
    """The version lies before the history that the server still has."""
    return failure(410, "Expired", message)


def expired_token(token: str) -> ApiError:
    """The next page of a list can no longer be consistent with the first.

    Args:
        token: Lists the rest nevertheless.
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
    """The version lies in the future, and did not arrive in time.

    Args:
        version: The one that was asked for.
        current: The newest one.
        retry_after: In seconds; None to say nothing about it.
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


def quoted(text: str) -> str:
    """Put a text into double quotes, escaped as Go does."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    if not shown.isprintable():
        shown = "".join(it if it.isprintable() else _escaped(it) for it in shown)

    return f'"{shown}"'


def _escaped(letter: str) -> str:
    code = ord(letter)
    if letter in _ESCAPES:
        return _ESCAPES[letter]

    if code < 0x80:
        return f"\\x{code:02x}"

    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
