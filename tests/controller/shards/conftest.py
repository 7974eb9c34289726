"""Fixtures of shard groups: a server, and replicas on it."""

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
