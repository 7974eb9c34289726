"""Requests through a client of kubernetes_asyncio: its auth, proxy, TLS, connections.

Nothing of that library is imported here: who has one of its functions has loaded it.
Of `kubernetes.aio`, the part of the official client that grew out of it, everything here
holds as well.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp
from multidict import CIMultiDict

from aioinformer.client.config import ClientConfig
from aioinformer.client.exchange import PIECE_BYTES, Response, keep_alive
from aioinformer.client.failures import (
    NETWORK_ERRORS,
    api_error,
    mapped,
    refuse_web_page,
)
from aioinformer.errors import AioInformerError, ApiError, TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aioinformer.client.exchange import Exchange
    from aioinformer.client.list_function import ListFunction

__all__ = ["KubernetesAsyncioRequester"]

# How soon a watch notices that the client was closed, of which aiohttp tells no reader.
CLOSED_CHECK_SECONDS = 10.0


class KubernetesAsyncioRequester:
    """Sends requests through an `ApiClient`; a `Requester` of a `ListWatch`.

    The status of every answer is checked here: some versions of the library raise an
    `ApiException` for a refusal, others (36.1) give it back like any other answer.

    Args:
        function: Whose client and credentials to use.

    Raises:
        OptionsError: If the client's host is no URL.
    """

    def __init__(self, function: ListFunction) -> None:
        self._function = function
        self._client = function.client
        # For the name of the server, and our own bounds of time.
        self._config = ClientConfig(server=self._client.configuration.host)
        self._in_flight: set[Exchange] = set()

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
        """Send a request and read its answer; see `Endpoint.stream()`.

        Args:
            method: `"GET"`.
            path: Beginning with `/`, escaped, without a query.
            params: The query; those that are empty are left out.
            gzip: Ask for a compressed answer; None means no.
            accept: The media types to accept; empty for JSON.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed, or the library did.
            DecodeError: If the answer is a web page.

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
                with mapped(config.server, proxied=proxied):
                    try:
                        return await self._call(method, path, query, headers)
                    except (AioInformerError, *NETWORK_ERRORS):
                        raise
                    except Exception as exc:
                        # Whatever the library makes of a token that it cannot get, say,
                        # or of a session that was closed: it is asked again.
                        raise self._failure(exc) from exc

        except TimeoutError as exc:
            raise TransportError(
                f"{config.server} did not answer for {seconds:g} s. Trying again may "
                "help."
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
        # Waiting for one of its connections is bounded as well. Silence is not: that is
        # normal in a watch, and looked after by who reads.
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

        asked = await client.param_serialize(
            method, path, query_params=query, header_params=headers, **auth
        )
        answer = await client.call_api(*asked, _request_timeout=timeout)
        found: aiohttp.ClientResponse = answer.response
        return found

    def _explain(self, error: TransportError) -> None:
        """Say what else may be the reason why no connection was got."""
        session = self._session()
        limit = session.connector.limit if session and session.connector else 0
        if limit and isinstance(error.__cause__, aiohttp.ConnectionTimeoutError):
            what = (
                f"Or all {limit} connections of its client are in use, of which every"
            )
            error.args = (f"{error} {what} watch takes one: connection_pool_maxsize.",)

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
            f"{server} could not be asked: {type(exc).__name__}: {self._redacted(exc)}"
        )

    def _redacted(self, exc: Exception) -> str:
        """The words of an error without tokens, which HTTP libraries like to show."""
        text = str(exc)
        for key in dict(self._client.configuration.api_key).values():
            for word in str(key).split():
                text = text.replace(word, "...") if len(word) > len("Bearer") else text

        return text


class _SharedResponse(Response):
    """An answer on a connection whose session belongs to somebody else."""

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
        """As of every answer; if the session was closed, it is noticed after 10 s."""
        try:
            while patient:
                try:
                    async with asyncio.timeout(CLOSED_CHECK_SECONDS):
                        return await super().read_some(limit, patient=True)
                except TimeoutError:
                    self._check_session()

            return await super().read_some(limit)
        except TransportError:
            # A closed session is a better reason than what aiohttp says of it.
            self._check_session()
            raise

    def _check_session(self) -> None:
        if self._session is not None and self._session.closed:
            raise TransportError(
                f"the client of {self._config.server} was closed meanwhile"
            )


def _keep_alive(raw: aiohttp.ClientResponse) -> None:
    connection = raw.connection
    transport = connection.transport if connection is not None else None
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is not None:
        with suppress(OSError):  # not of TCP
            keep_alive(opened)
