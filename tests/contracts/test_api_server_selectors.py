"""Which objects the API server lists for label and field selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    MAPS_PATH,
    PODS_PATH,
    WIDGETS_PATH,
    a_server,
    a_session,
    ask,
    named,
)

from aioinformer.model.resources import EVENTS, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from aioinformer.testing import APIServer


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with a_server() as running:
        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with a_session(server) as session:
        yield session


def names(found: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier!=back", ["a"]),
        ("tier in (front, back)", ["a", "b"]),
        ("app notin (web)", ["c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("weight>3", ["b"]),
        ("", ["a", "b", "c"]),
    ],
)
async def test_labels_select(
    server: APIServer, http: aiohttp.ClientSession, selector: str, expected: list[str]
) -> None:
    server.create(
        PODS, named("a", labels={"app": "web", "tier": "front", "weight": "3"})
    )
    server.create(
        PODS, named("b", labels={"app": "web", "tier": "back", "weight": "4"})
    )
    server.create(PODS, named("c"))

    _, found = await ask(http, "GET", PODS_PATH, labelSelector=selector)

    assert names(found) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.namespace=default", ["a", "b"]),
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName=", ["b"]),
        ("status.phase!=Pending", ["a"]),
        ("status.phase=Pending,spec.nodeName=n1", []),
    ],
)
async def test_fields_select_pods(
    server: APIServer, http: aiohttp.ClientSession, selector: str, expected: list[str]
) -> None:
    status = {"phase": "Running"}
    server.create(PODS, named("a", spec={"nodeName": "n1"}, status=status))
    server.create(PODS, named("b"))

    _, found = await ask(http, "GET", "/api/v1/pods", fieldSelector=selector)

    assert names(found) == expected


async def test_fields_select_events_of_an_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(EVENTS, named("a", involvedObject={"name": "web"}))
    server.create(EVENTS, named("b", involvedObject={"name": "db"}))

    _, found = await ask(
        http, "GET", "/api/v1/events", fieldSelector="involvedObject.name=db"
    )

    assert names(found) == ["b"]


@pytest.mark.parametrize("path", [MAPS_PATH, WIDGETS_PATH])
async def test_only_known_fields_can_select(
    http: aiohttp.ClientSession, path: str
) -> None:
    known, _ = await ask(http, "GET", path, fieldSelector="metadata.name=a")
    code, status = await ask(http, "GET", path, fieldSelector="spec.nodeName=a")

    assert (known, code, status["reason"]) == (200, 400, "BadRequest")
    assert "field label not supported: spec.nodeName" in status["message"]
