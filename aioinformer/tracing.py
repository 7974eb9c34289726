"""Traces of reconciles, by OpenTelemetry: `pip install 'aioinformer[otel]'`.

A trace begins with the change that an informer reports. It contains the wait in the
queue, the reconcile, and each request that the reconcile sends::

    receive Site
    ├─ wait in queue sites
    └─ reconcile sites
       ├─ PATCH /apis/apps/v1/namespaces/{namespace}/deployments/{name}
       └─ PATCH /apis/example.com/v1/namespaces/{namespace}/sites/{name}/status

A reconcile that several changes triggered belongs to the trace of the first one, and
has a link to each other one. A retry or a requeue has a link to the reconcile that
asked for it. The span of the reconcile is the current one in the reconcile, so spans of
your own become its children.

Requests carry no `traceparent`: a kube-apiserver ignores it, except that of system
groups, so that clients cannot decide how much it traces.

The package opentelemetry-api is imported when a controller with a tracer provider runs.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

__all__ = ["ReconcileTracer", "request_span"]

logger: Final = guarded_logger(__name__)

MAX_CHANGES: Final = 10
"""Maximum number of changes of one reconcile that are traced."""

_PORTS: Final = {"http": 80, "https": 443}

# Tracer of the reconcile that the current task runs.
_current: ContextVar[ReconcileTracer | None] = ContextVar(
    "aioinformer_tracer", default=None
)


class _Change(NamedTuple):
    """Change that waits in the queue, with the time at which it was received."""

    change: str
    kind: str
    key: str
    received: int


class RequestSpan:
    """Span of one request, which records its response."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    def answered(self, status: int) -> None:
        """Record the status code of a response, of an error, too."""
        if self._span is not None:
            self._span.set_attribute("http.response.status_code", status)
            if status >= 400:
                self._span.set_attribute("error.type", str(status))

    def failed(self, error: BaseException) -> None:
        """Record that there was no response."""
        if self._span is not None:
            self._span.set_attribute("error.type", type(error).__qualname__)


def request_span(
    method: str, path: str, server: str
) -> AbstractContextManager[RequestSpan] | None:
    """Return the span of a request, or None outside of a traced reconcile.

    Args:
        method: HTTP method.
        path: Path of the request, without the query.
        server: URL of the server.
    """
    tracer = _current.get()
    return None if tracer is None else tracer.request(method, path, server)


