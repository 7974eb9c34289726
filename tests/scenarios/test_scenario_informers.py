"""Informers of several namespaces, of metadata only, and of secrets."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from disclosures import note, secret
from scenes import Churn, client_of, create, following, same, server_of, until

from aioinformer.model.resources import CONFIG_MAPS, SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

    from aioinformer import KubeObject

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

WRITES = 150


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
async def test_informer_of_several_namespaces_follows_many_changes(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
    metadata_only: bool,
) -> None:
    places = [server, server_of(None)]
    body = {"metadata": {"name": places[1].namespace}}
    await create(http, "/api/v1/namespaces", [body])
    paths = [it.path("configmaps") for it in places]
    churns = [Churn(http, path, seed) for seed, path in enumerate(paths)]
    async with following(
        client_of(server),
        CONFIG_MAPS,
        namespace=[it.namespace for it in places],
        metadata_only=metadata_only,
    ) as it:
        async with asyncio.TaskGroup() as group:
            for churn in churns:
                group.create_task(churn.go(WRITES))

        async with recovery("changes"):
            await same(it, http, *paths)

        assert len(it.stored) == sum(len(churn.names) for churn in churns)
        # It has exactly what it requested.
        assert all(
            ("data" in each) != metadata_only for each in it.informer.store.list()
        )


def confidential(name: str) -> dict[str, Any]:
    data = {"key": secret(f"marker-{secrets.token_hex(16)}")}
    return {"metadata": {"name": name}, "stringData": data}


async def test_secrets_are_cached_and_not_disclosed(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path = server.path("secrets")
    told: list[str] = []

    def handler(new: KubeObject) -> None:
        told.append(new.name)
        note(new, new["data"].keys())
        raise ValueError("a handler that cannot do with it")

    client = client_of(server)
    async with following(client, SECRETS, namespace=server.namespace) as it:
        it.informer.add_event_handler(on_add=handler, name="failing")
        await create(http, path, [confidential(f"secret-{n}") for n in range(5)])
        async with recovery("changes"):
            await same(it, http, path)

        await until(lambda: len(told) == 5)
        note(*it.informer.lister.list())
