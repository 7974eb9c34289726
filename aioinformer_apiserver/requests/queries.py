"""Query parameters of gets, lists and watches, and continue tokens. Pure.

A list can request four kinds of states, depending on version, match rule, limit and
token together; `ListQuery` decides it once. Errors have the order of a real server:
malformed numbers, selectors, combinations, then token and version.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer.model.selectors import FieldRequirement, FieldSelector, LabelSelector
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.statuses import StatusCause, quote
from aioinformer_apiserver.requests.selectors import (
    field_selector_of,
    label_selector_of,
)
from aioinformer_apiserver.requests.shard_selectors import (
    ShardSelector,
    shard_selector_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = [
    "ContinueToken",
    "ListQuery",
    "Scope",
    "WatchQuery",
    "flag",
    "scope_of",
    "version_of_get",
]

_INT64_BOUND = 2**63
_UINT64_BOUND = 2**64
_MATCH = "resourceVersionMatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selection of objects in a collection."""

    namespace: str = ""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)
    shards: ShardSelector | None = None

    @property
    def selects(self) -> bool:
        """True if there is a selector; namespace and shards do not count."""
        return not (self.labels.empty and self.fields.empty)

    def matches(self, state: StoredObject | None) -> bool:
        """Return whether an object is selected; False for None."""
        if state is None or self.namespace not in {"", state.namespace}:
            return False

        if self.shards is not None and not self.shards.matches(state):
            return False

        if not self.selects:
            return True

        return self.labels.matches(state.labels) and self.fields.matches(state.field)


