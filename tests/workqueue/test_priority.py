"""`PriorityQueue`: order, ageing and shutdown."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from queue_helpers import error_in_thread, settle, take_all

from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.workqueue import (
    LOW_PRIORITY,
    ItemExponentialFailureRateLimiter,
    PriorityQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# ---------------------------------------------------------------- order


async def test_higher_priority_is_taken_first() -> None:
    queue = PriorityQueue[str]()

    queue.add("resync", LOW_PRIORITY)
    queue.add("change")
    queue.add("urgent", 10)
    queue.add("less", -1)

    assert take_all(queue) == ["urgent", "change", "less", "resync"]


@pytest.mark.parametrize("ageing", [None, 0, 3.0, timedelta(seconds=1)], ids=repr)
async def test_items_of_equal_priority_are_taken_in_order_of_adding(
    ageing: Any,
) -> None:
    queue = PriorityQueue[int](ageing=ageing)
    items = [(number * 7919) % 1000 for number in range(1000)]

    for number, item in enumerate(items):
        queue.add(item, number % 2)
        if number % 100 == 0:
            await asyncio.sleep(0.001)

    taken = [queue.get_nowait() for _ in items]

    assert taken == items[1::2] + items[::2]


async def test_raised_item_is_taken_after_others_of_new_priority() -> None:
    queue = PriorityQueue[str]()
    queue.add("a")
    queue.add("b", 5)
    queue.add("c")

    queue.add("c", 5)
    queue.add("d", 5)

    assert len(queue) == 4
    assert take_all(queue) == ["b", "c", "d", "a"]


@pytest.mark.parametrize("priority", [5, 4, -100])
async def test_adding_again_with_lower_priority_changes_nothing(
    priority: int,
) -> None:
    queue = PriorityQueue[str]()
    queue.add("a", 5)
    queue.add("b", 5)

    queue.add("a", priority)

    assert take_all(queue) == ["a", "b"]


async def test_highest_priority_requested_while_in_work_wins() -> None:
    queue = PriorityQueue[str]()
    queue.add("a", 100)
    await queue.get()
    for priority in (-5, 7, 3):
        queue.add("a", priority)

    queue.add("above", 8)
    queue.add("below", 6)
    queue.done("a")

    assert take_all(queue) == ["above", "a", "below"]


async def test_requested_priority_is_used_once() -> None:
    queue = PriorityQueue[str]()
    queue.add("a", 100)
    queue.done(await queue.get())

    queue.add("b")
    queue.add("a")

    assert take_all(queue) == ["b", "a"]


async def test_get_with_priority_returns_priority() -> None:
    queue = PriorityQueue[str]()
    queue.add("b", -3)
    queue.add("a")
    queue.add("a", 5)

    first = await queue.get_with_priority()
    waiting = asyncio.create_task(queue.get_with_priority())
    second = await waiting

    assert [first, second] == [("a", 5), ("b", -3)]


async def test_two_waiting_workers_get_their_own_priorities() -> None:
    queue = PriorityQueue[str]()
    getters = [asyncio.create_task(queue.get_with_priority()) for _ in range(2)]
    await settle()

    queue.add("a", 1)
    queue.add("b", 2)

    assert [await getter for getter in getters] == [("b", 2), ("a", 1)]


# ---------------------------------------------------------------- ageing


async def served(queue: PriorityQueue[str], seconds: int) -> float | None:
    """Flood a worker with important items, and return when it took the other one."""
    loop = asyncio.get_running_loop()
    queue.add("poor", LOW_PRIORITY)
    for number in range(seconds):
        queue.add(f"rich-{number}")
        async with queue.item() as item:
            if item == "poor":
                return loop.time()

            await asyncio.sleep(1)

    return None


async def test_waiting_item_is_served_within_the_bound() -> None:
    assert await served(PriorityQueue(ageing=0.5), 300) == 100 * 0.5


async def test_low_priority_waits_five_minutes_by_default() -> None:
    assert await served(PriorityQueue(), 600) == 300


@pytest.mark.parametrize("ageing", [0, None])
async def test_strict_priorities_can_starve_items(ageing: int | None) -> None:
    assert await served(PriorityQueue(ageing=ageing), 2000) is None


async def test_items_added_after_the_bound_do_not_overtake() -> None:
    """Check the guarantee for all pairs of many items at many times."""
    queue = PriorityQueue[int](ageing=2)
    added: list[tuple[float, int]] = []
    for number in range(300):
        priority = (number * 31) % 17 - 8
        queue.add(number, priority)
        added.append((asyncio.get_running_loop().time(), priority))
        await asyncio.sleep((number * 7) % 5 * 0.25)

    taken = [queue.get_nowait() for _ in added]
    place = {number: index for index, number in enumerate(taken)}

    for first, (first_time, first_priority) in enumerate(added):
        for second, (second_time, second_priority) in enumerate(added):
            ahead = first_time + (second_priority - first_priority) * 2 < second_time
            same = first_priority == second_priority and first < second
            if ahead or same:
                assert place[first] < place[second]


async def test_raise_keeps_better_place_of_old_item() -> None:
    queue = PriorityQueue[str](ageing=1)
    queue.add("old")
    await asyncio.sleep(100)
    queue.add("new", 50)

    queue.add("old", 1)

    assert await queue.get_with_priority() == ("old", 1)


def test_item_added_before_the_loop_runs_starts_ageing_with_it() -> None:
    queue = PriorityQueue[str](ageing=1)
    queue.add("a", -5)
    queue.add("b", 5)
    queue.add("c", -5)

    async def use() -> list[str]:
        queue.done("nothing")
        await asyncio.sleep(0)
        queue.add("d", -4)
        queue.add("e", 6)
        return take_all(queue)

    assert asyncio.run(use()) == ["e", "b", "d", "a", "c"]


# ---------------------------------------------------------------- delays


async def test_delayed_item_keeps_highest_priority_and_earliest_deadline() -> None:
    queue = PriorityQueue[str]()
    queue.add_after("a", 5, 1)
    queue.add_after("a", 9, 7)
    queue.add_after("a", 3, 4)
    queue.add_after("b", 2, 6)
    queue.add_after("c", 2, 8)

    await asyncio.sleep(4)
    taken = take_all(queue)
    await asyncio.sleep(20)

    assert taken == ["c", "a", "b"]
    assert len(queue) == 0


async def test_priority_does_not_change_deadline() -> None:
    queue = PriorityQueue[str]()
    queue.add_after("low", 1, -100)
    queue.add_after("high", 2, 100)

    first = await queue.get()

    assert first == "low"
    assert asyncio.get_running_loop().time() == 1
    queue.shut_down()


async def test_add_keeps_priority_of_delayed_item() -> None:
    queue = PriorityQueue[str]()
    queue.add_after("a", 2, 9)

    queue.add_after("a", 0, 1)
    now = await queue.get_with_priority()
    queue.done("a")
    later = await queue.get_with_priority()

    assert [now, later] == [("a", 1), ("a", 9)]


async def test_retry_has_given_priority() -> None:
    queue = PriorityQueue[str](rate_limiter=ItemExponentialFailureRateLimiter(1, 60))

    queue.add_rate_limited("a", -3)
    queue.add_rate_limited("a", -7)

    assert await queue.get_with_priority() == ("a", -3)
    assert queue.num_requeues("a") == 2
    assert asyncio.get_running_loop().time() == 1


async def test_add_threadsafe_accepts_priority() -> None:
    queue = PriorityQueue[str]()
    queue.add("a")

    def add() -> None:
        queue.add_threadsafe("b")
        queue.add_threadsafe("c", 3)
        queue.add_threadsafe("b", 2)

    error = error_in_thread(add)
    await settle()

    assert error is None
    assert take_all(queue) == ["c", "b", "a"]


async def test_stale_places_of_raised_items_are_dropped() -> None:
    queue = PriorityQueue[str]()

    for priority in range(10_000):
        queue.add("a", priority)

    assert len(queue) == 1
    assert len(queue._prioritized._rows) < 100
    assert take_all(queue) == ["a"]


# ---------------------------------------------------------------- shutting down


async def test_shut_down_ends_workers_and_drops_delayed_items() -> None:
    """controller-runtime's queue had a deadlock here."""
    queue = PriorityQueue[str]()
    getters = [asyncio.create_task(queue.get()) for _ in range(5)]
    await settle()
    queue.add_after("delayed", 5, 1)
    queue.add("a", 1)
    queue.add("b", -1)
    queue.add("a", 7)

    queue.shut_down()
    async with asyncio.timeout(1):
        ends = await asyncio.gather(*getters, return_exceptions=True)

    assert ends[:2] == ["a", "b"]
    assert [type(end) for end in ends[2:]] == [QueueShutDown] * 3
    assert asyncio.get_running_loop().time() == 0


