"""`ErrorReporter`: failures of the user's code, in logs, metrics and `on_error`."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import HandlerError
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.metrics import MetricsSink

__all__ = ["ErrorReporter", "LogLimit", "Verdict"]


logger: Final = guarded_logger(__name__)


class ErrorReporter:
    """Reporter of failures in the user code of one informer. Never raises.

    Each failure is counted, passed to `on_error`, and logged with its traceback. If the
    same code fails repeatedly, perhaps for each of 100,000 objects, only the first
    failures in a minute are logged one by one. Totals are logged after that.

    Args:
        name: Name of the informer.
        on_error: Function called with each failure. Its own errors are logged.
        metrics: Sink that counts `aioinformer_user_errors_total` by informer and place.

    Raises:
        OptionsError: If `on_error` is not a plain function.
    """

    def __init__(
        self,
        name: str,
        on_error: Callable[[HandlerError], None] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        if on_error is not None:
            check_plain(on_error, "on_error")

        self._name = name
        self._on_error = on_error
        self._metrics = metrics
        # Limits by place and name of the failing code.
        self._limits: defaultdict[tuple[str, str], LogLimit] = defaultdict(LogLimit)

    def failed(
        self, where: str, name: str, subject: object, cause: BaseException
    ) -> None:
        """Report a failure: place and name of the code, its argument, and the error."""
        failure = HandlerError(where, name, subject)
        failure.__cause__ = cause
        self.report(failure)

    def report(self, failure: HandlerError) -> None:
        """Report a failure that has its cause."""
        self._log(failure)
        try:
            self._metrics.count(
                "aioinformer_user_errors_total",
                1.0,
                informer=self._name,
                at=failure.where,
            )
        except user_errors():  # logged and dropped
            logger.exception("%s: the metrics sink failed", self._name)

        if self._on_error is None:
            return

        try:
            self._on_error(failure)
        except user_errors():  # logged and dropped
            logger.exception("%s: on_error failed", self._name)

    def _log(self, failure: HandlerError) -> None:
        verdict = self._limits[failure.where, failure.name].note(_now())
        if verdict.each:
            logger.error(
                "%s: %s (object=%r)",
                self._name,
                failure,
                failure.subject,
                exc_info=failure,
            )

        for count in verdict.sums:
            logger.error("%s: %s %d times within a minute", self._name, failure, count)


def _now() -> float:
    """Return the running loop's time, or `time.monotonic()` outside a loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.monotonic()

    return loop.time()


WINDOW_SECONDS = 60.0


EACH = 9
"""Number of occurrences in a minute that are logged one by one. After these, totals are
logged at 10, 20, 40, ... A million occurrences in a minute make 27 records."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Log records to write for one occurrence."""

    each: bool
    """True to log the occurrence itself."""

    sum: int = 0
    """Total of this minute to log, including this occurrence; 0 for none."""

    before: int = 0
    """Total of the previous minute with occurrences to log; 0 for none."""

    @property
    def sums(self) -> list[int]:
        """Totals to log: `before`, then `sum`."""
        return [number for number in (self.before, self.sum) if number]


class LogLimit:
    """Limit of log records for one kind of occurrence. Pure: times are passed in."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0
        # The total that was logged last, and the next one to log.
        self._logged = 0
        self._next = EACH + 1

    def note(self, now: float) -> Verdict:
        """Count an occurrence; `now` is in seconds of any clock."""
        before = 0
        if not self._count or not 0 <= now - self._began < WINDOW_SECONDS:
            before = self._count if self._count > self._logged else 0
            self._began, self._count = now, 0
            self._logged, self._next = 0, EACH + 1

        self._count += 1
        if self._count <= EACH:
            self._logged = self._count
            return Verdict(each=True, before=before)

        if self._count < self._next:
            return Verdict(each=False)

        self._logged, self._next = self._count, self._count * 2
        return Verdict(each=False, sum=self._count)
