"""A controller on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from disclosures import note
from scenes import Following, change, client_of, config_map, create, remove, same

from aioinformer import Controller, Manager, ReconcileRequest
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

    from aioinformer.controller import Context

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]


class Copier:
    """Copies the text of a ConfigMap in capitals."""

    def __init__(self) -> None:
        self.under_way: set[str] = set()
        self.twice = 0

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> None:
        self.twice += request.key in self.under_way
        self.under_way.add(request.key)
        try:
            await self._copy(request, ctx)
        finally:
            self.under_way.discard(request.key)

    async def _copy(self, request: ReconcileRequest, ctx: Context) -> None:
        found = ctx.lister.get(request.key)
        if found is None or found.at("data.copy") == found.at("data.it").upper():
            return

        patch = {"data": {"copy": found.at("data.it").upper()}}
        await ctx.client.patch(
            CONFIG_MAPS, found.name, patch, namespace=found.namespace
        )


def copied(items: list[dict[str, Any]]) -> bool:
    return all(it["data"].get("copy") == it["data"]["it"].upper() for it in items)


async def test_controller_reconciles_all_changes_of_a_real_server(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path, copier = server.path("configmaps"), Copier()
    client = client_of(server)
    manager = Manager(client)
    informer = manager.informer(CONFIG_MAPS, namespace=server.namespace)
    manager.add(Controller("copier", copier.reconcile, for_=informer))
    await create(http, path, [config_map(f"map-{number}") for number in range(20)])
    async with manager:
        await create(http, path, [config_map(f"new-{number}") for number in range(20)])
        for number in range(10):
            await change(http, f"{path}/map-{number}", f"changed {number}")
            await remove(http, f"{path}/new-{number}")

        items: list[dict[str, Any]] = []
        async with recovery("changes"):
            while not (items and copied(items)):
                await asyncio.sleep(0.1)
                async with http.get(path) as answer:
                    items = (await answer.json())["items"]

            await same(Following(informer), http, path)

        note(manager, informer)

    assert len(items) == 30
    assert copier.twice == 0
