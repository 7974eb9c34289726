"""Retries of requests after a broken connection."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer, bytes_server

from aioinformer.client import Client, ListWatch
from aioinformer.errors import ApiError, TransportError
from aioinformer.model.resources import PODS
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Coroutine

    from aioinformer.model import KubeObject

BODY_OBJECT = {"metadata": {"name": "a", "namespace": "x"}}
BODY = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x"}}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)

# Outcomes of a request.
SERVED = "served"
DROPPED = "dropped"


@asynccontextmanager
async def dropping(*fates: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """Provide a client and the requests read by a server that drops some."""
    seen: list[str] = []
    coming = deque(fates)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await read_request(reader):
            seen.append(request)
            if coming.popleft() == DROPPED:
                writer.close()
                return

            writer.write(ANSWER)

    async with (
        bytes_server(talk) as address,
        Client.from_url(f"http://{address}") as client,
    ):
        yield client, seen


async def read_request(reader: asyncio.StreamReader) -> str:
    """Return method and body; empty at the end of the connection."""
    length, method = 0, (await reader.readline()).partition(b" ")[0]
    while len(line := await reader.readline()) > 2:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)

    return (method + b" " + await reader.readexactly(length)).decode().strip()


async def get(client: Client) -> KubeObject:
    return await client.get(PODS, "a", namespace="x")


@pytest.mark.parametrize(
    ("write", "sent"),
    [
        pytest.param(
            lambda it: it.create(PODS, BODY_OBJECT),
            f"POST {BODY.decode()}",
            id="create",
        ),
        pytest.param(
            lambda it: it.update(PODS, BODY_OBJECT), f"PUT {BODY.decode()}", id="update"
        ),
        pytest.param(
            lambda it: it.patch(PODS, "a", {}, namespace="x"), "PATCH {}", id="patch"
        ),
        pytest.param(
            lambda it: it.delete(PODS, "a", namespace="x", dry_run=True),
            'DELETE {"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}',
            id="delete",
        ),
        pytest.param(
            lambda it: it.delete_collection(PODS, namespace="x"), "DELETE", id="no-body"
        ),
    ],
)
@pytest.mark.parametrize("kept_alive", [True, False])
async def test_write_is_never_retried(
    write: Callable[[Client], Coroutine[Any, Any, object]], sent: str, kept_alive: bool
) -> None:
    before = [SERVED] if kept_alive else []
    async with dropping(*before, DROPPED, SERVED) as (client, seen):
        for _ in before:
            await get(client)

        with pytest.raises(TransportError, match="closed the connection"):
            await write(client)

    assert seen[len(before) :] == [sent]


async def test_read_is_retried_if_kept_alive_connection_was_dead() -> None:
    async with dropping(SERVED, DROPPED, SERVED) as (client, seen):
        await get(client)
        found = await get(client)

    assert found.name == "a"
    assert seen == ["GET"] * 3


async def test_read_is_retried_only_once() -> None:
    async with dropping(SERVED, DROPPED, DROPPED, SERVED) as (client, seen):
        await get(client)
        with pytest.raises(TransportError, match="closed the connection"):
            await get(client)

    assert len(seen) == 3


async def test_read_on_new_connection_is_not_retried() -> None:
    async with dropping(DROPPED, SERVED) as (client, seen):
        with pytest.raises(TransportError, match="closed the connection"):
            await get(client)

    assert len(seen) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_client_does_not_retry_after_retry_after(status: int, verb: str) -> None:
    """Informers and `RetryWatch` retry, as they know of other events meanwhile."""
    async with CannedServer() as server, Client.from_url(server.url) as client:
        body = {"kind": "Status", "code": status}
        server.json(body, status, **{"Retry-After": "1"})
        source = ListWatch(client, PODS)
        answer: Any = (
            source.list(ListOptions())
            if verb == "list"
            else source.watch(WatchOptions())
        )

        with pytest.raises(ApiError) as caught:
            await answer.__aenter__()

        assert caught.value.retry_after == 1
        assert len(server.seen) == 1
