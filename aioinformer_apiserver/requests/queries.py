"""Queries: the parameters of a get, list or watch, read and checked as the server does.

A list can ask for four points in time, and which one is meant depends on version,
match rule, limit and token together; `ListQuery` decides it once. Its refusals come in
the order in which a real server looks: the form of numbers, selectors, combinations,
then token and version.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from aioinformer.model.selectors import FieldRequirement, FieldSelector, LabelSelector
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.statuses import Cause, quoted
from aioinformer_apiserver.requests.selectors import (
    field_selector_of,
    label_selector_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Stored

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
    """Which objects of a collection are meant."""

    namespace: str = ""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    @property
    def selects(self) -> bool:
        """True if there is a selector; the namespace is none."""
        return not (self.labels.empty and self.fields.empty)

    def matches(self, state: Stored | None) -> bool:
        """Say whether an object in this state is meant; None is not."""
        if state is None or self.namespace not in {"", state.namespace}:
            return False

        if not self.selects:
            return True

        return self.labels.matches(state.labels) and self.fields.matches(state.field)


_FORMAT = "meta.k8s.io/v1"
_ALIEN = re.compile("[^A-Za-z0-9_-]")
_MESSAGE = "invalid continue token: continue key is not valid: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What one list request asks for."""

    limit: int
    """Objects in the answer; 0 for all."""

    token: ContinueToken | None
    """Continue after the page before."""

    exact: int | None
    """The state at this version is asked for; None for the newest."""

    not_older: int
    """The answer must be at least this new, and waits until it can be."""

    @classmethod
    def parse(cls, query: Mapping[str, str], *, cached: bool = True) -> ListQuery:
        """Read the parameters.

        Args:
            query: All of them.
            cached: The kind is served from a watch cache, which gives version 0 its
                special meaning.

        Raises:
            ApiError: 400 if one is malformed, 422 if they contradict each other.
        """
        limit = max(0, _integer(query, "limit"))
        _integer(query, "timeoutSeconds")
        _refuse(_list_causes(query))
        version = query.get("resourceVersion", "")
        text = query.get("continue", "")
        if text:
            token = ContinueToken.decode(text)
            if version not in {"", "0"}:
                raise statuses.bad_request(
                    "specifying resource version is not allowed when using continue"
                )

            exact = token.version if token.version > 0 else None
            return cls(limit=limit, token=token, exact=exact, not_older=exact or 0)

        number = _version(version, 400)
        match = query.get(_MATCH, "")
        if match == "Exact" or (limit and number and not match):
            return cls(limit=limit, token=None, exact=number, not_older=number)

        # From the watch cache, which does not page.
        limit = 0 if cached and version == "0" else limit
        return cls(limit=limit, token=None, exact=None, not_older=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """What one watch request asks for."""

    version: int
    """Changes after this one; with `initial` how new the first objects must be."""

    initial: bool
    """Begin with the current objects, as ADDED events."""

    marked: bool
    """End them with an annotated BOOKMARK."""

    bookmarks: bool
    """Send further BOOKMARK events."""

    timeout: float
    """After how many seconds the server ends the watch; 0 leaves it to the server, and
    a negative one has passed already."""

    @classmethod
    def parse(cls, query: Mapping[str, str], *, cached: bool = True) -> WatchQuery:
        """Read the parameters.

        Args:
            query: All of them.
            cached: The kind is served from a watch cache, which makes the bookmarks.

        Raises:
            ApiError: 400 if one is malformed, 422 if they contradict each other; 500
                if the version is no number (that is how the real server puts it).
        """
        _integer(query, "limit")
        timeout = _integer(query, "timeoutSeconds")
        _refuse(_watch_causes(query))
        version = _version(query.get("resourceVersion", ""), 500)
        bookmarks = flag(query, "allowWatchBookmarks")
        initial = _begins_with_objects(query)
        return cls(
            version=version,
            initial=initial,
            marked=initial and bookmarks,
            bookmarks=bookmarks and cached,
            timeout=timeout,
        )


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page begins, and of which version it is.

    Attributes:
        version: As of this version; a negative one means the newest, whatever the
            pages before were.
        start: The key of the first object that may be on it, without the namespace if
            that was part of the list's path. A leading slash does not matter.
    """

    version: int
    start: str

    def encode(self) -> str:
        """Write it as the opaque text that clients carry around."""
        fields = {"v": _FORMAT, "rv": self.version, "start": self.start}
        return base64.urlsafe_b64encode(orjson.dumps(fields)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Read it again.

        Raises:
            ApiError: 400, if no server can have made it.
        """
        fields = _fields_of(_bytes_of(text))
        version, start = fields.get("rv", 0), fields.get("start", "")
        if type(version) is not int or not isinstance(start, str):
            raise statuses.bad_request(f"{_MESSAGE}its fields are of other types")

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
    """Read how new the answer to a get must be; 0 if that does not matter.

    Args:
        query: All parameters.
        cached: The kind is served from a watch cache.

    Raises:
        ApiError: 500 if it is no number, and 400 for a kind that is not cached (that
            is how the real server puts it).
    """
    return _version(query.get("resourceVersion", ""), 500 if cached else 400)


def scope_of(
    kind: Kind, namespace: str, query: Mapping[str, str], *, name: str = ""
) -> Scope:
    """Read the selectors of a list or watch.

    Args:
        kind: Of what is selected.
        namespace: Where; empty for everywhere.
        query: All parameters.
        name: The only object that is meant, if it stands in the path.

    Raises:
        ApiError: 400, if one is malformed, asks for a field that is not selectable, or
            does not fit to the name.
    """
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
    """Read a boolean: given, and neither `0` nor `false`."""
    text = query.get(name)
    return text is not None and text.lower() not in {"0", "false"}


# ---------------------------------------------------------------- combinations


def _list_causes(query: Mapping[str, str]) -> Iterator[Cause]:
    """Yield what is wrong with the parameters of a list, taken together."""
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


def _watch_causes(query: Mapping[str, str]) -> Iterator[Cause]:
    """Yield what is wrong with the parameters of a watch, taken together."""
    match, asked = query.get(_MATCH, ""), "sendInitialEvents" in query
    if match and not asked:
        why = f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"
        yield _forbidden(_MATCH, why)

    # A watch without a version is, to the server, one that asks for initial events.
    streams = bool(match) or _begins_with_objects(query)
    if streams and query.get("continue"):
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")

    if asked and match != "NotOlderThan":
        why = f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"
        yield _forbidden(_MATCH, why)

    if match not in {"", "NotOlderThan"}:
        yield _unsupported(match, '"NotOlderThan"')


def _begins_with_objects(query: Mapping[str, str]) -> bool:
    if "sendInitialEvents" in query:
        return flag(query, "sendInitialEvents")

    return not query.get(_MATCH) and query.get("resourceVersion", "") in {"", "0"}


def _refuse(causes: Iterator[Cause]) -> None:
    found = list(causes)
    if found:
        raise statuses.invalid_options(found)


def _forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(value: str, supported: str) -> Cause:
    problem = f"Unsupported value: {quoted(value)}: supported values: {supported}"
    return Cause(_MATCH, "FieldValueNotSupported", problem)


# ---------------------------------------------------------------- numbers


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "0")
    number = _number(text, r"[+-]?[0-9]+")
    if number is not None and -_INT64_BOUND <= number < _INT64_BOUND:
        return number

    raise statuses.bad_request(
        _unparsed("ParseInt", text, out_of_range=number is not None)
    )


