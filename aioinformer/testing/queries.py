"""Queries: the parameters of a list or watch, read and checked as the server does.

A list can ask for four points in time, and which one is meant depends on version,
match rule, limit and token together; `ListQuery.moment` decides it once.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import orjson

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.testing import statuses
from aioinformer.testing.feeds import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.testing.kinds import Kind

__all__ = ["ListQuery", "Token", "WatchQuery", "flag", "scope_of"]

Match = Literal["", "Exact", "NotOlderThan"]


@dataclass(frozen=True, slots=True)
class Token:
    """Where the next page begins, and of which version it is."""

    version: int
    start: str

    def encode(self) -> str:
        """Write it as the opaque text that clients carry around."""
        fields = {"v": "meta.k8s.io/v1", "rv": self.version, "start": self.start}
        return base64.urlsafe_b64encode(orjson.dumps(fields)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Token:
        """Read it again.

        Raises:
            ApiError: 400, if it is not one of ours.
        """
        try:
            padded = text + "=" * (-len(text) % 4)
            fields = orjson.loads(base64.b64decode(padded, altchars=b"-_"))
            return cls(int(fields["rv"]), str(fields["start"]))
        except (binascii.Error, ValueError, KeyError, TypeError):
            message = "continue key is not valid: it was not made by this server"
            raise statuses.bad_request(message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What one list request asks for."""

    limit: int
    """Objects in the answer; 0 for all."""

    token: Token | None
    """Continue after the page before."""

    exact: int | None
    """The state at this version is asked for; None for the newest."""

    not_older: int
    """The answer must be at least this new."""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ListQuery:
        """Read the parameters.

        Raises:
            ApiError: 400 if one is malformed, 422 if they contradict each other.
        """
        version, match = query.get("resourceVersion", ""), _match_of(query)
        limit = max(0, _integer(query, "limit"))
        if "sendInitialEvents" in query:
            raise _forbidden("sendInitialEvents", "is forbidden for list")

        token = query.get("continue", "")
        if token:
            return cls._next_page(token, version, match, limit)

        if match and not version:
            why = "is forbidden unless resourceVersion is provided"
            raise _forbidden("resourceVersionMatch", why)

        if match == "Exact" and version == "0":
            why = '"exact" is forbidden for resourceVersion "0"'
            raise _forbidden("resourceVersionMatch", why)

        number = _version(version, 400)
        if match == "Exact" or (limit and number and not match):
            return cls(limit=limit, token=None, exact=number, not_older=0)

        # From the watch cache, which does not page.
        limit = 0 if version == "0" else limit
        return cls(limit=limit, token=None, exact=None, not_older=number)

    @classmethod
    def _next_page(cls, token: str, version: str, match: str, limit: int) -> ListQuery:
        if match:
            why = "is forbidden when continue is provided"
            raise _forbidden("resourceVersionMatch", why)

        if version not in {"", "0"}:
            message = "specifying resource version is not allowed when using continue"
            raise statuses.bad_request(message)

        place = Token.decode(token)
        return cls(limit=limit, token=place, exact=place.version, not_older=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """What one watch request asks for."""

    version: int
    """Changes after this one; 0 begins with the current objects, if `initial` is."""

    initial: bool
    """Begin with the current objects, as ADDED events."""

    marked: bool
    """End them with an annotated BOOKMARK."""

    bookmarks: bool
    """Send BOOKMARK events."""

    timeout: float
    """After how many seconds the server ends the watch; 0 leaves it to the server."""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> WatchQuery:
        """Read the parameters.

        Raises:
            ApiError: 400 if one is malformed, 422 if they contradict each other; 500
                if the version is no number (that is how the real server puts it).
        """
        match, asked = _match_of(query), "sendInitialEvents" in query
        if asked and match != "NotOlderThan":
            why = "requires setting resourceVersionMatch to NotOlderThan"
            raise _forbidden("sendInitialEvents", why)

        if match and not asked:
            why = "is forbidden for watch unless sendInitialEvents is provided"
            raise _forbidden("resourceVersionMatch", why)

        if query.get("continue"):
            message = "specifying continue is not allowed when watching"
            raise statuses.bad_request(message)

        version = _version(query.get("resourceVersion", ""), 500)
        bookmarks = flag(query, "allowWatchBookmarks")
        wanted = flag(query, "sendInitialEvents")
        return cls(
            version=version,
            initial=wanted if asked else version == 0,
            marked=wanted and bookmarks,
            bookmarks=bookmarks,
            timeout=max(0, _integer(query, "timeoutSeconds")),
        )


def scope_of(kind: Kind, namespace: str, query: Mapping[str, str]) -> Scope:
    """Read the selectors of a list or watch.

    Raises:
        ApiError: 400, if one is malformed or asks for a field that is not selectable.
    """
    try:
        labels = LabelSelector.parse(query.get("labelSelector", ""))
        fields = FieldSelector.parse(query.get("fieldSelector", ""))
    except (SelectorSyntaxError, OptionsError) as exc:
        message = f"unable to parse requirement: {exc}"
        raise statuses.bad_request(message) from exc

    for requirement in fields.requirements:
        known = requirement.field in {"metadata.name", "metadata.namespace"}
        if not known and requirement.field not in kind.fields:
            raise statuses.bad_request(
                f'Unable to find "{kind.resource}" that match label selector '
                f'"{labels}", field selector "{fields}": '
                f"field label not supported: {requirement.field}"
            )

    return Scope(namespace=namespace, labels=labels, fields=fields)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Read a boolean: given, and neither `0` nor `false`."""
    text = query.get(name)
    return text is not None and text.lower() not in {"0", "false"}


def _match_of(query: Mapping[str, str]) -> Match:
    text = query.get("resourceVersionMatch", "")
    match text:
        case "" | "Exact" | "NotOlderThan":
            return text
        case _:
            problem = f'Unsupported value: "{text}": supported values: "Exact", '
            problem += '"NotOlderThan"'
            raise _invalid_option(
                "resourceVersionMatch", "FieldValueNotSupported", problem
            )


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise statuses.bad_request(f"{name} is not a number: {text!r}") from None


def _version(text: str, code: int) -> int:
    """Read a resource version, which a server takes only in plain decimal."""
    if text.isascii() and (text or "0").isdigit():
        return int(text or 0)

    problem = f'resourceVersion: Invalid value: "{text}": invalid syntax'
    if code == 400:
        raise statuses.bad_request(f"invalid resource version: {problem}")

    raise statuses.failure(code, "", problem)


def _forbidden(field: str, why: str) -> ApiError:
    return _invalid_option(field, "FieldValueForbidden", f"Forbidden: {field} {why}")


def _invalid_option(field: str, reason: str, problem: str) -> ApiError:
    return statuses.invalid(
        "ListOptions", "meta.k8s.io", "", field=field, reason=reason, problem=problem
    )
