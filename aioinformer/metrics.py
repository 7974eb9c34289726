"""Where measurements go: a small protocol, and the sink that throws them away.

Nothing here imports a metrics library; `aioinformer.metrics_prometheus` has a sink for
Prometheus, for those who want it. Everything else calls the `MetricsSink` it was given,
and `NULL_SINK` where none was given. A component that would do extra work for its
measurements (read a clock for each item, say) checks `sink.enabled` once, when it is
built, and leaves that work out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NULL_SINK", "CollectingSink", "MetricsSink", "NullSink"]


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
