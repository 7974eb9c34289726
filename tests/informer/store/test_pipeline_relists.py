"""`Pipeline`: relists after a history reset, unreadable items, and removed resources."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest
from contents_helpers import KINDS, opened
from fake_source import states_of, thing
from informer_helpers import running
from pipeline_helpers import Rig, add, update

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aioinformer.cache.disk.environment import Environment


@pytest.fixture(params=KINDS)
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment | None]:
    env = opened(request.param, tmp_path)
    yield env
    if env is not None:
        env.close()


@pytest.fixture
async def rig(env: Environment | None) -> AsyncIterator[Rig]:
    made = Rig(env=env)
    async with running(made.run()):
        yield made


def state(name: str, version: int, phase: str) -> KubeObject:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
    }
    return KubeObject.of({"metadata": metadata, "status": {"phase": phase}})


async def test_list_after_a_history_reset_replaces_equal_versions(rig: Rig) -> None:
    """A restored server uses the same versions again for other states."""
    old, same = state("a", 105, "Old"), state("b", 7, "Same")
    await rig.relist(old, same, version=105)
    await rig.applied()
    rig.take()

    new = state("a", 105, "New")
    await rig.pipeline.stage([new, state("b", 7, "Same")], after_reset=True)
    await rig.pipeline.commit("105")
    await rig.applied()

    assert rig.take() == [Updated(old, new)]
    assert rig.has(new)
    assert rig.has(same)


async def test_ordinary_relist_keeps_objects_of_equal_version(rig: Rig) -> None:
    old = state("a", 105, "Old")
    await rig.relist(old, version=105)
    await rig.applied()
    await rig.relist(state("a", 105, "New"), version=106)
    await rig.applied()

    assert rig.has(old)


async def test_unreadable_item_keeps_its_known_state(rig: Rig) -> None:
    a, b = thing("a"), thing("b")
    await rig.relist(a, b, version=5)
    await rig.applied()
    rig.take()

    await rig.pipeline.stage([b])
    await rig.pipeline.stage_unreadable([a.key, "default/never-seen"])
    await rig.pipeline.commit("9")
    await rig.applied()

    assert rig.take() == []
    assert rig.has(a)
    assert len(rig.indexer) == 2


@pytest.mark.parametrize("first", [True, False], ids=["first-list", "relist"])
@pytest.mark.parametrize(
    ("versions", "kept"),
    [
        pytest.param((9, 8), 9, id="older-last"),
        pytest.param((8, 9), 9, id="newer-last"),
        pytest.param((10, 9), 10, id="more-digits"),
        pytest.param(("x", 8), 8, id="not-comparable"),
        pytest.param((9, "x"), "x", id="not-comparable-last"),
    ],
)
async def test_list_with_two_states_of_an_object_keeps_the_newer_one(
    rig: Rig, versions: tuple[int | str, int | str], kept: int | str, first: bool
) -> None:
    if not first:
        await rig.relist(thing("a", 5), version=5)

    one, other = (thing("a", version) for version in versions)
    await rig.relist(one, thing("b"), other, thing("c"), version=12)
    await rig.applied()

    stored = rig.indexer.get_by_key("default/a")
    assert stored is not None
    assert stored.resource_version == str(kept)
    assert len(rig.indexer) == 3


async def test_older_state_does_not_follow_one_that_the_transform_left_out() -> None:
    rig = Rig(transform=lambda obj: None if obj.resource_version == "9" else obj)
    async with running(rig.run()):
        await rig.relist(thing("a", 9), thing("b"), thing("a", 8), version=12)
        await rig.applied()

        assert rig.indexer.list_keys() == ["default/b"]


async def test_unreadable_item_does_not_follow_a_newer_state_of_the_list(
    rig: Rig,
) -> None:
    await rig.relist(thing("a", 5), version=5)
    await rig.pipeline.stage([thing("a", 9)])
    await rig.pipeline.stage_unreadable(["default/a"])
    await rig.pipeline.commit("12")
    await rig.applied()

    stored = rig.indexer.get_by_key("default/a")
    assert stored is not None
    assert stored.resource_version == "9"


# ---------------------------------------------------------------- streams


async def test_object_deleted_during_a_streaming_list_is_not_stored(rig: Rig) -> None:
    a, b, c = thing("a"), thing("b"), thing("c")
    await rig.relist(a, b, c, version=5)
    await rig.applied()
    rig.take()

    await rig.pipeline.stage([a, b])
    rig.pipeline.stage_deleted([a.key, b.key, "default/never-seen"])
    await rig.pipeline.stage([thing("b", 7), c])
    await rig.pipeline.commit("9")
    await rig.applied()

    assert rig.take() == [Deleted(a, True), Updated(b, thing("b", 7))]
    assert rig.holds == ["b@7", "c@1"]
    assert states_of(rig.indexer.by_index("node", "node-1")) == ["b@7", "c@1"]


async def test_list_can_start_with_a_deletion(rig: Rig) -> None:
    rig.pipeline.stage_deleted(["default/a"])
    await rig.pipeline.commit("9")
    await rig.applied()

    assert (rig.holds, rig.pipeline.synced) == ([], True)


# ---------------------------------------------------------------- removed resources


async def test_clear_deletes_every_object(rig: Rig) -> None:
    a, b, c = thing("a"), thing("b"), thing("c", 7)
    await rig.relist(a, b, version=5)
    await rig.change(add(c), version=7)
    await rig.applied()
    rig.take()

    await rig.pipeline.stage([a])  # an unfinished list
    await rig.pipeline.clear()
    known = [rig.pipeline.known(obj.key) for obj in (a, b, c)]
    await rig.applied()

    assert known == [None, None, None]
    assert rig.take() == [Deleted(a, True), Deleted(b, True), Deleted(c, True)]
    assert (rig.holds, rig.indexer.by_index("node", "node-1")) == ([], [])
    assert rig.pipeline.synced, "still synced"
    assert rig.indexer.resource_version == "7", "the version is kept"


async def test_resource_that_returns_is_listed_as_usual(rig: Rig) -> None:
    await rig.relist(thing("a"), version=5)
    await rig.pipeline.clear()
    await rig.applied()
    rig.take()

    await rig.relist(thing("a", 9), version=9)
    await rig.applied()

    assert rig.take() == [Added(thing("a", 9))]
    assert rig.indexer.resource_version == "9"


async def test_readers_see_clear_in_one_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.relist(*(thing(f"p{n}") for n in range(12)), version=5)
    await rig.applied()
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)

    clearing = asyncio.create_task(rig.pipeline.clear())
    seen = set()
    while len(rig.events) < 24:
        seen.add((len(rig.indexer), len(rig.indexer.by_index("node", "node-1"))))
        await asyncio.sleep(0)

    await clearing
    assert seen == {(12, 12), (0, 0)}


async def test_clear_before_the_first_list_does_nothing(rig: Rig) -> None:
    await rig.pipeline.stage([thing("a")])
    await rig.pipeline.clear()
    await rig.applied()
    synced_by_that = rig.pipeline.synced
    await rig.relist(thing("b"), version=5)
    await rig.applied()

    assert not synced_by_that
    assert rig.holds == ["b@1"]


# ---------------------------------------------------------------- repetitions, memory


async def test_repeated_change_is_not_delivered(
    rig: Rig,
) -> None:
    """The second page of a list can be newer than the version of the list."""
    listed = thing("a", 7)
    await rig.relist(listed, version=5)
    await rig.change(add(thing("a", 7)), update(thing("a", 8)), version=8)
    await rig.applied()

    assert [type(event) for event in rig.take()] == [Added, Updated]
    assert rig.pipeline.duplicates == 1


async def test_idle_handler_keeps_no_replaced_object(
    rig: Rig,
) -> None:
    class Marked(dict[str, str]):
        """A label set that supports weak references."""

    labels = Marked()
    first = thing("a", 1)
    marked = KubeObject(first.body, first.key, first.uid, "1", labels, first.context)
    removed = weakref.ref(labels)
    await rig.relist(marked, version=1)
    await rig.applied()
    await rig.relist(thing("a", 2), version=2)
    await rig.applied()

    rig.take()
    del marked, labels
    await asyncio.sleep(1)
    gc.collect()

    assert removed() is None
