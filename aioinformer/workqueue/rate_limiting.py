"""`RateLimitingQueue`: a delaying queue that a rate limiter tells how long to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.metrics import NULL_SINK, MetricsSink
from aioinformer.workqueue.delaying import DelayingQueue
from aioinformer.workqueue.limiters import default_controller_rate_limiter

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aioinformer.workqueue.limiters import RateLimiter

__all__ = ["RateLimitingQueue"]

T = TypeVar("T", bound="Hashable")


class RateLimitingQueue(DelayingQueue[T]):
    """A `DelayingQueue` for retries: what fails often waits longer.

    Guarantees:
        Those of `DelayingQueue`.

    Not guaranteed:
        That `done()` forgets an item: call `forget()` when it succeeded or is given
        up, or its next failure waits as long as if there had been no success.

    Args:
        name: Names the queue in metrics and in `repr()`.
        rate_limiter: What decides on the delays, for this queue only;
            `default_controller_rate_limiter()` unless given.
        metrics: As for `WorkQueue`.

    Example:
        >>> async def work_on_one(queue: RateLimitingQueue[str]) -> None:
        ...     async with queue.item() as key:
        ...         try:
        ...             await reconcile(key)
        ...         except OSError:
        ...             queue.add_rate_limited(key)
        ...         else:
        ...             queue.forget(key)
    """

    def __init__(
        self,
        name: str = "",
        *,
        rate_limiter: RateLimiter[T] | None = None,
        metrics: MetricsSink = NULL_SINK,
    ) -> None:
        super().__init__(name, metrics=metrics)
        self._limiter: RateLimiter[T] = (
            default_controller_rate_limiter() if rate_limiter is None else rate_limiter
        )
        for method in ("when", "forget", "num_requeues"):
            if not callable(getattr(self._limiter, method, None)):
                raise OptionsError(
                    f"not a rate limiter: {rate_limiter!r} has no {method}()"
                )

    def add_rate_limited(self, item: T) -> None:
        """Add `item` after the delay that the rate limiter says.

        The limiter counts the attempt even if the queue is shutting down.

        Raises:
            WrongLoop: If called from another loop or thread, or outside of any loop.
        """
        self.add_after(item, self._limited(item))

    def forget(self, item: T) -> None:
        """Make the rate limiter forget the failures of `item`; its next delay is short.

        Says nothing about the work: `done()` is still needed.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """How often `item` was added with a rate limit since it was last forgotten.

        Raises:
            WrongLoop: If called from another loop or thread.
        """
        self._check_loop()
        return self._limiter.num_requeues(item)

    def _limited(self, item: T) -> float:
        self._running_loop()  # before the limiter counts something
        return self._limiter.when(item)
