"""Metrics of the requests of a client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from canned import CannedServer, bytes_server
from conftest import pod
from metrics_helpers import PlainSink
from queue_helpers import DisabledSink, settle

from aioinformer.client import Client
from aioinformer.client.request_metrics import NO_ANSWER, RequestMetrics
from aioinformer.errors import NotFound, TransportError
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SENT = "rest_client_requests_total"
LASTED = "rest_client_request_duration_seconds"
REPEATED = "rest_client_request_retries_total"


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


async def get(client: Client) -> None:
    await client.get(PODS, "a", namespace="x")


async def test_requests_are_counted_by_code_method_and_host(
    server: CannedServer,
) -> None:
    sink, host = PlainSink(), server.url.removeprefix("http://")
    server.json({"kind": "Status", "code": 404}, 404)
    server.json(pod("a", "x"))
    async with Client.from_url(server.url, metrics=sink) as client:
        with pytest.raises(NotFound):
            await get(client)

        await get(client)
        await client.create(PODS, pod("a", "x"))

    assert sink.counts == {
        (SENT, ("GET", "404", host)): 1,
        (SENT, ("GET", "200", host)): 1,
        (SENT, ("POST", "200", host)): 1,
    }


async def test_request_duration_ends_at_response_head(
    server: CannedServer,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await asyncio.sleep(5)
        await response.write(b'{"metadata":{"name":"a","namespace":"x"}}')
        return response

    server.answer(answer)
    sink = PlainSink()
    async with Client.from_url(server.url, metrics=sink) as client:
        await get(client)

    assert sink.observed[LASTED] == [pytest.approx(3, abs=0.5)]
    assert dict(sink.labels[LASTED])["verb"] == "GET"


async def test_request_without_response_has_error_code() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    sink = PlainSink()
    async with (
        bytes_server(close) as host,
        Client.from_url(f"http://{host}", metrics=sink) as client,
    ):
        with pytest.raises(TransportError):
            await get(client)

    assert sink.counts == {(SENT, ("GET", NO_ANSWER, host)): 1}
    assert len(sink.observed[LASTED]) == 1


async def test_cancelled_request_is_counted_and_stays_cancelled(
    server: CannedServer,
) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer(never)
    sink = PlainSink()
    async with Client.from_url(server.url, metrics=sink) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await get(client)

        await settle()

    assert [labels[1] for _, labels in sink.counts] == [NO_ANSWER]


async def test_retry_after_dead_connection_is_counted() -> None:
    body = b'{"metadata":{"name":"a","namespace":"x"}}'
    reads = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reads
        while await reader.readuntil(b"\r\n\r\n"):
            reads += 1
            if reads == 2:
                writer.close()
                return

            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)

    sink = PlainSink()
    async with (
        bytes_server(talk) as host,
        Client.from_url(f"http://{host}", metrics=sink) as client,
    ):
        await get(client)
        await get(client)

    assert sink.counts == {
        (SENT, ("GET", "200", host)): 2,
        (SENT, ("GET", NO_ANSWER, host)): 1,
        (REPEATED, ("GET", NO_ANSWER, host)): 1,
    }


async def test_retry_with_renewed_credentials_is_counted(
    server: CannedServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def refuse(_: web.Request) -> web.StreamResponse:
        token.write_text("new")
        return web.Response(status=401)

    server.answer(refuse)
    server.json(pod("a", "x"))
    sink = PlainSink()
    async with Client.from_url(server.url, token_file=token, metrics=sink) as client:
        await get(client)

    host = server.url.removeprefix("http://")
    assert sink.counts == {
        (SENT, ("GET", "401", host)): 1,
        (SENT, ("GET", "200", host)): 1,
        (REPEATED, ("GET", "401", host)): 1,
    }


async def test_disabled_sink_is_never_called(
    server: CannedServer,
) -> None:
    sink = DisabledSink()
    server.json(pod("a", "x"))
    async with Client.from_url(server.url, metrics=sink) as client:
        await get(client)

    assert not sink.counts


async def test_failing_sink_is_not_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class BrokenSink(PlainSink):
        def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
            super().count(name, amount, **labels)
            raise ZeroDivisionError

    sink = BrokenSink()
    meter = RequestMetrics(sink, "https://api.example:6443/prefix")

    for _ in range(2):
        with meter.attempt("GET") as answered:
            answered(200)

        meter.repeated("GET", 401)
        meter.throttled("GET", 1.0)

    assert sink.counts == {(SENT, ("GET", "200", "api.example:6443")): 1}
    assert not sink.observed
    assert len(caplog.records) == 1