def _version(text: str, code: int) -> int:
    """Read a resource version, which a server takes only in plain decimal."""
    number = _number(text or "0", "[0-9]+")
    if number is not None and number < _UINT64_BOUND:
        return number

    why = _unparsed("ParseUint", text, out_of_range=number is not None)
    problem = f"resourceVersion: Invalid value: {quoted(text)}: {why}"
    if code == 400:
        raise statuses.bad_request(f"invalid resource version: {problem}")

    raise statuses.failure(code, "", problem)


def _number(text: str, pattern: str) -> int | None:
    """Read a number of which only the size matters if it has more than 20 digits."""
    if not re.fullmatch(pattern, text, re.ASCII):
        return None

    # Of some thousands of digits, which fit into a URL, int() would make none.
    size = int(text.lstrip("+-0")[:21] or "0")
    return -size if text.startswith("-") else size


def _unparsed(function: str, text: str, *, out_of_range: bool) -> str:
    why = "value out of range" if out_of_range else "invalid syntax"
    return f"strconv.{function}: parsing {quoted(text)}: {why}"


def _bytes_of(text: str) -> bytes:
    """Decode base64 for URLs, which has no padding here."""
    alien = _ALIEN.search(text)
    if alien or len(text) % 4 == 1:
        at = alien.start() if alien else len(text) - 1
        why = f"illegal base64 data at input byte {at}"
        raise statuses.bad_request(f"{_MESSAGE}{why}")

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _fields_of(raw: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise statuses.bad_request(f"{_MESSAGE}{exc}") from exc

    if fields is None:
        return {}

    if not isinstance(fields, dict):
        raise statuses.bad_request(f"{_MESSAGE}it is no JSON object")

    return fields
