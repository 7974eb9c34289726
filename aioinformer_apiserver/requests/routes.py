"""Routes: from the path and method of a request to its target. Pure.

Two steps, as on a real server: `request_info_of` parses the request, which is enough
for authorization. Then `target_of` looks up the resource.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model.resources import NODES, PODS, SERVICES
from aioinformer.model.selectors import FieldSelector
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.requests.queries import flag

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["RequestInfo", "RequestRecord", "Target", "request_info_of", "target_of"]

_OBJECT_VERBS = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

_COLLECTION_VERBS = {**_OBJECT_VERBS, "GET": "list", "DELETE": "deletecollection"}
# "namespaces/x/pods" is in a namespace, "namespaces/x/status" is the namespace's own.
_OF_NAMESPACES = frozenset({"status", "finalize"})
_ALL = tuple(_OBJECT_VERBS.values())
# Subresources that only a real server has, with their verbs. It looks up the object
# first.
_KUBELET_SUBRESOURCES = {
    (NODES, "proxy"): _ALL,
    (PODS, "attach"): ("get", "create"),
    (PODS, "ephemeralcontainers"): ("get", "patch", "update"),
    (PODS, "exec"): ("get", "create"),
    (PODS, "log"): ("get",),
    (PODS, "portforward"): ("get", "create"),
    (PODS, "proxy"): _ALL,
    (PODS, "resize"): ("get", "patch", "update"),
    (SERVICES, "proxy"): _ALL,
}

# A field selector may restrict these to a single object.
_SELECTING_VERBS = frozenset({"list", "watch"})


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Record of a request, for tests.

    Attributes:
        method: HTTP method.
        path: Path as it was sent, without the query.
        query: Query parameters.
        verb: Verb such as `"list"`; empty for non-resource requests.
        resource: Plural name; empty for non-resource requests.
        user: Name of the user; empty if the request was not authenticated.
        time: Time of arrival on the loop's clock; ignored in comparisons.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    verb: str = ""
    resource: str = ""
    user: str = ""
    time: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """Parsed request, as authorization sees it; its target need not exist.

    Attributes:
        verb: Verb such as `"list"`; for non-resource requests, the HTTP method in lower
            case.
        path: Decoded path without the query.
        group: API group; empty for the core group.
        version: API version; empty for non-resource requests.
        plural: Plural name; empty for non-resource requests.
        subresource: Subresource such as `"status"`; empty for none.
        namespace: Namespace; empty for all, and for cluster-scoped resources.
        name: Name of the object; empty for collections.
        names_one: True if the name is in the path, not only in a selector.
    """

    verb: str
    path: str = ""
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    names_one: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a resource request.

    Attributes:
        collection: Collection of the resource.
        verb: Kubernetes permission verb.
        namespace: Namespace; empty for all, and for cluster-scoped resources.
        name: Name of the object; empty for the collection.
        subresource: Subresource such as `"status"`; empty for none. A `"binding"` may
            have no name.
    """

    collection: Collection
    verb: str
    namespace: str
    name: str
    subresource: str


def request_info_of(request: APIRequest) -> RequestInfo:
    """Parse path, method and parameters of a request."""
    # As on a real server, an escaped slash separates segments.
    path = unquote(request.path)
    parts = path.strip("/").split("/")
    api = _api_of(parts)
    if api is None:
        return RequestInfo(verb=request.method.lower(), path=path)

    group, version, rest = api
    # The deprecated paths of watches still work.
    is_watch = rest[0] == "watch" and len(rest) >= 2
    rest = rest[1:] if is_watch else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 2:
        namespace = rest[1]
        if len(rest) >= 3 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]

    plural, name, subresource = (*rest, "", "", "")[:3]
    verb = (_OBJECT_VERBS if name else _COLLECTION_VERBS).get(request.method, "")
    if verb == "list" and flag(request.query, "watch"):
        verb = "watch"

    if is_watch:
        verb = "watch" if request.method == "GET" else ""

    return RequestInfo(
        verb=verb,
        path=path,
        group=group,
        version=version,
        plural=plural,
        subresource="/".join(rest[2:]) if len(rest) > 3 else subresource,
        namespace=namespace,
        name=name or (_selected_name(request) if verb in _SELECTING_VERBS else ""),
        names_one=bool(name),
    )


