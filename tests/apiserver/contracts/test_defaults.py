"""Defaults and validation of all kinds, compared with recorded responses.

See `recorded_writes.py`. Our server is compared in each test run. Runs against the real
server show whether the recordings are up to date.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from recorded_writes import (
    THINGS,
    Write,
    collection_of,
    definition_of_things,
    load,
    merged,
    normalised,
    parsed_warnings,
    placed,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

Answer = tuple[int, dict[str, Any], list[str]]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BACKGROUND = "propagationPolicy=Background&gracePeriodSeconds=0"


def by_kind(file: str) -> list[Any]:
    writes = sorted(load(file), key=lambda it: it.resource.kind)
    groups = groupby(writes, key=lambda it: it.resource.kind)
    return [pytest.param(list(group), id=kind) for kind, group in groups]


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: object = None
) -> Answer:
    kind = "merge-patch+json" if method == "PATCH" else "json"
    headers = {"Content-Type": f"application/{kind}"}
    async with http.request(method, path, json=body, headers=headers) as answer:
        warnings = parsed_warnings(answer.headers.getall("Warning", []))
        return answer.status, await answer.json(), warnings


async def serves(http: aiohttp.ClientSession, path: str) -> bool:
    """Return whether a path is served; an unserved one is answered in plain text."""
    async with http.get(path) as answer:
        return answer.status == 200


async def remove(http: aiohttp.ClientSession, path: str) -> None:
    """Delete an object and its finalizers, which no controller removes."""
    await ask(http, "DELETE", f"{path}?{BACKGROUND}")
    await ask(http, "PATCH", path, {"metadata": {"finalizers": None}})
    status, left, _ = await ask(http, "GET", path)
    if status == 200 and left["kind"] == "Namespace":
        left["spec"]["finalizers"] = []
        await ask(http, "PUT", f"{path}/finalize", left)


@pytest.fixture
async def things(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[None]:
    """Define the custom resources of the recordings."""
    definition = definition_of_things()
    status, answer, _ = await ask(http, "POST", DEFINITIONS, definition)
    assert status in {201, 409}, answer
    path = collection_of(THINGS, target.namespace)
    while not await serves(http, path):
        await asyncio.sleep(0.1)

    yield

    await remove(http, f"{DEFINITIONS}/{definition['metadata']['name']}")


@each_case("writes", by_kind("creations"))
async def test_create_responses_match_recordings(
    target: ServerUnderTest, http: aiohttp.ClientSession, writes: list[Write]
) -> None:
    path = collection_of(writes[0].resource, target.namespace)
    for write in writes:
        body = placed(write.body, target.namespace)

        answer = await ask(http, "POST", f"{path}?dryRun=All", body)

        reported = normalised(*answer, target.namespace)
        assert reported == write.answer, write.body


@each_case("writes", by_kind("updates"))
async def test_update_responses_match_recordings(
    target: ServerUnderTest, http: aiohttp.ClientSession, writes: list[Write]
) -> None:
    collection = collection_of(writes[0].resource, target.namespace)
    for write in writes:
        path = f"{collection}/{write.name}"
        body = placed(write.body, target.namespace)
        status, old, _ = await ask(http, "POST", collection, body)
        assert status == 201, old

        new = merged(old, placed(write.update, target.namespace))
        answer = await ask(http, "PUT", f"{path}?dryRun=All", new)

        await remove(http, path)
        reported = normalised(*answer, target.namespace)
        assert reported == write.answer, (write.body, write.update)


@pytest.mark.usefixtures("things")
async def test_create_responses_of_custom_resources_match_recordings(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{collection_of(THINGS, target.namespace)}?dryRun=All"
    for write in load("things"):
        answer = await ask(http, "POST", path, write.body)

        reported = normalised(*answer, target.namespace)
        assert reported == write.answer, write.body
