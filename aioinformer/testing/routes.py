"""Routes: what the path and method of a request mean. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aioinformer.testing import statuses
from aioinformer.testing.queries import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.storage import Collection, Storage

__all__ = ["RequestRecord", "Target", "target_of"]

_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that the server has seen, for tests to look at.

    Attributes:
        method: Of HTTP.
        path: As it was sent, without the query.
        query: Its parameters.
        verb: Such as `"list"`; empty if it was not about a resource.
        resource: The plural; empty if it was not about a resource.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    verb: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about.

    Attributes:
        collection: Of which resource.
        verb: What to do, as permissions name it.
        namespace: Where; empty for all, and for cluster-scoped kinds.
        name: Which object; empty for the collection.
        subresource: `"status"` or empty.
    """

    collection: Collection
    verb: str
    namespace: str
    name: str
    subresource: str


def target_of(
    storage: Storage, method: str, path: str, query: Mapping[str, str]
) -> Target:
    """Find out what a request is about.

    Raises:
        ApiError: 404 if nothing is served there, 405 if not with this method.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, version, rest = _api_of(parts)
    namespace = ""
    # "namespaces/x/pods" is in a namespace, "namespaces/x/status" is about it.
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]

    plural, name, subresource = (*rest, "", "", "")[:3]
    collection = storage.find(group, version, plural)
    if collection is None or len(rest) > 3 or "" in rest:
        raise statuses.no_such_path()

    _check_place(collection, namespace, name, subresource)
    verb = (_OBJECT_VERBS if name else _COLLECTION_VERBS).get(method, "")
    if verb == "list" and flag(query, "watch"):
        verb = "watch"

    if not _allowed(collection, verb, namespace, subresource):
        raise statuses.method_not_allowed()

    return Target(collection, verb, namespace, name, subresource)


_OF_NAMESPACES = frozenset({"status", "finalize"})


def _api_of(parts: list[str]) -> tuple[str, str, list[str]]:
    if parts[0] == "api" and len(parts) >= 3:
        return "", parts[1], parts[2:]

    if parts[0] == "apis" and len(parts) >= 4:
        return parts[1], parts[2], parts[3:]

    raise statuses.no_such_path()


def _check_place(
    collection: Collection, namespace: str, name: str, subresource: str
) -> None:
    """Check that the kind has such a place for its objects."""
    kind = collection.kind
    if namespace and not kind.resource.namespaced:
        raise statuses.no_such_path()

    if name and kind.resource.namespaced and not namespace:
        raise statuses.no_such_path()

    if subresource and not (subresource == "status" and kind.has_status):
        raise statuses.no_such_path()


def _allowed(
    collection: Collection, verb: str, namespace: str, subresource: str
) -> bool:
    if subresource:
        return verb in {"get", "update", "patch"}

    # Writes to a collection name the namespace that they mean.
    if verb in {"create", "deletecollection"}:
        return bool(namespace) or not collection.kind.resource.namespaced

    return bool(verb)
