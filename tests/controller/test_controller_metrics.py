"""Metrics, log lines and `on_error` of controllers and electors."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Acts, controlled, named
from informer_helpers import keep_busy
from metrics_helpers import PlainSink

from aioinformer import Result, TerminalError
from aioinformer.controller.metrics import LeaderMetrics
from aioinformer.errors import Forbidden, OptionsError, TransportError
from aioinformer.testing import FakeListerWatcher

if TYPE_CHECKING:
    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context
    from aioinformer.errors import HandlerError


async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
    match request.name:
        case "later":
            return Result(requeue_after=1000)
        case "fails" if ctx.attempt == 1:
            raise ValueError("boom")
        case "ends":
            raise TerminalError("no such image")
        case "nonsense" if ctx.attempt == 1:
            return "done"  # type: ignore[return-value]
        case _:
            await asyncio.sleep(1)
            return None


NAMES = ("works", "later", "fails", "ends", "nonsense")


def cluster(*names: str) -> FakeListerWatcher:
    return FakeListerWatcher(*map(named, names or NAMES))


async def test_blocking_reconcile_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def blocks(request: ReconcileRequest, ctx: Context) -> None:
        await asyncio.sleep(0)
        if request.name == "blocks":
            keep_busy(0.06)

    sink = PlainSink()
    async with controlled(Acts(blocks), cluster("works", "blocks"), metrics=sink):
        await asyncio.sleep(10)

    (line,) = [it for it in caplog.messages if "(key=default/blocks)" in it]
    assert "blocked the event loop for" in line
    assert sink.counts["aioinformer_blocking_reconciles_total", ("pods",)] >= 1


async def test_reconciles_are_counted_by_result() -> None:
    sink = PlainSink()
    async with controlled(Acts(act), cluster(), metrics=sink):
        await asyncio.sleep(100)

    results = {
        labels[1]: count
        for (name, labels), count in sink.counts.items()
        if name == "controller_runtime_reconcile_total" and labels[0] == "pods"
    }
    assert results == {"success": 3, "requeue_after": 1, "error": 3}
    assert sink.counts["controller_runtime_reconcile_errors_total", ("pods",)] == 3
    terminal = "controller_runtime_terminal_reconcile_errors_total"
    assert sink.counts[terminal, ("pods",)] == 1
    times = sink.observed["controller_runtime_reconcile_time_seconds"]
    assert sorted(round(it) for it in times) == [0, 0, 0, 0, 1, 1, 1]


async def test_active_workers_are_measured() -> None:
    sink = PlainSink()
    async with controlled(Acts(act), cluster("works"), metrics=sink, concurrency=3):
        most = "controller_runtime_max_concurrent_reconciles"
        assert sink.gauges[most, ("pods",)] == 3
        assert sink.gauges["controller_runtime_active_workers", ("pods",)] == 1
        await asyncio.sleep(10)
        assert sink.gauges["controller_runtime_active_workers", ("pods",)] == 0


async def test_queue_metrics_have_name_of_controller() -> None:
    sink = PlainSink()
    async with controlled(Acts(act), cluster("works"), metrics=sink):
        await asyncio.sleep(10)

    assert sink.counts["workqueue_adds_total", ("pods",)] == 1


async def test_failure_is_logged_with_key_and_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controlled(Acts(act), cluster()):
        await asyncio.sleep(10)

    first, second, third = (it.getMessage() for it in caplog.records)
    assert first == (
        "controller pods: reconcile failed (key=default/ends attempt=1, not retried until the object "
        "changes): TerminalError: no such image"
    )
    assert second == (
        "controller pods: reconcile failed (key=default/fails attempt=1, will be retried): "
        "ValueError: boom"
    )
    assert third == (
        "controller pods: reconcile failed (key=default/nonsense attempt=1, will be retried): "
        "TypeError: a reconcile must return a Result or None, not str"
    )
    assert all(it.levelno == logging.ERROR for it in caplog.records)
    assert {it.name for it in caplog.records} == {"aioinformer.controller.controller"}
    # A terminal error is a message of the reconciler, not a bug.
    assert [bool(it.exc_info) for it in caplog.records] == [False, True, True]


@pytest.mark.parametrize(
    "error", [OptionsError("no such option"), Forbidden("no", status=403)]
)
async def test_repeated_error_of_a_request_is_logged_with_one_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    attempts = 0

    async def misuses(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise LookupError("another error before it")

        raise error

    async with controlled(Acts(misuses), cluster("web")):
        await asyncio.sleep(1)

    _, first, *others = [it.exc_info for it in caplog.records]
    assert first
    assert len(others) > 2
    assert not any(others)


async def test_frequent_failures_are_summarized(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: ReconcileRequest, ctx: Context) -> None:
        if request.name == "rare":
            raise LookupError("rare")

        raise ValueError("boom")

    names = [f"pod-{n}" for n in range(100)]
    async with controlled(Acts(fail), cluster(*names, "rare")):
        await asyncio.sleep(0.001)

    texts = [it.getMessage() for it in caplog.records]
    assert len([it for it in texts if "ValueError: boom" in it]) == 9
    assert (
        "controller pods: 80 reconciles failed with ValueError within a minute" in texts
    )
    assert any("key=default/rare" in it for it in texts)


async def test_on_error_is_called_for_failures() -> None:
    failures: list[HandlerError] = []
    async with controlled(Acts(act), cluster(), on_error=failures.append):
        await asyncio.sleep(10)

    assert [str(it.subject.key) for it in failures] == [  # type: ignore[attr-defined]
        "default/ends",
        "default/fails",
        "default/nonsense",
    ]
    assert [type(it.__cause__) for it in failures] == [
        TerminalError,
        ValueError,
        TypeError,
    ]
    assert {(it.where, it.name) for it in failures} == {("reconcile", "pods")}


@pytest.mark.parametrize("error", [RuntimeError("mine"), asyncio.CancelledError()])
async def test_failing_on_error_does_not_stop_controller(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(failure: HandlerError) -> None:
        raise error

    notes = Acts(act)
    async with controlled(notes, cluster("fails", "works"), on_error=broken):
        await asyncio.sleep(10)

    assert sorted(notes.names) == ["fails", "fails", "works"]
    assert "on_error failed" in caplog.text


async def test_failing_sink_does_not_stop_controller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(PlainSink):
        def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
            raise RuntimeError("mine")

    notes = Acts(act)
    async with controlled(notes, cluster("works", "later"), metrics=Broken()):
        await asyncio.sleep(10)

    assert sorted(notes.names) == ["later", "works"]
    text = "controller pods: the metrics sink failed"
    assert [it.getMessage() for it in caplog.records].count(text) == 1


class BrokenSink(PlainSink):
    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        raise ValueError("a broken sink")


def test_elector_metrics_show_status_and_counts() -> None:
    sink = PlainSink()
    measures = LeaderMetrics("x", "us", sink)
    status = "leader_election_master_status", ("x",)
    assert sink.gauges[status] == 0

    measures.began()
    assert sink.gauges[status] == 1

    measures.lost("why")
    assert sink.gauges[status] == 0

    measures.began()
    measures.ended()
    assert sink.gauges[status] == 0

    measures.slow_path()
    measures.overran()
    assert sink.counts == {
        ("leader_election_slowpath_total", ("x",)): 1,
        ("aioinformer_leader_overruns_total", ("x",)): 1,
    }


def test_failing_sink_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    measures = LeaderMetrics("x", "us", BrokenSink())
    measures.began()
    measures.ended()

    assert caplog.text.count("the metrics sink failed") == 1


def test_frequent_election_failures_are_summarized(
    caplog: pytest.LogCaptureFixture,
) -> None:
    measures = LeaderMetrics("x", "us", PlainSink())
    with caplog.at_level(logging.WARNING):
        for second in range(40):
            measures.failed("renew the lease", TransportError("no route"), second)

    assert caplog.text.count("cannot renew the lease: TransportError: no route") == 9
    assert "40 requests failed with TransportError within a minute" in caplog.text


def test_failing_callback_is_reported() -> None:
    failures: list[HandlerError] = []
    measures = LeaderMetrics("x", "us", PlainSink(), failures.append)
    cause = ValueError("mine")
    measures.callback_failed("on_new_leader", "them", cause)

    (failure,) = failures
    assert (failure.where, failure.subject) == ("on_new_leader", "them")
    assert failure.__cause__ is cause
