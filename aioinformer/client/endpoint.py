"""`Endpoint`: the connection of a client to its API server, from entering to leaving."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aioinformer._tasks import finish, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import is_transient
from aioinformer.client.authenticator import Authenticator
from aioinformer.client.config import ClientConfig
from aioinformer.client.request_metrics import RequestMetrics
from aioinformer.client.throttle import Throttle
from aioinformer.client.verbs import Request
from aioinformer.errors import OptionsError, TransportError, WrongLoop
from aioinformer.tracing import request_span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioinformer.client.config import ConfigSource
    from aioinformer.client.response import Response
    from aioinformer.client.transport import Transport
    from aioinformer.metrics import MetricsSink

__all__ = ["Endpoint", "RepeatingRequester"]

logger: Final = guarded_logger(__name__)

# Time for killing exec plugins, which takes milliseconds.
LEAVE_SECONDS = 5.0

_NOT_ENTERED = (
    "this client is not entered: use `async with client:`, or `await client.start()`"
)


class RepeatingRequester:
    """Sender of lists and watches that are repeated as the server asks.

    Implements `aioinformer.client.list_watch.Requester`. Informers do not use it: they
    have a backoff of their own.

    Args:
        endpoint: Sender of the requests.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and read its response; see `Client.stream()`."""
        request = Request(method, path, params or {}, gzip=gzip, accept=accept)
        return self._endpoint.stream(request, repeat=True)


class Endpoint:
    """One API server: its configuration, and the HTTP session while entered.

    Args:
        source: Configuration, or a function that reads it in a thread on each entry.
        qps: Requests per second; None for no limit.
        burst: Requests sent at once after a pause; None for two seconds' worth.
        metrics: Receiver of the measurements.

    Raises:
        OptionsError: If `qps` and `burst` are invalid.
    """

    def __init__(
        self,
        source: ClientConfig | ConfigSource,
        *,
        qps: float | None,
        burst: int | None,
        metrics: MetricsSink,
    ) -> None:
        if not (isinstance(source, ClientConfig) or callable(source)):
            raise OptionsError(
                f"a Client needs a ClientConfig, not a {type(source).__name__}: use "
                "Client.from_env(), Client.from_url(...) or "
                "Client.from_kubernetes_asyncio(...)"
            )

        self._source = source
        self._throttle = Throttle.of(qps, burst)
        self._sink: MetricsSink | None = None
        self._metrics: RequestMetrics | None = None
        self._config = source if isinstance(source, ClientConfig) else None
        # Token of the `start()` in progress. `close()` removes it to abort that.
        self._entering: object | None = None
        # Invariant: the loop is that of the transport, or of the last one.
        self._transport: Transport | None = None
        self._authenticator: Authenticator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Transport that a `close()` in progress is closing.
        self._closing: Transport | None = None
        self.set_metrics(metrics)

    def __str__(self) -> str:
        if self._config is None:
            return "this client"

        return f"the client of {self._config.server}"

    def __repr__(self) -> str:
        server = f" {self._config.server}" if self._config is not None else ""
        return f"<Client{server} {'' if self.entered else 'not '}entered>"

    @property
    def entered(self) -> bool:
        """True while requests can be sent."""
        return self._transport is not None

    @property
    def config(self) -> ClientConfig:
        """Configuration of the client.

        Raises:
            OptionsError: If it was not read yet, because the client was never entered.
        """
        if self._config is None:
            raise OptionsError(_NOT_ENTERED)

        return self._config

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless there is one."""
        if self._sink is None and sink.enabled:
            self._sink = sink
            if self._transport is not None:
                self._metrics = RequestMetrics(sink, self.config.server)
                self._transport.meter = self._metrics

    async def start(self) -> None:
        """Read the configuration and prepare requests; see `Client.start()`.

        Raises:
            OptionsError: If it is entered already, or the configuration is invalid.
            TransportError: If it was closed meanwhile.

        Cancellation:
            Safe: the endpoint stays closed.
        """
        if self._entering is not None or self._transport is not None:
            raise OptionsError(f"{self} is already entered: leave it first")

        entering = self._entering = object()
        try:
            config = await _read_in_thread(self._source)
            authenticator = Authenticator(config)
            authenticator.open()
            try:
                await _authenticate(authenticator, config)
                if self._entering is not entering:
                    raise TransportError(
                        f"{self} was closed while it was being entered"
                    )
            except BaseException:
                await finish(authenticator.close(), within_seconds=LEAVE_SECONDS)
                raise
        finally:
            if self._entering is entering:
                self._entering = None

        from aioinformer.client.transport import Transport

        self._config = config
        self._loop = asyncio.get_running_loop()
        if self._sink is not None:
            self._metrics = RequestMetrics(self._sink, config.server)

        self._transport = Transport(
            config, authenticator, self._metrics, self._wait_for_turn
        )
        self._authenticator = authenticator

    async def close(self) -> None:
        """Close all connections; see `Client.close()`. Idempotent.

        Raises:
            WrongLoop: If it was entered in another event loop.

        Cancellation:
            Deferred until all is closed, 5 s at most.
        """
        self._entering = None
        transport = self._transport or self._closing
        if transport is None:
            return

        self._check_loop()
        self._transport, self._closing = None, transport
        if self._throttle is not None:
            self._throttle.release()

        authenticator = self._authenticator
        try:
            await transport.close()
        finally:
            try:
                if authenticator is not None:
                    await finish(authenticator.close(), within_seconds=LEAVE_SECONDS)
            finally:
                if self._closing is transport:
                    self._closing = None

    async def send(self, request: Request, *, repeat: bool = False) -> Response:
        """Send a request when the rate limit allows it, and wait for the response.

        Args:
            request: The request.
            repeat: True to repeat it as the server asks; see `Transport.send()`.

        Returns:
            Response, whose body is still to be read. The caller closes it.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed, or the client was closed.
            DecodeError: If the response is a web page.
            OptionsError: If the client was never entered.
            WrongLoop: If it was entered in another event loop.

        Cancellation:
            Safe: the connection is closed. The server may have executed a write.
        """
        self.transport()
        await self._wait_for_turn(request)
        transport = self.transport()
        tracing = request_span(request.method, request.path, self.config.server)
        if tracing is None:
            return await transport.send(request, repeat=repeat)

        with tracing as span:
            response = await transport.send(request, repeat=repeat)
            span.answered(response.status)
            return response

    @asynccontextmanager
    async def stream(
        self, request: Request, *, repeat: bool = False
    ) -> AsyncIterator[Response]:
        """Send a request for one `async with` block, and close the response after it.

        Args:
            request: The request.
            repeat: Same as in `send()`.

        Raises:
            ApiError: Same errors as `send()`.
        """
        response = await self.send(request, repeat=repeat)
        try:
            yield response
        finally:
            response.close()

    async def _wait_for_turn(self, request: Request) -> None:
        """Wait until the rate limit allows a request, or the endpoint is closed."""
        if self._throttle is None or request.urgent:
            return

        loop = asyncio.get_running_loop()
        before = loop.time()
        await self._throttle.wait()
        if self._metrics is not None:
            self._metrics.throttled(request.method, loop.time() - before)

    def transport(self) -> Transport:
        """Return the HTTP session.

        Raises:
            OptionsError: If the client was never entered.
            TransportError: If it was closed.
            WrongLoop: If it was entered in another event loop.
        """
        if self._transport is not None:
            self._check_loop()
            return self._transport

        if self._loop is None:
            raise OptionsError(_NOT_ENTERED)

        # Its owner may just have closed it. For its users that is like a network
        # failure.
        raise TransportError(f"{self} was closed: enter it again")

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop(f"{self} was entered in another event loop")


async def _read_in_thread(source: ClientConfig | ConfigSource) -> ClientConfig:
    try:
        return await in_thread(functools.partial(_read, source))
    except OSError as exc:
        if not is_transient(exc):
            raise

        raise TransportError(
            f"cannot read the client's configuration: {exc.strerror}"
        ) from exc


async def _authenticate(authenticator: Authenticator, config: ClientConfig) -> None:
    try:
        await authenticator.current()
    except TransportError as exc:
        logger.warning(
            "no credentials for %s yet, requests will retry: %s", config.server, exc
        )


def _read(source: ClientConfig | ConfigSource) -> ClientConfig:
    """Do everything that blocks. Runs in a thread."""
    # Takes 0.1 s if aiohttp is not imported yet.
    import aioinformer.client.transport  # noqa: F401

    config = source if isinstance(source, ClientConfig) else source()
    if config.secure and not config.tls.verify:
        logger.warning(
            "TLS verification is off for %s: anybody on the network path can read "
            "requests and act with this client's credentials",
            config.server,
        )

    return config
