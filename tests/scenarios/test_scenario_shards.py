"""An API server that begins and stops to filter by shard, as in an upgrade."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from scenes import (
    Churn,
    client_of,
    config_map,
    create,
    following,
    fresh,
    restarted,
    until,
)

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.model.shards import ShardSelector, ranges_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp
    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from scenes import Contents, Following

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

QUARTERS = [ShardSelector((it,)) for it in ranges_of(4)]


@pytest.mark.timeout(400)
async def test_shards_are_the_server_while_it_begins_and_stops_to_filter(
    own: ServerUnderTest, plane: ControlPlane
) -> None:
    path = own.path("configmaps")
    await restarted(plane, ShardedListAndWatch=False)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(own.session())
        await create(http, path, [config_map(f"old-{number}") for number in range(40)])
        assert not await filters(http, path)
        parts = [
            await stack.enter_async_context(
                following(
                    client_of(own), CONFIG_MAPS, namespace=own.namespace, shards=it
                )
            )
            for it in QUARTERS
        ]
        assert [it.informer.status.sharded_by_server for it in parts] == [False] * 4
        await union(parts, http, path)

        for seed, on in enumerate([True, False, True]):
            await restarted(plane, ShardedListAndWatch=on)
            http = await stack.enter_async_context(own.session())
            assert await filters(http, path) == on
            await Churn(http, path, seed, prefix=f"new-{seed}").go(60)
            await union(parts, http, path)


async def filters(http: aiohttp.ClientSession, path: str) -> bool:
    """Return whether lists and watches respect a selector that selects nothing."""
    nothing = (
        "shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')"
    )
    query = {"shardSelector": nothing}
    async with http.get(path, params=query) as answer:
        found = await answer.json()

    watch = {**query, "watch": "1", "resourceVersion": "0", "timeoutSeconds": "1"}
    async with http.get(path, params=watch) as answer:
        events = (await answer.read()).splitlines()

    filtered = not found["items"]
    assert filtered == (not events) == ("shardInfo" in found["metadata"])
    return filtered


async def union(
    parts: Sequence[Following], http: aiohttp.ClientSession, path: str
) -> None:
    """Wait until the parts are the whole; no object is in two of them meanwhile."""
    whole = await fresh(http, path)

    def joined() -> Contents:
        stored = [it.stored for it in parts]
        found = {key: it for part in stored for key, it in part.items()}
        assert len(found) == sum(map(len, stored))
        return found

    await until(lambda: joined() == whole)
