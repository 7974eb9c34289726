"""`ListFunction`: what a generated list function of kubernetes_asyncio asks for.

Nothing of that library is imported here: who has one of its functions has loaded it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, unquote

from aioinformer.errors import OptionsError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ListFunction"]

# Where two groups have a kind of one name, that of the group stands in front.
_LIST_MODEL = re.compile(r"(?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?(\w+)List")

# What whoever lists and watches says himself, and what would spoil his answers.
_RESERVED = {
    "allowWatchBookmarks",
    "continue",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
}
_RESERVED_KEYWORDS = {
    "_content_type",
    "_preload_content",
    "_request_timeout",
    "_return_http_data_only",
    "async_req",
}


@dataclass(frozen=True, slots=True)
class ListFunction:
    """What a generated list function with its arguments asks for.

    Attributes:
        client: The library's `ApiClient`.
        resource: What is listed.
        namespace: Of the path; None for all.
        query: The parameters of the query, by their names in the API.
        headers: Those of the library, and what was given.
        auth: The names of the settings that authenticate it.
        own_auth: Credentials for these requests alone; None for those of the client.
    """

    client: Any
    resource: Resource
    namespace: str | None
    query: dict[str, str]
    headers: dict[str, str]
    auth: list[str]
    own_auth: Any

    @classmethod
    def of(
        cls,
        list_func: Callable[..., Any],
        kwargs: Mapping[str, Any],
        resource: Resource | None = None,
    ) -> ListFunction:
        """Find out by calling it with a client that sends nothing.

        Args:
            list_func: A bound method, or a `functools.partial` of one.
            kwargs: Its arguments.
            resource: What it lists; None to take that from its path.

        Raises:
            OptionsError: If it is no list function of an asyncio client, or its
                arguments do not fit, or name what is decided for each request.
        """
        args: tuple[Any, ...] = ()
        if isinstance(list_func, functools.partial):
            args, kwargs = list_func.args, {**list_func.keywords, **kwargs}
            list_func = list_func.func

        client = _client_of(list_func)
        _refuse(_RESERVED_KEYWORDS & kwargs.keys())
        asked = _record(list_func, client, args, kwargs)
        query = {key: str(value) for key, value in asked.get("query_params") or ()}
        _refuse(_RESERVED & query.keys())
        found, namespace = _resource_of(list_func.__name__, asked)
        return cls(
            client,
            resource or found,
            namespace,
            query,
            dict(asked.get("header_params") or {}),
            list(asked.get("auth_settings") or ()),
            asked.get("_request_auth"),
        )


class _Asked(Exception):
    """Raised in the place of a request: what would have been asked for."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class _Recorder:
    """An `ApiClient` that sends nothing."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def call_api(
        self,
        resource_path: str,
        method: str,
        path_params: Any = None,
        query_params: Any = None,
        header_params: Any = None,
        **more: Any,
    ) -> NoReturn:
        """What kubernetes_asyncio calls."""
        asked = {
            "resource_path": resource_path,
            "method": method,
            "path_params": path_params,
            "query_params": query_params,
            "header_params": header_params,
        }
        raise _Asked({**asked, **more})

    def param_serialize(self, **asked: Any) -> NoReturn:
        """What `kubernetes.aio` calls first."""
        raise _Asked(asked)


def _client_of(list_func: Callable[..., Any]) -> Any:
    client = getattr(getattr(list_func, "__self__", None), "api_client", None)
    if client is None or not inspect.ismethod(list_func):
        raise OptionsError(
            "give a list function of kubernetes_asyncio as it is, such as "
            f"`core_v1.list_namespaced_pod`, and its arguments beside it: {list_func!r} "
            "is none"
        )

    if not inspect.iscoroutinefunction(getattr(client, "close", None)):
        raise OptionsError(
            f"{list_func.__name__} is of a client that blocks: use kubernetes_asyncio"
        )

    return client


def _record(
    list_func: Any, client: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    probe = copy.copy(list_func.__self__)
    probe.api_client = _Recorder(client)
    try:
        coroutine = list_func.__func__(probe, *args, **kwargs)
        if inspect.iscoroutine(coroutine):
            try:
                coroutine.send(None)
            finally:
                coroutine.close()

    except _Asked as exc:
        return exc.arguments
    except (TypeError, ValueError, StopIteration) as exc:
        raise OptionsError(f"{list_func.__name__} cannot be called: {exc}") from exc

    raise OptionsError(f"{list_func.__name__} does not ask an API server")


def _refuse(names: set[str]) -> None:
    if names:
        raise OptionsError(
            f"{', '.join(sorted(names))} cannot be given: who lists and watches decides "
            "on versions, pages, lengths and times for each request"
        )


def _resource_of(name: str, asked: Mapping[str, Any]) -> tuple[Resource, str | None]:
    """The resource that a path leads to, and the namespace in it."""
    path: str = asked["resource_path"]
    for key, value in dict(asked.get("path_params") or {}).items():
        path = path.replace(f"{{{key}}}", quote(str(value), safe=""))

    parts = [unquote(part) for part in path.strip("/").split("/")]
    root, parts = parts[0], parts[1:]
    group = parts.pop(0) if root == "apis" and parts else ""
    version = parts.pop(0) if parts else ""
    namespace = None
    if len(parts) == 3 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]

    if root not in {"api", "apis"} or len(parts) != 1 or asked["method"] != "GET":
        raise OptionsError(f"{name} is no list function: it asks for {path}")

    known = lookup(f"{group}/{version}" if group else version, parts[0])
    # What is listed of custom objects in a whole cluster may be namespaced or not.
    namespaced = bool(namespace) or "_for_all_namespaces" in name or "_custom_" in name
    kind = _kind_of(asked)
    return known or Resource(group, version, parts[0], kind, namespaced), namespace


def _kind_of(asked: Mapping[str, Any]) -> str:
    """The kind that a model such as `V1beta1IPAddressList` lists; empty if not told."""
    model = dict(asked.get("response_types_map") or {}).get(200) or ""
    found = _LIST_MODEL.fullmatch(model)
    return found[1] if found else ""
