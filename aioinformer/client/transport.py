"""The HTTP session: sends requests, checks the heads of answers, reads their bodies.

Imported when a client is entered, because this is what loads aiohttp. Foreign errors
end here.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import importlib.metadata
import socket
import ssl
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from aioinformer._tasks import finish, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.error_mapping import map_errors, refuse_web_page
from aioinformer.client.redaction import redacted
from aioinformer.client.request_metrics import NO_ANSWER
from aioinformer.client.response import (
    PIECE_BYTES,
    PendingResponse,
    Response,
    keep_alive,
)
from aioinformer.errors import AioInformerError, OptionsError, TransportError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aiohttp.abc import AbstractStreamWriter

    from aioinformer.client.authenticator import Authenticator, RequestAuth
    from aioinformer.client.config import ClientConfig
    from aioinformer.client.request_metrics import RequestMetrics
    from aioinformer.client.response import Exchange
    from aioinformer.client.verbs import Request

__all__ = ["Transport"]

T = TypeVar("T")

logger = guarded_logger(__name__)


def _user_agent() -> str:
    try:
        return f"aioinformer/{importlib.metadata.version('aioinformer')}"
    except importlib.metadata.PackageNotFoundError:
        return "aioinformer"  # used from its sources


# Read from a file, so once: this module is imported in a thread.
USER_AGENT = _user_agent()

# Go's client keeps them for 90 s, and an API server closes them no earlier.
IDLE_SECONDS = 60.0

# Connections are aborted, so that this takes a few turns of the loop.
CLOSE_SECONDS = 5.0


# What a connection that was kept alive fails with, if the server had closed it.
_DEAD = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


class Transport:
    """One `aiohttp.ClientSession` to one API server. It owns no task.

    Must be made inside a running loop. Settings of the environment (proxies, netrc)
    are not looked at here, and the number of connections is not limited: watches occupy
    one each, and requests must never wait for them.

    Args:
        config: Which server, and how.
        authenticator: What requests and connections are let in with.
        meter: What measures requests, if somebody listens.
    """

    def __init__(
        self,
        config: ClientConfig,
        authenticator: Authenticator,
        meter: RequestMetrics | None = None,
    ) -> None:
        self._config = config
        self._authenticator = authenticator
        self._meter = meter
        # Weak: a closed socket leaves it by itself.
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        # Heads that are waited for, and answers that are read.
        self._in_flight: set[Exchange] = set()
        self._proxy, self._proxy_header = _proxy(config.proxy)
        # Not those of the session: aiohttp sends these with CONNECT, too, which is in
        # plain text.
        self._base = CIMultiDict(
            [
                ("Accept", "application/json"),
                ("Accept-Encoding", _encoding(gzip=config.gzip)),
                ("User-Agent", config.user_agent or USER_AGENT),
                *config.headers,
            ]
        )
        self._tunnel = {"User-Agent": USER_AGENT, **self._proxy_header}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                resolver=_Resolver(),
                keepalive_timeout=IDLE_SECONDS,
                socket_factory=self._open_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=PIECE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, connect=config.connect_seconds),
            trace_configs=[_tracing(config.head_seconds)],
            middlewares=(self._send_once,),
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
        auth = await self._auth()
        response = await self._head(request, auth)
        try:
            if response.status == 401 and await self._unless_closed(
                self._authenticator.renew(auth)
            ):
                response.close()
                self._repeats(request, response.status)
                response = await self._head(request, await self._auth())

            still_so = response.status == 304 and request.etag
            if not (200 <= response.status < 300 or still_so):
                raise await response.refusal(f"{request.method} {request.path}")

            refuse_web_page(response.headers, self._config.server)
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
        # aiohttp would close their connections too, but wake nobody who reads, and
        # cancel whoever looks up a name.
        self._closed = True
        while self._in_flight:
            for each in list(self._in_flight):
                each.close()

            await asyncio.sleep(0.001)

        await self._session.close()
        # Polled, as sockets tell nobody that they were closed.
        while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def _auth(self) -> RequestAuth:
        try:
            return await self._unless_closed(self._authenticator.current())
        except OptionsError as exc:
            # When the client was entered they could be got: perhaps they can again.
            raise TransportError(
                f"{self._config.server} cannot be asked: {exc}"
            ) from exc

    async def _unless_closed(self, renewing: Coroutine[Any, Any, T]) -> T:
        """Wait for what may take as long as somebody's plugin does."""
        waiting = PendingResponse()
        if self._closed:
            waiting.close()

        self._in_flight.add(waiting)
        try:
            async with waiting.patience:
                return await renewing
        except AioInformerError:
            raise
        except Exception as exc:
            if waiting.closed:
                raise self._gone() from exc

            what = f"{type(exc).__name__}: {redacted(str(exc))}"
            # Without a traceback, which could show a secret.
            logger.error("credentials could not be read: %s", what)  # noqa: TRY400
            raise TransportError(
                f"{self._config.server} cannot be asked: {what}"
            ) from exc
        finally:
            self._in_flight.discard(waiting)

    async def _head(self, request: Request, auth: RequestAuth) -> Response:
        if self._closed:
            raise self._gone()

        config, head = self._config, PendingResponse(request.fence)
        try:
            # Its clock starts when the request has been sent: see `_tracing()`.
            async with head.patience:
                self._in_flight.add(head)
                try:
                    raw = await self._ask(request, auth, head)
                finally:
                    self._in_flight.discard(head)

        except TimeoutError as exc:
            if head.closed:
                raise self._gone() from exc

            raise TransportError(
                f"{config.server} took the request and did not answer for "
                f"{config.head_seconds:g} s. Trying again may help."
            ) from exc

        return Response(raw, config, self._in_flight)

    def _gone(self) -> TransportError:
        return TransportError(
            f"the client of {self._config.server} was closed meanwhile"
        )

    async def _ask(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        """Send it, and once more if nothing but a dead connection can be the reason.

        A server closes connections that were idle for long, perhaps just when we use
        one. Whether it still did what we asked for cannot be known, so this is for
        reading only.
        """
        try:
            return await self._request(request, auth, head)
        except TransportError as exc:
            if _is_of_tls(exc):
                self._authenticator.reload()

            died = head.reused and isinstance(exc.__cause__, _DEAD)
            if not died or request.method != "GET":
                raise

        logger.debug("a kept-alive connection to %s was dead", self._config.server)
        self._repeats(request, NO_ANSWER)
        return await self._request(request, auth, head)

    def _repeats(self, request: Request, code: int | str) -> None:
        if self._meter is not None:
            self._meter.repeated(request.method, code)

    async def _request(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        if self._meter is None:
            return await self._request_once(request, auth, head)

        with self._meter.attempt(request.method) as answered:
            raw = await self._request_once(request, auth, head)
            answered(raw.status)
            return raw

    async def _request_once(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        config = self._config
        with map_errors(config.server, proxied=self._proxy is not None):
            return await self._session.request(
                request.method,
                URL(config.server + request.target, encoded=True),
                data=None if request.body is None else _Content(request.body),
                headers=self._headers(request, auth.info.authorization),
                # Connections of another context are not used any more, and go when idle.
                ssl=True if auth.context is None else auth.context,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._tunnel if config.secure else None,
                server_hostname=config.tls.server_name or None,
                trace_request_ctx=head,
            )

    def _headers(self, request: Request, authorization: str) -> CIMultiDict[str]:
        headers = self._base.copy()
        if authorization:
            headers["Authorization"] = authorization

        if request.body is not None:
            headers["Content-Type"] = request.content_type

        if request.gzip is not None:
            headers["Accept-Encoding"] = _encoding(gzip=request.gzip)

        if request.accept:
            headers["Accept"] = request.accept

        if request.etag:
            headers["If-None-Match"] = request.etag

        if not self._config.secure:
            headers.update(self._proxy_header)  # no tunnel: the proxy reads the request

        return headers

    async def _send_once(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Take from aiohttp what it would do about a connection that broke.

        It repeats PUT and DELETE as well, and may have lost the body by then: a dry run
        would be done in earnest. It repeats nothing that fails with an error of ours.
        """
        with map_errors(self._config.server, proxied=self._proxy is not None):
            return await handler(request)

    def _open_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        keep_alive(opened)
        self._sockets.add(opened)
        return opened


def _is_of_tls(exc: TransportError) -> bool:
    """Whether another certificate, or another authority, might help."""
    cause = exc.__cause__
    reasons = cause, cause and cause.__cause__
    return any(isinstance(it, aiohttp.ClientSSLError | ssl.SSLError) for it in reasons)


def _encoding(*, gzip: bool) -> str:
    return "gzip" if gzip else "identity"


def _tracing(head_seconds: float) -> aiohttp.TraceConfig:
    """Tell a `PendingResponse`, which is the context of its request, how that gets on."""

    async def reuse(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.reused = True

    # Called when there is a connection, and before anything is written to it.
    async def send(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.sending(head_seconds)

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(reuse)
    tracing.on_request_headers_sent.append(send)
    return tracing


def _proxy(url: str) -> tuple[URL | None, dict[str, str]]:
    """The proxy without its password, which errors would show, and a header with it."""
    if not url:
        return None, {}

    proxy = URL(url)
    if proxy.user is None and proxy.password is None:
        return proxy, {}

    pair = f"{proxy.user or ''}:{proxy.password or ''}".encode()
    header = {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return proxy.with_user(None), header


class _Resolver(AbstractResolver):
    """Looks up names with the system's resolver, each in a thread of its own.

    aiohttp's resolver uses the loop's default executor. Threads there that are busy
    would hold up requests, and cost a leader its Lease.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Cancellation: safe, its thread goes on."""
        return await in_thread(functools.partial(_addresses, host, port, family))

    async def close(self) -> None:
        """Do nothing: no look-up is kept."""


def _addresses(
    host: str, port: int, family: socket.AddressFamily
) -> list[ResolveResult]:
    found = socket.getaddrinfo(
        host,
        port,
        family=family,
        type=socket.SOCK_STREAM,
        flags=socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", -1),
    )
    # Numeric hosts keep the scope of link-local addresses: fe80::1%eth0.
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, numeric)[0],
            port=port,
            family=kind,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, protocol, _, address in found
    ]


class _Content(aiohttp.Payload):
    """A body: written in pieces, and as often as it takes.

    aiohttp warns about large `bytes`, and reads a file only once.
    """

    _value: bytes

    @property
    def size(self) -> int:
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, len(self._value), PIECE_BYTES):
            await writer.write(self._value[start : start + PIECE_BYTES])
