"""Bridge to kubernetes_asyncio: its configuration, clients and list functions.

The library itself is not imported here: the caller that passes one of its objects has
done that. Everything also applies to `kubernetes.aio`, the part of the official client
that is derived from it.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import re
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, unquote

import aiohttp
from multidict import CIMultiDict

from aioinformer.client.auth.credentials import AuthInfo, Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.config import ClientConfig, proxy_of_environment
from aioinformer.client.error_mapping import (
    NETWORK_ERRORS,
    api_error,
    map_errors,
    refuse_web_page,
)
from aioinformer.client.response import PIECE_BYTES, Response, keep_alive
from aioinformer.errors import AioInformerError, ApiError, OptionsError, TransportError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aioinformer.client.response import Exchange

__all__ = ["KubernetesAsyncioRequester", "ListFunction", "load_kubernetes_asyncio"]


# Interval of checking for a closed client, about which aiohttp does not notify readers.
CLOSED_CHECK_SECONDS = 10.0


class KubernetesAsyncioRequester:
    """Sender of requests through an `ApiClient`; a `Requester` of a `ListWatch`.

    The status of every response is checked here: some versions of the library raise an
    `ApiException` for a refusal, others (36.1) return it like any other response.

    Args:
        function: List function whose client and credentials are used.

    Raises:
        OptionsError: If the client's host is not a URL.
    """

    def __init__(self, function: ListFunction) -> None:
        self._function = function
        self._client = function.client
        # For the name of the server, and the time limits.
        self._config = ClientConfig(server=self._client.configuration.host)
        self._in_flight: set[Exchange] = set()

    @property
    def config(self) -> ClientConfig:
        """Server and trusted authorities of the client, without its credentials."""
        return replace(self._config, tls=_tls(self._client.configuration))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AsyncIterator[Response]:
        """Send a request and read its response; see `Client.stream()`.

        Args:
            method: HTTP method, `"GET"`.
            path: Path, escaped, starting with `/`, without a query.
            params: Query parameters; empty ones are left out.
            gzip: True to request a compressed response; None for no.
            accept: Media types to accept; empty for JSON.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network or the library failed.
            DecodeError: If the response is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        query = [(key, text) for key, text in (params or {}).items() if text]
        headers = {
            **self._function.headers,
            "Accept": accept or "application/json",
            "Accept-Encoding": "gzip" if gzip else "identity",
        }
        raw = await self._send(method, path, query, headers)
        response = _SharedResponse(raw, self._config, self._in_flight, self._session())
        try:
            if not 200 <= response.status < 300:
                raise await response.refusal(f"{method} {path}")

            refuse_web_page(response.headers, self._config.server)
            _keep_alive(raw)
            yield response
        finally:
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
    ) -> aiohttp.ClientResponse:
        config = self._config
        seconds = config.connect_seconds + config.head_seconds
        proxied = bool(getattr(self._client.configuration, "proxy", None))
        try:
            async with asyncio.timeout(seconds):
                with map_errors(config.server, proxied=proxied):
                    try:
                        return await self._call(method, path, query, headers)
                    except (AioInformerError, *NETWORK_ERRORS):
                        raise
                    except Exception as exc:
                        # Any error, such as for a token that it cannot get, or a closed
                        # session. The request is retried.
                        raise self._failure(exc) from exc

        except TimeoutError as exc:
            raise TransportError(
                f"{config.server} did not respond for {seconds:g} s"
            ) from exc
        except TransportError as exc:
            self._explain(exc)
            raise

    async def _call(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
    ) -> aiohttp.ClientResponse:
        client, function = self._client, self._function
        # Also limits the wait for one of its connections. Silence is not limited here,
        # as it is normal in a watch; the reader checks it.
        timeout = aiohttp.ClientTimeout(
            total=None, connect=self._config.connect_seconds
        )
        auth: dict[str, Any] = {"auth_settings": function.auth}
        if function.own_auth is not None:
            auth["_request_auth"] = function.own_auth

        if not hasattr(client, "param_serialize"):
            raw: aiohttp.ClientResponse = await client.call_api(
                path,
                method,
                {},
                query,
                headers,
                _preload_content=False,
                _request_timeout=timeout,
                **auth,
            )
            return raw

        recorded = await client.param_serialize(
            method, path, query_params=query, header_params=headers, **auth
        )
        answer = await client.call_api(*recorded, _request_timeout=timeout)
        found: aiohttp.ClientResponse = answer.response
        return found

    def _explain(self, error: TransportError) -> None:
        """Add to the error that the connection pool may be exhausted."""
        session = self._session()
        limit = session.connector.limit if session and session.connector else 0
        if limit and isinstance(error.__cause__, aiohttp.ConnectionTimeoutError):
            hint = (
                f"Or all {limit} connections of its client are in use: each watch holds "
                "one. Increase connection_pool_maxsize."
            )
            error.args = (f"{error} {hint}",)

    def _session(self) -> aiohttp.ClientSession | None:
        return getattr(self._client.rest_client, "pool_manager", None)

    def _failure(self, exc: Exception) -> ApiError | TransportError:
        server = self._config.server
        status, body = getattr(exc, "status", None), getattr(exc, "body", None)
        if isinstance(status, int) and status and hasattr(exc, "body"):
            text = body.encode() if isinstance(body, str) else bytes(body or b"")
            headers = CIMultiDict(getattr(exc, "headers", None) or {})
            phrase = str(getattr(exc, "reason", None) or "")
            return api_error(status, phrase, headers, text, server)

        return TransportError(
            f"the request to {server} failed: {type(exc).__name__}: {self._redacted(exc)}"
        )

    def _redacted(self, exc: Exception) -> str:
        """Return the text of an error without tokens, which HTTP libraries may show."""
        text = str(exc)
        for key in dict(self._client.configuration.api_key).values():
            for word in str(key).split():
                text = text.replace(word, "...") if len(word) > len("Bearer") else text

        return text


