"""Pipelines with compression: stored objects, notifications, and dictionaries."""

from __future__ import annotations

import asyncio
import random
import string
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from compression_helpers import (
    a_rig,
    applied,
    counted,
    damaged,
    is_compressed,
    noted_trainings,
    raw_bytes,
    stored_bytes,
    web,
    webs,
)
from fake_source import Page, Stream, states_of
from informer_helpers import pods_of, running
from pipeline_helpers import Rig, add, delete, update
from store_helpers import memory_of

from aioinformer.cache import index_by, index_by_label
from aioinformer.errors import InternalError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model import KubeObject
from aioinformer.model.compression import LEAST_SAMPLES, SAMPLES
from aioinformer.model.views import ObjectContext

if TYPE_CHECKING:
    from collections.abc import Iterator

# Training runs in a thread, so the clock must be real.
pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]

LETTERS = string.ascii_letters + string.digits + string.punctuation.replace('"', "")


@pytest.fixture
def trainings() -> Iterator[list[str]]:
    with noted_trainings() as found:
        yield found


# ---------------------------------------------------------------- stored objects


async def test_equal_strings_of_successive_states_are_stored_once() -> None:
    """A state after a change shares those of the state before it."""
    name, uid = "web-0000", "uid-of-web-0000"
    others = webs(LEAST_SAMPLES)[1:]
    async with a_rig(web(name, 1, uid=uid), *others) as rig:
        first = rig.indexer.get_by_key(f"default/{name}")
        assert first is not None
        await rig.change(update(web(name, 2, uid=uid)), version=6)
        await applied(rig)
        changed = rig.indexer.get_by_key(f"default/{name}")
        await rig.relist(web(name, 3, uid=uid), *others, version=7)
        await applied(rig)
        listed = rig.indexer.get_by_key(f"default/{name}")
        await rig.relist(web(name, 4, uid="another-uid"), version=8)
        await applied(rig)
        other = rig.indexer.get_by_key(f"default/{name}")

    assert changed is not None
    assert listed is not None
    assert other is not None
    versions = [it.resource_version for it in (first, changed, listed, other)]
    assert versions == ["1", "2", "3", "4"]
    assert changed.key is listed.key is other.key is first.key
    assert changed.uid is listed.uid is first.uid
    assert first.uid == uid
    assert other.uid == "another-uid"
    stored = memory_of(rig.indexer).objects
    assert [key is other.key for key in stored] == [True]


# ---------------------------------------------------------------- the first list


async def test_dictionary_is_trained_while_the_default_executor_is_busy() -> None:
    busy, pool = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.submit(busy.wait)
    try:
        async with asyncio.timeout(10), a_rig(*webs(LEAST_SAMPLES)) as rig:
            assert all(map(is_compressed, rig.indexer.list()))
    finally:
        busy.set()


async def test_dictionary_is_trained_in_the_loop_if_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    async with a_rig(*webs(LEAST_SAMPLES)) as rig:
        assert all(map(is_compressed, rig.indexer.list()))

    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("count", [3, LEAST_SAMPLES, SAMPLES - 1, SAMPLES, SAMPLES + 9])
async def test_first_list_is_compressed_before_it_is_visible(count: int) -> None:
    expected = webs(count)
    async with a_rig(*expected) as rig:
        stored = rig.indexer.list()

        assert [obj.raw for obj in stored] == [obj.raw for obj in expected]
        assert all(map(is_compressed, stored))
        limit = 8 if count >= LEAST_SAMPLES else 2
        assert stored_bytes(rig) < raw_bytes(rig) / limit
        assert rig.take() == [Added(obj, True) for obj in expected]


async def test_incompressible_object_is_stored_as_it_is() -> None:
    letters = random.Random(1).choices(LETTERS, k=250)
    metadata = {"resourceVersion": "1"}
    small = KubeObject.of({"metadata": {"name": "small", **metadata}})
    mixed = KubeObject.of(
        {"metadata": {"name": "mixed", **metadata}, "it": "".join(letters)}
    )
    async with a_rig(small, mixed, *webs(3)) as rig:
        assert len(mixed.raw) > 300
        for obj in (small, mixed):
            stored = rig.indexer.get_by_key(obj.key)
            assert stored is obj
            assert stored.body is obj.body

        assert len(rig.indexer) == 5
        assert rig.take()[:2] == [Added(small, True), Added(mixed, True)]


