"""`Listener`: waits for its sync and idleness, and its removal."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import (
    Recorder,
    Slow,
    Stage,
    events,
    name_of,
    running,
    settle,
)

from aioinformer.errors import InformerStopped

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification


@pytest.fixture
def processor() -> Stage:
    return Stage()


# ---------------------------------------------------------------- synced, idle


async def test_handler_is_synced_when_its_initial_events_are_delivered(
    processor: Stage, looptime: float
) -> None:
    listener = processor.listen(Slow())
    states = [listener.synced]

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        processor.mark_synced()
        processor.publish(events("c", "d"))
        processor.mark_synced()  # only the first call counts
        states.append(listener.synced)
        await listener.wait_synced()
        states.append(listener.synced)

    assert states == [False, False, True]
    assert looptime == 2
    assert listener.synced, "permanently"


async def test_handler_without_events_is_synced_at_once(processor: Stage) -> None:
    listener = processor.listen(Recorder())
    waiter = asyncio.create_task(listener.wait_synced())
    await settle()

    processor.mark_synced()

    await waiter


@pytest.mark.parametrize("how", ["removed", "ended"])
async def test_wait_synced_raises_when_the_handler_ends(
    processor: Stage, how: str
) -> None:
    listener = processor.listen(Slow(1000))
    processor.publish(events("a"))

    async with running(processor.run()) as task:
        waiter = asyncio.create_task(listener.wait_synced())
        await settle()
        if how == "removed":
            processor.remove(listener)
        else:
            task.cancel()

        with pytest.raises(InformerStopped, match="handler pods/greet has ended"):
            await waiter

    with pytest.raises(InformerStopped):
        await listener.wait_synced()


async def test_wait_idle_ends_with_the_handler(processor: Stage) -> None:
    listener = processor.listen(Slow(1000))
    processor.publish(events("a", "b"))

    async with running(processor.run()):
        await settle()

    with pytest.raises(InformerStopped):
        await listener.wait_idle()


async def test_removed_handler_has_no_queued_events(processor: Stage) -> None:
    listener = processor.listen(Slow(1000))
    processor.publish(events("a", "b"))

    async with running(processor.run()):
        waiter = asyncio.create_task(listener.wait_idle())
        await settle()
        processor.remove(listener)
        await waiter
        processor.publish(events("c"))
        listener.put(events("d"), 0.0)

        assert (listener.depth, listener.age(99.0)) == (0, 0.0)


async def test_drained_waits_for_all_running_handlers(
    processor: Stage, looptime: float
) -> None:
    slow = Slow(3)
    stuck = Slow(1000)
    processor.listen(slow)
    removed = processor.listen(stuck)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        asyncio.get_running_loop().call_later(1, processor.remove, removed)
        await processor.drained()

    assert slow.record == ["a", "b"]
    assert looptime == 6


async def test_drained_does_not_wait_for_ended_handlers(processor: Stage) -> None:
    processor.listen(Slow(1000))
    processor.publish(events("a"))
    async with running(processor.run()):
        await settle()

    await processor.drained()


# ---------------------------------------------------------------- removal


async def test_handler_can_remove_itself(processor: Stage) -> None:
    record = []

    def handler(event: Notification) -> None:
        record.append((name_of(event), listener.in_own_task()))
        processor.remove(listener)

    listener = processor.listen(handler)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        processor.publish(events("c"))
        await listener.wait_ended()

    assert record == [("a", True)]
    assert not listener.in_own_task()


async def test_running_call_finishes_when_its_handler_is_removed(
    processor: Stage, looptime: float
) -> None:
    handler = Slow(5)
    listener = processor.listen(handler)

    async with running(processor.run()):
        processor.publish(events("a", "b"))
        await asyncio.sleep(1)
        processor.remove(listener)
        processor.remove(listener)
        ended = listener.ended
        await listener.wait_ended()

    assert not ended
    assert handler.record == ["a"]
    assert looptime == 5


async def test_removal_releases_queued_events(processor: Stage) -> None:
    class Batch(list[Any]):
        """A list that supports weak references."""

    listener = processor.listen(Slow(5))

    async with running(processor.run()):
        processor.publish(events("a"))
        await settle()
        batch = Batch(events("b"))
        processor.publish(batch)
        kept = weakref.ref(batch)
        del batch
        assert kept() is not None
        processor.remove(listener)

        assert kept() is None


async def test_idle_handler_ends_when_it_is_removed(
    processor: Stage,
) -> None:
    listener = processor.listen(Recorder())

    async with running(processor.run()):
        await settle()
        processor.remove(listener)
        await listener.wait_ended()

        assert processor.listeners == ()


async def test_handler_that_never_ran_ends_when_it_is_removed(
    processor: Stage,
) -> None:
    listener = processor.listen(Recorder())

    processor.remove(listener)

    await listener.wait_ended()


async def test_handler_removed_before_its_first_turn_ends(
    processor: Stage,
) -> None:
    async with running(processor.run()) as task:
        await settle()
        task.cancel()
        listener = processor.listen(
            Recorder()
        )  # its task is cancelled before it begins
        processor.remove(listener)

    await listener.wait_ended()
