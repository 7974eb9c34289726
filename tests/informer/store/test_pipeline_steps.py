"""`Pipeline`: readers see each list in one step, before it or after it."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest
from contents_helpers import opened
from fake_source import thing
from informer_helpers import Recorder, Stage, running, settle
from pipeline_helpers import Rig, View, add, update

from aioinformer.cache import Indexer
from aioinformer.errors import CacheError
from aioinformer.informer import Added, Updated
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from pathlib import Path

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.informer.handlers.inbox import Batch


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with running(rig.run()):
        await settle()
        yield rig


A1, A2 = thing("a", 1), thing("a", 2)
B1, B2 = thing("b", 1), thing("b", 2)
OTHER_A = thing("a", 9, "another-uid")

# ---------------------------------------------------------------- visible in one step


MANY = 12


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop turn several times after each object."""
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)


def state(version: int) -> list[KubeObject]:
    """Make objects of a version, on the node of that number."""
    node = {"nodeName": f"node-{version}"}
    return [thing(f"p{n}", version, spec=node) for n in range(MANY)]


@pytest.mark.usefixtures("tiny_slices")
async def test_readers_see_a_replacement_in_one_step(rig: Rig) -> None:
    await rig.relist(*state(1), version=1)
    await rig.applied()
    seen: set[tuple[Any, ...]] = set()

    arriving = asyncio.create_task(rig.relist(*state(2), version=2))
    while len(rig.events) < 2 * MANY:
        objects = rig.indexer.list()
        versions = tuple(sorted({obj.resource_version for obj in objects}))
        nodes = [len(rig.indexer.by_index("node", f"node-{n}")) for n in (1, 2)]
        seen.add((versions, *nodes, rig.indexer.resource_version))
        await asyncio.sleep(0)

    await arriving
    assert seen == {(("1",), MANY, 0, "1"), (("2",), 0, MANY, "2")}


