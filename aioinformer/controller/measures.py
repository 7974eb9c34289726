"""What one controller tells its metrics sink, the log, and `on_error`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import HandlerError
from aioinformer.informer.log_limit import LogLimit
from aioinformer.metrics import GuardedSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.controller.result import Verdict
    from aioinformer.metrics import MetricsSink

__all__ = ["Measures"]

logger = guarded_logger(__name__)


class Measures:
    """What one controller tells; neither a sink nor an `on_error` that fails ends it.

    Names and meanings are those of controller-runtime, with the label `controller`:

    * `controller_runtime_reconcile_total`, by `result`: `success`, `requeue_after` or
      `error`;
    * `controller_runtime_reconcile_errors_total`: of these, those that failed, in
      whichever way; `controller_runtime_terminal_reconcile_errors_total`: those that are
      not tried again; `controller_runtime_reconcile_timeouts_total`: those that took
      too long;
    * `controller_runtime_reconcile_time_seconds`: how long they took;
    * `controller_runtime_max_concurrent_reconciles`, `controller_runtime_active_workers`.

    Ours are `aioinformer_stale_reconciles_total`: those that were not shown in time what
    an earlier one had written; and `aioinformer_blocking_reconciles_total`: those that
    kept the loop from turning for over 50 ms.

    A failure is logged with its key and its cause; of those of one class that come in
    great number, only the first ones of a minute, and then how many there were.

    Args:
        name: The controller's.
        sink: Where measurements go.
        on_error: Told of each failure.
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

    def concurrency(self, most: int) -> None:
        """So many reconciles at most are under way at once."""
        self._sink.gauge("controller_runtime_max_concurrent_reconciles", most)

    def active(self, number: int) -> None:
        """So many are under way."""
        self._sink.gauge("controller_runtime_active_workers", number)

    def ended(self, verdict: Verdict, seconds: float) -> None:
        """One has ended, after so many seconds."""
        count, observe = self._sink.count, self._sink.observe
        total = "controller_runtime_reconcile_total"
        count(total, 1.0, result=verdict.label)
        observe("controller_runtime_reconcile_time_seconds", seconds)
        if verdict.failure is not None:
            count("controller_runtime_reconcile_errors_total")
            if not verdict.retry:
                count("controller_runtime_terminal_reconcile_errors_total")

        if verdict.timed_out:
            count("controller_runtime_reconcile_timeouts_total")

    def failed(
        self,
        request: ReconcileRequest,
        verdict: Verdict,
        attempt: int,
        now: float,
        *,
        stopping: bool,
    ) -> None:
        """One has failed, `verdict.failure` says how; `attempt` in a row."""
        failure = verdict.failure
        assert failure is not None  # nothing else is told so
        kind = type(failure).__name__
        limit = self._limits[kind].note(now)
        if limit.each:
            logger.error(
                "controller %s: %s failed (attempt %d, %s): %s: %s",
                self._name,
                request.key,
                attempt,
                _prospect(verdict, stopping=stopping),
                kind,
                failure,
                exc_info=failure,
            )

        for number in limit.sums:
            logger.error(
                "controller %s: %d reconciles failed by %s within a minute",
                self._name,
                number,
                kind,
            )

        self._report(request, failure)

    def stale(self, request: ReconcileRequest, why: BaseException) -> None:
        """One goes on without being shown what was written for its request."""
        self._sink.count("aioinformer_stale_reconciles_total")
        logger.warning(
            "controller %s: %s is reconciled though the informers do not show what it "
            "has written before: %s",
            self._name,
            request.key,
            why,
        )

    def blocked(self, request: ReconcileRequest, seconds: float) -> None:
        """One has kept the loop from turning for so many seconds."""
        self._sink.count("aioinformer_blocking_reconciles_total")
        verdict = self._blocking.note(asyncio.get_running_loop().time())
        if verdict.each:
            logger.warning(
                "controller %s: the reconcile of %s kept the event loop from turning for "
                "%.0f ms: everything else in this process waited",
                self._name,
                request.key,
                seconds * 1000.0,
            )

        for number in verdict.sums:
            logger.warning(
                "controller %s: %d reconciles kept the event loop from turning within a "
                "minute",
                self._name,
                number,
            )

    def long(self, request: ReconcileRequest, seconds: float, *, bounded: bool) -> None:
        """One has been under way for so many seconds already; with a timeout or not."""
        logger.warning(
            "controller %s: %s has been reconciled for %.0f s and has not ended%s",
            self._name,
            request.key,
            seconds,
            "" if bounded else "; a timeout= would end it",
        )

    def thread_overdue(
        self, request: ReconcileRequest, function: str, seconds: float
    ) -> None:
        """A reconcile was cancelled so many seconds ago, and its thread goes on."""
        logger.warning(
            "controller %s: thread has not ended %.0f s after its reconcile was "
            "cancelled (key=%s function=%s); the key stays in work and the lease held",
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
        except user_errors():  # the user's error handler: logged and dropped
            logger.exception("controller %s: on_error failed", self._name)


def _prospect(verdict: Verdict, *, stopping: bool) -> str:
    if stopping:
        return "not retried, as the controller is stopped"

    return "to be retried" if verdict.retry else "not retried until it changes"
