"""`Crew`: parts that run side by side, and how they are ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from informer_helpers import running, settle
from task_helpers import slow_to_end

from aioinformer.controller.crew import Crew, Part
from aioinformer.errors import AioInformerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest


def now() -> float:
    return asyncio.get_running_loop().time()


class Stage:
    """A crew, and what it has told."""

    def __init__(self, drain_seconds: float = 10.0) -> None:
        self.record: list[str] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.crew = Crew(drain_seconds, lambda *failure: self.failures.append(failure))

    def add(self, run: Callable[[], Awaitable[object]], name: str = "part") -> None:
        self.crew.add(Part(name, run))

    def add_slow(self) -> None:
        """One that takes a second to end."""
        self.add(lambda: slow_to_end(self.record))


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_runs_what_was_added_before_and_what_comes_later() -> None:
    stage = Stage()
    stage.add_slow()
    assert repr(stage.crew) == "<Crew of 1>"

    async with running(stage.crew.run()):
        await settle()
        stage.add_slow()
        await settle()
        assert repr(stage.crew) == "<Crew of 2>"
        start = now()

    assert stage.record == ["ending"] * 2 + ["ended"] * 2
    assert now() - start == 1


async def test_a_part_that_is_done_ends_nothing() -> None:
    stage = Stage()

    async def done() -> str:
        return "whatever"

    stage.add(done)
    async with running(stage.crew.run()) as task:
        await settle()
        assert repr(stage.crew) == "<Crew of 0>"
        assert not task.done()

    assert stage.failures == []


async def test_a_failure_is_told_and_ends_nothing_else() -> None:
    stage = Stage()
    error = ValueError("boom")

    async def fails() -> None:
        raise error

    async def fails_in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    stage.add_slow()
    stage.add(fails, "one")
    stage.add(fails_in_a_group, "two")
    async with running(stage.crew.run()) as task:
        await settle()
        assert not task.done()
        assert stage.record == []

    assert sorted(stage.failures, key=str) == [("one", error), ("two", error)]


async def test_a_part_that_cancels_itself_has_failed() -> None:
    stage = Stage()

    async def cancels() -> None:
        raise asyncio.CancelledError("mine")

    stage.add(cancels, "odd")
    async with running(stage.crew.run()):
        await settle()

    ((name, failure),) = stage.failures
    assert name == "odd"
    assert isinstance(failure, AioInformerError)
    assert str(failure) == "odd has cancelled itself"
    assert isinstance(failure.__cause__, asyncio.CancelledError)


async def test_who_does_not_end_in_time_is_cancelled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage, start = Stage(drain_seconds=0.5), now()
    stage.add_slow()

    async with running(stage.crew.run()):
        await settle()

    assert now() - start == 0.5
    assert stage.record == ["ending"]
    assert caplog.messages == ["cut short before they had ended: part"]


async def test_a_second_cancellation_is_passed_on() -> None:
    stage, start = Stage(), now()
    stage.add_slow()
    async with running(stage.crew.run()) as task:
        await settle()
        task.cancel()
        await asyncio.sleep(0.25)

    assert now() - start == 0.25
    assert stage.record == ["ending"]


async def test_one_that_was_to_hurry_before_its_end_cancels_twice() -> None:
    stage, start = Stage(), now()
    stage.add_slow()
    async with running(stage.crew.run()):
        await settle()
        stage.crew.hurry()
        await asyncio.sleep(5)
        assert stage.record == [], "it ends nobody by itself"

    assert now() - start == 5
    assert stage.record == ["ending"], "each of its cancellations has arrived"


async def test_a_part_may_have_its_own_way_to_hurry() -> None:
    stage, enough = Stage(drain_seconds=3.0), asyncio.Event()

    async def drains() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await enough.wait()
            stage.record.append("drained")

    stage.crew.add(Part("own", drains, enough.set))
    start = now()
    async with running(stage.crew.run()):
        await settle()

    assert now() - start == 3
    assert stage.record == ["drained"]


async def test_waits_until_a_part_is_wanted() -> None:
    stage = Stage()
    async with running(stage.crew.wanted()) as task:
        await settle()
        assert not task.done()
        stage.add(for_ever)
        await settle()
        assert task.done()
