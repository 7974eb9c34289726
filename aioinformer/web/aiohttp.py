"""Routes for aiohttp apps: health, metrics, an event stream, and the dashboard.

::

    app = web.Application()
    app.add_routes(health_routes(factory) + metrics_routes())
    app.add_subapp("/events", event_stream(pods))
    app.cleanup_ctx.append(factory.cleanup_ctx)

A program without a web app serves them by `serve`.
"""

from __future__ import annotations

import contextlib
import socket
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

from aioinformer._runnables import wait_until_cancelled
from aioinformer._tasks import finish
from aioinformer._user_code import guarded_logger
from aioinformer.client.config import is_loopback
from aioinformer.errors import OptionsError
from aioinformer.web.checks import CHECK_SECONDS
from aioinformer.web.connections import MAX_READERS, WRITE_SECONDS, not_begun
from aioinformer.web.health import health_responders
from aioinformer.web.metrics import metrics_responders
from aioinformer.web.responses import HEADERS, EndpointRequest, HTTPResponse, refusal
from aioinformer.web.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from typing import NoReturn, Protocol, Unpack

    from aiohttp.typedefs import Handler, Middleware
    from prometheus_client import CollectorRegistry

    from aioinformer.controller.manager import Manager
    from aioinformer.informer.factory import SharedInformerFactory
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.checks import Check
    from aioinformer.web.dashboard.app import DashboardOptions
    from aioinformer.web.health import HasInformers
    from aioinformer.web.responses import Render, Responder

    class _Send(Protocol):
        def __call__(
            self,
            write: Callable[[bytes], Awaitable[object]],
            *,
            disconnected: Callable[[], bool] = ...,
        ) -> Awaitable[bool]: ...


__all__ = ["dashboard", "event_stream", "health_routes", "metrics_routes", "serve"]

logger: Final = guarded_logger(__name__)

MAX_PORT = 65535

CLOSE_SECONDS = 2.0
"""Maximum time to close all connections when `serve` ends."""

IDLE_SECONDS = 100.0
"""Time after which a connection without a complete head of a request is closed. Clients of
Go, such as API servers, close idle ones after 90 s: they must not send to a closed one.
Before 3.14.4, aiohttp closes only those that have sent a request before."""


def health_routes(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
    checks: Mapping[str, Check] | None = None,
    livez_checks: Mapping[str, Check] | None = None,
    check_timeout: Duration = CHECK_SECONDS,
) -> list[web.RouteDef]:
    """Return the routes `/livez` and `/readyz`.

    They return 200 or 503, and JSON with the phase, the age of the cache and the
    trouble of each informer. Each request looks at the current informers of the
    factory.

    - `/readyz`: 503 while an informer is not synced, has ended, or is older than
      `max_staleness`. Informers of `factory.use()` are listed but do not count.
    - `/livez`: 503 when an informer has failed, as only then a restart helps. It stays
      200 during an outage of the API server.

    Own checks are functions without arguments, plain or async. One that returns a text,
    raises or times out has failed, and so has the endpoint. The log has the text.
    `/readyz/NAME` runs one alone, `/readyz?exclude=NAME` all others, and
    `/readyz?verbose` returns lines of text.

    Args:
        *sources: Factories, managers or informers.
        max_staleness: Maximum age of a cache, in seconds or a timedelta. None keeps the
            app ready during an outage. See `aioinformer.web.health.readyz`.
        reasons: True to include error messages, which name servers, users and files.
        checks: Own checks of `/readyz` by name. Plain functions are called in the event
            loop, so they must not block.
        livez_checks: Own checks of `/livez` by name: what only a restart mends.
        check_timeout: Maximum duration of each check, below the timeout of the probe.

    Raises:
        OptionsError: If there are no sources, a time is not positive, or a check or its
            name is invalid.
    """
    return routes_of(
        health_responders(
            *sources,
            max_staleness=max_staleness,
            reasons=reasons,
            checks=checks,
            livez_checks=livez_checks,
            check_timeout=check_timeout,
        )
    )


def metrics_routes(
    registry: CollectorRegistry | None = None, *, path: str = "/metrics"
) -> list[web.RouteDef]:
    """Return the route `/metrics` for Prometheus.

    Args:
        registry: Registry to export. None for the default one of prometheus-client,
            which `PrometheusSink()` uses.
        path: Path of the endpoint.

    Raises:
        OptionsError: If prometheus-client is missing, or the path has no leading slash.
    """
    return routes_of(metrics_responders(registry, path=path))


