"""`LoopBudget`: every task gets its turn, for any work and end of the tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from budget_helpers import Clock
from hypothesis import given
from hypothesis import strategies as st

from aioinformer import budget as budget_module
from aioinformer.budget import EMPTY_TURNS, SLICE_SECONDS, LoopBudget

MILLISECOND = 0.001


@dataclass(frozen=True)
class Work:
    """Script of one task."""

    comes: int
    """Turn of its first request for a slice."""

    pieces: list[float]
    """Milliseconds of work before each check of the budget."""

    ends: bool
    """False if it hangs after its work, without returning its slice."""

    cancelled: int | None
    """Turn of its cancellation, unless it has ended."""


WORKS = st.builds(
    Work,
    comes=st.integers(0, 8),
    pieces=st.lists(st.sampled_from([0.01, 0.3, 0.9, 2.5]), min_size=1, max_size=4),
    ends=st.integers(0, 9).map(bool),
    cancelled=st.one_of(st.none(), st.none(), st.integers(1, 20)),
)


class Day:
    """A run of the tasks, turn by turn, that records their work."""

    def __init__(self, works: list[Work], clock: Clock) -> None:
        self.works = works
        self.turn = 0
        self.worked: list[tuple[int, float]] = []
        """Turn and seconds of each piece of work."""
        self.came: list[int] = []
        """Tasks in the order of their first request for a slice."""
        self.began: list[int] = []
        """Tasks in the order of their first slice."""
        self.budget = LoopBudget()
        self._clock = clock

    async def run(self) -> list[asyncio.Task[None]]:
        """Run as many turns as needed at most, and return the finished tasks."""
        tasks = [asyncio.create_task(self._work(it)) for it in range(len(self.works))]
        pieces = sum(len(work.pieces) for work in self.works)
        for self.turn in range(30 + (EMPTY_TURNS + 2) * pieces):
            for work, task in zip(self.works, tasks, strict=True):
                if work.cancelled == self.turn:
                    task.cancel()

            await asyncio.sleep(0)

        return tasks

    async def _work(self, number: int) -> None:
        work, budget = self.works[number], self.budget
        while self.turn < work.comes:
            await asyncio.sleep(0)

        self.came.append(number)
        await budget.start()
        self.began.append(number)
        for milliseconds in work.pieces:
            self.worked.append((self.turn, milliseconds * MILLISECOND))
            self._clock.work(milliseconds)
            if budget.over():
                await budget.start()

        if not work.ends:
            await asyncio.Event().wait()

        budget.end()


@given(works=st.lists(WORKS, max_size=12))
async def test_budget_grants_slices_in_order_and_leaves_turns_to_the_loop(
    works: list[Work],
) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "perf_counter", clock)
        day = Day(works, clock)
        tasks = await day.run()

        done = [task.done() for task in tasks]
        assert done == [work.ends or work.cancelled is not None for work in works]

        began = set(day.began)
        assert day.began == [number for number in day.came if number in began]

        for turn, _ in day.worked:
            last = turn + EMPTY_TURNS
            window = [took for at, took in day.worked if turn <= at <= last]
            assert sum(window[:-1]) < SLICE_SECONDS + 1e-9

        assert day.budget.statistics().waiting == 0
        late = asyncio.create_task(day.budget.start())
        for _ in range(EMPTY_TURNS + 2):
            await asyncio.sleep(0)

        assert late.done()

    for task in tasks:
        task.cancel()

    await asyncio.gather(*tasks, return_exceptions=True)
