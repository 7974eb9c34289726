"""Lists: which objects one page holds, and what it says about itself. Synchronous."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.testing import statuses
from aioinformer.testing.queries import Token

if TYPE_CHECKING:
    from aioinformer.testing.changes import Stored
    from aioinformer.testing.feeds import Scope
    from aioinformer.testing.queries import ListQuery
    from aioinformer.testing.storage import Collection

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
        now: The newest version of the storage.
        query: Which state, and how much of it.
        scope: Which objects.

    Raises:
        ApiError: 410 if the state asked for is forgotten, 500 if it lies in the future.
    """
    version = now if query.exact is None else query.exact
    _check_known(collection, now, version, query)
    state = collection.snapshot(None if query.exact is None else version)
    if query.token is not None:
        state = state[bisect_right(state, query.token.start, key=_key_of) :]

    objects = state
    if scope.selects or scope.namespace:
        objects = [it for it in state if scope.matches(it)]

    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if query.limit and len(objects) > query.limit:
        rest = len(objects) - query.limit
        objects = objects[: query.limit]
        metadata["continue"] = Token(version, objects[-1].key).encode()
        # With a selector a real server does not know how many would still match.
        if not scope.selects:
            metadata["remainingItemCount"] = rest

    return Page(objects, metadata)


def _check_known(
    collection: Collection, now: int, version: int, query: ListQuery
) -> None:
    if version > now:
        message = "etcdserver: mvcc: required revision is a future revision"
        raise statuses.failure(500, "", message)

    if not collection.has_history_since(version):
        if query.token is not None:
            raise statuses.expired(
                "The provided continue parameter is too old to display a consistent "
                "list result. You can start a new list without the continue parameter."
            )

        message = "The resourceVersion for the provided list is too old."
        raise statuses.expired(message)


def _key_of(stored: Stored) -> str:
    return stored.key
