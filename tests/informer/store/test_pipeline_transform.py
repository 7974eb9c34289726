"""`Pipeline` with a transform: one call for each state, and left out objects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fake_source import states_of, thing
from informer_helpers import running
from pipeline_helpers import Rig, add, delete, update

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.listwatch.watch_events import to_changes
from aioinformer.model import KubeObject
from aioinformer.watch import EventType, WatchEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.informer.notifications import Notification


class Marking:
    """A transform that records and marks objects, and leaves out unwanted ones."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.unwanted: set[str] = set()

    def __call__(self, obj: KubeObject) -> KubeObject | None:
        assert "mark" not in obj, "transformed twice"
        state = f"{obj.name}@{obj.resource_version}"
        self.calls.append(state)
        if state in self.unwanted or obj.name in self.unwanted:
            return None

        return KubeObject.of(obj.to_dict() | {"mark": True})

    def take(self) -> list[str]:
        calls = list(self.calls)
        self.calls.clear()
        return calls


def marked(obj: KubeObject) -> KubeObject:
    return KubeObject.of(obj.to_dict() | {"mark": True})


@asynccontextmanager
async def a_rig(marking: Marking, *objects: KubeObject) -> AsyncIterator[Rig]:
    """Run a pipeline that has applied a first list of these objects."""
    rig = Rig(marking)
    async with running(rig.run()):
        await rig.relist(*objects, version=5)
        await rig.applied()
        rig.take()
        marking.take()
        yield rig


@pytest.fixture
def marking() -> Marking:
    return Marking()


A1, A2, A3 = thing("a", 1), thing("a", 2), thing("a", 3)
B1, B2 = thing("b", 1), thing("b", 2)
OTHER_A = thing("a", 9, "another-uid")

# ---------------------------------------------------------------- one call for each state


async def test_listed_object_is_transformed_once(marking: Marking) -> None:
    rig = Rig(marking)

    async with running(rig.run()):
        await rig.relist(A1, B1, version=5)
        await rig.applied()

    assert marking.calls == ["a@1", "b@1"]
    assert rig.take() == [Added(marked(A1), True), Added(marked(B1), True)]
    assert rig.indexer.list() == [marked(A1), marked(B1)]
    assert states_of(rig.indexer.by_index("node", "node-1")) == ["a@1", "b@1"]


async def test_unchanged_object_is_not_transformed_by_a_relist(
    marking: Marking,
) -> None:
    async with a_rig(marking, A1, B1) as rig:
        kept = rig.indexer.get_by_key("default/a")
        await rig.relist(thing("a", 1), B2, version=8)
        await rig.applied()

        assert marking.calls == ["b@2"]
        assert rig.take() == [Updated(marked(B1), marked(B2))]
        assert rig.indexer.get_by_key("default/a") is kept


async def test_watched_object_is_transformed_once(marking: Marking) -> None:
    async with a_rig(marking, A1) as rig:
        await rig.change(update(A2), add(B1), delete(thing("a", 3)), version=9)
        await rig.applied()

        assert marking.calls == ["a@2", "b@1", "a@3"]
        events = [event for event in rig.take() if event != Added(marked(B1))]
        assert events == [Updated(marked(A1), marked(A2)), Deleted(marked(A3))]
        assert rig.indexer.resource_version == "9"


async def test_repeated_change_is_not_transformed(marking: Marking) -> None:
    """The list of version 5 has an object of version 7, which the watch repeats."""
    async with a_rig(marking, thing("a", 7)) as rig:
        await rig.change(update(thing("a", 6)), add(B1), version=6)
        await rig.change(update(thing("a", 7)), version=7)
        await rig.applied()

        assert marking.calls == ["b@1"]
        assert rig.take() == [Added(marked(B1))]
        assert rig.pipeline.duplicates == 2


@pytest.mark.parametrize("unwanted", ["", "a@7"], ids=["stored", "left-out"])
async def test_repeated_state_of_an_unreadable_object_is_not_transformed(
    marking: Marking, unwanted: str
) -> None:
    """The list of version 6 does not tell that it is ahead: it cannot read the object."""
    marking.unwanted.add(unwanted)
    a7 = thing("a", 7)
    async with a_rig(marking, a7) as rig:
        await rig.pipeline.stage_unreadable([a7.key])
        await rig.pipeline.commit("6")
        await rig.change(update(a7), version=7)
        await rig.applied()

        assert marking.calls == []
        assert rig.take() == []
        assert rig.pipeline.duplicates == 1


