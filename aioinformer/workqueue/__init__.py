"""Work queues: distinct items for workers, with delays, retries and priorities.

An item is in work at one worker at most. If it is added while in work, it is queued
again. Only waiting is asynchronous. The package does not know Kubernetes, starts no task,
and reads no clock but that of the loop.
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
