"""A CRD that is deleted and created again."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from scenes import PATIENCE_SECONDS, client_of, create, following, remove, same

from aioinformer import Resource

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(things: Resource) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": things.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "metadata": {"name": f"{things.plural}.{things.group}"},
        "spec": {
            "group": things.group,
            "scope": "Namespaced",
            "names": {"plural": things.plural, "kind": things.kind},
            "versions": [version],
        },
    }


def thing(things: Resource, name: str) -> dict[str, Any]:
    return {
        "apiVersion": things.api_version,
        "kind": things.kind,
        "metadata": {"name": name},
    }


async def answers(http: aiohttp.ClientSession, path: str, status: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with http.get(path) as answer:
                if answer.status == status:
                    return

            await asyncio.sleep(0.1)


async def define(http: aiohttp.ClientSession, things: Resource, path: str) -> None:
    await create(http, DEFINITIONS, [definition(things)])
    await answers(http, path, 200)


@pytest.mark.timeout(300)
async def test_informer_follows_a_recreated_crd(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    things = Resource(group, "v1", "things", "Thing")
    path = server.path("things", f"apis/{group}/v1")
    await define(http, things, path)
    client = client_of(server)
    async with following(client, things, namespace=server.namespace) as it:
        await create(http, path, [thing(things, f"old-{n}") for n in range(5)])
        await same(it, http, path)

        await remove(http, f"{DEFINITIONS}/things.{group}")
        await answers(http, f"{DEFINITIONS}/things.{group}", 404)
        await define(http, things, path)
        async with recovery("definition"):
            # Also under a name that existed before.
            names = ["old-1", "new-1", "new-2"]
            await create(http, path, [thing(things, name) for name in names])
            await same(it, http, path)

        assert len(it.stored) == len(names)
    await remove(http, f"{DEFINITIONS}/things.{group}")
