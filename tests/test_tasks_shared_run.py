"""`SharedRun`, one task for many callers, and `in_thread`, a call in a thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from task_helpers import cancelled

from aioinformer._tasks import SharedRun, in_thread


class Work:
    """Work of five seconds that records the outcome of each run."""

    def __init__(self) -> None:
        self.record: list[str] = []
        self.failure: Exception | None = None

    async def do(self) -> None:
        self.record.append("began")
        try:
            await asyncio.sleep(5)
            if self.failure is not None:
                raise self.failure
        except asyncio.CancelledError:
            self.record.append("cancelled")
            raise

        self.record.append("ended")


@pytest.fixture
def work() -> Work:
    return Work()


async def test_shared_run_serves_all_callers_with_one_run(work: Work) -> None:
    run = SharedRun(work.do, "work")
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(run.wait()) for _ in range(3)]

    assert [task.result() for task in waiting] == [True] * 3
    assert work.record == ["began", "ended"]
    assert asyncio.get_running_loop().time() == 5


async def test_shared_run_outlives_a_cancelled_caller(work: Work) -> None:
    run = SharedRun(work.do, "work")
    first = asyncio.create_task(run.wait())
    second = asyncio.create_task(run.wait())
    await asyncio.sleep(1)

    await cancelled(first, after=0)

    assert await second
    assert work.record == ["began", "ended"]


async def test_shared_run_ends_with_its_last_caller(work: Work) -> None:
    run = SharedRun(work.do, "work")
    callers = [asyncio.create_task(run.wait()) for _ in range(2)]
    await asyncio.sleep(1)

    for caller in callers:
        await cancelled(caller, after=0)

    assert work.record == ["began", "cancelled"]
    assert await run.wait()
    assert work.record[2:] == ["began", "ended"]


async def test_shared_run_with_one_caller_times_out(
    work: Work,
) -> None:
    run = SharedRun(work.do, "work")

    assert not await run.wait(2)

    assert work.record == ["began", "cancelled"]


async def test_shared_run_that_is_kept_needs_no_caller(work: Work) -> None:
    run = SharedRun(work.do, "work")
    run.keep()
    caller = asyncio.create_task(run.wait())
    await asyncio.sleep(1)
    await cancelled(caller, after=0)
    await asyncio.sleep(10)

    await run.release()

    assert work.record == ["began", "ended"]


async def test_shared_run_ends_when_it_is_released(work: Work) -> None:
    run = SharedRun(work.do, "work")
    run.keep()
    run.keep()
    assert run.start() == 0
    await asyncio.sleep(1)
    assert run.start() == 1

    await run.release()
    assert work.record == ["began"]
    await run.release()
    assert work.record == ["began", "cancelled"]


async def test_shared_run_continues_after_a_wait_that_timed_out(work: Work) -> None:
    run = SharedRun(work.do, "work")
    run.keep()

    assert not await run.wait(2)
    assert await run.wait(10)
    await run.release()

    assert work.record == ["began", "ended"]


async def test_shared_run_raises_its_error_for_each_caller(work: Work) -> None:
    work.failure = ZeroDivisionError()
    run = SharedRun(work.do, "work")
    callers = [asyncio.create_task(run.wait()) for _ in range(2)]

    for caller in callers:
        with pytest.raises(ZeroDivisionError):
            await caller


async def test_in_thread_needs_no_default_executor() -> None:
    busy, pool = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.submit(busy.wait)
    try:
        thread = await in_thread(threading.current_thread)
    finally:
        busy.set()

    thread.join(10)
    assert not thread.is_alive()
    assert thread is not threading.main_thread()


async def test_in_thread_lets_other_tasks_run_before_it_returns() -> None:
    for _ in range(50):
        call = asyncio.create_task(in_thread(lambda: 1))
        await asyncio.sleep(0)

        assert not call.done()
        assert await call == 1


async def test_in_thread_raises_the_error_of_the_call() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_thread(fail)

    with pytest.raises(ZeroDivisionError):
        await in_thread(fail, stop=lambda: None)


async def test_in_thread_stops_the_call_when_it_is_cancelled() -> None:
    began, stop = threading.Event(), threading.Event()
    ended: list[bool] = []

    def call() -> None:
        began.set()
        ended.append(stop.wait(60))

    running = asyncio.create_task(in_thread(call, stop=stop.set))
    while not began.is_set():
        await asyncio.sleep(0)

    await cancelled(running, after=0)

    assert ended == [True]


async def test_in_thread_reports_that_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="can't start new thread"):
        await in_thread(lambda: None)