class ReconcileTracer:
    """Spans of one controller. It never raises: errors of the provider are logged.

    Args:
        controller: Name of the controller.
        provider: Provider of the tracer.
    """

    def __init__(self, controller: str, provider: TracerProvider) -> None:
        self._controller = controller
        self._tracer: Tracer = provider.get_tracer("aioinformer")
        # Changes of the requests that are queued, and reconciles that asked for another.
        self._changes: dict[Hashable, list[_Change]] = {}
        self._earlier: dict[Hashable, SpanContext] = {}

    def received(self, request: Hashable, change: str, kind: str, key: str) -> None:
        """Note a change that queues a request."""
        changes = self._changes.setdefault(request, [])
        if len(changes) < MAX_CHANGES:
            changes.append(_Change(change, kind, key, time.time_ns()))

    def again(self, request: Hashable, span: Span | None) -> None:
        """Note that a reconcile asked for another one."""
        if span is not None:
            self._earlier[request] = span.get_span_context()

    @contextmanager
    def reconcile(
        self, request: Hashable, key: str, attempt: int
    ) -> Iterator[Span | None]:
        """Trace a reconcile in this block. The span is None if the provider fails."""
        changes = self._changes.pop(request, [])
        earlier = self._earlier.pop(request, None)
        try:
            span = self._start(changes, earlier, key, attempt)
        except user_errors():  # of the provider's processors and samplers
            self._log_failure()
            span = None

        token = _current.set(self)
        try:
            with nullcontext() if span is None else self._used(span):
                yield span
        finally:
            _current.reset(token)

    def _start(
        self,
        changes: Sequence[_Change],
        earlier: SpanContext | None,
        key: str,
        attempt: int,
    ) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind, set_span_in_context

        parent = Context()  # none, whatever the task has inherited
        links: list[Link] = [] if earlier is None else [Link(earlier)]
        first = True
        for it in changes:
            received = self._tracer.start_span(
                f"receive {it.kind or it.change}",
                Context(),
                SpanKind.CONSUMER,
                {"aioinformer.change": it.change, "aioinformer.key": it.key},
                start_time=it.received,
            )
            received.end(it.received)
            if first:
                parent, first = set_span_in_context(received, Context()), False
            else:
                links.append(Link(received.get_span_context()))

        if changes:
            wait = self._tracer.start_span(
                f"wait in queue {self._controller}",
                parent,
                start_time=changes[0].received,
            )
            wait.end()

        namespace = key.rpartition("/")[0]
        attributes: dict[str, Any] = {
            "aioinformer.controller": self._controller,
            "aioinformer.key": key,
            "aioinformer.attempt": attempt,
        }
        if namespace:
            attributes["k8s.namespace.name"] = namespace

        return self._tracer.start_span(
            f"reconcile {self._controller}", parent, attributes=attributes, links=links
        )

    @contextmanager
    def _used(self, span: Span) -> Iterator[None]:
        """Make a span the current one, and end it with the exception of the block."""
        from opentelemetry.trace import use_span

        try:
            with use_span(span):
                yield
        finally:
            try:
                span.end()
            except user_errors():  # of the provider's processors
                self._log_failure()

    def _log_failure(self) -> None:
        logger.exception("controller %s: tracing failed", self._controller)

    def failed(self, span: Span | None, failure: BaseException | None) -> None:
        """Record the failure of a reconcile, if there is one."""
        if span is None or failure is None:
            return

        from opentelemetry.trace import Status, StatusCode

        try:
            span.set_attribute("error.type", type(failure).__qualname__)
            text = f"{type(failure).__name__}: {failure}"
            span.set_status(Status(StatusCode.ERROR, text))
            span.record_exception(failure)
        except user_errors():  # of the provider, or of the failure's `__str__`
            self._log_failure()

    @contextmanager
    def request(self, method: str, path: str, server: str) -> Iterator[RequestSpan]:
        """Trace a request in this block, by the conventions for HTTP clients.

        Its name and the URL have no query, which may contain secrets.
        """
        from opentelemetry.trace import SpanKind

        template, namespace = _template(path)
        attributes = _attributes(method, path, urlsplit(server))
        attributes["url.template"] = template
        if namespace:
            attributes["k8s.namespace.name"] = namespace

        try:
            span = self._tracer.start_span(
                f"{method} {template}", kind=SpanKind.CLIENT, attributes=attributes
            )
        except user_errors():  # of the provider's processors and samplers
            self._log_failure()
            yield RequestSpan()
            return

        with self._used(span):
            recorder = RequestSpan(span)
            try:
                yield recorder
            except Exception as exc:
                status = getattr(exc, "status", 0)
                if status:
                    recorder.answered(status)
                else:
                    recorder.failed(exc)

                raise


def _attributes(method: str, path: str, url: SplitResult) -> dict[str, Any]:
    """Return the attributes of a request, without the query and without passwords."""
    host = url.netloc.rpartition("@")[2]
    attributes: dict[str, Any] = {
        "http.request.method": method,
        "server.address": url.hostname or "",
        "url.full": f"{url.scheme}://{host}{url.path}{path}",
    }
    port = url.port or _PORTS.get(url.scheme)
    if port is not None:
        attributes["server.port"] = port

    return attributes


def _template(path: str) -> tuple[str, str]:
    """Return a path with placeholders for names, and the namespace or "".

    Example:
        >>> _template("/apis/apps/v1/namespaces/shop/deployments/web/scale")
        ('/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale', 'shop')
    """
    _, *parts = path.split("/")
    # Of `/api/v1` and `/apis/apps/v1`; other paths, such as `/version`, have no names.
    place = {"api": 2, "apis": 3}.get(parts[0], len(parts))
    namespace = ""
    if parts[place : place + 1] == ["namespaces"] and len(parts) > place + 2:
        namespace, parts[place + 1] = unquote(parts[place + 1]), "{namespace}"
        place += 2

    if len(parts) > place + 1:
        parts[place + 1] = "{name}"

    return "/" + "/".join(parts), namespace
