"""How failures of a user's code are told: in the log, counted, and to `on_error`."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import HandlerError
from aioinformer.informer.log_limit import LogLimit
from aioinformer.metrics import NULL_SINK
from aioinformer.model.callables import check_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.metrics import MetricsSink

__all__ = ["Reporter"]

logger = guarded_logger(__name__)


class Reporter:
    """Tells about failures of one informer's user code. Never raises.

    Each failure is counted and passed on, and logged with its traceback. Where the same
    code fails again and again, as it may for each of 100,000 objects, only the first
    ones of a minute are logged like this, and then how many there were.

    Args:
        name: The informer's.
        on_error: Called with each failure; what it raises is logged and dropped.
        metrics: Counts `aioinformer_user_errors_total` by informer and place.

    Raises:
        OptionsError: If `on_error` is no plain function: nobody would await it.
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
        # For each piece of code, by its place and name.
        self._limits: defaultdict[tuple[str, str], LogLimit] = defaultdict(LogLimit)

    def failed(
        self, where: str, name: str, subject: object, cause: BaseException
    ) -> None:
        """Report one failure: which code, its name, what it was called with, and why."""
        failure = HandlerError(where, name, subject)
        failure.__cause__ = cause
        self.report(failure)

    def report(self, failure: HandlerError) -> None:
        """Report one failure that carries its cause."""
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
                "%s: %s for %r", self._name, failure, failure.subject, exc_info=failure
            )

        for count in verdict.sums:
            logger.error("%s: %s %d times within a minute", self._name, failure, count)


def _now() -> float:
    """The loop's time, or where none runs, as when indexes are added, its clock's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.monotonic()

    return loop.time()
