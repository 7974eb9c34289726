"""`memory_budget=`: what is compressed, when, and what is never lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import tracemalloc
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest
from compression_helpers import is_compressed, web
from conftest import pod
from fake_source import FakeSource, Page, Stream, added, deleted, error_event, modified
from informer_helpers import Even, running, settle
from metrics_helpers import PlainSink
from namespace_helpers import slow_machine

from aioinformer import SharedInformer, SharedInformerFactory
from aioinformer.errors import OptionsError, TransportError
from aioinformer.informer import MemoryBudget
from aioinformer.informer.memory_budget import memory_limit
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.memory_limiter import BudgetedStore, MemoryLimiter
from aioinformer.informer.store.stored_bytes import OBJECT_BYTES, StoredBytes
from aioinformer.model import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.model.views import DifferenceContext, ObjectContext
from aioinformer.testing import APIServer
from aioinformer.web.health import readyz

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from aioinformer.informer import MemoryStatus
    from aioinformer.model.compression import Compression

MIB = 2**20


class Limited:
    """An informer with a budget, and the task that keeps it."""

    def __init__(
        self, limit: int, *pages: Page, watches: tuple[Stream, ...] = (), **options: Any
    ) -> None:
        drop = options.pop("drop_managed_fields", False)
        self.limiter = MemoryLimiter(MemoryBudget(limit, drop_managed_fields=drop))
        self.source = FakeSource(pages, watches)
        self.pods = SharedInformer(
            self.source, name="pods", rng=Even(), limiter=self.limiter, **options
        )

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self.limiter.run())
        self._running = running(self.pods.run())
        self.life = await self._running.__aenter__()
        await self.pods.wait_synced(timeout=30)
        await settle()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._running.__aexit__(None, None, None)
        self._keeper.cancel()
        await asyncio.wait([self._keeper])

    @property
    def memory(self) -> MemoryStatus:
        return self.limiter.status()

    @property
    def stored(self) -> list[KubeObject]:
        return self.pods.indexer.list()

    def names(self, *, compressed: bool) -> set[str]:
        found = self.pods.indexer.list()
        return {it.name for it in found if is_compressed(it) is compressed}

    def read(self, key: str) -> None:
        found = self.pods.indexer.get_by_key(key)
        assert found is not None
        assert found.at("spec.own")

    def check(self, expected: Iterable[KubeObject]) -> None:
        """Compare the store with what it should have, and the count with the store."""
        stored = {it.key: it for it in self.pods.indexer.list()}
        assert stored == {it.key: it for it in expected}
        bodies = sum(len(it.body) for it in stored.values())
        assert self.memory.held == bodies + overhead_of(self.pods)
        assert self.memory.objects == len(stored)
        assert self.memory.compressed == len(self.names(compressed=True))


def overhead_of(informer: SharedInformer) -> int:
    """Return the bytes that are counted beside bodies."""
    counts = [it.bytes for it in informer._sources.pipelines_in_memory]
    ordered = sum(len(it.plain or ()) for it in counts if it is not None)
    return len(informer.indexer) * OBJECT_BYTES + ordered * 115


def is_difference(obj: KubeObject) -> bool:
    return isinstance(obj.context, DifferenceContext)


def nearly_full() -> tuple[Limited, Callable[[], Awaitable[None]]]:
    """Return an informer with compression, and how it gets a list that hardly fits."""
    pages = Page(webs(600), version=600), Page(webs(600, 5000), version=9000)
    streams = Stream(), Stream()
    limited = Limited(100 * MIB, *pages, watches=streams, compression="zstd")

    async def relist() -> None:
        limited.limiter._limit = int(1.03 * limited.memory.held)
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)

    return limited, relist


def webs(count: int, version: int = 1, first: int = 0) -> list[KubeObject]:
    return [
        web(f"web-{it}", version + it - first) for it in range(first, first + count)
    ]


def size_of(objects: Iterable[KubeObject]) -> int:
    return sum(len(it.raw) + OBJECT_BYTES for it in objects)


def copied(obj: KubeObject, context: ObjectContext) -> KubeObject:
    """Return a copy as a decoder makes it: all of a list share a context."""
    return KubeObject(
        memoryview(obj.body).tobytes(),
        "".join([*obj.key]),
        "".join([*obj.uid]),
        "".join([*obj.resource_version]),
        obj.label_set,
        context,
    )


def noise(name: str, version: int, size: int, **metadata: Any) -> KubeObject:
    """Make an object that hardly compresses."""
    text = random.Random(f"{name}/{version}").randbytes(size // 2).hex()
    metadata["resourceVersion"] = str(version)
    return KubeObject.of(pod(name, metadata=metadata, spec={"text": text}))


def managed(name: str, version: int) -> KubeObject:
    """Make an object of which half is managed fields."""
    fields = [{"manager": random.Random(name).randbytes(2000).hex()}]
    return noise(name, version, 4000, managedFields=fields)


# ---------------------------------------------------------------- within the budget


async def test_nothing_is_compressed_while_there_is_room() -> None:
    objects = webs(600)
    async with Limited(2 * size_of(objects), Page(objects, version=600)) as limited:
        await asyncio.sleep(5)
        limited.check(objects)
        assert limited.memory.compressed == 0
        assert str(limited.memory).startswith("51 % of ")


async def test_list_that_does_not_fit_is_compressed_as_it_arrives() -> None:
    objects = webs(2000)
    most = []
    stored = size_of(objects)
    async with Limited(stored // 2, Page(objects, version=2000)) as limited:
        await asyncio.sleep(5)
        limited.check(objects)
        most.append(limited.memory.held)
        assert limited.memory.held <= limited.memory.limit
        assert limited.memory.compressed > 1000
        assert not limited.memory.over


async def test_bodies_that_were_not_changed_for_longest_are_compressed_first() -> None:
    objects, stream = webs(1000), Stream()
    limit = int(size_of(objects) * 1.2)
    page = Page(objects, version=1000)
    async with Limited(limit, page, watches=(stream,)) as limited:
        await asyncio.sleep(5)
        changed = [web(f"web-{it}", 2000 + it) for it in range(100)]
        for obj in changed:
            stream.send(modified(obj))

        await asyncio.sleep(5)
        new = webs(300, 3000, first=5000)
        for obj in new:
            stream.send(added(obj))

        await asyncio.sleep(5)
        limited.check([*changed, *objects[100:], *new])
        kept = limited.names(compressed=False)
        assert {it.name for it in [*changed, *new]} <= kept
        # The rest is compressed in the order of the list.
        assert limited.names(compressed=True) == {
            it.name for it in objects[100 : 100 + limited.memory.compressed]
        }
        assert limited.memory.held <= limited.memory.limit


async def test_deleted_objects_make_room_again() -> None:
    objects, stream = webs(1000), Stream()
    limit = size_of(objects) // 2
    page = Page(objects, version=1000)
    async with Limited(limit, page, watches=(stream,)) as limited:
        await asyncio.sleep(5)
        for it in range(900):
            stream.send(deleted(web(f"web-{it}", 2000 + it)))

        await asyncio.sleep(5)
        late = web("late", 4000)
        stream.send(added(late))
        await asyncio.sleep(5)
        limited.check([*objects[900:], late])
        assert "late" in limited.names(compressed=False)


async def test_compressed_bodies_that_are_read_often_are_unpacked() -> None:
    objects, stream = webs(1000), Stream()
    limit = size_of(objects) // 2
    page = Page(objects, version=1000)
    async with Limited(limit, page, watches=(stream,)) as limited:
        await asyncio.sleep(5)
        rare, hot = sorted(limited.names(compressed=True))[:2]
        for it in range(800):  # make room
            if f"web-{it}" not in (rare, hot):
                stream.send(deleted(web(f"web-{it}", 2000 + it)))

        await asyncio.sleep(2)
        assert {rare, hot} <= limited.names(compressed=True)
        for name in (hot, hot, hot, rare):
            limited.read(f"default/{name}")

        await asyncio.sleep(3)
        assert hot in limited.names(compressed=False)
        assert rare in limited.names(compressed=True)


async def test_informer_with_compression_stays_compressed() -> None:
    objects = webs(600)
    page = Page(objects, version=600)
    async with Limited(100 * MIB, page, compression="zstd") as limited:
        for _ in range(3):
            limited.read("default/web-1")

        await asyncio.sleep(5)
        limited.check(objects)
        assert limited.names(compressed=False) == set()


# ---------------------------------------------------------------- growth


async def test_pods_that_grow_to_twice_their_size_stay_within_the_budget() -> None:
    objects, stream = webs(2000), Stream()
    limit = int(size_of(objects) * 1.1)
    most = 0
    page = Page(objects, version=2000)
    async with Limited(limit, page, watches=(stream,)) as limited:
        grown = []
        for number, obj in enumerate(objects):
            spec = obj.to_dict()["spec"]
            spec |= {f"copy-{key}": it for key, it in spec.items()}
            large = KubeObject.of(
                pod(
                    obj.name,
                    metadata={"resourceVersion": f"{3000 + number}"},
                    spec=spec,
                )
            )
            grown.append(large)
            stream.send(modified(large))
            await asyncio.sleep(0)
            most = max(most, limited.memory.held)

        assert size_of(grown) > 1.8 * size_of(objects)
        await asyncio.sleep(5)
        limited.check(grown)
        assert most <= 1.1 * limit
        assert limited.memory.held <= limit


async def test_relist_of_everything_ends_within_the_budget() -> None:
    objects, again = webs(1000), webs(1200, 5000)
    limit = int(size_of(objects) * 0.9)
    pages = Page(objects, version=1000), Page(again, version=9000)
    streams = Stream(), Stream()
    async with Limited(limit, *pages, watches=streams) as limited:
        await asyncio.sleep(5)
        limited.check(objects)
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        limited.check(again)
        assert limited.memory.held <= limit
        assert not limited.memory.over


async def test_relist_that_hardly_fits_is_stored_as_differences() -> None:
    objects, again = webs(3000), webs(3000, 5000)
    pages = Page(objects, version=3000), Page(again, version=9000)
    streams = Stream(), Stream()
    async with Limited(10 * MIB, *pages, watches=streams, compression="zstd") as it:
        alone = it.memory.held

    seen: list[KubeObject] = []
    most = 0

    def changed(_: KubeObject, new: KubeObject) -> None:
        seen.append(new)

    limit = int(1.1 * alone)
    streams = Stream(), Stream()
    async with Limited(limit, *pages, watches=streams, compression="zstd") as limited:
        count = limited.limiter.changed

        def counted(by: int) -> None:
            nonlocal most
            count(by)
            most = max(most, limited.memory.held)

        limited.limiter.changed = counted  # type: ignore[method-assign]
        limited.pods.add_event_handler(on_update=changed)
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        limited.check(again)
        assert not any(is_difference(it) for it in limited.stored)
        assert limited.names(compressed=False) == set()
        assert not limited.memory.over

    assert {it.key: it for it in seen} == {it.key: it for it in again}
    assert sum(map(is_difference, seen)) > 2000
    assert most < 1.6 * alone


@pytest.mark.parametrize("relisted", [False, True])
async def test_handler_added_while_a_list_is_counted_knows_all_of_it(
    relisted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_machine(monkeypatch)
    streams, known = (Stream(), Stream()), {}
    pages = Page(webs(50), version=100), Page(webs(60, 1000), version=2000)
    limited = Limited(100 * MIB, *pages, watches=streams)
    count = StoredBytes.listed

    def note(obj: KubeObject) -> None:
        known[obj.key] = obj

    async def counted(self: StoredBytes, now: Any, before: Any) -> None:
        if now and bool(before) is relisted:
            asyncio.get_running_loop().call_soon(
                lambda: limited.pods.add_event_handler(
                    on_add=note, on_update=lambda _, new: note(new)
                )
            )

        await count(self, now, before)

    monkeypatch.setattr(StoredBytes, "listed", counted)
    async with limited:
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        assert known == {it.key: it for it in limited.stored}


async def test_informer_that_ends_meanwhile_is_counted_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_machine(monkeypatch)
    limited, relist = nearly_full()
    packs = 0

    def packed(store: BudgetedStore, key: str) -> None:
        nonlocal packs
        pack(store, key)
        packs += 1
        if packs == 10:
            limited.life.cancel()

    pack = BudgetedStore.pack_difference
    monkeypatch.setattr(BudgetedStore, "pack_difference", packed)
    async with limited:
        await relist()
        assert packs >= 10
        assert limited.life.done()
        assert (limited.memory.objects, limited.memory.held) == (0, 0)


async def test_unreadable_difference_counts_with_the_body_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited, relist = nearly_full()
    damaged: list[str] = []

    def packed(store: BudgetedStore, key: str) -> None:
        if not damaged:
            damaged.append(key)
            stored: Any = limited.pods.indexer.contents.objects
            obj = stored[key]
            stored[key] = msgspec.structs.replace(obj, body=obj.body[:-1])

        pack(store, key)

    pack = BudgetedStore.pack_difference
    monkeypatch.setattr(BudgetedStore, "pack_difference", packed)
    async with limited:
        await relist()
        assert damaged
        assert limited.memory.differences == 1
        limited.limiter._limit = limited.memory.held // 2
        limited.limiter.changed(0)
        await asyncio.sleep(5)
        assert limited.memory.over


async def test_further_measures_are_taken_though_a_list_comes_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fields(it: int) -> list[dict[str, str]]:
        return [{"manager": random.Random(it).randbytes(1000).hex()}]

    lists = [
        [web(f"w-{it}", first + it, managedFields=fields(it)) for it in range(600)]
        for first in (1, 6000)
    ]
    streams = Stream(), Stream()
    pages = [Page(it, version=5000 * (1 + n)) for n, it in enumerate(lists)]
    limited = Limited(
        100 * MIB,
        *pages,
        watches=streams,
        compression="zstd",
        drop_managed_fields=True,
    )
    train_again, times = BudgetedStore.train_again, 0

    async def slow(store: BudgetedStore) -> bool:
        nonlocal times
        times += 1
        if times == 1:
            streams[0].send(error_event(410, "Expired"))
            while limited.stored[0].resource_version != "6000":
                await asyncio.sleep(0.1)

        return await train_again(store)

    monkeypatch.setattr(BudgetedStore, "train_again", slow)
    async with limited:
        limited.limiter._limit = int(0.9 * limited.memory.held)
        limited.limiter.changed(0)
        await asyncio.sleep(60)
        assert limited.memory.managed_fields_dropped
        assert limited.memory.held <= limited.memory.limit


async def test_budget_stays_exceeded_while_namespaces_are_listed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    limiter = MemoryLimiter(MemoryBudget("10MiB"))
    streams = {it: (Stream(), Stream()) for it in "ab"}
    sources = {}
    for namespace, number in (("a", 300), ("b", 900)):
        pages = [
            Page(
                [web(f"w{it}", n + it, namespace=namespace) for it in range(number)],
                version=n + 5000,
            )
            for n in (1, 10_000)
        ]
        sources[namespace] = FakeSource(pages, streams[namespace])

    pods = SharedInformer(
        sources, name="pods", rng=Even(), limiter=limiter, compression="zstd"
    )
    pods.add_event_handler(on_update=lambda _old, _new: None)
    async with running(limiter.run()), running(pods.run()):
        await pods.wait_synced(timeout=30)
        await settle()
        limiter._limit = int(0.5 * limiter.held)
        limiter.changed(0)
        await asyncio.sleep(5)
        slow_machine(monkeypatch)
        for namespace in "ab":
            streams[namespace][0].send(error_event(410, "Expired"))

        await asyncio.sleep(30)
        assert limiter.status().over
        assert "within the limit again" not in caplog.text


async def test_relist_keeps_the_order_of_changes() -> None:
    objects, streams = webs(1000), (Stream(), Stream())
    limit = int(size_of(objects) * 1.2)
    changed = [web(f"web-{it}", 2000 + it) for it in range(100)]
    again = Page([*changed, *objects[100:]], version=3000)
    pages = Page(objects, version=1000), again
    async with Limited(limit, *pages, watches=streams) as limited:
        for obj in changed:
            streams[0].send(modified(obj))

        await asyncio.sleep(5)
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        new = webs(300, 4000, first=5000)
        for obj in new:
            streams[1].send(added(obj))

        await asyncio.sleep(5)
        limited.check([*changed, *objects[100:], *new])
        assert limited.memory.compressed > 100
        assert {it.name for it in changed} <= limited.names(compressed=False)


async def test_list_that_fails_leaves_the_count_as_it_was() -> None:
    objects, streams = webs(300), (Stream(), Stream())
    pages = (
        Page(objects, version=300),
        Page(webs(200, 5000), version=9000, error=TransportError("cut")),
        Page(objects, version=9000),
    )
    async with Limited(10 * MIB, *pages, watches=streams) as limited:
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        limited.check(objects)


@pytest.mark.parametrize("seed", range(10))
async def test_count_and_store_are_right_after_any_changes(seed: int) -> None:
    rng = random.Random(seed)
    version = 1000
    expected = {it.key: it for it in webs(300)}
    streams = [Stream() for _ in range(8)]
    lists = [Page(list(expected.values()), version=version)]
    compression: Compression | None = rng.choice([None, "zstd"])
    limited = Limited(
        rng.choice([2, 3]) * MIB // 2,
        *lists,
        watches=tuple(streams),
        compression=compression,
        drop_managed_fields=rng.random() < 0.5,
    )
    async with limited:
        for stream in streams:
            for _ in range(rng.randrange(60)):
                version += 1
                name = f"web-{rng.randrange(500)}"
                obj = web(name, version, rng.choice(["web", "db"]))
                old = expected.get(obj.key)
                if old is not None and rng.random() < 0.3:
                    del expected[obj.key]
                    stream.send(deleted(web(name, version)))
                else:
                    expected[obj.key] = obj
                    stream.send(added(obj) if old is None else modified(obj))

                if rng.random() < 0.5:
                    known = rng.choice(limited.pods.indexer.list())
                    assert known.at("spec.own")

                await asyncio.sleep(rng.choice([0, 0.3]))

            await asyncio.sleep(rng.choice([0, 3]))
            if compression:  # little room, so that lists have differences
                limited.limiter._limit = int(limited.memory.held * 1.03)

            for key in rng.sample(list(expected), rng.choice([20, 200])):
                expected[key] = web(key.split("/")[1], version := version + 1)

            limited.source.lists = deque(
                [Page(list(expected.values()), version=version)]
            )
            stream.send(error_event(410, "Expired"))
            await asyncio.sleep(60)  # until the next watch

        await asyncio.sleep(10)
        limited.check(expected.values())
        assert limited.memory.held <= limited.memory.limit or compression
        assert not any(is_difference(it) for it in limited.stored)


@pytest.mark.parametrize("share", [2.0, 0.4])
async def test_estimate_is_what_the_stores_take(share: float) -> None:
    objects = webs(3000)
    limit = int(share * size_of(objects))
    context = ObjectContext()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        page = Page([copied(it, context) for it in objects], version=3000)
        async with Limited(limit, page) as limited:
            await asyncio.sleep(5)
            page.objects.clear()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
            limited.check(objects)
            assert (limited.memory.compressed > 1000) is (share < 1)
            assert limited.memory.held == pytest.approx(after - before, rel=0.1)
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- beyond the budget


async def test_store_that_does_not_fit_keeps_all_objects_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, sink = Stream(), PlainSink()
    objects = [noise(f"p{it}", it + 1, 20_000) for it in range(200)]
    page = Page(objects, version=200)
    async with Limited(MIB, page, watches=(stream,), metrics=sink) as limited:
        await asyncio.sleep(5)
        limited.check(objects)
        assert limited.memory.over is True
        assert limited.pods.status.memory == limited.memory
        assert "memory budget exceeded" in caplog.text
        answer = readyz(limited.pods, reasons=True)
        (report,) = msgspec.json.decode(answer.body)["informers"]
        assert (answer.status, report["trouble"]) == (200, "over memory budget")
        assert "200 of 200 objects compressed" in report["reason"]

        for it in range(190):
            stream.send(deleted(noise(f"p{it}", 1000 + it, 10)))

        await asyncio.sleep(5)
        limited.check(objects[190:])
        assert limited.memory == replace(limited.memory, over=False)
        assert readyz(limited.pods).status == 200


@pytest.mark.parametrize("allowed", [True, False])
async def test_managed_fields_are_dropped_only_if_that_is_allowed(
    allowed: bool,
) -> None:
    stream = Stream()
    objects = [managed(f"p{it}", it + 1) for it in range(300)]
    page = Page(objects, version=300)
    async with Limited(
        MIB, page, watches=(stream,), drop_managed_fields=allowed
    ) as limited:
        await asyncio.sleep(5)
        late = managed("late", 500)
        stream.send(added(late))
        await asyncio.sleep(5)
        stored = limited.pods.indexer.list()
        assert len(stored) == 301
        assert limited.memory.managed_fields_dropped is allowed
        assert limited.memory.over is not allowed
        with_fields = [it for it in stored if it.at("metadata.managedFields")]
        assert len(with_fields) == (0 if allowed else 301)
        plain = {it.key: it.at("spec.text") for it in stored}
        assert plain == {it.key: it.at("spec.text") for it in [*objects, late]}
        bodies = sum(len(it.body) for it in stored)
        assert limited.memory.held == bodies + overhead_of(limited.pods)


async def test_relist_after_a_drop_of_managed_fields_is_no_change() -> None:
    objects = [managed(f"p{it}", it + 1) for it in range(300)]
    streams, page = (Stream(), Stream()), Page(objects, version=300)
    told: list[str] = []
    async with Limited(
        MIB, page, page, watches=streams, drop_managed_fields=True
    ) as limited:
        await asyncio.sleep(5)
        limited.pods.add_event_handler(on_update=lambda _, new: told.append(new.name))
        streams[0].send(error_event(410, "Expired"))
        await asyncio.sleep(5)
        assert limited.source.requested.count("list '0'") == 1
        assert len(limited.source.requested) == 4
        assert told == []
        assert not any(
            it.at("metadata.managedFields") for it in limited.pods.indexer.list()
        )


async def test_dictionary_is_replaced_only_by_a_better_one() -> None:
    compressing = BodyCompressor("zstd")
    await compressing.begin(webs(500))
    packed = [compressing.pack(it) for it in webs(500)]
    assert not await compressing.train_again([])
    assert not await compressing.train_again(packed)

    others = [web(f"db-{it}", it, "db") for it in range(500)]
    packed = [compressing.pack(it) for it in others]
    assert await compressing.train_again(packed)
    assert sum(len(compressing.pack(it).body) for it in others) < 0.9 * sum(
        len(it.body) for it in packed
    )


# ---------------------------------------------------------------- factories


async def test_informers_of_a_factory_share_its_budget() -> None:
    async with APIServer(auto_namespaces=True) as server:
        for it in range(300):
            made = web(f"web-{it}").to_dict()
            del made["metadata"]["resourceVersion"]
            server.create(PODS, made)
            data = {"metadata": {"name": f"m{it}"}, "data": {"text": f"{it} x" * 500}}
            server.create(CONFIG_MAPS, data, namespace="ab"[it % 2])

        factory = SharedInformerFactory(server.client(), memory_budget="1.5MiB")
        pods = factory.informer("v1", "pods")
        maps = factory.informer("v1", "configmaps", namespace=["a", "b"])
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await asyncio.sleep(5)
            memory = pods.status.memory
            assert memory is not None
            assert memory == maps.status.memory
            assert memory.objects == 600
            assert memory.held <= memory.limit
            assert memory.compressed > 0
            stored = [*pods.indexer.list(), *maps.indexer.list()]
            bodies = sum(len(it.body) for it in stored)
            assert memory.held == bodies + overhead_of(pods) + overhead_of(maps)

            async with factory.use("v1", "pods", label_selector="none") as none:
                await none.wait_synced(timeout=30)

            server.delete(PODS, "web-1", namespace="default")
            await asyncio.sleep(1)
            memory = pods.status.memory
            assert memory is not None
            assert memory.objects == 599


def test_budget_that_makes_no_sense_is_refused() -> None:
    for limit in ("2 GB please", "0%", "101%", "", None, True, 1.5, -1, "10kB"):
        with pytest.raises(OptionsError, match="memory budget"):
            MemoryBudget(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (3_000_000, 3_000_000),
        ("2GiB", 2 * 2**30),
        ("2Gi", 2 * 2**30),
        ("1.5 GB", 1_500_000_000),
        ("700M", 700_000_000),
        ("5000000", 5_000_000),
    ],
)
def test_limits_are_written_as_in_manifests(limit: int | str, expected: int) -> None:
    assert MemoryBudget(limit).read() == expected


def test_limit_of_the_process_is_the_lowest_of_its_cgroups(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    folder = cgroups / "kubepods" / "pod1"
    folder.mkdir(parents=True)
    assert memory_limit(proc, cgroups) == memory

    (proc / "self" / "cgroup").write_text("0::/kubepods/pod1\n")
    (folder / "memory.max").write_text("max\n")
    assert memory_limit(proc, cgroups) == memory
    (cgroups / "kubepods" / "memory.max").write_text("5000\n")
    assert memory_limit(proc, cgroups) == 5000

    # Version 1, in a container that sees its cgroup as the root.
    (proc / "self" / "cgroup").write_text("4:memory:/docker/123\n3:cpu:/x\n")
    (cgroups / "memory").mkdir()
    (cgroups / "memory" / "memory.limit_in_bytes").write_text("4000\n")
    assert memory_limit(proc, cgroups) == 4000


async def test_share_is_read_when_the_factory_runs() -> None:
    async with APIServer() as server:
        factory = SharedInformerFactory(server.client(), memory_budget="50%")
        pods = factory.informer("v1", "pods")
        assert pods.status.memory is not None
        assert pods.status.memory.limit == 0
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await asyncio.sleep(1)
            expected = await asyncio.to_thread(memory_limit) // 2
            assert pods.status.memory.limit == expected
