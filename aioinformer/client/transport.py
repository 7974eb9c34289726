"""The HTTP session: sends requests, checks the heads of answers, reads their bodies.

Imported when a client is entered, because this is what loads aiohttp. Foreign errors
end here.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import socket
import weakref
from io import BytesIO
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from aioinformer._tasks import finish
from aioinformer.client.failures import api_error, mapped
from aioinformer.errors import DecodeError, TransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from aioinformer.client.config import ClientConfig
    from aioinformer.client.verbs import Request
    from aioinformer.errors import ApiError

__all__ = ["Response", "Transport"]

logger = logging.getLogger(__name__)


def _user_agent() -> str:
    try:
        return f"aioinformer/{importlib.metadata.version('aioinformer')}"
    except importlib.metadata.PackageNotFoundError:
        return "aioinformer"  # used from its sources


# Read from a file, so once: this module is imported in a thread.
USER_AGENT = _user_agent()

# One read of the loop, and little enough to split without anybody noticing.
PIECE_BYTES = 64 * 1024

# A Status is short, except for a list of causes; what a proxy says is cut anyway.
ERROR_BODY_BYTES = 256 * 1024

# Go's client keeps them for 90 s, and an API server closes them no earlier.
IDLE_SECONDS = 60.0

# Connections are aborted, so that this takes a few turns of the loop.
CLOSE_SECONDS = 5.0

# A connection whose other side vanished is noticed after 30 s + 3 * 10 s of silence.
KEEPALIVE = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),  # what macOS calls it
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)


class Response:
    """An answer whose head has arrived and is no error; read its body in pieces.

    Attributes:
        raw: The answer as aiohttp gave it. Its own methods raise its own errors.
    """

    __slots__ = ("_config", "_opened", "raw")

    def __init__(
        self,
        raw: aiohttp.ClientResponse,
        config: ClientConfig,
        opened: set[Response],
    ) -> None:
        self.raw = raw
        self._config = config
        self._opened = opened
        opened.add(self)

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self.raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names in any case."""
        return self.raw.headers

    async def read_some(
        self, limit: int = PIECE_BYTES, *, patient: bool = False
    ) -> bytes:
        """Wait for the next bytes of the body, and return those that have arrived.

        Args:
            limit: Return at most so many bytes.
            patient: True to wait for ever, False for `read_seconds`.

        Returns:
            Bytes; none at the end of the body.

        Raises:
            TransportError: If the connection broke, the body is cut off, or nothing
                came for too long.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        server, seconds = self._config.server, self._config.read_seconds
        try:
            async with asyncio.timeout(None if patient else seconds):
                with mapped(server):
                    return await self.raw.content.read(limit)

        except TimeoutError as exc:
            raise TransportError(
                f"{server} sent nothing for {seconds:g} s in the middle of an answer. "
                "Trying again may help."
            ) from exc

    async def read(self) -> bytes:
        """Read the body to its end.

        Raises:
            TransportError: As `read_some()` does.

        Cancellation:
            Safe, but what was read is lost.
        """
        pieces = []
        while piece := await self.read_some():
            pieces.append(piece)

        return b"".join(pieces)

    def close(self) -> None:
        """Let the connection go; it is aborted if the body was not read to its end.

        Whoever waits for bytes gets a `TransportError`. Idempotent.
        """
        self._opened.discard(self)
        connection = self.raw.connection
        transport = connection.transport if connection is not None else None
        if transport is not None:
            # Closing would wait for the other side to say good-bye by TLS.
            transport.abort()

        self.raw.close()


class Transport:
    """One `aiohttp.ClientSession` to one API server. It owns no task.

    Must be made inside a running loop. Settings of the environment (proxies, netrc)
    are not looked at, and the number of connections is not limited: watches occupy one
    each, and requests must never wait for them.
    """

    def __init__(self, config: ClientConfig, context: ssl.SSLContext | None) -> None:
        self._config = config
        # Weak: a closed socket leaves it by itself.
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._opened: set[Response] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=context if context is not None else True,
                keepalive_timeout=IDLE_SECONDS,
                socket_factory=self._open_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=PIECE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, connect=config.connect_seconds),
            trace_configs=[self._tracing()],
            headers={
                "Accept": "application/json",
                "Accept-Encoding": _encoding(gzip=config.gzip),
                "User-Agent": config.user_agent or USER_AGENT,
            },
        )

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of its answer.

        After a 401 the credentials are renewed and, if that gave others, the request
        is sent once more.

        Returns:
            The answer; whoever gets it must close it.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed, or the head did not come in time.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the connection is closed. What was asked for may have been done.
        """
        credentials = self._config.credentials
        authorization = await credentials.header()
        response = await self._head(request, authorization)
        try:
            if response.status == 401 and await credentials.invalidate(authorization):
                response.close()
                response = await self._head(request, await credentials.header())

            if not 200 <= response.status < 300:
                raise await self._refusal(request, response)

            if response.raw.content_type == "text/html":
                raise DecodeError(
                    f"{self._config.server} answered with a web page. Is a proxy or a "
                    "log-in in between, or the URL not that of an API server?"
                )
        except BaseException:
            response.close()
            raise

        return response

    async def close(self) -> None:
        """Close all connections, also those in use, and wait until they are gone.

        Cancellation:
            Deferred until it is done; that takes 5 s at most.
        """
        try:
            await finish(self._close(), within_seconds=CLOSE_SECONDS)
        except TimeoutError:
            logger.warning("connections to %s did not close", self._config.server)

    async def _close(self) -> None:
        # aiohttp would close their connections too, but wake nobody who reads.
        for response in list(self._opened):
            response.close()

        await self._session.close()
        # Polled, as sockets tell nobody that they were closed.
        while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def _head(self, request: Request, authorization: str) -> Response:
        headers = {"Authorization": authorization} if authorization else {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type

        if request.gzip is not None:
            headers["Accept-Encoding"] = _encoding(gzip=request.gzip)

        config = self._config
        if self._session.closed:
            raise TransportError(f"the client of {config.server} was closed meanwhile")

        try:
            # Its clock starts when the request has been sent: see `_tracing()`.
            async with asyncio.timeout(None) as patience:
                with mapped(config.server):
                    raw = await self._session.request(
                        request.method,
                        URL(config.server + request.target, encoded=True),
                        # As a stream, since aiohttp warns about bytes above 1 MiB.
                        data=None if request.body is None else BytesIO(request.body),
                        headers=headers,
                        allow_redirects=False,
                        proxy=config.proxy or None,
                        server_hostname=config.tls.server_name or None,
                        trace_request_ctx=patience,
                    )

        except TimeoutError as exc:
            raise TransportError(
                f"{config.server} took the request and did not answer for "
                f"{config.head_seconds:g} s. Trying again may help."
            ) from exc

        return Response(raw, config, self._opened)

    async def _refusal(self, request: Request, response: Response) -> ApiError:
        body = b""
        try:
            while len(body) < ERROR_BODY_BYTES and (more := await response.read_some()):
                body += more
        except TransportError as exc:
            logger.debug("an error body was cut off: %s", exc)

        error = api_error(
            response.status,
            response.raw.reason or "",
            response.headers,
            body,
            self._config.server,
        )
        error.add_note(f"in answer to {request.method} {request.path}")
        return error

    def _tracing(self) -> aiohttp.TraceConfig:
        async def start_the_clock(_session: Any, context: Any, _params: Any) -> None:
            now = asyncio.get_running_loop().time()
            context.trace_request_ctx.reschedule(now + self._config.head_seconds)

        tracing = aiohttp.TraceConfig()
        tracing.on_request_headers_sent.append(start_the_clock)
        return tracing

    def _open_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

        self._sockets.add(opened)
        return opened


def _encoding(*, gzip: bool) -> str:
    return "gzip" if gzip else "identity"
