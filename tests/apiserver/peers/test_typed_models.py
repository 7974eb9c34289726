"""Typed models of other clients keep all fields of every built-in kind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kind_samples import SAMPLES, Sample
from lightkube import AsyncClient, KubeConfig, codecs
from official_clients import ASYNC_CLIENTS, MERGE_PATCH, connected
from peer_servers import SHARED_SSL, kubeconfig_of

from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS, LIMIT_RANGES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL

# The server changes the status of a new definition; other tests cover definitions.
KINDS = [it for it in SAMPLES.values() if it.resource != CUSTOM_RESOURCE_DEFINITIONS]


@asynccontextmanager
async def all_kinds(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield a new object of each kind, and delete the cluster-scoped ones afterwards."""
    try:
        yield [full(sample, target) for sample in KINDS]
    finally:
        for sample in KINDS:
            if not sample.resource.namespaced:
                await remove(http, f"{sample.path(target)}/{sample.name(target)}")


async def remove(http: aiohttp.ClientSession, path: str) -> None:
    """Delete an object, and remove finalizers that no controller removes here."""
    body = {"metadata": {"finalizers": None}}
    headers = {"Content-Type": MERGE_PATCH}
    for call in (http.delete(path), http.patch(path, json=body, headers=headers)):
        async with call as answer:
            assert answer.status in {200, 404}, await answer.text()


def full(sample: Sample, target: ServerUnderTest) -> dict[str, Any]:
    resource = sample.resource
    body = sample.body(target)
    if resource == LIMIT_RANGES:
        # Servers turn an empty list into null, which the models reject.
        limit = {"type": "PersistentVolumeClaim", "max": {"storage": "9Gi"}}
        body["spec"]["limits"] = [limit]

    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def plain(value: Any) -> Any:
    """Return JSON without values that models omit or format differently."""
    match value:
        case dict():
            pairs = ((key, plain(it)) for key, it in value.items())
            return {key: it for key, it in pairs if it not in (None, {}, [])}
        case list():
            return [plain(it) for it in value]
        case str():
            return value.replace("+00:00", "Z").replace(".000000Z", "Z")
        case _:
            return value


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
async def test_generated_models_keep_all_fields(
    target: ServerUnderTest, http: aiohttp.ClientSession, tmp_path: Path, name: str
) -> None:
    file = kubeconfig_of(target, tmp_path)
    async with connected(name, file) as k, all_kinds(target, http) as bodies:
        for body in bodies:
            (made,) = await k.utils.create_from_dict(
                k.api, body, namespace=target.namespace
            )
            seen = plain(k.api.sanitize_for_serialization(made))

            assert type(made).__name__.endswith(body["kind"])
            assert seen == plain(await raw(http, body, target))


async def test_lightkube_models_keep_all_fields(
    target: ServerUnderTest, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    config = KubeConfig.from_file(str(kubeconfig_of(target, tmp_path)))
    async with (
        AsyncClient(config, trust_env=False) as client,
        all_kinds(target, http) as bodies,
    ):
        for body in bodies:
            made = await client.create(codecs.from_dict(body))

            assert type(made).__name__ == body["kind"]
            assert plain(made.to_dict()) == plain(await raw(http, body, target))


async def raw(
    http: aiohttp.ClientSession, body: dict[str, Any], target: ServerUnderTest
) -> Any:
    """Read the object created from this body, as JSON."""
    sample = next(it for it in KINDS if it.resource.kind == body["kind"])
    path = f"{sample.path(target)}/{body['metadata']['name']}"
    async with http.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()
