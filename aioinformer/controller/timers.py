"""Timers: reconciles of each object at regular intervals.

Controller("sites", reconcile, for_=sites, every=timedelta(minutes=5))
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zlib import crc32

from aioinformer._user_code import user_errors
from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Deleted, Updated
from aioinformer.model.callables import check_plain
from aioinformer.model.times import seconds_of
from aioinformer.workqueue.delayed_items import DelayedItems

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["Every", "Timers", "every_of"]

SINCE_JITTER = 0.1
"""Largest part of an interval that is added to a time of `since`."""


@dataclass(frozen=True, slots=True)
class Every:
    """Interval of reconciles of each object.

    The times are those of the creation, plus a part of the interval that depends on the
    uid, plus multiples of the interval. So they are the same after a restart, and many
    objects are not due at once.

    Attributes:
        interval: Seconds, or a `timedelta`.
        since: Function from an object to the time of its last run, from which the
            interval counts: a `datetime` with a zone, a text such as
            `"2026-08-01T12:30:00Z"`, or None if there was none. Up to a tenth of the
            interval is added. If that time has passed, the object is due at once.

    Raises:
        OptionsError: If the interval is not positive, or `since` not a plain function.

    Example:
        >>> Every(300, since=lambda site: site.at("status.lastSync")).interval
        300
    """

    interval: Duration
    since: Callable[[KubeObject], datetime | str | None] | None = None

    def __post_init__(self) -> None:
        if seconds_of(self.interval) <= 0:
            raise OptionsError(f"every= must be positive, not {self.interval!r}")

        if self.since is not None:
            check_plain(self.since, "since=")

    def delay(self, obj: KubeObject, now: datetime) -> float:
        """Return the seconds until an object is due the next time.

        Raises:
            BaseException: Error of `since`, or of the creation time.
        """
        last = self.last(obj)
        if last is not None:
            return delay_since(last, seconds_of(self.interval), obj.uid, now)

        created = obj.creation_timestamp or now
        return delay_from_creation(created, seconds_of(self.interval), obj.uid, now)

    def last(self, obj: KubeObject) -> datetime | None:
        """Return the time of the last run that `since` finds."""
        found = None if self.since is None else self.since(obj)
        return datetime.fromisoformat(found) if isinstance(found, str) else found


def every_of(given: Duration | Every | None) -> Every | None:
    """Return the option `Controller(every=)`.

    Raises:
        OptionsError: If the interval is invalid.
    """
    return given if given is None or isinstance(given, Every) else Every(given)


def share_of(uid: str) -> float:
    """Return a number from 0 to 1 that depends on an object's uid."""
    return crc32(uid.encode()) / 2**32


def delay_from_creation(
    created: datetime, interval: float, uid: str, now: datetime
) -> float:
    """Return the seconds until the next of the times that count from a creation."""
    first = created.timestamp() + share_of(uid) * interval
    return (first - now.timestamp()) % interval


def delay_since(last: datetime, interval: float, uid: str, now: datetime) -> float:
    """Return the seconds until an interval has passed since the last run."""
    due = interval * (1.0 + SINCE_JITTER * share_of(uid))
    return max(due - (now - last).total_seconds(), 0.0)


class Timers:
    """Timers of one run of a controller: a heap of due times, and one timer of the loop.

    Args:
        every: Interval.
        due: Callback for the key of each object that is due.
        reporter: Reporter of failures of `since`.
    """

    def __init__(
        self, every: Every, due: Callable[[str], None], reporter: ErrorReporter
    ) -> None:
        self._every = every
        self._interval = seconds_of(every.interval)
        self._due = due
        self._reporter = reporter
        # Invariant: has the key of each object.
        self._keys = DelayedItems[str]()

    def __len__(self) -> int:
        return len(self._keys)

    def changed(self, event: Notification) -> None:
        """Note a change of an object."""
        match event:
            case Deleted():
                self._keys.discard(event.obj.key)
            case Updated():
                # A later time of the last run, or an earlier one, replaces the timer.
                if self._every.since is not None and (
                    event.old is not event.new
                    and self._last(event.old) != self._last(event.new)
                ):
                    self._plan(event.new)
            case _:
                self._plan(event.obj)

    def close(self) -> None:
        """Forget all objects, and cancel the timer."""
        self._keys.take_all()

    def _plan(self, obj: KubeObject) -> None:
        try:
            delay = self._every.delay(obj, datetime.now(UTC))
        except user_errors() as exc:
            self._reporter.failed("since", "of every=", obj, exc)
            delay = share_of(obj.uid) * self._interval

        self._keys.discard(obj.key)
        self._set(obj.key, delay)

    def _last(self, obj: KubeObject) -> datetime | None:
        try:
            return self._every.last(obj)
        except user_errors():  # reported by `_plan()`
            return None

    def _set(self, key: str, delay: float) -> None:
        loop = asyncio.get_running_loop()
        self._keys.add(key, loop.time() + delay, loop, self._fire)

    def _fire(self, key: str) -> None:
        # By the clock of the loop, which unlike wall clocks is never set.
        self._set(key, self._interval)
        self._due(key)
