"""`ReflectorStats`: statistics of a reflector, and reports of its failures.

Plain state, changed by synchronous calls.
"""

from __future__ import annotations

import logging
import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import HistoryReset, NotFound, ResourceExpired
from aioinformer.informer.listwatch.machine import (
    Listing,
    Unverified,
    WatchEnded,
    Watching,
)
from aioinformer.informer.listwatch.recovery import is_foreign, is_refusal
from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.callables import check_plain
from aioinformer.model.object_meta import version_number
from aioinformer.watch.connectivity import Connectivity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.informer.listwatch.machine import Input, Phase
    from aioinformer.metrics import MetricsSink
    from aioinformer.watch.interface import Watch

__all__ = ["SHORT_WATCH_SECONDS", "ReflectorMetrics", "ReflectorStats"]


logger: Final = guarded_logger(__name__)

LOGGED = (1, 2, 4, 8)
"""Failures of a series that are logged one by one."""

LOG_SECONDS = 300.0
"""Time between log lines of later failures."""


@dataclass(slots=True)
class _Outage:
    """Failures since the last accepted watch."""

    began: float
    failures: int = 0
    logged: bool = False
    """True if a failure was logged as a warning, so the recovery has to be, too."""


class ReflectorStats:
    """Statistics of a reflector; also logs and reports its failures.

    Args:
        name: Name of the reflector in log and metrics.
        metrics: Sink of the measurements.
        connectivity: State of the connection to the server; None for a new one.
    """

    def __init__(
        self,
        name: str,
        metrics: MetricsSink = NULL_SINK,
        connectivity: Connectivity | None = None,
    ) -> None:
        self.name = name
        self.connectivity: Connectivity = connectivity or Connectivity()
        self.metrics: ReflectorMetrics = ReflectorMetrics(name, metrics)
        # See the properties of `Reflector`.
        self.last_contact: float | None = None
        self.last_event: float | None = None
        self.in_step: float | None = None
        self.streamless: bool = False
        self.last_error: Exception | None = None
        self.restarts: int = 0
        self.failures: int = 0
        self.refusals: int = 0
        self.duplicates = 0
        self.history_resets: int = 0
        self.sharded: bool | None = None
        self._skipped = 0
        # The open watch, whose count of skipped events is added to `_skipped`.
        self._watch: Watch | None = None
        # Failures since the last watch that lasted; see `reset_series`. A successful
        # list does not end a series: if watches are refused after each list, every
        # refusal would be logged as the first one.
        self._series = 0
        self._logged_at = -math.inf
        self._outage: _Outage | None = None
        self._handler: Callable[[Exception], None] | None = None

    @property
    def skipped(self) -> int:
        """Number of objects and events that could not be read."""
        watch = self._watch
        return self._skipped + (0 if watch is None else watch.skipped)

    @property
    def not_served(self) -> bool:
        """True if the last attempt failed with 404: the resource is not served."""
        return isinstance(self.last_error, NotFound)

    def set_handler(self, handler: Callable[[Exception], None] | None) -> None:
        """Set the function to call with every failure; see `Reflector`.

        Raises:
            OptionsError: If it is not a plain function.
        """
        if handler is not None:
            check_plain(handler, "a watch error handler")

        self._handler = handler

    # ------------------------------------------------------------ events

    @contextmanager
    def watching(self, watch: Watch) -> Iterator[None]:
        """Include the events that a watch skips, while it is open and afterwards."""
        self._watch = watch
        try:
            yield
        finally:
            self._watch = None
            self._skipped += watch.skipped

    def unreadable(self, number: int, keys: list[str]) -> None:
        """Record unreadable objects of a list; `keys` has those that could be read."""
        self._skipped += number
        logger.warning(
            "%s: %d objects of a list cannot be read, keeping their known states (keys=%s)",
            self.name,
            number,
            ", ".join(keys[:5]) or "none",
        )

    def list_sharded(self, sharded: bool) -> None:
        """Record whether the server has filtered a list by shard; log a change."""
        if sharded is self.sharded:
            return

        if not sharded:
            # Usual at first: the feature is off by default.
            level = logging.INFO if self.sharded is None else logging.WARNING
            logger.log(
                level,
                "%s: server does not filter by shard, dropping objects of other shards",
                self.name,
            )
        elif self.sharded is False:
            logger.warning("%s: server filters by shard now", self.name)
        else:
            logger.info("%s: server filters by shard", self.name)

        self.sharded = sharded

    def answered(self) -> None:
        """Record that the status and headers of a response have arrived."""
        self.connectivity.reached()

    def succeeded(self, now: float, *, watching: bool) -> None:
        """Record an accepted watch, or a complete list.

        Args:
            now: Time of the loop.
            watching: True once changes arrive: only then an outage is over.
        """
        self.last_contact = now
        self.last_error = None
        self.failures = 0
        self.refusals = 0
        if watching and self._outage is not None:
            outage, self._outage = self._outage, None
            if outage.logged:
                # As visible as the failure, so that a log of warnings has both.
                logger.warning(
                    "%s: recovered after %.0f s (failures=%d)",
                    self.name,
                    now - outage.began,
                    outage.failures,
                )

    def reset_series(self) -> None:
        """Record a watch that has lasted, which ends a series; see `Backoff.lasted`."""
        self._series = 0

    def failed(
        self, error: Exception, now: float, *, watched: bool, absent: bool = False
    ) -> None:
        """Record a failed list or watch: count it, log it, call the user's handler.

        Args:
            error: Error of the list or watch.
            now: Time of the loop.
            watched: True for a watch that the server had accepted.
            absent: True if the resource is absent, which was already logged.
        """
        self.restarts += 1
        self.failures += 1
        self.refusals = self.refusals + 1 if is_refusal(error) else 0
        self.last_error = error
        if isinstance(error, HistoryReset):
            self.history_resets += 1

        self._series += 1
        self._outage = self._outage or _Outage(now)
        self._outage.failures += 1
        self.metrics.failed(error)
        if not (absent and isinstance(error, NotFound)):
            ordinary = watched or isinstance(error, ResourceExpired)
            self._log(error, now, ordinary=ordinary)

        self._call_handler(error)

    def streams_given_up(self) -> None:
        """Record that lists are requested in pages from now on."""
        self.streamless = True
        # Only the stream was refused. The list in pages may succeed.
        self.refusals = 0
        logger.warning(
            "%s: server does not support streamed lists, listing in pages from now on: %s",
            self.name,
            self.last_error,
        )

    def _log(self, error: Exception, now: float, *, ordinary: bool) -> None:
        failures, foreign = self._series, is_foreign(error)
        if isinstance(error, HistoryReset):
            # Objects may be missing now, and nothing has failed: log each one.
            logger.warning(
                "%s: %s, listing and comparing all objects", self.name, error
            )
        elif failures == 1 and ordinary and not foreign:
            # Normal operation: an expired version, or a broken connection.
            logger.info(
                "%s: list or watch was interrupted, retrying: %s", self.name, error
            )
        elif failures in LOGGED or now - self._logged_at >= LOG_SECONDS:
            # Only some of a series, as it may last for days.
            self._logged_at = now
            if self._outage is not None:
                self._outage.logged = True

            logger.log(
                logging.ERROR if foreign else logging.WARNING,
                "%s: list or watch failed, will retry (failures=%d): %s",
                self.name,
                failures,
                repr(error) if foreign else error,
                exc_info=error if foreign else None,
            )

    def _call_handler(self, error: Exception) -> None:
        if self._handler is None:
            return

        try:
            self._handler(error)
        except user_errors():  # logged and dropped
            logger.exception("%s: the watch error handler failed", self.name)


