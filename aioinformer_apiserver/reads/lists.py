"""Lists: the objects on a page, and its metadata. Synchronous."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.requests.queries import ContinueToken

if TYPE_CHECKING:
    from aioinformer_apiserver.requests.queries import ListQuery, Scope
    from aioinformer_apiserver.storage.storage import Collection, StoredObject

__all__ = ["StoredPage", "page_of"]

# Maximum number of objects in a read of etcd.
_MOST_READ = 10_000


@dataclass(frozen=True, slots=True)
class StoredPage:
    """One page of a list.

    Attributes:
        objects: Objects on the page.
        metadata: Metadata of the list.
    """

    objects: list[StoredObject]
    metadata: dict[str, Any]


def page_of(
    collection: Collection, now: int, query: ListQuery, scope: Scope
) -> StoredPage:
    """Return the page for a list request.

    Args:
        collection: The collection.
        now: Newest version of the storage, not older than the query requires.
        query: Parameters of the request.
        scope: Selection of objects.

    Raises:
        ApiError: 410, if the requested version has expired.
    """
    version = now if query.exact is None else query.exact
    _check_known(collection, version, query)
    places = _KeyRange(collection, scope)
    state = collection.snapshot(None if query.exact is None else version)
    if query.token is not None or scope.namespace:
        first = query.token.start if query.token is not None else ""
        state = state[places.index(state, first) : places.end(state)]

    objects, rest = _take_page(state, query.limit, scope)
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if rest and not places.is_one:
        token = ContinueToken(version, places.after(objects[-1]))
        metadata["continue"] = token.encode()
        # With a selector, a real server does not know how many objects follow. Of
        # shards, it counts objects that are not selected, too.
        if not scope.selects:
            last = len(state) - rest - 1
            read = 0 if collection.cached else _start_of_read(last, query.limit)
            metadata["remainingItemCount"] = len(state) - read - query.limit

    # Lists of custom resources do not show it, although they are filtered.
    if scope.shards is not None and collection.kind.typed:
        metadata["shardInfo"] = {"selector": str(scope.shards)}

    return StoredPage(objects, metadata)


def _take_page(
    state: list[StoredObject], limit: int, scope: Scope
) -> tuple[list[StoredObject], int]:
    """Return the first matching objects, and the number of objects after the last one.

    The latter need not match, because a real server does not read them. So the last
    page of a selector may be empty.
    """
    if not scope.selects and scope.shards is None:
        limit = limit or len(state)
        return state[:limit], max(0, len(state) - limit)

    found: list[StoredObject] = []
    for index, stored in enumerate(state):
        if not scope.matches(stored):
            continue

        found.append(stored)
        if len(found) == limit:
            return found, len(state) - index - 1

    return found, 0


def _start_of_read(last: int, limit: int) -> int:
    """Return the index at which a real server began its last read of etcd.

    Each read is twice as long as the one before, until the page is full.

    Args:
        last: Index of the last object on the page.
        limit: Number of objects on the page, and in the first read.
    """
    start, length = 0, limit
    while start + length <= last:
        start, length = start + length, min(2 * length, _MOST_READ)

    return start


class _KeyRange:
    """Positions of a list in the order of all keys.

    Args:
        collection: The collection.
        scope: Selection with the namespace in the path of the list.
    """

    def __init__(self, collection: Collection, scope: Scope) -> None:
        self._scope = scope
        self._namespaced = collection.kind.resource.namespaced
        self._prefix = f"{scope.namespace}/" if scope.namespace else ""
        # In the tokens of the watch cache, but not of etcd, keys begin with a slash.
        self._slash = "/" if collection.cached else ""

    @property
    def is_one(self) -> bool:
        """True if the selector names a single object, which has no further page."""
        known = bool(self._prefix) or not self._namespaced
        return known and any(
            it.field == "metadata.name" and it.operator == "="
            for it in self._scope.fields.requirements
        )

    def index(self, state: list[StoredObject], start: str) -> int:
        """Return the index in a snapshot where a list continues at a token's start."""
        return bisect_left(state, self._prefix + start.lstrip("/"), key=_key_of)

    def end(self, state: list[StoredObject]) -> int:
        """Return the index in a snapshot where a list ends."""
        if not self._prefix:
            return len(state)

        # "0" is the character after the slash, so this key follows all of the
        # namespace.
        return bisect_left(state, self._prefix[:-1] + "0", key=_key_of)

    def after(self, last: StoredObject) -> str:
        """Return the start of the page after an object."""
        return f"{self._slash}{last.key.removeprefix(self._prefix)}\0"


def _check_known(collection: Collection, version: int, query: ListQuery) -> None:
    if collection.has_history_since(version):
        return

    if query.token is None:
        message = "The resourceVersion for the provided list is too old."
        raise statuses.expired(message)

    # The list continues from etcd, where no start begins with a slash.
    start = query.token.start.lstrip("/")
    raise statuses.expired_token(ContinueToken(-1, start).encode())


def _key_of(stored: StoredObject) -> str:
    return stored.key
