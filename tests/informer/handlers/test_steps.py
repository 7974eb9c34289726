"""`TimedCoroutine`: transparent for the awaited coroutine, with measured steps."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from budget_helpers import Clock

from aioinformer.informer.handlers.handler_calls import TimedCoroutine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Ready:
    """An awaitable without a coroutine that does not wait."""

    def __await__(self) -> Generator[None, None, int]:
        yield from ()
        return 5


class Waits:
    """An awaitable without a coroutine that waits for one turn."""

    def __await__(self) -> Generator[None, None, int]:
        yield
        return 5


async def at_once() -> int:
    return 5


async def later() -> int:
    await asyncio.sleep(0)
    return await asyncio.sleep(5, 5)


def resolved() -> asyncio.Future[int]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(5)
    return future


@pytest.mark.parametrize(
    "awaitable",
    [at_once, later, Ready, Waits, resolved, lambda: asyncio.create_task(later())],
    ids=["at-once", "later", "ready", "waits", "future", "task"],
)
async def test_steps_return_the_result_of_the_awaitable(
    awaitable: Callable[[], Any],
) -> None:
    assert await TimedCoroutine(awaitable()) == 5


async def test_steps_run_a_coroutine_with_all_its_waits(looptime: float) -> None:
    record: list[object] = []

    async def work() -> None:
        for step in range(3):
            await asyncio.sleep(2)
            record.append(step)

    steps = TimedCoroutine(work())
    record.append("not begun")
    await steps

    assert record == ["not begun", 0, 1, 2]
    assert looptime == 6


async def test_result_of_a_wait_reaches_the_coroutine() -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return f"an {await future}"

    asyncio.get_running_loop().call_soon(future.set_result, "answer")

    assert await TimedCoroutine(work()) == "an answer"


async def test_error_of_a_wait_reaches_the_coroutine() -> None:
    future = asyncio.get_running_loop().create_future()

    async def work() -> None:
        with pytest.raises(KeyError, match="lost"):
            await future

        raise ValueError("found")

    asyncio.get_running_loop().call_soon(future.set_exception, KeyError("lost"))
    with pytest.raises(ValueError, match="found"):
        await TimedCoroutine(work())


async def test_timeout_inside_the_coroutine_works(looptime: float) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.Event().wait()

        await asyncio.sleep(1)

    steps = TimedCoroutine(work())
    await steps

    assert looptime == 4
    assert steps.own_cancels == 0


async def test_cancellation_reaches_the_coroutine() -> None:
    record = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            record.append("cleaned up")

    async def run() -> None:
        await TimedCoroutine(work())

    task = asyncio.create_task(run())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert record == ["cleaned up"]


async def test_close_closes_the_coroutine() -> None:
    record = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
        except GeneratorExit:
            record.append("closed")
            raise

    steps = TimedCoroutine(work())
    steps.send(None)
    steps.close()

    assert record == ["closed"]


async def test_longest_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(
        "aioinformer.informer.handlers.handler_calls.perf_counter", clock
    )

    async def work() -> None:
        clock.work(milliseconds=10)
        await asyncio.sleep(0)
        clock.work(milliseconds=20)
        await asyncio.sleep(1)

    steps = TimedCoroutine(work())
    before = steps.longest
    await steps

    assert before == 0.0
    assert steps.longest == pytest.approx(0.02)


async def test_cancellations_of_its_own_task_are_counted() -> None:
    inside: list[int] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        inside.append(steps.own_cancels_so_far())
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            task.cancel()
            inside.append(steps.own_cancels_so_far())

    steps = TimedCoroutine(work())
    await steps
    task = asyncio.current_task()
    assert task is not None
    while task.cancelling():
        task.uncancel()

    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # before Python 3.13 the second one arrives here

    assert inside == [1, 2]
    assert steps.own_cancels == 2


async def test_cancellations_taken_back_are_not_counted() -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)

        task.uncancel()
        await asyncio.sleep(0)

    steps = TimedCoroutine(work())
    await steps

    assert steps.own_cancels == 0


async def test_cancellations_by_others_are_not_counted() -> None:
    counts = []

    async def work(steps: list[TimedCoroutine]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            counts.append(steps[0].own_cancels_so_far())
            await asyncio.sleep(0)
            raise

    async def run() -> None:
        itself: list[TimedCoroutine] = []
        itself.append(steps := TimedCoroutine(work(itself)))
        try:
            await steps
        finally:
            counts.append(steps.own_cancels)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    assert counts == [0, 0]


async def test_steps_are_their_own_iterator() -> None:
    steps = TimedCoroutine(Waits())

    assert iter(steps) is steps
    assert list(steps) == [None]
