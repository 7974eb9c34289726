"""`Pipeline`: continuing a store that has a complete list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from informer_helpers import running, settle
from pipeline_helpers import Rig, add, delete, update

from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

A5, A8, A9 = (thing("a", version, "uid-a") for version in (5, 8, 9))
B6 = thing("b", 6, "uid-b")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Run a pipeline over a store that another pipeline has filled, at version 7."""
    before = Rig()
    async with running(before.run()):
        await before.relist(A5, B6, version=7)
        await before.applied()

    made = Rig()
    made.indexer.swap(before.indexer.contents, "7")
    made.pipeline.resume("7")
    async with running(made.run()):
        yield made


async def test_resumed_store_is_known_but_not_synced(rig: Rig) -> None:
    await settle()

    assert rig.pipeline.known("default/a") == A5
    assert rig.pipeline.version == "7"
    assert not rig.pipeline.synced
    assert rig.holds == ["a@5", "b@6"]
    assert rig.take() == []


async def test_confirmed_store_without_changes_is_synced_at_once(rig: Rig) -> None:
    rig.pipeline.confirm()

    assert rig.pipeline.synced
    assert rig.holds == ["a@5", "b@6"]


async def test_confirmed_store_is_synced_once_earlier_changes_are_applied(
    rig: Rig,
) -> None:
    synced_at: list[list[str]] = []
    rig.pipeline._on_synced = lambda: synced_at.append(rig.holds)
    await rig.change(add(thing("c", 8)), version=8)
    rig.pipeline.confirm()
    assert not rig.pipeline.synced

    await rig.applied()

    assert synced_at == [["a@5", "b@6", "c@8"]]
    assert rig.pipeline.synced


async def test_changes_of_a_resumed_store_refer_to_its_objects(rig: Rig) -> None:
    await rig.change(update(A8), delete(B6), version=9)
    await rig.applied()

    assert rig.take() == [Updated(A5, A8), Deleted(B6, False)]
    assert rig.indexer.resource_version == "9"
    assert not rig.pipeline.synced


async def test_list_of_a_resumed_store_is_compared_and_confirms_it(rig: Rig) -> None:
    await rig.relist(A8, thing("c", 8), version=9)
    await rig.applied()

    events = rig.take()
    assert {type(event) for event in events} == {Added, Deleted, Updated}
    assert Deleted(B6, True) in events
    assert rig.pipeline.synced


async def test_late_confirmation_after_a_list_changes_nothing(rig: Rig) -> None:
    await rig.relist(A8, version=9)
    await rig.applied()
    calls: list[str] = []
    rig.pipeline._on_synced = lambda: calls.append("synced")

    rig.pipeline.confirm()
    await rig.change(update(A9), version=10)
    await rig.applied()

    assert calls == []


async def test_absent_resource_empties_a_resumed_store(rig: Rig) -> None:
    await rig.pipeline.clear()
    await rig.applied()

    assert rig.take() == [Deleted(A5, True), Deleted(B6, True)]
    assert (rig.holds, rig.indexer.resource_version) == ([], "7")


async def test_resumed_watch_may_repeat_what_the_stored_list_was_ahead_with() -> None:
    """The list was newer than its version, and its process ended before the watch."""
    before = Rig()
    async with running(before.run()):
        await before.relist(A9, version=5)
        await before.applied()

    rig = Rig()
    rig.indexer.swap(before.indexer.contents, "5")
    rig.pipeline.resume("5")
    async with running(rig.run()):
        await rig.change(update(A8), version=8)
        await rig.change(update(A9), version=9)
        await rig.applied()
        assert (rig.take(), rig.holds) == ([], ["a@9"])

        await rig.change(update(thing("a", 11, "uid-a")), version=11)
        await rig.applied()
        assert rig.holds == ["a@11"]
        assert rig.pipeline.duplicates == 2


async def test_resumed_watch_may_repeat_a_life_that_the_store_was_ahead_with() -> None:
    """Changes are stored before their version: a process may end in between."""
    rig = Rig()
    rig.indexer.replace([], "5")
    rig.pipeline.resume("5", {"default/b": 7})
    again = thing("b", 9, "another-uid")
    async with running(rig.run()):
        await rig.change(add(B6), version=6)
        await rig.change(update(thing("b", 7, "uid-b")), delete(B6), version=7)
        await rig.applied()
        assert (rig.take(), rig.holds) == ([], [])

        await rig.change(add(again), version=9)
        await rig.applied()
        assert rig.take() == [Added(again)]

    assert rig.pipeline.duplicates == 3


async def test_list_ends_the_repetitions_of_deleted_objects() -> None:
    rig = Rig()
    rig.indexer.replace([], "5")
    rig.pipeline.resume("5", {"default/b": 7})
    async with running(rig.run()):
        await rig.relist(A9, version=3)
        await rig.change(add(B6), version=6)
        await rig.applied()

    assert rig.holds == ["a@9", "b@6"]


async def test_bookmark_ends_the_repetitions_of_a_resumed_watch(rig: Rig) -> None:
    """Later, an older state is news: see `test_pipeline_ahead.py`."""
    await rig.change(version=8)
    await rig.change(update(thing("a", 3, "uid-a")), version=9)
    await rig.applied()

    assert rig.holds == ["a@3", "b@6"]
