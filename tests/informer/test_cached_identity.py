"""Stores of informers with other transforms, endpoints and formats."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cached_informers import (
    INITIAL,
    Log,
    cached,
    drop,
    names,
    put,
    verbs,
    without_data,
)

from aioinformer import Client, SharedInformerFactory
from aioinformer.errors import NotSynced
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for name in ("a", "b", "c"):
            put(server, name)

        yield server


def store_of(informer: SharedInformer) -> Path:
    """Return the directory of an informer that writes its store."""
    cache = informer.status.cache
    assert cache is not None
    assert cache.role == "writer"
    return cache.path


def stores_in(path: Path) -> set[Path]:
    return set(path.iterdir())


def age(path: Path, seconds: float) -> None:
    """Change the time at which a store was last written."""
    data = path / "data.mdb"
    then = data.stat().st_mtime - seconds
    os.utime(data, (then, then))


@asynccontextmanager
async def elsewhere(
    server: APIServer, path: Path, *, synced: bool = True
) -> AsyncIterator[tuple[SharedInformer, Log]]:
    """Run a factory that has the server at another address, as after a new authority."""
    client = Client.from_url(
        server.url.replace("127.0.0.1", "localhost"), token=server.token
    )
    factory = SharedInformerFactory(client, cache_dir=path)
    maps = factory.informer("v1", "configmaps", namespace="default")
    log = Log(maps)
    async with factory:
        if synced:
            await maps.wait_synced(timeout=30)
            await asyncio.sleep(0.1)

        yield maps, log


# ---------------------------------------------------------------- transforms


async def test_other_transform_beside_live_processes_has_a_store_of_its_own(
    server: APIServer, tmp_path: Path
) -> None:
    async with (
        cached(server, tmp_path) as (one, first),
        cached(server, tmp_path, transform=without_data) as (two, log),
        cached(server, tmp_path, transform=without_data) as (three, _),
    ):
        assert store_of(two) != store_of(one)
        assert three.status.cache is not None
        assert three.status.cache.role == "reader"
        put(server, "a", "2")
        await asyncio.sleep(0.1)
        assert first.take() == log.take() == [*INITIAL, "updated a"]
        values = []
        for informer in (one, two, three):
            a = informer.lister.get("default/a")
            assert a is not None
            values.append(a.at("data.value"))

        assert values == ["2", None, None]


async def test_restart_with_another_transform_adopts_the_store(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, _):
        first = store_of(maps)

    drop(server, "b")
    put(server, "d")
    verbs(server)
    async with cached(server, tmp_path, transform=without_data) as (maps, log):
        assert verbs(server) == ["list", "watch"]
        assert log.take() == ["initial a", "initial c", "initial d", "missed b"]
        second = store_of(maps)
        assert second != first
        assert stores_in(tmp_path) == {second}

    drop(server, "c")
    async with cached(server, tmp_path) as (maps, log):
        assert log.take() == ["initial a", "initial d", "missed c"]
        a = maps.lister.get("default/a")
        assert a is not None
        assert a.at("data.value") == "1"
        assert stores_in(tmp_path) == {first}


async def test_adopted_objects_are_not_read_before_the_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    server.faults.add(Refuse(status=503, times=None))
    options: dict[str, Any] = {"transform": without_data, "synced": False}
    async with cached(server, tmp_path, **options) as (maps, log):
        await asyncio.sleep(5)
        with pytest.raises(NotSynced):
            maps.lister.list(allow_unconfirmed=True)

        assert log.take() == []


async def test_unused_store_is_removed_after_ten_minutes(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path, transform=without_data) as (new, _):
        async with cached(server, tmp_path) as (old, _):
            used, kept = store_of(old), store_of(new)
            age(used, 3600)
            await asyncio.sleep(61)
            assert stores_in(tmp_path) == {used, kept}

        age(used, -3600)
        await asyncio.sleep(61)
        assert stores_in(tmp_path) == {used, kept}
        age(used, 3600 + 601)
        await asyncio.sleep(61)
        assert stores_in(tmp_path) == {kept}
        assert names(new) == ["a", "b", "c"]


async def test_stores_of_other_formats_are_not_read_but_removed(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, _):
        current = store_of(maps)

    start, number, rest = current.name.rsplit("-", 2)
    later = current.rename(tmp_path / f"{start}-{int(number) + 1}-{rest}")
    drop(server, "b")
    verbs(server)
    async with cached(server, tmp_path) as (_, log):
        assert verbs(server) == ["list", "watch"]
        assert log.take() == ["initial a", "initial c"]
        assert stores_in(tmp_path) == {current, later}
        age(later, 601)
        await asyncio.sleep(61)
        assert stores_in(tmp_path) == {current}


async def test_other_selections_are_neither_adopted_nor_removed(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, _):
        first = store_of(maps)

    age(first, 3600)
    selected: dict[str, Any] = {"label_selector": "app=web"}
    async with cached(server, tmp_path, **selected) as (maps, log):
        assert log.take() == []
        second = store_of(maps)
        await asyncio.sleep(61)
        assert stores_in(tmp_path) == {first, second}


# ---------------------------------------------------------------- endpoints


async def test_other_endpoint_beside_live_processes_costs_one_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (one, _):
        verbs(server)
        async with elsewhere(server, tmp_path) as (two, log):
            assert verbs(server) == ["list", "watch"]
            assert log.take() == INITIAL
            assert store_of(two) != store_of(one)
            assert [it.status.degraded for it in (one, two)] == [0, 0]

        async with elsewhere(server, tmp_path) as (two, log):
            assert verbs(server) == ["watch"]


async def test_restart_with_another_endpoint_of_the_cluster_resumes(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    drop(server, "b")
    put(server, "d")
    verbs(server)
    server.faults.add(Refuse(status=503, times=None))
    async with elsewhere(server, tmp_path, synced=False) as (maps, log):
        await asyncio.sleep(5)
        with pytest.raises(NotSynced):  # perhaps those of another cluster
            maps.lister.list(allow_unconfirmed=True)

        server.faults.clear()
        verbs(server)
        await maps.wait_synced(timeout=120)
        await asyncio.sleep(1)
        assert verbs(server) == ["watch"]
        assert log.take() == ["initial a", "initial c", "initial d", "missed b"]
        (path,) = stores_in(tmp_path)
        assert path == store_of(maps)

    await server.stop()
    async with elsewhere(server, tmp_path, synced=False) as (maps, _):
        await asyncio.sleep(1)
        assert names(maps, allow_unconfirmed=True) == ["a", "c", "d"]


async def test_restart_with_another_endpoint_lists_if_the_cluster_is_unknown(
    server: APIServer, tmp_path: Path
) -> None:
    server.faults.add(Refuse(resource="namespaces", status=403, times=None))
    async with cached(server, tmp_path):
        pass

    verbs(server)
    drop(server, "b")
    async with elsewhere(server, tmp_path) as (_, log):
        assert verbs(server) == ["list", "watch"]
        assert log.take() == ["initial a", "initial c", "missed b"]


async def test_restart_on_another_cluster_compares_with_one_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    async with APIServer() as other:
        put(other, "d")
        async with elsewhere(other, tmp_path) as (maps, log):
            assert verbs(other) == ["list", "watch"]
            assert names(maps) == ["d"]
            assert log.take() == ["initial d", "missed a", "missed b", "missed c"]
