"""`Transport`: the HTTP session of a client.

Importing this module loads aiohttp, so it is imported when a client is entered.
aiohttp's errors are mapped here.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import math
import socket
import ssl
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from aioinformer import __version__
from aioinformer._tasks import finish, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.backoff import RETRY_AFTER_LIMIT_SECONDS
from aioinformer.client.error_mapping import map_errors, refuse_web_page
from aioinformer.client.redaction import redacted
from aioinformer.client.request_metrics import NO_ANSWER
from aioinformer.client.response import (
    PIECE_BYTES,
    PendingResponse,
    Response,
    awaiting,
    keep_alive,
)
from aioinformer.client.warning_headers import Warnings
from aioinformer.errors import (
    AioInformerError,
    ApiError,
    OptionsError,
    TransportError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aiohttp.abc import AbstractStreamWriter

    from aioinformer.client.authenticator import Authenticator, RequestAuth
    from aioinformer.client.config import ClientConfig
    from aioinformer.client.request_metrics import RequestMetrics
    from aioinformer.client.response import Exchange
    from aioinformer.client.verbs import Request

__all__ = ["Transport"]

T = TypeVar("T")

logger: Final = guarded_logger(__name__)


USER_AGENT = f"aioinformer/{__version__}"

# Go's client keeps idle connections for 90 s. API servers do not close them earlier.
IDLE_SECONDS = 60.0

# Time without a response after which the other idle connections may be dead, too. Shorter
# ones are timeouts of users.
SILENT_SECONDS = 1.0

# Connections are aborted, which takes a few iterations of the loop.
CLOSE_SECONDS = 5.0


# Errors of a kept-alive connection that the server had closed.
_DEAD_CONNECTION_ERRORS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


class Transport:
    """HTTP session with one API server. It owns no task.

    Create it inside a running loop. Environment variables and netrc are ignored. The
    number of connections is not limited, as each watch occupies one and requests must
    never wait for them.

    Args:
        config: Server and connection settings.
        authenticator: Source of credentials and SSL contexts.
        meter: Receiver of request metrics; None for none.
        wait_for_turn: Function awaited before a request is repeated; None for none.
    """

    def __init__(
        self,
        config: ClientConfig,
        authenticator: Authenticator,
        meter: RequestMetrics | None = None,
        wait_for_turn: Callable[[Request], Awaitable[None]] | None = None,
    ) -> None:
        self._config = config
        self._authenticator = authenticator
        self.meter = meter
        """Receiver of request metrics, or None."""
        self._wait_for_turn = wait_for_turn
        self._warnings = Warnings(config.server, config.on_warning)
        # Weak, so that closed sockets drop out.
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._spare: list[bytearray] = []
        # Requests that wait for a response, and responses that are read.
        self._in_flight: set[Exchange] = set()
        self._proxy, self._proxy_header = _proxy(config.proxy)
        # Not set on the session: aiohttp would send them with CONNECT, too, which is in
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
        self._connector = _Connector(
            limit=0,
            resolver=_Resolver(),
            keepalive_timeout=IDLE_SECONDS,
            socket_factory=self._open_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=PIECE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, connect=config.connect_seconds),
            trace_configs=[_tracing(config.head_seconds)],
            middlewares=(self._send_once,),
        )

    async def send(self, request: Request, *, repeat: bool = False) -> Response:
        """Send a request and wait for the head of its response.

        After a 401 the credentials are renewed. If they have changed, the request is
        sent once more.

        Args:
            request: The request. Its fence is called again before each repetition.
            repeat: True to repeat it after a 429 or 5xx with a `Retry-After`, by which
                the server says that it has not executed the request.

        Returns:
            The response. The caller closes it.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed, or the head did not arrive in time.
            DecodeError: If the response is a web page.

        Cancellation:
            Safe: the connection is closed. The server may have executed a write.
        """
        repeat = repeat and request.repeated and not request.urgent
        left = self._config.max_retries if repeat else 0
        while True:
            try:
                return await self._send(request)
            except ApiError as exc:
                seconds = _repeat_after(exc)
                if left == 0 or seconds is None:
                    raise

                left, status = left - 1, exc.status

            logger.debug(
                "%s %s got %d, repeating it in %g s (%d left)",
                request.method,
                request.path,
                status,
                seconds,
                left,
            )
            await self._unless_closed(asyncio.sleep(seconds))
            if self._wait_for_turn is not None:
                await self._wait_for_turn(request)

            self._count_retry(request, status)

    async def _send(self, request: Request) -> Response:
        auth = await self._auth()
        response = await self._head(request, auth)
        try:
            if response.status == 401 and await self._unless_closed(
                self._authenticator.renew(auth)
            ):
                response.close()
                self._count_retry(request, response.status)
                response = await self._head(request, await self._auth())

            if "Warning" in response.raw.headers:
                values = response.raw.headers.getall("Warning")
                self._warnings.report(values, f"{request.method} {request.path}")

            not_modified = response.status == 304 and request.etag
            if not (200 <= response.status < 300 or not_modified):
                raise await response.refusal(f"{request.method} {request.path}")

            refuse_web_page(response.headers, self._config.server)
        except BaseException:
            response.close()
            raise

        return response

    async def close(self) -> None:
        """Close all connections, also those in use, and wait for their end.

        Cancellation:
            Deferred until all are closed, 5 s at most.
        """
        try:
            await finish(self._close(), within_seconds=CLOSE_SECONDS)
        except TimeoutError:
            logger.warning(
                "connections to %s did not close in time", self._config.server
            )

    async def _close(self) -> None:
        # aiohttp would close the connections too, but not wake their readers, and would
        # cancel name look-ups.
        self._closed = True
        while self._in_flight:
            for each in list(self._in_flight):
                each.close()

            await asyncio.sleep(0.001)

        await self._session.close()
        # Polled, as sockets do not notify about being closed.
        while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def _auth(self) -> RequestAuth:
        try:
            return await self._unless_closed(self._authenticator.current())
        except OptionsError as exc:
            # They were valid when the client was entered, so this may be temporary.
            raise TransportError(
                f"cannot authenticate to {self._config.server}: {exc}"
            ) from exc

    async def _unless_closed(self, renewing: Coroutine[Any, Any, T]) -> T:
        """Wait for credentials, which may take as long as an exec plugin."""
        waiting = PendingResponse()
        if self._closed:
            waiting.close()

        self._in_flight.add(waiting)
        try:
            async with waiting.timeout:
                return await renewing
        except AioInformerError:
            raise
        except Exception as exc:
            if waiting.closed:
                raise self._closed_error() from exc

            what = f"{type(exc).__name__}: {redacted(str(exc))}"
            # Without a traceback, which could show a secret.
            logger.error("cannot read credentials: %s", what)  # noqa: TRY400
            raise TransportError(
                f"cannot authenticate to {self._config.server}: {what}"
            ) from exc
        finally:
            self._in_flight.discard(waiting)

    async def _head(self, request: Request, auth: RequestAuth) -> Response:
        if self._closed:
            raise self._closed_error()

        config = self._config
        spare = self._spare if request.method == "GET" else None
        head = PendingResponse(request.fence, spare)
        try:
            # The time limit starts when the request is sent: see `_tracing()`.
            async with head.timeout:
                self._in_flight.add(head)
                try:
                    raw = await self._request_with_retry(request, auth, head)
                finally:
                    self._in_flight.discard(head)

        except TimeoutError as exc:
            if head.closed:
                raise self._closed_error() from exc

            raise TransportError(
                f"{config.server} accepted the request but did not respond for "
                f"{config.head_seconds:g} s"
            ) from exc

        return Response(raw, config, self._in_flight, head.body)

    def _closed_error(self) -> TransportError:
        return TransportError(
            f"the client of {self._config.server} was closed during the request"
        )

    async def _request_with_retry(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        """Send a request; repeat it once if only a dead connection can be the cause.

        Servers close idle connections, perhaps just when one is reused. It is unknown
        whether the server has executed the request, so only reads are repeated.
        """
        try:
            return await self._request(request, auth, head)
        except TransportError as exc:
            if _is_tls_failure(exc):
                self._authenticator.reload()

            was_dead = head.reused and isinstance(
                exc.__cause__, _DEAD_CONNECTION_ERRORS
            )
            if not was_dead or request.method != "GET":
                raise

        logger.debug("kept-alive connection to %s was dead", self._config.server)
        self._count_retry(request, NO_ANSWER)
        return await self._request(request, auth, head)

    def _count_retry(self, request: Request, code: int | str) -> None:
        if self.meter is not None:
            self.meter.repeated(request.method, code)

    async def _request(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        if self.meter is None:
            return await self._request_once(request, auth, head)

        with self.meter.attempt(request.method) as answered:
            raw = await self._request_once(request, auth, head)
            answered(raw.status)
            return raw

    async def _request_once(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        token = awaiting.set(head)
        try:
            with map_errors(self._config.server, proxied=self._proxy is not None):
                raw = await self._open(request, auth, head)
        except BaseException:
            head.given_up()
            if head.reused and head.silence >= SILENT_SECONDS:
                self._connector.drop_idle()

            raise
        finally:
            awaiting.reset(token)

        head.answered()
        return raw

    async def _open(
        self, request: Request, auth: RequestAuth, head: PendingResponse
    ) -> aiohttp.ClientResponse:
        config = self._config
        return await self._session.request(
            request.method,
            URL(config.server + request.target, encoded=True),
            data=None if request.body is None else _Content(request.body),
            headers=self._headers(request, auth.info.authorization),
            # Connections of older contexts are not reused, and close when idle.
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
        """Prevent retries by aiohttp after a broken connection.

        aiohttp also repeats PUT and DELETE, and may have lost the body by then: a dry
        run would become a real one. It does not repeat after errors of this package.
        """
        with map_errors(self._config.server, proxied=self._proxy is not None):
            return await handler(request)

    def _open_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        keep_alive(opened)
        self._sockets.add(opened)
        return opened


class _Connector(aiohttp.TCPConnector):
    """Connector that passes each connection to the response that waits for it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Time of the loop at which each connection was used last.
        self._used = weakref.WeakKeyDictionary[object, float]()
        self._dropped = -math.inf

    def drop_idle(self) -> None:
        """Use no connection again that was used before.

        One has died without a word, as when a load balancer forgets its connections. The
        next request would get another dead one, and wait as long.
        """
        self._dropped = asyncio.get_running_loop().time()

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        response = awaiting.get()
        now = asyncio.get_running_loop().time
        while True:
            connection = await super().connect(*args, **kwargs)
            protocol = connection.protocol
            if self._used.get(protocol, math.inf) > self._dropped:
                break

            connection.close()
            if response is not None:
                response.reused = False

        self._used[protocol] = now()
        if response is not None:
            response.connected(connection.transport)

        return connection


