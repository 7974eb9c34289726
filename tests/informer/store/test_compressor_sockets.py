"""Informers with and without compression over HTTP deliver, store and read the same."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from compression_helpers import digest, is_compressed

from aioinformer import Deleted, SharedInformerFactory, Updated, index_by
from aioinformer.model.compression import SAMPLES
from aioinformer.model.resources import CONFIG_MAPS, NAMESPACES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from informers import Event

    from aioinformer import KubeObject, SharedInformer

# Training runs in a thread, so the clock must be real.
pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]

COUNT = SAMPLES + 60


def content(name: str, kind: str) -> dict[str, Any]:
    """Return fields common to a kind, and one of its own."""
    common = {f"{kind}.{number}": digest(f"{kind}{number}", 64) for number in range(12)}
    return common | {"own": digest(name), "kind": kind}


def config_map(number: int, kind: str = "web") -> dict[str, Any]:
    name = f"cm-{number:03}"
    namespace = "ab"[number % 2]
    metadata = {"name": name, "namespace": namespace, "labels": {"app": kind}}
    return {"metadata": metadata, "data": content(name, kind)}


def fill(server: APIServer) -> None:
    for name in "ab":
        server.create(NAMESPACES, {"metadata": {"name": name}})

    for number in range(COUNT):
        server.create(CONFIG_MAPS, config_map(number))


def change(server: APIServer, number: int, kind: str) -> None:
    body = config_map(number, kind)
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    patch = {"data": {f"web.{n}": None for n in range(12)} | body["data"]}
    server.patch(CONFIG_MAPS, name, patch, namespace=namespace)


class Record:
    """Notifications of a handler by object, with decoded bodies."""

    def __init__(self, informer: SharedInformer) -> None:
        self.received: dict[str, list[object]] = {}
        # Delivered states that were the stored object, and copies of it.
        self.stored = self.copies = 0
        self._store = informer.store
        informer.add_event_handler(on_event=self._note)

    def _note(self, event: Event) -> None:
        obj = event.new if isinstance(event, Updated) else event.obj
        stored = self._store.get_by_key(obj.key)
        if stored is not None and stored.resource_version == obj.resource_version:
            self.stored += stored is obj
            self.copies += stored is not obj

        entry: list[object] = [type(event).__name__, obj.to_dict()]
        if isinstance(event, Updated):
            entry.append(event.old.to_dict())
        elif isinstance(event, Deleted):
            entry.append(event.final_state_unknown)
        else:
            entry.append(event.initial)

        self.received.setdefault(obj.key, []).append(entry)


def versions(server: APIServer) -> dict[str, str]:
    metadata = [it["metadata"] for it in server.objects(CONFIG_MAPS)]
    return {f"{it['namespace']}/{it['name']}": it["resourceVersion"] for it in metadata}


async def reached(server: APIServer, *informers: SharedInformer) -> None:
    """Wait until stores equal the server, and handlers have all notifications."""
    expected = versions(server)
    async with asyncio.timeout(60):
        for informer in informers:
            while expected != {
                obj.key: obj.resource_version for obj in informer.store.list()
            }:
                await asyncio.sleep(0.01)

            await informer._processor.drained()


@asynccontextmanager
async def both(
    server: APIServer, **options: Any
) -> AsyncIterator[tuple[SharedInformer, SharedInformer]]:
    """Run the same informer twice, the second with compression, and wait for the sync."""
    factory = SharedInformerFactory(server.client())
    indexers = {"kind": index_by("data.kind"), "own": by_own}
    plain = factory.informer("v1", "configmaps", indexers=indexers, **options)
    packed = factory.informer(
        "v1",
        "configmaps",
        indexers=indexers,
        name="packed",
        compression="zstd",
        **options,
    )
    async with factory:
        await factory.wait_for_cache_sync(timeout=60)
        yield plain, packed


def by_own(obj: KubeObject) -> list[str]:
    return [str(obj.at("data.own", ""))[:1]]


def by_key(objects: list[KubeObject]) -> dict[str, KubeObject]:
    """Return the objects by key, as namespaces are listed in any order."""
    return {obj.key: obj for obj in objects}


def items(informer: SharedInformer) -> list[Any]:
    found: list[Any] = orjson.loads(informer.lister.json())["items"]
    return sorted(found, key=lambda it: str(it["metadata"]["uid"]))


def check_same(plain: SharedInformer, packed: SharedInformer) -> None:
    """Assert that every read of both informers returns the same."""
    assert by_key(packed.store.list()) == by_key(plain.store.list())
    assert items(packed) == items(plain)
    for name in ("kind", "own", "namespace"):
        values = set(plain.indexer.list_index_func_values(name))
        assert set(packed.indexer.list_index_func_values(name)) == values
        for value in values:
            found = packed.indexer.by_index(name, value)
            assert by_key(found) == by_key(plain.indexer.by_index(name, value))
            assert all(obj is packed.store.get_by_key(obj.key) for obj in found)

    for selector in ("app=web", "app!=web"):
        found = packed.lister.list(selector)
        assert by_key(found) == by_key(plain.lister.list(selector))


def raws(informer: SharedInformer) -> dict[str, bytes]:
    return {obj.key: obj.raw for obj in informer.store.list()}


def stored(informer: SharedInformer) -> int:
    return sum(len(obj.body) for obj in informer.store.list())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="whole"),
        pytest.param({"page_size": 70}, id="pages"),
        pytest.param({"streaming_list": True}, id="stream"),
        pytest.param({"namespace": ["a", "b"]}, id="namespaces"),
    ],
)
async def test_compressed_informer_delivers_and_stores_the_same(
    options: dict[str, Any],
) -> None:
    async with APIServer() as server:
        fill(server)
        async with both(server, **options) as (plain, packed):
            records = Record(plain), Record(packed)
            await reached(server, plain, packed)
            check_same(plain, packed)
            assert raws(packed) == raws(plain)
            assert all(map(is_compressed, packed.store.list()))
            assert not any(map(is_compressed, plain.store.list()))
            assert stored(packed) < stored(plain) / 3

            for number in range(0, COUNT, 5):
                change(server, number, "other")
                if number % 3 == 0:
                    change(server, number, "third")
                if number % 4 == 0:
                    name = f"cm-{number:03}"
                    server.delete(CONFIG_MAPS, name, namespace="ab"[number % 2])

            await reached(server, plain, packed)
            check_same(plain, packed)
            assert raws(packed) == raws(plain)
            assert len(records[0].received) == COUNT
            assert [it.stored > COUNT for it in records] == [True, True]
            assert [it.copies for it in records] == [0, 0]
            assert records[1].received == records[0].received


async def test_relist_keeps_unchanged_objects() -> None:
    async with APIServer() as server:
        fill(server)
        async with both(server) as (plain, packed):
            before = {obj.key: obj for obj in packed.store.list()}
            records = Record(plain), Record(packed)
            await reached(server, plain, packed)
            await server.stop()
            changed = range(0, COUNT, 50)
            for number in changed:
                change(server, number, "other")

            server.delete(CONFIG_MAPS, "cm-001", namespace="b")
            server.compact()
            await server.start()
            await reached(server, plain, packed)

            check_same(plain, packed)
            after = {obj.key: obj for obj in packed.store.list()}
            kept = [key for key, obj in after.items() if before[key] is obj]
            assert len(kept) == COUNT - len(changed) - 1
            assert records[1].received == records[0].received
            assert records[1].received["b/cm-001"][-1] == [
                "Deleted",
                before["b/cm-001"].to_dict(),
                True,  # so a list found the deletion
            ]


async def test_bodies_of_another_kind_get_another_dictionary() -> None:
    async with APIServer() as server:
        fill(server)
        async with both(server) as (plain, packed):
            first = {obj.context for obj in packed.store.list()}
            for number in range(400):
                change(server, number, "other")
                await asyncio.sleep(0)

            await reached(server, plain, packed)
            for number in range(400, 450):
                change(server, number, "other")

            await reached(server, plain, packed)

            check_same(plain, packed)
            contexts = {obj.context for obj in packed.store.list()}
            assert len(first) == 1
            assert first < contexts
            last = packed.store.get_by_key("a/cm-448")
            early = packed.store.get_by_key("a/cm-000")
            assert last is not None
            assert early is not None
            assert len(last.body) < len(early.body) / 1.5


async def test_metadata_only_objects_are_compressed() -> None:
    async with APIServer() as server:
        for name in "ab":
            server.create(NAMESPACES, {"metadata": {"name": name}})

        for number in range(120):
            body = config_map(number)
            body["metadata"]["annotations"] = content(str(number), "note")
            server.create(CONFIG_MAPS, body)

        factory = SharedInformerFactory(server.client())
        plain = factory.informer("v1", "configmaps", metadata_only=True)
        packed = factory.informer(
            "v1", "configmaps", metadata_only=True, name="packed", compression="zstd"
        )
        async with factory:
            await factory.wait_for_cache_sync(timeout=60)

            assert packed.store.list() == plain.store.list()
            assert all(map(is_compressed, packed.store.list()))
            assert stored(packed) < stored(plain) / 3