async def test_objects_after_an_empty_list_are_compressed() -> None:
    async with a_rig() as rig:
        assert rig.pipeline.synced

        await rig.change(add(web("a", 6)), version=6)
        await applied(rig)

        (stored,) = rig.indexer.list()
        assert is_compressed(stored)
        assert stored == web("a", 6)


async def test_dictionary_is_trained_once_from_the_first_500_objects(
    trainings: list[str],
) -> None:
    async with a_rig(*webs(2 * SAMPLES)) as rig:
        await rig.relist(*webs(SAMPLES, 2), version=9)
        await applied(rig)

        assert [line.split()[-1] for line in trainings] == [str(SAMPLES)]
        assert len({id(obj.context) for obj in rig.indexer.list()}) == 1


async def test_list_that_breaks_off_leaves_only_the_dictionary(
    trainings: list[str],
) -> None:
    rig = Rig(compression="zstd")
    async with running(rig.run()):
        await rig.pipeline.stage(webs(SAMPLES - 1))
        assert len(trainings) == 0

        await rig.pipeline.stage([web("last")])
        assert len(trainings) == 1
        staged = await rig.pipeline._begin_staging()
        assert len(staged.contents.objects) == SAMPLES
        assert all(map(is_compressed, staged.contents.objects.values()))

        await rig.pipeline.discard()
        await rig.relist(*webs(2), version=5)
        await applied(rig)

        assert len(trainings) == 1
        assert all(map(is_compressed, rig.indexer.list()))
        assert rig.indexer.list() == webs(2)


async def test_object_deleted_during_a_streaming_list_stays_deleted() -> None:
    rig = Rig(compression="zstd")
    async with running(rig.run()):
        await rig.pipeline.stage(webs(3))
        rig.pipeline.stage_deleted(["default/web-0001"])
        await rig.pipeline.stage([web("web-0000", 2)])
        await rig.pipeline.commit("5")
        await applied(rig)

        assert rig.holds == ["web-0000@2", "web-0002@1"]
        assert all(map(is_compressed, rig.indexer.list()))


