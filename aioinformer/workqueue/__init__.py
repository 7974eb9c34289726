"""Work queues: distinct items for workers, with delays, retries and priorities.

At most one worker works on an item. If the item is added meanwhile, it is queued again.
Only waiting is asynchronous. The package is independent of Kubernetes, starts no tasks,
and only reads the loop's clock.
"""

from aioinformer.workqueue.limiters import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    ItemFastSlowRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    WithMaxWaitRateLimiter,
    default_controller_rate_limiter,
)
from aioinformer.workqueue.priority import LOW_PRIORITY, PriorityQueue
from aioinformer.workqueue.queue import (
    DelayingQueue,
    RateLimitingQueue,
    WorkQueue,
)

__all__ = [
    "LOW_PRIORITY",
    "BucketRateLimiter",
    "DelayingQueue",
    "ItemExponentialFailureRateLimiter",
    "ItemFastSlowRateLimiter",
    "MaxOfRateLimiter",
    "PriorityQueue",
    "RateLimiter",
    "RateLimitingQueue",
    "WithMaxWaitRateLimiter",
    "WorkQueue",
    "default_controller_rate_limiter",
]
