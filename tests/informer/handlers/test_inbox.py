"""`CoalescingInbox`: queued events of one object become one notification."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fake_source import thing
from informer_helpers import Recorder, Slow, Stage, events, running, settle

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.handlers.inbox import (
    BURST,
    CROWDED,
    CoalescingInbox,
    Snapshot,
    merged,
)

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification

A1, A2, A3 = (thing("a", version) for version in (1, 2, 3))
OTHER = thing("a", 4, uid="another")


# ---------------------------------------------------------------- merged pairs


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        pytest.param(Added(A1), Updated(A1, A2), Added(A2), id="added-updated"),
        pytest.param(Added(A1, True), Updated(A1, A2), Added(A2, True), id="initial"),
        pytest.param(
            Updated(A1, A2), Updated(A2, A3), Updated(A1, A3), id="updated-updated"
        ),
        pytest.param(Updated(A1, A2), Deleted(A3), Deleted(A3), id="updated-deleted"),
        pytest.param(
            Updated(A1, A2), Deleted(A2, True), Deleted(A2, True), id="unseen-end"
        ),
        pytest.param(
            Updated(A1, A1, True), Updated(A1, A2), Updated(A1, A2), id="resync"
        ),
        pytest.param(
            Updated(A1, A2), Updated(A2, A2, True), Updated(A1, A2), id="resynced"
        ),
        pytest.param(Added(A1), Updated(A1, A1, True), Added(A1), id="added-resynced"),
        pytest.param(Updated(A1, A1, True), Deleted(A2), Deleted(A2), id="deleted"),
    ],
)
def test_two_events_of_one_object_are_merged(
    first: Notification, second: Notification, both: Notification
) -> None:
    assert merged(first, second) == both


@pytest.mark.parametrize("unseen", [False, True])
def test_addition_and_deletion_cancel_out(unseen: bool) -> None:
    assert (
        repr(merged(Added(A1), Deleted(A2, unseen))) == "<Nothing.NOTHING: 'nothing'>"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(Deleted(A1), Added(A2), id="deleted-added"),
        pytest.param(Deleted(A1), Added(OTHER), id="another-uid"),
        pytest.param(Added(A1), Updated(OTHER, OTHER), id="added-updated"),
        pytest.param(Updated(A1, A2), Deleted(OTHER), id="updated-deleted"),
        pytest.param(Added(A1), Deleted(OTHER), id="added-deleted"),
        pytest.param(Added(A1), Added(A2), id="added-added"),
    ],
)
def test_events_that_cannot_be_merged_are_kept(
    first: Notification, second: Notification
) -> None:
    assert merged(first, second) is None


# ---------------------------------------------------------------- while a handler is busy


class Busy:
    """A handler whose first call waits for an event."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.received: list[Notification] = []
        self.free = asyncio.Event()
        self.listener = self.stage.listen(self.handle, coalesce=True)

    async def handle(self, event: Notification) -> None:
        self.received.append(event)
        await self.free.wait()

    async def begin(self) -> None:
        self.stage.publish([Added(thing("first"))])
        await settle()
        assert len(self.received) == 1

    async def finish(self) -> list[Notification]:
        """Release the call; return the notifications queued during it."""
        self.free.set()
        await self.listener.wait_idle()
        return self.received[1:]


async def test_merged_event_keeps_the_place_of_the_first() -> None:
    busy = Busy()
    b1, b2, c1 = thing("b", 1), thing("b", 2), thing("c", 1)

    async with running(busy.stage.run()):
        await busy.begin()
        busy.stage.publish([Added(A1), Added(b1)])
        busy.stage.publish([Added(c1), Updated(A1, A2), Updated(b1, b2)])
        busy.stage.publish([Updated(A2, A3), Deleted(c1)])
        received = await busy.finish()

    assert received == [Added(A3), Added(b2)]


async def test_deletion_and_new_addition_keep_their_order() -> None:
    busy = Busy()
    third = thing("a", 5, uid="third")

    async with running(busy.stage.run()):
        await busy.begin()
        busy.stage.publish([Updated(A1, A2), Deleted(A2, True), Added(OTHER)])
        busy.stage.publish([Deleted(OTHER), Added(third)])
        received = await busy.finish()

    assert received == [Deleted(A2, True), Added(third)]


