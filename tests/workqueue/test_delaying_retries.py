"""`WorkQueue.add_rate_limited()`: delays of the limiter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from queue_helpers import error_in_thread, settle

from aioinformer.errors import OptionsError, WrongLoop
from aioinformer.workqueue import (
    DelayingQueue,
    ItemExponentialFailureRateLimiter,
    ItemFastSlowRateLimiter,
    PriorityQueue,
    RateLimitingQueue,
    WorkQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def doubling() -> ItemExponentialFailureRateLimiter:
    return ItemExponentialFailureRateLimiter(1, 60)


async def test_item_is_added_after_delay_of_limiter() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())
    times: list[float] = []

    for _ in range(4):
        queue.add_rate_limited("a")
        queue.done(await queue.get())
        times.append(asyncio.get_running_loop().time())

    assert times == [1, 3, 7, 15]


@pytest.mark.parametrize("given", [10, "slow", ("when", "forget")], ids=str)
def test_queue_refuses_an_object_without_limiter_methods(given: Any) -> None:
    for kind in (WorkQueue, PriorityQueue):
        with pytest.raises(OptionsError, match=r"rate_limiter=.* has no method when"):
            kind("q", rate_limiter=given)


async def test_each_item_has_its_own_backoff() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())
    queue.add_rate_limited("a")
    queue.done(await queue.get())

    queue.add_rate_limited("a")
    queue.add_rate_limited("b")

    assert [await queue.get(), await queue.get()] == ["b", "a"]
    assert asyncio.get_running_loop().time() == 3


async def test_forget_resets_backoff() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())
    for _ in range(3):
        queue.add_rate_limited("a")
        queue.done(await queue.get())

    before = queue.num_requeues("a")
    queue.forget("a")
    queue.add_rate_limited("a")
    await queue.get()

    assert before == 3
    assert queue.num_requeues("a") == 1
    assert asyncio.get_running_loop().time() == 7 + 1


async def test_done_does_not_reset_backoff() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())
    queue.add_rate_limited("a")

    queue.done(await queue.get())

    assert queue.num_requeues("a") == 1


async def test_repeated_add_rate_limited_counts_but_keeps_earlier_time() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())

    for _ in range(3):
        queue.add_rate_limited("a")

    await queue.get()
    assert asyncio.get_running_loop().time() == 1
    assert queue.num_requeues("a") == 3


async def test_default_limiter_is_that_of_controllers() -> None:
    queue = WorkQueue[str]()

    queue.add_rate_limited("a")
    queue.done(await queue.get())
    first = asyncio.get_running_loop().time()
    for _ in range(5):
        queue.add_rate_limited("a")
        queue.done(await queue.get())

    assert first == pytest.approx(0.005)
    total = 0.005 * (1 + 2 + 4 + 8 + 16 + 32)
    assert asyncio.get_running_loop().time() == pytest.approx(total)


async def test_drain_retries_failing_item_once_without_delay() -> None:
    limiter = ItemFastSlowRateLimiter(600, 600, 1)
    queue = WorkQueue[str]("jobs", rate_limiter=limiter)
    record: list[str] = []
    queue.add("fails")
    queue.add("succeeds")

    async def work() -> None:
        async for item in queue:
            await asyncio.sleep(1)
            record.append(item)
            if item == "fails":
                queue.add_rate_limited(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await settle()
        left = await queue.shut_down_with_drain()

    assert record == ["fails", "succeeds", "fails"]
    assert left == {"fails"}
    assert asyncio.get_running_loop().time() == 3


async def test_add_rate_limited_is_ignored_after_shut_down() -> None:
    queue = WorkQueue[str](rate_limiter=doubling())
    queue.shut_down()

    queue.add_rate_limited("a")

    assert repr(queue) == "<WorkQueue shut queued=0 working=0 delayed=0>"


CALLS: dict[str, Callable[[WorkQueue[str]], object]] = {
    "add_rate_limited": lambda queue: queue.add_rate_limited("a"),
    "forget": lambda queue: queue.forget("a"),
    "num_requeues": lambda queue: queue.num_requeues("a"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_add_rate_limited_in_other_thread_raises_wrong_loop(name: str) -> None:
    limiter = doubling()
    queue = WorkQueue[str](rate_limiter=limiter)
    queue.add_rate_limited("a")

    error = error_in_thread(lambda: CALLS[name](queue))

    assert isinstance(error, WrongLoop)
    assert limiter.num_requeues("a") == 1
    queue.shut_down()


def test_names_of_client_go_are_work_queues() -> None:
    assert DelayingQueue is RateLimitingQueue is WorkQueue
