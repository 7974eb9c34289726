"""Lists: which objects one page holds, and what it says about itself. Synchronous."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.requests.queries import ContinueToken

if TYPE_CHECKING:
    from aioinformer_apiserver.requests.queries import ListQuery, Scope
    from aioinformer_apiserver.storage.storage import Collection, Stored

__all__ = ["Page", "page_of"]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    Attributes:
        objects: What is on it.
        metadata: The metadata of the list.
    """

    objects: list[Stored]
    metadata: dict[str, Any]


def page_of(collection: Collection, now: int, query: ListQuery, scope: Scope) -> Page:
    """Answer a list request.

    Args:
        collection: Of which resource.
        now: The newest version of the storage, which is not older than the query asks.
        query: Which state, and how much of it.
        scope: Which objects.

    Raises:
        ApiError: 410, if the state asked for is forgotten.
    """
    version = now if query.exact is None else query.exact
    _check_known(collection, version, query)
    places = _Places(collection, scope)
    state = collection.snapshot(None if query.exact is None else version)
    if query.token is not None or scope.namespace:
        first = query.token.start if query.token is not None else ""
        state = state[places.index(state, first) : places.end(state)]

    objects, rest = _cut(state, query.limit, scope)
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if rest and not places.is_one:
        token = ContinueToken(version, places.after(objects[-1]))
        metadata["continue"] = token.encode()
        # With a selector a real server does not know how many would still match.
        if not scope.selects:
            metadata["remainingItemCount"] = rest

    return Page(objects, metadata)


def _cut(state: list[Stored], limit: int, scope: Scope) -> tuple[list[Stored], int]:
    """Return the first matching objects, and how many objects follow the last one.

    These need not match: to find out, a real server would have to read them. So the
    last page of a selector may well be empty.
    """
    if not scope.selects:
        limit = limit or len(state)
        return state[:limit], max(0, len(state) - limit)

    found: list[Stored] = []
    for index, stored in enumerate(state):
        if not scope.matches(stored):
            continue

        found.append(stored)
        if len(found) == limit:
            return found, len(state) - index - 1

    return found, 0


class _Places:
    """The places of a list in the order of all keys.

    Args:
        collection: Of which resource.
        scope: With the namespace that is part of the list's path.
    """

    def __init__(self, collection: Collection, scope: Scope) -> None:
        self._scope = scope
        self._namespaced = collection.kind.resource.namespaced
        self._prefix = f"{scope.namespace}/" if scope.namespace else ""
        # Only the cache begins with a slash what it puts into a token.
        self._slash = "/" if collection.cached else ""

    @property
    def is_one(self) -> bool:
        """True if one object alone is meant: it is looked up, and nothing follows it."""
        known = bool(self._prefix) or not self._namespaced
        return known and any(
            it.field == "metadata.name" and it.operator == "="
            for it in self._scope.fields.requirements
        )

    def index(self, state: list[Stored], start: str) -> int:
        """Return where in a snapshot a list goes on from a token's start."""
        return bisect_left(state, self._prefix + start.lstrip("/"), key=_key_of)

    def end(self, state: list[Stored]) -> int:
        """Return where in a snapshot a list ends."""
        if not self._prefix:
            return len(state)

        # The character after the slash is the first one behind the namespace.
        return bisect_left(state, self._prefix[:-1] + "0", key=_key_of)

    def after(self, last: Stored) -> str:
        """Return the start of what follows an object."""
        return f"{self._slash}{last.key.removeprefix(self._prefix)}\0"


def _check_known(collection: Collection, version: int, query: ListQuery) -> None:
    if collection.has_history_since(version):
        return

    if query.token is None:
        message = "The resourceVersion for the provided list is too old."
        raise statuses.expired(message)

    # From here on the list is that of etcd, where no start begins with a slash.
    start = query.token.start.lstrip("/")
    raise statuses.expired_token(ContinueToken(-1, start).encode())


def _key_of(stored: Stored) -> str:
    return stored.key
