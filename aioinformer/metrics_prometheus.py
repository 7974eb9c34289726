"""`PrometheusSink`: a metrics sink for Prometheus, by the library prometheus-client.

Imported only by users of it: `pip install 'aioinformer[metrics]'`.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakMethod

from aioinformer._extras import import_extra
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["PrometheusSink"]

logger: Final = guarded_logger(__name__)

REFRESH_SECONDS = 1.0
"""Seconds after which measurements are refreshed for any metric that is read. Within
them, a read of all metrics needs one refresh."""

# Upper bounds of client-go's work queues: durations of work vary widely.
_DECADES = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0)
# Upper bounds of client-go's requests.
_REQUESTS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# Watches last 5 to 10 minutes by default.
_WATCHES = (1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 450.0, 600.0, 900.0, 1800.0)
# From an idle loop to handlers that are minutes behind.
_LATENCIES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0)
_ITEMS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
# Defaults of prometheus-client.
_USUAL = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)


class _Help(NamedTuple):
    help: str
    buckets: tuple[float, ...] = _USUAL


_HELP = {
    "aioinformer_blocking_calls_total": _Help("Handler calls that blocked the loop."),
    "aioinformer_blocking_reconciles_total": _Help("Reconciles that blocked the loop."),
    "aioinformer_cache_bytes": _Help("Bytes in use in the file of a shared cache."),
    "aioinformer_cache_heartbeat_seconds": _Help(
        "Time since the writer of a shared cache was last seen."
    ),
    "aioinformer_cache_in_memory": _Help(
        "1 if this process cannot use a shared cache, else 0."
    ),
    "aioinformer_cache_journal_entries": _Help(
        "Changes in the journal of a shared cache."
    ),
    "aioinformer_cache_lag_entries": _Help(
        "Changes of a shared cache that this process has not read."
    ),
    "aioinformer_cache_readers": _Help("Processes that follow a shared cache."),
    "aioinformer_cache_stalled_readers": _Help(
        "Processes that have not ended a read of a shared cache for 30 s."
    ),
    "aioinformer_cache_takeovers": _Help("Changes of the writer of a shared cache."),
    "aioinformer_cache_writer": _Help(
        "1 in the process that writes a shared cache, else 0."
    ),
    "aioinformer_handler_latency_seconds": _Help(
        "Time from the arrival of events until a handler has processed them.",
        _LATENCIES,
    ),
    "aioinformer_handler_queued_items": _Help("Notifications queued for a handler."),
    "aioinformer_informer_age_seconds": _Help(
        "Maximum staleness of the cache; +Inf before the first list."
    ),
    "aioinformer_informer_held_bytes": _Help(
        "Bytes of the bodies in the cache, as they are held."
    ),
    "aioinformer_informer_json_bytes": _Help(
        "Bytes of JSON of the bodies in the cache."
    ),
    "aioinformer_informer_latency_seconds": _Help(
        "Time from the arrival of events until they are in the cache.", _LATENCIES
    ),
    "aioinformer_informer_objects": _Help("Objects in the cache."),
    "aioinformer_informer_synced": _Help("1 once the cache is complete, else 0."),
    "aioinformer_leader_overruns_total": _Help(
        "Times that a leader's work outlived its Lease."
    ),
    "aioinformer_loop_longest_slice_seconds": _Help(
        "Duration of the longest slice of heavy work on the event loop."
    ),
    "aioinformer_loop_slices": _Help("Slices of heavy work on the event loop."),
    "aioinformer_loop_stalls": _Help(
        "Slices of heavy work that held the event loop for over 10 ms."
    ),
    "aioinformer_loop_waiting_tasks": _Help("Tasks that wait for a slice."),
    "aioinformer_memory_budget_bytes": _Help("Memory budget of a factory."),
    "aioinformer_memory_compressed_objects": _Help(
        "Objects with compressed bodies in the stores of a factory."
    ),
    "aioinformer_memory_held_bytes": _Help("Bytes that the stores of a factory take."),
    "aioinformer_memory_objects": _Help("Objects in the stores of a factory."),
    "aioinformer_memory_over_budget": _Help(
        "1 while the stores of a factory take more than its budget, else 0."
    ),
    "aioinformer_reflector_failures_total": _Help("Lists and watches that failed."),
    "aioinformer_reflector_relists_total": _Help("Relists after a watch, by reason."),
    "aioinformer_reflector_watch_restarts_total": _Help(
        "Watches opened again without a relist, by reason."
    ),
    "aioinformer_reconcile_storms": _Help("Keys that are slowed down in a storm."),
    "aioinformer_reconcile_storms_total": _Help("Reconcile storms, by cause."),
    "aioinformer_shard_active_ranges": _Help(
        "Owned ranges whose objects have been listed, so that work has begun."
    ),
    "aioinformer_shard_moves_total": _Help("Ranges that this replica has acquired."),
    "aioinformer_shard_owned_ranges": _Help("Ranges that this replica owns."),
    "aioinformer_shard_unowned_ranges": _Help("Ranges that no replica owns."),
    "aioinformer_shard_unowned_seconds": _Help(
        "Time since the first range without an owner lost it."
    ),
    "aioinformer_user_errors_total": _Help("Exceptions in user code."),
    "aioinformer_stale_reconciles_total": _Help(
        "Reconciles that did not see earlier writes in time."
    ),
    "aioinformer_webhook_duration_seconds": _Help(
        "Duration of webhook calls.", _REQUESTS
    ),
    "aioinformer_webhook_requests_total": _Help("Webhook calls, by result."),
    "controller_runtime_active_workers": _Help("Reconciles in progress."),
    "controller_runtime_client_consistency_wait_duration_seconds": _Help(
        "Waits until an informer showed a write."
    ),
    "controller_runtime_max_concurrent_reconciles": _Help(
        "Maximum number of reconciles in progress."
    ),
    "controller_runtime_reconcile_errors_total": _Help("Reconciles that failed."),
    "controller_runtime_reconcile_time_seconds": _Help(
        "Duration of reconciles.", _REQUESTS
    ),
    "controller_runtime_reconcile_timeouts_total": _Help(
        "Reconciles that exceeded their timeout."
    ),
    "controller_runtime_reconcile_total": _Help("Reconciles, by result."),
    "controller_runtime_terminal_reconcile_errors_total": _Help(
        "Reconciles that failed and are not retried."
    ),
    "informer_processing_latency_seconds": _Help(
        "Time to apply changes or a list, with the wait for a slice.", _LATENCIES
    ),
    "informer_queued_items": _Help("Changes waiting to be applied."),
    "informer_store_resource_version": _Help(
        "Last 15 digits of the version of the cache."
    ),
    "leader_election_master_status": _Help("1 while this replica leads, else 0."),
    "leader_election_slowpath_total": _Help("Renewals that had to read the Lease."),
    "reflector_items_per_list": _Help("Objects in each list.", _ITEMS),
    "reflector_items_per_watch": _Help("Events in each watch.", _ITEMS),
    "reflector_last_resource_version": _Help("Last resource version seen."),
    "reflector_list_duration_seconds": _Help("Duration of lists.", _REQUESTS),
    "reflector_lists_total": _Help("Lists that were started."),
    "reflector_short_watches_total": _Help(
        "Watches that ended quickly without events."
    ),
    "reflector_watch_duration_seconds": _Help("Duration of watches.", _WATCHES),
    "reflector_watches_total": _Help("Watches that the server accepted."),
    "rest_client_rate_limiter_duration_seconds": _Help(
        "Time that requests waited for the client's own rate limit.", _REQUESTS
    ),
    "rest_client_request_duration_seconds": _Help(
        "Time from sending a request to the head of its response.", _REQUESTS
    ),
    "rest_client_request_retries_total": _Help("Requests that were retried."),
    "rest_client_requests_total": _Help("Requests that were sent."),
    "workqueue_adds_total": _Help("Adds of items that were not queued already."),
    "workqueue_depth": _Help("Items in the queue."),
    "workqueue_longest_running_processor_seconds": _Help(
        "Time since the oldest unfinished item was taken."
    ),
    "workqueue_queue_duration_seconds": _Help(
        "Time that items waited in the queue.", _DECADES
    ),
    "workqueue_retries_total": _Help("Adds with a delay."),
    "workqueue_unfinished_work_seconds": _Help(
        "Sum of the times since the unfinished items were taken."
    ),
    "workqueue_work_duration_seconds": _Help(
        "Duration of processing an item.", _DECADES
    ),
}


class PrometheusSink:
    """`CollectingSink` that exposes measurements in a registry of prometheus-client.

    It is a `ForgettingSink` as well: series of ended components are dropped.

    A metric is created on first use: its kind from the method, its labels from those
    given, help text and buckets from its name. Sinks for one registry share them, so
    that each part of a program may have its own sink.

    All methods may be called from any thread. It is a collector of prometheus-client,
    so that library's multiprocess mode does not include it.

    Args:
        registry: Registry; None for prometheus-client's default.

    Raises:
        OptionsError: If prometheus-client is missing. Methods raise it if a metric is
            used inconsistently, or the registry has another metric of its name.

    Example:
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> registry = CollectorRegistry()
        >>> PrometheusSink(registry).count("reflector_lists_total", name="pods")
        >>> print(generate_latest(registry).decode(), end="")
        # HELP reflector_lists_total Lists that were started.
        # TYPE reflector_lists_total counter
        reflector_lists_total{name="pods"} 1.0
    """

    enabled = True

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        if registry is None:
            registry = _library("prometheus_client").REGISTRY

        self._registry: CollectorRegistry = registry
        with _SHARED_LOCK:
            self._shared = _SHARED_STATES.setdefault(registry, _SharedState())

        self._families = self._shared.families

    def __repr__(self) -> str:
        return f"<PrometheusSink metrics={len(self._families)}>"

    @property
    def registry(self) -> CollectorRegistry:
        """Registry of the measurements."""
        return self._registry

    def register(self, report: Callable[[], None], /) -> None:
        """Call the bound method `report` now, and each time before values are read."""
        self._shared.reporters.append(WeakMethod(report))
        report()

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter.

        Raises:
            OptionsError: If the amount is negative; see the class.
        """
        if amount < 0:
            raise OptionsError(f"the counter {name} cannot go down by {-amount:g}")

        family = self._family(name, "counter", labels)
        key = family.key(labels)
        with family.lock:
            family.values[key] = family.values.get(key, 0.0) + amount

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge.

        Raises:
            OptionsError: See the class.
        """
        family = self._family(name, "gauge", labels)
        family.values[family.key(labels)] = value

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        """Add observations to a histogram; without any, just expose it.

        Raises:
            OptionsError: See the class.
        """
        family = self._family(name, "histogram", labels)
        key = family.key(labels)
        with family.lock:
            family.observe(key, values)

    def forget(self, name: str, /, **labels: str) -> None:
        """Drop the series of a metric that have these labels, possibly among others."""
        family = self._families.get(name)
        if family is not None:
            family.forget(labels)

    def _family(self, name: str, kind: str, labels: Mapping[str, str]) -> _Family:
        family = self._families.get(name)
        if family is None:
            family = self._shared.make(self._registry, name, kind, tuple(labels))

        if family.kind != kind:
            raise OptionsError(f"{name} is a {family.kind}, but was used as a {kind}")

        return family


class _SharedState:
    """State shared by the sinks of one registry. It does not keep the registry alive."""

    def __init__(self) -> None:
        self.families: dict[str, _Family] = {}
        self.reporters: list[WeakMethod[Callable[[], None]]] = []
        self._lock = Lock()
        # Metrics that were read since the last refresh, and the time of that.
        self._read: set[str] = set()
        self._refreshed = -inf

    def make(
        self, registry: CollectorRegistry, name: str, kind: str, labels: tuple[str, ...]
    ) -> _Family:
        with self._lock:
            family = self.families.get(name)
            if family is None:
                family = _Family(self, name, kind, labels)
                try:
                    registry.register(family)
                except ValueError as exc:
                    raise OptionsError(
                        f"cannot register the metric {name}: {exc}"
                    ) from exc

                self.families[name] = family

        return family

    def refresh_for(self, name: str) -> None:
        """Refresh before a metric is read, once for each read of all metrics."""
        if name in self._read or monotonic() - self._refreshed > REFRESH_SECONDS:
            self.refresh()

        self._read.add(name)

    def refresh(self) -> None:
        """Make all components report their aggregated measurements."""
        self._read.clear()
        self._refreshed = -inf  # not before the end, for other threads
        for reporter in list(self.reporters):
            report = reporter()
            if report is None:
                with suppress(ValueError):  # another reader may have been first
                    self.reporters.remove(reporter)

                continue

            try:
                report()
            except Exception:  # the others are read nevertheless
                logger.exception("a component failed to report its metrics")

        self._refreshed = monotonic()


class _Family:
    """One metric with all its label values: a collector of prometheus-client."""

    def __init__(
        self, board: _SharedState, name: str, kind: str, labels: tuple[str, ...]
    ) -> None:
        self.kind = kind
        self.lock = Lock()
        # Values of a counter or gauge, by label values.
        self.values: dict[tuple[str, ...], float] = {}

        self._shared = board
        self._name = name
        self._labels = labels
        description = _HELP.get(name, _Help(name.replace("_", " ")))
        self._help, self._bounds = description.help, description.buckets
        # Histogram: number of observations per bucket, and their sum.
        self._buckets: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the label values in the order of this metric's labels."""
        if tuple(labels) == self._labels:
            return tuple(labels.values())

        if labels.keys() != set(self._labels):
            raise OptionsError(
                f"{self._name} has the labels {self._labels}, not {tuple(labels)}"
            )

        return tuple(labels[name] for name in self._labels)

    def observe(self, key: tuple[str, ...], values: Sequence[float]) -> None:
        buckets = self._buckets.get(key)
        if buckets is None:
            buckets = self._buckets[key] = [0] * (len(self._bounds) + 1)

        self._sums[key] = self._sums.get(key, 0.0) + sum(values)
        # Sorting is cheaper than finding the bucket of each value.
        ascending, start = sorted(values), 0
        for number, bound in enumerate(self._bounds):
            end = bisect_right(ascending, bound, start)
            buckets[number] += end - start
            start = end

        buckets[-1] += len(ascending) - start

    def forget(self, labels: Mapping[str, str]) -> None:
        """Drop the series that have these labels."""
        if not labels.keys() <= set(self._labels):
            return

        with self.lock:
            for key in self._keys_with(labels):
                self.values.pop(key, None)
                self._buckets.pop(key, None)
                self._sums.pop(key, None)

    def _keys_with(self, labels: Mapping[str, str]) -> list[tuple[str, ...]]:
        if len(labels) == len(self._labels):
            return [self.key(labels)]

        wanted = [(self._labels.index(name), it) for name, it in labels.items()]
        return [
            key
            for key in (*self.values, *self._buckets)
            if all(key[place] == value for place, value in wanted)
        ]

    # ------------------------------------------------------------ as a collector

    def describe(self) -> list[Metric]:
        return [self._empty()]

    def collect(self) -> Iterator[Metric]:
        self._shared.refresh_for(self._name)
        metric = self._empty()
        if self.kind != "histogram":
            for key, value in self.values.copy().items():
                metric.add_metric(key, value)
        else:
            with self.lock:
                rows = {
                    key: (list(row), self._sums[key])
                    for key, row in self._buckets.items()
                }

            for key, (row, total) in rows.items():
                metric.add_metric(key, self._cumulated(row), total)

        yield metric

    def _cumulated(self, row: list[int]) -> list[tuple[str, float]]:
        text = _library("prometheus_client.utils").floatToGoString
        seen, buckets = 0, []
        for bound, number in zip((*self._bounds, float("inf")), row, strict=True):
            seen += number
            buckets.append((text(bound), float(seen)))

        return buckets

    def _empty(self) -> Any:
        core = _library("prometheus_client.metrics_core")
        kinds = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        return kinds[self.kind](self._name, self._help, labels=self._labels)


def _library(module: str) -> Any:
    return import_extra(module, "metrics", "PrometheusSink needs prometheus-client")


_SHARED_STATES: WeakKeyDictionary[CollectorRegistry, _SharedState] = WeakKeyDictionary()
_SHARED_LOCK = Lock()
