"""Where measurements go: a small protocol, and the sink that throws them away.

Nothing here imports a metrics library; `aioinformer.metrics_prometheus` has a sink for
Prometheus, for those who want it. Everything else calls the `MetricsSink` it was given,
and `NULL_SINK` where none was given. A component that would do extra work for its
measurements (read a clock for each item, say) checks `sink.enabled` once, when it is
built, and leaves that work out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "NULL_SINK",
    "CollectingSink",
    "ForgettingSink",
    "GuardedSink",
    "MetricsSink",
    "NullSink",
    "ScopedSink",
    "forget",
]

logger = guarded_logger(__name__)


class MetricsSink(Protocol):
    """Takes counters, gauges and observations. Every call must be cheap, and not wait.

    Names are Prometheus names (`workqueue_depth`, `..._seconds`, `..._total`); labels
    are keyword arguments of a bounded number of values: never keys of objects.
    """

    @property
    def enabled(self) -> bool:
        """False if every measurement is thrown away."""

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation (seconds, bytes) to a histogram."""


@runtime_checkable
class CollectingSink(MetricsSink, Protocol):
    """A sink that says when it is read, so that much can be measured at little cost.

    Who measures for each of many items keeps the values together until then.
    """

    def register(self, tell: Callable[[], None], /) -> None:
        """Call `tell` now, and before values are read, perhaps in another thread.

        It is a bound method, and called as long as its object lives: keep no strong
        reference to it.
        """

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        """Add any number of observations to a histogram; none at all just show it."""


@runtime_checkable
class ForgettingSink(MetricsSink, Protocol):
    """A sink that drops series when what they measure has ended.

    Without it, each informer that was used for a time leaves some thirty series behind.
    Sinks that do not implement it keep them.
    """

    def forget(self, name: str, /, **labels: str) -> None:
        """Drop the series of a metric that have these labels, perhaps among others.

        It is no error if there are none.
        """


class NullSink:
    """The sink for those who do not measure."""

    enabled = False

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Throw the measurement away."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Throw the measurement away."""

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Throw the measurement away."""


NULL_SINK: MetricsSink = NullSink()


def forget(sink: MetricsSink, who: str, name: str, /, **labels: str) -> None:
    """Have a sink drop series, if it is a `ForgettingSink`; if it fails, log that.

    Args:
        sink: Receiver of the measurements.
        who: Name of the component, for the log.
        name: The metric.
        **labels: Labels of the series, or some of them.
    """
    if isinstance(sink, ForgettingSink):
        try:
            sink.forget(name, **labels)
        except user_errors():  # logged and dropped
            logger.exception("%s: the metrics sink failed", who)


class ScopedSink:
    """Somebody's sink, for the life of one component: its series end with it.

    Scopes nest: what an inner one takes is also of the outer one.

    Args:
        sink: Receiver of the measurements.
        who: Name of the component, for the log.
    """

    def __init__(self, sink: MetricsSink, who: str) -> None:
        self.enabled = sink.enabled
        self._sink = sink
        self._who = who
        # Metrics and labels, in the order of their first measurements.
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], None] = {}

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        if self.enabled:
            self._series[name, tuple(labels.items())] = None
            self._sink.count(name, amount, **labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        if self.enabled:
            self._series[name, tuple(labels.items())] = None
            self._sink.gauge(name, value, **labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        if self.enabled:
            self._series[name, tuple(labels.items())] = None
            self._sink.observe(name, value, **labels)

    def forget(self, name: str, /, **labels: str) -> None:
        """Have the sink drop series, as an inner scope asks."""
        self._series.pop((name, tuple(labels.items())), None)
        forget(self._sink, self._who, name, **labels)

    def end(self) -> None:
        """Have the sink drop every series of this component; take no more. Idempotent."""
        self.enabled = False
        series, self._series = self._series, {}
        for name, labels in series:
            forget(self._sink, self._who, name, **dict(labels))


class GuardedSink:
    """Somebody's sink, for one who measures: if it fails, that ends nothing.

    What it raises is dropped, and logged the first time: it would come again with every
    measurement. One that is not enabled is told nothing.

    Args:
        sink: Receiver of the measurements.
        who: Name of the component, for the log.
        **labels: Those of every measurement.
    """

    def __init__(self, sink: MetricsSink, who: str, /, **labels: str) -> None:
        self.enabled = sink.enabled
        self._sink = sink
        self._who = who
        self._labels = labels
        self._complained = False

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        self._tell(self._sink.count, name, amount, labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._tell(self._sink.gauge, name, value, labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        self._tell(self._sink.observe, name, value, labels)

    def _tell(
        self, tell: Callable[..., None], name: str, value: float, labels: dict[str, str]
    ) -> None:
        if not self.enabled:
            return

        try:
            tell(name, float(value), **self._labels, **labels)
        except user_errors():  # logged and dropped
            if not self._complained:
                self._complained = True
                logger.exception("%s: the metrics sink failed", self._who)
