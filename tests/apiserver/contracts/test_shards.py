"""Lists, watches and deletions of shards, with the feature gate on.

Shards are cut at the median of the hashes, so that both have objects in every run.
"""

from __future__ import annotations

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
    names,
    newest,
    next_events,
    remove,
    settle,
    types_and_names,
    watching,
    widget,
)

from aioinformer.model.shards import HASHES, hash_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp
    from contract_servers import ServerUnderTest

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
# Hash of an empty namespace.
EMPTY = 0xCBF29CE484222325


def shard(start: int, end: int, field: str = "uid") -> str:
    """Return a selector as servers write it."""
    return f"shardRange(object.metadata.{field}, '{start:#018x}', '{end:#018x}')"


class Halves:
    """Two shards of the same size, with the names of their objects in order."""

    def __init__(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        hashes = {
            it["metadata"]["name"]: hash_of(it["metadata"]["uid"]) for it in bodies
        }
        median = sorted(hashes.values())[len(hashes) // 2]
        self.low = shard(0, median)
        self.high = shard(median, HASHES)
        self.names_low = sorted(name for name in hashes if hashes[name] < median)
        self.names_high = sorted(name for name in hashes if hashes[name] >= median)


async def ten(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str = "configmaps"
) -> tuple[str, Halves]:
    """Create ten objects; return the path of their collection, and its halves."""
    path = target.path(plural, WIDGETS_GROUP if plural == "widgets" else "api/v1")
    made = []
    for name in "abcdefghij":
        body = {
            "configmaps": named(name, labels={"kept": "yes"}),
            "widgets": widget(name),
            "events": an_event(name, target.namespace, labels={"kept": "yes"}),
        }[plural]
        made.append(await make(http, path, body))

    await settle(http, path, made[-1])
    return path, Halves(made)


# ---------------------------------------------------------------- lists


async def test_list_has_the_objects_of_a_shard_and_its_selector(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)

    for version in ({}, {"resourceVersion": "0"}):
        _, low = await ask(http, "GET", path, shardSelector=halves.low, **version)
        _, high = await ask(http, "GET", path, shardSelector=halves.high, **version)

        assert (names(low), names(high)) == (halves.names_low, halves.names_high)
        assert len(names(low)) == len(names(high)) == 5
        assert low["metadata"]["shardInfo"] == {"selector": halves.low}
        assert list(low["metadata"]) == ["resourceVersion", "shardInfo"]


async def test_list_without_selector_has_no_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, _ = await ten(target, http)

    for query in ({}, {"shardSelector": ""}):
        _, found = await ask(http, "GET", path, **query)

        assert len(names(found)) == 10
        assert "shardInfo" not in found["metadata"]


async def test_list_joins_ranges(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)

    _, found = await ask(
        http, "GET", path, shardSelector=f"{halves.high} || {halves.low}"
    )

    assert len(names(found)) == 10
    # In the order of the request, although they are neighbours.
    selector = found["metadata"]["shardInfo"]["selector"]
    assert selector == f"{halves.high} || {halves.low}"


async def test_namespaces_are_hashed_and_empty_for_cluster_scope(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, _ = await ten(target, http)
    hashed = hash_of(target.namespace)

    for selector, expected in [
        (shard(hashed, hashed + 1, "namespace"), 10),
        (shard(hashed + 1, HASHES, "namespace"), 0),
    ]:
        _, found = await ask(http, "GET", path, shardSelector=selector)
        assert len(names(found)) == expected

    for selector, expected in [
        (shard(EMPTY, EMPTY + 1, "namespace"), True),
        (shard(0, EMPTY, "namespace"), False),
    ]:
        _, found = await ask(http, "GET", "/api/v1/namespaces", shardSelector=selector)
        assert (target.namespace in names(found)) == expected


async def test_shard_combines_with_other_selectors(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)
    one, other = halves.names_low[0], halves.names_high[0]
    await change(http, f"{path}/{one}", {"metadata": {"labels": {"kept": "no"}}})

    for query, expected in [
        ({"labelSelector": "kept=no"}, [one]),
        ({"labelSelector": "kept=yes"}, halves.names_low[1:]),
        ({"fieldSelector": f"metadata.name={one}"}, [one]),
        ({"fieldSelector": f"metadata.name={other}"}, []),
    ]:
        _, found = await ask(http, "GET", path, shardSelector=halves.low, **query)

        assert names(found) == expected
        assert found["metadata"]["shardInfo"] == {"selector": halves.low}


@pytest.mark.parametrize("plural", ["configmaps", "events"])
async def test_pages_of_a_shard_are_full_and_count_what_others_have(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    path, halves = await ten(target, http, plural)
    query = {"shardSelector": halves.low, "limit": "2"}
    order = sorted(halves.names_low + halves.names_high)

    found, token, start = [], "", 0
    while True:
        more = {"continue": token} if token else {}
        _, page = await ask(http, "GET", path, **query, **more)
        found += names(page)
        assert page["metadata"]["shardInfo"] == {"selector": halves.low}
        token = page["metadata"].get("continue", "")
        if not token:
            break

        assert len(names(page)) == 2
        read = 0
        if plural == "events":
            # Without a watch cache, only the last of several reads counts.
            last, length = order.index(names(page)[-1]) - start, 2
            while read + length <= last:
                read, length = read + length, 2 * length

        assert page["metadata"]["remainingItemCount"] == 10 - start - read - 2
        start = order.index(names(page)[-1]) + 1

    assert found == halves.names_low


async def test_list_of_custom_objects_is_filtered_but_does_not_show_it(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http, "widgets")

    _, found = await ask(http, "GET", path, shardSelector=halves.low)

    assert names(found) == halves.names_low
    assert "shardInfo" not in found["metadata"]


@pytest.mark.parametrize(("accept", "rows"), [(TABLE, "rows"), (METADATA, "items")])
async def test_tables_and_metadata_are_filtered_but_do_not_show_it(
    target: ServerUnderTest, http: aiohttp.ClientSession, accept: str, rows: str
) -> None:
    path, halves = await ten(target, http)

    async with http.get(
        path, params={"shardSelector": halves.low}, headers={"Accept": accept}
    ) as answer:
        found = await answer.json()

    shown = [it.get("object", it)["metadata"]["name"] for it in found[rows]]
    assert shown == halves.names_low
    assert list(found["metadata"]) == ["resourceVersion"]


async def test_shard_selector_of_a_get_is_ignored(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)

    code, found = await ask(
        http, "GET", f"{path}/{halves.names_high[0]}", shardSelector=halves.low
    )

    assert (code, found["metadata"]["name"]) == (200, halves.names_high[0])


# ---------------------------------------------------------------- watches


@pytest.mark.parametrize("plural", ["configmaps", "widgets"])
async def test_watch_has_the_changes_of_a_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    path, halves = await ten(target, http, plural)
    version = await newest(http, path)
    ours, other = halves.names_low[0], halves.names_high[0]

    async with watching(
        http, path, resourceVersion=str(version), shardSelector=halves.low
    ) as watch:
        for name in (other, ours):
            await change(http, f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})

        for name in (other, ours):
            await remove(http, f"{path}/{name}")

        events = await next_events(watch, 2)

    assert types_and_names(events) == [("MODIFIED", ours), ("DELETED", ours)]


@pytest.mark.parametrize("plural", ["configmaps", "widgets"])
async def test_initial_events_are_those_of_a_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    path, halves = await ten(target, http, plural)
    added = [("ADDED", name) for name in halves.names_low]

    async with watching(http, path, shardSelector=halves.low) as watch:
        assert types_and_names(await next_events(watch, 5)) == added

    async with watching(http, path, shardSelector=halves.low, **STREAMING) as watch:
        events = await next_events(watch, 6)

    assert types_and_names(events) == [*added, ("BOOKMARK", "")]


async def test_object_made_again_may_be_in_another_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    first = await make(http, path, named("again"))
    hashed = hash_of(first["metadata"]["uid"])
    version = first["metadata"]["resourceVersion"]

    async with watching(
        http, path, resourceVersion=version, shardSelector=shard(hashed, hashed + 1)
    ) as watch:
        await remove(http, f"{path}/again")
        await make(http, path, named("again"))
        await remove(http, f"{path}/again")
        (event,) = await next_events(watch, 1)

    assert event["type"] == "DELETED"
    async with watching(
        http,
        path,
        resourceVersion=version,
        shardSelector=shard(hashed, hashed + 1),
        timeoutSeconds="1",
    ) as watch:
        events = await all_events(watch)

    uids = [it["object"]["metadata"]["uid"] for it in events]
    assert uids == [first["metadata"]["uid"]]


async def test_watch_of_tables_has_the_rows_of_a_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)

    async with watching(http, path, accept=TABLE, shardSelector=halves.low) as watch:
        events = await next_events(watch, 5)

    rows = [it["object"]["rows"][0]["object"]["metadata"]["name"] for it in events]
    assert rows == halves.names_low


async def test_watch_without_a_cache_is_filtered_only_with_another_selector(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http, "events")
    everything = sorted(halves.names_low + halves.names_high)

    async with watching(http, path, shardSelector=halves.low) as watch:
        events = await next_events(watch, 10)

    assert [name for _, name in types_and_names(events)] == everything
    async with watching(
        http, path, shardSelector=halves.low, labelSelector="kept=yes"
    ) as watch:
        events = await next_events(watch, 5)

    assert [name for _, name in types_and_names(events)] == halves.names_low


# ---------------------------------------------------------------- deletions


async def test_deletion_of_a_collection_deletes_a_shard(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, halves = await ten(target, http)

    code, deleted = await ask(http, "DELETE", path, shardSelector=halves.low)

    assert (code, names(deleted)) == (200, halves.names_low)
    assert deleted["metadata"]["shardInfo"] == {"selector": halves.low}
    _, left = await ask(http, "GET", path)
    assert names(left) == halves.names_high
