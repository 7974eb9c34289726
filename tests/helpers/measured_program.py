"""A program that uses every part that has metrics, with failures of each."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from controller_helpers import config_map
from informer_helpers import keep_busy
from leader_helpers import MemoryLease, MemoryLock, elector
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioinformer import Client, Controller, Manager, SharedInformerFactory
from aioinformer.controller.shards.shards import Shards
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS, SECRETS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Cut, ErrorEvent, Refuse

if TYPE_CHECKING:
    from pathlib import Path

    from aioinformer import Context, ReconcileRequest

__all__ = ["exposition", "kinds_of", "labels_of"]


async def exposition(directory: Path) -> str:
    """Return what the program exposes after half an hour.

    Args:
        directory: Directory for a shared cache.
    """
    registry = CollectorRegistry()
    sink = PrometheusSink(registry)
    async with APIServer(auto_namespaces=True) as server, AsyncExitStack() as stack:
        for name in ("good", "bad", "blocking"):
            server.create(CONFIG_MAPS, config_map(name))

        client = Client(server.client().config, qps=20, burst=1)
        manager = Manager(
            client, elector=elector(MemoryLock(MemoryLease(), "a")), metrics=sink
        )
        maps = manager.informer(CONFIG_MAPS)
        maps.add_event_handler(on_event=blocks, name="blocking")
        shards = Shards("maps", client, ranges=4, namespace="ops", identity="a")
        manager.add(Controller("maps", reconcile, for_=maps, shards=shards))
        secrets = manager.informer(SECRETS)
        manager.add(Controller("secrets", reconcile, for_=secrets))
        cached = SharedInformerFactory(client, cache_dir=directory, metrics=sink)
        cached.informer(CONFIG_MAPS)
        await stack.enter_async_context(manager)
        await stack.enter_async_context(cached)
        await cached.wait_for_cache_sync(timeout=30)
        server.faults.add(
            ErrorEvent(resource="secrets", status=410),
            Cut(resource="configmaps", head=False),
            Refuse(resource="configmaps", verb="get", status=429, retry_after=1),
        )
        await client.get(CONFIG_MAPS, "good", namespace="default")
        server.create(SECRETS, config_map("secret"))
        await asyncio.sleep(1800)
        generate_latest(registry)  # new metrics are shown from the next read on
        return generate_latest(registry).decode()


def labels_of(text: str) -> dict[str, set[str]]:
    """Return the labels of each sample name in an exposition."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)

    return labels


def kinds_of(text: str) -> dict[str, str]:
    """Return the type of the metric of each sample name in an exposition."""
    return {
        sample.name: family.type
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
    if request.name == "bad":
        raise ValueError("a bug of the user")

    if request.name == "blocking":
        keep_busy(0.06)


def blocks(event: object) -> None:
    keep_busy(0.06)
    raise ValueError("a bug of the user")
