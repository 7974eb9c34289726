"""`Workers`: retries, requeues, timeouts and concurrency."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, Notes, controlled, named
from metrics_helpers import PlainSink

from aioinformer import PriorityQueue, ReconcileRequest, Result, TerminalError
from aioinformer.testing import FakeListerWatcher
from aioinformer.workqueue import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from aioinformer.controller import Context
    from aioinformer.errors import HandlerError


def one() -> FakeListerWatcher:
    return FakeListerWatcher(named("a"))


class Clocked(Notes):
    """Reconcile that records its calls, and returns the next scripted result."""

    def __init__(self, *script: Any) -> None:
        super().__init__()
        self.script = list(script)
        self.times: list[float] = []

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        self.times.append(asyncio.get_running_loop().time())
        step = self.script.pop(0) if self.script else None
        if isinstance(step, BaseException):
            raise step

        if callable(step):
            step = await step()

        answer: Result | None = step
        return answer

    @property
    def gaps(self) -> list[float]:
        pairs = zip(self.times, self.times[1:], strict=False)
        return [round(later - sooner, 3) for sooner, later in pairs]


def doubling() -> PriorityQueue[ReconcileRequest]:
    return PriorityQueue(rate_limiter=ItemExponentialFailureRateLimiter(1.0, 1000.0))


# ---------------------------------------------------------------- what becomes of it


async def test_failure_is_retried_with_backoff() -> None:
    notes = Clocked(*[ValueError("boom")] * 4)
    async with controlled(notes, one(), queue=doubling()):
        await asyncio.sleep(100)

    assert notes.gaps == [1, 2, 4, 8]
    assert [ctx.attempt for ctx in notes.contexts] == [1, 2, 3, 4, 5]
    assert [ctx.causes[0].change for ctx in notes.contexts[1:]] == ["retry"] * 4


async def test_success_forgets_failures() -> None:
    notes = Clocked(ValueError(), ValueError(), None, ValueError())
    async with controlled(notes, one(), queue=doubling()) as (source, _):
        await asyncio.sleep(10)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(10)

    assert [ctx.attempt for ctx in notes.contexts] == [1, 2, 3, 1, 2]


async def test_requeue_after_reconciles_again_later() -> None:
    notes = Clocked(Result(requeue_after=30), Result(requeue_after=60), Result())
    async with controlled(notes, one()):
        await asyncio.sleep(1000)

    assert notes.gaps == [30, 60]
    assert [ctx.causes[0].change for ctx in notes.contexts] == [
        "initial",
        "requeue",
        "requeue",
    ]


@pytest.mark.parametrize("seconds", [0, -5])
async def test_immediate_requeues_back_off_while_they_repeat(seconds: int) -> None:
    notes = Clocked(*[Result(requeue_after=seconds)] * 4)
    async with controlled(notes, one(), queue=doubling()):
        await asyncio.sleep(100)

    assert notes.gaps == [1, 2, 4, 8]
    assert [ctx.causes[0].change for ctx in notes.contexts[1:]] == ["requeue"] * 4


async def test_requeue_after_forgets_failures() -> None:
    notes = Clocked(ValueError(), Result(requeue_after=5), ValueError())
    async with controlled(notes, one(), queue=doubling()):
        await asyncio.sleep(100)

    assert notes.gaps == [1, 5, 1]


async def test_terminal_error_waits_for_change() -> None:
    notes = Clocked(ValueError(), TerminalError("never"))
    async with controlled(notes, one(), queue=doubling()) as (source, _):
        await asyncio.sleep(10_000)
        assert len(notes.names) == 2

        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(1)

    assert [ctx.attempt for ctx in notes.contexts] == [1, 2, 1]


class Broken:
    """Rate limiter with a bug."""

    def when(self, item: ReconcileRequest) -> float:
        raise KeyError(item)

    def forget(self, item: ReconcileRequest) -> None:
        raise asyncio.CancelledError

    def num_requeues(self, item: ReconcileRequest) -> int:
        raise ZeroDivisionError


async def test_failing_rate_limiter_loses_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes = Clocked(ValueError("boom"), ValueError("boom"), None, None)
    queue = PriorityQueue[ReconcileRequest](rate_limiter=Broken())
    async with controlled(notes, one(), queue=queue) as (source, _):
        await asyncio.sleep(100)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(1)

    assert notes.gaps == [10, 10, 80]
    assert [ctx.attempt for ctx in notes.contexts] == [1, 1, 1, 1]
    messages = [it.message for it in caplog.records if it.name.endswith("workers")]
    assert sum("retrying in 10 s" in it for it in messages) == 2
    assert sum("failed to forget" in it for it in messages) == 2
    assert sum("failed to count attempts" in it for it in messages) == 4


async def test_change_reconciles_during_backoff() -> None:
    notes = Clocked(Result(requeue_after=1000))
    async with controlled(notes, one()) as (source, _):
        await asyncio.sleep(10)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(1)

    assert notes.gaps == [10]


async def test_requeue_stays_due_after_earlier_change() -> None:
    notes = Clocked(Result(requeue_after=100))
    async with controlled(notes, one()) as (source, _):
        await asyncio.sleep(10)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(1000)

    assert notes.gaps == [10, 90]
    assert [ctx.causes[0].change for ctx in notes.contexts] == [
        "initial",
        "updated",
        "requeue",
    ]


async def test_change_during_reconcile_reconciles_again() -> None:
    async def slowly() -> Result:
        await asyncio.sleep(5)
        return Result(requeue_after=1000)

    notes = Clocked(slowly)
    async with controlled(notes, one()) as (source, _):
        await asyncio.sleep(1)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(10)

    assert notes.gaps == [5]


async def test_retry_keeps_priority() -> None:
    async def act(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(1)
        if request.name == "old-0" and ctx.attempt == 1:
            raise ValueError("boom")

    notes = Acts(act)
    source = FakeListerWatcher(named("old-0"), named("old-1"), named("old-2"))
    async with controlled(notes, source, concurrency=1):
        await asyncio.sleep(1.5)
        source.add(named("new"))
        await asyncio.sleep(10)

    assert notes.names == ["old-0", "old-1", "new", "old-2", "old-0"]


# ---------------------------------------------------------------- how they run


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_concurrency_limits_running_reconciles(concurrency: int) -> None:
    under_way, most = 0, 0

    async def act(request: ReconcileRequest, ctx: Context) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1

    source = FakeListerWatcher(*(named(str(n)) for n in range(20)))
    notes = Acts(act)
    async with controlled(notes, source, concurrency=concurrency):
        await asyncio.sleep(100)

    assert most == concurrency
    assert len(notes.names) == 20


async def test_hanging_reconcile_times_out() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    sink = PlainSink()
    notes = Clocked(hang)
    async with controlled(notes, one(), timeout=30, queue=doubling(), metrics=sink):
        await asyncio.sleep(100)

    assert notes.gaps == [31]
    assert sink.counts["controller_runtime_reconcile_timeouts_total", ("pods",)] == 1
    assert sink.counts["controller_runtime_reconcile_errors_total", ("pods",)] == 1


async def test_timeout_error_of_reconcile_is_not_a_timeout() -> None:
    sink = PlainSink()
    async with controlled(
        Clocked(TimeoutError("mine")), one(), timeout=30, metrics=sink
    ):
        await asyncio.sleep(1)

    assert sink.counts["controller_runtime_reconcile_timeouts_total", ("pods",)] == 0
    assert sink.counts["controller_runtime_reconcile_errors_total", ("pods",)] == 1


async def test_failure_at_timeout_counts_as_timeout() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("boom")

    sink = PlainSink()
    async with controlled(
        Clocked(fail_when_cancelled), one(), timeout=30, metrics=sink
    ):
        await asyncio.sleep(40)

    assert sink.counts["controller_runtime_reconcile_timeouts_total", ("pods",)] == 1


async def test_long_reconcile_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def long() -> None:
        await asyncio.sleep(1000)

    caplog.set_level(logging.WARNING)
    async with controlled(Clocked(long), one()):
        await asyncio.sleep(500)
        assert len(caplog.records) == 1
        assert "reconcile has been running for" in caplog.text
        await asyncio.sleep(600)


async def cancel_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_task_and_wait() -> None:
    await cancel_task()
    await asyncio.sleep(1)


async def raise_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("act", [cancel_task, cancel_task_and_wait, raise_cancelled])
async def test_reconcile_that_cancels_itself_has_failed(
    act: Any, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[HandlerError] = []
    notes = Clocked(act)
    async with controlled(notes, one(), queue=doubling(), on_error=failures.append) as (
        source,
        _,
    ):
        await asyncio.sleep(10)
        source.add(named("b"))
        await asyncio.sleep(1)

    assert notes.names == ["a", "a", "b"]
    assert notes.gaps[0] == 1
    assert isinstance(failures[0].__cause__, asyncio.CancelledError)
    assert "(key=default/a attempt=1, will be retried): CancelledError" in caplog.text


async def test_reconcile_that_raises_a_base_exception_is_retried() -> None:
    failures: list[HandlerError] = []

    async def fail() -> None:
        pytest.fail("not as expected")

    notes = Clocked(fail)
    async with controlled(notes, one(), queue=doubling(), on_error=failures.append):
        await asyncio.sleep(1.5)

    assert notes.names == ["a", "a"]
    assert isinstance(failures[0].__cause__, pytest.fail.Exception)


async def test_context_variables_are_separate_for_each_reconcile() -> None:
    seen: list[str] = []
    marker: ContextVar[str] = ContextVar("marker", default="none")

    async def mark() -> None:
        seen.append(marker.get())
        marker.set("set")

    async with controlled(Clocked(mark, mark), one()) as (source, _):
        await asyncio.sleep(1)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(1)

    assert seen == ["none", "none"]
