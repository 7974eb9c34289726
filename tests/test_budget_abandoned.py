"""`LoopBudget`: holders and waiters that fail, hang or are cancelled."""

from __future__ import annotations

import asyncio

import pytest
from budget_helpers import Clock, heavy
from queue_helpers import settle

from aioinformer import budget as budget_module
from aioinformer.budget import EMPTY_TURNS, LoopBudget


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budget_module, "perf_counter", clock)
    return clock


@pytest.mark.parametrize("how", ["raises", "waits-for-ever"])
async def test_holder_that_does_not_end_its_slice_delays_no_other(
    clock: Clock, how: str
) -> None:
    budget = LoopBudget.current()
    record: list[str] = []

    async def hold() -> None:
        await budget.start()
        clock.work(3)
        if how == "raises":
            raise ZeroDivisionError

        await asyncio.Event().wait()

    holders = [asyncio.create_task(hold()) for _ in range(3)]
    worker = asyncio.create_task(heavy(clock, 4, record, "w"))
    async with asyncio.timeout(1):
        await worker

    assert "".join(record) == "www|w"
    for holder in holders:
        holder.cancel()

    await asyncio.wait(holders)
    assert [holder.cancelled() for holder in holders] == [how != "raises"] * 3
    if how == "raises":
        assert {type(holder.exception()) for holder in holders} == {ZeroDivisionError}


async def waiting_tasks(clock: Clock, record: list[str]) -> list[asyncio.Task[None]]:
    """Use up a slice, and let three tasks wait for the next."""
    budget = LoopBudget.current()
    await budget.start()
    clock.work(3)
    budget.end()

    async def work(name: str) -> None:
        await budget.start()
        record.append(name)
        clock.work(3)
        budget.end()

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert budget.statistics().waiting == 3
    return tasks


@pytest.mark.parametrize("turns_before", range(EMPTY_TURNS + 2))
@pytest.mark.parametrize("who", [0, 1, 2])
async def test_cancelled_waiter_passes_its_turn_on(
    clock: Clock, turns_before: int, who: int
) -> None:
    record: list[str] = []
    tasks = await waiting_tasks(clock, record)
    for _ in range(turns_before):
        await asyncio.sleep(0)

    was_done = tasks[who].done()
    tasks[who].cancel()
    async with asyncio.timeout(1):
        await asyncio.wait(tasks)

    assert [task.cancelled() for task in tasks] == [
        number == who and not was_done for number in range(3)
    ]
    assert record == [name for name in "abc" if was_done or name != "abc"[who]]
    assert LoopBudget.current().statistics().waiting == 0


@pytest.mark.parametrize("turns_before", range(EMPTY_TURNS + 1))
async def test_budget_is_free_after_all_waiters_were_cancelled(
    clock: Clock, turns_before: int
) -> None:
    record: list[str] = []
    tasks = await waiting_tasks(clock, record)
    for _ in range(turns_before):
        await asyncio.sleep(0)

    for task in tasks:
        task.cancel()

    await asyncio.wait(tasks)
    await settle()

    assert all(task.cancelled() for task in tasks)
    async with asyncio.timeout(1):
        await heavy(clock, 4, record, "w")

    assert "".join(record) == "www|w"


async def test_rest_of_a_slice_is_kept_without_waiters(
    clock: Clock,
) -> None:
    """A new task would get this rest, and a full slice after it."""
    budget = LoopBudget.current()
    await budget.start()
    clock.work(3)
    budget.end()

    async def hold() -> None:
        await budget.start()
        clock.work(1)
        waiter.cancel()
        late.append(asyncio.create_task(budget.start()))
        await asyncio.Event().wait()

    late: list[asyncio.Task[None]] = []
    holder = asyncio.create_task(hold())
    waiter = asyncio.create_task(budget.start())
    while not late:
        await asyncio.sleep(0)

    await asyncio.sleep(0)
    at_once = late[0].done()
    await settle()

    assert waiter.cancelled()
    assert not at_once
    assert late[0].done()
    holder.cancel()


async def test_waiter_cancelled_in_the_turn_of_its_wake_up_stays_cancelled(
    clock: Clock,
) -> None:
    """Its future is cancelled at once, but its task notices one turn later."""
    record: list[str] = []
    tasks = await waiting_tasks(clock, record)
    budget = LoopBudget.current()

    tasks[0].cancel()
    budget._call(1)
    async with asyncio.timeout(1):
        await asyncio.wait(tasks)

    assert tasks[0].cancelled()
    assert record == ["b", "c"]


@pytest.mark.parametrize("granted", [False, True], ids=["waiting", "granted"])
async def test_closed_start_coroutine_takes_no_turn(
    clock: Clock, granted: bool
) -> None:
    record: list[str] = []
    budget = LoopBudget.current()
    await budget.start()
    clock.work(3)
    budget.end()
    abandoned = budget.start()
    abandoned.send(None)
    worker = asyncio.create_task(heavy(clock, 1, record, "w"))
    for _ in range(EMPTY_TURNS if granted else 1):
        await asyncio.sleep(0)

    waiting = budget.statistics().waiting
    abandoned.close()
    async with asyncio.timeout(1):
        await worker

    assert waiting == (1 if granted else 2)
    assert record == ["w"]
