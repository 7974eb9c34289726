"""Health, metrics and events as ASGI apps: protocol and mounts."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import aiohttp
import httpx
import pytest
from fastapi import Depends, FastAPI
from informer_helpers import settle
from informers import plain, pods_of
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from web_helpers import SentEvents
from web_hosts import by_uvicorn

from aioinformer import Lister
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.web.asgi import event_stream, health_routes, metrics_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import SharedInformer, SharedInformerFactory

Message = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        server.create(PODS, plain("a"))
        yield server


@pytest.fixture
async def running(
    server: APIServer,
) -> AsyncIterator[tuple[SharedInformerFactory, SharedInformer]]:
    async with pods_of(server) as both:
        yield both


class Client:
    """ASGI server that calls an app for one request, and records its messages."""

    def __init__(
        self,
        path: str = "/",
        method: str = "GET",
        query: str = "",
        root: str = "",
        **headers: str,
    ) -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": root,
            "query_string": query.encode(),
            "headers": [
                (name.lower().replace("_", "-").encode(), value.encode())
                for name, value in headers.items()
            ],
        }
        self.sent: list[Message] = []
        self.page = SentEvents()
        self.leave = asyncio.Event()
        self._requests: list[Message] = [{"type": "http.request", "body": b""}]

    async def receive(self) -> Message:
        if self._requests:
            return self._requests.pop()

        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and message.get("more_body"):
            self.page.feed(message["body"])

    async def call(self, app: Any) -> Client:
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(it["body"] for it in self.sent[1:])

    @asynccontextmanager
    async def reading(self, app: Any) -> AsyncIterator[asyncio.Task[Client]]:
        task = asyncio.create_task(self.call(app))
        try:
            await asyncio.sleep(1)
            yield task
        finally:
            self.leave.set()
            await task


# ---------------------------------------------------------------- routes


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/livez", 200),
        ("", "/readyz/", 200),
        ("", "/metrics", 200),
        ("/health", "/health/livez", 200),
        ("/health/", "/health/livez", 200),
        ("/health", "/livez", 200),
        ("", "/", 404),
        ("", "/healthz", 404),
        ("", "/notlivez", 404),
        ("", "/livez/else", 404),
        ("/health", "/health", 404),
        ("/health", "/health/else/livez", 404),
        ("/live", "/livez", 200),
    ],
)
async def test_routes_match_below_mount(
    running: Any, root: str, path: str, status: int
) -> None:
    app = health_routes(running[0]) + metrics_routes(CollectorRegistry())

    assert (await Client(path, root=root).call(app)).status == status


@pytest.mark.parametrize("path", ["/health/livez", "/api/health/livez"])
async def test_routes_match_path_stripped_by_proxy(running: Any, path: str) -> None:
    client = Client(path)
    client.scope["root_path"] = "/api"  # as `FastAPI(root_path="/api")` sets it
    app = fastapi(*running)

    assert (await client.call(app)).status == 200


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/events/", b"../events?a=b"),
        ("/x/a b/", b"../a%20b?a=b"),
        ("/../", b"../..?a=b"),
        ("//evil.example/", b"../evil.example?a=b"),
        ("/a:b/", b"../a%3Ab?a=b"),
    ],
)
async def test_other_path_is_redirected_without_trailing_slash(
    running: Any, path: str, location: bytes
) -> None:
    app = health_routes(running[0])
    client = Client(path)
    client.scope["query_string"] = b"a=b"

    assert (await client.call(app)).status == 307
    assert client.headers[b"location"] == location


@pytest.mark.parametrize("path", ["", "/", "//"])
async def test_root_is_not_redirected(running: Any, path: str) -> None:
    assert (await Client(path).call(health_routes(running[0]))).status == 404


async def test_mount_is_not_redirected(running: Any) -> None:
    client = Client("/health/", root="/health")

    answer = await client.call(health_routes(running[0]))

    assert answer.status == 404, "Starlette would redirect /health to /health/ again"


async def test_other_paths_get_404(running: Any) -> None:
    app = health_routes(running[0]) + metrics_routes(CollectorRegistry())

    answer = await Client("/else/metrics").call(app)

    assert answer.status == 404, "a proxy that guards /metrics does not guard this"


async def test_route_can_be_mount_path() -> None:
    app = metrics_routes(CollectorRegistry(), path="/")

    for path in ("/metrics", "/metrics/"):
        client = Client(path, root="/metrics")
        assert (await client.call(app)).status == 200

    assert (await Client("/metrics/else", root="/metrics").call(app)).status == 404
    assert repr(app) == "<Routes />"


async def test_head_response_has_no_body(running: Any) -> None:
    app = health_routes(running[0])
    whole = await Client("/livez").call(app)
    head = await Client("/livez", "HEAD").call(app)

    assert (head.status, head.body) == (200, b"")
    assert head.headers[b"content-length"] == str(len(whole.body)).encode()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_methods_other_than_get_and_head_get_405(
    running: Any, method: str
) -> None:
    for app in (health_routes(running[0]), event_stream(running[1])):
        answer = await Client("/livez", method).call(app)
        assert answer.status == 405
        assert answer.headers[b"allow"] == b"GET, HEAD"


async def test_lifespan_events_are_accepted(running: Any) -> None:
    for app in (health_routes(running[0]), event_stream(running[1])):
        client = Client()
        client._requests = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]
        client.scope = {"type": "lifespan"}
        await client.call(app)
        assert [it["type"] for it in client.sent] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]


async def test_websocket_is_refused(running: Any) -> None:
    client = Client()
    client._requests = [{"type": "websocket.connect"}]
    client.scope = {"type": "websocket", "path": "/livez"}
    await client.call(health_routes(running[0]))

    assert [it["type"] for it in client.sent] == ["websocket.close"]


# ---------------------------------------------------------------- events


async def test_asgi_stream_sends_events_until_disconnect(
    server: APIServer, running: Any
) -> None:
    app, client = event_stream(running[1], resume_seconds=0), Client("/events/")
    async with client.reading(app) as task:
        assert client.status == 200
        assert client.headers[b"content-type"].startswith(b"text/event-stream")
        assert client.page.take() == ["reset", "added a", "synced"]
        server.create(PODS, plain("b"))
        await asyncio.sleep(1)
        assert client.page.take() == ["added b"]
        client.leave.set()
        await settle()
        assert task.done()
        assert app.stream.readers == 0
        assert not running[1]._processor.listeners


async def test_asgi_stream_sends_projections(running: Any) -> None:
    app = event_stream(running[1], render=lambda pod: {"pod": pod.key})
    client = Client("/events/")
    async with client.reading(app):
        sent = [it.data for it in client.page.events]

    assert sent == [{}, {"pod": "default/a"}, {}]


async def test_browser_resumes_by_last_event_id(
    server: APIServer, running: Any
) -> None:
    app = event_stream(running[1])
    first = Client("/events/")
    async with first.reading(app):
        pass

    server.create(PODS, plain("b"))
    again = Client("/events/", Last_Event_ID=first.page.last_id)
    async with again.reading(app):
        assert sorted(again.page.take()) == ["added b", "synced"]


async def test_ended_stream_completes_response(running: Any) -> None:
    app, client = event_stream(running[1]), Client("/events/")
    async with client.reading(app) as task:
        app.stream.close()
        await settle()
        assert task.done()

    assert client.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_head_of_stream_ends_at_once(running: Any) -> None:
    client = await Client("/", "HEAD").call(event_stream(running[1]))

    assert (client.status, client.body) == (200, b"")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("labelSelector=app%20in", b"app in"),
        ("namespace=kube-system", b"namespace 'kube-system' is not available here"),
        ("namespace=%3Cb%3E%0A%ED%A0%80", b"<b>\\n"),
        ("labelSelector=%3Cb%3E%0A%ED%A0%80", b"<b>\\n"),
    ],
    ids=["selector", "namespace", "odd-namespace", "odd-selector"],
)
async def test_invalid_query_gets_400(running: Any, query: str, text: bytes) -> None:
    app = event_stream(running[1], namespace="default")
    answer = await Client("/", query=query).call(app)

    assert answer.status == 400
    assert text in answer.body
    assert answer.body.count(b"\n") == 1
    assert answer.headers[b"content-type"].startswith(b"text/plain")
    assert answer.headers[b"x-content-type-options"] == b"nosniff"


async def test_query_with_too_many_parameters_is_refused(running: Any) -> None:
    app = event_stream(running[1])
    most = "namespace=default&" * 999

    answer = await Client("/", query=f"{most}x=1&y=1").call(app)
    assert answer.status == 400
    assert answer.body == b"more than 1000 parameters\n"

    accepted = await Client("/", "HEAD", query=f"{most}x=1").call(app)
    assert accepted.status == 200


async def test_events_of_a_stopped_informer_are_refused(running: Any) -> None:
    factory, pods = running
    app = event_stream(pods)
    await factory.shutdown()

    answer = await Client("/").call(app)

    assert answer.status == 503
    assert answer.headers[b"retry-after"] == b"5"


async def test_streams_end_when_signal_handling_server_should_exit(
    running: Any,
) -> None:
    class Server:
        should_exit = False

        def handle_exit(self, *_: object) -> None:
            self.should_exit = True

    host = Server()
    before = signal.signal(signal.SIGTERM, host.handle_exit)
    try:
        client = Client("/")
        async with client.reading(event_stream(running[1])) as task:
            assert not task.done()
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            assert task.done()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert client.sent[-1]["body"] == b""


# ---------------------------------------------------------------- in frameworks


def starlette(factory: Any, pods: Any) -> Starlette:
    return Starlette(
        routes=[
            Route("/events", event_stream(pods)),
            Mount("/health", health_routes(factory)),
            Mount("/", metrics_routes(CollectorRegistry())),
        ]
    )


def fastapi(factory: Any, pods: Any) -> FastAPI:
    app = FastAPI()
    app.mount("/events", event_stream(pods))
    app.mount("/health", health_routes(factory))
    app.mount("/", metrics_routes(CollectorRegistry()))
    return app


@pytest.mark.parametrize(
    "framework", [starlette, fastapi], ids=["starlette", "fastapi"]
)
async def test_frameworks_can_mount_apps(running: Any, framework: Any) -> None:
    app, page = framework(*running), SentEvents()
    async with by_uvicorn(app) as url, aiohttp.ClientSession(url) as http:
        for path, status in {
            "/health/livez": 200,
            "/health/readyz": 200,
            "/health/else": 404,
            "/health": 404,
            "/metrics": 200,
            "/else": 404,
        }.items():
            async with http.get(path) as answer:
                assert answer.status == status, path

        # A Starlette route has no trailing slash: the last mount redirects.
        async with http.get(
            "/events/", allow_redirects=framework is starlette
        ) as answer:
            assert answer.status == 200
            while "synced" not in page.names:
                page.feed(await answer.content.readany())

    assert page.names == ["reset", "added a", "synced"]


async def test_stream_does_not_delay_shutdown_of_uvicorn(running: Any) -> None:
    app = fastapi(*running)
    async with aiohttp.ClientSession() as http:
        loop = asyncio.get_running_loop()
        async with by_uvicorn(app) as url:
            answer = await http.get(f"{url}/events/")
            await answer.content.readany()
            began = loop.time()

        assert loop.time() - began < 2
        await answer.read()  # complete


def test_asgi_module_does_not_import_aiohttp() -> None:
    code = "import sys, aioinformer.web.asgi; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert {"aiohttp", "starlette", "prometheus_client"}.isdisjoint(
        result.stdout.split()
    )


# ---------------------------------------------------------------- dependencies


async def test_fastapi_injects_listers(running: Any) -> None:
    _, pods = running
    app = FastAPI()

    def pod_lister() -> Lister:
        lister: Lister = pods.lister
        return lister

    async def keys(lister: Lister) -> list[str]:
        return [pod.key for pod in lister.list()]

    # FastAPI evaluates annotations; those of this module are strings.
    keys.__annotations__["lister"] = Annotated[Lister, Depends(pod_lister)]
    app.get("/pods")(keys)

    async def names(lister: Lister) -> list[str]:
        return [pod.name for pod in lister.list()]

    names.__annotations__["lister"] = Annotated[Lister, Depends(pods.lister.namespace)]
    app.get("/pods/{namespace}")(names)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        assert (await http.get("/pods")).json() == ["default/a"]
        assert (await http.get("/pods/default")).json() == ["a"]
        assert (await http.get("/pods/shop")).json() == []
        app.dependency_overrides[pod_lister] = lambda: pods.lister.namespace("shop")
        assert (await http.get("/pods")).json() == []