@pytest.mark.usefixtures("tiny_slices")
@pytest.mark.parametrize("relist", [False, True], ids=["first-list", "relist"])
async def test_handler_added_at_any_turn_of_a_list_misses_nothing(
    *, relist: bool
) -> None:
    for turns in range(0, 240, 6):
        rig = Rig()
        async with running(rig.run()):
            await settle()
            if relist:
                await rig.relist(*state(1), version=1)
                await rig.applied()

            view = View()
            objects = state(2)[: MANY // 2]
            arriving = asyncio.create_task(rig.relist(*objects, version=2))
            for _ in range(turns):
                await asyncio.sleep(0)

            # An informer adds handlers like this.
            listener = rig.processor.listen(view)
            listener.put(Snapshot(rig.indexer.list()), 0.0)
            if rig.pipeline.synced:
                listener.mark_synced()

            await arriving
            await rig.change(update(thing("p0", 3)), version=3)
            await rig.applied()

        stored = {obj.key: obj.resource_version for obj in rig.indexer.list()}
        assert view.broken == [], turns
        assert view.objects == stored, turns
        assert listener.synced, turns


@pytest.mark.usefixtures("tiny_slices")
async def test_first_handler_added_during_a_list_after_a_reset_misses_nothing() -> None:
    for turns in range(0, 240, 6):
        rig = Rig()
        async with running(rig.run()):
            await rig.relist(*state(1), version=1)
            await rig.applied()
            for listener in rig.processor.listeners:
                rig.processor.remove(listener)

            await rig.pipeline.stage(state(2), after_reset=True)
            await rig.pipeline.commit("2", after_reset=True)
            for _ in range(turns):
                await asyncio.sleep(0)

            view = View()
            listener = rig.processor.listen(view)
            listener.put(Snapshot(rig.indexer.list()), 0.0)
            await rig.applied()

        assert view.broken == [], turns
        assert set(view.objects.values()) == {"2"}, turns


@pytest.mark.usefixtures("tiny_slices")
async def test_turns_of_the_test_above_cover_the_whole_list(rig: Rig) -> None:
    await rig.relist(*state(1), version=1)
    await rig.applied()
    received_before = len(rig.events)

    arriving = asyncio.create_task(rig.relist(*state(2)[: MANY // 2], version=2))
    turns = 0
    while len(rig.events) == received_before:
        turns += 1
        await asyncio.sleep(0)

    await arriving
    assert 40 < turns < 200


@pytest.mark.usefixtures("tiny_slices")
async def test_visible_list_is_delivered_even_if_the_pipeline_ends() -> None:
    rig = Rig()
    async with running(rig.processor.run()):
        async with running(rig.pipeline.run()):
            await rig.relist(*state(1), version=1)
            await rig.applied()
            rig.take()
            await rig.relist(*state(2), version=2)
            while rig.indexer.resource_version != "2":
                await asyncio.sleep(0)

        await rig.applied()

    assert len(rig.take()) == MANY


@pytest.mark.usefixtures("tiny_slices")
async def test_handler_removed_before_delivery_of_a_list_gets_nothing(
    rig: Rig,
) -> None:
    await rig.relist(*state(1), version=1)
    await rig.applied()
    recorder = Recorder()
    listener = rig.processor.listen(recorder)
    await rig.relist(*state(2), version=2)
    while rig.indexer.resource_version != "2":
        await asyncio.sleep(0)

    rig.processor.remove(listener)
    await rig.applied()

    assert recorder.record == []
    assert len(rig.events) == 2 * MANY


async def test_changes_before_the_first_list_are_not_initial(rig: Rig) -> None:
    """The changes may come from another reflector."""
    await rig.change(add(A1), version=3)
    await rig.applied()
    first = rig.take()

    await rig.relist(A2, B1, version=5)
    await rig.applied()

    assert first == [Added(A1)]
    assert rig.take() == [Updated(A1, A2), Added(B1, True)]
    assert rig.pipeline.synced


# ---------------------------------------------------------------- cancellation


@pytest.mark.usefixtures("tiny_slices")
async def test_list_cancelled_while_staging_can_be_discarded(rig: Rig) -> None:
    staging = asyncio.create_task(rig.pipeline.stage(state(1)))
    for _ in range(10):
        await asyncio.sleep(0)

    staging.cancel()
    await asyncio.wait({staging})
    await rig.pipeline.discard()

    await rig.relist(A1, version=5)
    await rig.applied()

    assert staging.cancelled()
    assert rig.holds == ["a@1"]


async def test_pipeline_works_without_step_callbacks() -> None:
    indexer: Indexer[KubeObject] = Indexer(key_func=lambda obj: obj.key)
    pipeline = Pipeline(indexer, Stage())

    async with running(pipeline.run()):
        await pipeline.commit("5")
        await settle()

    assert indexer.resource_version == "5"


# ---------------------------------------------------------------- memory


class Marked(dict[str, str]):
    """A label set that supports weak references."""


def marked() -> tuple[list[KubeObject], list[weakref.ref[Marked]]]:
    """Make objects, and references that end with them."""
    objects = [
        KubeObject(it.body, it.key, it.uid, "1", Marked(), it.context)
        for it in state(1)
    ]
    return objects, [weakref.ref(cast("Marked", it.label_set)) for it in objects]


async def relist_others(rig: Rig, objects: list[KubeObject]) -> None:
    await rig.relist(*objects, version=1)
    while not rig.pipeline.synced:
        await asyncio.sleep(0)

    objects.clear()
    await rig.relist(*state(2), version=2)


async def give_up(rig: Rig, objects: list[KubeObject]) -> None:
    await rig.pipeline.stage(objects)
    objects.clear()
    await rig.pipeline.discard()


@pytest.mark.usefixtures("tiny_slices")
@pytest.mark.parametrize("free", [relist_others, give_up])
async def test_objects_that_are_no_longer_needed_are_freed_in_slices(
    rig: Rig, free: Callable[[Rig, list[KubeObject]], Coroutine[Any, Any, None]]
) -> None:
    for listener in rig.processor.listeners:
        rig.processor.remove(listener)

    objects, references = marked()
    freeing = asyncio.create_task(free(rig, objects))
    alive = [MANY]
    while alive[-1]:
        alive.append(sum(reference() is not None for reference in references))
        await asyncio.sleep(0)

    await freeing
    assert set(alive) == {*range(MANY + 1)}, "one after another"


# ---------------------------------------------------------------- a store that fails


async def relist(rig: Rig) -> None:
    await rig.relist(A2, B1, version=8)


async def change(rig: Rig) -> None:
    await rig.change(update(A2), add(B1), version=8)


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    env = opened("disk", tmp_path)
    assert env is not None
    yield env
    env.close()


@pytest.mark.parametrize("write", [relist, change])
@pytest.mark.parametrize("resumed", [True, False])
async def test_step_that_fails_ends_the_pipeline_and_changes_nothing(
    env: Environment, write: Callable[[Rig], Awaitable[None]], resumed: bool
) -> None:
    rig = Rig(env=env)
    if resumed:
        rig.indexer.replace([A1], "5")
        rig.pipeline.resume("5")

    def fail(batch: Batch, arrived: float | None = None) -> None:
        raise CacheError("the disk is full")

    async def run() -> None:
        async with running(rig.run()):
            if not resumed:
                await rig.relist(A1, version=5)
                await rig.applied()

            rig.processor.publish = fail  # type: ignore[method-assign]
            await write(rig)
            await settle()

    with rig.waiters.for_key(B1.key) as waiter:
        with pytest.raises(ExceptionGroup) as caught:
            await run()

        assert not waiter.states

    assert caught.group_contains(CacheError, match="disk is full")
    assert rig.holds == ["a@1"]
    assert rig.indexer.resource_version == rig.pipeline.version == "5"
    assert rig.pipeline.synced is not resumed