_RELISTS = "aioinformer_reflector_relists_total"
_WATCH_RESTARTS = "aioinformer_reflector_watch_restarts_total"


def _reason_of(outcome: Input, *, relists: bool, reselects: bool) -> str:
    """Return why the next list or watch follows the last watch."""
    match outcome:
        case WatchEnded(error=Exception() as error) | Unverified(error=error):
            return type(error).__name__
        case WatchEnded() if relists:
            return "NoVersion"
        case WatchEnded() if not reselects:
            return "Ended"
        case _:
            return "Selection"


SHORT_WATCH_SECONDS = 1.0
"""Duration below which a watch without an event counts as very short, as in client-go.
Usually something between client and server closes such watches."""


class ReflectorMetrics:
    """Metrics of one reflector. Errors of the sink are logged and dropped.

    Names and meanings are those of client-go's reflector metrics, with the label
    `name`:

    * `reflector_lists_total`: started lists, in pages or as a stream;
    * `reflector_list_duration_seconds`, `reflector_items_per_list`: of complete lists;
    * `reflector_watches_total`: watches that the server accepted, and streams whose
      list is complete;
    * `reflector_short_watches_total`: watches that ended within a second without an
      event;
    * `reflector_watch_duration_seconds`, `reflector_items_per_watch`: of ended watches;
    * `reflector_last_resource_version`: if it is a decimal number.

    Others have no counterpart in client-go. Their label `reason` is the class of the
    error, if there is one:

    * `aioinformer_reflector_failures_total`: failed lists and watches;
    * `aioinformer_reflector_relists_total`: relists after a watch. The reason is
      `Selection` after a change of the selection, and `NoVersion` if the watch ended
      without a version to continue from;
    * `aioinformer_reflector_watch_restarts_total`: accepted watches that follow another
      one without a relist. The reason is `Ended` after the regular end of a watch,
      `Selection` after a change of the selection, else the error of the last attempt.

    Args:
        name: Name of the reflector.
        sink: Sink of the measurements.
    """

    def __init__(self, name: str, sink: MetricsSink = NULL_SINK) -> None:
        self._sink = GuardedSink(sink, name, name=name)
        # True if a watch was accepted since the last list.
        self._watched = False
        # Why the last watch, or attempt to open one, has ended.
        self._reason = ""
        self.relists: int = 0
        """Number of relists after a watch; counted also without a sink."""
        self.relist_reason: str = ""
        """Reason of the last one; empty before."""

    @property
    def enabled(self) -> bool:
        """False if nothing is recorded."""
        return self._sink.enabled

    def list_began(self) -> None:
        """Record the start of a list."""
        self._sink.count("reflector_lists_total")

    def list_completed(self, seconds: float, items: int) -> None:
        """Record a complete list."""
        self._sink.observe("reflector_list_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_list", items)

    def watch_began(self) -> None:
        """Record an accepted watch."""
        self._sink.count("reflector_watches_total")
        if self._watched:
            self._sink.count(_WATCH_RESTARTS, reason=self._reason)

        self._watched = True

    def watch_ended(self, seconds: float, items: int) -> None:
        """Record the end of a watch."""
        self._sink.observe("reflector_watch_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_watch", items)
        if seconds < SHORT_WATCH_SECONDS and not items:
            self._sink.count("reflector_short_watches_total")

    def reached(self, version: str) -> None:
        """Record the version up to which everything is known."""
        if self.enabled and (number := version_number(version)) >= 0:
            self._sink.gauge("reflector_last_resource_version", number)

    def advanced(
        self, before: Phase, outcome: Input, after: Phase, *, reselects: bool
    ) -> None:
        """Record what follows a watch, or an attempt to open one.

        Args:
            before: Phase of the watch.
            outcome: Outcome of the watch.
            after: Phase that follows.
            reselects: True if a change of the selection is due.
        """
        if not isinstance(before, Watching):
            return

        relists = isinstance(after, Listing)
        self._reason = _reason_of(outcome, relists=relists, reselects=reselects)
        if relists:
            self._watched = False
            self.relists += 1
            self.relist_reason = self._reason
            self._sink.count(_RELISTS, reason=self._reason)

    def failed(self, error: Exception) -> None:
        """Record a failed list or watch."""
        reason = type(error).__name__
        name = "aioinformer_reflector_failures_total"
        self._sink.count(name, reason=reason)