async def test_event_that_is_being_handled_is_not_merged() -> None:
    busy = Busy()

    async with running(busy.stage.run()):
        await busy.begin()
        first = thing("first")
        busy.stage.publish([Updated(first, thing("first", 2))])
        received = await busy.finish()

    assert received == [Updated(first, thing("first", 2))]


async def test_handler_that_keeps_up_gets_each_change() -> None:
    stage, received = Stage(), list[object]()
    stage.listen(received.append, coalesce=True)

    async with running(stage.run()):
        for event in (Added(A1), Updated(A1, A2), Deleted(A3)):
            stage.publish([event])
            await settle()

    assert received == [Added(A1), Updated(A1, A2), Deleted(A3)]


async def test_handlers_without_coalescing_get_every_event() -> None:
    busy, everything = Busy(), list[object]()
    busy.stage.listen(everything.append)

    async with running(busy.stage.run()):
        await busy.begin()
        changes: list[Notification] = [Added(A1), Updated(A1, A2), Updated(A2, A3)]
        busy.stage.publish(changes)
        await settle()

        assert everything[1:] == changes


# ---------------------------------------------------------------- bounds


async def test_queue_is_bounded_by_the_number_of_objects() -> None:
    busy = Busy()
    states = [thing("a", version) for version in range(200)]

    async with running(busy.stage.run()):
        await busy.begin()
        busy.stage.publish([Added(states[0])])
        deepest = 0
        for _ in range(50):
            for old, new in pairwise(states):
                busy.stage.publish([Updated(old, new)])
                deepest = max(deepest, busy.listener.depth)

            busy.stage.publish([Updated(states[-1], states[0])])
            await settle()

        received = await busy.finish()

    assert deepest < CROWDED + 200
    assert received == [Added(states[0])]


async def test_objects_that_come_and_go_leave_nothing_queued() -> None:
    inbox = CoalescingInbox()
    inbox.put([Added(A1)], 0.0)
    await inbox.merge()
    empty = sys.getsizeof(inbox._merged)
    for number in range(5000):
        one = thing(f"job-{number % 7}", number)
        inbox.put([Added(one), Deleted(one)], 0.0)
        if number % 100 == 0:
            await inbox.merge()

    await inbox.merge()

    assert inbox.depth == len(inbox._merged) == len(inbox._latest) == 1
    assert sys.getsizeof(inbox._merged) <= 4 * empty


async def test_replaced_state_is_released_while_the_handler_is_busy() -> None:
    busy = Busy()

    async with running(busy.stage.run()):
        await busy.begin()
        replaced = thing("a", 2)  # without another reference
        before = sys.getrefcount(replaced)
        busy.stage.publish([Added(A1)])
        for _ in range(CROWDED):
            busy.stage.publish([Updated(A1, replaced), Updated(replaced, A1)])

        await settle()
        held = sys.getrefcount(replaced) - before

    assert held == 0


# ---------------------------------------------------------------- state


async def test_depth_counts_the_events_to_deliver() -> None:
    busy = Busy()

    async with running(busy.stage.run()):
        await busy.begin()
        busy.stage.publish([Added(A1), Updated(A1, A2), Updated(A2, A3)])
        as_it_came = busy.listener.depth
        await busy.listener.merge()
        merged_depth = busy.listener.depth
        busy.stage.publish([Deleted(A3)])
        await busy.listener.merge()
        depths = [as_it_came, merged_depth, busy.listener.depth]

    assert depths == [4, 2, 1]


async def test_age_is_that_of_the_first_merged_event() -> None:
    busy = Busy()
    now = asyncio.get_running_loop().time

    async with running(busy.stage.run()):
        await busy.begin()
        await asyncio.sleep(3)
        busy.stage.publish([Added(A1)])
        await asyncio.sleep(4)
        busy.stage.publish([Updated(A1, A2)])
        ages = [busy.listener.age(now())]
        busy.free.set()
        busy.free = asyncio.Event()
        await settle()
        ages.append(busy.listener.age(now()))

    assert busy.received[1:] == [Added(A2)]
    assert ages == pytest.approx([7, 4])


async def test_age_includes_events_not_merged_yet() -> None:
    inbox = CoalescingInbox()
    inbox.put(events("a", "b"), 5.0)
    inbox.put(events("c"), 6.0)

    assert inbox.oldest == 5.0


