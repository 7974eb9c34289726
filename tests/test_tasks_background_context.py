"""`BackgroundContext`: a context entered, held open and exited by its own task."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from task_helpers import cancelled

from aioinformer._tasks import BackgroundContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def record() -> list[str]:
    return []


@asynccontextmanager
async def door(
    record: list[str], *, opens: float = 1.0, closes: float = 0.0
) -> AsyncIterator[str]:
    """Take some time to enter and exit, and record the tasks."""
    task = asyncio.current_task()
    assert task is not None
    record.append(f"opening in {task.get_name()}")
    try:
        await asyncio.sleep(opens)
        yield "value"
    finally:
        await asyncio.sleep(closes)
        record.append(f"closed in {task.get_name()}")


@asynccontextmanager
async def broken(*, at_once: bool) -> AsyncIterator[None]:
    if at_once:
        raise ZeroDivisionError

    yield
    raise ZeroDivisionError


async def test_context_is_entered_and_exited_in_its_own_task(record: list[str]) -> None:
    held = BackgroundContext(door(record), "porter")

    assert await held.value() == "value"
    assert await held.value() == "value", "any number of times"
    await held.leave()
    await held.leave()

    assert held.left
    assert record == ["opening in porter", "closed in porter"]


async def test_entry_starts_concurrently(record: list[str]) -> None:
    held = BackgroundContext(door(record, opens=3), "porter")
    await asyncio.sleep(2)

    await held.value()
    assert asyncio.get_running_loop().time() == pytest.approx(3)

    await held.leave()


async def test_error_on_entry_is_raised() -> None:
    held = BackgroundContext(broken(at_once=True), "porter")

    with pytest.raises(ZeroDivisionError):
        await held.value()

    await held.leave()


async def test_error_on_exit_is_raised() -> None:
    held = BackgroundContext(broken(at_once=False), "porter")
    await held.value()

    with pytest.raises(ZeroDivisionError):
        await held.leave()


async def test_error_that_nobody_awaits_is_not_reported() -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reports.append(context)
    )
    held = BackgroundContext(broken(at_once=True), "porter")
    await asyncio.sleep(1)

    await held.leave()
    del held
    await asyncio.sleep(1)

    assert reports == []


async def test_wait_for_the_value_can_be_cancelled(record: list[str]) -> None:
    held = BackgroundContext(door(record, opens=3), "porter")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await held.value()

    assert await held.value() == "value"
    await held.leave()


@pytest.mark.parametrize("begun", [False, True])
async def test_exit_cancels_an_unfinished_entry(
    record: list[str], *, begun: bool
) -> None:
    held = BackgroundContext(door(record, opens=1000), "porter")
    if begun:
        await asyncio.sleep(1)

    await held.leave()

    assert asyncio.get_running_loop().time() == pytest.approx(float(begun))
    assert record == ["opening in porter", "closed in porter"] * begun
    with pytest.raises(asyncio.CancelledError):
        await held.value()


async def test_drop_does_not_wait(record: list[str]) -> None:
    held = BackgroundContext(door(record, closes=2), "porter")
    await held.value()

    held.drop()
    held.drop()
    left = [held.left]
    await asyncio.sleep(2.1)
    left.append(held.left)

    assert left == [False, True]


async def test_cancelled_exit_waits_for_its_end(record: list[str]) -> None:
    held = BackgroundContext(door(record, closes=2), "porter")
    await held.value()

    leaving = asyncio.create_task(held.leave())
    await cancelled(leaving, after=0.5, times=2)

    assert leaving.cancelled()
    assert held.left
    assert record[-1] == "closed in porter"