async def test_worker_woken_during_shut_down_does_not_hang() -> None:
    """The item was taken by another worker."""
    queue = PriorityQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    queue.add("a")
    taken = queue.get_nowait()
    queue.shut_down()

    assert taken == "a"
    with pytest.raises(QueueShutDown):
        async with asyncio.timeout(1):
            await getter


async def test_drain_ends_with_priorities_and_delays() -> None:
    queue = PriorityQueue[str]()
    record: list[str] = []
    queue.add("low", -1)
    queue.add_after("delayed", 600, 5)
    queue.add("high", 1)

    async def work() -> None:
        async for item in queue:
            record.append(item)
            await asyncio.sleep(1)
            if item == "high":
                queue.add(item, -9)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        left = await queue.shut_down_with_drain()

    assert record == ["delayed", "high", "low", "high"]
    assert left == {"high"}
    assert queue._delayed_priorities == {}


@pytest.mark.parametrize("drains", [False, True], ids=["shut", "draining"])
async def test_add_after_shut_down_changes_no_priority(drains: bool) -> None:
    queue = PriorityQueue[str]()
    for item in ("in work", "a", "b"):
        queue.add(item)

    await queue.get()
    queue.add("in work", -1)
    drain = asyncio.create_task(queue.shut_down_with_drain()) if drains else None
    await settle()
    if drain is None:
        queue.shut_down()

    queue.add("b", 5)
    queue.add("in work", 5)
    queue.add("new", 5)
    queue.done("in work")

    assert take_all(queue) == ["a", "b", "in work"]
    if drain is not None:
        await drain


