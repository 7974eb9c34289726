"""`Throttle`: rate limit of a client's requests."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from math import ceil, inf
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer.workqueue.limiters import TokenBucket

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Throttle"]

# client-go's default is 5 a second with a burst of 10.
BURST_FOR_EACH_QPS = 2


class Throttle:
    """Token bucket: each request takes a token, or waits in a queue for one.

    A cancelled waiter takes no token, so that requests that are never sent do not delay
    others. It owns one timer while there are waiters, and no task.

    Args:
        qps: Tokens added per second.
        burst: Capacity of the bucket, which starts full.

    Raises:
        OptionsError: If `qps` is not above 0 or not finite, or `burst` is under 1 or
            not finite.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._bucket = TokenBucket(qps, burst)

        # Invariant: a timer is set exactly while there are waiters.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, qps: float | None, burst: int | None) -> Self | None:
        """Create it from a client's options; None without a rate.

        Raises:
            OptionsError: If they are invalid, or there is a burst without a rate.
        """
        if qps is not None:
            default = max(1, ceil(BURST_FOR_EACH_QPS * qps)) if 0 < qps < inf else 1
            return cls(qps, default if burst is None else burst)

        if burst is not None:
            raise OptionsError("burst= has no effect without qps=")

        return None

    def __repr__(self) -> str:
        return (
            f"<Throttle qps={self._bucket.qps:g} burst={self._bucket.burst} "
            f"waiting={len(self._waiters)}>"
        )

    async def wait(self) -> None:
        """Take a token, in the order of the calls.

        Cancellation:
            Safe: the token goes to the next waiter.
        """
        loop = asyncio.get_running_loop()
        if not self._waiters and self._take(loop.time()):
            return

        # The bucket was refilled just now, or a timer is set.
        waiter = loop.create_future()
        self._waiters.append(waiter)
        self._set_timer(loop)
        granted = False
        try:
            await waiter
            granted = True
        finally:
            if not granted:
                self._withdraw(waiter, loop)

    def release(self) -> None:
        """Wake all waiters without tokens, as the client is being closed."""
        while self._waiters:
            _wake(self._waiters.popleft())

        self._drop_timer()

    # ------------------------------------------------------------ tokens

    def _take(self, now: float) -> bool:
        # A client that is entered again may use an earlier clock of another loop.
        self._bucket.fill(now)
        if self._bucket.tokens < 1.0:
            return False

        self._bucket.take()
        return True

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        # At least the token that the timer was set for, despite rounding.
        self._bucket.fill(loop.time())
        self._bucket.tokens = max(self._bucket.tokens, 1.0)
        self._grant_tokens(loop)

    def _grant_tokens(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake a waiter for each token, and set the timer for the next."""
        while self._waiters:
            if self._waiters[0].done():  # cancelled just now
                self._waiters.popleft()
            elif self._take(loop.time()):
                _wake(self._waiters.popleft())
            else:
                self._set_timer(loop)
                return

        self._drop_timer()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            delay = self._bucket.seconds_to(1.0)
            self._timer = loop.call_at(loop.time() + delay, self._on_timer, loop)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _withdraw(
        self, waiter: asyncio.Future[None], loop: asyncio.AbstractEventLoop
    ) -> None:
        if waiter.done() and not waiter.cancelled():
            # Granted a token and cancelled in the same turn of the loop.
            self._bucket.give(1.0)
        else:
            with suppress(ValueError):
                self._waiters.remove(waiter)

        self._grant_tokens(loop)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
