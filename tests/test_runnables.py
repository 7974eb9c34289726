"""`Runnables`: concurrent runs, failures and ends."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import running, settle
from task_helpers import slow_to_end

from aioinformer._runnables import Runnable, Runnables
from aioinformer.errors import AioInformerError, InternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def now() -> float:
    return asyncio.get_running_loop().time()


class Bench:
    """A group of runnables, and its failures."""

    def __init__(self, drain_seconds: float = 10.0) -> None:
        self.record: list[str] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.group = Runnables(
            lambda it, exc: self.failures.append((it.name, exc)),
            drain_seconds=drain_seconds,
        )

    def add(self, run: Callable[[], Awaitable[object]], name: str = "part") -> None:
        self.group.add(Runnable(name, run))

    def add_slow(self) -> None:
        """Add a runnable that takes a second to end."""
        self.add(lambda: slow_to_end(self.record))


async def forever() -> None:
    await asyncio.Event().wait()


async def test_runnables_added_before_and_during_run_are_started() -> None:
    bench = Bench()
    bench.add_slow()
    assert repr(bench.group) == "<Runnables 1>"

    async with running(bench.group.run()):
        await settle()
        bench.add_slow()
        await settle()
        assert repr(bench.group) == "<Runnables 2>"
        start = now()

    assert bench.record == ["ending"] * 2 + ["ended"] * 2
    assert now() - start == 1


async def test_runnable_that_returns_ends_no_other() -> None:
    bench = Bench()

    async def done() -> str:
        return "whatever"

    bench.add(done)
    async with running(bench.group.run()) as task:
        await settle()
        assert repr(bench.group) == "<Runnables 0>"
        assert not task.done()

    assert bench.failures == []


async def test_failure_is_reported_and_ends_no_other() -> None:
    bench = Bench()
    error = ValueError("boom")

    async def fails() -> None:
        raise error

    async def fails_in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    bench.add_slow()
    bench.add(fails, "one")
    bench.add(fails_in_a_group, "two")
    async with running(bench.group.run()) as task:
        await settle()
        assert not task.done()
        assert bench.record == []

    assert sorted(bench.failures, key=str) == [("one", error), ("two", error)]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks")
async def test_failure_in_the_first_step_of_an_eager_task_is_reported() -> None:
    loop: Any = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - from 3.12
    bench = Bench()
    error = ValueError("boom")

    async def fails() -> None:
        raise error

    bench.add(fails, "one")
    async with running(bench.group.run()):
        await settle()

    assert bench.failures == [("one", error)]


async def test_runnable_that_cancels_itself_has_failed() -> None:
    bench = Bench()

    async def cancels() -> None:
        raise asyncio.CancelledError("mine")

    bench.add(cancels, "odd")
    async with running(bench.group.run()):
        await settle()

    ((name, failure),) = bench.failures
    assert name == "odd"
    assert isinstance(failure, AioInformerError)
    assert str(failure) == "odd cancelled itself"
    assert isinstance(failure.__cause__, asyncio.CancelledError)


async def test_runnable_whose_task_is_cancelled_by_other_code_has_failed() -> None:
    bench = Bench()

    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await forever()

    bench.add(cancels, "odd")
    async with running(bench.group.run()):
        await settle()

    ((name, failure),) = bench.failures
    assert name == "odd"
    assert isinstance(failure, InternalError)


async def test_runnable_that_exceeds_drain_is_cancelled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, start = Bench(drain_seconds=0.5), now()
    bench.add_slow()

    async with running(bench.group.run()):
        await settle()

    assert now() - start == 0.5
    assert bench.record == ["ending"]
    assert caplog.messages == ["drain cut short after 0.5 s (still running: part)"]


async def test_second_cancellation_is_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, start = Bench(), now()
    bench.add_slow()
    async with running(bench.group.run()) as task:
        await settle()
        task.cancel()
        await asyncio.sleep(0.25)

    assert now() - start == 0.25
    assert bench.record == ["ending"]
    assert caplog.messages == [
        "drain cut short by a second cancellation (still running: part)"
    ]


async def test_hurry_before_end_skips_drain() -> None:
    bench, start = Bench(), now()
    bench.add_slow()
    async with running(bench.group.run()):
        await settle()
        bench.group.hurry("by a test")
        await asyncio.sleep(5)
        assert bench.record == [], "a failure ends no other"

    assert now() - start == 5
    assert bench.record == ["ending"], "each of its cancellations has arrived"


async def test_runnable_with_hurry_is_not_cancelled_again() -> None:
    bench, enough = Bench(drain_seconds=3.0), asyncio.Event()

    async def drains() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await enough.wait()
            bench.record.append("drained")

    bench.group.add(Runnable("own", drains, enough.set))
    start = now()
    async with running(bench.group.run()):
        await settle()

    assert now() - start == 3
    assert bench.record == ["drained"]


async def test_wait_nonempty_waits_for_first_runnable() -> None:
    bench = Bench()
    async with running(bench.group.wait_nonempty()) as task:
        await settle()
        assert not task.done()
        bench.add(forever)
        await settle()
        assert task.done()