class _SharedResponse(Response):
    """Response on a connection of the library's session."""

    __slots__ = ("_session",)

    def __init__(
        self,
        raw: aiohttp.ClientResponse,
        config: ClientConfig,
        in_flight: set[Exchange],
        session: aiohttp.ClientSession | None,
    ) -> None:
        super().__init__(raw, config, in_flight)
        self._session = session

    async def read_some(
        self, limit: int = PIECE_BYTES, *, patient: bool = False
    ) -> bytes:
        """Read as in the base class; detect a closed session within 10 s."""
        try:
            while patient:
                try:
                    async with asyncio.timeout(CLOSED_CHECK_SECONDS):
                        return await super().read_some(limit, patient=True)
                except TimeoutError:
                    self._check_session()

            return await super().read_some(limit)
        except TransportError:
            # A closed session is a better reason than aiohttp's.
            self._check_session()
            raise

    def _check_session(self) -> None:
        if self._session is not None and self._session.closed:
            raise TransportError(
                f"the client of {self._config.server} was closed during the request"
            )


def _keep_alive(raw: aiohttp.ClientResponse) -> None:
    connection = raw.connection
    transport = connection.transport if connection is not None else None
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is not None:
        with suppress(OSError):  # not a TCP socket
            keep_alive(opened)


# If two groups have a kind of the same name, the group precedes it.
_LIST_MODEL = re.compile(r"(?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?(\w+)List")


# Parameters set by the ListWatch itself, or that would break its parsing.
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
    """Request of a generated list function with its arguments.

    Attributes:
        client: `ApiClient` of the library.
        resource: Resource that is listed.
        namespace: Namespace in the path; None for all.
        query: Query parameters, by their names in the API.
        headers: Headers of the library, and those given.
        auth: Names of the settings that authenticate the request.
        own_auth: Credentials for these requests only; None for those of the client.
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
        """Record the request by calling the function with a client that sends nothing.

        Args:
            list_func: Bound method, or a `functools.partial` of one.
            kwargs: Arguments of the function.
            resource: Resource that it lists; None to take it from the path.

        Raises:
            OptionsError: If it is not a list function of an asyncio client, or its
                arguments do not fit or are reserved.
        """
        args: tuple[Any, ...] = ()
        if isinstance(list_func, functools.partial):
            args, kwargs = list_func.args, {**list_func.keywords, **kwargs}
            list_func = list_func.func

        client = _client_of(list_func)
        _refuse(_RESERVED_KEYWORDS & kwargs.keys())
        recorded = _record(list_func, client, args, kwargs)
        query = {key: str(value) for key, value in recorded.get("query_params") or ()}
        _refuse(_RESERVED & query.keys())
        found, namespace = _resource_of(list_func.__name__, recorded)
        return cls(
            client,
            resource or found,
            namespace,
            query,
            dict(recorded.get("header_params") or {}),
            list(recorded.get("auth_settings") or ()),
            recorded.get("_request_auth"),
        )


class _Recorded(Exception):
    """Arguments of a request, raised instead of sending it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class _Recorder:
    """Stand-in for an `ApiClient` that sends nothing."""

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
        """Record the call of kubernetes_asyncio."""
        recorded = {
            "resource_path": resource_path,
            "method": method,
            "path_params": path_params,
            "query_params": query_params,
            "header_params": header_params,
        }
        raise _Recorded({**recorded, **more})

    def param_serialize(self, **recorded: Any) -> NoReturn:
        """Record the first call of `kubernetes.aio`."""
        raise _Recorded(recorded)


