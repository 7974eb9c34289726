"""`LoopBudget`: order of work, counted in turns of the loop and scripted seconds."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from budget_helpers import Clock, heavy
from hypothesis import given
from hypothesis import strategies as st

from aioinformer import budget as budget_module
from aioinformer.budget import (
    EMPTY_TURNS,
    SLICE_SECONDS,
    BudgetStatistics,
    LoopBudget,
    release,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """A counter of the turns of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.number = 0
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budget_module, "perf_counter", clock)
    return clock


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    turns = Turns()
    yield turns
    turns.stop()


# ---------------------------------------------------------------- one slice


async def test_slices_without_waiting_tasks_leave_no_state(clock: Clock) -> None:
    budget = LoopBudget.current()

    for _ in range(100):
        await budget.start()
        budget.end()

    assert budget._together == 1


async def test_start_returns_at_once_on_an_idle_loop(clock: Clock) -> None:
    with pytest.raises(StopIteration):
        LoopBudget.current().start().send(None)


async def test_slice_ends_after_two_milliseconds(clock: Clock) -> None:
    budget = LoopBudget.current()
    await budget.start()

    history = [budget.over()]
    for _ in range(3):
        clock.work(0.9)
        history.append(budget.over())

    assert history == [False, False, False, True]


async def test_budget_is_over_outside_a_slice(clock: Clock) -> None:
    assert LoopBudget.current().over()


async def test_rest_of_a_slice_goes_to_the_next_task(clock: Clock) -> None:
    budget = LoopBudget.current()
    await budget.start()
    clock.work(1.5)
    budget.end()
    budget.end()  # without effect

    with pytest.raises(StopIteration):
        budget.start().send(None)

    clock.work(0.4)
    in_time = not budget.over()
    clock.work(0.2)

    assert in_time
    assert budget.over()


async def test_slice_is_full_again_after_a_pause_of_its_length(
    clock: Clock,
) -> None:
    budget = LoopBudget.current()
    await budget.start()
    clock.work(5)
    budget.end()
    clock.work(2.1)

    with pytest.raises(StopIteration):
        budget.start().send(None)

    clock.work(1.9)
    assert not budget.over()


async def test_start_within_a_slice_continues_it(clock: Clock) -> None:
    """A function that starts by itself may be called by one that holds the slice."""
    budget = LoopBudget.current()
    await budget.start()
    clock.work(1.5)

    with pytest.raises(StopIteration):
        budget.start().send(None)

    clock.work(0.6)
    assert budget.over()


# ---------------------------------------------------------------- turns


async def test_three_turns_are_free_between_two_slices_of_one_task(
    clock: Clock, turns: Turns
) -> None:
    budget = LoopBudget.current()
    worked_in: list[int] = []
    await budget.start()
    for _ in range(12):
        worked_in.append(turns.number)
        clock.work(0.9)
        if budget.over():
            await budget.start()

    budget.end()

    slices = worked_in[::3]
    assert worked_in == [turn for turn in slices for _ in range(3)]
    gaps = {after - before for before, after in pairwise(slices)}
    assert gaps == {EMPTY_TURNS + 1}


@pytest.mark.parametrize("tasks", [2, 5])
async def test_one_task_works_at_a_time_with_three_free_turns_between(
    clock: Clock, turns: Turns, tasks: int
) -> None:
    budget = LoopBudget.current()
    worked_in: list[tuple[int, int]] = []

    async def work(number: int) -> None:
        for _ in range(4):
            await budget.start()
            worked_in.append((turns.number, number))
            clock.work(3)

        budget.end()

    await budget.start()
    clock.work(3)
    budget.end()
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(work(number))

    in_turns = [turn for turn, _ in worked_in]
    gaps = {after - before for before, after in pairwise(in_turns)}
    assert gaps == {EMPTY_TURNS + 1}
    assert [number for _, number in worked_in] == [*range(tasks)] * 4


async def test_short_tasks_share_a_slice(clock: Clock, turns: Turns) -> None:
    """All start in one turn without waiters, then twice as many in each turn."""
    worked_in = await in_turns(clock, turns, [0.5] * 10)

    first = worked_in[0]
    assert worked_in[:4] == [first] * 4
    second = first + EMPTY_TURNS + 1
    assert worked_in[4:8] == [second, second + 1, second + 1, second + 2]
    third = second + 2 + EMPTY_TURNS + 1
    assert worked_in[8:] == [third, third + 1]


async def test_each_turn_of_a_slice_admits_twice_as_many_tasks(
    clock: Clock, turns: Turns
) -> None:
    worked_in = await in_turns(clock, turns, [3.0] + [0.1] * 18)

    second = worked_in[0] + EMPTY_TURNS + 1
    assert [turn - second for turn in worked_in[1:]] == (
        [0] + [1] * 2 + [2] * 4 + [3] * 8 + [4] * 3
    )


async def test_task_admitted_too_late_keeps_its_place(
    clock: Clock, turns: Turns
) -> None:
    """Of the four that are called together, the first leaves nothing to the others."""
    worked_in = await in_turns(clock, turns, [3.0, 0.1, 0.1, 0.1, 2.5] + [0.9] * 4)

    third = worked_in[4] + EMPTY_TURNS + 1
    assert worked_in[5:] == [third, third + 1, third + 1, third + 2 + EMPTY_TURNS]
    assert worked_in == sorted(worked_in)


