"""`ListWatch.is_served()`: whether a server serves a resource."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from canned import CannedServer, Stream

from aioinformer.client import Client, ListWatch
from aioinformer.errors import DecodeError, Forbidden, ServerError, TransportError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, NODES, PODS
from aioinformer.testing import APIServer
from aioinformer.watch import ServedCheck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


async def is_served(server: CannedServer, resource: Resource) -> bool:
    async with Client.from_url(server.url) as client:
        source = ListWatch(client, resource)
        assert isinstance(source, ServedCheck)
        return await source.is_served()


@pytest.mark.parametrize(
    ("resource", "path"), [(PODS, "/api/v1"), (WIDGETS, "/apis/example.com/v1")]
)
async def test_is_served_requests_group_and_version(
    server: CannedServer, resource: Resource, path: str
) -> None:
    names = [{"name": f"{resource.plural}/status"}, {"name": resource.plural}]
    server.json({"kind": "APIResourceList", "resources": names})

    assert await is_served(server, resource) is True
    assert [seen.target for seen in server.seen] == [path]


@pytest.mark.parametrize("body", [[], [{"name": "gadgets"}], [{"name": "pods/log"}]])
async def test_is_served_is_false_if_group_lacks_resource(
    server: CannedServer, body: object
) -> None:
    server.json({"kind": "APIResourceList", "resources": body})

    assert await is_served(server, PODS) is False


async def test_is_served_is_false_for_missing_group(server: CannedServer) -> None:
    server.text("404 page not found", 404, "text/plain")

    assert await is_served(server, WIDGETS) is False


@pytest.mark.parametrize(("status", "error"), [(403, Forbidden), (503, ServerError)])
async def test_is_served_raises_refusal(
    server: CannedServer, status: int, error: type[Exception]
) -> None:
    server.json({"kind": "Status", "code": status}, status)

    with pytest.raises(error):
        await is_served(server, PODS)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"resources":7}'])
async def test_is_served_raises_decode_error_for_other_document(
    server: CannedServer, body: str
) -> None:
    server.text(body, 200, "application/json")

    with pytest.raises(DecodeError, match="discovery"):
        await is_served(server, PODS)


async def test_is_served_raises_transport_error_for_truncated_response(
    server: CannedServer,
) -> None:
    stream = Stream(server)
    stream.send(b'{"resources":')
    asking = asyncio.create_task(is_served(server, PODS))
    while not server.seen:
        await asyncio.sleep(0.1)

    await asyncio.sleep(1)
    stream.break_off()

    with pytest.raises(TransportError):
        await asking


async def test_is_served_works_with_direct_endpoint() -> None:
    async with APIServer() as server:
        for resource, served in ((PODS, True), (DEPLOYMENTS, True), (WIDGETS, False)):
            direct = server.list_watch(resource)
            async with server.client() as client:
                over_http = ListWatch(client, resource)

                assert await direct.is_served() is served
                assert await over_http.is_served() is served

        assert await server.list_watch(NODES).is_served()
