"""What a web app of any ASGI framework mounts: health, metrics, a live stream.

::

    app = FastAPI(lifespan=factory.lifespan)
    app.routes.append(Route("/events", event_stream(pods)))
    app.mount("/", health_routes(factory) + metrics_routes())  # last: it takes the rest

They are plain ASGI apps and need no framework: Starlette, FastAPI and Litestar mount
them, and a server can serve them as they are. `Route` is Starlette's. A mount would do,
too, but it takes `/events/` only, and leaves `/events` to a redirect or the next mount.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl

from aioinformer._tasks import run_concurrently
from aioinformer.web.health import health_responders
from aioinformer.web.metrics import metrics_responders
from aioinformer.web.responses import HEADERS, HTTPResponse, refusal
from aioinformer.web.streams import (
    MAX_READERS,
    WRITE_SECONDS,
    EventStream,
    not_begun,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
    from typing import NoReturn

    from prometheus_client import CollectorRegistry

    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.health import HasInformers
    from aioinformer.web.responses import Responder
    from aioinformer.web.streams import StreamRequest

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MOST_PARAMETERS = 1000
"""Of a query: a web server takes 64 KiB, and to parse the shortest takes 9 ms."""

__all__ = ["Routes", "StreamApp", "event_stream", "health_routes", "metrics_routes"]

Scope: TypeAlias = "MutableMapping[str, Any]"


def health_routes(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
) -> Routes:
    """An app that answers `/livez` and `/readyz`.

    200 or 503, and JSON that tells of each informer: its phase, how old its cache is,
    and in a word what is wrong. Informers that come and go are seen: the factory is asked anew
    for each request.

    - `/readyz`: 503 while an informer is not synced, has ended, or is older than
      `max_staleness`. Those of `factory.use()` are shown, and count for nothing.
    - `/livez`: 503 when one is dead, which is for good: only then a restart helps. In an
      outage of the API server it stays 200.

    Args:
        *sources: A factory, or several, or informers.
        max_staleness: Seconds, or a timedelta; None leaves an app ready through an
            outage. See `aioinformer.web.health.readyz`.
        reasons: Also show the texts of errors, which name servers, users and files.

    Raises:
        OptionsError: There is nobody to ask, or the time is not positive.
    """
    return Routes(
        health_responders(*sources, max_staleness=max_staleness, reasons=reasons)
    )


def metrics_routes(
    registry: CollectorRegistry | None = None, *, path: str = "/metrics"
) -> Routes:
    """An app that answers `/metrics` for Prometheus.

    Args:
        registry: Whose metrics; None for prometheus-client's own, where a
            `PrometheusSink()` puts them.
        path: Another path.

    Raises:
        OptionsError: prometheus-client is missing, or the path has no leading slash.
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
    resume_seconds: Duration = 60.0,
    max_readers: int | None = MAX_READERS,
    write_timeout: Duration | None = WRITE_SECONDS,
) -> StreamApp:
    """An app that sends the objects of an informer as server-sent events.

    It answers whatever path leads to it; who reaches it sees the objects, so guard it
    as you guard them. 400 if the query cannot be, 503 when the informer has ended, or has `max_readers` readers.

    uvicorn waits for all answers when it stops, and tells none of them. So streams look
    at what handles its signals: they end when that has been asked to exit. With a server
    that says it in no such way, call `app.stream.close()`, or let its time limit end them
    (3 s in Hypercorn). uvicorn has none unless told, and waits for ever for a client that
    reads nothing, whatever it was answered: give it `--timeout-graceful-shutdown`.

    Args:
        informer: Whose objects.
        namespace: As of `EventStream`, like all that follow.
        label_selector: The same.
        query: The same.
        heartbeat: The same.
        secret_data: The same.
        resume_seconds: The same.
        max_readers: The same; 503 for who comes then.
        write_timeout: The same.

    Raises:
        OptionsError: As `EventStream`.
        SelectorSyntaxError: The same.
    """
    stream = EventStream(
        informer,
        namespace=namespace,
        label_selector=label_selector,
        query=query,
        heartbeat=heartbeat,
        secret_data=secret_data,
        resume_seconds=resume_seconds,
        max_readers=max_readers,
        write_timeout=write_timeout,
        host_stops=_server_stops,
    )
    return StreamApp(stream)


