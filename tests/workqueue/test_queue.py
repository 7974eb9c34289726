"""`WorkQueue`: states of an item, waiting and cancellation."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest
from queue_helpers import settle, take_all

from aioinformer.errors import QueueShutDown
from aioinformer.workqueue import WorkQueue

# ---------------------------------------------------------------- items


async def test_items_are_taken_in_order_of_first_add() -> None:
    queue = WorkQueue[str]()

    for item in "bcabac":
        queue.add(item)

    assert take_all(queue) == ["b", "c", "a"]


async def test_item_added_while_in_work_waits_for_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    item = await queue.get()

    queue.add(item)
    queue.add(item)
    before = len(queue)
    queue.done(item)

    assert before == 0
    assert take_all(queue) == ["a"]


async def test_item_added_while_in_work_is_queued_at_end() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")

    queue.done("a")

    assert take_all(queue) == ["b", "a"]


async def test_item_can_be_added_again_after_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.done(await queue.get())

    queue.add("a")

    assert await queue.get() == "a"


@pytest.mark.parametrize("item", ["unknown", "queued"])
async def test_done_ignores_item_that_is_not_in_work(item: str) -> None:
    queue = WorkQueue[str]()
    queue.add("queued")

    queue.done(item)

    assert take_all(queue) == ["queued"]


async def test_length_counts_only_queued_items() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("b")
    queue.add("b")
    lengths = [len(queue)]

    await queue.get()
    lengths.append(len(queue))
    queue.add("a")
    lengths.append(len(queue))
    queue.done("a")
    lengths.append(len(queue))

    assert lengths == [2, 1, 1, 2]


async def test_get_does_not_suspend_if_item_is_queued() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    with pytest.raises(StopIteration) as ended:
        queue.get().send(None)

    assert ended.value.value == "a"


async def test_get_nowait_of_an_empty_queue_raises_queue_empty() -> None:
    with pytest.raises(asyncio.QueueEmpty):
        WorkQueue[str]().get_nowait()


async def test_repr_shows_the_state() -> None:
    queue = WorkQueue[str]("pods")
    queue.add("a")
    queue.add("b")
    await queue.get()

    open_repr = repr(queue)
    queue.shut_down()

    assert open_repr == "<WorkQueue pods open queued=1 working=1 delayed=0>"
    assert repr(queue) == "<WorkQueue pods shut queued=1 working=1 delayed=0>"
    assert repr(WorkQueue[str]()) == "<WorkQueue open queued=0 working=0 delayed=0>"


# ---------------------------------------------------------------- waiting


async def test_add_wakes_waiting_get() -> None:
    queue = WorkQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    queue.add("a")

    assert await getter == "a"


async def test_done_of_item_added_again_wakes_waiting_get() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    getter = asyncio.create_task(queue.get())
    await settle()

    waited = not getter.done()
    queue.done("a")

    assert waited
    assert await getter == "a"


async def test_each_item_wakes_one_of_many_waiting_workers() -> None:
    queue = WorkQueue[str]()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()

    queue.add("a")
    queue.add("b")
    await settle()

    assert [getter.done() for getter in getters] == [True, True, False]
    queue.add("c")
    assert [await getter for getter in getters] == ["a", "b", "c"]


async def test_get_cancelled_as_item_arrives_wakes_another_worker() -> None:
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()

    queue.add("a")
    first.cancel()

    assert await second == "a"
    assert first.cancelled()


async def test_get_cancelled_as_item_arrives_leaves_it_queued() -> None:
    queue = WorkQueue[str]()
    getter = asyncio.create_task(queue.get())
    await settle()

    queue.add("a")
    getter.cancel()
    await asyncio.wait({getter})

    assert getter.cancelled()
    assert queue.get_nowait() == "a"


async def test_get_cancelled_after_item_was_taken_wakes_no_worker() -> None:
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()

    queue.add("a")
    taken = queue.get_nowait()
    first.cancel()
    await settle()

    assert taken == "a"
    assert not second.done()
    queue.add("b")
    assert await second == "b"


async def test_get_cancelled_before_item_arrives_is_forgotten() -> None:
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()

    first.cancel()
    await settle()
    queue.add("a")

    assert await second == "a"


async def test_item_after_cancellation_goes_to_another_worker() -> None:
    """The cancelled waiter is still queued, as its task has not run yet."""
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()

    first.cancel()
    queue.add("a")

    assert await second == "a"
    assert first.cancelled()


async def test_closed_get_coroutine_loses_no_notification() -> None:
    queue = WorkQueue[str]()
    abandoned = queue.get()
    abandoned.send(None)
    getter = asyncio.create_task(queue.get())
    await settle()

    abandoned.close()
    queue.add("a")

    assert await getter == "a"


async def test_timeout_around_get_loses_no_item() -> None:
    queue = WorkQueue[str]()
    loop = asyncio.get_running_loop()
    # In the turn in which the timeout cancels.
    loop.call_later(3, queue.add, "a")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await queue.get()

    await settle()
    assert take_all(queue) == ["a"]


async def test_items_are_never_lost_or_duplicated_with_many_workers() -> None:
    queue = WorkQueue[int]()
    wanted, seen = Counter[int](), Counter[int]()
    in_work: set[int] = set()

    async def work() -> None:
        async for item in queue:
            assert item not in in_work
            in_work.add(item)
            seen[item] = wanted[item]
            await asyncio.sleep(0.1 * (item % 3))
            in_work.discard(item)

    async def produce(offset: int) -> None:
        for number in range(40):
            item = (offset + number) % 17
            wanted[item] += 1
            queue.add(item)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as workers:
        for _ in range(5):
            workers.create_task(work())

        async with asyncio.TaskGroup() as producers:
            for offset in range(7):
                producers.create_task(produce(offset))

        left = await queue.shut_down_with_drain()

    # Each item was taken after it was last added.
    assert seen == wanted
    assert left == frozenset()


# ---------------------------------------------------------------- item(), async for


async def test_item_calls_done_after_its_block() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    async with queue.item() as item:
        queue.add(item)
        inside = len(queue)

    assert inside == 0
    assert take_all(queue) == ["a"]


async def test_item_calls_done_when_its_block_fails() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    with pytest.raises(ZeroDivisionError):
        async with queue.item():
            raise ZeroDivisionError

    assert await queue.shut_down_with_drain(0) == frozenset()


async def test_item_calls_done_when_its_block_is_cancelled() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    async def work() -> None:
        async with queue.item():
            await asyncio.Event().wait()

    worker = asyncio.create_task(work())
    await settle()
    worker.cancel()
    await asyncio.wait({worker})

    assert worker.cancelled()
    assert await queue.shut_down_with_drain(0) == frozenset()


async def test_item_raises_queue_shut_down_at_the_end() -> None:
    queue = WorkQueue[str]()
    queue.shut_down()

    with pytest.raises(QueueShutDown):
        async with queue.item():
            raise AssertionError("there is no item")


async def test_iteration_calls_done_before_next_item() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    record: list[str] = []

    async for item in queue:
        record.append(item)
        if len(record) < 3:
            queue.add(item)
        else:
            queue.shut_down()

    assert record == ["a", "a", "a"]
    assert repr(queue) == "<WorkQueue shut queued=0 working=0 delayed=0>"


async def test_left_iteration_calls_done_soon() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    async for _item in queue:
        break

    await settle()
    assert repr(queue) == "<WorkQueue open queued=0 working=0 delayed=0>"


async def test_closed_iteration_calls_done_at_once() -> None:
    queue = WorkQueue[str]()
    queue.add("a")

    async with aclosing(aiter(queue)) as items:
        async for _item in items:
            break

    assert repr(queue) == "<WorkQueue open queued=0 working=0 delayed=0>"
