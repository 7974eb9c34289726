"""`Pipeline` with a store so large that its maps are divided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from informer_helpers import running, settle
from pipeline_helpers import Rig, View, add, delete, update
from store_helpers import memory_of

from aioinformer.cache import split_dict
from aioinformer.cache.split_dict import SplitDict
from aioinformer.informer.handlers.inbox import Relisted, Snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.model import KubeObject

MANY = 600


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide maps of eight entries."""
    monkeypatch.setattr(split_dict, "LARGE", 8)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with running(rig.run()):
        await settle()
        yield rig


def states(version: int, count: int = MANY) -> list[KubeObject]:
    """Make objects of a version, half of them on each of two nodes."""
    return [
        thing(f"p{number}", version, spec={"nodeName": f"node-{number % 2}"})
        for number in range(count)
    ]


def states_by_node(rig: Rig) -> list[tuple[str, str]]:
    """Return names and versions of all objects, as the index by node has them."""
    found = [*rig.indexer.by_index("node", "node-0")]
    found += rig.indexer.by_index("node", "node-1")
    return sorted((it.name, it.resource_version) for it in found)


def wanted(version: int) -> list[tuple[str, str]]:
    return sorted((f"p{number}", str(version)) for number in range(MANY))


def assert_divided(rig: Rig) -> None:
    contents = memory_of(rig.indexer)
    index = contents.indexes["node"]
    assert type(contents.objects) is SplitDict
    assert type(index._values) is SplitDict
    assert {type(bucket) for bucket in index.buckets.values()} == {SplitDict}


async def test_lists_and_changes_of_a_large_store_are_applied(rig: Rig) -> None:
    view = View()
    rig.processor.listen(view)
    await rig.relist(*states(1), version=1)
    await rig.applied()
    assert_divided(rig)
    assert len(rig.indexer) == MANY
    assert states_by_node(rig) == wanted(1)

    unchanged = rig.indexer.get_by_key("default/p0")
    await rig.relist(*states(1)[:1], *states(2)[1:], version=2)
    await rig.applied()
    assert_divided(rig)
    assert rig.indexer.get_by_key("default/p0") is unchanged

    await rig.change(update(states(3)[0]), delete(states(3)[1]), version=3)
    await rig.change(add(thing("new", 4, spec={"nodeName": "node-1"})), version=4)
    await rig.applied()
    assert len(rig.indexer) == MANY
    expected = dict(wanted(2)) | {"p0": "3", "new": "4"}
    del expected["p1"]
    assert states_by_node(rig) == sorted(expected.items())
    stored = {obj.key: obj.resource_version for obj in rig.indexer.list()}
    assert view.broken == []
    assert view.objects == stored

    await rig.relist(version=5)
    await rig.applied()
    assert rig.indexer.list() == []
    assert view.objects == {}


async def test_store_that_grows_by_changes_is_divided(rig: Rig) -> None:
    await rig.relist(version=1)
    for number, obj in enumerate(states(1), 2):
        await rig.change(add(obj), version=number)
        await settle()

    assert_divided(rig)
    assert states_by_node(rig) == wanted(1)


async def test_newer_one_of_repeated_objects_is_stored(rig: Rig) -> None:
    await rig.relist(*states(2), *states(3)[::2], *states(1), version=3)
    await rig.applied()

    assert_divided(rig)
    assert states_by_node(rig) == [
        (name, "2" if int(name[1:]) % 2 else "3") for name, _ in wanted(3)
    ]


async def test_late_indexes_are_divided(rig: Rig) -> None:
    await rig.relist(*states(1), version=1)
    await rig.applied()

    await rig.indexer.build_indexers({"late": lambda obj: [obj.name[-1], "all"]})

    buckets = memory_of(rig.indexer).indexes["late"].buckets
    assert type(buckets) is SplitDict
    assert type(buckets["all"]) is SplitDict
    assert len(rig.indexer.by_index("late", "all")) == MANY
    assert len(rig.indexer.by_index("late", "7")) == MANY / 10


async def test_transform_may_leave_many_objects_out() -> None:
    rig = Rig(lambda obj: obj if obj.name == "p0" else None)
    async with running(rig.run()):
        for version in (1, 2):
            await rig.relist(*states(version), version=version)
            await rig.applied()
            assert rig.holds == [f"p0@{version}"]
            assert rig.pipeline.known("default/p7") is not None


async def test_list_is_published_in_batches_that_are_freed_one_by_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a batch are freed in one step, and a batch is one entry."""
    batches: list[Batch] = []
    listener = rig.processor.listeners[0]
    put = listener.put

    def noted(batch: Batch, now: float, arrived: float | None = None) -> None:
        batches.append(batch)
        put(batch, now, arrived)

    monkeypatch.setattr(listener, "put", noted)
    for version, kind in ((1, Snapshot), (2, Relisted)):
        batches.clear()
        await rig.relist(*states(version), version=version)
        await rig.applied()
        await asyncio.sleep(0.01)

        assert {type(batch) for batch in batches} == {kind}
        assert [len(batch) for batch in batches] == [256, 256, 88]
