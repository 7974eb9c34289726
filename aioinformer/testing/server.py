"""`APIServer`: the test server with clients of this package, with or without a network.

`DirectEndpoint` sends requests in memory. Everything except the socket is as over HTTP:
tokens and permissions, faults, the record of requests, decoding, and the errors that a
client raises.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from multidict import CIMultiDict

from aioinformer.client import Client, ListWatch
from aioinformer.client.config import ClientConfig
from aioinformer.client.error_mapping import api_error, refuse_web_page
from aioinformer.errors import TransportError
from aioinformer_apiserver import LocalAPIServer
from aioinformer_apiserver.arguments import token_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from aioinformer.model.resource import Resource
    from aioinformer.model.shards import ShardSelector
    from aioinformer_apiserver import MemoryResponse

__all__ = ["APIServer", "DirectEndpoint", "MemoryStream"]

_NAME = "the API server in memory"
_ERROR_BODY_BYTES = 64 * 1024
_PHRASES = {int(it): it.phrase for it in HTTPStatus}
# With the timeouts of a client, stalls end as over HTTP.
_CONFIG = ClientConfig(server="http://in-memory")


class APIServer(LocalAPIServer):
    """Kubernetes API server for tests, in this process, with clients of this package.

    Adds `client()` and `list_watch()` to `LocalAPIServer`, which describes the
    arguments, the other methods and the errors.
    """

    def client(self, *, token: str | None = None) -> Client:
        """Return a client of this server, not entered yet.

        Args:
            token: Bearer token; None for the administrator's.

        Raises:
            OptionsError: If the token is invalid, or the server was never started.
        """
        bearer = self.token if token is None else token_of("token", token)
        return Client.from_url(self.url, token=bearer)

    def list_watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        shards: ShardSelector | None = None,
    ) -> ListWatch:
        """Return a source for an informer that uses no network.

        It sends the current administrator's token. Faults strike its requests, and
        `requests` records them. The server need not have been started. Arguments and
        errors are those of `ListWatch`.
        """
        return ListWatch(
            DirectEndpoint(self, token=self.token),
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            shards=shards,
        )


class DirectEndpoint:
    """Client of a test server in the same process.

    Implements `aioinformer.client.list_watch.Requester`. The server need not have been
    started. After a stop, requests fail until the next start.

    Args:
        server: The server.
        token: Bearer token; None to send none.
    """

    def __init__(self, server: LocalAPIServer, *, token: str | None = None) -> None:
        self._server = server
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AsyncIterator[MemoryStream]:
        """Send a request, and read its response while the server makes it.

        Args:
            method: HTTP method.
            path: Path that begins with `/`, percent-encoded, without a query.
            params: Query parameters; empty ones are left out.
            gzip: Without effect: nothing is compressed in memory.
            accept: Media types to accept; empty for JSON.

        Raises:
            ApiError: If the server refuses the request.
            TransportError: If a fault breaks the connection, or the server is stopped.
            DecodeError: If the response is a web page.

        Cancellation:
            Safe: the server sees that the client has disconnected.
        """
        del gzip
        headers = {**self._headers, "Accept": accept or self._headers["Accept"]}
        query = {key: text for key, text in (params or {}).items() if text}
        exchange = self._server.exchange(method, path, query=query, headers=headers)
        async with AsyncExitStack() as stack:
            with _mapped():
                response = await stack.enter_async_context(exchange)

            await _check_head(response, f"{method} {path}")
            yield MemoryStream(response)


class MemoryStream:
    """Body of a response in memory, with the errors and timeouts of a client."""

    def __init__(self, response: MemoryResponse) -> None:
        self._response = response

    async def read_some(self, *, patient: bool = False) -> bytes:
        """Wait for the next bytes of the body; empty at its end.

        Args:
            patient: True for no timeout.

        Raises:
            TransportError: If the connection broke, or nothing came in time.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        with _mapped("sent nothing within a response for too long"):
            async with asyncio.timeout(None if patient else _CONFIG.read_seconds):
                return await self._response.read()

    async def read_view(self) -> memoryview:
        """Read like `read_some()`. Cancellation: safe, call again."""
        return memoryview(await self.read_some())

    def close(self) -> None:
        """Close the connection: a pending read raises `TransportError`. Idempotent."""
        self._response.close()


async def _check_head(response: MemoryResponse, request: str) -> None:
    """Wait for the head of a response, and raise the error that it reports.

    Raises:
        ApiError: If the server refuses the request.
        TransportError: If the connection broke, or the head did not arrive in time.
        DecodeError: If the response is a web page.
    """
    with _mapped("accepted the request but did not respond in time"):
        async with asyncio.timeout(_CONFIG.head_seconds):
            head = await response.head()

    headers = CIMultiDict(head.headers)
    headers["Content-Type"] = head.content_type
    if head.status < 300:
        refuse_web_page(headers, _NAME)
        return

    body, stream = b"", MemoryStream(response)
    try:
        while len(body) < _ERROR_BODY_BYTES and (more := await stream.read_some()):
            body += more
    except TransportError:
        pass  # Like a client, use the part of the body that has arrived.

    phrase = _PHRASES.get(head.status, "")
    error = api_error(head.status, phrase, headers, body, _NAME)
    error.add_note(f"in response to {request}")
    raise error


@contextmanager
def _mapped(timeout: str = "") -> Iterator[None]:
    """Map the errors of a `MemoryResponse` to those of a client.

    Args:
        timeout: Message for a `TimeoutError`.

    Raises:
        TransportError: If the block fails.
    """
    try:
        yield
    except TimeoutError as exc:
        raise TransportError(f"{_NAME} {timeout}") from exc
    except ConnectionResetError as exc:
        raise TransportError(f"{_NAME} {exc}") from exc
    except ConnectionAbortedError as exc:
        raise TransportError(f"the connection to {_NAME} {exc}") from exc
    except ConnectionError as exc:
        raise TransportError(f"{_NAME} {exc}") from exc
