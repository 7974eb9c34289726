"""`Client.list()` and `Client.list_pages()`: complete lists, page by page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from canned import CannedServer, Stream, list_body

from aioinformer.client import Client, ListWatch, Pager
from aioinformer.errors import DecodeError, ResourceExpired, SelectorSyntaxError
from aioinformer.model.resources import PODS
from aioinformer.watch import ListOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ALL = "/api/v1/namespaces/x/pods"
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired"}


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


def page(server: CannedServer, *names: str, token: str = "") -> None:
    server.text(list_body(*names, token=token).decode(), 200, "application/json")


async def test_list_reads_all_objects_in_one_response(server: CannedServer) -> None:
    page(server, "a", "b")

    async with Client.from_url(server.url) as client:
        found = await client.list(PODS, namespace="x", resource_version="0")

    assert [it.name for it in found] == ["a", "b"]
    assert server.seen[0].target == f"{ALL}?resourceVersion=0"


async def test_list_follows_pages(server: CannedServer) -> None:
    page(server, "a", "b", token="t 1")
    page(server, token="t 2")
    page(server, "c")

    async with Client.from_url(server.url) as client:
        found = await client.list(
            PODS, label_selector="app in (a,b)", limit=2, resource_version="5"
        )

    selector = "labelSelector=app+in+%28a%2Cb%29&limit=2"
    assert [it.name for it in found] == ["a", "b", "c"]
    assert [seen.target for seen in server.seen] == [
        f"/api/v1/pods?{selector}&resourceVersion=5",
        f"/api/v1/pods?{selector}&continue=t+1",
        f"/api/v1/pods?{selector}&continue=t+2",
    ]


async def test_expired_paged_list_is_read_again_whole(server: CannedServer) -> None:
    page(server, "old", token="t")
    server.json(EXPIRED, 410)
    page(server, "a", "b")

    async with Client.from_url(server.url) as client:
        found = await client.list(PODS, limit=1)

    assert [it.name for it in found] == ["a", "b"]
    assert server.seen[-1].target == "/api/v1/pods"


async def test_expired_version_of_whole_list_raises(
    server: CannedServer,
) -> None:
    server.json(EXPIRED, 410)

    async with Client.from_url(server.url) as client:
        with pytest.raises(ResourceExpired):
            await client.list(PODS, resource_version="5")

    assert len(server.seen) == 1


@pytest.mark.parametrize("limit", [0, 5])
async def test_too_old_version_raises_with_and_without_pages(
    server: CannedServer, limit: int
) -> None:
    server.json(EXPIRED, 410)
    page(server, "newer")

    async with Client.from_url(server.url) as client:
        with pytest.raises(ResourceExpired):
            await client.list(PODS, limit=limit, resource_version="5")

    assert len(server.seen) == 1


async def test_list_from_continue_token_is_not_read_again_whole(
    server: CannedServer,
) -> None:
    page(server, "b", token="2")
    server.json(EXPIRED, 410)
    page(server, "a", "b", "c")

    async with Client.from_url(server.url) as client:
        with pytest.raises(ResourceExpired):
            await Pager(ListWatch(client, PODS)).list(
                ListOptions(limit=1, continue_token="1")
            )

    assert len(server.seen) == 2


async def test_list_that_expires_again_raises(server: CannedServer) -> None:
    page(server, "a", token="1")
    server.json(EXPIRED, 410)
    page(server, "a", token="2")
    server.json(EXPIRED, 410)

    async with Client.from_url(server.url) as client:
        with pytest.raises(ResourceExpired):
            await client.list(PODS, limit=1)

    assert len(server.seen) == 4


async def test_repeated_continue_token_raises_decode_error(
    server: CannedServer,
) -> None:
    page(server, "a", token="1")

    async with Client.from_url(server.url) as client:
        with pytest.raises(DecodeError, match="repeats a page"):
            await client.list(PODS, limit=1)

    assert len(server.seen) == 2


async def test_list_pages_yields_pages_as_they_arrive(server: CannedServer) -> None:
    page(server, "a", "b", token="t")
    page(server, "c")

    async with Client.from_url(server.url) as client:
        pages = client.list_pages(
            PODS, namespace="x", label_selector="app=web", resource_version="5"
        )
        found = ["".join(it.name for it in objects) async for objects in pages]

    selector = "labelSelector=app%3Dweb&limit=500"
    assert "".join(found) == "abc"
    assert found[-1] == "c"
    assert [seen.target for seen in server.seen] == [
        f"{ALL}?{selector}&resourceVersion=5",
        f"{ALL}?{selector}&continue=t",
    ]


async def test_list_pages_requests_next_page_early(
    server: CannedServer,
) -> None:
    stream = Stream(server)
    body = list_body("a", "b", token="t")
    stream.send(body[:-20])
    page(server, "c")

    async with Client.from_url(server.url) as client:
        pages = client.list_pages(PODS, limit=2)
        found = [it.name for it in await anext(pages)]
        while len(server.seen) < 2:
            await asyncio.sleep(0.1)

        stream.send(body[-20:])
        stream.end()
        found += [it.name async for objects in pages for it in objects]

    assert found == ["a", "b", "c"]


def test_list_pages_rejects_invalid_selector_immediately() -> None:
    with pytest.raises(SelectorSyntaxError):
        Client.from_env().list_pages(PODS, label_selector="a in b")


async def test_closed_page_iteration_closes_connections(
    server: CannedServer,
) -> None:
    stream = Stream(server)
    stream.send(list_body("a", "b", token="t")[:-20])

    async with Client.from_url(server.url) as client:
        async for objects in client.list_pages(PODS, limit=2):
            assert objects
            break

        await server.gone.wait()
