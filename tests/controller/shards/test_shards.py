"""`Shards` on a server: replicas join and leave, and each range has one owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from shards_helpers import Cluster

from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
def cluster(server: APIServer) -> Cluster:
    return Cluster(server)


async def test_first_replica_owns_all_ranges_soon(cluster: Cluster) -> None:
    async with cluster.replica("a") as a:
        assert await cluster.settled() < 5
        assert a.shards.held == frozenset(range(16))


async def test_replicas_share_ranges_evenly(cluster: Cluster) -> None:
    async with cluster.replicas_named("a", "b", "c") as works:
        await cluster.balanced()
        assert sorted(map(cluster.count, works)) == [5, 5, 6]
