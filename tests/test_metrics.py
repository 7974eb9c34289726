"""The sink that throws measurements away, and the protocol that it shows."""

from __future__ import annotations

import inspect

import pytest

from aioinformer.metrics import NULL_SINK, MetricsSink, NullSink


def test_the_null_sink_says_that_nobody_measures() -> None:
    assert NULL_SINK.enabled is False


@pytest.mark.parametrize("method", ["count", "gauge", "observe"])
def test_the_null_sink_takes_any_measurement(method: str) -> None:
    take = getattr(NULL_SINK, method)

    assert take("queue_depth", 3.0, name="pods", value="a label of that name") is None
    assert vars(NULL_SINK) == {}


def test_one_is_counted_if_no_amount_is_given() -> None:
    amount = inspect.signature(NullSink.count).parameters["amount"]

    assert NULL_SINK.count("events_total", kind="pods") is None  # type: ignore[func-returns-value]
    assert amount.default == 1.0


@pytest.mark.parametrize("method", ["count", "gauge", "observe"])
def test_the_null_sink_has_the_signatures_of_the_protocol(method: str) -> None:
    signature = inspect.signature(getattr(NullSink, method))

    assert signature == inspect.signature(getattr(MetricsSink, method))
