"""`finish`, `unwrap_group` and `run_concurrently`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from task_helpers import cancelled, failing, slow_to_end

from aioinformer._tasks import finish, run_concurrently, unwrap_group
from aioinformer.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@pytest.fixture
def record() -> list[str]:
    return []


async def clean_up(record: list[str], seconds: float = 1.0) -> str:
    """Take some time, even if cancelled once."""
    record.append("begun")
    await asyncio.sleep(seconds)
    record.append("done")
    return "result"


# ---------------------------------------------------------------- finish


async def test_finish_returns_the_result_of_the_cleanup(record: list[str]) -> None:
    result = await finish(clean_up(record), within_seconds=2)

    assert result == "result"
    assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_finish_raises_the_error_of_the_cleanup() -> None:
    with pytest.raises(ZeroDivisionError):
        await finish(failing(), within_seconds=2)


async def test_finish_accepts_a_cleanup_that_does_not_wait() -> None:
    async def clean_up() -> int:
        return 7

    assert await finish(clean_up(), within_seconds=0) == 7


async def test_finish_cancels_a_cleanup_that_takes_too_long(
    record: list[str],
) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        await finish(clean_up(record), within_seconds=0.5)

    assert record == ["begun"]
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)


async def test_finish_waits_for_the_end_of_a_cancelled_cleanup(
    record: list[str],
) -> None:
    with pytest.raises(TimeoutError):
        await finish(slow_to_end(record), within_seconds=0.5)

    assert record == ["ending", "ended"]


async def test_finish_raises_the_error_of_a_late_cleanup() -> None:
    async def clean_up() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await finish(clean_up(), within_seconds=0.5)


async def test_finish_reports_a_cleanup_that_cancels_itself() -> None:
    async def clean_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError, match="cancelled itself"):
        await finish(clean_up(), within_seconds=1)


async def test_finish_stops_its_timer(record: list[str]) -> None:
    await finish(clean_up(record), within_seconds=60)

    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert [timer for timer in scheduled if not timer.cancelled()] == []


@pytest.mark.parametrize("times", [1, 2])
async def test_finish_defers_a_cancellation_until_the_cleanup_ends(
    record: list[str], times: int
) -> None:
    task = asyncio.create_task(finish(clean_up(record), within_seconds=5))

    await cancelled(task, after=0.3, times=times)

    assert task.cancelled()
    assert record == ["begun", "done"]
    assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_finish_starts_the_cleanup_although_it_is_cancelled_at_once(
    record: list[str],
) -> None:
    async def host() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await finish(clean_up(record), within_seconds=5)

    task = asyncio.create_task(host())
    await asyncio.wait({task})

    assert task.cancelled()
    assert record == ["begun", "done"]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("clean_up", "within", "note"),
    [
        pytest.param(lambda: failing(1), 5, "ZeroDivisionError", id="failed"),
        pytest.param(lambda: failing(9), 1, "TimeoutError", id="took-too-long"),
    ],
)
async def test_cancellation_precedes_the_failure_of_the_cleanup(
    clean_up: Callable[[], Coroutine[Any, Any, None]],
    within: float,
    note: str,
    times: int,
) -> None:
    task = asyncio.create_task(finish(clean_up(), within_seconds=within))
    await cancelled(task, after=0.3, times=times)

    with pytest.raises(asyncio.CancelledError) as raised:
        await task

    [text] = raised.value.__notes__
    assert text.startswith(f"clean-up also failed: {note}")


async def test_timeout_around_finish_ends_with_the_cleanup(
    record: list[str],
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await finish(clean_up(record), within_seconds=5)

    assert record == ["begun", "done"]


# ---------------------------------------------------------------- unwrap_group

ONE, TWO = ZeroDivisionError("one"), ZeroDivisionError("two")
PAIR = ExceptionGroup("pair", [ONE, TWO])


@pytest.mark.parametrize(
    ("group", "leaf"),
    [
        pytest.param(ExceptionGroup("", [ONE]), ONE, id="one"),
        pytest.param(
            ExceptionGroup("", [ExceptionGroup("", [ExceptionGroup("", [ONE])])]),
            ONE,
            id="nested",
        ),
        pytest.param(
            BaseExceptionGroup("", [KeyboardInterrupt("stop")]), None, id="base"
        ),
        pytest.param(PAIR, PAIR, id="two"),
    ],
)
def test_unwrap_group_returns_the_only_leaf_or_the_group(
    group: BaseExceptionGroup[BaseException], leaf: BaseException | None
) -> None:
    assert unwrap_group(group) is (leaf or group.exceptions[0])


def test_unwrap_group_keeps_the_outer_group_around_several() -> None:
    outer = ExceptionGroup("outer", [PAIR])

    assert unwrap_group(outer) is outer


# ---------------------------------------------------------------- run_concurrently


async def test_run_concurrently_runs_all_at_once(looptime: float) -> None:
    await run_concurrently(asyncio.sleep(3), asyncio.sleep(2), asyncio.sleep(1))
    await run_concurrently()

    assert looptime == 3


async def test_run_concurrently_cancels_the_others_on_failure(
    record: list[str],
) -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("failed")

    async def goes_on() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            record.append("ended")

    task = asyncio.current_task()
    with pytest.raises(ValueError, match="failed"):
        await run_concurrently(goes_on(), fails())

    assert record == ["ended"]
    assert task is not None
    assert task.cancelling() == 0


async def test_run_concurrently_fails_when_one_is_cancelled_by_other_code(
    record: list[str], looptime: float
) -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def goes_on() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            record.append("ended")

    with pytest.raises(InternalError, match="cancels_itself' cancelled itself or"):
        await run_concurrently(asyncio.sleep(0), goes_on(), cancels_itself())

    assert record == ["ended"]
    assert looptime == 0


async def test_run_concurrently_passes_a_cancellation_to_all(record: list[str]) -> None:
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            record.append("ended")

    task = asyncio.create_task(run_concurrently(cleans_up(), cleans_up()))
    await cancelled(task, after=1.0)

    assert task.cancelled()
    assert record == ["ended", "ended"]