_FORMAT = "meta.k8s.io/v1"
_NOT_BASE64 = re.compile("[^A-Za-z0-9_-]")
_MESSAGE = "invalid continue token: continue key is not valid: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Parameters of a list request."""

    limit: int
    """Maximum number of objects; 0 for all."""

    token: ContinueToken | None
    """Continue token from the previous page."""

    exact: int | None
    """Version of the requested state; None for the newest."""

    not_older: int
    """Minimum version of the response, which waits for it."""

    shards: ShardSelector | None
    """Requested shards; None for all objects."""

    @classmethod
    def parse(
        cls, query: Mapping[str, str], *, cached: bool = True, sharded: bool = False
    ) -> ListQuery:
        """Parse the parameters.

        Args:
            query: Query parameters.
            cached: True if the kind has a watch cache, which gives version 0 its
                special meaning.
            sharded: True to respect a shard selector.

        Raises:
            ApiError: 400 for a malformed parameter, 422 for contradictory ones; like a
                real server, 500 for a malformed shard selector.
        """
        limit = max(0, _integer(query, "limit"))
        _integer(query, "timeoutSeconds")
        _raise_if_invalid(_validate_list(query))
        shards = shard_selector_of(query.get("shardSelector", "")) if sharded else None
        version = query.get("resourceVersion", "")
        text = query.get("continue", "")
        if text:
            token = ContinueToken.decode(text)
            if version not in {"", "0"}:
                raise statuses.bad_request(
                    "specifying resource version is not allowed when using continue"
                )

            exact = token.version if token.version > 0 else None
            return cls(
                limit=limit,
                token=token,
                exact=exact,
                not_older=exact or 0,
                shards=shards,
            )

        number = _version(version, 400)
        match = query.get(_MATCH, "")
        if match == "Exact" or (limit and number and not match):
            exact = number
        else:
            exact = None
            # The watch cache does not page.
            limit = 0 if cached and version == "0" else limit

        return cls(
            limit=limit, token=None, exact=exact, not_older=number, shards=shards
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """Parameters of a watch request."""

    version: int
    """Version after which changes are sent; with `initial`, minimum version of the
    first objects."""

    initial: bool
    """True to send the current objects first, as ADDED events."""

    initial_events_end: bool
    """True to mark the end of the first objects with an annotated BOOKMARK."""

    bookmarks: bool
    """True to send further BOOKMARK events."""

    timeout: float
    """Seconds until the server ends the watch. 0 is the server's default, a negative
    value has already passed."""

    shards: ShardSelector | None
    """Requested shards; None for all objects."""

    @classmethod
    def parse(
        cls, query: Mapping[str, str], *, cached: bool = True, sharded: bool = False
    ) -> WatchQuery:
        """Parse the parameters.

        Args:
            query: Query parameters.
            cached: True if the kind has a watch cache, which makes the bookmarks.
            sharded: True to respect a shard selector.

        Raises:
            ApiError: 400 for a malformed parameter, 422 for contradictory ones; like a
                real server, 500 for a malformed shard selector, or if the version is
                not a number.
        """
        _integer(query, "limit")
        timeout = _integer(query, "timeoutSeconds")
        _raise_if_invalid(_validate_watch(query))
        shards = shard_selector_of(query.get("shardSelector", "")) if sharded else None
        version = _version(query.get("resourceVersion", ""), 500)
        bookmarks = flag(query, "allowWatchBookmarks")
        initial = _requests_initial_events(query)
        return cls(
            version=version,
            initial=initial,
            initial_events_end=initial and bookmarks,
            bookmarks=bookmarks and cached,
            timeout=timeout,
            shards=shards,
        )


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Version and start of the next page of a list.

    Attributes:
        version: Version of the list. A negative one means the newest, regardless of the
            previous pages.
        start: Lower bound of the keys on the page, without the namespace if that was in
            the path of the list. A leading slash does not matter.
    """

    version: int
    start: str

    def encode(self) -> str:
        """Return the opaque text for clients."""
        fields = {"v": _FORMAT, "rv": self.version, "start": self.start}
        return base64.urlsafe_b64encode(json_codec.dumps(fields)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Parse the text from a client.

        Raises:
            ApiError: 400, if no server has made it.
        """
        fields = _fields_of(_bytes_of(text))
        version, start = fields.get("rv", 0), fields.get("start", "")
        if type(version) is not int or not isinstance(start, str):
            raise statuses.bad_request(f"{_MESSAGE}its fields have wrong types")

        if fields.get("v") != _FORMAT:
            why = "server does not recognize this encoded version "
            raise statuses.bad_request(f"{_MESSAGE}{why}{fields.get('v') or ''}")

        if not version:
            why = "incorrect encoded start resourceVersion"
            raise statuses.bad_request(f"{_MESSAGE}{why} (version {_FORMAT})")

        if not start:
            why = f"encoded start key empty (version {_FORMAT})"
            raise statuses.bad_request(f"{_MESSAGE}{why}")

        if ".." in start.split("/"):
            raise statuses.bad_request(f"{_MESSAGE}{start}")

        return cls(version, start)


def version_of_get(query: Mapping[str, str], *, cached: bool = True) -> int:
    """Return the minimum version of the response to a get; 0 for any.

    Args:
        query: Query parameters.
        cached: True if the kind has a watch cache.

    Raises:
        ApiError: If the version is not a number; like a real server, 500 with a watch
            cache and 400 without.
    """
    return _version(query.get("resourceVersion", ""), 500 if cached else 400)


def scope_of(
    kind: Kind, namespace: str, query: Mapping[str, str], *, name: str = ""
) -> Scope:
    """Parse the selectors of a list or watch, except that of shards.

    Args:
        kind: Kind of the objects.
        namespace: Namespace; empty for all.
        query: Query parameters.
        name: Name of the only selected object, if the path has one.

    Raises:
        ApiError: 400 for a malformed selector, for a field that is not selectable, or
            for one that contradicts the name. Errors of numbers come before them.
    """
    for number in ("limit", "timeoutSeconds"):
        _integer(query, number)

    labels = label_selector_of(query.get("labelSelector", ""))
    fields = field_selector_of(kind, query.get("fieldSelector", ""))
    if name:
        one = FieldRequirement("metadata.name", "=", name)
        if not fields.empty and one not in fields.requirements:
            message = "fieldSelector metadata.name doesn't match requested name"
            raise statuses.bad_request(message)

        fields = FieldSelector((*fields.requirements, one))

    return Scope(namespace=namespace, labels=labels, fields=fields)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Parse a boolean: true if present, and neither `0` nor `false`."""
    text = query.get(name)
    return text is not None and text.lower() not in {"0", "false"}


# ---------------------------------------------------------------- combinations


def _validate_list(query: Mapping[str, str]) -> Iterator[StatusCause]:
    """Yield the contradictions in the parameters of a list."""
    match, version = query.get(_MATCH, ""), query.get("resourceVersion", "")
    if match and not version:
        yield _forbidden(
            _MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"
        )

    if match and query.get("continue"):
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")

    if match not in {"", "Exact", "NotOlderThan"}:
        yield _unsupported(match, '"Exact", "NotOlderThan", ""')

    if match == "Exact" and version == "0":
        why = f'{_MATCH} "exact" is forbidden for resourceVersion "0"'
        yield _forbidden(_MATCH, why)

    if "sendInitialEvents" in query:
        why = "sendInitialEvents is forbidden for list"
        yield _forbidden("sendInitialEvents", why)


def _validate_watch(query: Mapping[str, str]) -> Iterator[StatusCause]:
    """Yield the contradictions in the parameters of a watch."""
    match, requested = query.get(_MATCH, ""), "sendInitialEvents" in query
    if match and not requested:
        why = f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"
        yield _forbidden(_MATCH, why)

    # A watch without a version requests initial events implicitly.
    streams = bool(match) or _requests_initial_events(query)
    if streams and query.get("continue"):
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")

    if requested and match != "NotOlderThan":
        why = f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"
        yield _forbidden(_MATCH, why)

    if match not in {"", "NotOlderThan"}:
        yield _unsupported(match, '"NotOlderThan"')


def _requests_initial_events(query: Mapping[str, str]) -> bool:
    if "sendInitialEvents" in query:
        return flag(query, "sendInitialEvents")

    return not query.get(_MATCH) and query.get("resourceVersion", "") in {"", "0"}


def _raise_if_invalid(causes: Iterator[StatusCause]) -> None:
    found = list(causes)
    if found:
        raise statuses.invalid_options(found)


def _forbidden(field: str, why: str) -> StatusCause:
    return StatusCause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(value: str, supported: str) -> StatusCause:
    problem = f"Unsupported value: {quote(value)}: supported values: {supported}"
    return StatusCause(_MATCH, "FieldValueNotSupported", problem)


# ---------------------------------------------------------------- numbers


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "0")
    number = _number(text, r"[+-]?[0-9]+")
    if number is not None and -_INT64_BOUND <= number < _INT64_BOUND:
        return number

    raise statuses.bad_request(
        _parse_error("ParseInt", text, out_of_range=number is not None)
    )


def _version(text: str, code: int) -> int:
    """Parse a resource version, which must be plain decimal."""
    number = _number(text or "0", "[0-9]+")
    if number is not None and number < _UINT64_BOUND:
        return number

    why = _parse_error("ParseUint", text, out_of_range=number is not None)
    problem = f"resourceVersion: Invalid value: {quote(text)}: {why}"
    if code == 400:
        raise statuses.bad_request(f"invalid resource version: {problem}")

    raise statuses.failure(code, "", problem)


def _number(text: str, pattern: str) -> int | None:
    """Parse a number; with more than 20 digits, only the size matters."""
    if not re.fullmatch(pattern, text, re.ASCII):
        return None

    # int() fails for thousands of digits, which fit into a URL.
    size = int(text.lstrip("+-0")[:21] or "0")
    return -size if text.startswith("-") else size


def _parse_error(function: str, text: str, *, out_of_range: bool) -> str:
    why = "value out of range" if out_of_range else "invalid syntax"
    return f"strconv.{function}: parsing {quote(text)}: {why}"


def _bytes_of(text: str) -> bytes:
    """Decode URL-safe base64 without padding."""
    alien = _NOT_BASE64.search(text)
    if alien or len(text) % 4 == 1:
        at = alien.start() if alien else len(text) - 1
        why = f"illegal base64 data at input byte {at}"
        raise statuses.bad_request(f"{_MESSAGE}{why}")

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _fields_of(raw: bytes) -> dict[str, Any]:
    try:
        fields = json_codec.loads(raw)
    except json_codec.JSONDecodeError as exc:
        raise statuses.bad_request(f"{_MESSAGE}{exc}") from exc

    if fields is None:
        return {}

    if not isinstance(fields, dict):
        raise statuses.bad_request(f"{_MESSAGE}it is not a JSON object")

    return fields
