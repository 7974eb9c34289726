"""Connections that stay open and silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recovery_bounds import STALLED_WATCH_SECONDS
from scenes import (
    change,
    client_of,
    config_map,
    create,
    following,
    same,
    until,
    watched,
)
from wire import proxying

from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]


async def test_stalled_list_is_repeated(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path = server.path("configmaps")
    large = [config_map(f"map-{number}", size=10_000) for number in range(50)]
    await create(http, path, large)
    async with proxying(server.url) as proxy:
        proxy.bytes_per_second = 200_000
        client = client_of(server, url=proxy.url)
        async with following(
            client, CONFIG_MAPS, synced=False, namespace=server.namespace
        ) as it:
            await until(lambda: proxy.passed > 100_000)
            proxy.swallow()
            proxy.bytes_per_second = None
            async with recovery("stalled list"):
                await same(it, http, path)

            assert "sent nothing for 30 s" in str(it.errors[0])


async def test_stalled_watch_is_replaced(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path = server.path("configmaps")
    await create(http, path, [config_map("map")])
    async with proxying(server.url) as proxy:
        client = client_of(server, url=proxy.url)
        async with following(
            client,
            CONFIG_MAPS,
            namespace=server.namespace,
            watch_seconds=STALLED_WATCH_SECONDS,
        ) as it:
            await watched(it, http, path)
            proxy.swallow()
            async with recovery("stalled watch"):
                await change(http, f"{path}/map", "changed")
                await same(it, http, path)
