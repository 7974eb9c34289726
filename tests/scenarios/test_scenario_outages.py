"""An API server that is killed, during a watch and during a list."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from metrics_helpers import PlainSink
from scenes import client_of, config_map, create, following, remove, same, until, up
from wire import proxying

from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aiohttp
    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from scenes import Following, Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

PATIENCE = pytest.mark.timeout(300)

# A list that takes 16 s on the slow connection.
LARGE = [config_map(f"large-{number}", size=20_000) for number in range(400)]
SLOW_BYTES_PER_SECOND = 500_000


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [120, 15, 2])
async def test_informers_catch_up_soon_after_an_outage(
    own: ServerUnderTest,
    plane: ControlPlane,
    recovery: Callable[..., Recovery],
    seconds: int,
) -> None:
    path, sink = own.path("configmaps"), PlainSink()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(own.session())
        await create(http, path, [config_map(f"old-{number}") for number in range(20)])
        shared = client_of(own, metrics=sink)
        alone, *many = [
            await stack.enter_async_context(
                following(client, CONFIG_MAPS, namespace=own.namespace)
            )
            for client in (client_of(own), *[shared] * 50)
        ]
        await same(alone, http, path)

        plane.kill("kube-apiserver")
        await asyncio.sleep(seconds)
        assert len(alone.stored) == 20
        plane.start("kube-apiserver")
        await up(plane)
        tries = sum(
            number for (_, labels), number in sink.counts.items() if "<error>" in labels
        )
        after = f"after {seconds} s"
        meanwhile = f"{after}, {tries} requests meanwhile"
        http = await stack.enter_async_context(own.session())
        await create(http, path, [config_map("new")])
        await remove(http, f"{path}/old-7")
        async with asyncio.TaskGroup() as group:
            one = recovery("outage", detail=after)
            group.create_task(all_same(one, [alone], http, path))
            fifty = recovery("outage of many", detail=meanwhile)
            group.create_task(all_same(fifty, many, http, path))

    # Each informer notices by itself; then there is one probe a second for all.
    assert 1 <= tries <= 50 + seconds + 60


async def all_same(
    recovery: Recovery,
    followers: Sequence[Following],
    http: aiohttp.ClientSession,
    path: str,
) -> None:
    """Wait until all stores equal a fresh list."""
    async with recovery:
        for it in followers:
            await same(it, http, path)


@PATIENCE
async def test_list_interrupted_by_a_killed_server_is_repeated(
    own: ServerUnderTest, plane: ControlPlane, recovery: Callable[[str], Recovery]
) -> None:
    path = own.path("configmaps")
    async with own.session() as http:
        await create(http, path, LARGE)

    async with proxying(own.url) as proxy:
        proxy.bytes_per_second = SLOW_BYTES_PER_SECOND
        client = client_of(own, url=proxy.url)
        async with following(
            client, CONFIG_MAPS, synced=False, namespace=own.namespace
        ) as it:
            await until(lambda: proxy.passed > SLOW_BYTES_PER_SECOND)
            assert not it.informer.has_synced
            plane.kill("kube-apiserver")
            await until(lambda: it.informer.status.failures > 0)
            assert it.stored == {}
            proxy.bytes_per_second = None
            plane.start("kube-apiserver")
            await up(plane)
            async with recovery("killed while listing"), own.session() as http:
                await same(it, http, path)

            assert len(it.stored) == len(LARGE)
