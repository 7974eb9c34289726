"""`Pipeline`: a list with objects newer than the version of the list.

The watch from that version repeats events that the listed states already contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from informer_helpers import running
from pipeline_helpers import Rig, add, delete, update

from aioinformer.informer import Added, Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer.cache import Delta
    from aioinformer.model import KubeObject

A7, A8, A9, A10 = (thing("a", version) for version in (7, 8, 9, 10))
OTHER_A6 = thing("a", 6, "an-earlier-one")
B6 = thing("b", 6)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Run a pipeline with a list of version 5, in which an object has version 9."""
    made = Rig()
    async with running(made.run()):
        await made.relist(A9, version=5)
        await made.applied()
        made.take()
        yield made


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(update(A7), id="changed"),
        pytest.param(add(A7), id="added"),
        pytest.param(delete(A8), id="ended-as-of-a-selector"),
        pytest.param(delete(OTHER_A6), id="another-one-ended"),
        pytest.param(add(OTHER_A6), id="another-one-added"),
    ],
)
async def test_states_older_than_the_listed_one_are_not_delivered(
    rig: Rig, change: Delta[KubeObject]
) -> None:
    await rig.change(change, version=8)
    await rig.applied()

    assert rig.take() == []
    assert (rig.holds, rig.indexer.resource_version) == (["a@9"], "8")
    assert rig.pipeline.duplicates == 1


async def test_states_from_the_listed_one_on_are_delivered(rig: Rig) -> None:
    await rig.change(update(A7), update(A8), update(A9), update(A10), version=10)
    await rig.applied()

    assert rig.take() == [Updated(A9, A10)]
    assert rig.pipeline.duplicates == 3


@pytest.mark.parametrize("order", [1, -1], ids=["lowest-first", "highest-first"])
async def test_versions_are_compared_up_to_the_highest_listed_one(order: int) -> None:
    """The highest version has more digits than the others."""
    rig = Rig()
    listed = [A9, thing("c", 10), thing("d", 8)]
    async with running(rig.run()):
        await rig.relist(*listed[::order], version=5)
        await rig.change(update(A7), version=7)
        await rig.change(update(thing("c", 9)), version=9)
        await rig.change(update(thing("c", 11)), version=11)
        await rig.applied()

        assert sorted(rig.holds) == ["a@9", "c@11", "d@8"]


async def test_object_missing_in_the_list_is_delivered(rig: Rig) -> None:
    await rig.change(add(B6), version=6)
    await rig.change(delete(thing("b", 7)), version=7)
    await rig.applied()

    assert rig.take() == [Added(B6), Deleted(thing("b", 7))]


async def test_older_states_of_a_left_out_object_are_not_delivered() -> None:
    requested: list[str] = []

    def only_below_9(obj: KubeObject) -> KubeObject | None:
        requested.append(obj.resource_version)
        return None if obj.resource_version == "9" else obj

    rig = Rig(only_below_9)
    async with running(rig.run()):
        await rig.relist(A9, version=5)
        await rig.change(update(A7), update(A8), update(A9), version=9)
        await rig.applied()

    assert rig.take() == []
    assert requested == ["9"]


@pytest.mark.parametrize(
    ("after", "version"),
    [
        pytest.param(lambda rig: rig.change(version=9), 9, id="watched"),
        pytest.param(lambda rig: rig.pipeline.clear(), 5, id="cleared"),
    ],
)
async def test_versions_are_not_compared_after_the_highest_listed_one(
    rig: Rig, after: Callable[[Rig], Awaitable[None]], version: int
) -> None:
    await after(rig)
    await rig.applied()
    rig.take()

    await rig.change(add(A7), version=version)
    await rig.applied()

    assert rig.holds == ["a@7"]


async def test_version_of_a_kept_unreadable_object_is_ignored_after_a_restore(
    rig: Rig,
) -> None:
    """The old state of an unreadable object is kept; its version means nothing now."""
    await rig.pipeline.stage([B6], after_reset=True)
    await rig.pipeline.stage_unreadable([A9.key])
    await rig.pipeline.commit("6")
    await rig.applied()
    rig.take()

    readable = thing("a", 8)
    await rig.change(update(readable), version=8)
    await rig.applied()

    assert rig.take() == [Updated(A9, readable)]


@pytest.mark.parametrize(
    ("state", "events"),
    [
        pytest.param(A9, [], id="the-known-state"),
        pytest.param(
            thing("a", 9, "", spec={"nodeName": "n"}),
            [Updated],
            id="of-another-history",
        ),
    ],
)
async def test_state_of_an_object_that_was_unreadable_in_the_list_is_delivered_if_new(
    rig: Rig, state: KubeObject, events: list[type]
) -> None:
    """Its version is not among those that tell how far the list is ahead."""
    await rig.pipeline.stage([B6])
    await rig.pipeline.stage_unreadable([A9.key])
    await rig.pipeline.commit("7")
    await rig.applied()
    rig.take()

    await rig.change(update(state), version=9)
    await rig.applied()

    assert [type(event) for event in rig.take()] == events
    assert rig.pipeline.duplicates == 1 - len(events)


@pytest.mark.parametrize("version", ["", "abc", "5x"])
async def test_nondecimal_versions_are_not_compared(version: str) -> None:
    rig = Rig()
    async with running(rig.run()):
        await rig.pipeline.stage([A9])
        await rig.pipeline.commit(version)
        await rig.change(update(A7))
        await rig.applied()

        assert rig.holds == ["a@7"]


@pytest.mark.parametrize("version", ["", "abc", "5x"])
async def test_repeated_state_after_a_list_of_nondecimal_version_is_not_delivered(
    version: str,
) -> None:
    rig = Rig()
    async with running(rig.run()):
        await rig.pipeline.stage([A9])
        await rig.pipeline.commit(version)
        await rig.applied()
        rig.take()

        await rig.change(update(A9), version=9)
        await rig.change(delete(A9), version=10)
        await rig.applied()

        assert rig.take() == [Deleted(A9)]
        assert rig.pipeline.duplicates == 1


async def test_state_without_a_decimal_version_is_delivered(rig: Rig) -> None:
    unversioned = thing("a", "x8")
    await rig.change(update(unversioned), version=6)
    await rig.applied()

    assert rig.take() == [Updated(A9, unversioned)]
