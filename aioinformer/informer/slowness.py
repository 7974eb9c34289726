"""What is said about a handler that is slow, or holds up the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.informer.log_limit import LogLimit
from aioinformer.metrics import NULL_SINK, ScopedSink

if TYPE_CHECKING:
    from aioinformer.informer.inbox import Inbox
    from aioinformer.informer.notifications import Notification
    from aioinformer.metrics import MetricsSink

__all__ = ["BLOCKING_SECONDS", "HIGH_WATER", "Slowness"]

logger = guarded_logger(__name__)

BLOCKING_SECONDS = 0.05
"""A handler that keeps the loop from turning for this long delays everything."""

HIGH_WATER = 10_000
"""Notifications waiting for one handler: a warning at this many and at each doubling,
if they have been waiting for longer than a first list takes."""

HIGH_WATER_SECONDS = 10.0

CALM_SECONDS = 5.0
"""If the oldest has been waiting for less, the time of slowness is over, and the next
one is warned of anew."""

LONG_CALL_SECONDS = 60.0
"""A single call that takes longer is warned of while it runs, as it may never end."""

QUIET_SECONDS = 600.0
"""After a warning of a long call there is none for the same handler for this long. And
what waits for it only since then is no part of the same time of slowness."""


class Slowness:
    """Watches over one handler. Has one timer at most, and none while nothing waits.

    Args:
        name: The handler's.
        inbox: What waits for it.
        metrics: Counts `aioinformer_blocking_calls_total` by handler.
    """

    def __init__(
        self, name: str, inbox: Inbox, metrics: MetricsSink = NULL_SINK
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._metrics = ScopedSink(metrics, f"handler {name}")
        self._limit = LogLimit()
        # The next warning is due at this many; and when the last one was written.
        self._high_water = HIGH_WATER
        self._warned_at = 0.0
        self.call: Notification | None = None
        """What it is called with, while that call waits for something."""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    # ------------------------------------------------------------ what waits

    def crowded(self, now: float) -> None:
        """Something was put into the inbox, and at least `HIGH_WATER` wait there."""
        depth, oldest = self._inbox.depth, self._inbox.oldest
        age = now - oldest
        if age < CALM_SECONDS or oldest > self._warned_at + QUIET_SECONDS:
            self._high_water = HIGH_WATER  # no part of an earlier time of slowness

        if age > HIGH_WATER_SECONDS and depth >= self._high_water:
            self._high_water, self._warned_at = depth * 2, now
            logger.warning(
                "handler %s is slow: %d notifications wait for it, the oldest for %.0f s",
                self._name,
                depth,
                age,
            )

    # ------------------------------------------------------------ the loop

    def blocked(self, seconds: float) -> None:
        """Its code took so long, more than `BLOCKING_SECONDS`, without a turn."""
        self._count_blocking()
        verdict = self._limit.note(asyncio.get_running_loop().time())
        if verdict.each:
            logger.warning(
                "handler %s kept the event loop from turning for %.0f ms: everything "
                "else in this process waited",
                self._name,
                seconds * 1000.0,
            )

        for count in verdict.sums:
            logger.warning(
                "handler %s kept the event loop from turning %d times within a minute",
                self._name,
                count,
            )

    def _count_blocking(self) -> None:
        name = "aioinformer_blocking_calls_total"
        try:
            self._metrics.count(name, 1.0, handler=self._name)
        except user_errors():  # logged and dropped
            logger.exception("handler %s: the metrics sink failed", self._name)

    # ------------------------------------------------------------ calls that wait

    def call_waits(self, event: Notification) -> None:
        """A call has begun to wait for something; `call` is to be None behind it."""
        loop = asyncio.get_running_loop()
        self.call = event
        self._began = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LONG_CALL_SECONDS, self._look)

    def close(self) -> None:
        """Nothing is called any more. Idempotent."""
        self.call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget_metrics(self) -> None:
        """Have the sink drop the handler's series."""
        self._metrics.end()

    def _look(self) -> None:
        self._timer = None
        if self.call is None:
            return

        loop = asyncio.get_running_loop()
        now = loop.time()
        due = max(self._began + LONG_CALL_SECONDS, self._silent_until)
        if now >= due:
            self._warn(self.call, now - self._began)
            due = self._silent_until = now + QUIET_SECONDS

        self._timer = loop.call_at(due, self._look)

    def _warn(self, event: Notification, seconds: float) -> None:
        logger.warning(
            "handler %s has been at %r for %.0f s, and has not returned: %d more wait "
            "for it",
            self._name,
            event,
            seconds,
            self._inbox.depth - 1,
        )
