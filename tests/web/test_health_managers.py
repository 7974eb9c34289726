"""What `/livez` and `/readyz` say of a manager."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from controller_helpers import Notes
from leader_helpers import MemoryLease
from manager_helpers import elector_of, managed

from aioinformer import Manager, SharedInformerFactory
from aioinformer.testing import APIServer
from aioinformer.web.health import livez, readyz

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        yield server


async def test_one_that_runs_is_ready_even_if_it_waits_to_lead(
    server: APIServer,
) -> None:
    lease = MemoryLease()
    async with elector_of(lease, "other").leading():
        manager = managed(server, Notes(), elector=elector_of(lease, "me"))
        assert readyz(manager).status == 503
        async with manager:
            await manager.wait_for_cache_sync(timeout=30)
            assert (readyz(manager).status, livez(manager).status) == (200, 200)
            assert json.loads(livez(manager).body)["trouble"] == ""

        assert (readyz(manager).status, livez(manager).status) == (503, 503)


async def test_one_that_has_failed_is_dead_though_its_informers_live(
    server: APIServer,
) -> None:
    async def fails() -> None:
        raise ValueError("boom")

    async with server.client() as client:
        factory = SharedInformerFactory(client)
        factory.informer("v1", "pods")
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            manager = Manager(client, factory=factory)
            manager.add(fails)
            await manager.start()
            await asyncio.sleep(1)
            for answer in (livez(manager), readyz(manager)):
                assert answer.status == 503
                body = json.loads(answer.body)
                assert body["trouble"] == "manager failed"
                assert "boom" not in str(answer.body)
                assert body["informers"][0]["ok"]

            told = json.loads(livez(manager, reasons=True).body)
            assert told["reason"] == "failed: ValueError('boom')"
            assert livez(factory).status == 200
            with pytest.raises(ValueError, match="boom"):
                await manager.shutdown()
