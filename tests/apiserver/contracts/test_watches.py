"""Watches: events, start versions, timeouts, selectors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    all_events,
    an_event,
    ask,
    change,
    make,
    named,
    newest,
    next_events,
    remove,
    settle,
    types_and_names,
    version_of,
    versions,
    watching,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


# -------------------------------------------------------------------- start versions


@pytest.mark.parametrize("custom", [False, True], ids=["typed", "custom"])
async def test_watch_sends_events_after_its_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, custom: bool
) -> None:
    path, body = target.path("configmaps"), named("a")
    if custom:
        path, body = target.path("widgets", WIDGETS_GROUP), widget("a")

    version = str(await newest(http, path))
    async with watching(http, path, resourceVersion=version) as watch:
        made = await make(http, path, body)
        changed = await change(http, f"{path}/a", {"data": {"k": "v"}})
        await remove(http, f"{path}/a")
        events = await next_events(watch, 3)

    assert types_and_names(events) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert events[0]["object"] == made
    assert events[1]["object"] == changed
    # Last body of the object, with the version of the deletion.
    gone = events[2]["object"]
    assert int(gone["metadata"].pop("resourceVersion")) > version_of(changed)
    del changed["metadata"]["resourceVersion"]
    assert gone == changed


async def test_watch_replays_history(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    first = await make(http, path, named("a"))
    await make(http, target.path("secrets"), named("other"))
    await make(http, path, named("b"))
    await remove(http, f"{path}/a")

    version = first["metadata"]["resourceVersion"]
    async with watching(http, path, resourceVersion=version, timeoutSeconds="1") as it:
        events = await all_events(it)

    assert types_and_names(events) == [("ADDED", "b"), ("DELETED", "a")]


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}], ids=str)
@pytest.mark.parametrize("plural", ["configmaps", "events"])
async def test_watch_without_version_starts_with_existing_objects(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    params: dict[str, str],
    plural: str,
) -> None:
    path = target.path(plural)

    async def made(name: str) -> dict[str, Any]:
        about = an_event(name, target.namespace)
        return await make(http, path, about if plural == "events" else named(name))

    await made("b")
    await settle(http, path, await made("a"))
    async with watching(http, path, **params) as watch:
        events = await next_events(watch, 2)
        await remove(http, f"{path}/a")
        events += await next_events(watch, 1)

    assert types_and_names(events) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_watch_events_are_ordered_by_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """The order is common to all namespaces and objects."""
    other = f"{target.namespace}-b"
    await make(http, "/api/v1/namespaces", named(other))
    places = [target.path("configmaps"), f"/api/v1/namespaces/{other}/configmaps"]
    version = str(await newest(http, places[0]))

    async with watching(http, "/api/v1/configmaps", resourceVersion=version) as watch:
        for number in range(3):
            for path in reversed(places):
                await make(http, path, named(f"map-{number}"))

        events: list[Any] = []
        while len(events) < 6:
            (event,) = await next_events(watch, 1)
            if event["object"]["metadata"]["namespace"].startswith(target.namespace):
                events.append(event)

    await remove(http, f"/api/v1/namespaces/{other}")
    namespaces = [it["object"]["metadata"]["namespace"] for it in events]
    assert namespaces == [other, target.namespace] * 3
    assert versions(events) == sorted(set(versions(events)))


async def test_watch_from_version_older_than_cache_is_error_event(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    """The HTTP status is 200; only the first event is an error."""
    path = target.path("widgets", WIDGETS_GROUP)

    async with watching(http, path, resourceVersion="1") as watch:
        (event,) = await all_events(watch)

    status = event["object"]
    message = status.pop("message")
    assert message.startswith("too old resource version: 1 (")
    assert event["type"] == "ERROR"
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
    }


@pytest.mark.alone
async def test_watch_from_compacted_version_is_error_event(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    # Events, because they are watched without a watch cache.
    path = target.path("events")
    made = [await make(http, path, an_event(name, target.namespace)) for name in "abc"]
    await target.compact()

    async with watching(http, path, resourceVersion=str(version_of(made[0]))) as watch:
        (event,) = await all_events(watch)

    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["message"] == (
        "The resourceVersion for the provided watch is too old."
    )


@pytest.mark.alone
async def test_newest_version_survives_compaction(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("events")
    await make(http, path, an_event("a", target.namespace))
    version = str(await newest(http, path))
    await target.compact()

    async with watching(http, path, resourceVersion=version) as watch:
        await make(http, path, an_event("b", target.namespace))
        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "b")]


@pytest.mark.parametrize("plural", ["configmaps", "events"])
async def test_watch_from_future_version_is_silent(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    path = target.path(plural)
    body = an_event("a", target.namespace) if plural == "events" else named("a")
    params = {"timeoutSeconds": "1", "allowWatchBookmarks": "true"}

    async with watching(http, path, resourceVersion="1000000000", **params) as watch:
        await make(http, path, body)

        assert await all_events(watch) == []


async def test_watch_of_single_object_selects_by_name(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    async with watching(http, path, fieldSelector="metadata.name=b") as watch:
        await make(http, path, named("b"))
        await change(http, f"{path}/a", {"data": {"k": "v"}})
        await change(http, f"{path}/b", {"data": {"k": "v"}})
        await remove(http, f"{path}/b")
        events = await next_events(watch, 3)

    assert types_and_names(events) == [
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("DELETED", "b"),
    ]


# -------------------------------------------------------------------- ends


async def test_watch_timeout_ends_stream_cleanly(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    loop = asyncio.get_running_loop()
    path = target.path("configmaps")
    start = loop.time()

    async with watching(http, path, timeoutSeconds="1") as watch:
        assert await all_events(watch) == []

    assert loop.time() - start == pytest.approx(1, abs=0.3)


async def test_negative_watch_timeout_ends_at_once(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("a"))
    params = {"timeoutSeconds": "-5", "resourceVersion": str(version_of(made))}

    async with watching(http, path, **params) as watch:
        assert await all_events(watch) == []


# -------------------------------------------------------------------- selectors


async def test_selector_watch_sends_added_and_deleted_for_matches(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    web, db = ({"metadata": {"labels": {"app": it}}} for it in ("web", "db"))

    async with watching(http, path, labelSelector="app=web") as watch:
        await make(http, path, named("a", labels={"app": "db"}))
        await change(http, f"{path}/a", web)
        last = await change(http, f"{path}/a", {"data": {"k": "v"}})
        left = await change(http, f"{path}/a", db)
        await remove(http, f"{path}/a")
        await make(http, path, named("b", labels={"app": "web"}))
        events = await next_events(watch, 4)

    assert types_and_names(events) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
    # The object still exists: the event shows its last matching state, at the new
    # version.
    gone = events[2]["object"]
    assert gone["metadata"]["labels"] == {"app": "web"}
    assert gone["data"] == last["data"]
    assert version_of(gone) == version_of(left)


async def test_selector_watch_skips_deletion_of_other_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))
    version = str(await newest(http, path))

    async with watching(
        http, path, labelSelector="app", resourceVersion=version
    ) as watch:
        await remove(http, f"{path}/a")
        await make(http, path, named("b", labels={"app": "x"}))

        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "b")]


async def test_namespace_watch_sends_own_events_only(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    other = f"{target.namespace}-b"
    await make(http, "/api/v1/namespaces", named(other))
    path = target.path("configmaps")

    async with watching(http, path) as watch:
        await make(http, f"/api/v1/namespaces/{other}/configmaps", named("elsewhere"))
        await make(http, path, named("here"))

        assert types_and_names(await next_events(watch, 1)) == [("ADDED", "here")]

    await remove(http, f"/api/v1/namespaces/{other}")


# -------------------------------------------------------------------- parameters


@pytest.mark.parametrize("text", ["1", "true", "yes", ""])
async def test_watch_parameter_is_true_unless_false(
    target: ServerUnderTest, http: aiohttp.ClientSession, text: str
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    async with http.get(path, params={"watch": text}) as answer:
        (event,) = await next_events(answer, 1)
        assert event["type"] == "ADDED"
        assert answer.connection is not None
        assert answer.connection.transport is not None
        answer.connection.transport.abort()


@each_case("text", ["0", "false", "False"])
async def test_watch_false_is_list(
    target: ServerUnderTest, http: aiohttp.ClientSession, text: str
) -> None:
    _, found = await ask(http, "GET", target.path("configmaps"), watch=text)

    assert found["kind"] == "ConfigMapList"


@each_case("name", ["limit", "timeoutSeconds"])
@each_case(
    "text, why",
    [
        ("x", "invalid syntax"),
        ("1.5", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("", "invalid syntax"),
        ("9" * 20, "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
async def test_malformed_integer_parameter_is_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    name: str,
    text: str,
    why: str,
) -> None:
    path = target.path("configmaps")

    for more in ({}, {"watch": "1"}):
        code, status = await ask(http, "GET", path, **{name: text}, **more)

        assert (code, status["reason"]) == (400, "BadRequest")
        assert status["message"] == f'strconv.ParseInt: parsing "{text}": {why}'


async def test_negative_limit_is_ignored(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("a", "b"):
        await make(http, path, named(name))

    _, found = await ask(http, "GET", path, limit="-1")
    async with watching(http, path, limit="1") as watch:
        events = await next_events(watch, 2)

    assert len(found["items"]) == 2
    assert types_and_names(events) == [("ADDED", "a"), ("ADDED", "b")]


# -------------------------------------------------------------------- older paths


@pytest.mark.parametrize("custom", [False, True], ids=["typed", "custom"])
async def test_deprecated_watch_path_is_served(
    target: ServerUnderTest, http: aiohttp.ClientSession, custom: bool
) -> None:
    """Watches had paths of their own before they had a parameter."""
    path, body = target.path("configmaps"), named("a")
    if custom:
        path, body = target.path("widgets", WIDGETS_GROUP), widget("a")

    await make(http, path, body)
    old = path.replace("/v1/", "/v1/watch/")
    for watched in (old, f"{old}/a"):
        async with http.get(watched, params={"watch": "false"}) as answer:
            events = await next_events(answer, 1)
            assert answer.connection is not None
            assert answer.connection.transport is not None
            answer.connection.transport.abort()

        assert types_and_names(events) == [("ADDED", "a")]


async def test_deprecated_watch_path_of_object_selects_by_name(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    old = target.path("configmaps").replace("/v1/", "/v1/watch/")

    code, status = await ask(http, "GET", f"{old}/a", fieldSelector="metadata.name=b")
    posted, _ = await ask(http, "POST", old, {})

    assert (code, posted) == (400, 405)
    assert status["message"] == (
        "fieldSelector metadata.name doesn't match requested name"
    )
