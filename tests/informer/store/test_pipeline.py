"""`Pipeline`: effects of lists and changes on the store and on handlers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from contents_helpers import KINDS, opened
from fake_source import states_of, thing
from informer_helpers import running, settle
from namespace_helpers import slow_machine
from pipeline_helpers import Rig, add, delete, update

from aioinformer.cache import Delta
from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject


@pytest.fixture(params=KINDS)
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment | None]:
    env = opened(request.param, tmp_path)
    yield env
    if env is not None:
        env.close()


@pytest.fixture
async def rig(env: Environment | None) -> AsyncIterator[Rig]:
    rig = Rig(env=env)
    async with running(rig.run()):
        await settle()
        yield rig


# On disk, the order is that of the keys, and objects are compared by their stored form.
IN_MEMORY = pytest.mark.parametrize("env", ["memory"], indirect=True)

A1, A2 = thing("a", 1), thing("a", 2)
B1, B2 = thing("b", 1), thing("b", 2)
OTHER_A = thing("a", 9, "another-uid")

# ---------------------------------------------------------------- lists


@IN_MEMORY
async def test_first_list_is_delivered_as_initial_in_its_order(rig: Rig) -> None:
    before = rig.pipeline.synced
    await rig.relist(B1, A1, version=5)
    await rig.applied()

    assert not before
    assert rig.pipeline.synced
    assert rig.take() == [Added(B1, True), Added(A1, True)]
    assert (rig.holds, rig.indexer.resource_version) == (["b@1", "a@1"], "5")


async def test_empty_list_is_a_list(rig: Rig) -> None:
    await rig.pipeline.commit("5")
    await rig.applied()

    assert rig.pipeline.synced
    assert (rig.take(), rig.holds, rig.indexer.resource_version) == ([], [], "5")


@IN_MEMORY
async def test_relist_delivers_deletions_first_then_the_rest_in_list_order(
    rig: Rig,
) -> None:
    removed, also_gone, new = thing("g", 1), thing("h", 1), thing("n", 7)
    await rig.relist(removed, A1, also_gone, B1, version=5)
    await rig.applied()
    rig.take()

    await rig.relist(B2, new, A1, version=8)
    await rig.applied()

    assert rig.take() == [
        Deleted(removed, True),
        Deleted(also_gone, True),
        Updated(B1, B2),
        Added(new),
    ]
    assert rig.holds == ["b@2", "n@7", "a@1"]


@IN_MEMORY
async def test_another_uid_under_a_known_key_is_a_deletion_and_an_addition(
    rig: Rig,
) -> None:
    await rig.relist(A1, B1, version=5)
    await rig.applied()
    rig.take()

    await rig.relist(B2, OTHER_A, version=9)
    await rig.applied()

    assert rig.take() == [Deleted(A1, True), Updated(B1, B2), Added(OTHER_A)]


async def test_relist_keeps_unchanged_objects(rig: Rig) -> None:
    await rig.relist(A1, B1, version=5)
    await rig.applied()
    rig.take()

    await rig.relist(thing("a", 1), B2, version=8)
    await rig.applied()

    assert rig.has(A1)
    assert rig.has(B2)
    assert rig.take() == [Updated(B1, B2)]
    assert states_of(rig.indexer.by_index("node", "node-1")) == ["a@1", "b@2"]


@IN_MEMORY
async def test_objects_without_a_version_are_never_taken_for_unchanged(
    rig: Rig,
) -> None:
    before, after = thing("a", ""), thing("a", "")
    await rig.relist(before, version=5)
    await rig.applied()
    rig.take()

    await rig.relist(after, version=6)
    await rig.applied()

    assert rig.has(after)
    assert rig.take() == [Updated(before, after)]


async def test_list_with_an_object_twice_stores_its_newest_state(
    rig: Rig,
) -> None:
    await rig.relist(A1, version=5)
    await rig.applied()
    rig.take()

    moved = thing("a", 7, spec={"nodeName": "node-2"})
    newest = thing("a", 8, spec={"nodeName": "node-3"})
    await rig.relist(moved, newest, A1, version=8)
    await rig.applied()

    assert rig.holds == ["a@8"]
    assert rig.indexer.by_index("node", "node-1") == []
    assert rig.indexer.by_index("node", "node-2") == []
    assert states_of(rig.indexer.by_index("node", "node-3")) == ["a@8"]


async def test_discarded_list_leaves_no_trace(rig: Rig) -> None:
    await rig.pipeline.stage([A1])
    await rig.pipeline.discard()
    await rig.relist(B1, version=5)
    await rig.applied()

    assert rig.take() == [Added(B1, True)]


async def test_list_is_invisible_until_it_is_complete(rig: Rig) -> None:
    await rig.pipeline.stage([A1, B1])
    await settle()

    assert (rig.holds, rig.take(), rig.pipeline.synced) == ([], [], False)


async def test_changes_queued_before_the_list_do_not_undo_it(rig: Rig) -> None:
    await rig.relist(A1, B1, version=5)
    await rig.applied()
    rig.take()

    await rig.pipeline.stage([A1])
    await rig.change(update(A2), version=6)  # applied while the list arrives
    await rig.applied()
    await rig.pipeline.stage([B1])
    await rig.pipeline.commit("7")
    await rig.applied()

    # The list was requested later, so its state is taken.
    assert rig.take() == [Updated(A1, A2), Updated(A2, A1)]
    assert rig.holds == ["a@1", "b@1"]


async def test_update_contained_in_the_list_is_delivered_once(rig: Rig) -> None:
    await rig.relist(A1, version=5)
    await rig.applied()
    rig.take()

    await rig.pipeline.stage([A2])
    await rig.change(update(thing("a", 2)), version=6)
    await rig.applied()
    watched = rig.take()
    await rig.pipeline.commit("6")
    await rig.applied()

    assert watched == [Updated(A1, A2)]
    assert rig.take() == []


# ---------------------------------------------------------------- changes


@pytest.mark.parametrize(
    ("change", "events", "holds"),
    [
        pytest.param(add(B1), [Added(B1)], ["a@1", "b@1"], id="added"),
        pytest.param(update(A2), [Updated(A1, A2)], ["a@2"], id="updated"),
        pytest.param(add(A2), [Updated(A1, A2)], ["a@2"], id="added-but-known"),
        pytest.param(update(B2), [Added(B2)], ["a@1", "b@2"], id="updated-but-new"),
        pytest.param(delete(A2), [Deleted(A2)], [], id="deleted"),
        pytest.param(delete(B2), [], ["a@1"], id="deleted-but-unknown"),
        pytest.param(
            delete(OTHER_A), [Deleted(A1, True)], [], id="another-uid-was-deleted"
        ),
        pytest.param(
            add(OTHER_A), [Deleted(A1, True), Added(OTHER_A)], ["a@9"], id="another-uid"
        ),
    ],
)
async def test_change_is_applied_and_delivered(
    rig: Rig, change: Delta[KubeObject], events: list[Notification], holds: list[str]
) -> None:
    await rig.relist(A1, version=5)
    await rig.applied()
    rig.take()

    await rig.change(Delta(change.type, change.object), version=9)
    await rig.applied()

    assert rig.take() == events
    assert (rig.holds, rig.indexer.resource_version) == (holds, "9")


async def test_changes_of_one_object_are_delivered_one_by_one(rig: Rig) -> None:
    await rig.relist(version=5)
    await rig.change(add(A1), add(B1), update(A2), delete(thing("a", 3)), version=9)
    await rig.applied()

    events = [event for event in rig.take() if event != Added(B1)]
    assert events == [Added(A1), Updated(A1, A2), Deleted(thing("a", 3))]
    assert rig.holds == ["b@1"]


async def test_handler_finds_the_delivered_state_in_the_store(rig: Rig) -> None:
    found: list[bool] = []

    def check(event: Notification) -> None:
        match event:
            case Added(obj=obj) | Updated(new=obj):
                found.append(rig.has(obj))
            case Deleted(obj=obj):
                found.append(rig.indexer.get(obj) is None)

    rig.processor.listen(check)
    await rig.relist(A1, version=5)
    await rig.applied()
    await rig.change(update(A2), add(B1), version=6)
    await rig.applied()
    await rig.change(delete(thing("a", 7)), update(B2), version=8)
    await rig.applied()
    await rig.relist(A1, version=9)
    await rig.applied()

    assert found == [True] * 7


async def test_many_changes_are_applied_in_slices(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_machine(monkeypatch)
    await rig.relist(version=5)
    await rig.applied()
    steps = rig.steps

    await rig.change(*(add(thing(f"p{n}", n + 6)) for n in range(4000)), version=5000)
    versions = set()
    while rig.pipeline.waiting:
        versions.add(rig.indexer.resource_version)
        await asyncio.sleep(0)

    await rig.applied()
    assert versions == {"5"}, "the last change of a batch sets the version"
    assert rig.indexer.resource_version == "5000"
    assert len(rig.take()) == 4000
    assert rig.steps - steps > 2


# ---------------------------------------------------------------- versions


async def test_bookmark_advances_the_version_of_the_store(rig: Rig) -> None:
    await rig.relist(A1, version=5)
    await rig.applied()
    await rig.change(version=12)
    await rig.applied()

    assert rig.indexer.resource_version == "12"


async def test_bookmark_directly_after_a_list_is_not_lost(rig: Rig) -> None:
    await rig.relist(A1, version=5)
    await rig.change(version=12)
    await rig.applied()

    assert rig.indexer.resource_version == "12"


async def test_change_without_a_version_keeps_the_version_of_the_store(
    rig: Rig,
) -> None:
    await rig.relist(version=5)
    await rig.change(add(A1))
    await rig.applied()

    assert (rig.holds, rig.indexer.resource_version) == (["a@1"], "5")


async def test_changes_before_a_relist_are_delivered_first(rig: Rig) -> None:
    await rig.relist(A1, version=5)
    await rig.applied()
    rig.take()

    await rig.change(update(A2), version=6)
    await rig.relist(B1, version=7)
    await rig.change(update(B2), version=8)
    await rig.applied()

    assert rig.take() == [
        Updated(A1, A2),
        Deleted(A2, True),
        Added(B1),
        Updated(B1, B2),
    ]
    assert rig.indexer.resource_version == "8"


# ---------------------------------------------------------------- known states


async def test_known_returns_the_newest_applied_or_queued_state() -> None:
    rig = Rig()  # does not run yet, so everything stays queued
    key = "default/a"
    states = [rig.pipeline.known(key)]

    await rig.change(add(A1))
    states.append(rig.pipeline.known(key))
    await rig.relist(A2, version=5)
    states.append(rig.pipeline.known(key))
    await rig.change(delete(A2))
    states.append(rig.pipeline.known(key))
    await rig.change(add(OTHER_A))
    states.append(rig.pipeline.known(key))
    async with running(rig.run()):
        await rig.applied()
        states.append(rig.pipeline.known(key))
        await rig.relist(version=6)
        states.append(rig.pipeline.known(key))
        await rig.relist(A2, version=7)
        await rig.applied()
        states.append(rig.pipeline.known(key))

    assert states == [None, A1, A2, None, OTHER_A, OTHER_A, None, A2]


async def test_next_list_waits_until_the_queued_one_is_applied() -> None:
    """A store on disk has room for one list beside the stored objects."""
    rig = Rig()  # does not run yet
    await rig.relist(A1, version=5)
    second = asyncio.create_task(rig.relist(A2, version=6))
    await settle()
    before = (second.done(), rig.pipeline.known("default/a"))

    async with running(rig.run()):
        await second
        await rig.applied()

    assert before == (False, A1)
    assert rig.take() == [Added(A1, True), Updated(A1, A2)]


# ---------------------------------------------------------------- stop


async def test_stop_drops_queued_changes() -> None:
    rig = Rig()
    async with running(rig.processor.run()):
        async with running(rig.pipeline.run()):
            await rig.relist(A1, version=5)
            await rig.applied()
            rig.take()
            await rig.change(add(B1), version=9)

        await rig.applied()

    assert (rig.holds, rig.indexer.resource_version) == (["a@1"], "5")
    assert rig.take() == []
    assert rig.pipeline.known(B1.key) == B1, "still queued"
