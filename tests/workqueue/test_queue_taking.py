"""`item()` and `async for`: no cancellation loses an item."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from queue_helpers import settle, take_all

from aioinformer.workqueue import (
    PriorityQueue,
    WorkQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Way = Callable[[WorkQueue[str], list[str]], Coroutine[Any, Any, None]]


async def by_get(queue: WorkQueue[str], record: list[str]) -> None:
    record.append(await queue.get())
    queue.done(record[-1])


async def by_item(queue: WorkQueue[str], record: list[str]) -> None:
    async with queue.item() as item:
        record.append(item)


async def by_iteration(queue: WorkQueue[str], record: list[str]) -> None:
    async for item in queue:
        record.append(item)  # noqa: PERF401 - what was taken before a cancellation


each_way = pytest.mark.parametrize("way", [by_get, by_item, by_iteration])
each_queue = pytest.mark.parametrize("make", [WorkQueue, PriorityQueue])


@each_way
@each_queue
@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_item_that_arrives_with_cancellation_stays_queued(
    way: Way, make: type[WorkQueue[str]], cancelled_first: bool
) -> None:
    queue = make()
    record: list[str] = []
    worker = asyncio.create_task(way(queue, record))
    await settle()

    if cancelled_first:
        worker.cancel()

    queue.add("a")
    worker.cancel()
    await asyncio.wait({worker})

    assert worker.cancelled()
    assert record == []
    assert take_all(queue) == ["a"]


@each_way
@each_queue
async def test_item_that_arrives_with_cancellation_goes_to_another_worker(
    way: Way, make: type[WorkQueue[str]]
) -> None:
    queue = make()
    records: list[list[str]] = [[], []]
    workers = [asyncio.create_task(way(queue, record)) for record in records]
    await settle()

    queue.add("a")
    workers[0].cancel()
    await settle()
    workers[1].cancel()
    await asyncio.wait(workers)

    assert records == [[], ["a"]]
    assert "open queued=0 working=0" in repr(queue)


@each_way
@pytest.mark.parametrize("turns", range(8))
async def test_cancellation_in_any_turn_loses_no_item(way: Way, turns: int) -> None:
    queue = WorkQueue[str]()
    record: list[str] = []
    worker = asyncio.create_task(way(queue, record))
    for turn in range(turns):
        if turn % 2:
            queue.add(f"item-{turn}")

        await asyncio.sleep(0)

    worker.cancel()
    queue.add("last")
    await asyncio.wait({worker})

    left = take_all(queue)
    wanted = [f"item-{turn}" for turn in range(1, turns, 2)]
    assert [*record, *left] == [*wanted, "last"]
    assert repr(queue) == "<WorkQueue open queued=0 working=0 delayed=0>"