async def in_turns(clock: Clock, turns: Turns, works: list[float]) -> list[int]:
    """Return the turn of each work of so many milliseconds."""
    budget = LoopBudget.current()
    worked_in: list[int] = [0] * len(works)

    async def work(number: int) -> None:
        await budget.start()
        worked_in[number] = turns.number
        clock.work(works[number])
        budget.end()

    async with asyncio.TaskGroup() as group:
        for number in range(len(works)):
            group.create_task(work(number))

    return worked_in


async def test_task_that_never_ends_its_slice_delays_no_other(
    clock: Clock, turns: Turns
) -> None:
    budget = LoopBudget.current()
    worked_in: list[int] = []

    async def work() -> None:
        await budget.start()
        worked_in.append(turns.number)
        clock.work(0.5)

    async with asyncio.TaskGroup() as group:
        for _ in range(7):
            group.create_task(work())

    gaps = [after - before for before, after in pairwise(worked_in[4:])]
    assert gaps == [EMPTY_TURNS + 1] * 2


async def test_tasks_take_turns_in_the_order_of_their_start(clock: Clock) -> None:
    """The first task works at once, so it is also the first to wait again.

    A task without further work leaves the rest of its slice to the next.
    """
    record: list[str] = []

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(heavy(clock, 7, record, name))

    assert "".join(record) == "aaa|aaa|bbb|ccc|abb|ccc|bbc|"


async def test_light_work_continues_between_the_slices(clock: Clock) -> None:
    """Three turns of another task, such as a request, come between two slices."""
    record: list[str] = []

    async def request() -> None:
        for _ in range(8):
            record.append(".")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(heavy(clock, 8, record, "w"))
        group.create_task(request())

    assert "".join(record) == "www|....www|....ww"


@given(plan=st.lists(st.integers(min_value=1, max_value=9), max_size=6))
async def test_work_never_exceeds_a_slice_and_a_step(plan: list[int]) -> None:
    """Any four turns contain at most 2 ms of work and one step."""
    clock = Clock()
    patch = pytest.MonkeyPatch()
    patch.setattr(budget_module, "perf_counter", clock)
    turns = Turns()
    steps: list[int] = []
    budget = LoopBudget()

    async def work(count: int) -> None:
        await budget.start()
        for _ in range(count):
            steps.append(turns.number)
            clock.work(0.9)
            if budget.over():
                await budget.start()

        budget.end()

    try:
        async with asyncio.TaskGroup() as group:
            for count in plan:
                group.create_task(work(count))
    finally:
        patch.undo()
        turns.stop()

    assert len(steps) == sum(plan)
    for turn in steps:
        window = [step for step in steps if turn <= step < turn + EMPTY_TURNS + 1]
        assert len(window) <= 3


# ---------------------------------------------------------------- statistics


async def test_statistics_count_the_used_time(clock: Clock) -> None:
    budget = LoopBudget.current()
    idle = budget.statistics()
    for milliseconds in (1, 3, 9, 11, 4):
        await budget.start()
        clock.work(milliseconds)
        budget.end()
        clock.work(3)

    busy = budget.statistics()

    assert idle == BudgetStatistics(slices=0, stalls=0, longest=0.0, waiting=0)
    assert (busy.slices, busy.stalls, busy.waiting) == (4, 1, 0)
    assert busy.longest == pytest.approx(0.011)


# ---------------------------------------------------------------- budgets of loops


async def test_tasks_of_one_loop_share_a_budget() -> None:
    async def other() -> LoopBudget:
        return LoopBudget.current()

    assert await asyncio.create_task(other()) is LoopBudget.current()


def test_each_loop_has_its_own_budget_that_ends_with_it() -> None:
    async def current() -> tuple[LoopBudget, weakref.ref[asyncio.AbstractEventLoop]]:
        budget = LoopBudget.current()
        for _ in range(2):
            await budget.start()
            while not budget.over():
                pass

        return budget, weakref.ref(asyncio.get_running_loop())

    before = len(budget_module._BUDGETS)
    one, first_loop = asyncio.run(current())
    two, second_loop = asyncio.run(current())
    gc.collect()

    assert one is not two
    assert first_loop() is None
    assert second_loop() is None
    assert len(budget_module._BUDGETS) <= before


def test_budget_requires_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        LoopBudget.current()


async def test_budget_uses_real_time_on_a_loop_with_virtual_time() -> None:
    budget = LoopBudget.current()
    loop = asyncio.get_running_loop()
    virtual = loop.time()

    await budget.start()
    began = time.perf_counter()
    while not budget.over():
        pass

    took = time.perf_counter() - began
    await asyncio.sleep(0)
    budget.end()

    assert took > SLICE_SECONDS * 0.9
    assert loop.time() == virtual
    assert budget.statistics().slices == 1


async def test_many_objects_are_released_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("aioinformer.budget.perf_counter", clock)

    class Costly:
        def __del__(self) -> None:
            clock.work(0.9)

    objects = [Costly() for _ in range(9)]
    left: list[int] = []

    async def watch() -> None:
        while objects:
            left.append(len(objects))
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        group.create_task(release(objects))

    assert list(dict.fromkeys(left)) == [9, 6, 3]
    assert LoopBudget.current().statistics().longest < 0.003
