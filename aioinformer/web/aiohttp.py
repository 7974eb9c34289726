"""What an aiohttp app mounts: health, metrics, a live stream.

::

    app = web.Application()
    app.add_routes(health_routes(factory) + metrics_routes())
    app.add_subapp("/events", event_stream(pods))
    app.cleanup_ctx.append(factory.cleanup_ctx)
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from aioinformer.web.health import health_responders
from aioinformer.web.metrics import metrics_responders
from aioinformer.web.responses import HEADERS, HTTPResponse
from aioinformer.web.streams import (
    MAX_READERS,
    WRITE_SECONDS,
    EventStream,
    not_begun,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.health import HasInformers
    from aioinformer.web.responses import Responder

__all__ = ["event_stream", "health_routes", "metrics_routes"]


def health_routes(
    *sources: HasInformers | SharedInformer,
    max_staleness: Duration | None = None,
    reasons: bool = False,
) -> list[web.RouteDef]:
    """The routes `/livez` and `/readyz`.

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
    return _routes(
        health_responders(*sources, max_staleness=max_staleness, reasons=reasons)
    )


def metrics_routes(
    registry: CollectorRegistry | None = None, *, path: str = "/metrics"
) -> list[web.RouteDef]:
    """The route `/metrics` for Prometheus.

    Args:
        registry: Whose metrics; None for prometheus-client's own, where a
            `PrometheusSink()` puts them.
        path: Another path.

    Raises:
        OptionsError: prometheus-client is missing, or the path has no leading slash.
    """
    return _routes(metrics_responders(registry, path=path))


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
) -> web.Application:
    """An app that sends the objects of an informer as server-sent events.

    It is for `app.add_subapp("/events", ...)`, so that the streams end when that app
    shuts down; aiohttp would wait a minute for them. Who reaches it sees the objects,
    so guard it as you guard them: middlewares of the app are asked. 400 if the query
    cannot be, 503 when the informer has ended, or has `max_readers` readers.

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
    asked = stream.ask_or_refuse(request.query.items(), last_event_id)
    if isinstance(asked, HTTPResponse):
        return _response(asked)

    response = web.StreamResponse(headers=HEADERS)
    if request.method == "HEAD":
        return response

    def gone() -> bool:
        transport = request.transport
        return transport is None or transport.is_closing()

    async def write(chunk: bytes) -> None:
        if not response.prepared:
            await response.prepare(request)

        if chunk:  # an empty one would end the answer
            await response.write(chunk)

    with contextlib.suppress(ConnectionResetError):  # it has gone: nobody to tell
        complete = await stream.send(asked, write, gone=gone)
        if complete and not response.prepared:
            return _response(not_begun())

        if not complete and request.transport is not None:
            # Closing would wait for a stuck reader, and keep what it has not taken.
            request.transport.abort()

    return response


def _routes(responders: Mapping[str, Responder]) -> list[web.RouteDef]:
    return [web.get(path, partial(_answer, it)) for path, it in responders.items()]


async def _answer(responder: Responder, request: web.Request) -> web.Response:
    return _response(await responder(request.headers.get("Accept", "")))


def _response(answer: HTTPResponse) -> web.Response:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)
