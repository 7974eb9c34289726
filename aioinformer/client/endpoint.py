"""`Endpoint`: the part of a client that is entered and left."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aioinformer._tasks import finish, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.access import Access
from aioinformer.client.config import ClientConfig
from aioinformer.client.credentials import Credentials
from aioinformer.client.proof import is_transient
from aioinformer.client.proxies import proxy_of_environment
from aioinformer.client.request_meter import RequestMeter
from aioinformer.client.throttle import Throttle
from aioinformer.client.tls import TLSOptions
from aioinformer.client.verbs import Request
from aioinformer.errors import (
    OptionsError,
    TransportError,
    WrongLoop,
)
from aioinformer.metrics import NULL_SINK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aioinformer.client.config import ConfigSource
    from aioinformer.client.exchange import Response
    from aioinformer.client.transport import Transport
    from aioinformer.metrics import MetricsSink

__all__ = ["Endpoint"]

logger = guarded_logger(__name__)

# For plugins that are killed, which takes no time.
LEAVE_SECONDS = 5.0

_NOT_ENTERED = (
    "this client is not entered: use `async with client:`, or `await client.start()`"
)


class Endpoint:
    """One API server: where it is, and the HTTP session with it while entered.

    Args:
        source: The configuration, or a function that reads it, in a thread, each time
            when the client is entered.
        qps: How many requests are sent each second; None for any number. The others
            wait, in the order of asking. A watch counts when it is opened, and the
            requests of a `LeaseLock` neither wait nor count.
        burst: How many are sent at once after a pause; None for two seconds' worth,
            which is what client-go has.
        metrics: Takes the metrics of client-go's requests; see `RequestMeter`.

    Raises:
        OptionsError: If `qps` and `burst` cannot work.
    """

    def __init__(
        self,
        source: ClientConfig | ConfigSource,
        *,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        self._source = source
        self._throttle = Throttle.of(qps, burst)
        self._metrics = metrics if metrics.enabled else None
        self._meter: RequestMeter | None = None
        self._config = source if isinstance(source, ClientConfig) else None
        # The `start()` under way, which `close()` takes away from it.
        self._entering: object | None = None
        # Invariant: the loop is that of the transport, or of the last one.
        self._transport: Transport | None = None
        self._access: Access | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # What a `close()` under way closes.
        self._leaving: Transport | None = None

    # ------------------------------------------------------------ where to

    @classmethod
    def from_env(
        cls,
        *,
        context: str | None = None,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use what there is: `KUBECONFIG`, `~/.kube/config`, or the pod we are in.

        Through the proxy that the file names, else that of `HTTPS_PROXY`.

        Args:
            context: A context of the kubeconfig files; None for the current one. With
                one, entering fails if there is no kubeconfig, also in a pod.
            gzip: Ask for compressed answers: for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """

        def read() -> ClientConfig:
            from aioinformer.client.environment import load_from_environment

            return replace(load_from_environment(context), gzip=gzip)

        return cls(read, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        *,
        context: str | None = None,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use kubeconfig files.

        Args:
            path: One file; None for those of `KUBECONFIG`, or `~/.kube/config`.
            context: One of its contexts; None for the current one.
            gzip: Ask for compressed answers: for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """

        def read() -> ClientConfig:
            from aioinformer.client.kubeconfig import load_kubeconfig

            return replace(load_kubeconfig(path, context), gzip=gzip)

        return cls(read, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def in_cluster(
        cls,
        *,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use the service account of the pod that we are in.

        Args:
            gzip: Ask for compressed answers: for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """

        def read() -> ClientConfig:
            from aioinformer.client.in_cluster import load_in_cluster

            return replace(load_in_cluster(), gzip=gzip)

        return cls(read, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        verify: bool = True,
        namespace: str = "default",
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use a server by its URL, such as that of `kubectl proxy`.

        Args:
            url: `http://` or `https://`, host, and perhaps port and path.
            token: A bearer token.
            token_file: A file that holds one, and is read again from time to time.
            ca_file: PEM certificates to trust; None for those of the system.
            verify: False accepts every certificate, so that anybody in between can
                read and act; for tests only.
            namespace: What `client.namespace` says.
            gzip: Ask for compressed answers: for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.

        Raises:
            OptionsError: If the URL or the token cannot be one.
        """
        # From the root: they are read again later, perhaps from another folder.
        ca = Path(ca_file).absolute() if ca_file is not None else None
        file = Path(token_file).absolute() if token_file is not None else None
        config = ClientConfig(
            server=url,
            namespace=namespace,
            credentials=Credentials(token=token or "", token_file=file),
            tls=TLSOptions(ca=ca, verify=verify),
            proxy=proxy_of_environment(url),
            gzip=gzip,
        )
        return cls(config, qps=qps, burst=burst, metrics=metrics)

    @classmethod
    def from_kubernetes_asyncio(
        cls,
        client: Any,
        *,
        gzip: bool = False,
        qps: float | None = None,
        burst: int | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> Self:
        """Use the server and credentials of a client of kubernetes_asyncio.

        Connections are our own: that client may be closed. Its `refresh_api_key_hook`
        is called before each request. `ListWatch.from_kubernetes_asyncio` sends
        requests through such a client instead.

        Args:
            client: An `ApiClient`, whose default headers are sent too, or a
                `Configuration`; of `kubernetes.aio` as well.
            gzip: Ask for compressed answers: for slow links only.
            qps: See the class.
            burst: See the class.
            metrics: See the class.
        """

        def read() -> ClientConfig:
            from aioinformer.client import kubernetes_asyncio_config as theirs

            return replace(theirs.load_kubernetes_asyncio(client), gzip=gzip)

        return cls(read, qps=qps, burst=burst, metrics=metrics)

    # ------------------------------------------------------------ lifetime

    @property
    def entered(self) -> bool:
        """True while requests can be made."""
        return self._transport is not None

    @property
    def config(self) -> ClientConfig:
        """What was configured.

        Raises:
            OptionsError: If it has not been read, as the client was never entered.
        """
        if self._config is None:
            raise OptionsError(_NOT_ENTERED)

        return self._config

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig context or pod; only ever used by you.

        Raises:
            OptionsError: If the client was never entered.
        """
        return self.config.namespace

    async def start(self) -> None:
        """Read the configuration and get ready; connects to nothing yet.

        Raises:
            OptionsError: If it is entered already, or the configuration cannot work.
            TransportError: If it was closed meanwhile. Not if this machine ran out of
                something for a moment: then requests try again.

        Cancellation:
            Safe: it is as if it had not been called.
        """
        if self._entering is not None or self._transport is not None:
            raise OptionsError(f"{self} is entered already: it cannot be twice at once")

        entering = self._entering = object()
        try:
            config = await _read_in_thread(self._source)
            access = Access(config)
            access.open()
            try:
                await _get_ready(access, config)
                if self._entering is not entering:
                    raise TransportError(
                        f"{self} was closed while it was being entered"
                    )
            except BaseException:
                await finish(access.close(), within_seconds=LEAVE_SECONDS)
                raise
        finally:
            if self._entering is entering:
                self._entering = None

        from aioinformer.client.transport import Transport

        self._config = config
        self._loop = asyncio.get_running_loop()
        if self._metrics is not None:
            self._meter = RequestMeter(self._metrics, config.server)

        self._transport = Transport(config, access, self._meter)
        self._access = access

    async def close(self) -> None:
        """Close all connections, also those in use; idempotent.

        Requests and watches under way end with `TransportError`, and so does a
        `start()` under way. While another task closes it, this waits for the same end.

        Raises:
            WrongLoop: If it was entered in another event loop.

        Cancellation:
            Deferred until it is done; that takes 5 s at most.
        """
        self._entering = None
        transport = self._transport or self._leaving
        if transport is None:
            return

        self._check_loop()
        self._transport, self._leaving = None, transport
        if self._throttle is not None:
            self._throttle.release()

        access = self._access
        try:
            await transport.close()
        finally:
            try:
                if access is not None:
                    await finish(access.close(), within_seconds=LEAVE_SECONDS)
            finally:
                if self._leaving is transport:
                    self._leaving = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        server = f" {self._config.server}" if self._config is not None else ""
        return f"<Client{server} {'' if self.entered else 'not '}entered>"

    # ------------------------------------------------------------ requests

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        gzip: bool | None = None,
        accept: str = "",
        etag: str = "",
    ) -> AsyncIterator[Response]:
        """Send any request and read its answer as it arrives.

        Leaving the context closes the connection if the body was not read to its end.

        Args:
            method: Of HTTP, such as `"GET"`.
            path: Beginning with `/`, escaped, without a query.
            params: The query; those that are empty are left out.
            body: What to send.
            content_type: Of the body.
            gzip: Ask for a compressed answer; None for what the client was told.
            accept: The media types to accept; empty for JSON.
            etag: The `ETag` of what is known already: if it is so still, the answer has
                the status 304 and no body.

        Raises:
            ApiError: If the server refused; its subclasses say why.
            TransportError: If the network failed, or the client was closed.
            DecodeError: If the answer is a web page.
            OptionsError: If the client was never entered.
            WrongLoop: If it was entered in another event loop.

        Cancellation:
            Safe: the connection is closed. A write may have been done.
        """
        request = Request(
            method, path, params or {}, body, content_type, gzip, accept, etag
        )
        response = await self._send(request)
        try:
            yield response
        finally:
            response.close()

    async def _fetch(self, request: Request, *, discard: bool = False) -> bytes:
        """Send a request and read its whole answer, which is kept unless told."""
        response = await self._send(request)
        pieces = []
        try:
            while piece := await response.read_some():
                if not discard:
                    pieces.append(piece)
        finally:
            response.close()

        return b"".join(pieces)

    async def _send(self, request: Request) -> Response:
        if self._throttle is not None and not request.urgent:
            self._live()
            await self._take_turn(self._throttle, request)

        return await self._live().send(request)

    async def _take_turn(self, throttle: Throttle, request: Request) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await throttle.wait()
        if self._meter is not None:
            self._meter.waited(request.method, loop.time() - before)

    def _live(self) -> Transport:
        if self._transport is not None:
            self._check_loop()
            return self._transport

        if self._loop is None:
            raise OptionsError(_NOT_ENTERED)

        # Its owner's doing, perhaps just now: to whoever uses it, it is like a network
        # that went away.
        raise TransportError(f"{self} was closed: it must be entered again")

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
            f"cannot read the client's configuration: {exc.strerror}. "
            "Trying again may help."
        ) from exc


async def _get_ready(access: Access, config: ClientConfig) -> None:
    try:
        await access.ticket()
    except TransportError as exc:
        logger.warning(
            "%s cannot be asked yet, requests try again: %s", config.server, exc
        )


def _read(source: ClientConfig | ConfigSource) -> ClientConfig:
    """Do all that blocks; runs in a thread."""
    # 0.1 s where nobody has imported aiohttp yet.
    import aioinformer.client.transport  # noqa: F401

    config = source if isinstance(source, ClientConfig) else source()
    if config.secure and not config.tls.verify:
        logger.warning(
            "TLS verification of %s is off: anybody in between can read everything "
            "and act in your name",
            config.server,
        )

    return config
