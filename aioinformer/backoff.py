"""Backoff between attempts: pure arithmetic, with times as arguments."""

from __future__ import annotations

import enum
import random
from typing import TYPE_CHECKING

from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff", "Failure", "RetryWithDeadline", "failure_of"]

# 0.8 s, doubling to 30 s, each delay drawn from [d, 2d): at the cap one attempt every
# 30 to 60 s. These are the numbers of client-go's reflector.
FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0

SHORT_SECONDS = 1.6
"""Duration from which an accepted watch does not count as failed, even if an error
ended it: proxies close idle connections."""

RESUME_SECONDS = 5.0
"""Longest delay between the starts of a watch that has not failed and the next one."""

QUIET_SECONDS = 120.0
"""Time without a failed attempt after which the backoff starts over."""

PROBE_SECONDS = 1.0
"""Shortest delay between attempts to connect to an unreachable server."""

PROBE_JITTER_SECONDS = 0.5

RELIST_JITTER_SECONDS = 1.0
"""Longest random delay of a relist after an expired resource version, as all clients
relist after a restart of the server."""

RETRY_AFTER_LIMIT_SECONDS = 120.0
"""Upper limit of a server's `Retry-After`."""

MIN_RESET_SECONDS = 60.0
"""Seconds without an error that end the window of `RetryWithDeadline`, as in
client-go."""


class Failure(enum.Enum):
    """Kind of a failure; determines the delay of the next attempt."""

    UNREACHABLE = "no connection to the server"
    VERSION_VOID = "the server cannot continue from the resource version"
    OTHER = "anything else, such as a refusal, a 429 or 5xx, or a silent server"


def failure_of(error: Exception | None) -> Failure | None:
    """Classify an error; None for no error. Never `VERSION_VOID`: see `recovery`."""
    if error is None:
        return None

    if isinstance(error, TransportError) and error.unreachable:
        return Failure.UNREACHABLE

    return Failure.OTHER


def probe_gap(rng: random.Random) -> float:
    """Draw the gap between two attempts to connect, in seconds."""
    return PROBE_SECONDS + PROBE_JITTER_SECONDS * rng.random()