async def test_refused_item_leaves_no_state() -> None:
    queue = PriorityQueue[str]()
    queue.add_after("delayed", 5, 3)
    queue.shut_down()

    queue.add("a", 5)
    queue.add_after("b", 1, 5)

    assert not queue._prioritized.requested
    assert queue._delayed_priorities == {}


# ---------------------------------------------------------------- wrong use


@pytest.mark.parametrize("priority", [math.nan, math.inf, 1_000_001, -1_000_001])
@pytest.mark.parametrize("way", ["add", "add_threadsafe", "after", "limited"])
async def test_queue_refuses_a_priority_out_of_range(way: str, priority: Any) -> None:
    limiter = ItemExponentialFailureRateLimiter()
    queue = PriorityQueue[str](rate_limiter=limiter)
    calls: dict[str, Callable[[], None]] = {
        "add": lambda: queue.add("a", priority),
        "add_threadsafe": lambda: queue.add_threadsafe("a", priority),
        "after": lambda: queue.add_after("a", 1, priority),
        "limited": lambda: queue.add_rate_limited("a", priority),
    }

    with pytest.raises(OptionsError):
        calls[way]()

    await settle()
    assert repr(queue) == "<PriorityQueue open queued=0 working=0 delayed=0>"
    assert limiter.num_requeues("a") == 0


@pytest.mark.parametrize("ageing", [-1, math.nan, math.inf, timedelta(seconds=-1)])
def test_invalid_ageing_is_refused(ageing: Any) -> None:
    with pytest.raises(OptionsError):
        PriorityQueue(ageing=ageing)


async def test_other_thread_gets_wrong_loop_and_changes_nothing() -> None:
    queue = PriorityQueue[str]()
    queue.add("a")
    queue.add("b")

    errors = [
        error_in_thread(lambda: queue.add("b", 5)),
        error_in_thread(lambda: queue.add("c", 5)),
        error_in_thread(lambda: queue.add_after("c", 1, 5)),
    ]

    assert [type(error) for error in errors] == [WrongLoop] * 3
    assert take_all(queue) == ["a", "b"]
    assert not queue._prioritized.requested


def test_other_loop_gets_wrong_loop_and_changes_nothing() -> None:
    queue = PriorityQueue[str]()

    async def use() -> None:
        queue.add("a")
        queue.done(await queue.get())

    async def add() -> None:
        queue.add("b", 5)

    asyncio.run(use())
    with pytest.raises(WrongLoop):
        asyncio.run(add())

    assert not queue._prioritized.requested
