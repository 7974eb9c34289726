"""A network that cuts connections, and a slow one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recovery_bounds import SLOW_BYTES, SLOW_BYTES_PER_SECOND
from scenes import change, client_of, config_map, create, following, same, watched
from wire import Cutting, proxying

from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_cut_watch_resumes_where_it_was(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
    how: Cutting,
) -> None:
    path = server.path("configmaps")
    await create(http, path, [config_map(f"map-{number}") for number in range(20)])
    async with proxying(server.url) as proxy:
        client = client_of(server, url=proxy.url)
        async with following(client, CONFIG_MAPS, namespace=server.namespace) as it:
            await watched(it, http, path)

            proxy.cut(how)
            async with recovery("end"):
                await change(http, f"{path}/map-7", "changed")
                await same(it, http, path)

            # Resumed, not relisted.
            assert it.informer.status.restarts == 1


async def test_slow_connection_loses_nothing(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path = server.path("configmaps")
    # As much again as the changes that follow.
    large = [config_map(f"map-{number}", size=SLOW_BYTES // 50) for number in range(50)]
    await create(http, path, large)
    async with proxying(server.url) as proxy:
        proxy.bytes_per_second = SLOW_BYTES_PER_SECOND
        client = client_of(server, url=proxy.url)
        async with following(client, CONFIG_MAPS, namespace=server.namespace) as it:
            await same(it, http, path)
            for number in range(20):
                await change(http, f"{path}/map-{number}", "y" * (SLOW_BYTES // 20))

            async with recovery("slow"):
                await same(it, http, path)

            assert it.errors == []
