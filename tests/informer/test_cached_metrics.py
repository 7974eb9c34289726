"""Metrics of informers that share a store on disk."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from cached_informers import cached, put
from prometheus_client import CollectorRegistry

from aioinformer import SharedInformerFactory
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path


def shown_by(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.name.removeprefix("aioinformer_cache_"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("aioinformer_cache_")
    }


async def test_metrics_of_a_cache_tell_writer_and_readers(tmp_path: Path) -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    async with APIServer() as server, server.client() as client:
        server.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
        writer, reader = (
            SharedInformerFactory(
                client, cache_dir=tmp_path / "cache", metrics=PrometheusSink(it)
            )
            for it in registries
        )
        for factory in (writer, reader):
            factory.informer(CONFIG_MAPS)

        async with writer:
            await writer.wait_for_cache_sync(timeout=30)
            async with reader:
                await reader.wait_for_cache_sync(timeout=30)
                shown = [shown_by(it) for it in registries]

    assert [it.pop("writer") for it in shown] == [1, 0]
    for it in shown:
        assert 0 <= it.pop("heartbeat_seconds") < 10
        assert it.pop("bytes") > 4096
        assert it.pop("readers") in {1, 2}  # as of the last heartbeat
        assert it == {
            "in_memory": 0,
            "lag_entries": 0,
            "stalled_readers": 0,
            "takeovers": 0,
            "journal_entries": 1,
        }


async def test_metrics_tell_that_a_cache_cannot_be_used(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    (tmp_path / "file").touch()
    async with APIServer() as server, server.client() as client:
        factory = SharedInformerFactory(
            client, cache_dir=tmp_path / "file", metrics=PrometheusSink(registry)
        )
        factory.informer(CONFIG_MAPS)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            shown = shown_by(registry)

    assert (shown["in_memory"], shown["writer"]) == (1, 0)


@pytest.mark.parametrize("vanishes", [False, True])
async def test_bytes_are_shown_once_the_objects_are_in_memory(
    tmp_path: Path, vanishes: bool
) -> None:
    def shown() -> float | None:
        name = "aioinformer_informer_json_bytes"
        return registry.get_sample_value(name, {"name": maps.name})

    registry = CollectorRegistry()
    if not vanishes:
        (tmp_path / "cache").touch()

    async with APIServer() as server:
        put(server, "a")
        async with cached(server, tmp_path / "cache") as (maps, _):
            maps.set_metrics(PrometheusSink(registry))
            if vanishes:
                cache = maps.status.cache
                assert cache is not None
                assert shown() is None
                os.rename(cache.path, tmp_path / "gone")

            await asyncio.sleep(5)
            shown()  # a registry shows new metrics from the next read on
            assert shown() == sum(len(it.raw) for it in maps.indexer.list()) > 0
