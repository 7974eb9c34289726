"""How long to wait before the next attempt: pure arithmetic, times are handed in."""

from __future__ import annotations

import enum
import random
from typing import TYPE_CHECKING

from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff", "Failure", "RetryWithDeadline", "failure_of"]

# 0.8 s doubling to 30 s, each gap drawn from [d, 2d): at the cap one attempt every 30
# to 60 s. The numbers of client-go's reflector, so that mixed clusters back off alike.
FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0

SHORT_SECONDS = 1.6
"""An accepted watch that broke off sooner has failed. One that lived longer has not,
however it ended: proxies cut what is idle."""

RESUME_SECONDS = 5.0
"""An accepted watch that has not failed is followed by the next one within that time."""

QUIET_SECONDS = 120.0
"""After so long without a failed attempt the next failure starts from the first gap."""

PROBE_SECONDS = 1.0
"""The shortest gap between attempts to connect to a server that cannot be reached."""

PROBE_JITTER_SECONDS = 0.5

RELIST_JITTER_SECONDS = 1.0
"""A void version is answered by a list within that time, drawn at random: after a
restart of the server, all of its clients list."""

RETRY_AFTER_LIMIT_SECONDS = 120.0
"""The longest that a server can make us wait with `Retry-After`."""

MIN_RESET_SECONDS = 60.0
"""A minute without an error ends the window of `RetryWithDeadline`, as in client-go."""


class Failure(enum.Enum):
    """Why an attempt failed, as far as the time of the next one depends on it."""

    UNREACHABLE = "no connection to the server"
    VERSION_VOID = "the server cannot go on from the resource version"
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
    """Decides when the next attempt may begin, with gaps from 0.8 s to 60 s.

    Each gap is drawn from [d, 2d), with `d` from 0.8 s to 30 s:

    ==============================  ==============================  ==================
    the attempt                     the next one begins             d
    ==============================  ==============================  ==================
    an accepted watch that ended    a gap after its start, at most  stays
    cleanly, or lived for 1.6 s     5 s after its end
    (2 minutes, if its end asks
    for a list)
    its version is void (410 ...),  within 1 s of its end           stays
    the first time since a watch
    lived
    the server is unreachable       1 to 1.5 s after its end        stays
    it failed in another way        a gap after its end             doubles
    ==============================  ==============================  ==================

    `d` returns to 0.8 s after 2 minutes in which no attempt failed, counted over any
    number of watches. A server's `Retry-After` is a lower bound, up to 2 minutes.

    The numbers are those of client-go's reflector (0.8 s, factor 2, cap 30 s, jitter up
    to 100 %, not accumulated). Differences:

    * client-go waits the whole gap after each attempt, however it ended. Here only
      after one that failed, so that a watch that lived is resumed at once.
    * client-go starts over when 2 minutes have passed since it last did, also in the
      middle of an outage. Here those minutes begin with an accepted watch.
    * client-go doubles after each return of its list-watch loop, here only a failure
      does.
    * client-go backs off the same way from a server that cannot be reached.

    Args:
        rng: Where the jitter comes from; seed it for a reproducible sequence.
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
        # A void version was followed by a list at once, and no watch has lived since.
        self._relisted = False

    def __repr__(self) -> str:
        return f"<Backoff d={self._d:g}s>"

    def begin(self, now: float) -> None:
        """An attempt starts; `now` in seconds of any clock that does not go back."""
        self._started = now
        self._gap = self._d * (1.0 + self._rng.random())

    def lived(self, now: float) -> bool:
        """True if the attempt has lasted long enough for a watch that has not failed."""
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
        """The attempt has ended.

        Args:
            now: In seconds of the same clock.
            failure: Reason of the failure; None if the server ended it as planned.
            accepted: The attempt was a watch that the server had accepted.
            relists: The next attempt is a list, which costs the server much.
            retry_after: Seconds that the server asked for, a lower bound for the wait;
                more than 2 minutes count as 2 minutes.

        Returns:
            Seconds until the next attempt may begin; 0 for at once.
        """
        least = QUIET_SECONDS if relists else SHORT_SECONDS
        lived = accepted and (failure is None or now - self._started >= least)
        wait = self._wait_after(now, failure, lived=lived)
        return max(wait, min(retry_after or 0.0, RETRY_AFTER_LIMIT_SECONDS))

    def _wait_after(self, now: float, failure: Failure | None, *, lived: bool) -> float:
        if lived:
            self._note_quiet(now)
            self._relisted = False

        if failure is Failure.VERSION_VOID and not self._relisted:
            self._relisted = True
            return RELIST_JITTER_SECONDS * self._rng.random()

        if lived:
            lasted = now - self._started
            return max(min(self._gap, RESUME_SECONDS) - lasted, 0.0)

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
    """Allows retries of some errors, for a limited time since the first in a row.

    The first error opens a window of `max_duration`. Within it retries are allowed;
    behind it they are not, and the next error opens another. An error that comes a
    minute or more after the one before opens a new window too, as the server was well
    in between. All as in client-go, but for one thing: `should_retry()` speaks of the
    newest error, whereas client-go says yes to any error inside of an open window.

    Args:
        is_retryable: Which errors it is about; others neither open nor close a window.
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
        # When the window was opened, and its newest error; None while there is none.
        self._first: float | None = None
        self._last: float | None = None
        # Whether the newest of all errors was one of those it is about.
        self._concerned = False

    def __repr__(self) -> str:
        since = "no window" if self._first is None else f"open since {self._first:g}"
        return f"<RetryWithDeadline {self._max_duration:g}s, {since}>"

    def after(self, error: Exception, now: float) -> None:
        """An attempt has failed; `now` in seconds of any clock that does not go back."""
        self._concerned = self._is_retryable(error)
        if not self._concerned:
            return

        if self._last is None or now - self._last >= self._min_reset_period:
            self._first = now

        self._last = now

    def should_retry(self, now: float) -> bool:
        """True if the newest error may be answered by a retry.

        Closes a window that is over. False also without any error so far.
        """
        if not self._concerned or self._first is None or self._max_duration <= 0:
            return False

        if now - self._first <= self._max_duration:
            return True

        self._first = self._last = None
        return False
