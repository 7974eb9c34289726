"""Coroutines that fail or end slowly, and cancellations of tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def failing(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)
    raise ZeroDivisionError("in the clean-up")


async def slow_to_end(record: list[str]) -> None:
    """Run until cancelled, then take 1 s to end."""
    try:
        await asyncio.Event().wait()
    finally:
        record.append("ending")
        await asyncio.sleep(1)
        record.append("ended")


async def cancelled(task: asyncio.Task[Any], *, after: float, times: int = 1) -> None:
    """Cancel a task several times, 0.1 s apart, and wait for its end."""
    await asyncio.sleep(after)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.1)

    await asyncio.wait({task})


async def cancelled_after(
    life: Coroutine[Any, Any, Any], turns: int, times: int = 1, *, moment: float = 0.0
) -> asyncio.Task[Any]:
    """Run a coroutine for a time and some turns, then cancel it and wait for its end."""
    task = asyncio.create_task(life)
    if moment:
        await asyncio.sleep(moment)

    for _ in range(turns):
        await asyncio.sleep(0)

    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)

    await asyncio.wait({task})
    return task