async def test_handler_is_synced_when_the_merged_initial_state_was_delivered() -> None:
    stage, slow = Stage(), Slow()
    listener = stage.listen(slow, coalesce=True)

    async with running(stage.run()):
        stage.publish(Snapshot([thing("a", 1), thing("b", 1)]))
        stage.mark_synced()
        await asyncio.sleep(0.5)
        for version in range(1, 20):
            stage.publish([Updated(thing("b", version), thing("b", version + 1))])

        stage.publish(events("c"))
        states = [listener.synced]
        await asyncio.sleep(1)  # a is delivered, b is being handled
        states.append(listener.synced)
        await listener.wait_synced()

        assert slow.record == ["a", "b"]

    assert states == [False, False]


async def test_waiters_wake_up_when_all_events_cancelled_out() -> None:
    busy = Busy()

    async with running(busy.stage.run()):
        await busy.begin()
        busy.stage.publish([Added(A1)])
        busy.listener.mark_synced()
        busy.stage.publish([Deleted(A1)])
        busy.free.set()
        await busy.listener.wait_synced()
        await busy.listener.wait_idle()

    assert len(busy.received) == 1


async def test_waiters_wake_up_although_events_keep_arriving() -> None:
    stage = Stage()
    listener = stage.listen(Recorder(), coalesce=True)
    number = 0

    def more(_: Notification) -> None:
        nonlocal number
        number += 1
        stage.publish(events(f"more-{number}"))

    stage.listen(more)
    async with running(stage.run()):
        stage.publish(Snapshot([thing(f"pod-{it}") for it in range(2 * BURST)]))
        stage.mark_synced()
        await listener.wait_synced()


# ---------------------------------------------------------------- slices, removal


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every notification wait for a slice of its own."""
    monkeypatch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)


async def test_many_events_are_merged_in_slices(tiny_slices: None) -> None:
    inbox = CoalescingInbox()
    inbox.put(events("a", "b", "c"), 0.0)
    merging = asyncio.create_task(inbox.merge())
    sizes = set()
    while not merging.done():
        await asyncio.sleep(0)
        sizes.add(len(inbox._merged))

    assert sizes >= {1, 2, 3}


async def test_two_concurrent_merges_lose_no_event(tiny_slices: None) -> None:
    inbox = CoalescingInbox()
    inbox.put(events("a", "b", "c", "d"), 0.0)
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.merge())
        group.create_task(inbox.merge())

    assert [name.obj for name in inbox._burst()] == [thing(it) for it in "abcd"]  # type: ignore[union-attr]


async def test_cancelled_merge_loses_no_event(
    tiny_slices: None,
) -> None:
    for turns in range(12):
        inbox = CoalescingInbox()
        inbox.put(events("a", "b", "c"), 0.0)
        task = asyncio.create_task(inbox.merge())
        for _ in range(turns):
            await asyncio.sleep(0)

        task.cancel()
        await asyncio.wait({task})
        taken = list(await inbox.take())

        assert [it.obj.name for it in taken if isinstance(it, Added)] == [*"abc"]


@pytest.mark.parametrize("turns", range(12))
async def test_handler_removed_during_a_merge_gets_no_further_event(
    turns: int, tiny_slices: None
) -> None:
    stage, record = Stage(), Recorder()
    listener = stage.listen(record, coalesce=True)

    async with running(stage.run()):
        await settle()
        stage.publish(events(*"abcdefgh"))
        for _ in range(turns):
            await asyncio.sleep(0)

        received = list(record.record)
        stage.remove(listener)
        await listener.wait_ended()

    assert record.record == received
    assert listener.depth == 0


async def test_removed_busy_handler_keeps_no_object() -> None:
    busy = Busy()

    async with running(busy.stage.run()):
        await busy.begin()
        waiting = thing("a", 1)  # without another reference
        before = sys.getrefcount(waiting)
        busy.stage.publish([Added(waiting)])
        await busy.listener.merge()
        busy.stage.publish([Added(OTHER)])
        busy.stage.remove(busy.listener)
        await settle()

        assert sys.getrefcount(waiting) == before
        assert not busy.listener.ended

        busy.free.set()
        await busy.listener.wait_ended()

    assert len(busy.received) == 1