def target_of(storage: Storage, info: RequestInfo) -> Target:
    """Look up the target of a request.

    Raises:
        ApiError: 404 if nothing is served there, 405 for another method.
    """
    if (info.group, info.version, info.plural) == ("", "v1", "bindings"):
        return _target_of_binding(storage, info)

    collection = storage.find(info.group, info.version, info.plural)
    if collection is None:
        raise statuses.no_such_path()

    namespaced = collection.kind.resource.namespaced
    # For authorization, a request for a namespace is in that namespace.
    namespace = info.namespace if namespaced else ""
    name = info.name if info.names_one else ""
    _check_name(name)
    _check_place(collection, info, name)
    if not _is_allowed(collection.kind, info):
        raise statuses.method_not_allowed()

    return Target(collection, info.verb, namespace, name, info.subresource)


def _api_of(parts: list[str]) -> tuple[str, str, list[str]] | None:
    if parts[0] == "api" and len(parts) >= 3:
        return "", parts[1], parts[2:]

    if parts[0] == "apis" and len(parts) >= 4:
        return parts[1], parts[2], parts[3:]

    return None


def _selected_name(request: APIRequest) -> str:
    """Return the single name that a field selector allows; empty if there is none."""
    try:
        selector = FieldSelector.parse(request.query.get("fieldSelector", ""))
    except (SelectorSyntaxError, OptionsError):
        return ""  # `scope_of()` reports the error later.

    for requirement in selector.requirements:
        if requirement.field == "metadata.name" and requirement.operator == "=":
            return requirement.value

    return ""


def _check_name(name: str) -> None:
    """Check that a name is valid in a path.

    Raises:
        ApiError: 400, if it is not.
    """
    why = ""
    if name in {".", ".."}:
        why = f"may not be '{name}'"
    elif "%" in name:
        why = "may not contain '%'"

    if why:
        raise statuses.bad_request(f'Name parameter invalid: "{name}": {why}')


def _check_place(collection: Collection, info: RequestInfo, name: str) -> None:
    """Check that namespace and subresource fit the kind."""
    kind, namespaced = collection.kind, collection.kind.resource.namespaced
    about_itself = info.plural == "namespaces" and not info.group
    if info.namespace and not namespaced and not about_itself:
        raise statuses.no_such_path()

    if name and namespaced and not info.namespace:
        raise statuses.no_such_path()

    # An empty namespace means no namespace.
    if info.path.replace("/namespaces//", "/").count("//") or (
        info.subresource and not name
    ):
        raise statuses.no_such_path()

    known = info.subresource in kind.subresources and info.verb != "watch"
    if info.subresource and not known:
        raise _missing_subresource_error(collection, info, name)


def _target_of_binding(storage: Storage, info: RequestInfo) -> Target:
    """Return the target of a binding whose path has no pod.

    Raises:
        ApiError: 404 if the path has a name or no namespace, 405 for other verbs than
            create.
    """
    if info.names_one or not info.namespace:
        raise statuses.no_such_path()

    if info.verb != "create":
        raise statuses.method_not_allowed()

    return Target(storage.collection(PODS), "create", info.namespace, "", "binding")


def _missing_subresource_error(
    collection: Collection, info: RequestInfo, name: str
) -> ApiError:
    """Make the error for a missing subresource: of a missing object, or of any."""
    resource, part = collection.kind.resource, info.subresource
    verbs = _KUBELET_SUBRESOURCES.get((resource, part.partition("/")[0]), ())
    if not collection.kind.typed:
        verbs = _ALL
    elif "/" in part and not part.startswith("proxy/"):
        verbs = ()

    if verbs and info.verb not in verbs:
        return statuses.method_not_allowed()

    key = f"{info.namespace}/{name}" if resource.namespaced else name
    if verbs and collection.get(key) is None:
        return statuses.not_found(resource, name)

    return statuses.no_such_path()


def _is_allowed(kind: Kind, info: RequestInfo) -> bool:
    namespaced = kind.resource.namespaced
    if info.subresource:
        return info.verb in kind.subresources[info.subresource]

    # The error for a terminating definition comes from the registry.
    if info.verb not in kind.verbs and not kind.terminating:
        return False

    if info.verb == "create":
        return not info.name and (bool(info.namespace) or not namespaced)

    if info.verb == "deletecollection":
        return bool(info.namespace) or not namespaced

    # PUT and PATCH do not apply to collections.
    return bool(info.verb) and (
        bool(info.name) or info.verb in {"list", "watch", "get"}
    )