class Backoff:
    """Delays of a reflector's attempts, from 0.8 s to 60 s.

    Each delay is drawn from [d, 2d), with `d` from 0.8 s to 30 s:

    ==============================  ==============================  ==================
    attempt                         start of the next attempt       d
    ==============================  ==============================  ==================
    accepted watch that ended       a delay after its start, at     unchanged
    cleanly, or lasted 1.6 s        most 5 s
    (2 minutes before a relist)
    resource version void (410...)  within 1 s of its end           unchanged
    for the first time since a
    watch lasted
    server unreachable              1 to 1.5 s after its end        unchanged
    other failure                   a delay after its end           doubled
    ==============================  ==============================  ==================

    `d` is reset to 0.8 s after 2 minutes without a failed attempt, over any number of
    watches. A server's `Retry-After` is a lower bound, up to 2 minutes.

    The numbers are those of client-go's reflector (0.8 s, factor 2, cap 30 s, jitter up
    to 100 %, not accumulated). Differences:

    * client-go waits the full delay after each attempt, however it ended. Here that is
      only so after a failure. A watch that lasted is resumed immediately.
    * client-go resets `d` 2 minutes after the last reset, even during an outage. Here
      those minutes begin with an accepted watch.
    * client-go doubles `d` after each return of its list-watch loop. Here it is only
      doubled after a failure.
    * client-go also backs off exponentially while the server is unreachable.

    Args:
        rng: Source of the jitter; seed it for a reproducible sequence.
    """

    # Invariants: FIRST_SECONDS <= d <= LONGEST_SECONDS. No attempt that began at or
    # after `_quiet_since` has failed.

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._d = FIRST_SECONDS
        self._gap = 0.0
        self._started = 0.0
        # Start of the first accepted watch since the last failure; None before it.
        self._quiet_since: float | None = None
        # True if an expired version led to an early relist, and no watch has lasted
        # since.
        self._relisted = False

    def __repr__(self) -> str:
        return f"<Backoff d={self._d:g}s>"

    def begin(self, now: float) -> None:
        """Record the start of an attempt; `now` in seconds of any monotonic clock."""
        self._started = now
        self._gap = self._d * (1.0 + self._rng.random())

    def lasted(self, now: float) -> bool:
        """Return True if the current attempt is long enough for a watch that lasted."""
        return now - self._started >= SHORT_SECONDS

    def end(
        self,
        now: float,
        failure: Failure | None = None,
        *,
        accepted: bool = False,
        relists: bool = False,
        retry_after: float | None = None,
    ) -> float:
        """Record the end of the attempt, and return the delay of the next one.

        Args:
            now: Seconds of the same clock.
            failure: Kind of the failure; None for a planned end.
            accepted: True if the attempt was a watch that the server had accepted.
            relists: True if the next attempt is a list, which is expensive for the
                server.
            retry_after: Minimum delay in seconds requested by the server; limited to 2
                minutes.

        Returns:
            Seconds until the next attempt may begin; 0 for immediately.
        """
        least = QUIET_SECONDS if relists else SHORT_SECONDS
        lasted = accepted and (failure is None or now - self._started >= least)
        wait = self._wait_after(now, failure, lasted=lasted)
        return max(wait, min(retry_after or 0.0, RETRY_AFTER_LIMIT_SECONDS))

    def _wait_after(
        self, now: float, failure: Failure | None, *, lasted: bool
    ) -> float:
        if lasted:
            self._note_quiet(now)
            self._relisted = False

        if failure is Failure.VERSION_VOID and not self._relisted:
            self._relisted = True
            return RELIST_JITTER_SECONDS * self._rng.random()

        if lasted:
            since_start = now - self._started
            return max(min(self._gap, RESUME_SECONDS) - since_start, 0.0)

        self._quiet_since = None
        if failure is Failure.UNREACHABLE:
            return probe_gap(self._rng)

        self._d = min(self._d * 2.0, LONGEST_SECONDS)
        return self._gap

    def _note_quiet(self, now: float) -> None:
        if self._quiet_since is None:
            self._quiet_since = self._started

        if now - self._quiet_since >= QUIET_SECONDS:
            self._d = FIRST_SECONDS


class RetryWithDeadline:
    """Time limit for retries of some errors, counted from the first one in a row.

    The first error opens a window of `max_duration`, in which retries are allowed.
    After the window, a retry is refused once, and the next error opens another window.
    An error `min_reset_period` or more after the previous one also opens a new window,
    as the server was healthy in between. All that is as in client-go, except that
    `should_retry()` only considers the newest error. client-go retries any error inside
    an open window.

    Args:
        is_retryable: Predicate of retryable errors. Others neither open nor close a
            window.
        max_duration: Length of the window in seconds; 0 or less never allows a retry.
        min_reset_period: Seconds without an error after which the next one opens a new
            window.
    """

    def __init__(
        self,
        is_retryable: Callable[[Exception], bool],
        max_duration: float,
        *,
        min_reset_period: float = MIN_RESET_SECONDS,
    ) -> None:
        self._is_retryable = is_retryable
        self._max_duration = max_duration
        self._min_reset_period = min_reset_period
        # Times of the window's first and newest error; None without a window.
        self._first: float | None = None
        self._last: float | None = None
        # True if the newest error was retryable.
        self._concerned = False

    def __repr__(self) -> str:
        since = "no window" if self._first is None else f"open since {self._first:g}"
        return f"<RetryWithDeadline {self._max_duration:g}s, {since}>"

    def after(self, error: Exception, now: float) -> None:
        """Record a failed attempt; `now` in seconds of any monotonic clock."""
        self._concerned = self._is_retryable(error)
        if not self._concerned:
            return

        if self._last is None or now - self._last >= self._min_reset_period:
            self._first = now

        self._last = now

    def should_retry(self, now: float) -> bool:
        """Return True if the newest error may be retried.

        Closes an expired window. Returns False without any error so far.
        """
        if not self._concerned or self._first is None or self._max_duration <= 0:
            return False

        if now - self._first <= self._max_duration:
            return True

        self._first = self._last = None
        return False
