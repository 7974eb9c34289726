"""kubernetes_asyncio and kubernetes.aio with custom resources, typed and dynamic."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from official_clients import (
    ASYNC_CLIENTS,
    MERGE_PATCH,
    connected,
    established,
    types_and_names,
)
from peer_servers import (
    ADDED_CHANGED_DELETED,
    SHARED_SSL,
    config_map,
    definition,
    discovered,
    gadget,
    kubeconfig_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL


@pytest.fixture(params=ASYNC_CLIENTS)
async def k(
    request: pytest.FixtureRequest, target: ServerUnderTest, tmp_path: Path
) -> AsyncIterator[Any]:
    async with connected(request.param, kubeconfig_of(target, tmp_path)) as it:
        yield it


@asynccontextmanager
async def defined(k: Any, target: ServerUnderTest) -> AsyncIterator[dict[str, str]]:
    """Create the definition of gadgets, and yield their path parameters."""
    extensions = k.client.ApiextensionsV1Api(k.api)
    body = definition(target)
    name = body["metadata"]["name"]
    made = await extensions.create_custom_resource_definition(body)
    try:
        while not established(made):
            made = await extensions.read_custom_resource_definition(name)

        await discovered(target)
        yield {
            "group": body["spec"]["group"],
            "version": "v1",
            "namespace": target.namespace,
            "plural": "gadgets",
        }
    finally:
        await extensions.delete_custom_resource_definition(name)


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
async def test_kubernetes_asyncio_reads_and_writes_custom_objects(
    k: Any, target: ServerUnderTest
) -> None:
    custom = k.client.CustomObjectsApi(k.api)
    async with defined(k, target) as where:
        await custom.create_namespaced_custom_object(**where, body=gadget(target, "a"))
        await custom.patch_namespaced_custom_object_status(
            **where,
            name="a",
            body={"status": {"replicas": 1}},
            _content_type=MERGE_PATCH,
        )
        await custom.patch_namespaced_custom_object_scale(
            **where, name="a", body={"spec": {"replicas": 7}}, _content_type=MERGE_PATCH
        )
        scale = await custom.get_namespaced_custom_object_scale(**where, name="a")
        found = await custom.list_namespaced_custom_object(**where)
        await custom.delete_namespaced_custom_object(**where, name="a")
        left = await custom.list_namespaced_custom_object(**where)

    assert (scale["spec"], scale["status"]) == ({"replicas": 7}, {"replicas": 1})
    assert [(it["spec"], it["status"]) for it in found["items"]] == [
        ({"replicas": 7}, {"replicas": 1})
    ]
    assert left["items"] == []


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
async def test_kubernetes_asyncio_gets_schema_error(
    k: Any, target: ServerUnderTest
) -> None:
    custom = k.client.CustomObjectsApi(k.api)
    body = {**gadget(target, "a"), "spec": {"replicas": "many"}}
    async with defined(k, target) as where:
        with pytest.raises(
            k.client.ApiException, match="must be of type integer"
        ) as it:
            await custom.create_namespaced_custom_object(**where, body=body)

    assert it.value.status == 422


async def test_kubernetes_asyncio_dynamic_client_finds_built_in_kinds(
    k: Any, target: ServerUnderTest, tmp_path: Path
) -> None:
    namespace = target.namespace
    dynamic = await k.dynamic.DynamicClient(k.api, cache_file=str(tmp_path / "cache"))
    maps = await dynamic.resources.get(api_version="v1", kind="ConfigMap")

    await maps.create(body=config_map("a", colour="red"), namespace=namespace)
    patch = {"metadata": {"name": "a"}, "data": {"size": "3"}}
    changed = await maps.patch(body=patch, namespace=namespace)
    applied = await maps.server_side_apply(
        body=config_map("b"), namespace=namespace, field_manager="me"
    )
    found = await maps.get(namespace=namespace)
    await maps.delete(name="a", namespace=namespace)

    assert changed.data.to_dict() == {"colour": "red", "size": "3"}
    assert applied.metadata.managedFields[0].operation == "Apply"
    assert [it.metadata.name for it in found.items] == ["a", "b"]
    assert [it.metadata.name for it in (await maps.get(namespace=namespace)).items] == [
        "b"
    ]


@pytest.mark.alone
@pytest.mark.usefixtures("settled_groups")
async def test_kubernetes_asyncio_dynamic_client_finds_new_kind(
    k: Any, target: ServerUnderTest, tmp_path: Path
) -> None:
    """The client caches discovery in a file, and refreshes it for an unknown kind."""
    namespace = target.namespace
    dynamic = await k.dynamic.DynamicClient(k.api, cache_file=str(tmp_path / "cache"))
    async with defined(k, target) as where:
        gadgets = await dynamic.resources.get(
            api_version=f"{where['group']}/v1", kind="Gadget"
        )
        made = await gadgets.create(body=gadget(target, "a"), namespace=namespace)
        version = str(int(made.metadata.resourceVersion) - 1)
        patch = {"metadata": {"name": "a"}, "spec": {"replicas": 3}}
        await gadgets.patch(body=patch, namespace=namespace, content_type=MERGE_PATCH)
        await gadgets.delete(name="a", namespace=namespace)
        seen = [
            event
            async for event in gadgets.watch(
                namespace=namespace, resource_version=version, timeout=1
            )
        ]

    assert (gadgets.name, gadgets.namespaced) == ("gadgets", True)
    assert sorted(gadgets.subresources) == ["scale", "status"]
    assert types_and_names(seen) == ADDED_CHANGED_DELETED
    assert [it["object"].spec.replicas for it in seen] == [2, 3, 3]