class Routes:
    """An ASGI app of routes; two can be added to one.

    Their paths count from where the app is mounted; a slash at the end is the same. 404
    for any other, 405 for anything but GET and HEAD. Of a lifespan it takes part in
    nothing.

    Args:
        routes: By path.
    """

    def __init__(self, routes: Mapping[str, Responder]) -> None:
        self._routes = {path.rstrip("/"): it for path, it in routes.items()}

    def __repr__(self) -> str:
        return f"<Routes {' '.join(path or '/' for path in self._routes)}>"

    def __add__(self, other: Routes) -> Routes:
        return Routes({**self._routes, **other._routes})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTPResponse one request, as ASGI says."""
        if await _is_request(scope, receive, send):
            await _answer(scope, send, await self._answer(scope))

    async def _answer(self, scope: Scope) -> HTTPResponse:
        responder = self._routes.get(_path_below(scope))
        if responder is None:
            return refusal(404, "not found")

        return _not_allowed(scope) or await responder(_header(scope, b"accept"))


class StreamApp:
    """An ASGI app that sends events. Made by `event_stream`.

    Args:
        stream: What it sends.
    """

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        """Its readers; `stream.close()` ends them all."""

    def __repr__(self) -> str:
        return f"<StreamApp {self.stream!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTPResponse one request, as ASGI says."""
        if not await _is_request(scope, receive, send):
            return

        asked = self._asked(scope)
        if isinstance(asked, HTTPResponse):
            await _answer(scope, send, asked)
            return

        if scope["method"] == "HEAD":
            await send(_start(200, HEADERS))
            await send({"type": "http.response.body", "body": b""})
            return

        started = False

        async def write(chunk: bytes) -> None:
            nonlocal started
            if not started:
                started = True
                await send(_start(200, HEADERS))

            if chunk:
                await send(
                    {"type": "http.response.body", "body": chunk, "more_body": True}
                )

        async def read_on() -> NoReturn:
            complete = await self.stream.send(asked, write)
            raise _Over(complete)

        try:
            await run_concurrently(read_on(), _disconnected(receive))
        except _Over as over:
            if over.complete and not started:
                await _answer(scope, send, not_begun())
            elif over.complete:
                await send({"type": "http.response.body", "body": b""})
            elif _abort(receive, send):
                await _until_disconnected(receive)

    def _asked(self, scope: Scope) -> StreamRequest | HTTPResponse:
        refused = _not_allowed(scope)
        if refused is not None:
            return refused

        text = scope["query_string"].decode("latin-1")
        try:
            query = parse_qsl(text, max_num_fields=MOST_PARAMETERS)
        except ValueError:
            return refusal(400, f"more than {MOST_PARAMETERS} parameters")

        return self.stream.ask_or_refuse(query, _header(scope, b"last-event-id"))


class _Over(Exception):
    """A stream is over."""

    def __init__(self, complete: bool) -> None:
        super().__init__()
        self.complete = complete


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # what else comes is the request's body


def _abort(receive: Receive, send: Send) -> bool:
    """Abort the connection of a stuck reader, where that can be; False if not.

    ASGI has no word for it. uvicorn's callables are methods of what has the transport,
    unless a middleware has wrapped both. It would close the connection, which waits for
    the reader to take what is left, for as long as it likes.
    """
    for call in (receive, send):
        transport = getattr(getattr(call, "__self__", None), "transport", None)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
            return True

    return False


async def _disconnected(receive: Receive) -> NoReturn:
    await _until_disconnected(receive)
    raise _Over(complete=False)


async def _is_request(scope: Scope, receive: Receive, send: Send) -> bool:
    """Whether it is for HTTP; anything else is answered as politely as can be."""
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


def _path_below(scope: Scope) -> str:
    """The path from where the app is mounted, without a slash at the end.

    Hosts that follow the letter of ASGI leave the place of the mount in the path; some
    take it out. Starlette names the part of it that a proxy may have taken out.
    """
    path: str = scope["path"].rstrip("/")
    root: str = scope.get("root_path", "").rstrip("/")
    for mount in (root, root.removeprefix(scope.get("app_root_path", ""))):
        if f"{path}/".startswith(f"{mount}/"):
            return path[len(mount) :]

    return path


def _not_allowed(scope: Scope) -> HTTPResponse | None:
    if scope["method"] in {"GET", "HEAD"}:
        return None

    return refusal(405, "method not allowed", Allow="GET, HEAD")


async def _answer(scope: Scope, send: Send, answer: HTTPResponse) -> None:
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
    """Whether the server that handles signals has been asked to exit, as uvicorn says."""
    for number in (signal.SIGINT, signal.SIGTERM):
        server = getattr(signal.getsignal(number), "__self__", None)
        if getattr(server, "should_exit", False) is True:
            return True

    return False