async def serve(
    routes: Iterable[web.AbstractRouteDef], *, port: int, host: str | None = None
) -> NoReturn:
    """Serve routes until cancelled, in a program without a web app.

    ::

        routes = health_routes(manager) + metrics_routes()
        health = partial(serve, routes, port=8080)
        manager.add(health, leader_only=False, name="health")

    A manager stops it last, so probes are answered until the end. Requests are not
    logged.

    Args:
        routes: Routes to serve, such as those of `health_routes`.
        port: Port to listen on.
        host: Address to listen on. None for all addresses, as a kubelet sends probes to
            that of the pod. A loopback address answers 403 to requests to other names
            than localhost, which other sites send by a browser. A proxy before it must
            send `Host: localhost`, or an address, and not pass on its own name.

    Raises:
        OptionsError: If the port is invalid.
        OSError: If the address is in use, or not one of this machine.

    Cancellation:
        Closes all connections, within 2 s.
    """
    async with listening(app_of(routes), port=port, host=host):
        await wait_until_cancelled()


def check_port(port: object) -> None:
    """Reject anything but the number of a port, or 0 for any free one.

    The operating system would listen on another port, or fail without the reason.

    Raises:
        OptionsError: If the port is invalid.
    """
    if type(port) is not int or not 0 <= port <= MAX_PORT:
        raise OptionsError(
            f"a port must be a number from 0 to {MAX_PORT}, not {port!r}"
        )


def app_of(
    routes: Iterable[web.AbstractRouteDef],
    mounts: Mapping[str, web.Application] | None = None,
) -> web.Application:
    """Return an app of routes, and of apps that are mounted by their prefixes."""
    app = web.Application()
    app.add_routes(routes)
    for prefix, mounted in (mounts or {}).items():
        app.add_subapp(prefix, mounted)

    return app


@contextlib.asynccontextmanager
async def listening(
    app: web.Application, *, port: int, host: str | None = None
) -> AsyncIterator[int]:
    """Serve an app during the block, and return the port; see `serve`.

    Args:
        app: App to serve.
        port: See `serve`.
        host: See `serve`.

    Raises:
        OptionsError: See `serve`.
        OSError: See `serve`.

    Cancellation:
        Deferred until all connections are closed, within 2 s.
    """
    check_port(port)
    if host and is_loopback(host):
        app.middlewares.append(_localhost_only())

    # aiohttp waits up to twice that long: for responses in progress, and for connections.
    runner = runner_of(app, shutdown_timeout=CLOSE_SECONDS / 4)
    try:
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as exc:
            where = f"{host or 'all addresses'}, port {port}"
            reason = exc.strerror or exc
            raise OSError(exc.errno, f"cannot listen on {where}: {reason}") from None

        yield runner.addresses[0][1]
    finally:
        await finish(runner.cleanup(), within_seconds=CLOSE_SECONDS)


def runner_of(app: web.Application, *, shutdown_timeout: float) -> web.AppRunner:
    """Return a runner of an app that closes connections of clients that do nothing.

    Args:
        app: App to serve.
        shutdown_timeout: Time for responses in progress when the runner ends.
    """
    app.on_response_prepare.append(_limit_write)
    return web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=shutdown_timeout,
    )


def _localhost_only() -> Middleware:
    """Return a middleware that refuses requests to a name other than localhost.

    Another site may give its own name the address 127.0.0.1, and read the responses in
    the user's browser. A proxy on this machine may also pass on a name, so the first
    refusal is logged.
    """
    is_logged = False

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal is_logged
        name = request.headers.get("Host", "")
        if not _is_foreign(name):
            return await handler(request)

        if not is_logged:
            is_logged = True
            logger.warning(
                "refused a request to %r, as a loopback address is for localhost only: "
                "let a proxy send `Host: localhost` (later refusals are not logged)",
                name[:100],
            )

        return _response(refusal(403, "this address is for requests to localhost"))

    return refuse


def _is_foreign(host: str) -> bool:
    """Return whether a header `Host` has another name than localhost.

    An address is none: another site cannot give it away. Browsers always send the header.
    """
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return True

    return not (name is None or is_loopback(name) or _is_address(name))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False

    return True


async def _limit_write(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Let Linux abort the connection of a client that does not read its response.

    The connection would keep the response forever, also when it is closed. Streams have
    limits of their own.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    transport = request.transport
    if option is None or transport is None:
        return

    seconds = WRITE_SECONDS if isinstance(response, web.Response) else 0  # 0 for none
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1000))


