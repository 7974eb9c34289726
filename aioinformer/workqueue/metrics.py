"""`WorkQueueMetrics`: measurements of a work queue for its metrics sink."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.metrics import NULL_SINK, CollectingSink, forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.metrics import MetricsSink

__all__ = ["WorkQueueHooks", "WorkQueueMetrics"]

logger: Final = guarded_logger(__name__)

T = TypeVar("T")

# Seconds between reports of the ages of items in work to a sink that does not collect,
# as in client-go.
AGES_SECONDS = 0.5

# Number of durations that are kept and reported together, which takes about 0.1 ms.
# Reporting each alone would take longer in total.
KEPT = 1000

METRICS = (
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds",
)


class WorkQueueHooks(NamedTuple, Generic[T]):
    """Functions that a queue calls when an item was added, taken, and done."""

    added: Callable[[T], None]
    taken: Callable[[T], None]
    finished: Callable[[T], None]


class WorkQueueMetrics(Generic[T]):
    """Metrics of one queue. Errors of the sink are logged.

    Names and meanings are those of client-go, all with the label `name`:

    * `workqueue_depth`: number of queued items, by `priority`, which is empty without
      priorities, as in controller-runtime;
    * `workqueue_adds_total`: adds, except of items that were queued already;
    * `workqueue_retries_total`: calls of `add_after()` and `add_rate_limited()`;
    * `workqueue_queue_duration_seconds`: from such an add to `get()`;
    * `workqueue_work_duration_seconds`: from `get()` to `done()`;
    * `workqueue_unfinished_work_seconds`: sum of the ages of items in work;
    * `workqueue_longest_running_processor_seconds`: the longest of these ages.

    There is no task and no timer. A `CollectingSink` gets the values when it is read,
    and when many durations have accumulated. Other sinks get each change at once, and
    the last two gauges at most every 0.5 s. These gauges show work that hangs. They
    only grow without further changes in a collecting sink.

    Args:
        name: Name of the queue.
        sink: Sink of the measurements.
        depths: Function that returns the number of queued items by the label
            `priority`.
    """

    def __init__(
        self, name: str, sink: MetricsSink, depths: Callable[[], Mapping[str, int]]
    ) -> None:
        self._name = name
        self._given = self._sink = sink
        self._depths = depths
        self.retries: int = 0
        self._clock: Callable[[], float] = _no_time

        # Invariant: an effective add is in _since until its item is taken, if ever.
        # Then it is in _waits until it is reported, and after that counted in _past.
        self._since: dict[T, float] = {}
        self._waits: list[float] = []
        self._past = 0

        # Invariant: the items in work, in the order of being taken.
        self._starts: dict[T, float] = {}
        self._works: list[float] = []

        # A sink may collect in another thread.
        self._lock = Lock()
        self._reported: dict[str, float] = {}
        self._reported_depths: dict[str, int] = {}
        self._ages_due = 0.0
        self._logged = False

        self._collecting = sink if isinstance(sink, CollectingSink) else None
        if self._collecting is not None:
            # Registered last, as the sink may call it at once.
            self._collecting.register(self.report)

    def start_clock(self, clock: Callable[[], float]) -> None:
        """Use this clock from now on.

        The waiting time of items that were added before starts now. Call `hooks()`
        again, as earlier hooks use the old clock.
        """
        self._clock = clock
        now = clock()
        for times in (self._since, self._starts):
            times.update(dict.fromkeys(times, now))

    def adopt(self, item: T, *, queued: bool, working: bool) -> None:
        """Count an item that was added before, as if it had been added or taken now."""
        now = self._clock()
        if working:
            self._starts[item] = now
            self._past += 1

        if queued:
            self._since[item] = now

    def hooks(self) -> WorkQueueHooks[T]:
        """Return the functions that the queue calls.

        They are closures, as attribute access would make them a quarter slower.
        """
        since, starts, clock = self._since, self._starts, self._clock
        waits, works, report = self._waits, self._works, self._report_durations

        def added(item: T) -> None:
            since[item] = clock()

        def taken(item: T) -> None:
            now = clock()
            waits.append(now - since.pop(item))
            starts[item] = now

        def finished(item: T) -> None:
            works.append(clock() - starts.pop(item))
            if len(works) >= KEPT:
                report()

        if self._collecting is not None:
            return WorkQueueHooks(added, taken, finished)

        counts, depths = self._report_counts, self._report_depths
        return WorkQueueHooks(
            self._reporting(added, counts, depths),
            self._reporting(taken, self._report_waits, depths),
            self._reporting(finished, self._report_works, depths, self._report_ages),
        )

    def _reporting(
        self, hook: Callable[[T], None], *parts: Callable[[], None]
    ) -> Callable[[T], None]:
        """Wrap a hook so that it reports at once, but only what it may have changed."""

        def hook_and_report(item: T) -> None:
            hook(item)
            self._report(parts)

        return hook_and_report

    def changed(self) -> None:
        """Report another change: of the depth, or of `retries`."""
        if self._collecting is None:
            self.report()

    def forget(self) -> None:
        """Have the sink drop the series of this queue, and stop reporting."""
        with self._lock:
            sink, self._sink, self._collecting = self._sink, NULL_SINK, None

        for name in METRICS:
            forget(sink, f"work queue {self._name!r}", name, name=self._name)

    def resume(self) -> None:
        """Measure again from 0, for a queue without queued items."""
        with self._lock:
            sink = self._sink = self._given
            self._collecting = sink if isinstance(sink, CollectingSink) else None
            # In place, as the hooks refer to these.
            for each in (self._since, self._waits, self._works):
                each.clear()

            self._reported.clear()
            self._reported_depths.clear()
            self._past = 0
            self.retries = 0
            self._ages_due = 0.0

        self.changed()

    # ------------------------------------------------------------ reports

    def report(self) -> None:
        """Report what has accumulated; from any thread."""
        self._report_durations()
        with self._lock:
            self._report((self._report_counts, self._report_depths, self._report_ages))

    def _report_durations(self) -> None:
        with self._lock:
            self._report((self._report_waits, self._report_works))

    def _report(self, parts: Iterable[Callable[[], None]]) -> None:
        try:
            for part in parts:
                part()
        except user_errors():  # the user's sink: logged and dropped
            # Logged once, as it would recur with every item.
            if not self._logged:
                self._logged = True
                logger.exception("work queue %r: the metrics sink failed", self._name)

    def _report_waits(self) -> None:
        waits = _drained(self._waits)
        self._past += len(waits)
        self._observe("workqueue_queue_duration_seconds", waits)

    def _report_works(self) -> None:
        self._observe("workqueue_work_duration_seconds", _drained(self._works))

    def _report_counts(self) -> None:
        # In this order: an add that moves between the two is missed until the next
        # report, not counted twice.
        adds = self._past + len(self._waits)
        self._count("workqueue_adds_total", adds + len(self._since))
        self._count("workqueue_retries_total", self.retries)

    def _report_depths(self) -> None:
        for priority, depth in self._depths().items():
            if self._reported_depths.get(priority) != depth:
                self._reported_depths[priority] = depth
                labels = {"name": self._name, "priority": priority}
                self._sink.gauge("workqueue_depth", depth, **labels)

    def _report_ages(self) -> None:
        now = self._clock()
        starts = list(self._starts.values())
        idle = (
            not starts and self._reported.get("workqueue_unfinished_work_seconds") != 0
        )
        due = starts and now >= self._ages_due
        if self._collecting is None and not due and not idle:
            return

        self._ages_due = now + AGES_SECONDS
        unfinished = max(0.0, now * len(starts) - sum(starts))
        longest = max(0.0, now - starts[0]) if starts else 0.0
        self._gauge("workqueue_unfinished_work_seconds", unfinished)
        self._gauge("workqueue_longest_running_processor_seconds", longest)

    def _count(self, name: str, total: int) -> None:
        more = total - self._reported.get(name, 0)
        # The first time also 0, so that the series starts there.
        if more > 0 or name not in self._reported:
            self._reported[name] = total
            self._sink.count(name, more, name=self._name)

    def _gauge(self, name: str, value: float) -> None:
        if self._reported.get(name) != value:
            self._reported[name] = value
            self._sink.gauge(name, value, name=self._name)

    def _observe(self, name: str, values: list[float]) -> None:
        if self._collecting is not None:
            if values or name not in self._reported:
                self._reported[name] = 0
                self._collecting.observe(name, *values, name=self._name)

            return

        for value in values:
            self._sink.observe(name, value, name=self._name)


def _drained(values: list[float]) -> list[float]:
    """Empty a list to which the thread of the loop may be appending."""
    taken = values[:]
    del values[: len(taken)]
    return taken


def _no_time() -> float:
    """Clock of a queue that has no loop yet."""
    return 0.0