def _repeat_after(exc: ApiError) -> float | None:
    """Return the seconds after which a refused request is repeated; None for never.

    A server that asks for minutes gets the request no more: the caller shall decide.
    """
    wait = exc.retry_after
    if wait is None or wait > RETRY_AFTER_LIMIT_SECONDS:
        return None

    return wait if exc.status == 429 or exc.status >= 500 else None


def _is_tls_failure(exc: TransportError) -> bool:
    """Return whether TLS failed, so that reloading certificates might help."""
    cause = exc.__cause__
    reasons = cause, cause and cause.__cause__
    return any(isinstance(it, aiohttp.ClientSSLError | ssl.SSLError) for it in reasons)


def _encoding(*, gzip: bool) -> str:
    return "gzip" if gzip else "identity"


def _tracing(head_seconds: float) -> aiohttp.TraceConfig:
    """Notify the `PendingResponse`, the context of a request, of its progress."""

    async def reuse(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.reused = True

    # Called once there is a connection, before anything is written to it.
    async def send(_session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.sending(head_seconds)

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(reuse)
    tracing.on_request_headers_sent.append(send)
    return tracing


def _proxy(url: str) -> tuple[URL | None, dict[str, str]]:
    """Return the proxy without its password, which errors would show, and a header."""
    if not url:
        return None, {}

    proxy = URL(url)
    if proxy.user is None and proxy.password is None:
        return proxy, {}

    pair = f"{proxy.user or ''}:{proxy.password or ''}".encode()
    header = {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return proxy.with_user(None), header


class _Resolver(AbstractResolver):
    """Resolver that uses the system's, with a thread for each look-up.

    aiohttp's resolver uses the loop's default executor. If its threads are busy,
    requests would be delayed, and a leader would lose its Lease.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Cancellation: safe, the thread continues."""
        return await in_thread(functools.partial(_addresses, host, port, family))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


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
    """Request body that is written in pieces, and can be written repeatedly.

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
