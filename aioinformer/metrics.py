"""Protocols and helpers for sinks of metrics.

No metrics library is imported here; `aioinformer.metrics_prometheus` has a sink for
Prometheus. Components call the `MetricsSink` that was passed to them, or `NULL_SINK`. A
component whose measurements cost extra work (reading a clock for each item, say) checks
`sink.enabled` once, when it is created, and skips that work.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable
from weakref import WeakMethod, WeakSet

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import OptionsError

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
    "check_sink",
    "forget",
]

logger: Final = guarded_logger(__name__)


class MetricsSink(Protocol):
    """Receiver of counters, gauges and observations. Calls must be cheap and not block.

    Names are Prometheus names (`workqueue_depth`, `..._seconds`, `..._total`). Labels
    are keyword arguments with a bounded number of values, so never keys of objects.
    """

    @property
    def enabled(self) -> bool:
        """False if all measurements are dropped."""

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation (seconds, bytes) to a histogram."""


@runtime_checkable
class CollectingSink(MetricsSink, Protocol):
    """Sink that announces reads, so that components can aggregate measurements.

    Components that measure each of many items aggregate the values until then.
    """

    def register(self, report: Callable[[], None], /) -> None:
        """Call `report` now, and before each read, possibly in another thread.

        It is a bound method. Keep only a weak reference to its object.
        """

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        """Add observations to a histogram; without any, just expose it."""


@runtime_checkable
class ForgettingSink(MetricsSink, Protocol):
    """Sink that drops series of components that have ended.

    Otherwise each stopped informer leaves about thirty series. Other sinks keep them.
    """

    def forget(self, name: str, /, **labels: str) -> None:
        """Drop the series of a metric that have these labels, possibly among others.

        It is not an error if there are none.
        """


class NullSink:
    """Sink that drops all measurements."""

    enabled = False

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Drop the measurement."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Drop the measurement."""

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Drop the measurement."""


NULL_SINK: MetricsSink = NullSink()

_PARTS = "enabled", "count", "gauge", "observe"


def check_sink(sink: object) -> None:
    """Reject anything but a sink.

    Raises:
        OptionsError: If it is a class, or lacks an attribute of `MetricsSink`.
    """
    if isinstance(sink, type) or not all(hasattr(sink, part) for part in _PARTS):
        raise OptionsError(
            "metrics= takes an object with enabled, count(), gauge() and observe(), such "
            f"as PrometheusSink(), not {sink!r}"
        )


def forget(sink: MetricsSink, owner: str, name: str, /, **labels: str) -> None:
    """Make a sink drop series, if it is a `ForgettingSink`. Log its errors.

    Args:
        sink: Receiver of the measurements.
        owner: Name of the component, for the log.
        name: Name of the metric.
        **labels: Labels of the series, or some of them.
    """
    if isinstance(sink, ForgettingSink):
        try:
            sink.forget(name, **labels)
        except user_errors():  # logged and dropped
            logger.exception("%s: the metrics sink failed", owner)


class ScopedSink:
    """Wrapper of a sink for one component, whose series end with the component.

    Scopes nest: series of an inner scope belong to the outer one as well. A scope
    without a sink may get one later: see `connect`.

    Args:
        sink: Receiver of the measurements.
        owner: Name of the component, for the log.
    """

    def __init__(self, sink: MetricsSink, owner: str) -> None:
        check_sink(sink)
        self.enabled: bool = sink.enabled
        self._sink = sink
        self._owner = owner
        # Gauges may be set in the thread that reads them, while the component ends.
        self._lock = RLock()
        # Metrics and labels, in the order of their first measurements.
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], None] = {}
        # What `connect()` enables. Components keep their own flag, as most check it for
        # each event.
        self._followers: WeakSet[ScopedSink | GuardedSink] = WeakSet()
        self._reports: list[WeakMethod[Callable[[], None]]] = []
        _follow(sink, self)

    def connect(self, sink: MetricsSink) -> None:
        """Use a sink from now on, unless this scope has one, or has ended.

        Components that use this scope begin to measure.
        """
        if not self._sink.enabled and sink.enabled:
            self._sink = sink
            self.follow()

    def follow(self) -> None:
        """Begin to measure, as the sink has been enabled."""
        self.enabled = True
        followers, self._followers = self._followers, WeakSet()
        reports, self._reports = self._reports, []
        for follower in followers:
            follower.follow()

        for report in filter(None, (it() for it in reports)):
            self.before_reads(report)

    def add_follower(self, follower: ScopedSink | GuardedSink) -> None:
        """Enable another wrapper when this one is enabled."""
        if not self.enabled:
            self._followers.add(follower)

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        if self.enabled:
            self._series[name, tuple(labels.items())] = None
            self._sink.count(name, amount, **labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            if self.enabled:
                self._series[name, tuple(labels.items())] = None
                self._sink.gauge(name, value, **labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        if self.enabled:
            self._series[name, tuple(labels.items())] = None
            self._sink.observe(name, value, **labels)

    def before_reads(self, report: Callable[[], None]) -> None:
        """Call a bound method before each read, if the sink announces reads.

        Errors of the sink are logged and dropped.
        """
        if not self.enabled:
            self._reports.append(WeakMethod(report))
            return

        if isinstance(self._sink, CollectingSink):
            try:
                self._sink.register(report)
            except user_errors():  # logged and dropped
                logger.exception("%s: the metrics sink failed", self._owner)

    def forget(self, name: str, /, **labels: str) -> None:
        """Make the sink drop series on behalf of an inner scope."""
        self._series.pop((name, tuple(labels.items())), None)
        forget(self._sink, self._owner, name, **labels)

    def end(self) -> None:
        """Drop all series of this component, and ignore further ones. Idempotent."""
        with self._lock:
            self.enabled = False
            series, self._series = self._series, {}

        for name, labels in series:
            forget(self._sink, self._owner, name, **dict(labels))

    def resume(self) -> None:
        """Undo `end()`: the component has started again."""
        self.enabled = self._sink.enabled


class GuardedSink:
    """Wrapper of a user's sink that catches its errors.

    An error is dropped, and logged the first time, as it would recur with each
    measurement. A sink that is not enabled is never called.

    Args:
        sink: Receiver of the measurements.
        owner: Name of the component, for the log.
        **labels: Labels of every measurement.
    """

    def __init__(self, sink: MetricsSink, owner: str, /, **labels: str) -> None:
        self.enabled: bool = sink.enabled
        self._sink = sink
        self._owner = owner
        self._labels = labels
        self._logged = False
        _follow(sink, self)

    def follow(self) -> None:
        """Begin to measure, as the sink has been enabled."""
        self.enabled = True

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        self._report(self._sink.count, name, amount, labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._report(self._sink.gauge, name, value, labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        self._report(self._sink.observe, name, value, labels)

    def _report(
        self,
        report: Callable[..., None],
        name: str,
        value: float,
        labels: dict[str, str],
    ) -> None:
        if not self.enabled:
            return

        try:
            report(name, float(value), **self._labels, **labels)
        except user_errors():  # logged and dropped
            if not self._logged:
                self._logged = True
                logger.exception("%s: the metrics sink failed", self._owner)


def _follow(sink: MetricsSink, follower: ScopedSink | GuardedSink) -> None:
    if isinstance(sink, ScopedSink):
        sink.add_follower(follower)
