"""Metrics and log lines of controllers, electors and shards."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import (
    GuardedLogger,
    guarded_logger,
    text_of,
    user_errors,
)
from aioinformer.errors import ApiError, HandlerError, OptionsError, TransportError
from aioinformer.informer.handlers.error_reporter import ErrorReporter, LogLimit
from aioinformer.metrics import GuardedSink, ScopedSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.reconcile import Outcome, ReconcileRequest
    from aioinformer.controller.storm_breaker import Storm
    from aioinformer.metrics import MetricsSink

__all__ = ["ControllerMetrics", "LeaderMetrics", "ShardsMetrics"]

# Named like the modules of the components, by which users filter.
logger: Final = guarded_logger("aioinformer.controller.controller")
elector_logger: Final = guarded_logger("aioinformer.controller.leader_election")
shards_logger: Final = guarded_logger("aioinformer.controller.shards")


class ControllerMetrics:
    """Metrics and log lines of one controller. Errors of sink and callback are logged.

    Names and meanings are those of controller-runtime, with the label `controller`:

    * `controller_runtime_reconcile_total`, by `result`: `success`, `requeue_after` or
      `error`;
    * `controller_runtime_reconcile_errors_total`: failed reconciles;
    * `controller_runtime_terminal_reconcile_errors_total`: those that are not retried;
    * `controller_runtime_reconcile_timeouts_total`: those that timed out;
    * `controller_runtime_reconcile_time_seconds`: durations;
    * `controller_runtime_max_concurrent_reconciles`,
      `controller_runtime_active_workers`.

    Others have no counterpart there. `aioinformer_stale_reconciles_total` counts
    reconciles that began before the informers showed earlier writes.
    `aioinformer_blocking_reconciles_total` counts those that blocked the event loop for
    more than 50 ms. `aioinformer_reconcile_storms_total` counts storms by `cause`
    (`own_writes` or `conflict`), and `aioinformer_reconcile_storms` is the number of
    keys that are slowed down.

    Failures are logged with their key and cause, unexpected ones with a traceback.
    Frequent failures of one class are limited to the first ones of each minute, and a
    count of the others.

    Args:
        name: Name of the controller.
        sink: Sink of the metrics.
        on_error: Callback for each failure.
    """

    def __init__(
        self,
        name: str,
        sink: MetricsSink,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        self._name = name
        self._sink = GuardedSink(sink, f"controller {name}", controller=name)
        self._on_error = on_error
        # By the class of the failure.
        self._limits: defaultdict[str, LogLimit] = defaultdict(LogLimit)
        self._blocking = LogLimit()
        self._storms = LogLimit()

    @property
    def enabled(self) -> bool:
        """False without a sink of metrics."""
        return self._sink.enabled

    def concurrency(self, limit: int) -> None:
        """Set the maximum number of concurrent reconciles."""
        self._sink.gauge("controller_runtime_max_concurrent_reconciles", limit)

    def active(self, number: int) -> None:
        """Set the number of running reconciles."""
        self._sink.gauge("controller_runtime_active_workers", number)

    def ended(self, outcome: Outcome, seconds: float) -> None:
        """Count a reconcile that has ended."""
        count, observe = self._sink.count, self._sink.observe
        total = "controller_runtime_reconcile_total"
        count(total, 1.0, result=outcome.label)
        observe("controller_runtime_reconcile_time_seconds", seconds)
        if outcome.failure is not None:
            count("controller_runtime_reconcile_errors_total")
            if not outcome.retry:
                count("controller_runtime_terminal_reconcile_errors_total")

        if outcome.timed_out:
            count("controller_runtime_reconcile_timeouts_total")

    def failed(
        self,
        request: ReconcileRequest,
        outcome: Outcome,
        attempt: int,
        now: float,
        *,
        repeats: bool,
        stopping: bool,
    ) -> None:
        """Report a failed reconcile.

        Args:
            request: Request of the reconcile.
            outcome: Outcome, with a failure.
            attempt: Number of attempts in a row.
            now: Time of the loop.
            repeats: True if the last attempt failed with an error of the same class.
            stopping: True if the controller is shutting down.
        """
        failure = outcome.failure
        assert failure is not None
        kind = type(failure).__name__
        limit = self._limits[kind].note(now)
        if limit.each:
            logger.error(
                "controller %s: reconcile failed (key=%s attempt=%d, %s): %s: %s",
                self._name,
                request.key,
                attempt,
                _next_attempt(outcome, stopping=stopping),
                kind,
                failure,
                exc_info=failure if _needs_traceback(outcome, repeats) else None,
            )

        for number in limit.sums:
            logger.error(
                "controller %s: %d reconciles failed with %s within a minute",
                self._name,
                number,
                kind,
            )

        self._report(request, failure)

    def stale(self, request: ReconcileRequest, why: BaseException) -> None:
        """Report a reconcile that continues though informers do not show its writes."""
        self._sink.count("aioinformer_stale_reconciles_total")
        logger.warning(
            "controller %s: informers do not show the writes of an earlier reconcile "
            "(key=%s): %s",
            self._name,
            request.key,
            why,
        )

    def blocked(self, request: ReconcileRequest, seconds: float) -> None:
        """Report a reconcile that blocked the event loop."""
        self._sink.count("aioinformer_blocking_reconciles_total")
        limit = self._blocking.note(asyncio.get_running_loop().time())
        if limit.each:
            logger.warning(
                "controller %s: reconcile blocked the event loop for %.0f ms, or the machine "
                "was overloaded (key=%s)",
                self._name,
                seconds * 1000.0,
                request.key,
            )

        for number in limit.sums:
            logger.warning(
                "controller %s: %d reconciles blocked the event loop within a minute",
                self._name,
                number,
            )

    def storm(
        self, request: ReconcileRequest, storm: Storm, number: int, now: float
    ) -> None:
        """Report a key that is slowed down.

        Args:
            request: Request of the reconciles.
            storm: Cause.
            number: Number of keys that are slowed down.
            now: Time of the loop.
        """
        self._sink.count("aioinformer_reconcile_storms_total", 1.0, cause=storm.cause)
        self._sink.gauge("aioinformer_reconcile_storms", number)
        limit = self._storms.note(now)
        if limit.each:
            logger.warning(
                "controller %s: reconcile storm, slowed down to one reconcile a second "
                "(key=%s): %s. %s",
                self._name,
                request.key,
                storm,
                storm.advice,
            )

        for count in limit.sums:
            logger.warning(
                "controller %s: %d reconcile storms began within a minute",
                self._name,
                count,
            )

    def storm_ended(self, request: ReconcileRequest, number: int) -> None:
        """Report a key that is no longer slowed down; `number` are."""
        self._sink.gauge("aioinformer_reconcile_storms", number)
        logger.info(
            "controller %s: reconcile storm has ended (key=%s)", self._name, request.key
        )

    def long(self, request: ReconcileRequest, seconds: float, *, bounded: bool) -> None:
        """Report a reconcile that runs for long, with a timeout or without one."""
        logger.warning(
            "controller %s: reconcile has been running for %.0f s (key=%s)%s",
            self._name,
            seconds,
            request.key,
            "" if bounded else ", set timeout= to end it",
        )

    def thread_overdue(
        self, request: ReconcileRequest, function: str, seconds: float
    ) -> None:
        """Report a thread that runs on after its reconcile was cancelled."""
        logger.warning(
            "controller %s: thread still runs %.0f s after its reconcile was cancelled, "
            "keeping the key in work and the lease held (key=%s function=%s)",
            self._name,
            seconds,
            request.key,
            function,
        )

    def _report(self, request: ReconcileRequest, cause: BaseException) -> None:
        if self._on_error is None:
            return

        failure = HandlerError("reconcile", self._name, request)
        failure.__cause__ = cause
        try:
            self._on_error(failure)
        except user_errors():
            logger.exception("controller %s: on_error failed", self._name)


def _needs_traceback(outcome: Outcome, repeats: bool) -> bool:
    """Return True for failures whose place in the code matters.

    A `TerminalError` is a message of the reconciler, and a `TransportError` says that
    the server cannot be reached. Retries of an `ApiError` or an `OptionsError` fail at
    the same place as a rule.
    """
    match outcome.failure:
        case TransportError():
            return False
        case ApiError() | OptionsError():
            return not repeats
        case _:
            return outcome.retry


def _next_attempt(outcome: Outcome, *, stopping: bool) -> str:
    if stopping:
        return "not retried: the controller is stopping"

    return (
        "will be retried" if outcome.retry else "not retried until the object changes"
    )


class _LeaseRequests:
    """Log of failed requests for Leases, limited for each class of failures."""

    def __init__(self, log: GuardedLogger) -> None:
        self._log = log
        self._limits: defaultdict[str, LogLimit] = defaultdict(LogLimit)

    def failed(self, name: str, what: str, failure: Exception, now: float) -> None:
        kind = type(failure).__name__
        limit = self._limits[kind].note(now)
        if limit.each:
            # The error of `asyncio.timeout()` has no message.
            text = text_of(failure) or "no response in time"
            self._log.warning("%s: cannot %s: %s: %s", name, what, kind, text)

        for number in limit.sums:
            self._log.warning(
                "%s: %d requests failed with %s within a minute", name, number, kind
            )


class LeaderMetrics:
    """Metrics and log lines of one elector. Errors of sink and callback are logged.

    Names and meanings are those of client-go, with the label `name`:

    * `leader_election_master_status`: 1 while this replica leads, else 0;
    * `leader_election_slowpath_total`: renewals that had to read the Lease first.

    One has no counterpart there: `aioinformer_leader_overruns_total` counts how often
    the leader's work was still running when its lease expired.

    Args:
        name: Name of the elector.
        identity: Identity of this replica.
        sink: Sink of the metrics.
        on_error: Callback for failures in the user's code.
    """

    def __init__(
        self,
        name: str,
        identity: str,
        sink: MetricsSink,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        self._name = name
        self.identity = identity
        self._scope = ScopedSink(sink, name)
        self._sink = GuardedSink(self._scope, name, name=name)
        self._reporter = ErrorReporter(name, on_error, self._scope)
        self._requests = _LeaseRequests(elector_logger)
        self._leads = 0
        self._status(0)

    def set_sink(self, sink: MetricsSink) -> None:
        """Use a sink from now on, unless there is one."""
        self._scope.connect(sink)
        self._status(self._leads)

    def began(self) -> None:
        """Report that this replica has become the leader."""
        self._status(1)
        elector_logger.info(
            "%s: became leader (identity=%s)", self._name, self.identity
        )

    def ended(self) -> None:
        """Report that this replica stops leading, as its work has ended."""
        self._status(0)
        elector_logger.info(
            "%s: stopped leading (identity=%s)", self._name, self.identity
        )

    def lost(self, why: str) -> None:
        """Report that this replica lost leadership before its work has ended."""
        self._status(0)
        elector_logger.warning(
            "%s: lost leadership (identity=%s): %s", self._name, self.identity, why
        )

    def slow_path(self) -> None:
        """Count a renewal that has to read the Lease first."""
        self._sink.count("leader_election_slowpath_total", 1.0)

    def overran(self) -> None:
        """Report that the lease expired while the leader's work still runs."""
        self._sink.count("aioinformer_leader_overruns_total", 1.0)
        elector_logger.error(
            "%s: the leader's work has not stopped and the lease has expired, another "
            "replica may lead concurrently",
            self._name,
        )

    def failed(self, what: str, failure: Exception, now: float) -> None:
        """Report a failed request, which is retried."""
        self._requests.failed(self._name, what, failure, now)

    def callback_failed(
        self, callback: str, subject: str, failure: BaseException
    ) -> None:
        """Report that a callback of the user raised."""
        self._reporter.failed(callback, self._name, subject, failure)

    def _status(self, value: int) -> None:
        self._leads = value
        self._sink.gauge("leader_election_master_status", value)


