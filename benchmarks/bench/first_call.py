"""Shortest program with an informer, which reports the first call of its handler.

    python -m bench.first_call URL

It writes one JSON object: the time of the first call, the time when the handler had seen
all objects, and the bodies in the cache. Times are those of `time.monotonic()`, which all
processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from aioinformer import Client, KubeObject, SharedInformerFactory

__all__ = ["main"]


async def main(url: str) -> None:
    """List all pods, and write the object."""
    calls: list[float] = []

    async def added(pod: KubeObject) -> None:
        calls.append(time.monotonic())

    factory = SharedInformerFactory(Client.from_url(url))
    informer = factory.informer("v1", "pods")
    handler = informer.add_event_handler(added)
    async with factory:
        await handler.wait_synced()
        synced = time.monotonic()
        bodies = [pod.raw.decode() for pod in informer.store.list()]

    print(json.dumps({"first": calls[0], "synced": synced, "bodies": bodies}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