async def test_streaming_list_is_transformed_once(marking: Marking) -> None:
    async with a_rig(marking, A1, B1) as rig:
        await rig.pipeline.stage([thing("a", 1), B2])
        await rig.pipeline.stage([A2])
        rig.pipeline.stage_deleted([B2.key, "default/never-seen"])
        await rig.pipeline.commit("9")
        await rig.applied()

        assert marking.calls == ["b@2", "a@2"]
        assert rig.take() == [
            Deleted(marked(B1), True),
            Updated(marked(A1), marked(A2)),
        ]


async def test_list_after_a_history_reset_is_transformed_and_keeps_equal_objects(
    marking: Marking,
) -> None:
    async with a_rig(marking, A1, B1) as rig:
        kept = rig.indexer.get_by_key("default/a")
        other = thing("b", 1, status={"phase": "Failed"})
        await rig.pipeline.stage([thing("a", 1), other], after_reset=True)
        await rig.pipeline.commit("5")
        await rig.applied()

        assert marking.calls == ["a@1", "b@1"]
        assert rig.take() == [Updated(marked(B1), marked(other))]
        assert rig.indexer.get_by_key("default/a") is kept


async def test_known_final_state_is_not_transformed(
    marking: Marking,
) -> None:
    """Some servers delete with the last version of the object."""
    async with a_rig(marking, A1) as rig:
        await rig.change(delete(thing("a", 1)), version=6)
        await rig.applied()

        assert marking.calls == []
        assert rig.take() == [Deleted(marked(A1))]


@pytest.mark.parametrize("deleted", [B1, OTHER_A], ids=["unknown", "another-uid"])
async def test_undelivered_final_state_is_not_transformed(
    marking: Marking, deleted: KubeObject
) -> None:
    async with a_rig(marking, A1) as rig:
        await rig.change(delete(deleted), version=10)
        await rig.applied()

        assert marking.calls == []
        expected: list[Notification] = [Deleted(marked(A1), True)]
        assert rig.take() == (expected if deleted is OTHER_A else [])
        assert rig.indexer.resource_version == "10"


