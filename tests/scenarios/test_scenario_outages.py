"""An API server that is killed: in the middle of a watch, and of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenes import client_of, config_map, create, following, remove, same, until, up
from wire import proxying

from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

PATIENCE = pytest.mark.timeout(300)

# A list that takes 16 s on the slowed way.
LARGE = [config_map(f"large-{number}", size=20_000) for number in range(400)]
SLOW_BYTES_PER_SECOND = 500_000


@PATIENCE
async def test_a_server_that_is_killed_in_mid_watch_is_followed_again(
    own: ServerUnderTest, plane: ControlPlane, recovery: Callable[[str], Recovery]
) -> None:
    path = own.path("configmaps")
    async with (
        own.session() as http,
        following(client_of(own), CONFIG_MAPS, namespace=own.namespace) as it,
    ):
        await create(http, path, [config_map(f"old-{number}") for number in range(20)])
        await same(it, http, path)

        plane.kill("kube-apiserver")
        await until(lambda: it.informer.status.failures > 0)
        assert len(it.stored) == 20
        plane.start("kube-apiserver")
        await up(plane)
        async with recovery("killed while watching"), own.session() as http_again:
            await create(http_again, path, [config_map("new")])
            await remove(http_again, f"{path}/old-7")
            await same(it, http_again, path)

        assert f"{own.namespace}/old-7" not in it.stored


@PATIENCE
async def test_a_list_that_a_killed_server_left_unfinished_is_made_anew(
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
