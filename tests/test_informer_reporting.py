"""Failures of a user's code: told once, and never raised."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fake_source import thing
from queue_helpers import Sink

from aioinformer.errors import HandlerError
from aioinformer.informer.reporting import Reporter

if TYPE_CHECKING:
    import pytest


class Counter(Sink):
    """Counts by all labels."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, dict[str, str]]] = []

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        assert amount == 1.0
        self.counted.append((name, labels))


def test_a_failure_is_logged_counted_and_passed_on_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[HandlerError] = []
    metrics = Counter()
    cause = ValueError("no")
    obj = thing("a")

    Reporter("pods", told.append, metrics).failed("handler", "greet", obj, cause)

    (failure,) = told
    assert (failure.where, failure.name, failure.subject) == ("handler", "greet", obj)
    assert failure.__cause__ is cause
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "pods: handler greet failed for <KubeObject 'default/a' rv='1'>"
    )
    assert "ValueError: no" in caplog.text
    assert metrics.counted == [
        ("aioinformer_user_errors_total", {"informer": "pods", "at": "handler"})
    ]


def test_nobody_has_to_listen(caplog: pytest.LogCaptureFixture) -> None:
    Reporter("pods").failed("handler", "greet", None, ValueError("no"))

    assert len(caplog.records) == 1


def test_what_on_error_raises_is_logged_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_error(failure: HandlerError) -> None:
        raise KeyError(failure.name)

    Reporter("pods", on_error).failed("handler", "greet", None, ValueError("no"))

    assert [record.getMessage() for record in caplog.records] == [
        "pods: handler greet failed for None",
        "pods: on_error failed",
    ]
    assert "KeyError: 'greet'" in caplog.text


def test_a_failure_that_has_its_cause_is_reported_as_it_is() -> None:
    told: list[HandlerError] = []
    failure = HandlerError("index function", "node", thing("a"))

    Reporter("pods", told.append).report(failure)

    assert told == [failure]
