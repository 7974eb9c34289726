"""Changed histories: compacted, or restored from a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenes import (
    Churn,
    client_of,
    config_map,
    create,
    following,
    fresh,
    remove,
    same,
    until,
    up,
)
from wire import proxying

from aioinformer.errors import ResourceExpired
from aioinformer.model.resources import CONFIG_MAPS, EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract_servers import ServerUnderTest
    from control_plane import ControlPlane
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

# More changes than a server makes by itself while the watch is checked.
LOST_WRITES = 500


def event(namespace: str, name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "web"},
        "reason": "Tested",
    }


# etcd itself serves watches of events: the server does not cache them.
@pytest.mark.timeout(300)
async def test_compacted_version_causes_a_relist(
    own: ServerUnderTest, recovery: Callable[[str], Recovery]
) -> None:
    path, place = own.path("events"), own.namespace
    async with own.session() as http, proxying(own.url) as proxy:
        await create(http, path, [event(place, f"old-{n}") for n in range(10)])
        client = client_of(own, url=proxy.url)
        async with following(client, EVENTS, namespace=place) as it:
            await same(it, http, path)

            proxy.break_off()
            await create(http, path, [event(place, f"new-{n}") for n in range(10)])
            await remove(http, f"{path}/old-7")
            await own.compact()
            await until(lambda: it.informer.status.failures > 0)
            proxy.refusing = False
            async with recovery("compacted"):
                await same(it, http, path)

            assert it.failed(ResourceExpired)
            assert len(it.stored) == 19


@pytest.mark.timeout(400)
async def test_informer_trusts_a_server_restored_from_a_backup(
    own: ServerUnderTest, plane: ControlPlane, recovery: Callable[[str], Recovery]
) -> None:
    path = own.path("configmaps")
    async with own.session() as http:
        await create(http, path, [config_map(f"old-{number}") for number in range(20)])

    plane.stop()
    plane.save()
    plane.start("etcd")
    plane.start("kube-apiserver")
    await up(plane)
    async with following(client_of(own), CONFIG_MAPS, namespace=own.namespace) as it:
        kept = it.stored
        async with own.session() as http:
            await Churn(http, path).go(LOST_WRITES)
            await remove(http, f"{path}/old-7")
            await same(it, http, path)

        assert it.stored != kept
        plane.kill("kube-apiserver")
        plane.kill("etcd")
        plane.restore()
        plane.start("etcd")
        plane.start("kube-apiserver")
        await up(plane)
        async with own.session() as http, recovery("restored"):
            await same(it, http, path)
            assert await fresh(http, path) == kept

        assert it.informer.status.history_resets == 1
