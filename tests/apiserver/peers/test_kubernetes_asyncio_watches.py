"""kubernetes_asyncio and kubernetes.aio watches: events, resumption and ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from official_clients import ASYNC_CLIENTS, connected, types_and_names
from peer_servers import ADDED_CHANGED_DELETED, SHARED_SSL, config_map, kubeconfig_of

from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = SHARED_SSL

each_client = pytest.mark.parametrize("name", ASYNC_CLIENTS)


@pytest.fixture(params=ASYNC_CLIENTS)
async def k(
    request: pytest.FixtureRequest, target: ServerUnderTest, tmp_path: Path
) -> AsyncIterator[Any]:
    async with connected(request.param, kubeconfig_of(target, tmp_path)) as it:
        yield it


@pytest.fixture
def namespace(target: ServerUnderTest) -> str:
    return target.namespace


async def events(
    k: Any, call: Callable[..., Any], *args: Any, stop_after: int = 0, **options: Any
) -> list[Any]:
    """Watch until the end, or until a number of events has arrived."""
    seen = []
    async with k.watch.Watch() as watch:
        async for event in watch.stream(call, *args, **options):
            seen.append(event)
            if len(seen) == stop_after:
                break

    return seen


async def life_of(k: Any, namespace: str, name: str) -> str:
    """Create, change and delete an object; return the version before."""
    before = await k.core.list_namespaced_config_map(namespace, limit=1)
    await k.core.create_namespaced_config_map(namespace, config_map(name))
    await k.core.patch_namespaced_config_map(name, namespace, {"data": {"k": "v"}})
    await k.core.delete_namespaced_config_map(name, namespace)
    return str(before.metadata.resource_version)


async def test_kubernetes_asyncio_watch_returns_models_until_timeout(
    k: Any, namespace: str
) -> None:
    version = await life_of(k, namespace, "a")

    seen = await events(
        k,
        k.core.list_namespaced_config_map,
        namespace,
        resource_version=version,
        timeout_seconds=1,
    )

    assert types_and_names(seen) == ADDED_CHANGED_DELETED
    assert {type(it["object"]) for it in seen} == {k.client.V1ConfigMap}
    assert [it["object"].data for it in seen] == [None, {"k": "v"}, {"k": "v"}]


async def test_kubernetes_asyncio_watch_gets_events_at_once(
    k: Any, namespace: str
) -> None:
    nothing = await k.core.list_namespaced_config_map(namespace)
    version = nothing.metadata.resource_version
    async with k.watch.Watch() as watch:
        stream = watch.stream(
            k.core.list_namespaced_config_map, namespace, resource_version=version
        )
        async with asyncio.TaskGroup() as group:
            first = group.create_task(anext(stream))
            await life_of(k, namespace, "a")
            seen = [await first, await anext(stream), await anext(stream)]

    assert types_and_names(seen) == ADDED_CHANGED_DELETED


async def test_kubernetes_asyncio_watch_without_version_gets_existing_objects(
    k: Any, namespace: str
) -> None:
    for name in "abc":
        await k.core.create_namespaced_config_map(namespace, config_map(name))

    seen = await events(
        k,
        k.core.list_namespaced_config_map,
        namespace,
        label_selector="is!=b",
        timeout_seconds=1,
    )

    assert sorted(types_and_names(seen)) == [("ADDED", "a"), ("ADDED", "c")]


async def test_kubernetes_asyncio_watches_custom_objects_as_dictionaries(
    k: Any, namespace: str
) -> None:
    custom = k.client.CustomObjectsApi(k.api)
    where: dict[str, Any] = {
        "group": "example.com",
        "version": "v1",
        "namespace": namespace,
        "plural": "widgets",
    }
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "size": 3,
    }
    await custom.create_namespaced_custom_object(**where, body=body)

    seen = await events(
        k, custom.list_namespaced_custom_object, **where, timeout_seconds=1
    )

    assert types_and_names(seen) == [("ADDED", "a")]
    assert seen[0]["object"]["size"] == 3


async def test_kubernetes_asyncio_watch_of_old_version_raises_410(k: Any) -> None:
    """With a timeout, the client raises at once; without one, it would retry once."""
    custom = k.client.CustomObjectsApi(k.api)

    with pytest.raises(k.client.ApiException, match=r"too old resource version: 1 \("):
        await events(
            k,
            custom.list_cluster_custom_object,
            "example.com",
            "v1",
            "widgets",
            resource_version="1",
            timeout_seconds=5,
        )


async def test_kubernetes_asyncio_watch_advances_version_by_bookmarks(
    k: Any, namespace: str
) -> None:
    await k.core.create_namespaced_config_map(namespace, config_map("a"))
    options = {"send_initial_events": True, "allow_watch_bookmarks": True}

    async with k.watch.Watch() as watch:
        stream = watch.stream(
            k.core.list_namespaced_config_map,
            namespace,
            resource_version_match="NotOlderThan",
            timeout_seconds=5,
            **options,
        )
        seen = [await anext(stream), await anext(stream)]
        version = watch.resource_version

    mark = seen[1]["raw_object"]["metadata"]
    assert [it["type"] for it in seen] == ["ADDED", "BOOKMARK"]
    assert mark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert version == mark["resourceVersion"]


# ----------------------------------------------------- faults


@each_client
async def test_kubernetes_asyncio_watch_resumes_after_end(
    name: str, tmp_path: Path
) -> None:
    async with (
        APIServer(watch_seconds=5) as server,
        connected(name, server.kubeconfig(tmp_path / "config")) as k,
    ):
        await k.core.create_namespaced_config_map("default", config_map("a"))
        async with k.watch.Watch() as watch:
            stream = watch.stream(k.core.list_namespaced_config_map, "default")
            seen = [await anext(stream)]
            # Long enough for the server to end the first watch.
            async with asyncio.TaskGroup() as group:
                second = group.create_task(anext(stream))
                await asyncio.sleep(7)
                await k.core.create_namespaced_config_map("default", config_map("b"))

            seen.append(second.result())

        versions = [
            it.query.get("resourceVersion")
            for it in server.requests
            if it.verb == "watch"
        ]

    assert types_and_names(seen) == [("ADDED", "a"), ("ADDED", "b")]
    assert versions == [None, seen[0]["raw_object"]["metadata"]["resourceVersion"]]


@each_client
async def test_kubernetes_asyncio_watch_retries_once_after_410(
    name: str, tmp_path: Path
) -> None:
    async with (
        APIServer() as server,
        connected(name, server.kubeconfig(tmp_path / "config")) as k,
    ):
        for one in "ab":
            await k.core.create_namespaced_config_map("default", config_map(one))

        server.faults.add(faults.Gone(verb="watch", after_events=1))
        list_maps = k.core.list_namespaced_config_map

        seen = await events(k, list_maps, "default", stop_after=2)

    assert types_and_names(seen) == [("ADDED", "a"), ("ADDED", "b")]
