"""ASGI apps for any framework: health, metrics, an event stream, and the dashboard.

::

    app = FastAPI(lifespan=factory.lifespan)
    app.routes.append(Route("/events", event_stream(pods)))
    app.mount("/", health_routes(factory) + metrics_routes())  # last: it takes the rest

They are plain ASGI apps. Starlette, FastAPI and Litestar can mount them, and a server
can run them without a framework. `Route` is that of Starlette. A mount would match
`/events/` only, and leave `/events` to a redirect or the next mount.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, quote

from aioinformer._tasks import run_concurrently
from aioinformer.web.checks import CHECK_SECONDS
from aioinformer.web.connections import MAX_READERS, WRITE_SECONDS, not_begun
from aioinformer.web.health import health_responders
from aioinformer.web.metrics import metrics_responders
from aioinformer.web.responses import HEADERS, EndpointRequest, HTTPResponse, refusal
from aioinformer.web.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
    from typing import NoReturn, Unpack

    from prometheus_client import CollectorRegistry

    from aioinformer.controller.manager import Manager
    from aioinformer.informer.factory import SharedInformerFactory
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.checks import Check
    from aioinformer.web.dashboard.app import Dashboard, DashboardOptions
    from aioinformer.web.health import HasInformers
    from aioinformer.web.responses import Render, Responder
    from aioinformer.web.streams import StreamRequest

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MAX_PARAMETERS = 1000
"""Maximum number of query parameters. Web servers accept 64 KiB, which take 9 ms to parse."""

__all__ = [
    "DashboardApp",
    "Routes",
    "StreamApp",
    "dashboard",
    "event_stream",
    "health_routes",
    "metrics_routes",
]

Scope: TypeAlias = "MutableMapping[str, Any]"


def health_routes(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
    checks: Mapping[str, Check] | None = None,
    livez_checks: Mapping[str, Check] | None = None,
    check_timeout: Duration = CHECK_SECONDS,
) -> Routes:
    """Return an app with `/livez` and `/readyz`.

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
    return Routes(
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
) -> Routes:
    """Return an app with `/metrics` for Prometheus.

    Args:
        registry: Registry to export. None for the default one of prometheus-client,
            which `PrometheusSink()` uses.
        path: Path of the endpoint.

    Raises:
        OptionsError: If prometheus-client is missing, or the path has no leading slash.
    """
    return Routes(metrics_responders(registry, path=path))


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
) -> StreamApp:
    """Return an app that sends the objects of an informer as server-sent events.

    It ignores the path. Clients see the objects, so protect it. It returns 400 for an
    invalid query, and 503 if the informer has ended or has `max_readers` readers.

    uvicorn waits for all responses when it stops, without notifying them. The streams
    therefore look at the server that handles signals, and end when it should exit. With
    other servers, call `app.stream.close()`, or rely on their timeout (3 s in
    Hypercorn). uvicorn has no timeout by default, and waits forever for a client that
    does not read: set `--timeout-graceful-shutdown`.

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
        host_stops=_server_stops,
    )
    return StreamApp(stream)


def dashboard(
    *,
    factory: SharedInformerFactory | None = None,
    manager: Manager | None = None,
    **options: Unpack[DashboardOptions],
) -> DashboardApp:
    """Return an app with a page that shows informers, controllers and objects.

    ::

        app.mount("/dashboard", dashboard(factory=factory, guard=is_admin))

    Everybody who can open it sees all objects of the informers, without the data of
    Secrets: pass a `guard`, or protect it by a middleware. Streams end as those of
    `event_stream`.

    Args:
        factory: Factory whose informers are shown.
        manager: Manager whose controllers are shown, with the informers of its factory.
        **options: See `aioinformer.web.dashboard.Dashboard`.

    Raises:
        OptionsError: See `Dashboard`.
    """
    from aioinformer.web.dashboard.app import Dashboard

    page = Dashboard(
        factory=factory, manager=manager, host_stops=_server_stops, **options
    )
    return DashboardApp(page)


class Routes:
    """ASGI app of routes. Two can be added.

    Paths are relative to the mount, and a trailing slash is ignored. Other paths get
    404, or a redirect to the path without its trailing slash: mounted at `/`, it gets
    `/events/` if the framework has a route `/events` only. Methods other than GET and
    HEAD get 405. Lifespan events are accepted and ignored.

    Args:
        routes: Responders by path.
    """

    def __init__(self, routes: Mapping[str, Responder]) -> None:
        self._routes = {path.rstrip("/"): it for path, it in routes.items()}

    def __repr__(self) -> str:
        return f"<Routes {' '.join(path or '/' for path in self._routes)}>"

    def __add__(self, other: Routes) -> Routes:
        return Routes({**self._routes, **other._routes})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if await is_request(scope, receive, send):
            await send_response(scope, send, await self._answer(scope))

    async def _answer(self, scope: Scope) -> HTTPResponse:
        responder = self._routes.get(path_below(scope))
        if responder is None:
            return _without_slash(scope) or refusal(404, "not found")

        refused = _not_allowed(scope)
        if refused is not None:
            return refused

        query = _query(scope)
        if isinstance(query, HTTPResponse):
            return query

        return await responder(EndpointRequest(_header(scope, b"accept"), query))


class StreamApp:
    """ASGI app that sends events. Made by `event_stream`.

    Args:
        stream: Stream of the events.
    """

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        """Stream of the events. `stream.close()` ends all readers."""

    def __repr__(self) -> str:
        return f"<StreamApp {self.stream!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if not await is_request(scope, receive, send):
            return

        checked = self._check(scope)
        if isinstance(checked, HTTPResponse):
            await send_response(scope, send, checked)
            return

        await _send_stream(
            scope, receive, send, HEADERS, partial(self.stream.send, checked)
        )

    def _check(self, scope: Scope) -> StreamRequest | HTTPResponse:
        refused = _not_allowed(scope)
        if refused is not None:
            return refused

        query = _query(scope)
        if isinstance(query, HTTPResponse):
            return query

        given = [(name, value) for name, value in query if value]
        return self.stream.check_or_refuse(given, _header(scope, b"last-event-id"))


async def _send_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    headers: Mapping[str, str],
    serve: Callable[[Callable[[bytes], Awaitable[object]]], Awaitable[bool]],
) -> None:
    """Send a response whose body a coroutine function writes.

    Args:
        scope: Connection.
        receive: Function of the connection.
        send: Function of the connection.
        headers: Headers of the response.
        serve: Function that gets `write`; see `Connections.serve`.
    """
    if scope["method"] == "HEAD":
        await send(_start(200, headers))
        await send({"type": "http.response.body", "body": b""})
        return

    started = False

    async def write(chunk: bytes) -> None:
        nonlocal started
        if not started:
            started = True
            await send(_start(200, headers))

        if chunk:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def read_on() -> NoReturn:
        complete = await serve(write)
        raise _StreamEnded(complete)

    try:
        await run_concurrently(read_on(), _disconnected(receive))
    except _StreamEnded as ended:
        if ended.complete and not started:
            await send_response(scope, send, not_begun())
        elif ended.complete:
            await send({"type": "http.response.body", "body": b""})
        elif _abort(receive, send):
            await _until_disconnected(receive)


class DashboardApp:
    """ASGI app of a dashboard. Made by `dashboard`.

    Args:
        page: Dashboard to show.
    """

    def __init__(self, page: Dashboard) -> None:
        from aioinformer.web.dashboard.app import HEADERS as PAGE_HEADERS
        from aioinformer.web.dashboard.app import PageRequest

        self.page = page
        """Dashboard. `page.close()` ends all readers."""
        self._headers = HEADERS | PAGE_HEADERS
        self._request = PageRequest

    def __repr__(self) -> str:
        return f"<DashboardApp {self.page!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if not await is_request(scope, receive, send):
            return

        query = _query(scope)
        if isinstance(query, HTTPResponse):
            await send_response(scope, send, query)
            return

        path = path_below(scope)
        if not path and scope["path"].endswith("/"):
            path = "/"

        names = {name.decode("latin-1").lower() for name, _ in scope["headers"]}
        headers = {it: _header(scope, it.encode("latin-1")) for it in names}
        asked = self._request(scope["method"], path, query, headers, scope["path"])
        answer = await self.page.respond(asked)
        if isinstance(answer, HTTPResponse):
            await send_response(scope, send, answer)
        else:
            await _send_stream(
                scope,
                receive,
                send,
                self._headers,
                partial(self.page.send, answer),
            )


class _StreamEnded(Exception):
    """The stream has ended."""

    def __init__(self, complete: bool) -> None:
        super().__init__()
        self.complete = complete


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # other messages are the request's body


def _abort(receive: Receive, send: Send) -> bool:
    """Abort the connection of a stuck reader. Return False if that is not possible.

    ASGI has no message for it. uvicorn's callables are methods of the object that has
    the transport, unless a middleware wraps both. Closing the connection instead would
    wait for the reader without a limit.
    """
    for call in (receive, send):
        transport = getattr(getattr(call, "__self__", None), "transport", None)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
            return True

    return False


async def _disconnected(receive: Receive) -> NoReturn:
    await _until_disconnected(receive)
    raise _StreamEnded(complete=False)


async def is_request(scope: Scope, receive: Receive, send: Send) -> bool:
    """Return True for an HTTP request. Accept lifespans and close websockets."""
    if scope["type"] == "lifespan":
        while True:
            event = (await receive())["type"]
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return False

    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000, "reason": ""})
        return False

    return True


def path_below(scope: Scope) -> str:
    """Return the path relative to the mount, without a trailing slash.

    By the ASGI specification the path includes the mount, but some servers remove it.
    Starlette names the part that a proxy may have removed.
    """
    path: str = scope["path"].rstrip("/")
    root: str = scope.get("root_path", "").rstrip("/")
    for mount in (root, root.removeprefix(scope.get("app_root_path", ""))):
        if f"{path}/".startswith(f"{mount}/"):
            return path[len(mount) :]

    return path


def _query(scope: Scope) -> tuple[tuple[str, str], ...] | HTTPResponse:
    """Return the parameters of the query, or a refusal if there are too many."""
    text = scope.get("query_string", b"").decode("latin-1")
    try:
        return tuple(
            parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        )
    except ValueError:
        return refusal(400, f"more than {MAX_PARAMETERS} parameters")


def _not_allowed(scope: Scope) -> HTTPResponse | None:
    if scope["method"] in {"GET", "HEAD"}:
        return None

    return refusal(405, "method not allowed", Allow="GET, HEAD")


def _without_slash(scope: Scope) -> HTTPResponse | None:
    """Return a redirect to the path without its trailing slash, or None."""
    path: str = scope["path"]
    _, _, name = path.removesuffix("/").rpartition("/")
    if not name or not path.endswith("/") or _not_allowed(scope):
        return None

    if not path_below(scope):
        return None  # the framework has added the slash of the mount itself

    # Relative, as a proxy may have removed a prefix from the path.
    query = scope.get("query_string", b"").decode("latin-1")
    location = f"../{quote(name, safe='')}{query and f'?{query}'}"
    return refusal(307, "the path has no trailing slash", Location=location)


async def send_response(scope: Scope, send: Send, answer: HTTPResponse) -> None:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        **answer.headers,
    }
    await send(_start(answer.status, headers))
    body = b"" if scope["method"] == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})


def _start(status: int, headers: Mapping[str, str]) -> Message:
    pairs = [(name.lower().encode(), it.encode()) for name, it in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def _header(scope: Scope, name: bytes) -> str:
    values = [value for it, value in scope["headers"] if it == name]
    return ", ".join(value.decode("latin-1") for value in values)


def _server_stops() -> bool:
    """Return True if the server that handles signals should exit, as in uvicorn."""
    for number in (signal.SIGINT, signal.SIGTERM):
        server = getattr(signal.getsignal(number), "__self__", None)
        if getattr(server, "should_exit", False) is True:
            return True

    return False