def _client_of(list_func: Callable[..., Any]) -> Any:
    client = getattr(getattr(list_func, "__self__", None), "api_client", None)
    if client is None or not inspect.ismethod(list_func):
        raise OptionsError(
            "not a list function of kubernetes_asyncio: pass a bound method such as "
            "`core_v1.list_namespaced_pod`, and its arguments separately, not "
            f"{list_func!r}"
        )

    if not inspect.iscoroutinefunction(getattr(client, "close", None)):
        raise OptionsError(
            f"{list_func.__name__} belongs to a blocking client: use kubernetes_asyncio"
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

    except _Recorded as exc:
        return exc.arguments
    except (TypeError, ValueError, StopIteration) as exc:
        raise OptionsError(f"{list_func.__name__} cannot be called: {exc}") from exc

    raise OptionsError(f"{list_func.__name__} sends no request to an API server")


def _refuse(names: set[str]) -> None:
    if names:
        raise OptionsError(
            f"{', '.join(sorted(names))} must not be passed: versions, pages and time "
            "limits are chosen for each request"
        )


def _resource_of(name: str, recorded: Mapping[str, Any]) -> tuple[Resource, str | None]:
    """Return the resource and the namespace of a path."""
    path: str = recorded["resource_path"]
    for key, value in dict(recorded.get("path_params") or {}).items():
        path = path.replace(f"{{{key}}}", quote(str(value), safe=""))

    parts = [unquote(part) for part in path.strip("/").split("/")]
    root, parts = parts[0], parts[1:]
    group = parts.pop(0) if root == "apis" and parts else ""
    version = parts.pop(0) if parts else ""
    namespace = None
    if len(parts) == 3 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]

    if root not in {"api", "apis"} or len(parts) != 1 or recorded["method"] != "GET":
        raise OptionsError(f"{name} is not a list function: it requests {path}")

    known = lookup(f"{group}/{version}" if group else version, parts[0])
    # Custom objects that are listed cluster-wide may be namespaced or not.
    namespaced = bool(namespace) or "_for_all_namespaces" in name or "_custom_" in name
    kind = _kind_of(recorded)
    return known or Resource(group, version, parts[0], kind, namespaced), namespace


def _kind_of(recorded: Mapping[str, Any]) -> str:
    """Return the kind that a model such as `V1beta1IPAddressList` lists; empty if unknown."""
    model = dict(recorded.get("response_types_map") or {}).get(200) or ""
    found = _LIST_MODEL.fullmatch(model)
    return found[1] if found else ""


# Default headers of the library that are replaced.
_OWN_HEADERS = {"accept", "authorization", "content-type", "user-agent"}


# Longest wait of requests for a hook while there is an older key.
_HOOK_SECONDS = 5.0


def load_kubernetes_asyncio(client: Any) -> ClientConfig:
    """Convert server, TLS, proxy, credentials and default headers of a client.

    Args:
        client: An `ApiClient`, or a `Configuration`. Its `refresh_api_key_hook` is
            called before each request, on the event loop, as in the library.

    Raises:
        OptionsError: If it is neither, or its settings are invalid.
    """
    configuration = getattr(client, "configuration", client)
    if not hasattr(configuration, "auth_settings") or not hasattr(
        configuration, "host"
    ):
        raise OptionsError(
            "expected an ApiClient or a Configuration of kubernetes_asyncio, not "
            f"{type(client).__name__}"
        )

    host = configuration.host
    headers: Mapping[str, str] = getattr(client, "default_headers", None) or {}
    return ClientConfig(
        server=host,
        credentials=Credentials(source=_Settings(configuration, headers).auth_info),
        tls=_tls(configuration),
        proxy=configuration.proxy or proxy_of_environment(host),
        headers=tuple(
            (name, value)
            for name, value in headers.items()
            if name.lower() not in _OWN_HEADERS
        ),
    )


class _Settings:
    """Source of the library's Authorization header."""

    def __init__(self, configuration: Any, headers: Mapping[str, str]) -> None:
        self._configuration = configuration
        given = {name.lower(): value for name, value in headers.items()}
        self._default_authorization = given.get("authorization", "")

    async def auth_info(self) -> AuthInfo:
        try:
            settings = self._configuration.auth_settings()
            settings = await settings if inspect.isawaitable(settings) else settings
        except Exception as exc:  # noqa: BLE001 - the user's hook
            # Not chained, and without its message, which may quote a secret.
            raise OptionsError(
                f"the refresh_api_key_hook of {self} raised {type(exc).__name__}"
            ) from None

        values = [str(each["value"] or "") for each in settings.values()]
        header = next(
            (value for value in values if value), self._default_authorization
        ).strip()
        if not header.isprintable():
            raise OptionsError(f"the api_key of {self} contains a control character")

        # Read each time: the hook decides when to refresh, and other code may change
        # the key in the configuration.
        return AuthInfo(
            authorization=header, fresh_seconds=0.0, wait_seconds=_HOOK_SECONDS
        )

    def __repr__(self) -> str:
        return f"the configuration of {self._configuration.host}"


def _tls(configuration: Any) -> TLSOptions:
    ca: bytes | Path | None = None
    data = getattr(configuration, "ca_cert_data", None)
    if configuration.ssl_ca_cert:
        ca = Path(configuration.ssl_ca_cert)
    elif data:
        # Bytes are DER.
        text = data if isinstance(data, str) else ssl.DER_cert_to_PEM_cert(data)
        ca = text.encode()

    certificate, key = configuration.cert_file, configuration.key_file
    return TLSOptions(
        ca=ca,
        certificate=Path(certificate) if certificate else None,
        # One file may contain both.
        key=Path(key or certificate) if certificate else None,
        server_name=configuration.tls_server_name or "",
        verify=bool(configuration.verify_ssl),
    )
