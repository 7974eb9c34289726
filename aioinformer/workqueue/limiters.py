"""Rate limiters: delays before an item is retried.

Limiters keep plain state for each item and never wait. A `WorkQueue` calls `when()` and
waits. A limiter belongs to one queue, and to its loop.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.model.times import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import timedelta

__all__ = [
    "BucketRateLimiter",
    "ItemExponentialFailureRateLimiter",
    "ItemFastSlowRateLimiter",
    "MaxOfRateLimiter",
    "RateLimiter",
    "TokenBucket",
    "WithMaxWaitRateLimiter",
    "default_controller_rate_limiter",
]

T_contra = TypeVar("T_contra", contravariant=True)


class RateLimiter(Protocol[T_contra]):
    """Policy for the delays of items, with a count of their attempts."""

    def when(self, item: T_contra, /) -> float:
        """Count one more attempt of `item`; return the seconds to wait before it."""

    def forget(self, item: T_contra, /) -> None:
        """Drop the attempts of `item`: it succeeded, or is given up."""

    def num_requeues(self, item: T_contra, /) -> int:
        """Return the number of attempts of `item` since it was last forgotten."""


class ItemExponentialFailureRateLimiter:
    """Limiter that doubles the delay with each attempt: base, 2 base, 4 base, ...

    An item is remembered until `forget()`. If it is never forgotten, it takes memory.

    With jitter, items that failed together are not retried together. Each delay is
    drawn from the upper part of the delay without jitter, so jitter makes no delay
    longer. (client-go's limiter has no jitter.)

    Args:
        base_delay: First delay. The defaults are those of client-go's controllers.
        max_delay: Longest delay.
        jitter: Random part of each delay, from 0 to 1: a delay `d` is drawn from [(1 -
            jitter) d, d].
        rng: Source of jitter; seed it for a reproducible sequence.

    Raises:
        OptionsError: If a delay is negative or not finite, or the jitter not in [0, 1].
    """

    def __init__(
        self,
        base_delay: float | timedelta = 0.005,
        max_delay: float | timedelta = 1000.0,
        *,
        jitter: float = 0.0,
        rng: random.Random | None = None,
    ) -> None:
        if not 0.0 <= jitter <= 1.0:
            raise OptionsError(f"jitter must be from 0 to 1, not {jitter!r}")

        self._base = _not_negative("base_delay", base_delay)
        self._max = _not_negative("max_delay", max_delay)
        self._jitter = jitter
        self._rng = rng or random.Random()
        self._attempts: dict[Hashable, int] = {}

    def when(self, item: Hashable, /) -> float:
        """Count one more attempt of `item`; return the seconds to wait before it."""
        attempts = self._attempts.get(item, 0)
        self._attempts[item] = attempts + 1
        try:
            delay = min(math.ldexp(self._base, attempts), self._max)
        except OverflowError:  # beyond what a float holds, so beyond any maximum
            delay = self._max

        if not self._jitter:
            return delay

        return delay * (1.0 - self._jitter * self._rng.random())

    def forget(self, item: Hashable, /) -> None:
        """Start again with the base delay for `item`."""
        self._attempts.pop(item, None)

    def num_requeues(self, item: Hashable, /) -> int:
        """Return the number of delays of `item` since it was last forgotten."""
        return self._attempts.get(item, 0)


class ItemFastSlowRateLimiter:
    """Limiter with a short delay for first attempts, and a long one for later ones.

    An item is remembered until `forget()`.

    Args:
        fast_delay: Delay of the first `max_fast_attempts` attempts.
        slow_delay: Delay of each later attempt.
        max_fast_attempts: Number of fast attempts; 0 for none.

    Raises:
        OptionsError: If a delay is negative or not finite, or the number negative.
    """

    def __init__(
        self,
        fast_delay: float | timedelta,
        slow_delay: float | timedelta,
        max_fast_attempts: int,
    ) -> None:
        if max_fast_attempts < 0:
            raise OptionsError(
                f"max_fast_attempts must be at least 0, not {max_fast_attempts}"
            )

        self._fast = _not_negative("fast_delay", fast_delay)
        self._slow = _not_negative("slow_delay", slow_delay)
        self._max_fast_attempts = max_fast_attempts
        self._attempts: dict[Hashable, int] = {}

    def when(self, item: Hashable, /) -> float:
        """Count one more attempt of `item`; return the seconds to wait before it."""
        attempts = self._attempts.get(item, 0) + 1
        self._attempts[item] = attempts
        return self._fast if attempts <= self._max_fast_attempts else self._slow

    def forget(self, item: Hashable, /) -> None:
        """Start again with the fast attempts for `item`."""
        self._attempts.pop(item, None)

    def num_requeues(self, item: Hashable, /) -> int:
        """Return the number of delays of `item` since it was last forgotten."""
        return self._attempts.get(item, 0)


class TokenBucket:
    """Token bucket: tokens are added at a rate until the bucket is full.

    Args:
        qps: Tokens added per second.
        burst: Capacity of the bucket, which starts full.

    Attributes:
        tokens: Available tokens. Below 0, tokens were taken in advance.

    Raises:
        OptionsError: If `qps` is not above 0 or not finite, or `burst` is under 1 or
            not finite.
    """

    __slots__ = ("_filled_at", "burst", "qps", "tokens")

    def __init__(self, qps: float, burst: int) -> None:
        if not 0 < qps < math.inf or not 1 <= burst < math.inf:
            raise OptionsError(
                f"qps must be positive and burst at least 1, not {qps!r} and {burst!r}"
            )

        self.qps: float = qps
        self.burst: int = burst
        self.tokens: float = float(burst)
        self._filled_at: float | None = None

    def fill(self, now: float) -> None:
        """Add the tokens for the time until `now`, in seconds. A clock may step back."""
        elapsed = 0.0 if self._filled_at is None else now - self._filled_at
        self._filled_at = now
        self.give(max(0.0, elapsed) * self.qps)

    def take(self) -> None:
        """Take a token, in advance if there is none."""
        self.tokens -= 1.0

    def give(self, tokens: float) -> None:
        """Add tokens. Those that do not fit into the bucket are lost."""
        self.tokens = min(float(self.burst), self.tokens + tokens)

    def seconds_to(self, tokens: float) -> float:
        """Return the seconds until this many tokens are available, or 0."""
        return max(0.0, (tokens - self.tokens) / self.qps)


class BucketRateLimiter:
    """Limiter with one token bucket for all items: a rate with bursts.

    Each attempt takes a token, in advance if there is none. Its delay is the time until
    that token is added. Items are not distinguished, and none is remembered.

    Args:
        qps: Tokens added per second.
        burst: Capacity of the bucket, which starts full.
        clock: Monotonic clock in seconds. By default the time of the running event
            loop, so that delays and timers agree, or `time.monotonic` outside of a
            loop.

    Raises:
        OptionsError: If `qps` is not above 0 or not finite, or `burst` is under 1 or
            not finite.
    """

    def __init__(
        self,
        qps: float = 10.0,
        burst: int = 100,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._bucket = TokenBucket(qps, burst)
        self._clock = clock or _loop_time

    def when(self, item: Hashable, /) -> float:
        """Take a token for any item; return the seconds until it is available."""
        self._bucket.fill(self._clock())
        self._bucket.take()
        return self._bucket.seconds_to(0.0)

    def forget(self, item: Hashable, /) -> None:
        """Do nothing: tokens that were taken are not given back."""

    def num_requeues(self, item: Hashable, /) -> int:
        """Return 0: items are not distinguished."""
        return 0


T = TypeVar("T")


class MaxOfRateLimiter(Generic[T]):
    """Limiter with the longest delay of several limiters.

    Every limiter is called each time, so each counts the attempt. A bucket gives a
    token even if the delay of another limiter is longer.

    Args:
        limiters: Limiters to call. Without any, the delay is 0.
    """

    def __init__(self, *limiters: RateLimiter[T]) -> None:
        self._limiters = limiters

    def when(self, item: T, /) -> float:
        """Count one more attempt of `item`; return the seconds to wait before it."""
        return max((limiter.when(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: T, /) -> None:
        """Make every limiter forget `item`."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T, /) -> int:
        """Return the largest number of attempts that a limiter has counted."""
        return max((each.num_requeues(item) for each in self._limiters), default=0)


class WithMaxWaitRateLimiter(Generic[T]):
    """Wrapper of another limiter that bounds its delays.

    Args:
        limiter: Limiter to call.
        max_delay: Longest delay.

    Raises:
        OptionsError: If `max_delay` is negative or not finite.
    """

    def __init__(self, limiter: RateLimiter[T], max_delay: float | timedelta) -> None:
        self._limiter = limiter
        self._max = _not_negative("max_delay", max_delay)

    def when(self, item: T, /) -> float:
        """Count one more attempt of `item`; return the seconds to wait before it."""
        return min(self._limiter.when(item), self._max)

    def forget(self, item: T, /) -> None:
        """Make the limiter forget `item`."""
        self._limiter.forget(item)

    def num_requeues(self, item: T, /) -> int:
        """Return the number of attempts that the limiter has counted."""
        return self._limiter.num_requeues(item)


def default_controller_rate_limiter() -> MaxOfRateLimiter[Hashable]:
    """Return a new limiter with the defaults of controllers.

    Each item has a delay of 5 ms, doubling to 1000 s (after 19 attempts in a row). All
    items together have 10 retries a second, with a burst of 100. These are the numbers
    of client-go's controllers.
    """
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(0.005, 1000.0),
        BucketRateLimiter(qps=10.0, burst=100),
    )


def _not_negative(name: str, duration: float | timedelta) -> float:
    seconds = seconds_of(duration)
    if seconds < 0:
        raise OptionsError(f"{name} must not be negative: {duration!r}")

    return seconds


def _loop_time() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
