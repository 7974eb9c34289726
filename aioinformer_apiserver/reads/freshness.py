"""Freshness: waiting for a version that lies in the future."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.storage.waker import EARLY_SECONDS

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.storage import Collection, Storage
    from aioinformer_apiserver.storage.waker import Bell

__all__ = ["wait_fresh"]


async def wait_fresh(
    storage: Storage,
    collection: Collection,
    version: int,
    bell: Bell,
    *,
    seconds: float,
    retry_after: int | None = None,
) -> None:
    """Wait until the storage has reached a version.

    Only a watch cache waits for one; etcd says at once that it is not here.

    Args:
        storage: Where versions are counted.
        collection: What is to be read.
        version: The one to wait for.
        bell: Rung by writes while this waits, and when the server stops.
        seconds: How long, on the loop's clock.
        retry_after: What is said about another try where there is no cache.

    Raises:
        ApiError: 504, if the version does not come in time.

    Cancellation:
        Safe.
    """
    if storage.version >= version:
        return

    if not collection.cached:
        current = storage.version
        raise statuses.too_large_version(version, current, retry_after=retry_after)

    deadline = asyncio.get_running_loop().time() + seconds
    unsubscribe = storage.subscribe(bell.ring)
    try:
        while storage.version < version:
            now = asyncio.get_running_loop().time()
            if now + EARLY_SECONDS >= deadline or bell.closed:
                raise statuses.too_large_version(version, storage.version)

            await bell.wait(until=deadline)
    finally:
        unsubscribe()