class Slow:
    """A codec whose reads wait for an event."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.may = threading.Event()

    def read(self, body: bytes, what: str) -> bytes:
        self.called.set()
        assert self.may.wait(timeout=60)
        return web("slow").raw


async def test_list_can_be_repeated_after_its_training_was_cancelled(
    trainings: list[str],
) -> None:
    slow = Slow()
    sample = web("slow")
    first = KubeObject(
        b"",
        sample.key,
        "",
        "1",
        {},
        ObjectContext(slow),  # type: ignore[arg-type]
    )
    rig = Rig(compression="zstd")
    async with running(rig.run()):
        await rig.pipeline.stage([first, *webs(3)])
        commit = asyncio.create_task(rig.pipeline.commit("5"))
        while not slow.called.is_set():
            await asyncio.sleep(0.001)

        commit.cancel()
        await asyncio.wait({commit})
        slow.may.set()
        assert commit.cancelled()
        assert trainings == []
        assert len(rig.indexer) == 0

        await rig.pipeline.commit("5")
        await applied(rig)

        assert len(trainings) == 1
        assert rig.indexer.list() == [sample, *webs(3)]
        assert all(map(is_compressed, rig.indexer.list()))


# ---------------------------------------------------------------- index values


async def test_index_functions_are_called_once_with_uncompressed_objects() -> None:
    called: list[bool] = []

    def by_image(obj: KubeObject) -> list[str]:
        called.append(is_compressed(obj))
        return [obj.at("spec.containers.0.image"), obj.name]

    rig = Rig(compression="zstd")
    rig.indexer.add_indexers({"image": by_image, "app": index_by_label("app")})
    async with running(rig.run()):
        await rig.relist(*webs(SAMPLES + 5), version=5)
        await applied(rig)
        await rig.change(update(web("web-0001", 6)), add(web("new", 7)), version=7)
        await applied(rig)
        await rig.relist(*webs(SAMPLES + 5), version=8)
        await applied(rig)

    assert called == [False] * (SAMPLES + 5 + 2 + 1)  # the last list reverts one object
    (found,) = rig.indexer.by_index("image", "web-0001")
    assert found is rig.indexer.get_by_key("default/web-0001")
    assert is_compressed(found)
    index = rig.indexer.contents.indexes["node"]
    objects = rig.indexer.contents.objects
    assert all(obj is objects[obj.key] for obj in index.objects_of("node-1"))
    assert index.keys_of("node-1") == list(objects)


async def test_indexes_added_later_read_compressed_objects() -> None:
    async with a_rig(*webs(5)) as rig:
        rig.indexer.add_indexers({"own": index_by("spec.own.0")})
        value = web("web-0003").at("spec.own.0")

        assert states_of(rig.indexer.by_index("own", value)) == ["web-0003@1"]


async def test_missing_index_value_of_a_damaged_body_is_reported() -> None:
    async with a_rig(*webs(2)) as rig:
        memory_of(rig.indexer).objects["default/web-0001"] = damaged(web("web-0001"))
        received_by: list[Any] = []
        rig.indexer._on_error = received_by.append
        rig.indexer.add_indexers({"own": index_by("spec.own.0")})

        (failure,) = received_by
        assert isinstance(failure.__cause__, InternalError)


# ---------------------------------------------------------------- notifications


async def test_handlers_get_the_stored_objects() -> None:
    async with a_rig(*webs(2)) as rig:
        first = rig.indexer.list()
        (one, two) = rig.take()
        assert isinstance(one, Added)
        assert isinstance(two, Added)
        assert [one.obj, two.obj] == first
        assert one.obj is first[0]

        await rig.change(update(web("web-0000", 6)), add(web("new", 7)), version=7)
        await applied(rig)
        (changed, came) = rig.take()
        assert isinstance(changed, Updated)
        assert isinstance(came, Added)
        assert changed.old is first[0]
        assert changed.new is rig.indexer.get_by_key("default/web-0000")
        assert came.obj is rig.indexer.get_by_key("default/new")
        assert is_compressed(changed.new)

        await rig.relist(web("web-0000", 8), version=8)
        await applied(rig)
        (removed, other, relisted) = rig.take()
        assert isinstance(removed, Deleted)
        assert isinstance(other, Deleted)
        assert isinstance(relisted, Updated)
        assert removed.obj is first[1]
        assert other.obj is came.obj
        assert relisted.old is changed.new
        assert relisted.new is rig.indexer.get_by_key("default/web-0000")


async def test_final_state_of_a_deletion_is_not_compressed() -> None:
    async with a_rig(*webs(1)) as rig:
        rig.take()
        last = web("web-0000", 9)
        await rig.change(delete(last), version=9)
        await applied(rig)

        (removed,) = rig.take()
        assert isinstance(removed, Deleted)
        assert removed.obj is last


async def test_resync_delivers_the_stored_objects() -> None:
    stream = Stream()
    pods = pods_of(Page(webs(2)), watches=(stream,), compression="zstd")
    events: list[Any] = []
    pods.add_event_handler(on_event=events.append, resync_period=1)

    async with running(pods.run()):
        while len(events) < 4:
            await asyncio.sleep(0.02)

        stored = pods.store.list()

    resync = [event for event in events if isinstance(event, Updated)][:2]
    assert all(it.old is it.new and it.resync for it in resync)
    assert [it.new for it in resync] == stored
    assert all(any(it.new is obj for obj in stored) for it in resync)


# ---------------------------------------------------------------- relists


async def test_relist_does_not_compress_unchanged_objects() -> None:
    async with a_rig(*webs(SAMPLES)) as rig:
        before = rig.indexer.list()
        counting = counted(rig)
        await rig.relist(*webs(SAMPLES - 1), web(f"web-{SAMPLES - 1:04}", 6), version=6)
        await applied(rig)
        after = rig.indexer.list()

        assert counting.count == 1
        assert all(one is other for one, other in zip(before[:-1], after, strict=False))
        assert after[-1] == web(f"web-{SAMPLES - 1:04}", 6)


async def test_list_after_a_history_reset_compares_bodies() -> None:
    """The same version may be another state after the reset."""
    async with a_rig(*webs(3)) as rig:
        rig.take()
        before = rig.indexer.list()
        other = web("web-0001", kind="other")
        await rig.pipeline.stage(
            [web("web-0000"), other, web("web-0002")], after_reset=True
        )
        await rig.pipeline.commit("1")
        await applied(rig)
        after = rig.indexer.list()

        assert [one is it for one, it in zip(before, after, strict=True)] == [1, 0, 1]
        assert rig.take() == [Updated(before[1], other)]
