"""Informers of shards: together they have what the server has, and nothing twice."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS, WIDGETS_GROUP, an_event, change, make, named, remove
from informers import plain
from wire import proxying

from aioinformer import Added, Client, Deleted, SharedInformerFactory, Updated
from aioinformer.model.resources import CONFIG_MAPS, EVENTS, PODS
from aioinformer.model.shards import (
    HASHES,
    HashRange,
    ShardSelector,
    hash_of,
    ranges_of,
)
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import End

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import aiohttp
    from contract_servers import ServerUnderTest

    from aioinformer import Resource, SharedInformer
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.shards import ShardField

GATE = "ShardedListAndWatch"
RESOURCES = {"configmaps": CONFIG_MAPS, "widgets": WIDGETS, "events": EVENTS}
QUARTERS = [ShardSelector((it,)) for it in ranges_of(4)]


@asynccontextmanager
async def informers_of(
    target: ServerUnderTest,
    resource: Resource,
    *shards: ShardSelector | None,
    url: str = "",
) -> AsyncIterator[list[SharedInformer]]:
    """Run an informer with a client of its own for each selector."""
    options: dict[str, Any] = {"ca_file": target.ca} if target.ca else {}
    async with AsyncExitStack() as stack:
        found = []
        for selector in shards:
            client = Client.from_url(url or target.url, token=target.token, **options)
            factory = await stack.enter_async_context(SharedInformerFactory(client))
            informer = factory.informer(
                resource, namespace=target.namespace, shards=selector
            )
            await informer.wait_synced(timeout=30)
            found.append(informer)

        yield found


async def collection_of(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str, number: int
) -> tuple[str, list[dict[str, Any]]]:
    """Create objects; return the path of their collection, and the objects."""
    path = target.path(plural, WIDGETS_GROUP if plural == "widgets" else "api/v1")
    kind = {"apiVersion": "example.com/v1", "kind": "Widget"} if "wid" in plural else {}
    made = []
    for name in (f"object-{it:03}" for it in range(number)):
        body = {**kind, **named(name)}
        if plural == "events":
            body = an_event(name, target.namespace)

        made.append(await make(http, path, body))

    return path, made


async def union_is(
    parts: Sequence[SharedInformer], http: aiohttp.ClientSession, path: str
) -> None:
    """Wait until the parts are what the server has, and nothing is in two of them."""
    async with http.get(path) as answer:
        items = [it["metadata"] for it in (await answer.json())["items"]]

    whole = {it["uid"]: it["resourceVersion"] for it in items}
    async with asyncio.timeout(30):
        while True:
            stored = [it for part in parts for it in part.store.list()]
            found = {it.uid: it.resource_version for it in stored}
            assert len(found) == len(stored)
            if found == whole:
                return

            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("plural", "shown"), [("configmaps", True), ("widgets", None), ("events", True)]
)
async def test_shards_together_have_the_objects_of_the_server(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    shown: bool | None,
) -> None:
    path, made = await collection_of(target, http, plural, 30)
    async with informers_of(target, RESOURCES[plural], *QUARTERS) as parts:
        await union_is(parts, http, path)
        for body in made[:10]:
            label = {"metadata": {"labels": {"changed": "yes"}}}
            await change(http, f"{path}/{body['metadata']['name']}", label)

        for body in made[5:15]:
            await remove(http, f"{path}/{body['metadata']['name']}")

        again = [await make(http, path, _again(it)) for it in made[10:13]]
        await union_is(parts, http, path)

        # Filtered lists of custom resources do not show that they are.
        assert [it.status.sharded_by_server for it in parts] == [shown] * 4
        uids = {it.uid for part in parts for it in part.store.list()}
        assert uids >= {it["metadata"]["uid"] for it in again}


def _again(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {"name": body["metadata"]["name"]}}


@pytest.mark.parametrize("field", ["uid", "namespace"])
async def test_shard_of_an_object_is_that_of_its_field(
    target: ServerUnderTest, http: aiohttp.ClientSession, field: ShardField
) -> None:
    path, made = await collection_of(target, http, "configmaps", 8)
    shards = [ShardSelector((it,), field) for it in ranges_of(4)]
    async with informers_of(target, CONFIG_MAPS, *shards) as parts:
        await union_is(parts, http, path)
        for part, selector in zip(parts, shards, strict=True):
            values = [
                it.uid if field == "uid" else it.namespace for it in part.store.list()
            ]
            assert all(selector.has_hash(hash_of(it)) for it in values)

        if field == "namespace":
            sizes = sorted(len(it.store.list()) for it in parts)
            assert sizes == [0, 0, 0, len(made)]


async def test_range_moves_between_informers_while_objects_change(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, made = await collection_of(target, http, "configmaps", 40)
    quarters = ranges_of(4)
    before = ShardSelector(quarters[:2]), ShardSelector(quarters[2:])
    after = ShardSelector(quarters[:1]), ShardSelector(quarters[1:])
    async with informers_of(target, CONFIG_MAPS, *before) as parts:
        seen: list[list[tuple[str, str]]] = [[], []]
        for part, events in zip(parts, seen, strict=True):
            part.add_event_handler(on_event=partial(_note, events))

        async with asyncio.TaskGroup() as group:
            for body in made[:20]:
                name = body["metadata"]["name"]
                label = {"metadata": {"labels": {"changed": "yes"}}}
                group.create_task(change(http, f"{path}/{name}", label))
                if body is made[5]:
                    # The one that gains it lists it first.
                    parts[1].set_selection(shards=after[1])
                    await parts[1].wait_selection(timeout=30)
                    parts[0].set_selection(shards=after[0])

        await parts[0].wait_selection(timeout=30)
        await union_is(parts, http, path)
        await asyncio.sleep(0.2)

    for index, events in enumerate(seen):
        for body in made:
            uid = body["metadata"]["uid"]
            told = [kind for kind, about in events if about == uid]
            had, has = (it[index].has_hash(hash_of(uid)) for it in (before, after))
            expected = ["added"] * (had or has) + ["moved"] * (had and not has)
            assert [it for it in told if it != "updated"] == expected


def _note(events: list[tuple[str, str]], event: Notification) -> None:
    match event:
        case Updated(new=new):
            events.append(("updated", new.uid))
        case Deleted(obj=obj, reason=reason):
            events.append((reason or "deleted", obj.uid))
        case Added(obj=obj):
            events.append(("added", obj.uid))


async def test_one_of_four_shards_receives_at_most_30_percent_of_the_bytes(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, made = await collection_of(target, http, "configmaps", 120)
    hashes = sorted(hash_of(it["metadata"]["uid"]) for it in made)
    # A quarter of these objects, so that the test does not depend on random uids.
    quarter = ShardSelector((HashRange(0, hashes[30]),))
    rest = ShardSelector((HashRange(hashes[30], HASHES),))
    received = {}

    async def fill(letter: str) -> None:
        for body in made:
            data = {"data": {"it": letter * 1000}}
            await change(http, f"{path}/{body['metadata']['name']}", data)

    await fill("a")
    for name, selector in [("whole", None), ("quarter", quarter)]:
        async with (
            proxying(target.url) as proxy,
            informers_of(target, CONFIG_MAPS, selector, url=proxy.url) as (part,),
            informers_of(target, CONFIG_MAPS, rest) as others,
        ):
            await fill(name[0])

            await union_is([part] if name == "whole" else [part, *others], http, path)
            received[name] = proxy.passed

    assert received["quarter"] <= 0.3 * received["whole"], received


# ---------------------------------------------------------------- without the gate

# A real server is restarted with other gates in `tests/scenarios/test_scenario_shards.py`.


class Served:
    """A server of our own, and one informer of pods for each quarter."""

    def __init__(self, server: APIServer, parts: list[SharedInformer]) -> None:
        self.server = server
        self.parts = parts
        self._random = random.Random(1)
        self._number = 0

    def write(self, number: int) -> None:
        """Create, change and delete objects."""
        for _ in range(number):
            self._number += 1
            self.server.create(PODS, plain(f"pod-{self._number}"))
            one = self._random.choice(self.server.objects(PODS))["metadata"]["name"]
            if self._number % 3:
                self.server.patch(PODS, one, {"metadata": {"labels": {"a": "b"}}})
            else:
                self.server.delete(PODS, one)

    async def settled(self) -> None:
        """Wait until the parts are what the server has, and check what they share."""
        for part in self.parts:
            await part.wait_for_version(self.server.resource_version, timeout=300)

        stored = [it for part in self.parts for it in part.store.list()]
        found = {it.name: it.resource_version for it in stored}
        metadata = [it["metadata"] for it in self.server.objects(PODS)]
        assert found == {it["name"]: it["resourceVersion"] for it in metadata}
        assert len(found) == len(stored)

    @property
    def sharded(self) -> set[bool | None]:
        return {it.status.sharded_by_server for it in self.parts}


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """Run a server without the gate, and its informers."""
    async with APIServer() as server, AsyncExitStack() as stack:
        parts: list[SharedInformer] = []
        found = Served(server, parts)
        found.write(40)
        for selector in QUARTERS:
            factory = SharedInformerFactory(server.client())
            await stack.enter_async_context(factory)
            parts.append(factory.informer(PODS, shards=selector))
            await parts[-1].wait_synced(timeout=30)

        yield found


@pytest.mark.parametrize("relists", [False, True], ids=["resumes", "relists"])
async def test_shards_are_the_server_while_it_begins_and_stops_to_filter(
    relists: bool,
) -> None:
    async with served() as it:
        assert it.sharded == {False}
        for on in (True, False, True):
            it.server.feature_gates = {GATE: on}
            if relists:
                await it.server.stop()
                it.write(20)
                it.server.compact()
                await it.server.start()
            else:
                await it.server.restart()

            it.write(20)
            await it.settled()
            # Watches do not show it, lists do.
            assert it.sharded == ({on} if relists else {False})


async def test_shards_are_the_server_while_some_watches_are_not_filtered() -> None:
    async with served() as it:
        # One API server of several was upgraded: which of them a watch reaches varies.
        it.server.faults.add(End(after_events=3, times=None))
        await it.server.restart()
        for number in range(40):
            it.server.feature_gates = {GATE: number % 2 == 0}
            it.write(3)
            await asyncio.sleep(1)

        await it.settled()
