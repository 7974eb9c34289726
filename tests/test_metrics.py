"""`NullSink`, the protocol of sinks, and sinks that fail."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from aioinformer.metrics import NULL_SINK, GuardedSink, MetricsSink, NullSink


def test_null_sink_is_disabled() -> None:
    assert NULL_SINK.enabled is False


@pytest.mark.parametrize("method", ["count", "gauge", "observe"])
def test_null_sink_accepts_any_measurement(method: str) -> None:
    take = getattr(NULL_SINK, method)

    assert take("queue_depth", 3.0, name="pods", value="a label of that name") is None
    assert vars(NULL_SINK) == {}


def test_count_increments_by_one_by_default() -> None:
    amount = inspect.signature(NullSink.count).parameters["amount"]

    assert NULL_SINK.count("events_total", kind="pods") is None  # type: ignore[func-returns-value]
    assert amount.default == 1.0


@pytest.mark.parametrize("method", ["count", "gauge", "observe"])
@pytest.mark.parametrize("sink", [NullSink, GuardedSink])
def test_sinks_have_the_signatures_of_the_protocol(
    sink: type[MetricsSink], method: str
) -> None:
    signature = inspect.signature(getattr(sink, method))

    assert signature == inspect.signature(getattr(MetricsSink, method))


class Failing:
    """A sink that raises a given error."""

    def __init__(self, error: BaseException, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.told: list[tuple[str, float, dict[str, str]]] = []
        self._error = error

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        self.told.append((name, amount, labels))
        raise self._error

    gauge = observe = count


@pytest.mark.parametrize("error", [ValueError("boom"), asyncio.CancelledError()])
def test_failure_of_a_guarded_sink_is_logged_once(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Failing(error)
    guarded = GuardedSink(sink, "the queue a", name="a")

    guarded.count("adds_total", kind="x")
    guarded.gauge("depth", 3)
    guarded.observe("wait_seconds", 0.5)

    assert sink.told == [
        ("adds_total", 1.0, {"name": "a", "kind": "x"}),
        ("depth", 3.0, {"name": "a"}),
        ("wait_seconds", 0.5, {"name": "a"}),
    ]
    assert caplog.messages == ["the queue a: the metrics sink failed"]


def test_disabled_guarded_sink_is_not_called() -> None:
    sink = Failing(ValueError("boom"), enabled=False)
    guarded = GuardedSink(sink, "a")

    guarded.count("adds_total")

    assert guarded.enabled is False
    assert sink.told == []