def event_stream(
    informer: SharedInformer,
    *,
    namespace: str | Sequence[str] | None = None,
    label_selector: str = "",
    query: bool = True,
    heartbeat: Duration = 15.0,
    secret_data: bool = False,
    render: Render | None = None,
    resume_seconds: Duration = 60.0,
    max_readers: int | None = MAX_READERS,
    write_timeout: Duration | None = WRITE_SECONDS,
) -> web.Application:
    """Return an app that sends the objects of an informer as server-sent events.

    Mount it by `app.add_subapp("/events", ...)`, so that the streams end when that app
    shuts down. (aiohttp would wait a minute for them.) Clients see the objects, so
    protect it, for example by middlewares of the app. It returns 400 for an invalid
    query, and 503 if the informer has ended or has `max_readers` readers.

    Args:
        informer: Informer whose objects are sent.
        namespace: See `EventStream`, also for all further arguments.
        label_selector: See `EventStream`.
        query: See `EventStream`.
        heartbeat: See `EventStream`.
        secret_data: See `EventStream`.
        render: See `EventStream`.
        resume_seconds: See `EventStream`.
        max_readers: See `EventStream`. Further readers get 503.
        write_timeout: See `EventStream`.

    Raises:
        OptionsError: See `EventStream`.
        SelectorSyntaxError: See `EventStream`.
    """
    stream = EventStream(
        informer,
        namespace=namespace,
        label_selector=label_selector,
        query=query,
        heartbeat=heartbeat,
        secret_data=secret_data,
        render=render,
        resume_seconds=resume_seconds,
        max_readers=max_readers,
        write_timeout=write_timeout,
    )

    async def close(_: web.Application) -> None:
        stream.close()

    app = web.Application()
    for path in ("", "/"):
        app.router.add_get(path, partial(_send, stream))

    app.on_shutdown.append(close)
    return app


async def _send(stream: EventStream, request: web.Request) -> web.StreamResponse:
    last_event_id = request.headers.get("Last-Event-ID")
    checked = stream.check_or_refuse(request.query.items(), last_event_id)
    if isinstance(checked, HTTPResponse):
        return _response(checked)

    return await _streamed(request, HEADERS, partial(stream.send, checked))


async def _streamed(
    request: web.Request, headers: Mapping[str, str], send: _Send
) -> web.StreamResponse:
    """Return a response whose body a coroutine function sends.

    Args:
        request: Request to answer.
        headers: Headers of the response.
        send: Function that gets `write` and `disconnected`; see `Connections.serve`.
    """
    response = web.StreamResponse(headers=headers)
    if request.method == "HEAD":
        return response

    def disconnected() -> bool:
        transport = request.transport
        return transport is None or transport.is_closing()

    async def write(chunk: bytes) -> None:
        if not response.prepared:
            await response.prepare(request)

        if chunk:  # an empty chunk would end the response
            await response.write(chunk)

    with contextlib.suppress(ConnectionResetError):  # the client has left
        complete = await send(write, disconnected=disconnected)
        if complete and not response.prepared:
            return _response(not_begun())

        if not complete and request.transport is not None:
            # Closing would wait for a stuck reader, and keep its unsent data.
            request.transport.abort()

    return response


def dashboard(
    *,
    factory: SharedInformerFactory | None = None,
    manager: Manager | None = None,
    **options: Unpack[DashboardOptions],
) -> web.Application:
    """Return an app with a page that shows informers, controllers and objects.

    ::

        app.add_subapp("/dashboard", dashboard(factory=factory, guard=is_admin))

    Everybody who can open it sees all objects of the informers, without the data of
    Secrets: pass a `guard`, or protect it by middlewares of the app.

    Args:
        factory: Factory whose informers are shown.
        manager: Manager whose controllers are shown, with the informers of its factory.
        **options: See `aioinformer.web.dashboard.Dashboard`.

    Raises:
        OptionsError: See `Dashboard`.
    """
    from aioinformer.web.dashboard.app import HEADERS as PAGE_HEADERS
    from aioinformer.web.dashboard.app import Dashboard, PageRequest

    page = Dashboard(factory=factory, manager=manager, **options)
    headers = HEADERS | PAGE_HEADERS

    async def answer(request: web.Request) -> web.StreamResponse:
        # Empty at the mount itself without its slash. An app of its own is mounted at "".
        path = request.match_info.get("path")
        slash = path is not None or request.path.endswith("/")
        given = request.headers
        asked = PageRequest(
            request.method,
            f"/{path or ''}" if slash else "",
            tuple(request.query.items()),
            {it.lower(): ", ".join(given.getall(it)) for it in given},
            request.path,
        )
        found = await page.respond(asked)
        if isinstance(found, HTTPResponse):
            return _response(found)

        return await _streamed(request, headers, partial(page.send, found))

    async def close(_: web.Application) -> None:
        page.close()

    app = web.Application()
    for path in ("", "/{path:.*}"):
        app.router.add_route("*", path, answer)

    app.on_shutdown.append(close)
    return app


def routes_of(responders: Mapping[str, Responder]) -> list[web.RouteDef]:
    """Return the routes of responders."""
    return [web.get(path, partial(_answer, it)) for path, it in responders.items()]


async def _answer(responder: Responder, request: web.Request) -> web.Response:
    query = tuple(request.query.items())
    asked = EndpointRequest(request.headers.get("Accept", ""), query)
    return _response(await responder(asked))


def _response(answer: HTTPResponse) -> web.Response:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)
