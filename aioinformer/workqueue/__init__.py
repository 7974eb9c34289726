"""Work queues: which key to work on next, by whom, and when again.

The law of this layer: an item is in one place at a time, queued or in work, never in
the hands of two workers, and what was asked for while it was in work is asked for
again. Everything but waiting is a plain function; the layer knows nothing of
Kubernetes, starts no task, and reads no clock but the loop's.
"""

from aioinformer.workqueue.delaying import DelayingQueue, RateLimitingQueue
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
from aioinformer.workqueue.queue import WorkQueue

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
