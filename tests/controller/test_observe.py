"""Observers of a controller's reconciles."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Acts, Notes, Slow, controlled, named
from informer_helpers import running, settle

from aioinformer import Controller, PriorityQueue, ReconcileRequest, Result
from aioinformer.controller.status import MOST_CHARACTERS
from aioinformer.errors import OptionsError, TerminalError
from aioinformer.workqueue import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from aioinformer.controller import Context, EndedReconcile


async def test_observer_gets_each_end_of_a_reconcile() -> None:
    answers: list[Any] = [
        ValueError("x" * 5000),
        Result(requeue_after=30),
        TerminalError("given up"),
        None,
    ]

    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        await asyncio.sleep(2)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer

        return answer  # type: ignore[no-any-return]

    ended: list[EndedReconcile] = []
    limiter = ItemExponentialFailureRateLimiter(5, 5)
    queue = PriorityQueue[ReconcileRequest](rate_limiter=limiter)
    clock = asyncio.get_running_loop().time
    async with controlled(Acts(act), queue=queue) as (source, controller):
        controller.observe(ended.append)
        source.add(named("a"))
        await settle()
        began = clock()
        await asyncio.sleep(60)
        source.modify(named("a", labels={"x": "y"}))
        await asyncio.sleep(3)

    failed, requeued, given_up, done = ended
    assert {it.request.key for it in ended} == {"default/a"}
    assert [it.seconds for it in ended] == pytest.approx([2] * 4, abs=0.1)
    assert failed.at == pytest.approx(began + 2, abs=0.1)
    assert (failed.error, len(failed.message)) == ("ValueError", MOST_CHARACTERS)
    assert failed.attempt == 1
    assert failed.retry_in == pytest.approx(5)
    assert (requeued.attempt, requeued.error, requeued.message) == (2, "", "")
    assert [it.change for it in requeued.causes] == ["retry"]
    assert (requeued.retry_in, requeued.requeue_after) == (None, 30)
    assert (given_up.error, given_up.message) == ("TerminalError", "given up")
    assert (given_up.retry_in, given_up.requeue_after) == (None, None)
    assert [it.change for it in done.causes] == ["updated"]


async def test_observer_that_raises_is_logged_and_harms_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(ended: EndedReconcile) -> None:
        raise ValueError("broken observer")

    ended: list[EndedReconcile] = []
    async with controlled(Notes()) as (source, controller):
        controller.observe(fail)
        controller.observe(ended.append)
        source.add(named("a"))
        await settle()

    assert len(ended) == 1
    (record,) = [it for it in caplog.records if it.levelno == logging.ERROR]
    assert record.message == "controller pods: observer failed (key=default/a)"


async def test_observer_is_removed_alone_even_by_itself() -> None:
    ended: list[EndedReconcile] = []

    def once(_: EndedReconcile) -> None:
        remove()

    async with controlled(Notes()) as (source, controller):
        remove = controller.observe(once)
        removals = [controller.observe(ended.append) for _ in range(2)]
        for number, expected in ((0, 2), (1, 3), (1, 4)):
            source.add(named(f"{number}-{expected}"))
            await settle()
            assert len(ended) == expected
            removals[0]()


async def test_observer_stays_for_later_runs() -> None:
    ended: list[EndedReconcile] = []
    async with controlled(Notes()) as (source, controller):
        controller.observe(ended.append)
        source.add(named("a"))
        await settle()
        again = Controller("again", Notes(), for_=controller.informers[0])
        again.observe(ended.append)
        for _ in range(2):
            async with running(again.run()):
                await settle()

    assert len(ended) == 3


async def test_reconcile_cancelled_by_the_stop_is_not_observed() -> None:
    ended: list[EndedReconcile] = []
    async with controlled(Slow(), drain_timeout=1) as (source, controller):
        controller.observe(ended.append)
        source.add(named("a"))
        await settle()

    assert ended == []


async def test_coroutine_function_is_refused_as_observer() -> None:
    async def observer(ended: EndedReconcile) -> None:
        raise AssertionError

    async with controlled(Notes()) as (_, controller):
        with pytest.raises(OptionsError, match="an observer must be a plain function"):
            controller.observe(observer)  # type: ignore[arg-type]
