"""Watches over long times, which only a virtual clock makes fast.

Contract tests cover short times, because they also run against a real server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from api_calls import (
    PODS_PATH,
    a_server,
    a_session,
    all_events,
    ask,
    named,
    names,
    next_events,
    types_and_names,
    versions,
    watching,
)

from aioinformer.model.resources import CONFIG_MAPS, EVENTS, PODS
from aioinformer.watch import WatchOptions

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


def fill(server: APIServer, count: int) -> None:
    for number in range(count):
        server.create(PODS, named(f"web-{number}"))


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("how", ["compaction", "writes"])
async def test_watch_of_expired_version_gets_error_event(
    server: APIServer, http: aiohttp.ClientSession, how: str
) -> None:
    version = server.resource_version
    for number in range(22):
        server.create(PODS, named(f"web-{number}"))

    if how == "compaction":
        server.compact()

    async with watching(http, PODS_PATH, resourceVersion=version) as watch:
        (event,) = await all_events(watch)

    floor = int(version) + (2 if how == "writes" else 22)
    assert event == {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"too old resource version: {version} ({floor})",
            "reason": "Expired",
            "code": 410,
        },
    }


async def test_slow_watch_gets_all_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    """The watch gets 500 changes, although the history holds 20."""
    async with watching(
        http, PODS_PATH, resourceVersion=server.resource_version
    ) as watch:
        for number in range(500):
            server.create(PODS, named(f"web-{number}"))

        events = await next_events(watch, 500)

    assert [name for _, name in types_and_names(events)] == [
        f"web-{it}" for it in range(500)
    ]
    assert versions(events) == sorted(set(versions(events)))


async def test_restart_ends_slow_watch(
    server: APIServer,
) -> None:
    source = server.list_watch(CONFIG_MAPS)
    async with source.watch(WatchOptions(bookmarks=False)) as watch:
        for number in range(60):
            body = {**named(f"big-{number}"), "data": {"k": "x" * 10_000}}
            server.create(CONFIG_MAPS, body)

        # More than the buffers hold, so that the writer waits for the reader.
        await asyncio.sleep(1)
        await server.restart()
        server.create(CONFIG_MAPS, named("late"))
        found: list[str] = []
        while batch := await watch.next_batch():
            found += [it.object.name for it in batch]

    assert found == [f"big-{number}" for number in range(len(found))]


async def test_watch_ends_in_time_during_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web"))
    start = now()

    async with watching(http, PODS_PATH, timeoutSeconds="5") as watch:
        while line := await watch.content.readline():
            assert line.endswith(b"}\n")
            await asyncio.sleep(0.1)
            server.patch(PODS, "web", {"spec": {"time": now()}})

    assert now() - start == pytest.approx(5, abs=0.2)


async def test_watch_without_timeout_uses_server_default() -> None:
    async with a_server(watch_seconds=40) as server, a_session(server) as http:
        start = now()
        async with watching(http, PODS_PATH, timeoutSeconds="0") as watch:
            await all_events(watch)

    assert now() - start == pytest.approx(40, abs=0.1)


async def test_disconnect_ends_watch(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    async with watching(http, PODS_PATH) as watch:
        server.create(PODS, named("a"))
        await next_events(watch, 1)

    server.create(PODS, named("b"))
    code, _ = await ask(http, "GET", PODS_PATH)

    assert code == 200


async def test_watch_from_future_version_gets_no_earlier_events(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = str(int(server.resource_version) + 2)

    async with watching(http, PODS_PATH, resourceVersion=version) as watch:
        for name in ("a", "b", "c"):
            server.create(PODS, named(name))

        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "c")]


async def test_bookmarks_come_periodically_and_before_end(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "150"}
    start = now()
    times = []

    async with watching(
        http, PODS_PATH, resourceVersion=server.resource_version, **params
    ) as it:
        while line := await it.content.readline():
            assert b'"type":"BOOKMARK"' in line
            times.append(now() - start)

    assert times == pytest.approx([60, 120, 148], abs=0.2)
    assert now() - start == pytest.approx(150, abs=0.2)


async def test_bookmark_has_version_of_other_collections(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = server.resource_version
    server.create(CONFIG_MAPS, named("elsewhere"))

    async with watching(
        http, PODS_PATH, resourceVersion=version, allowWatchBookmarks="true"
    ) as watch:
        (event,) = await next_events(watch, 1)

    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"] == {"resourceVersion": server.resource_version}


async def test_bookmarks_require_request_parameter(
    http: aiohttp.ClientSession,
) -> None:
    for allowed in ({}, {"allowWatchBookmarks": "false"}):
        async with watching(http, PODS_PATH, timeoutSeconds="200", **allowed) as watch:
            assert await all_events(watch) == []


async def test_watch_of_events_has_no_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(EVENTS, named("a"))
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "200"}

    async with watching(
        http, "/api/v1/events", resourceVersion=server.resource_version, **params
    ) as watch:
        assert await all_events(watch) == []


async def test_bookmark_interval_is_configurable() -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "10"}
    params["resourceVersion"] = "2"
    async with (
        a_server(bookmark_seconds=2.5) as server,
        a_session(server) as http,
        watching(http, PODS_PATH, **params) as watch,
    ):
        assert len(await all_events(watch)) == 4


async def test_watch_from_future_version_has_no_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "300"}

    async with watching(http, PODS_PATH, resourceVersion="999", **params) as watch:
        assert await all_events(watch) == []


@pytest.mark.parametrize("how", ["compaction", "writes"])
async def test_expired_continue_token_returns_410(
    server: APIServer, http: aiohttp.ClientSession, how: str
) -> None:
    fill(server, 3)
    _, first = await ask(http, "GET", PODS_PATH, limit="1")
    if how == "compaction":
        server.create(CONFIG_MAPS, named("later"))
        server.compact()
    else:
        for number in range(21):
            server.create(PODS, named(f"new-{number}"))

    token = first["metadata"]["continue"]
    code, status = await ask(http, "GET", PODS_PATH, **{"continue": token})

    assert (code, status["reason"]) == (410, "Expired")
    assert "continue parameter is too old" in status["message"]


async def test_expired_version_returns_410(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 2)
    server.compact()

    code, status = await ask(http, "GET", PODS_PATH, resourceVersion="2", limit="5")
    bare, _ = await ask(http, "GET", PODS_PATH, resourceVersion="2")

    assert (code, status["reason"]) == (410, "Expired")
    assert bare == 200


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "NotOlderThan"}])
async def test_future_version_returns_504(
    server: APIServer, http: aiohttp.ClientSession, match: dict[str, str]
) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with http.get(
        PODS_PATH, params={"resourceVersion": "999", **match}
    ) as answer:
        status = await answer.json()

    assert loop.time() - start == pytest.approx(3.0, abs=0.1)
    assert answer.headers["Retry-After"] == "1"
    assert (answer.status, status["code"], status["reason"]) == (504, 504, "Timeout")
    current = server.resource_version
    assert status["message"].endswith(
        f"Too large resource version: 999, current: {current}"
    )
    assert status["details"] == {
        "causes": [
            {
                "reason": "ResourceVersionTooLarge",
                "message": "Too large resource version",
            }
        ],
        "retryAfterSeconds": 1,
    }


async def test_list_waits_for_future_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    wanted = str(int(server.resource_version) + 1)
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: server.create(PODS, named("late")))

    code, found = await ask(http, "GET", PODS_PATH, resourceVersion=wanted)

    assert (code, names(found)) == (200, ["late"])
    assert found["metadata"]["resourceVersion"] == wanted
