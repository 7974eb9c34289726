"""Traces of reconciles, with the in-memory exporter of OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import informed, informer_of, named
from informer_helpers import running
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aioinformer import Controller, Manager, ReconcileRequest, Result
from aioinformer.model.resources import CONFIG_MAPS, NODES, SECRETS
from aioinformer.testing import APIServer
from aioinformer.tracing import _template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from opentelemetry.sdk.trace import ReadableSpan

    from aioinformer.controller import Context


class Traces:
    """A provider whose ended spans are kept."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [it for it in self.spans if it.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def children(self, parent: ReadableSpan) -> list[str]:
        return [
            it.name
            for it in self.spans
            if it.parent is not None and it.parent.span_id == parent.context.span_id
        ]


def links_of(span: ReadableSpan) -> list[int]:
    return [it.context.span_id for it in span.links]


@asynccontextmanager
async def traced(
    reconcile: Any, **options: Any
) -> AsyncIterator[tuple[APIServer, Traces]]:
    """Run a traced controller of config maps, with a config map `a`."""
    traces = Traces()
    async with APIServer() as server, server.client() as client:
        server.create(CONFIG_MAPS, named("a"))
        maps = informer_of(server.list_watch(CONFIG_MAPS), "maps")
        controller = Controller(
            "maps",
            reconcile,
            for_=maps,
            client=client,
            tracer_provider=traces.provider,
            **options,
        )
        async with informed(maps), running(controller.run()):
            yield server, traces


async def test_trace_contains_change_wait_reconcile_and_its_requests() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        if ctx.causes[0].change == "initial":
            await ctx.client.patch(
                CONFIG_MAPS, "a", {"data": {"seen": "1"}}, namespace="default"
            )
            with trace.get_tracer("mine").start_as_current_span("mine"):
                pass

    async with traced(reconcile) as (_, traces):
        await asyncio.sleep(1)

    received, later = traces.named("receive ConfigMap")
    assert received.parent is None
    assert received.kind is SpanKind.CONSUMER
    assert received.attributes == {
        "aioinformer.change": "initial",
        "aioinformer.key": "default/a",
    }
    assert traces.children(received) == ["wait in queue maps", "reconcile maps"]
    first, second = traces.named("reconcile maps")
    assert first.attributes == {
        "aioinformer.controller": "maps",
        "aioinformer.key": "default/a",
        "aioinformer.attempt": 1,
        "k8s.namespace.name": "default",
    }
    request = "PATCH /api/v1/namespaces/{namespace}/configmaps/{name}"
    assert traces.children(first) == [request]
    assert traces.children(second) == []
    assert second.parent is not None
    assert second.parent.span_id == later.context.span_id
    wait = traces.named("wait in queue maps")[0]
    assert received.start_time == wait.start_time
    times = wait.end_time, first.start_time, traces.one(request).start_time
    assert sorted(it or 0 for it in times) == list(times)


async def test_span_of_request_has_attributes_of_http_clients() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        await ctx.client.list(SECRETS, namespace="default", label_selector="token=x")

    async with traced(reconcile) as (server, traces):
        await asyncio.sleep(1)
        port = int(server.url.rpartition(":")[2])

    span = traces.one("GET /api/v1/namespaces/{namespace}/secrets")
    assert span.kind is SpanKind.CLIENT
    assert span.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "k8s.namespace.name": "default",
        "server.address": "127.0.0.1",
        "server.port": port,
        "url.full": f"http://127.0.0.1:{port}/api/v1/namespaces/default/secrets",
        "url.template": "/api/v1/namespaces/{namespace}/secrets",
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_refused_request_and_failed_reconcile_are_errors() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        if ctx.attempt == 1:
            await ctx.client.get(NODES, "none")

    async with traced(reconcile) as (_, traces):
        await asyncio.sleep(5)

    request = traces.one("GET /api/v1/nodes/{name}")
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 404
    assert request.attributes["error.type"] == "404"
    assert request.status.status_code is StatusCode.ERROR
    failed, retried = traces.named("reconcile maps")
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "NotFound"
    assert failed.status.status_code is StatusCode.ERROR
    assert [it.name for it in failed.events] == ["exception"]
    assert retried.status.status_code is StatusCode.UNSET
    assert retried.parent is None
    assert links_of(retried) == [failed.context.span_id]