async def test_many_objects_are_transformed_in_slices(
    marking: Marking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    rig = Rig(marking)  # does not run, so no other task takes turns
    many = [add(thing(f"p{n}", n + 1)) for n in range(10)]
    seen: list[int] = []

    arriving = asyncio.create_task(rig.change(*many, version=2000))
    while not arriving.done():
        seen.append(len(marking.calls))
        await asyncio.sleep(0)

    assert set(seen) >= set(range(1, 10)), "the loop turned after each object"
    assert rig.pipeline.waiting == 10


async def test_changes_cancelled_halfway_leave_no_trace(
    marking: Marking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
    marking.unwanted = {"a@2"}
    rig = Rig(marking)
    await rig.pipeline.stage([A1])
    await rig.pipeline.commit("5")
    marking.take()

    arriving = asyncio.create_task(rig.change(update(A2), add(B1), version=7))
    while not marking.calls:
        await asyncio.sleep(0)

    arriving.cancel()
    await asyncio.wait({arriving})

    assert arriving.cancelled()
    assert rig.pipeline.known("default/a") == marked(A1)
    assert rig.pipeline.known("default/b") is None


# ---------------------------------------------------------------- left out objects


async def test_left_out_object_is_missing_after_the_first_list(
    marking: Marking,
) -> None:
    marking.unwanted = {"a"}
    rig = Rig(marking)

    async with running(rig.run()):
        await rig.relist(A1, B1, version=5)
        await rig.applied()

        assert rig.take() == [Added(marked(B1), True)]
        assert rig.holds == ["b@1"]


async def test_change_to_a_left_out_state_deletes_the_previous_state(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@2"}
    async with a_rig(marking, A1) as rig:
        await rig.change(update(A2), version=6)
        await rig.applied()

        assert rig.take() == [Deleted(marked(A1), False)]
        assert (rig.holds, rig.indexer.resource_version) == ([], "6")


async def test_left_out_object_that_returns_is_added(marking: Marking) -> None:
    marking.unwanted = {"a@1", "a@2"}
    async with a_rig(marking, A1) as rig:
        await rig.change(update(A2), update(A3), version=7)
        await rig.applied()

        assert rig.take() == [Added(marked(A3))]
        assert rig.holds == ["a@3"]


async def test_additions_and_deletions_of_one_batch_keep_their_order(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@2"}
    async with a_rig(marking) as rig:
        await rig.change(
            add(A1), update(A2), update(A3), delete(thing("a", 4)), version=8
        )
        await rig.applied()

        assert marking.calls == ["a@1", "a@2", "a@3", "a@4"]
        assert rig.take() == [
            Added(marked(A1)),
            Deleted(marked(A1)),
            Added(marked(A3)),
            Deleted(marked(thing("a", 4))),
        ]


async def test_left_out_object_with_another_uid_deletes_the_previous_one(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@9"}
    async with a_rig(marking, A1) as rig:
        await rig.change(add(OTHER_A), version=9)
        await rig.applied()

        assert rig.take() == [Deleted(marked(A1), True)]
        assert rig.holds == []


async def test_left_out_final_state_is_delivered_as_the_previous_state(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@2"}
    async with a_rig(marking, A1) as rig:
        await rig.change(delete(A2), version=6)
        await rig.applied()

        assert marking.calls == ["a@2"]
        assert rig.take() == [Deleted(marked(A1), False)]
        assert rig.pipeline.known("default/a") is None


async def test_deletion_of_a_left_out_object_is_not_delivered(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@1"}
    async with a_rig(marking, A1) as rig:
        await rig.change(delete(A2), version=6)
        await rig.applied()

        assert (marking.calls, rig.take()) == ([], [])
        assert rig.pipeline.known("default/a") is None
        assert rig.indexer.resource_version == "6"


async def test_relist_does_not_transform_unchanged_left_out_objects(
    marking: Marking,
) -> None:
    marking.unwanted = {"a"}
    async with a_rig(marking, A1, B1) as rig:
        await rig.relist(thing("a", 1), thing("b", 1), version=6)
        await rig.relist(A2, thing("b", 1), version=7)
        await rig.applied()

        assert marking.calls == ["a@2"]
        assert (rig.take(), rig.holds) == ([], ["b@1"])


async def test_relist_that_leaves_out_a_known_object_deletes_it(
    marking: Marking,
) -> None:
    marking.unwanted = {"a@2"}
    async with a_rig(marking, A1, B1) as rig:
        await rig.relist(A2, thing("b", 1), version=6)
        await rig.applied()

        assert rig.take() == [Deleted(marked(A1), True)]
        assert rig.holds == ["b@1"]


async def test_last_state_of_a_key_in_a_list_counts(marking: Marking) -> None:
    marking.unwanted = {"a@2", "b@1"}
    async with a_rig(marking) as rig:
        await rig.relist(A1, B1, A2, B2, version=6)
        await rig.applied()

        assert rig.holds == ["b@2"]
        assert rig.indexer.by_index("node", "node-1") == [marked(B2)]


async def test_unreadable_left_out_object_stays_left_out(
    marking: Marking,
) -> None:
    marking.unwanted = {"a"}
    async with a_rig(marking, A1) as rig:
        await rig.pipeline.stage_unreadable([A1.key])
        await rig.pipeline.commit("6")
        await rig.relist(thing("a", 1), version=7)
        await rig.applied()

        assert (marking.calls, rig.take(), rig.holds) == ([], [], [])


async def test_left_out_object_is_known_by_uid_and_version(marking: Marking) -> None:
    """A watch needs both to recognise duplicates and deletions."""
    marking.unwanted = {"a", "b@2"}
    async with a_rig(marking, A1, B1) as rig:
        await rig.change(update(B2), version=6)
        queued = rig.pipeline.known("default/b")
        await rig.applied()

        for known, obj in (
            (rig.pipeline.known("default/a"), A1),
            (rig.pipeline.known("default/b"), B2),
            (queued, B2),
        ):
            assert known is not None
            assert (known.uid, known.resource_version) == (
                obj.uid,
                obj.resource_version,
            )

        repeated = WatchEvent(EventType.MODIFIED, thing("b", 2))
        assert to_changes([repeated], "6", rig.pipeline.known).duplicates == 1


async def test_discarded_list_leaves_out_nothing(marking: Marking) -> None:
    marking.unwanted = {"b"}
    async with a_rig(marking, A1) as rig:
        await rig.pipeline.stage([B1])
        await rig.pipeline.discard()

        assert rig.pipeline.known("default/b") is None


# ---------------------------------------------------------------- failures


async def test_object_is_stored_untransformed_when_the_transform_fails() -> None:
    def fail(obj: KubeObject) -> KubeObject:
        raise ValueError(obj.name)

    rig = Rig(fail)
    async with running(rig.run()):
        await rig.relist(A1, version=5)
        await rig.change(update(A2), add(B1), version=6)
        await rig.applied()

        assert [rig.indexer.get_by_key(obj.key) for obj in (A2, B1)] == [A2, B1]
        assert rig.indexer.get_by_key(A2.key) is A2

    assert [failure.subject for failure in rig.failures] == [A1, A2, B1]
    assert rig.transforming.failures == 3
