"""Helpers of the informer tests: pods, a running informer, waiting, events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from conftest import pod

from aioinformer import Added, Deleted, SharedInformerFactory, Updated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import SharedInformer
    from aioinformer.testing import APIServer

Event = Added | Updated | Deleted


def plain(name: str, **labels: str) -> dict[str, Any]:
    """Make a pod as a user creates it: without uid and version."""
    body = pod(name, labels=labels)
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    return body


@asynccontextmanager
async def pods_of(
    server: APIServer, **options: Any
) -> AsyncIterator[tuple[SharedInformerFactory, SharedInformer]]:
    """Run a factory with a synced informer of pods."""
    factory = SharedInformerFactory(server.client(), **options)
    informer = factory.informer("v1", "pods")
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        yield factory, informer


async def settled(server: APIServer, informer: SharedInformer) -> None:
    """Wait until the informer is up to date and its handlers have all events."""
    await informer.wait_for_version(server.resource_version, timeout=300)
    await asyncio.sleep(1)


async def cut_running_watch(server: APIServer, informer: SharedInformer) -> None:
    """Break the current watch: the server goes down and comes back."""
    restarts = informer.status.restarts
    contact = informer.status.last_contact
    await server.stop()
    await server.start()
    async with asyncio.timeout(60):
        while (
            informer.status.restarts == restarts
            and informer.status.last_contact == contact
        ):
            await asyncio.sleep(0.01)
