"""How the contract tests of the API server speak HTTP: plainly, without our client."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from aioinformer.model.resource import Resource
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

PODS_PATH = "/api/v1/namespaces/default/pods"
MAPS_PATH = "/api/v1/namespaces/default/configmaps"
WIDGETS_PATH = "/apis/example.com/v1/namespaces/default/widgets"


@asynccontextmanager
async def a_server(**options: Any) -> AsyncIterator[APIServer]:
    """Run a server that also serves widgets and remembers few changes."""
    async with APIServer(resources=[WIDGETS], history=20, **options) as server:
        yield server


def a_session(server: APIServer) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(total=None))


async def ask(
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    body: object = None,
    *,
    content_type: str = "application/json",
    **params: str,
) -> tuple[int, dict[str, Any]]:
    """Send one request; returns the HTTP status and the decoded answer."""
    data = None if body is None else json.dumps(body)
    headers = {} if body is None else {"Content-Type": content_type}
    async with http.request(
        method, path, data=data, headers=headers, params=params
    ) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def patch(
    http: aiohttp.ClientSession, path: str, body: object, **params: str
) -> tuple[int, dict[str, Any]]:
    return await ask(
        http,
        "PATCH",
        path,
        body,
        content_type="application/merge-patch+json",
        **params,
    )


async def next_events(answer: aiohttp.ClientResponse, count: int) -> list[Any]:
    """Read the next events of a watch."""
    return [json.loads(await answer.content.readline()) for _ in range(count)]


async def all_events(answer: aiohttp.ClientResponse) -> list[Any]:
    """Read a watch to its clean end."""
    return [json.loads(line) for line in (await answer.content.read()).splitlines()]


def told(events: list[Any]) -> list[tuple[str, str]]:
    """Reduce events to (type, name)."""
    return [(it["type"], it["object"]["metadata"].get("name", "")) for it in events]


def versions(events: list[Any]) -> list[int]:
    return [int(it["object"]["metadata"]["resourceVersion"]) for it in events]


def named(name: str, **fields: Any) -> dict[str, Any]:
    """Make a body with this name and these other fields; labels go into metadata."""
    labels = fields.pop("labels", None)
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {
        "metadata": {**metadata, "labels": labels} if labels else metadata,
        **fields,
    }


def widget(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", **named(name, **fields)}