class ShardsMetrics:
    """Metrics and log lines of one replica in a group of shards.

    All have the label `name`, the name of the group:

    * `aioinformer_shard_owned_ranges`: ranges that this replica owns;
    * `aioinformer_shard_active_ranges`: those of them that it works on, as their objects
      are listed;
    * `aioinformer_shard_unowned_ranges`: ranges that no replica owns, as seen by this
      replica;
    * `aioinformer_shard_unowned_seconds`: time since the first of them lost its owner;
    * `aioinformer_shard_moves_total`: ranges that this replica has acquired.

    Errors of the sink are logged and dropped.

    Args:
        name: Name of the group.
        identity: Identity of this replica.
        sink: Sink of the metrics.
    """

    def __init__(self, name: str, identity: str, sink: MetricsSink) -> None:
        self._name = name
        self.identity = identity
        self._scope = ScopedSink(sink, f"shards {name}")
        self._sink = GuardedSink(self._scope, f"shards {name}", name=name)
        self._requests = _LeaseRequests(shards_logger)
        self._loop: asyncio.AbstractEventLoop | None = None
        # Time of the loop; None while every range has an owner. Read by other threads.
        self._unowned_since: float | None = None

    def set_sink(self, sink: MetricsSink) -> None:
        """Use a sink from now on, unless there is one."""
        self._scope.connect(sink)

    def began(self) -> None:
        """Begin to measure, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._unowned_since = None
        self._scope.resume()
        self._scope.before_reads(self._measure_unowned)

    def ended(self) -> None:
        """Drop all series."""
        self._loop = None
        self._scope.end()

    def ranges(
        self, owned: int, active: int, unowned: int, seconds: float | None
    ) -> None:
        """Set the numbers of ranges.

        Args:
            owned: Number of ranges that this replica owns.
            active: Number of those that all its users work on.
            unowned: Number of ranges without an owner.
            seconds: Longest time for which one of them has none; None if all have one.
        """
        loop = self._loop
        if loop is None:
            return

        self._unowned_since = None if seconds is None else loop.time() - seconds
        self._sink.gauge("aioinformer_shard_owned_ranges", owned)
        self._sink.gauge("aioinformer_shard_active_ranges", active)
        self._sink.gauge("aioinformer_shard_unowned_ranges", unowned)
        self._measure_unowned()

    def _measure_unowned(self) -> None:
        loop, since = self._loop, self._unowned_since
        if loop is not None:
            seconds = 0.0 if since is None else max(0.0, loop.time() - since)
            self._sink.gauge("aioinformer_shard_unowned_seconds", seconds)

    def joined(self, epoch: int) -> None:
        """Report that this replica may own ranges."""
        shards_logger.info(
            "shards %s: joined the group (member=%s epoch=%d)",
            self._name,
            self.identity,
            epoch,
        )

    def left(self) -> None:
        """Report that this replica owns nothing any more, by its own wish."""
        shards_logger.info(
            "shards %s: left the group (member=%s)", self._name, self.identity
        )

    def not_left(self, busy: int) -> None:
        """Report that this replica ends without having left the group.

        Args:
            busy: Number of ranges on which work continues.
        """
        shards_logger.warning(
            "shards %s: ending before the group was left, its ranges stay unowned until "
            "its Lease expires (member=%s ranges in work=%d)",
            self._name,
            self.identity,
            busy,
        )

    def died(self, failure: Exception) -> None:
        """Report that this replica ends because of a failure, raised by its run."""
        shards_logger.error(
            "shards %s: failed, giving all ranges away (member=%s): %s",
            self._name,
            self.identity,
            text_of(failure, repr),
        )

    def lost(self, ranges: int, why: str) -> None:
        """Report that this replica lost all its ranges at once."""
        shards_logger.warning(
            "shards %s: lost all ranges (member=%s ranges=%d): %s",
            self._name,
            self.identity,
            ranges,
            why,
        )

    def problem(self, what: str) -> None:
        """Report what a person should look at, once."""
        shards_logger.warning("shards %s: %s", self._name, what)

    def acquired(self, number: int, before: str) -> None:
        """Report a range that this replica owns from now on.

        Args:
            number: Number of the range.
            before: Identity of the previous owner, empty for none.
        """
        self._sink.count("aioinformer_shard_moves_total")
        shards_logger.info(
            "shards %s: acquired range %d (member=%s, previously %s)",
            self._name,
            number,
            self.identity,
            before or "without an owner",
        )

    def draining(self, number: int) -> None:
        """Report that work on a range ends, so that another replica can own it."""
        shards_logger.debug(
            "shards %s: draining range %d (member=%s)",
            self._name,
            number,
            self.identity,
        )

    def cancelled(self, number: int) -> None:
        """Report a drained range whose work is cancelled."""
        shards_logger.warning(
            "shards %s: work in range %d did not end in time, cancelling it (member=%s)",
            self._name,
            number,
            self.identity,
        )

    def overran(self, number: int, seconds: float) -> None:
        """Report work that does not end after its cancellation."""
        shards_logger.error(
            "shards %s: work in range %d still runs %.0f s after its cancellation "
            "(member=%s), this replica owns nothing until it ends",
            self._name,
            number,
            seconds,
            self.identity,
        )

    def failed(self, what: str, failure: Exception, now: float) -> None:
        """Report a failed request, which is retried."""
        self._requests.failed(f"shards {self._name}", what, failure, now)
