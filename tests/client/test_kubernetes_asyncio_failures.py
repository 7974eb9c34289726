"""Failures of requests through clients of kubernetes_asyncio."""

from __future__ import annotations

import asyncio
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import pytest
from canned import CannedServer, Stream
from conftest import pod
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio_helpers import LIBRARIES, listing, read

from aioinformer.client import ListWatch
from aioinformer.errors import (
    DecodeError,
    Forbidden,
    ResourceExpired,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, faults
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
async def canned() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return import_module(f"{request.param}.client")


def create(server: APIServer, name: str) -> None:
    body = pod(name, "shop")
    del body["metadata"]["resourceVersion"]
    server.create(PODS, body)


# ---------------------------------------------------------------- refusals and failures


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (410, ResourceExpired),
        (429, TooManyRequests),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_refusal_is_raised_on_entering(
    server: APIServer,
    library: Any,
    verb: Literal["list", "watch"],
    status: int,
    error: type[Exception],
) -> None:
    server.faults.add(
        faults.Refuse(status=status, verb=verb, retry_after=7, message="why")
    )

    async with listing(server.url, library) as source:
        answer: Any = (
            source.list(ListOptions())
            if verb == "list"
            else source.watch(WatchOptions())
        )
        with pytest.raises(error, match="why") as caught:
            await answer.__aenter__()

    found: Any = caught.value
    assert (found.status, found.retry_after) == (status, 7)


class Raising(ApiClient):  # type: ignore[misc]
    """Client of a version that raises for a refusal."""

    async def call_api(self, *args: Any, **kwargs: Any) -> Any:
        answer = await super().call_api(*args, **kwargs)
        if answer.status < 300:
            return answer

        error = ApiException(status=answer.status, reason=answer.reason)
        error.body, error.headers = await answer.read(), answer.headers
        raise error


async def test_api_exception_of_library_becomes_api_error(server: APIServer) -> None:
    server.faults.add(faults.Refuse(status=429, retry_after=7, message="why"))

    async with Raising(Configuration(host=server.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(CoreV1Api(api).list_node)
        with pytest.raises(TooManyRequests, match="why") as caught:
            await read(source)

        assert await read(source) == []

    assert caught.value.retry_after == 7


async def test_web_page_raises_decode_error(canned: CannedServer, library: Any) -> None:
    canned.text("<html>log in</html>", 200, "text/html")

    async with listing(canned.url, library) as source:
        with pytest.raises(DecodeError, match="web page"):
            await read(source)


async def test_unreachable_server_raises_transport_error(library: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        url = "http://127.0.0.1:{1}".format(*found.getsockname())

    async with listing(url, library) as source:
        with pytest.raises(TransportError, match="refused the connection"):
            await read(source)


async def test_truncated_list_raises_transport_error(
    server: APIServer, library: Any
) -> None:
    create(server, "a")
    server.faults.add(faults.Cut(verb="list", after_bytes=100))

    async with listing(server.url, library) as source:
        with pytest.raises(TransportError):
            await read(source)


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_request_without_response_times_out(
    canned: CannedServer, library: Any, verb: str
) -> None:
    async def silent(_: Any) -> Any:
        await asyncio.Event().wait()

    canned.answer(silent)
    async with listing(canned.url, library) as source:
        answer: Any = (
            source.list(ListOptions())
            if verb == "list"
            else source.watch(WatchOptions())
        )
        with pytest.raises(TransportError, match="did not respond for 60 s"):
            await answer.__aenter__()


async def test_silent_watch_does_not_time_out(
    canned: CannedServer, library: Any
) -> None:
    stream = Stream(canned)

    async with (
        listing(canned.url, library) as source,
        source.watch(WatchOptions()) as watch,
    ):
        waiting = asyncio.create_task(watch.next_batch())
        await asyncio.sleep(3600)
        assert not waiting.done()

        stream.end()
        assert await waiting == []


async def test_timeout_reports_exhausted_connection_pool(canned: CannedServer) -> None:
    stream = Stream(canned)

    async with listing(canned.url, connection_pool_maxsize=1) as source:
        async with source.watch(WatchOptions()):
            with pytest.raises(TransportError, match="all 1 connections of its client"):
                await read(source)

        stream.end()


async def test_failing_hook_is_transport_error_without_token(
    canned: CannedServer, library: Any
) -> None:
    async def refresh(_: Any) -> None:
        raise LookupError("no renewal of s3cret-token")

    async with listing(
        canned.url, library, token="s3cret-token", refresh_api_key_hook=refresh
    ) as source:
        with pytest.raises(
            TransportError, match="LookupError: no renewal of"
        ) as caught:
            await read(source)

    assert "s3cret" not in str(caught.value)


# ---------------------------------------------------------------- the end


async def test_leaving_context_closes_connection(
    canned: CannedServer, library: Any
) -> None:
    Stream(canned).send(b"{")

    async with listing(canned.url, library) as source:
        async with source.watch(WatchOptions()):
            pass

        await canned.gone.wait()


async def test_cancelled_request_leaves_no_connection(
    canned: CannedServer, library: Any
) -> None:
    async def silent(_: Any) -> Any:
        await asyncio.Event().wait()

    canned.answer(silent)
    async with listing(canned.url, library) as source:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await read(source)

        await canned.gone.wait()


@pytest.mark.parametrize("waiting", [False, True])
async def test_watch_ends_after_client_was_closed(
    canned: CannedServer, library: Any, waiting: bool
) -> None:
    Stream(canned)
    loop = asyncio.get_running_loop()

    async with library.ApiClient(library.Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(library.CoreV1Api(api).list_node)
        async with source.watch(WatchOptions()) as watch:
            reading = asyncio.create_task(watch.next_batch())
            await asyncio.sleep(float(waiting))
            await api.close()
            closed = loop.time()
            with pytest.raises(TransportError, match="was closed during the request"):
                await reading

            assert loop.time() - closed < 11


async def test_connections_use_tcp_keepalive(canned: CannedServer) -> None:
    stream = Stream(canned)

    async with ApiClient(Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(CoreV1Api(api).list_node)
        async with source.watch(WatchOptions()):
            connector: Any = api.rest_client.pool_manager.connector
            (protocol,) = connector._acquired
            opened = protocol.transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

        stream.end()
