"""`ErrorReporter` and `LogLimit`: each failure is reported once and never raised."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fake_source import thing
from queue_helpers import Sink

from aioinformer.errors import HandlerError, OptionsError
from aioinformer.informer.handlers.error_reporter import (
    ErrorReporter,
    LogLimit,
    Verdict,
)


class Counter(Sink):
    """A sink that counts by all labels."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, dict[str, str]]] = []

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        assert amount == 1.0
        self.counted.append((name, labels))


def test_failure_is_logged_counted_and_passed_on_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    received: list[HandlerError] = []
    metrics = Counter()
    cause = ValueError("no")
    obj = thing("a")

    ErrorReporter("pods", received.append, metrics).failed(
        "handler", "greet", obj, cause
    )

    (failure,) = received
    assert (failure.where, failure.name, failure.subject) == ("handler", "greet", obj)
    assert failure.__cause__ is cause
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "pods: handler greet failed (object=<KubeObject 'default/a' rv='1'>)"
    )
    assert "ValueError: no" in caplog.text
    assert metrics.counted == [
        ("aioinformer_user_errors_total", {"informer": "pods", "at": "handler"})
    ]


def test_on_error_is_optional(caplog: pytest.LogCaptureFixture) -> None:
    ErrorReporter("pods").failed("handler", "greet", None, ValueError("no"))

    assert len(caplog.records) == 1


def test_error_of_on_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_error(failure: HandlerError) -> None:
        raise KeyError(failure.name)

    ErrorReporter("pods", on_error).failed("handler", "greet", None, ValueError("no"))

    assert [record.getMessage() for record in caplog.records] == [
        "pods: handler greet failed (object=None)",
        "pods: on_error failed",
    ]
    assert "KeyError: 'greet'" in caplog.text


async def too_late(_: HandlerError) -> None:
    raise AssertionError


class Sends:
    async def __call__(self, _: HandlerError) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "on_error", [too_late, Sends(), "x"], ids=["async", "async-object", "no-function"]
)
def test_async_on_error_is_refused(on_error: Any) -> None:
    with pytest.raises(OptionsError, match="on_error must be a plain function"):
        ErrorReporter("pods", on_error)


def test_cancellation_raised_by_on_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def cancelled(*_: object, **__: object) -> None:
        raise asyncio.CancelledError("no")

    metrics = Counter()
    metrics.count = cancelled  # type: ignore[method-assign]

    ErrorReporter("pods", cancelled, metrics).failed(
        "handler", "greet", None, ValueError()
    )

    assert caplog.messages[1:] == [
        "pods: the metrics sink failed",
        "pods: on_error failed",
    ]


def test_failure_with_a_cause_is_reported_unchanged() -> None:
    received: list[HandlerError] = []
    failure = HandlerError("index function", "node", thing("a"))

    ErrorReporter("pods", received.append).report(failure)

    assert received == [failure]


@pytest.mark.parametrize("where", ["transform", "index function", "handler"])
def test_repeated_failure_is_logged_in_full_only_a_few_times(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[HandlerError] = []
    metrics = Counter()
    reporter = ErrorReporter("pods", received.append, metrics)
    cause = ValueError("no")

    for _ in range(1000):
        reporter.failed(where, "shrink", thing("a"), cause)

    assert (len(received), len(metrics.counted)) == (1000, 1000)
    in_full = [bool(record.exc_info) for record in caplog.records]
    assert in_full == sorted(in_full, reverse=True)
    assert in_full[0]
    assert len(in_full) < 20
    assert caplog.records[-1].getMessage() == (
        f"pods: {where} shrink failed 640 times within a minute"
    )


def test_failures_of_each_function_are_logged_in_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter = ErrorReporter("pods")
    for where, name in [
        ("transform", "a"),
        ("index function", "a"),
        ("transform", "b"),
    ]:
        for _ in range(6):
            reporter.failed(where, name, None, ValueError("no"))

    assert all(record.exc_info for record in caplog.records)
    assert len(caplog.records) == 18


# ---------------------------------------------------------------- log limit


def test_first_nine_of_a_minute_are_logged_one_by_one() -> None:
    limit = LogLimit()

    verdicts = [limit.note(second) for second in range(9)]

    assert verdicts == [Verdict(each=True)] * 9


def test_sums_are_logged_at_the_tenth_and_each_doubling() -> None:
    limit = LogLimit()

    verdicts = [limit.note(number / 10_000) for number in range(100)]

    sums = {number + 1: it.sum for number, it in enumerate(verdicts) if it.sum}
    assert sums == {10: 10, 20: 20, 40: 40, 80: 80}
    assert [it.each for it in verdicts] == [True] * 9 + [False] * 91


def test_next_minute_starts_with_the_unreported_rest() -> None:
    limit = LogLimit()
    for _ in range(15):
        limit.note(0.0)

    verdict = limit.note(60.0)

    assert verdict == Verdict(each=True, before=15)
    assert limit.note(61.0) == Verdict(each=True)


@pytest.mark.parametrize("count", [1, 9, 10, 20])
def test_reported_events_are_not_reported_again(count: int) -> None:
    limit = LogLimit()
    for _ in range(count):
        limit.note(0.0)

    assert limit.note(100.0) == Verdict(each=True)


def test_minute_starts_with_its_first_event() -> None:
    limit = LogLimit()
    limit.note(1000.0)
    for _ in range(8):
        limit.note(1059.9)

    assert limit.note(1059.9) == Verdict(each=False, sum=10)
    assert limit.note(1060.0).each


def test_clock_that_goes_back_starts_a_new_minute() -> None:
    limit = LogLimit()
    for _ in range(10):
        limit.note(5000.0)

    assert limit.note(0.0) == Verdict(each=True)


def test_100_000_events_in_a_minute_write_few_records() -> None:
    limit = LogLimit()

    written = sum(it.each or it.sum > 0 for it in (limit.note(0) for _ in range(10**5)))

    assert written == 9 + 14
