"""What the API server's watches tell, and how they begin and end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    PODS_PATH,
    WIDGETS,
    WIDGETS_PATH,
    a_server,
    a_session,
    all_events,
    ask,
    named,
    next_events,
    told,
    versions,
)

from aioinformer.model.resources import CONFIG_MAPS, EVENTS, NAMESPACES, PODS

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


@asynccontextmanager
async def watching(
    http: aiohttp.ClientSession, path: str = PODS_PATH, **params: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with http.get(path, params={"watch": "1", **params}) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        assert answer.headers["Transfer-Encoding"] == "chunked"
        yield answer


def now() -> float:
    return asyncio.get_running_loop().time()


# -------------------------------------------------------------------- where it begins


async def test_a_watch_tells_what_happens_after_its_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("before"))

    async with watching(http, resourceVersion=server.resource_version) as watch:
        made = server.create(PODS, named("web"))
        changed = server.patch(PODS, "web", {"spec": {"nodeName": "a"}})
        server.delete(PODS, "web")
        events = await next_events(watch, 3)

    assert told(events) == [("ADDED", "web"), ("MODIFIED", "web"), ("DELETED", "web")]
    assert events[0]["object"] == made
    assert events[1]["object"] == changed
    # The last body, with the version of the deletion.
    gone = events[2]["object"]
    assert gone["metadata"].pop("resourceVersion") == server.resource_version
    assert changed["metadata"].pop("resourceVersion") != server.resource_version
    assert gone == changed


async def test_a_watch_catches_up_on_the_history(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    first = server.create(PODS, named("a"))
    server.create(CONFIG_MAPS, named("other"))
    server.create(PODS, named("b"))
    server.delete(PODS, "a")

    version = first["metadata"]["resourceVersion"]
    async with watching(http, resourceVersion=version, timeoutSeconds="1") as watch:
        events = await all_events(watch)

    assert told(events) == [("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_begins_with_what_exists(
    server: APIServer, http: aiohttp.ClientSession, version: str
) -> None:
    server.create(PODS, named("b"))
    server.create(PODS, named("a"))

    async with watching(http, resourceVersion=version) as watch:
        events = await next_events(watch, 2)
        server.delete(PODS, "a")
        events += await next_events(watch, 1)

    assert told(events) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("how", ["compaction", "writes"])
async def test_a_forgotten_version_is_an_error_event(
    server: APIServer, http: aiohttp.ClientSession, how: str
) -> None:
    version = server.resource_version
    for number in range(22):
        server.create(PODS, named(f"web-{number}"))

    if how == "compaction":
        server.compact()

    async with watching(http, resourceVersion=version) as watch:
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


async def test_the_newest_version_survives_a_compaction(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("a"))
    server.compact()

    async with watching(http, resourceVersion=server.resource_version) as watch:
        server.create(PODS, named("b"))
        assert told(await next_events(watch, 1)) == [("ADDED", "b")]


async def test_a_watch_from_the_future_is_silent(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    version = str(int(server.resource_version) + 2)

    async with watching(http, resourceVersion=version) as watch:
        for name in ("a", "b", "c"):
            server.create(PODS, named(name))

        assert told(await next_events(watch, 1)) == [("ADDED", "c")]


async def test_a_watch_from_the_future_has_no_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "300"}

    async with watching(http, resourceVersion="999", **params) as watch:
        assert await all_events(watch) == []


async def test_a_slow_watcher_loses_nothing(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    """The history holds 20 changes, the watcher is owed 500."""
    async with watching(http, resourceVersion=server.resource_version) as watch:
        for number in range(500):
            server.create(PODS, named(f"web-{number}"))

        events = await next_events(watch, 500)

    assert [name for _, name in told(events)] == [f"web-{it}" for it in range(500)]
    assert versions(events) == sorted(set(versions(events)))


# -------------------------------------------------------------------- how it ends


async def test_the_timeout_ends_a_watch_cleanly(http: aiohttp.ClientSession) -> None:
    start = now()

    async with watching(http, timeoutSeconds="7") as watch:
        assert await all_events(watch) == []

    assert now() - start == pytest.approx(7, abs=0.1)


async def test_a_watch_ends_although_events_keep_coming(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web"))
    start = now()

    async with watching(http, timeoutSeconds="5") as watch:
        while line := await watch.content.readline():
            assert line.endswith(b"}\n")
            await asyncio.sleep(0.1)
            server.patch(PODS, "web", {"spec": {"time": now()}})

    assert now() - start == pytest.approx(5, abs=0.2)


async def test_a_watch_of_no_length_lasts_as_long_as_the_server_says() -> None:
    async with a_server(watch_seconds=40) as server, a_session(server) as http:
        start = now()
        async with watching(http, timeoutSeconds="0") as watch:
            await all_events(watch)

    assert now() - start == pytest.approx(40, abs=0.1)


async def test_a_client_that_leaves_is_forgotten(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    async with watching(http) as watch:
        server.create(PODS, named("a"))
        await next_events(watch, 1)

    server.create(PODS, named("b"))
    code, _ = await ask(http, "GET", PODS_PATH)

    assert code == 200


# -------------------------------------------------------------------- bookmarks


async def test_bookmarks_come_every_minute_and_before_the_end(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "150"}
    start = now()
    times = []

    async with watching(http, resourceVersion=server.resource_version, **params) as it:
        while line := await it.content.readline():
            assert b'"type":"BOOKMARK"' in line
            times.append(now() - start)

    assert times == pytest.approx([60, 120, 148], abs=0.2)
    assert now() - start == pytest.approx(150, abs=0.2)


@pytest.mark.parametrize("custom", [False, True])
async def test_a_bookmark_holds_nothing_but_the_newest_version(
    server: APIServer, http: aiohttp.ClientSession, custom: bool
) -> None:
    path = WIDGETS_PATH if custom else PODS_PATH
    version = server.resource_version
    server.create(CONFIG_MAPS, named("elsewhere"))

    async with watching(
        http, path, resourceVersion=version, allowWatchBookmarks="true"
    ) as watch:
        (event,) = await next_events(watch, 1)

    metadata: dict[str, Any] = {"resourceVersion": server.resource_version}
    typed = {"kind": "Pod", "apiVersion": "v1"}
    if custom:
        typed = {"kind": "Widget", "apiVersion": "example.com/v1"}
    else:
        metadata["creationTimestamp"] = None

    assert event == {"type": "BOOKMARK", "object": {**typed, "metadata": metadata}}


async def test_bookmarks_come_only_where_they_are_allowed(
    http: aiohttp.ClientSession,
) -> None:
    for allowed in ({}, {"allowWatchBookmarks": "false"}):
        async with watching(http, timeoutSeconds="200", **allowed) as watch:
            assert await all_events(watch) == []


async def test_events_have_no_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(EVENTS, named("a"))
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "200"}

    async with watching(
        http, "/api/v1/events", resourceVersion=server.resource_version, **params
    ) as watch:
        assert await all_events(watch) == []


async def test_the_time_between_bookmarks_can_be_set() -> None:
    params = {"allowWatchBookmarks": "true", "timeoutSeconds": "10"}
    async with (
        a_server(bookmark_seconds=2.5) as server,
        a_session(server) as http,
        watching(http, **params) as watch,
    ):
        assert len(await all_events(watch)) == 4


# -------------------------------------------------------------------- watch-list

STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


async def test_initial_events_end_with_an_annotated_bookmark(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("a"))
    server.create(PODS, named("b"))

    async with watching(http, **STREAMING) as watch:
        initial = await next_events(watch, 3)
        server.create(PODS, named("c"))
        later = await next_events(watch, 1)

    assert told(initial) == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
    metadata = initial[2]["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == str(versions(later)[0] - 1)
    assert told(later) == [("ADDED", "c")]


async def test_initial_events_of_an_empty_collection_end_at_once(
    http: aiohttp.ClientSession,
) -> None:
    start = now()

    async with watching(http, **STREAMING) as watch:
        assert told(await next_events(watch, 1)) == [("BOOKMARK", "")]

    assert now() - start < 0.1


async def test_initial_events_are_left_out_on_request(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("a"))
    params = {**STREAMING, "sendInitialEvents": "false"}

    async with watching(http, **params) as watch:
        server.create(PODS, named("b"))
        assert told(await next_events(watch, 1)) == [("ADDED", "b")]


async def test_initial_events_of_the_future_are_504(
    http: aiohttp.ClientSession,
) -> None:
    code, status = await ask(
        http, "GET", PODS_PATH, watch="1", resourceVersion="999", **STREAMING
    )

    assert (code, status["reason"]) == (504, "Timeout")


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"sendInitialEvents": "true"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "NotOlderThan"}, 422),
        ({"continue": "x"}, 400),
        ({"timeoutSeconds": "soon"}, 400),
        ({"labelSelector": "=a"}, 400),
        ({"fieldSelector": "spec.unknown=1"}, 400),
        ({"resourceVersion": "abc"}, 500),
    ],
    ids=str,
)
async def test_bad_parameters_are_refused(
    http: aiohttp.ClientSession, params: dict[str, str], code: int
) -> None:
    answered, status = await ask(http, "GET", PODS_PATH, watch="true", **params)

    assert answered == status["code"] == code


async def test_a_false_watch_is_a_list(http: aiohttp.ClientSession) -> None:
    for text in ("0", "false", "False"):
        _, found = await ask(http, "GET", PODS_PATH, watch=text)

        assert found["kind"] == "PodList"


# -------------------------------------------------------------------- selectors


async def test_selected_objects_come_and_go(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    async with watching(http, labelSelector="app=web", timeoutSeconds="1") as watch:
        server.create(PODS, named("a", labels={"app": "db"}))
        server.patch(PODS, "a", {"metadata": {"labels": {"app": "web"}}})
        last = server.patch(PODS, "a", {"spec": {"nodeName": "n"}})
        left = server.patch(PODS, "a", {"metadata": {"labels": {"app": "db"}}})
        server.delete(PODS, "a")
        events = await all_events(watch)

    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    # It lives on: the event shows the last state that matched, at the new version.
    gone = events[2]["object"]
    assert gone["metadata"]["labels"] == {"app": "web"}
    assert gone["spec"] == last["spec"]
    new_version = left["metadata"]["resourceVersion"]
    assert gone["metadata"]["resourceVersion"] == new_version


async def test_fields_select_what_is_told(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    async with watching(
        http, fieldSelector="spec.nodeName=n1", timeoutSeconds="1"
    ) as watch:
        server.create(PODS, named("a"))
        server.patch(PODS, "a", {"spec": {"nodeName": "n1"}})
        events = await all_events(watch)

    assert told(events) == [("ADDED", "a")]


async def test_a_namespace_selects_what_is_told(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(NAMESPACES, named("shop"))
    path = WIDGETS.path("shop")

    async with watching(http, path, timeoutSeconds="1") as watch:
        server.create(WIDGETS, named("here"), namespace="shop")
        server.create(WIDGETS, named("elsewhere"))
        assert told(await all_events(watch)) == [("ADDED", "here")]
