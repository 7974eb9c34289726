"""How long to wait before the next attempt: pure arithmetic, times are handed in."""

from __future__ import annotations

import random

__all__ = ["Backoff"]

# 0.8 s doubling to 30 s, each gap drawn from [d, 2d): at the cap one attempt every 30
# to 60 s. The numbers of client-go's reflector, so that mixed clusters back off alike.
FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0

USEFUL_SECONDS = 120.0
"""A watch that lived this long shows that the server is well: start over."""

RETRY_AFTER_LIMIT_SECONDS = 120.0
"""The longest that a server can make us wait with `Retry-After`."""


class Backoff:
    """Keeps the starts of attempts at least `d` apart, with `d` from 0.8 s to 30 s.

    Each gap is drawn from [d, 2d). `d` doubles after an attempt that failed or that
    ended within its gap; an attempt that outlived its gap is followed at once and
    leaves `d` as it is; one that stayed useful for 2 minutes sets it back.

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
