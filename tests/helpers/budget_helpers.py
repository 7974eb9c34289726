"""Clocks and work for tests of the loop's budget."""

from __future__ import annotations

from aioinformer.budget import LoopBudget


class Clock:
    """A replacement for `perf_counter` that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, milliseconds: float) -> None:
        self.now += milliseconds / 1000


async def heavy(clock: Clock, steps: int, record: list[str], name: str) -> None:
    """Work in steps of 0.9 ms, three in each slice of a `LoopBudget`."""
    budget = LoopBudget.current()
    await budget.start()
    for _ in range(steps):
        record.append(name)
        clock.work(0.9)
        if budget.over():
            record.append("|")
            await budget.start()

    budget.end()
