"""`WorkQueue.add_after()`: deadlines, order, timers and shutdown."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from queue_helpers import CountedTime, error_in_thread, settle, take_all

from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.workqueue import WorkQueue
from aioinformer.workqueue.delayed_items import READY_PER_TURN, STALE_ENTRIES_KEPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def timers() -> list[asyncio.TimerHandle]:
    """Return the pending timers of the running loop."""
    scheduled: list[asyncio.TimerHandle]
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled()]


async def arrivals(
    queue: WorkQueue[str], number: int
) -> AsyncIterator[tuple[str, float]]:
    """Take items, and return them with their times."""
    for _ in range(number):
        item = await queue.get()
        yield item, asyncio.get_running_loop().time()
        queue.done(item)


async def take(queue: WorkQueue[str], number: int) -> list[tuple[str, float]]:
    return [arrival async for arrival in arrivals(queue, number)]


# ---------------------------------------------------------------- when


@pytest.mark.parametrize("delay", [2, 2.0, timedelta(seconds=2)], ids=repr)
async def test_item_is_added_after_its_delay(delay: Any) -> None:
    queue = WorkQueue[str]()

    queue.add_after("a", delay)

    assert len(queue) == 0
    assert await take(queue, 1) == [("a", 2)]


@pytest.mark.parametrize("delay", [0, -1.5, timedelta(0)], ids=repr)
async def test_nonpositive_delay_adds_at_once(delay: Any) -> None:
    queue = WorkQueue[str]()

    queue.add_after("a", delay)

    assert queue.get_nowait() == "a"
    assert timers() == []


async def test_delayed_item_is_added_once() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 1)
    await take(queue, 1)

    await asyncio.sleep(100)

    assert len(queue) == 0


async def test_items_are_added_in_order_of_deadlines() -> None:
    queue = WorkQueue[str]()

    queue.add_after("c", 3)
    queue.add_after("a", 1)
    queue.add_after("b", 2)

    assert await take(queue, 3) == [("a", 1), ("b", 2), ("c", 3)]


async def test_items_of_equal_deadline_are_added_in_order_of_calls() -> None:
    queue = WorkQueue[str]()

    for item in "cab":
        queue.add_after(item, 1)

    assert await take(queue, 3) == [("c", 1), ("a", 1), ("b", 1)]


async def test_later_deadline_is_ignored() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 1)

    queue.add_after("a", 5)

    assert await take(queue, 1) == [("a", 1)]
    assert timers() == []


async def test_earlier_deadline_wins() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)

    queue.add_after("a", 1)

    assert await take(queue, 1) == [("a", 1)]
    assert timers() == []


async def test_item_can_be_delayed_again_to_former_deadline() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add_after("a", 1)
    queue.add_after("z", 9)
    await take(queue, 1)

    queue.add_after("a", 4)

    assert await take(queue, 2) == [("a", 5), ("z", 9)]


async def test_add_keeps_delayed_item() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 2)

    queue.add("a")

    assert await take(queue, 2) == [("a", 0), ("a", 2)]


async def test_item_due_while_in_work_waits_for_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)

    await asyncio.sleep(5)
    before = len(queue)
    queue.done("a")

    assert before == 0
    assert await take(queue, 1) == [("a", 5)]


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf])
async def test_invalid_delay_is_refused(delay: float) -> None:
    queue = WorkQueue[str]()

    with pytest.raises(OptionsError):
        queue.add_after("a", delay)

    assert repr(queue) == "<WorkQueue open queued=0 working=0 delayed=0>"


async def test_repr_shows_the_number_of_delayed_items() -> None:
    queue = WorkQueue[str]("pods")
    queue.add("a")
    queue.add_after("b", 1)
    queue.add_after("c", 1)
    queue.add_after("c", 0.5)

    assert repr(queue) == "<WorkQueue pods open queued=1 working=0 delayed=2>"
    queue.shut_down()


# ---------------------------------------------------------------- one timer


async def test_ten_thousand_delayed_items_need_one_timer() -> None:
    queue = WorkQueue[int]()

    for number in range(10_000):
        queue.add_after(number, 1 + (number * 7919) % 10_000)

    assert len(timers()) == 1
    queue.shut_down()


async def test_delay_costs_logarithm_of_number_of_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = WorkQueue[int]()
    number = 10_000
    with monkeypatch.context() as patched:
        now = CountedTime(asyncio.get_running_loop().time())
        patched.setattr(asyncio.get_running_loop(), "time", lambda: now)
        before = CountedTime.comparisons
        for item in range(number, 0, -1):  # each moves to the top of the heap
            queue.add_after(item, item)

        added = CountedTime.comparisons - before

    drain = queue.shut_down_with_drain(0)

    # Two comparisons of a pair, in the heap of the queue and in that of the loop.
    assert added < 5 * number * math.log2(number)
    assert len(await drain) == number


async def test_earlier_item_moves_timer_forward() -> None:
    queue = WorkQueue[str]()
    queue.add_after("late", 10)

    queue.add_after("early", 1)

    assert [timer.when() for timer in timers()] == [1]
    assert await take(queue, 2) == [("early", 1), ("late", 10)]


async def test_no_timer_is_left_without_delayed_items() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add_after("a", 1)

    await take(queue, 1)

    assert timers() == []
    assert not queue._delayed._heap


async def test_many_due_items_are_added_over_several_turns() -> None:
    queue = WorkQueue[int]()
    number = 2 * READY_PER_TURN + 1
    for item in range(number):
        queue.add_after(item, 1)

    longest_step, before = 0, 0
    while before < number:
        await (asyncio.sleep(1) if before == 0 else asyncio.sleep(0))
        longest_step = max(longest_step, len(queue) - before)
        before = len(queue)

    assert longest_step == READY_PER_TURN
    assert [queue.get_nowait() for _ in range(number)] == list(range(number))
    assert asyncio.get_running_loop().time() == 1


async def test_replaced_deadlines_do_not_accumulate() -> None:
    queue = WorkQueue[str]()
    others = {f"other-{number}": 20_000 + number for number in range(40)}
    for item, delay in others.items():
        queue.add_after(item, delay)

    for delay in range(10_000, 0, -1):
        queue.add_after("a", delay)

    assert len(queue._delayed._heap) <= len(others) + 1 + STALE_ENTRIES_KEPT + 1
    queue.shut_down()


async def test_rebuilding_heap_keeps_order() -> None:
    queue = WorkQueue[str]()
    others = {f"other-{number}": 20_000 + number for number in range(40)}
    for item, delay in others.items():
        queue.add_after(item, delay)

    # The last one exceeds the limit of stale entries.
    for delay in range(STALE_ENTRIES_KEPT + 2, 0, -1):
        queue.add_after("a", delay)

    assert len(queue._delayed._heap) == len(others) + 1
    assert await take(queue, 41) == [("a", 1), *others.items()]


async def test_stale_entries_of_added_items_are_dropped() -> None:
    queue = WorkQueue[str]()
    for number in range(STALE_ENTRIES_KEPT):
        queue.add_after(f"came-{number}", 1000)
        queue.add_after(f"came-{number}", 1)

    queue.add_after("b", 3000)
    await take(queue, STALE_ENTRIES_KEPT)
    for delay in (2000, 1500):
        queue.add_after("b", delay)

    assert await take(queue, 1) == [("b", 1501)]
    assert not queue._delayed._heap


# ---------------------------------------------------------------- shutting down


async def test_shut_down_drops_delayed_items() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 1)

    queue.shut_down()

    assert timers() == []
    assert not queue._delayed._heap
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_drain_after_shut_down_returns_delayed_items() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 1)
    queue.shut_down()

    assert await queue.shut_down_with_drain() == {"a"}


async def test_add_after_is_ignored_after_shut_down() -> None:
    queue = WorkQueue[str]()
    queue.shut_down()

    queue.add_after("a", 1)
    queue.add_after("b", 0)

    assert timers() == []
    assert len(queue) == 0


async def test_drain_cuts_delays() -> None:
    queue = WorkQueue[str]()
    queue.add("now")
    queue.add_after("a late one", 900)
    queue.add_after("early", 600)
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()

    took = take_all(queue)

    assert took == ["now", "early", "a late one"]
    assert await drain == frozenset()
    assert asyncio.get_running_loop().time() == 0
    assert timers() == []


async def test_drain_cuts_delay_of_retry_once() -> None:
    queue = WorkQueue[str]()
    record: list[str] = []
    queue.add("a")

    async def work() -> None:
        async for item in queue:
            record.append(item)
            await asyncio.sleep(1)
            queue.add_after(item, 600)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await settle()
        left = await queue.shut_down_with_drain()

    assert record == ["a", "a"]
    assert left == {"a"}
    assert asyncio.get_running_loop().time() == 2


async def test_drain_can_return_delayed_items() -> None:
    queue = WorkQueue[str]()
    queue.add("now")
    queue.add_after("late", 600)
    drain = asyncio.create_task(queue.shut_down_with_drain(delayed="return"))
    await settle()

    took = take_all(queue)

    assert took == ["now"]
    assert await drain == {"late"}
    assert asyncio.get_running_loop().time() == 0
    assert timers() == []


async def test_drain_that_returns_delayed_items_returns_retries() -> None:
    queue = WorkQueue[str]()
    record: list[str] = []
    for item in ("fails", "fails at once", "succeeds"):
        queue.add(item)

    async def work() -> None:
        async for item in queue:
            record.append(item)
            await asyncio.sleep(1)
            if item != "succeeds":
                queue.add_after(item, 0 if item == "fails at once" else 600)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await settle()
        left = await queue.shut_down_with_drain(delayed="return")

    assert record == ["fails", "fails at once", "succeeds", "fails at once"]
    assert left == {"fails", "fails at once"}
    assert timers() == []


async def test_drain_that_returns_delayed_items_accepts_no_new_ones() -> None:
    queue = WorkQueue[str]()
    queue.add("in work")
    queue.add("queued")
    await queue.get()
    drain = asyncio.create_task(queue.shut_down_with_drain(delayed="return"))
    await settle()

    queue.add_after("new", 1)
    queue.add_after("queued", 1)
    queue.done("in work")
    queue.done(await queue.get())

    assert await drain == frozenset()


async def test_drain_refuses_an_unknown_delayed_argument() -> None:
    queue = WorkQueue[str]()

    with pytest.raises(OptionsError, match="'run' or 'return', not 'drop'"):
        await queue.shut_down_with_drain(delayed="drop")  # type: ignore[arg-type]

    assert not queue.shutting_down


# ---------------------------------------------------------------- loops


async def test_add_after_in_other_thread_raises_wrong_loop() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    for delay in (1, 0):
        error = error_in_thread(lambda d=delay: queue.add_after("b", d))  # type: ignore[misc]
        assert isinstance(error, WrongLoop)

    assert repr(queue) == "<WorkQueue open queued=1 working=0 delayed=0>"


def test_add_after_needs_running_loop() -> None:
    queue = WorkQueue[str]()

    with pytest.raises(WrongLoop):
        queue.add_after("a", 1)
