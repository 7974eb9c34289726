"""The status of a controller: running reconciles and failing requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Acts, Slow, controlled, named
from informer_helpers import settle

from aioinformer import ReconcileRequest, Result
from aioinformer.controller.status import MOST_CHARACTERS, MOST_FAILURES, Failures
from aioinformer.errors import TerminalError
from aioinformer.workqueue import WorkQueue

if TYPE_CHECKING:
    from aioinformer.controller import Context


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_status_shows_running_reconciles() -> None:
    async with controlled(Slow()) as (source, controller):
        source.add(named("a"))
        await asyncio.sleep(3)
        status = controller.status()
        (running,) = status.running

    assert running.request == ReconcileRequest("default", "a")
    assert running.seconds == pytest.approx(3, abs=0.1)
    assert (running.attempt, running.stale) == (1, False)
    assert [(it.change, it.key) for it in running.causes] == [("added", "default/a")]
    assert (status.name, status.synced, status.queued) == ("pods", True, 0)


async def test_status_shows_failing_requests_until_they_succeed() -> None:
    failures: list[Exception] = [ValueError("first"), TerminalError("second")]

    async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
        if failures:
            raise failures.pop(0)

        return None

    async with controlled(Acts(act)) as (source, controller):
        source.add(named("a"))
        await settle()
        (first,) = controller.status().failing
        assert controller.status().delayed == 1
        await asyncio.sleep(1)
        (second,) = controller.status().failing
        source.modify(named("a", labels={"x": "y"}))
        await settle()
        assert controller.status().failing == ()

    assert (first.error, first.message, first.attempts) == ("ValueError", "first", 1)
    assert first.retry_in is not None
    assert 0 < first.retry_in < 0.1
    assert (second.error, second.attempts) == ("TerminalError", 2)
    assert second.retry_in is None, "it waits for a change"
    assert second.seconds_ago == pytest.approx(1, abs=0.1)


def test_failures_keep_the_latest_and_no_exceptions() -> None:
    failures = Failures()
    for number in range(MOST_FAILURES + 5):
        request = ReconcileRequest("default", str(number))
        failures.failed(request, ValueError("x" * 5000), 1, at=float(number))

    failures.failed(ReconcileRequest("default", "7"), Unprintable(), 2, at=200.0)
    found = failures.newest_first(300.0, lambda _: None)

    assert len(found) == MOST_FAILURES
    assert len(failures) == MOST_FAILURES + 5
    assert found[0].request.name == "7"
    assert (found[0].error, found[0].message, found[0].seconds_ago) == (
        "Unprintable",
        "Unprintable",
        100.0,
    )
    assert len(found[1].message) == MOST_CHARACTERS
    assert found[0].failing_for == 293, "since its first failure"
    assert "0" not in {it.request.name for it in found}
    failures.failed(ReconcileRequest("default", "0"), ValueError(), 2, at=250.0)
    (again, *_) = failures.newest_first(300.0, lambda _: None)
    assert (again.request.name, again.failing_for) == ("0", None), "not known any more"
    for number in reversed(range(MOST_FAILURES + 5)):
        failures.succeeded(ReconcileRequest("default", str(number)))

    assert len(failures) == 0


async def test_queue_knows_when_a_delayed_item_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue("q")
    queue.add_after("late", 5)
    queue.add_after("late", 9)
    await asyncio.sleep(2)

    assert queue.seconds_until("late") == pytest.approx(3)
    assert queue.seconds_until("other") is None
    assert queue.delayed == 1
    assert await queue.get() == "late"
    assert queue.delayed == 0
    queue.done("late")
