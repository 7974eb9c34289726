"""HTTP details: requests of other clients, written to a plain socket."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING

import pytest

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        running.create(CONFIG_MAPS, {"metadata": {"name": "one"}})
        yield running


class Connection:
    """Plain connection to the server."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, line: str, *headers: str, body: bytes = b"") -> None:
        head = "\r\n".join([line, "Host: here", *headers, "", ""])
        self._writer.write(head.encode() + body)

    def send_more(self, body: bytes) -> None:
        self._writer.write(body)

    async def head(self) -> str:
        return (await self._reader.readuntil(b"\r\n\r\n")).decode()

    async def line(self) -> bytes:
        return await self._reader.readline()

    async def rest(self) -> bytes:
        return await self._reader.read()


@pytest.fixture
async def connection(server: APIServer) -> AsyncIterator[Connection]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Connection(reader, writer)
    writer.close()
    await writer.wait_closed()


async def test_http_1_0_watch_has_no_chunks(
    server: APIServer, connection: Connection
) -> None:
    connection.send(f"GET {MAPS}?watch=1&timeoutSeconds=5 HTTP/1.0")

    head = await connection.head()
    first = json.loads(await connection.line())
    server.create(CONFIG_MAPS, {"metadata": {"name": "two"}})
    second = json.loads(await connection.rest())

    assert head.startswith("HTTP/1.0 200")
    assert "chunked" not in head
    names = [it["object"]["metadata"]["name"] for it in (first, second)]
    assert names == ["one", "two"]


async def test_http_1_0_list_ends_with_connection(
    server: APIServer, connection: Connection
) -> None:
    for number in range(40):
        data = {"x": "y" * 10_000}
        name = f"big-{number}"
        server.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})

    connection.send(f"GET {MAPS} HTTP/1.0")
    await connection.head()
    found = json.loads(await connection.rest())

    assert len(found["items"]) == 41


async def test_http_server_accepts_long_selector(connection: Connection) -> None:
    names = ",".join(f"name-{number}" for number in range(5_000))
    selector = f"app%20in%20({names})"

    connection.send(
        f"GET {MAPS}?labelSelector={selector} HTTP/1.1", "Connection: close"
    )

    assert (await connection.head()).startswith("HTTP/1.1 200")


async def test_http_server_supports_expect_continue(connection: Connection) -> None:
    body = b'{"metadata":{"name":"asked"}}'
    connection.send(
        f"POST {MAPS} HTTP/1.1",
        "Expect: 100-continue",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )

    requested = await connection.head()
    connection.send_more(body)
    answered = await connection.head()

    assert requested == "HTTP/1.1 100 Continue\r\n\r\n"
    assert answered.startswith("HTTP/1.1 201")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(gzip.compress(b'{"metadata":{"name":"a"}}'), 201, id="whole"),
        pytest.param(b"this is no gzip", 400, id="broken"),
    ],
)
async def test_http_server_accepts_compressed_body(
    connection: Connection, body: bytes, status: int
) -> None:
    connection.send(
        f"POST {MAPS} HTTP/1.1",
        "Content-Encoding: gzip",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        body=body,
    )

    assert (await connection.head()).startswith(f"HTTP/1.1 {status}")
    assert json.loads(await connection.rest())["kind"] in {"ConfigMap", "Status"}


async def test_stop_does_not_wait_for_incomplete_request(
    server: APIServer, connection: Connection
) -> None:
    connection.send(f"POST {MAPS} HTTP/1.1", "Content-Length: 100", body=b"{")
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    start = loop.time()

    await server.stop()

    assert loop.time() - start < 3
    assert await connection.rest() == b""
