"""How long to wait before the next attempt: pure arithmetic, times are handed in."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff", "RetryWithDeadline"]

# 0.8 s doubling to 30 s, each gap drawn from [d, 2d): at the cap one attempt every 30
# to 60 s. The numbers of client-go's reflector, so that mixed clusters back off alike.
FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0

USEFUL_SECONDS = 120.0
"""A watch that lived this long shows that the server is well: start over."""

RETRY_AFTER_LIMIT_SECONDS = 120.0
"""The longest that a server can make us wait with `Retry-After`."""

MIN_RESET_SECONDS = 60.0
"""A minute without an error ends the window of `RetryWithDeadline`, as in client-go."""


class Backoff:
    """Keeps the starts of attempts at least `d` apart, with `d` from 0.8 s to 30 s.

    Each gap is drawn from [d, 2d). `d` doubles after an attempt that failed or that
    ended within its gap; an attempt that outlived its gap is followed at once and
    leaves `d` as it is; one that stayed useful for 2 minutes sets it back.

    The numbers are those of client-go's reflector (0.8 s, factor 2, cap 30 s, jitter up
    to 100 %, not accumulated). It differs where that one hurts:

    * client-go waits the whole gap after each attempt, however long it took; here the
      gap counts from the start of the attempt, so a watch that lived is resumed at once.
    * client-go starts over when 2 minutes have passed since it last did, also in the
      middle of an outage, in which it so comes back to 0.8 s again and again. Here only
      a watch that lived for 2 minutes does it.
    * client-go doubles after each return of its list-watch loop; here only after an
      attempt that failed or ended too soon.
    * At its cap client-go stops counting steps; here there is no number of steps: what
      a backoff says next depends on nothing but `d`.

    Args:
        rng: Where the jitter comes from; seed it for a reproducible sequence.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._d = FIRST_SECONDS
        self._gap = 0.0
        self._started = 0.0

    def __repr__(self) -> str:
        return f"<Backoff d={self._d:g}s>"

    def begin(self, now: float) -> None:
        """An attempt starts; `now` in seconds of any clock that does not go back."""
        self._started = now
        self._gap = self._d * (1.0 + self._rng.random())

    def outlived(self, now: float) -> bool:
        """True if the attempt has lasted longer than its gap."""
        return now - self._started >= self._gap

    def end(
        self, now: float, *, failed: bool, retry_after: float | None = None
    ) -> float:
        """The attempt has ended.

        Args:
            now: In seconds of the same clock.
            failed: It was refused, or broke before its answer began.
            retry_after: Seconds that the server asked for, a lower bound for the wait;
                more than 2 minutes count as 2 minutes.

        Returns:
            After how many seconds the next attempt may begin; 0 for at once.
        """
        lasted = now - self._started
        wait = max(self._gap - lasted, 0.0)
        if lasted >= USEFUL_SECONDS and not failed:
            self._d = FIRST_SECONDS
        elif failed or not self.outlived(now):
            self._d = min(self._d * 2.0, LONGEST_SECONDS)

        return max(wait, min(retry_after or 0.0, RETRY_AFTER_LIMIT_SECONDS))


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
