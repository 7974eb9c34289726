"""`WorkQueue`: shutdown with and without a drain."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from queue_helpers import error_in_thread, settle, take_all

from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.workqueue import WorkQueue

# ---------------------------------------------------------------- shut_down


async def test_queued_items_are_still_handed_out_after_shut_down() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("b")

    queue.shut_down()

    assert [await queue.get(), queue.get_nowait()] == ["a", "b"]
    with pytest.raises(QueueShutDown):
        await queue.get()

    with pytest.raises(QueueShutDown):
        queue.get_nowait()


async def test_shut_down_wakes_every_waiting_worker() -> None:
    queue = WorkQueue[str]()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()

    queue.shut_down()
    results = await asyncio.gather(*getters, return_exceptions=True)

    assert [type(result) for result in results] == [QueueShutDown] * 3


async def test_add_after_shut_down_is_ignored() -> None:
    queue = WorkQueue[str]()
    queue.add("in work")
    await queue.get()

    queue.shut_down()
    queue.add("new")
    queue.add("in work")
    queue.done("in work")

    assert queue.shutting_down
    assert len(queue) == 0


async def test_item_added_again_before_shut_down_is_handed_out() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")

    queue.shut_down()
    queue.done("a")

    assert await queue.get() == "a"


async def test_shut_down_is_idempotent() -> None:
    queue = WorkQueue[str]()
    before = queue.shutting_down

    queue.shut_down()
    queue.shut_down()

    assert not before
    assert queue.shutting_down


async def test_queue_can_be_shut_down_before_loop_runs() -> None:
    queues: list[WorkQueue[str]] = []

    def prepare() -> None:
        queues.append(WorkQueue())
        queues[0].add("a")
        queues[0].shut_down()

    assert error_in_thread(prepare) is None
    queues[0].add("b")
    queues[0].add("c")

    assert take_all(queues[0]) == ["a"]


# ---------------------------------------------------------------- drain


async def test_drain_of_empty_queue_ends_at_once() -> None:
    queue = WorkQueue[str]()

    assert await queue.shut_down_with_drain() == frozenset()

    assert queue.shutting_down
    assert asyncio.get_running_loop().time() == 0


async def test_drain_waits_for_items_in_work() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    asyncio.get_running_loop().call_later(5, queue.done, "a")

    left = await queue.shut_down_with_drain()

    assert left == frozenset()
    assert asyncio.get_running_loop().time() == 5


async def test_drain_hands_out_queued_items() -> None:
    queue = WorkQueue[str]()
    record: list[str] = []
    for item in "abc":
        queue.add(item)

    async def work() -> None:
        async for item in queue:
            await asyncio.sleep(1)
            record.append(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        left = await queue.shut_down_with_drain()

    assert record == ["a", "b", "c"]
    assert left == frozenset()


async def test_drain_hands_out_items_added_again_before_it() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()

    queue.done("a")
    await settle()
    waited = not drain.done()
    queue.done(await queue.get())

    assert waited
    assert await drain == frozenset()


async def test_drain_hands_out_once_items_added_again_during_it() -> None:
    queue = WorkQueue[str]()
    record: list[str] = []
    queue.add("always fails")
    queue.add("succeeds")

    async def work() -> None:
        async for item in queue:
            record.append(item)
            await asyncio.sleep(1)
            if item == "always fails":
                queue.add(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await settle()
        left = await queue.shut_down_with_drain()

    assert record == ["always fails", "succeeds", "always fails"]
    assert left == {"always fails"}


async def test_drain_accepts_no_new_items() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()

    queue.add("new")
    queue.done("a")

    assert await drain == frozenset()
    assert len(queue) == 0


async def test_drain_ends_waiting_workers() -> None:
    queue = WorkQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    await queue.shut_down_with_drain()

    with pytest.raises(QueueShutDown):
        await getter


@pytest.mark.parametrize("timeout", [3, 3.0, timedelta(seconds=3)], ids=repr)
async def test_drain_returns_items_not_done_in_time(timeout: Any) -> None:
    queue = WorkQueue[str]()
    for item in ("in work", "again", "queued"):
        queue.add(item)

    await queue.get()
    await queue.get()
    queue.add("again")

    left = await queue.shut_down_with_drain(timeout)

    assert left == {"in work", "again", "queued"}
    assert asyncio.get_running_loop().time() == 3


async def test_items_returned_by_a_drain_are_not_handed_out() -> None:
    queue = WorkQueue[str]()
    for item in ("again", "queued"):
        queue.add(item)

    await queue.get()
    queue.add("again")
    await queue.shut_down_with_drain(1)

    queue.done("again")
    queue.done("queued")

    with pytest.raises(QueueShutDown):
        queue.get_nowait()


async def test_cancelled_drain_can_be_continued() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    drain = asyncio.create_task(queue.shut_down_with_drain(100))
    await settle()
    drain.cancel()
    await asyncio.wait({drain})

    asyncio.get_running_loop().call_later(2, queue.done, "a")
    left = await queue.shut_down_with_drain()

    assert drain.cancelled()
    assert left == frozenset()
    assert not queue._drains


async def test_concurrent_drains_all_end() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    drains = [asyncio.create_task(queue.shut_down_with_drain()) for _ in range(3)]
    await settle()

    queue.done("a")

    assert [await drain for drain in drains] == [frozenset()] * 3


async def test_drain_that_times_out_ends_other_drain_without_items() -> None:
    queue = WorkQueue[str]()
    queue.add("nobody takes it")
    patient = asyncio.create_task(queue.shut_down_with_drain())

    left = await queue.shut_down_with_drain(1)

    assert left == {"nobody takes it"}
    assert await patient == left


async def test_drain_that_times_out_leaves_other_drain_waiting_for_work() -> None:
    queue = WorkQueue[str]()
    queue.add("slow")
    queue.add("queued")
    await queue.get()
    patient = asyncio.create_task(queue.shut_down_with_drain())

    left = await queue.shut_down_with_drain(1)
    queue.done("slow")

    assert left == {"slow", "queued"}
    assert await patient == {"queued"}


async def test_shut_down_ends_drain() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()

    queue.shut_down()

    assert await drain == {"a"}


async def test_second_drain_returns_items_given_up_by_first() -> None:
    queue = WorkQueue[str]()
    queue.add("again")
    queue.add("queued")
    await queue.get()
    queue.add("again")
    first = await queue.shut_down_with_drain(1)

    queue.done("again")

    assert first == {"again", "queued"}
    assert await queue.shut_down_with_drain() == first


async def test_drain_after_shut_down_waits_for_remaining_items() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("b")
    queue.shut_down()
    drain = asyncio.create_task(queue.shut_down_with_drain())
    await settle()

    took = take_all(queue)

    assert took == ["a", "b"]
    assert await drain == frozenset()


async def test_drain_after_shut_down_returns_items_added_in_vain() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.shut_down()

    queue.add("a")
    queue.done("a")

    assert await queue.shut_down_with_drain() == {"a"}


async def test_drain_refuses_invalid_timeout() -> None:
    queue = WorkQueue[str]()

    with pytest.raises(OptionsError):
        await queue.shut_down_with_drain(float("nan"))

    assert not queue.shutting_down


# ---------------------------------------------------------------- reopen


async def test_reopened_queue_is_empty_and_takes_items() -> None:
    queue = WorkQueue[str]()
    for item in ("in work", "again", "queued"):
        queue.add(item)

    queue.add_after("delayed", 5)
    assert [await queue.get(), await queue.get()] == ["in work", "again"]
    queue.add("again")
    queue.shut_down()

    dropped = queue.reopen()

    assert dropped == {"in work", "again", "queued", "delayed"}
    assert len(queue) == 0
    assert not queue.shutting_down
    queue.add("in work")
    queue.done("again")
    await asyncio.sleep(10)
    assert len(queue) == 0, "in work until its done(), and no delay is left"
    queue.done("in work")
    queue.add("queued")
    assert [await queue.get(), await queue.get()] == ["in work", "queued"]


async def test_workers_wait_for_items_of_a_reopened_queue() -> None:
    queue = WorkQueue[str]()
    queue.shut_down()
    queue.reopen()
    getter = asyncio.create_task(queue.get())
    await settle()

    await asyncio.to_thread(queue.add_threadsafe, "a")

    assert await getter == "a"


async def test_reopened_queue_refuses_other_threads() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.shut_down()
    queue.reopen()

    assert isinstance(error_in_thread(lambda: queue.add("b")), WrongLoop)


async def test_drain_of_a_reopened_queue_returns_nothing_of_the_past() -> None:
    queue = WorkQueue[str]()
    queue.add_after("delayed", 5)
    assert await queue.shut_down_with_drain(delayed="return") == {"delayed"}
    queue.reopen()
    queue.add("a")
    queue.done(await queue.get())

    assert await queue.shut_down_with_drain(1) == frozenset()
