"""Plain HTTP calls of the contract tests of the API server, without our client."""

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
# Of the resource above; see `ServerUnderTest.path()`.
WIDGETS_GROUP = "apis/example.com/v1"

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
    """Send one request; return the HTTP status and the decoded response."""
    data = None if body is None else json.dumps(body)
    headers = {} if body is None else {"Content-Type": content_type}
    async with http.request(
        method, path, data=data, headers=headers, params=params
    ) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


async def raw(http: aiohttp.ClientSession, path: str, **params: str) -> bytes:
    """Return the bytes of a successful response."""
    async with http.get(path, params=params) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


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


async def make(http: aiohttp.ClientSession, path: str, body: object) -> dict[str, Any]:
    """Create an object in a collection; return it as stored."""
    code, made = await ask(http, "POST", path, body)
    assert code == 201, made
    return made


async def change(
    http: aiohttp.ClientSession, path: str, body: object
) -> dict[str, Any]:
    """Merge a patch into an object; return it as stored."""
    code, changed = await patch(http, path, body)
    assert code == 200, changed
    return changed


async def remove(http: aiohttp.ClientSession, path: str) -> None:
    code, answer = await ask(http, "DELETE", path)
    assert code == 200, answer


async def newest(http: aiohttp.ClientSession, path: str) -> int:
    """Return the newest version that a list of this collection has."""
    code, found = await ask(http, "GET", path, limit="1")
    assert code == 200, found
    return int(found["metadata"]["resourceVersion"])


async def settle(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    """Wait until a watch cache knows this version, which version 0 does not wait for."""
    version = body["metadata"]["resourceVersion"]
    code, _ = await ask(http, "GET", path, resourceVersion=version)
    assert code == 200


@asynccontextmanager
async def watching(
    http: aiohttp.ClientSession, path: str, *, accept: str = "*/*", **params: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Watch a collection; the test reads the events."""
    headers, query = {"Accept": accept}, {"watch": "1", **params}
    async with http.get(path, params=query, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        assert answer.headers["Transfer-Encoding"] == "chunked"
        try:
            yield answer
        finally:
            # Abort, because a TLS close waits for the peer.
            if (
                answer.connection is not None
                and answer.connection.transport is not None
            ):
                answer.connection.transport.abort()


async def next_events(answer: aiohttp.ClientResponse, count: int) -> list[Any]:
    """Read the next events of a watch."""
    return [json.loads(await answer.content.readline()) for _ in range(count)]


async def all_events(answer: aiohttp.ClientResponse) -> list[Any]:
    """Read a watch to its clean end."""
    return [json.loads(line) for line in (await answer.content.read()).splitlines()]


def types_and_names(events: list[Any]) -> list[tuple[str, str]]:
    """Return the type and name of each event."""
    return [(it["type"], it["object"]["metadata"].get("name", "")) for it in events]


def versions(events: list[Any]) -> list[int]:
    return [version_of(it["object"]) for it in events]


def version_of(body: dict[str, Any]) -> int:
    """Return the version of an object, or of a list."""
    return int(body["metadata"]["resourceVersion"])


def names(found: dict[str, Any]) -> list[str]:
    """Return the names in a list, in its order."""
    return [item["metadata"]["name"] for item in found["items"]]


def named(name: str, **fields: Any) -> dict[str, Any]:
    """Make a body with a name and other fields; labels go into the metadata."""
    labels = fields.pop("labels", None)
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {
        "metadata": {**metadata, "labels": labels} if labels else metadata,
        **fields,
    }


def widget(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", **named(name, **fields)}


def a_pod(name: str, **fields: Any) -> dict[str, Any]:
    """Make a pod that every server accepts; `spec` adds to the one it has."""
    spec = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
    return named(name, **{**fields, "spec": {**spec, **fields.get("spec", {})}})


def an_event(name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    """Make an event about a pod of the same name."""
    about = {"kind": "Pod", "name": name, "namespace": namespace}
    return named(name, **{"involvedObject": about, **fields})
