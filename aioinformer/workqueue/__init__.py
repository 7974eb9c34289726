"""Work queues: which key to work on next, by which worker, and when again.

An item is queued or in work, and never in the hands of two workers. If it is added
while in work, it is queued again. Everything but waiting is a plain function. The layer
does not know Kubernetes, starts no task, and reads no clock but the loop's.
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