async def test_reconcile_is_linked_to_all_changes_that_it_merges() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)

    async with traced(reconcile) as (server, traces):
        await asyncio.sleep(0.5)
        for number in range(3):
            server.patch(
                CONFIG_MAPS, "a", {"data": {"n": str(number)}}, namespace="default"
            )
            await asyncio.sleep(0.1)

        await asyncio.sleep(5)

    _, *changes = traces.named("receive ConfigMap")
    _, merged = traces.named("reconcile maps")
    assert len(changes) == len({it.context.trace_id for it in changes}) > 1
    first, *others = [it.context.span_id for it in changes]
    assert merged.parent is not None
    assert merged.parent.span_id == first
    assert links_of(merged) == others


async def test_requeue_is_linked_to_the_reconcile_that_asked_for_it() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
        return None if ctx.causes[0].change == "requeue" else Result(requeue_after=1)

    async with traced(reconcile) as (_, traces):
        await asyncio.sleep(5)

    asking, requeued = traces.named("reconcile maps")
    assert links_of(requeued) == [asking.context.span_id]


async def test_event_of_source_and_timer_begin_traces() -> None:
    async def clock() -> AsyncIterator[str]:
        await asyncio.sleep(2)
        yield "default/a"
        await asyncio.sleep(1000)

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        return None

    async with traced(reconcile, sources={"clock": clock}, every=10) as (_, traces):
        await asyncio.sleep(15)

    assert len(traces.named("receive clock")) == 1
    assert traces.named("receive timer")


async def test_cancelled_reconcile_ends_its_span() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1000)

    async with traced(reconcile, drain_timeout=0) as (_, traces):
        await asyncio.sleep(1)

    assert traces.one("reconcile maps").end_time is not None


async def test_requests_outside_of_traced_reconciles_have_no_spans() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        return None

    async with traced(reconcile) as (server, traces), server.client() as other:
        await asyncio.sleep(1)
        await other.list(CONFIG_MAPS)

    assert not [it for it in traces.spans if it.kind is SpanKind.CLIENT]


async def test_failing_provider_stops_no_reconcile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("full")

    seen: list[str] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        seen.append((await ctx.client.get(CONFIG_MAPS, "a", namespace="default")).name)

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    async with APIServer() as server, server.client() as client:
        server.create(CONFIG_MAPS, named("a"))
        maps = informer_of(server.list_watch(CONFIG_MAPS), "maps")
        controller = Controller(
            "maps", reconcile, for_=maps, client=client, tracer_provider=provider
        )
        async with informed(maps), running(controller.run()):
            await asyncio.sleep(1)

    assert seen == ["a"]
    assert "controller maps: tracing failed" in caplog.messages


async def test_failure_without_text_stops_no_controller() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    attempts: list[int] = []

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise Mute

    async with traced(reconcile) as (_, traces):
        await asyncio.sleep(5)

    assert attempts == [1, 2]
    assert len(traces.named("reconcile maps")) == 2


async def test_manager_traces_its_controllers() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        return None

    traces = Traces()
    async with APIServer() as server:
        server.create(CONFIG_MAPS, named("a"))
        manager = Manager(server.client(), tracer_provider=traces.provider)
        maps = manager.informer(CONFIG_MAPS)
        manager.add(Controller("maps", reconcile, for_=maps))
        async with running(manager.run()):
            await asyncio.sleep(1)

    assert traces.one("reconcile maps").parent is not None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/version", ("/version", "")),
        ("/api/v1/nodes", ("/api/v1/nodes", "")),
        ("/api/v1/nodes/one/status", ("/api/v1/nodes/{name}/status", "")),
        ("/api/v1/namespaces", ("/api/v1/namespaces", "")),
        ("/api/v1/namespaces/shop", ("/api/v1/namespaces/{name}", "")),
        (
            "/apis/g.io/v1/namespaces/shop/things/x",
            ("/apis/g.io/v1/namespaces/{namespace}/things/{name}", "shop"),
        ),
        ("/", ("/", "")),
    ],
)
def test_template_of_path_has_no_names(path: str, expected: tuple[str, str]) -> None:
    assert _template(path) == expected


def test_controllers_do_not_import_opentelemetry() -> None:
    code = (
        "import sys; import aioinformer, aioinformer.controller, aioinformer.tracing; "
        "from aioinformer import Client, Controller, Manager; "
        "sys.exit('opentelemetry' in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
