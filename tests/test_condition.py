"""`LoopCondition`: notifications by plain code, cancellation, and one loop at a time."""

from __future__ import annotations

import asyncio

import pytest
from queue_helpers import error_in_thread, settle

from aioinformer._condition import LoopCondition
from aioinformer.errors import WrongLoop


async def test_notify_all_wakes_each_task_whose_predicate_is_true() -> None:
    condition, items = LoopCondition("queue"), list[int]()

    async def take() -> int:
        await condition.wait_for(lambda: items)
        return items.pop(0)

    tasks = [asyncio.create_task(take()) for _ in range(3)]
    await settle()
    items += [1, 2]
    condition.notify_all()
    await settle()
    woken = [task.result() for task in tasks if task.done()]
    items.append(3)
    condition.notify_all()

    assert woken == [1, 2]
    assert await tasks[2] == 3


@pytest.mark.parametrize("cancel_first", [True, False], ids=["before", "after"])
async def test_waiter_cancelled_in_the_turn_of_its_notification_loses_nothing(
    cancel_first: bool,
) -> None:
    condition, items = LoopCondition("queue"), list[int]()
    first, second = (
        asyncio.create_task(condition.wait_for(lambda: items)) for _ in range(2)
    )
    await settle()

    if cancel_first:
        first.cancel()

    items.append(1)
    condition.notify_all()
    first.cancel()
    async with asyncio.timeout(1):
        await second

    assert first.cancelled()


async def test_notification_from_another_thread_is_refused_while_a_task_waits() -> None:
    condition, items = LoopCondition("queue"), list[int]()
    task = asyncio.create_task(condition.wait_for(lambda: items))
    await settle()

    error = error_in_thread(condition.check_loop)
    items.append(1)
    condition.notify_all()
    await task

    assert isinstance(error, WrongLoop)
    assert error_in_thread(condition.check_loop) is None


def test_condition_can_be_used_by_a_second_loop_after_the_first() -> None:
    async def wait(items: list[int]) -> None:
        task = asyncio.create_task(condition.wait_for(lambda: items))
        await settle()
        items.append(1)
        condition.notify_all()
        await task

    condition = LoopCondition("queue")
    for _ in range(2):
        asyncio.run(wait([]))
