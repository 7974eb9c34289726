"""`ReflectorStats`: what a reflector knows of how it is doing, and whom it tells.

Plain state, changed by synchronous calls of those who perform the attempts.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import HistoryReset, NotFound, ResourceExpired
from aioinformer.informer.listwatch.recovery import is_foreign, is_refusal
from aioinformer.metrics import NULL_SINK, GuardedSink
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import version_number
from aioinformer.watch.connectivity import Connectivity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioinformer.metrics import MetricsSink
    from aioinformer.watch.interface import Watch

__all__ = ["SHORT_WATCH_SECONDS", "ReflectorMetrics", "ReflectorStats"]


logger = guarded_logger(__name__)


class ReflectorStats:
    """What a reflector knows of how it is doing, and whom it tells of failures.

    Args:
        name: Names the reflector in the log and in metrics.
        metrics: Where measurements go.
        connectivity: Told whether the server can be reached; None for one of its own.
    """

    def __init__(
        self,
        name: str,
        metrics: MetricsSink = NULL_SINK,
        connectivity: Connectivity | None = None,
    ) -> None:
        self.name = name
        self.connectivity = connectivity or Connectivity()
        self.measures = ReflectorMetrics(name, metrics)
        # Their meaning is told by the properties of `Reflector`.
        self.last_contact: float | None = None
        self.last_event: float | None = None
        self.in_step: float | None = None
        self.streamless = False
        self.last_error: Exception | None = None
        self.restarts = 0
        self.failures = 0
        self.refusals = 0
        self.duplicates = 0
        self.history_resets = 0
        self._skipped = 0
        # The open watch, which counts for itself what it skips.
        self._watch: Watch | None = None
        # Failures since a watch last went well. Lists that succeed do not count: where
        # they do, and their watches are refused, all would be the first of its row.
        self._row = 0
        self._handler: Callable[[Exception], None] | None = None

    @property
    def skipped(self) -> int:
        """Objects and events that could not be read."""
        watch = self._watch
        return self._skipped + (0 if watch is None else watch.skipped)

    @property
    def not_served(self) -> bool:
        """To the last attempt the server said that it has no such resource."""
        return isinstance(self.last_error, NotFound)

    def set_handler(self, handler: Callable[[Exception], None] | None) -> None:
        """Tell a function of every failure from here on; see `Reflector`.

        Raises:
            OptionsError: If it cannot be called, or is a coroutine function.
        """
        if handler is not None:
            check_plain(handler, "a watch error handler")

        self._handler = handler

    # ------------------------------------------------------------ what happens

    @contextmanager
    def watching(self, watch: Watch) -> Iterator[None]:
        """A watch is open; what it skips counts, also behind its end."""
        self._watch = watch
        try:
            yield
        finally:
            self._watch = None
            self._skipped += watch.skipped

    def unreadable(self, number: int, keys: list[str]) -> None:
        """Objects of a list cannot be read; those of the right kind have keys."""
        self._skipped += number
        logger.warning(
            "%s: %d objects of a list cannot be read; what is known of them stays: %s",
            self.name,
            number,
            ", ".join(keys[:5]) or "of another kind",
        )

    def answered(self) -> None:
        """The head of an answer has arrived."""
        self.connectivity.reached()

    def succeeded(self, now: float) -> None:
        """The server has accepted a watch, or answered a list completely."""
        self.last_contact = now
        self.last_error = None
        self.failures = 0
        self.refusals = 0

    def watched_well(self) -> None:
        """A watch has lasted longer than attempts are kept apart, however it ended."""
        self._row = 0

    def failed(self, error: Exception, *, watched: bool, absent: bool = False) -> None:
        """A list or a watch failed: count it, log it, tell the user's handler.

        Args:
            error: What it failed with.
            watched: It was a watch that the server had accepted.
            absent: For long, the server has not named the resource; that was logged.
        """
        self.restarts += 1
        self.failures += 1
        self.refusals = self.refusals + 1 if is_refusal(error) else 0
        self.last_error = error
        if isinstance(error, HistoryReset):
            self.history_resets += 1

        self._row += 1
        self.measures.failed(error)
        if not (absent and isinstance(error, NotFound)):
            self._log(error, ordinary=watched or isinstance(error, ResourceExpired))

        self._tell(error)

    def streams_given_up(self) -> None:
        """Lists are asked for in pages from here on, as streams failed for being such."""
        self.streamless = True
        # Whether we are refused, and not a stream, is for the list in pages to tell.
        self.refusals = 0
        logger.warning(
            "%s: no lists as streams here, in pages from now on: %s",
            self.name,
            self.last_error,
        )

    def _log(self, error: Exception, *, ordinary: bool) -> None:
        row = self._row
        if row == 1 and ordinary and not is_foreign(error):
            # Part of normal life: a history that moved on, a connection that broke.
            logger.info("%s: a list or watch broke off, going on: %s", self.name, error)
        elif row & (row - 1) == 0:
            # The 1st, 2nd, 4th, 8th ... of a row: it may last for days.
            foreign = is_foreign(error)
            logger.log(
                logging.ERROR if foreign else logging.WARNING,
                "%s: attempt failed (%d in a row), will try again: %s",
                self.name,
                row,
                repr(error) if foreign else error,
                exc_info=error if foreign else None,
            )

    def _tell(self, error: Exception) -> None:
        if self._handler is None:
            return

        try:
            self._handler(error)
        except user_errors():  # logged and dropped
            logger.exception("%s: the watch error handler failed", self.name)


SHORT_WATCH_SECONDS = 1.0
"""A watch that ended within that time without an event is a very short one, as in
client-go: something between us and the server closes it."""


class ReflectorMetrics:
    """What one reflector tells its metrics sink; a sink that fails ends nothing.

    Names and meanings are those that client-go gave its reflector's metrics, with the
    label `name`:

    * `reflector_lists_total`: lists that were begun, in pages or as a stream;
    * `reflector_list_duration_seconds`, `reflector_items_per_list`: of complete lists;
    * `reflector_watches_total`: watches that the server accepted, and streams of which
      the list is complete;
    * `reflector_short_watches_total`: of them, those that ended within a second without
      an event;
    * `reflector_watch_duration_seconds`, `reflector_items_per_watch`: when one ends;
    * `reflector_last_resource_version`: where it is a decimal number.

    Ours is `aioinformer_reflector_failures_total`, whose label `reason` is the class of
    the error.

    Args:
        name: The reflector's.
        sink: Where they go.
    """

    def __init__(self, name: str, sink: MetricsSink = NULL_SINK) -> None:
        self._sink = GuardedSink(sink, name, name=name)
        self.enabled = self._sink.enabled
        """False if nothing is measured."""

    def list_began(self) -> None:
        """A list was asked for."""
        self._sink.count("reflector_lists_total")

    def list_completed(self, seconds: float, items: int) -> None:
        """A list is complete, after so many seconds."""
        self._sink.observe("reflector_list_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_list", items)

    def watch_began(self) -> None:
        """The server has accepted a watch."""
        self._sink.count("reflector_watches_total")

    def watch_ended(self, seconds: float, items: int) -> None:
        """A watch is over, after so many seconds and events."""
        self._sink.observe("reflector_watch_duration_seconds", seconds)
        self._sink.observe("reflector_items_per_watch", items)
        if seconds < SHORT_WATCH_SECONDS and not items:
            self._sink.count("reflector_short_watches_total")

    def reached(self, version: str) -> None:
        """Everything up to a version is known."""
        if self.enabled and (number := version_number(version)) >= 0:
            self._sink.gauge("reflector_last_resource_version", number)

    def failed(self, error: Exception) -> None:
        """A list or a watch failed."""
        reason = type(error).__name__
        name = "aioinformer_reflector_failures_total"
        self._sink.count(name, reason=reason)
