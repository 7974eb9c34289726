"""Twenty thousand objects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from scenes import Churn, client_of, config_map, create, following, same

from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

OBJECTS = 20_000


@pytest.mark.timeout(400)
async def test_informer_lists_and_follows_20_000_objects(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path = server.path("configmaps")
    await create(http, path, (config_map(f"map-{n}") for n in range(OBJECTS)))
    async with following(
        client_of(server), CONFIG_MAPS, synced=False, namespace=server.namespace
    ) as it:
        async with recovery("20,000 objects"):
            await it.informer.wait_synced(timeout=None)
            await same(it, http, path)

        assert len(it.stored) == OBJECTS
        async with asyncio.TaskGroup() as group:
            for seed in range(4):
                group.create_task(
                    Churn(http, path, seed, prefix=f"more-{seed}").go(100)
                )

        async with recovery("changes"):
            await same(it, http, path)
